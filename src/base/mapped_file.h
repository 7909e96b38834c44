/* mapped_file — which file lies at an address, so that a read error in mapped memory is reported
 * with the file's name.
 *
 * The kernel reports a file that was cut, or a disk that failed, only as SIGBUS. Code that maps a
 * file registers it here, and the signal's handler looks the address up. Must not know what the
 * bytes mean or how a process ends. */
#ifndef CONVOY_BASE_MAPPED_FILE_H
#define CONVOY_BASE_MAPPED_FILE_H

#include <stddef.h>

#include "base/status.h"

/* mapped_file_add — any thread. mapped_file_remove — call before unmapping; an address that was not
 * added is fine. */
void mapped_file_add(const char *path, const void *data, size_t bytes);
void mapped_file_remove(const void *data);
/* mapped_file_fault — in a signal handler: why the page at this address cannot be read, with the
 * sentence in out.
 *   ST_OK        the address is in no registered file
 *   ST_BAD_DATA  the file was cut short
 *   ST_STORE     the file has its length, so the disk failed */
enum status mapped_file_fault(const void *address, char *out, size_t cap);

/* mapped_file_check — call from time to time: ST_BAD_DATA when a mapped file has become shorter.
 * The missing part of its last page reads as zeros, without a signal. */
enum status mapped_file_check(void);

#endif

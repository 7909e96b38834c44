/* mapped_file — the file at an address, so that a read error in mapped memory is reported with the
 * file's name.
 *
 * The kernel reports a file that was cut, or a disk that failed, only as SIGBUS. Code that maps a
 * file registers it here, and the signal's handler looks the address up. Must not know the meaning
 * of the bytes or how a process ends. */
#ifndef CONVOY_BASE_MAPPED_FILE_H
#define CONVOY_BASE_MAPPED_FILE_H

#include <stddef.h>

#include "base/status.h"

/* mapped_file_add — registers a mapping. Any thread. */
void mapped_file_add(const char *path, const void *data, size_t bytes);
/* mapped_file_remove — removes a mapping. Call it before unmapping; an address that was not added
 * is accepted. */
void mapped_file_remove(const void *data);
/* mapped_file_fault — in a signal handler: finds the reason why the page at this address cannot be
 * read, and writes the sentence to out.
 *   ST_OK        the address is in no registered file
 *   ST_BAD_DATA  the file was cut short
 *   ST_STORE     the file has its length, so the disk failed */
enum status mapped_file_fault(const void *address, char *out, size_t cap);

/* mapped_file_check — returns ST_BAD_DATA if a mapped file has become shorter. Call it from time to
 * time: the missing bytes of its last page reads as zeros, without a signal. */
enum status mapped_file_check(void);

#endif

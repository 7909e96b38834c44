/* mapped_file — which file lies at an address, so that a page that cannot be read ends with the
 * file's name.
 *
 * The kernel has no other way to say "this file was cut" or "its disk failed" about mapped memory
 * than SIGBUS. Code that maps a file registers it; the handler of the signal asks. Must not know
 * what the bytes mean or how a process ends. */
#ifndef CONVOY_BASE_MAPPED_FILE_H
#define CONVOY_BASE_MAPPED_FILE_H

#include <stddef.h>

#include "base/status.h"

/* mapped_file_add — any thread; what cannot be noted for want of memory ends as a crash would.
 * mapped_file_remove — before the memory is unmapped; an address that was not added is fine. */
void mapped_file_add(const char *path, const void *data, size_t bytes);
void mapped_file_remove(const void *data);
/* mapped_file_fault — in a signal handler: why the page at this address could not be read. ST_OK:
 * it is
 * in no file; ST_BAD_DATA: the file was cut short; ST_STORE: it was not, so it is the disk. The
 * sentence goes to out. */
enum status mapped_file_fault(const void *address, char *out, size_t cap);

/* mapped_file_check — from time to time: ST_BAD_DATA when a mapped file has become shorter. What is
 * missing of its last page reads as zeros and makes no signal. */
enum status mapped_file_check(void);

#endif

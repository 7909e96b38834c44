/* crash — what a process says before a fatal signal ends it: signal, address, its last notes, and
 * where it was.
 *
 * A SIGBUS in a mapped file (base/mapped_file.h) is no crash: the file was cut or its disk failed,
 * so the process ends with 65 or 74 and the file's name. Any other signal is then raised again with
 * its default action, so that the parent sees the true cause. Must not know what the process was
 * doing; assert_note tells. */
#ifndef CONVOY_NODE_CRASH_H
#define CONVOY_NODE_CRASH_H

#include "base/status.h"

/* crash_on_mapped_file — where the sentence about a mapped file goes instead of stderr, where a
 * parent logs it. Called in the signal handler. */
void crash_on_mapped_file(void (*fn)(void *arg, enum status st, const char *sentence), void *arg);
/* for SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT; sanitizers keep their own handlers */
void crash_install(void);

#endif

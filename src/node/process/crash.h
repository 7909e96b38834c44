/* crash — the report that a fatal signal leaves on stderr: signal, address, the last notes
 * (assert_note) and a backtrace.
 *
 * A SIGBUS in a mapped file (base/mapped_file.h) is no crash: the file was cut or its disk failed,
 * so the process exits with 65 or 74 and the file's name. After any other signal the handler raises
 * it again with its default action, so that the parent sees the true cause. Must not know what the
 * process was doing. */
#ifndef CONVOY_NODE_CRASH_H
#define CONVOY_NODE_CRASH_H

#include "base/status.h"

/* crash_on_mapped_file — call fn with the sentence about a mapped file instead of printing it, for
 * a worker whose supervisor logs it. Called in the signal handler. NULL: print it. */
void crash_on_mapped_file(void (*fn)(void *arg, enum status st, const char *sentence), void *arg);
/* for SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT; sanitizers keep their own handlers */
void crash_install(void);

#endif

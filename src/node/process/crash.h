/* crash — writes a report to stderr on a fatal signal: signal, address, the last notes
 * (assert_note) and a backtrace.
 *
 * A SIGBUS in a mapped file (base/mapped_file.h) is no crash: the file was cut or its disk failed,
 * so the process reports the file's name and exits with 65 or 74. After any other signal the
 * handler raises it again with its default action, so that the parent sees the true cause. Must not
 * know the activity of the process. */
#ifndef CONVOY_NODE_CRASH_H
#define CONVOY_NODE_CRASH_H

#include "base/status.h"

/* crash_on_mapped_file — calls fn with the message about a mapped file instead of printing it, for
 * a worker whose supervisor logs it. fn runs in the signal handler. NULL: print the message. */
void crash_on_mapped_file(void (*fn)(void *arg, enum status st, const char *sentence), void *arg);
/* crash_install — installs the handler for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT. Sanitizers
 * keep their own handlers. */
void crash_install(void);

#endif

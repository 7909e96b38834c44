/* crash — what a process says before a fatal signal ends it: signal, address, its last notes, and where it
 * was.
 *
 * The signal is then raised again with its default action, so that whoever waits sees the true cause. Must
 * not know what the process was doing; must_note tells. */
#ifndef CONVOY_NODE_CRASH_H
#define CONVOY_NODE_CRASH_H

void crash_install(
    void); /* for SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT; sanitizers keep their own handlers */

#endif

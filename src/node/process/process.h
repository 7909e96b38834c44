/* process — what every process of this program sets once at its start: limits, ignored signals, and
 * what it must not leak. Must not know commands. */
#ifndef CONVOY_NODE_PROCESS_H
#define CONVOY_NODE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

/* Signals whose default is to end the process, without a checkpoint, and that schedulers and
 * forgotten timers send. A run takes them as SIGTERM; its workers ignore them, also the SIGXCPU of
 * a limit of processor time, which the kernel sends to the worker itself. */
#define PROCESS_STOP_SIGNALS_N 8
extern const int process_stop_signals[PROCESS_STOP_SIGNALS_N];

/* process_begin — set up this process:
 * - a stack of 8 MiB, for its threads, too, whatever `ulimit -s` says; ST_BAD_SETTING when the
 *   limit cannot be raised and is so low that a call may not fit
 * - as many open files as are allowed; ST_BAD_SETTING when so few are that nothing works
 * - a file that grows beyond RLIMIT_FSIZE fails the write instead of raising a signal
 * - no core dumps
 * - no new privileges for programs executed later. may_use_gpu: unless NVIDIA's setuid helper is
 *   needed, which makes missing device files */
enum status process_begin(bool may_use_gpu);
/* ---- a process that was just forked: only async-signal-safe calls ---- */

/* Lets this process end with its parent, by SIGKILL; ends it now if the parent is gone already. */
void process_bind_to(pid_t parent);
/* Ignores what stops a run: SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGPIPE and process_stop_signals. It
 * outlives exec. */
void process_ignore_stops(void);
/* Executes this program with these arguments. Returns only if that fails. */
void process_exec_self(char *const *argv);

/* ---- signals ---- */

/* Notes SIGINT and SIGTERM, and SIGHUP if takes_hangup and it is not ignored, for a command that
 * looks for them between two parts of its work. */
void process_note_signals(bool takes_hangup);
/* Returns the signal that was noted last; 0: none. */
int process_noted(void);
/* Fails with the status of the noted signal: "stopped by a signal; OUT was not written". */
enum status process_fail_noted(const char *unmade, const char *verb);
/* process_ignores — is this signal ignored, as nohup does with SIGHUP? */
bool process_ignores(int signal_n);
/* process_has_default — Returns true if the signal is neither ignored nor handled, as a preloaded
 * profiler handles SIGPROF. */
bool process_has_default(int signal_n);

#endif

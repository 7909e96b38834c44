/* process — process-wide settings that every process of this program makes once at its start:
 * limits, ignored signals, and protection against leaks. Must not know commands. */
#ifndef CONVOY_NODE_PROCESS_H
#define CONVOY_NODE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

/* Signals that end the process by default, without a checkpoint, and that schedulers and forgotten
 * timers send. A run handles them like SIGTERM. Its workers ignore them, including the SIGXCPU of a
 * CPU time limit, which the kernel sends to the worker itself. */
#define PROCESS_STOP_SIGNALS_N 8
extern const int process_stop_signals[PROCESS_STOP_SIGNALS_N];

/* process_begin — sets up this process:
 *   - a stack of 8 MiB, also for its threads, whatever `ulimit -s` is. ST_BAD_SETTING: the limit
 *     cannot be raised and is so low that a call may not fit
 *   - as many open files as the hard limit allows. ST_BAD_SETTING: the limit is too low for any
 *     command
 *   - a file that grows beyond RLIMIT_FSIZE fails the write instead of raising a signal
 *   - no core dumps
 *   - no new privileges for programs that are executed later. may_use_gpu: unless NVIDIA's setuid
 *     helper is needed, which creates missing device files */
enum status process_begin(bool may_use_gpu);
/* ---- a process that was just forked: only async-signal-safe calls ---- */

/* process_bind_to — makes the kernel end this process by SIGKILL when its parent ends. Ends it
 * immediately if the parent has ended already. */
void process_bind_to(pid_t parent);
/* process_ignore_stops — ignores the signals that stop a run: SIGINT, SIGTERM, SIGUSR1, SIGHUP,
 * SIGPIPE and process_stop_signals. They stay ignored after exec. */
void process_ignore_stops(void);
/* process_exec_self — executes this program with these arguments. Returns only if that fails. */
void process_exec_self(char *const *argv);

/* ---- signals ---- */

/* process_note_signals — records SIGINT and SIGTERM, and also SIGHUP if handles_hangup is set and
 * SIGHUP is not ignored. For a command that checks for them between two parts of its work. */
void process_note_signals(bool handles_hangup);
/* process_noted — returns the last recorded signal; 0: none. */
int process_noted(void);
/* process_fail_noted — fails with the status of the recorded signal: "stopped by a signal; OUT was
 * not written". */
enum status process_fail_noted(const char *unmade, const char *verb);
/* process_ignores — returns true if the signal is ignored, as SIGHUP is under nohup. */
bool process_ignores(int signal_n);
/* process_has_default — returns true if the signal is neither ignored nor handled; a preloaded
 * profiler, for example, handles SIGPROF. */
bool process_has_default(int signal_n);

#endif

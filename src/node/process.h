/* process — what every process of this program sets once at its start: limits, ignored signals, and
 * what it must not leak. Must not know commands. */
#ifndef CONVOY_NODE_PROCESS_H
#define CONVOY_NODE_PROCESS_H

#include <stdbool.h>

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
/* process_ignores — is this signal ignored, as nohup does with SIGHUP? */
bool process_ignores(int signal_n);
/* process_has_default — Returns true if the signal is neither ignored nor handled, as a preloaded
 * profiler handles SIGPROF. */
bool process_has_default(int signal_n);

#endif

/* process — what every process of this program sets once at its start: limits, ignored signals, and
 * what it must not leak. Must not know commands. */
#ifndef CONVOY_NODE_PROCESS_H
#define CONVOY_NODE_PROCESS_H

#include <stdbool.h>

#include "base/status.h"

/* process_begin — set up this process:
 * - as many open files as are allowed; ST_BAD_SETTING when so few are that nothing works
 * - a file that grows beyond RLIMIT_FSIZE fails the write instead of raising a signal
 * - no core dumps
 * - no new privileges for programs executed later. may_use_gpu: unless NVIDIA's setuid helper is
 *   needed, which makes missing device files */
enum status process_begin(bool may_use_gpu);
/* process_ignores — is this signal ignored, as nohup does with SIGHUP? */
bool process_ignores(int signal_n);

#endif

/* process — what every process of ours sets once, before it works: limits and signals that would
 * end it in the midst, and what it must not give away. Must not know commands. */
#ifndef CONVOY_NODE_PROCESS_H
#define CONVOY_NODE_PROCESS_H

#include <stdbool.h>

#include "base/status.h"

/* process_begin — as many open files as are allowed; a file that grows beyond its limit
 * (RLIMIT_FSIZE) is an error of the write, not a signal; no core dumps; no new privileges by what
 * is executed later. may_use_gpu: NVIDIA's setuid helper, which makes device files that are
 * missing, keeps its privileges. ST_BAD_SETTING: so few files may be open that nothing works. */
enum status process_begin(bool may_use_gpu);
/* process_ignores — is this signal ignored, as nohup asks for SIGHUP? */
bool process_ignores(int signal_n);

#endif

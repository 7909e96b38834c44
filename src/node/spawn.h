/* spawn — start this very executable again as a worker, and read its end. Must not know why, or
 * what it does. */
#ifndef CONVOY_NODE_SPAWN_H
#define CONVOY_NODE_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

struct spawn_config {
    int args_n;
    char *const *args; /* settings, as the supervisor was given them */
    int worker_i;
    int board_fd;
    int shm_fd; /* -1: none */
};

/* spawn_worker — fork and exec "convoy worker I WORDS…" with the board on BOARD_FD, what workers
 * share on BOARD_SHM_FD, and every other descriptor but 0, 1, 2 closed. The worker dies with this
 * process (SIGKILL), and ignores SIGINT, SIGTERM, SIGUSR1, SIGHUP and SIGPIPE from its first
 * instruction. */
enum status spawn_worker(const struct spawn_config *config, pid_t *pid_out);
/* spawn_shm_fd — memory that the workers of this node, and those that replace them, find under one
 * descriptor; -1 for one worker. */
enum status spawn_shm_fd(int workers_n, int *fd_out);
/* spawn_raise_priority — this process goes before others where it may (CAP_SYS_NICE, RLIMIT_NICE);
 * workers started later do not. By how many steps of nice; 0: it may not. */
int spawn_raise_priority(void);
/* spawn_reap — collect one ended child, ours or (as PID 1) an adopted one. False: none left. */
bool spawn_reap(pid_t *pid_out, int *wait_status_out);
char spawn_state(pid_t pid); /* the letter of /proc/PID/stat: R S D T Z …; 0 unknown */

#endif

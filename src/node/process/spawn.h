/* spawn — starts this executable again as a worker, and collects its exit. Must not know why a
 * worker starts or what it does. */
#ifndef CONVOY_NODE_SPAWN_H
#define CONVOY_NODE_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

struct spawn_config {
    int args_n;
    char *const *args; /* settings from the supervisor's command line */
    int worker_i;
    int board_fd;
    int shm_fd;       /* -1: none */
    int peer_copy_fd; /* -1: none */
};

/* spawn_worker — forks, and executes "convoy worker I ARGS…". The worker inherits:
 *   - the board on BOARD_FD, the workers' shared memory on BOARD_SHM_FD, and the memory of copies
 *     of the state on BOARD_PEER_COPY_FD; of the other descriptors only 0, 1 and 2
 *   - SIGKILL when this process ends
 *   - SIGINT, SIGTERM, SIGUSR1, SIGHUP and SIGPIPE ignored from its first instruction */
enum status spawn_worker(const struct spawn_config *config, pid_t *pid_out);
/* spawn_shm_fd — creates shared memory for the workers of this node and for their replacements.
 * *fd_out is -1 with one worker. */
enum status spawn_shm_fd(int workers_n, int *fd_out);
/* spawn_peer_copy_fd — creates empty memory for the copies of the state that a worker and its
 * replacements hold. */
enum status spawn_peer_copy_fd(int *fd_out);
/* spawn_raise_priority — lowers this process's nice value if that is allowed (CAP_SYS_NICE,
 * RLIMIT_NICE). Workers that start later keep the old value. Returns the difference; 0: not
 * allowed. */
int spawn_raise_priority(void);
/* spawn_reap — collects one ended child, its own or (as PID 1) an adopted one. Returns false if
 * none is left. */
bool spawn_reap(pid_t *pid_out, int *wait_status_out);
/* spawn_state — returns the state letter in /proc/PID/stat (R, S, D, T, Z …); 0: unknown. */
char spawn_state(pid_t pid);

#endif

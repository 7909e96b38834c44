/* parallel — the tasks of one transfer on several threads, such as the parts of an object or the
 * files of a repository; the calling thread reports the progress meanwhile. It must not know the
 * work of a task. */
#ifndef CONVOY_REMOTE_PARALLEL_H
#define CONVOY_REMOTE_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define PARALLEL_MAX 8 /* threads */

struct parallel {
    int64_t tasks_n;
    int threads_n; /* 1 … PARALLEL_MAX */
    /* Does task i; blocks. It ends soon with any failure when is_stopped is set. thread_i: 0 …
     * threads_n - 1; no two calls at one time have the same. */
    enum status (*run)(void *arg, int thread_i, int64_t i);
    /* The calling thread calls it about five times a second; a failure ends the transfer. */
    enum status (*report)(void *arg);
    void *arg;
    _Atomic bool is_stopped;
};

/* parallel_run — does all tasks, in order of their numbers, and waits for them. After a failure no
 * further task is begun, is_stopped is set, and the first failure is returned. ST_RETRY: no thread
 * can be started. */
enum status parallel_run(struct parallel *parallel);

#endif

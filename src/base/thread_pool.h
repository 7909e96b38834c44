/* thread_pool — the threads with which a worker computes on a CPU.
 *
 * thread_pool_run distributes tasks 0 … tasks_n-1 over the threads, including the caller as thread
 * 0, and returns when all tasks are done. Only one thread_pool_run at a time; fn must not call it.
 * The thread that runs a task is not defined, so results must not depend on thread_i: it only
 * selects scratch memory.
 *
 * Idle threads spin for about 100 µs, then sleep in a futex. They never spin if the pool has more
 * threads than this process may use cores. Must not know the computation. */
#ifndef CONVOY_BASE_THREAD_POOL_H
#define CONVOY_BASE_THREAD_POOL_H

#include "base/status.h"

#define THREAD_POOL_MAX 256

struct thread_pool;
typedef void thread_pool_fn(void *arg, int task_i, int thread_i);

/* thread_pool_cores — returns the number of cores that this process may use, by its affinity mask
 * and the CPU quota of its control group (v1, v2); at least 1. */
int thread_pool_cores(void);
/* thread_pool_open — starts threads_n - 1 threads, because the caller of thread_pool_run computes,
 * too. threads_n: 1 … THREAD_POOL_MAX. ST_RETRY: no memory, or the system refused a thread. */
enum status thread_pool_open(int threads_n, struct thread_pool **out);
void thread_pool_close(struct thread_pool *pool);        /* accepts NULL */
int thread_pool_threads(const struct thread_pool *pool); /* threads_n of thread_pool_open */
/* thread_pool_run — calls fn once for each task and returns when all of them are done (see
 * above). */
void thread_pool_run(struct thread_pool *pool, int tasks_n, thread_pool_fn *fn, void *arg);

#endif

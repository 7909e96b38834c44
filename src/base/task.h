/* task — one persistent pool of threads for everything a worker computes.
 *
 * task_run deals parts 0 … parts_n-1 to the threads (the caller is thread 0) and returns when all
 * are done. Idle threads spin for a short while (about 100 µs), then park in a futex; they never
 * spin when the machine has fewer cores than threads. One task_run at a time; fn must not call
 * task_run. Which thread takes a part is not defined, so results must not depend on thread_i; it
 * serves for scratch memory only. */
#ifndef CONVOY_BASE_TASK_H
#define CONVOY_BASE_TASK_H

#include "base/status.h"

#define TASK_THREADS_MAX 256

struct task_pool;
typedef void task_fn(void *arg, int part_i, int thread_i);

/* task_cores — cores this process may use: affinity mask and cgroup CPU quota (v1, v2), at least
 * 1. */
int task_cores(void);
enum status task_open(int threads_n, struct task_pool **out); /* 1 … TASK_THREADS_MAX */
void task_close(struct task_pool *pool);                      /* accepts NULL */
int task_threads(const struct task_pool *pool);
void task_run(struct task_pool *pool, int parts_n, task_fn *fn, void *arg);

#endif

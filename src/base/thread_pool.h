/* thread_pool — one persistent pool of threads for everything a worker computes.
 *
 * thread_pool_run deals parts 0 … parts_n-1 to the threads (the caller is thread 0) and returns
 * when all are done. Idle threads spin for a short while (about 100 µs), then park in a futex; they
 * never spin when the machine has fewer cores than threads. One thread_pool_run at a time; fn must
 * not call thread_pool_run. Which thread takes a part is not defined, so results must not depend on
 * thread_i; it serves for scratch memory only. */
#ifndef CONVOY_BASE_THREAD_POOL_H
#define CONVOY_BASE_THREAD_POOL_H

#include "base/status.h"

#define THREAD_POOL_MAX 256

struct thread_pool;
typedef void thread_pool_fn(void *arg, int part_i, int thread_i);

/* thread_pool_cores — cores this process may use: affinity mask and cgroup CPU quota (v1, v2), at
 * least
 * 1. */
int thread_pool_cores(void);
enum status thread_pool_open(int threads_n, struct thread_pool **out); /* 1 … THREAD_POOL_MAX */
void thread_pool_close(struct thread_pool *pool);                      /* accepts NULL */
int thread_pool_threads(const struct thread_pool *pool);
void thread_pool_run(struct thread_pool *pool, int parts_n, thread_pool_fn *fn, void *arg);

#endif

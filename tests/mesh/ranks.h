/* ranks — several ranks of one job as threads of a test, each with the mem transport and a CPU
 * device of one thread. A rank must not assert, because it is not the test's thread: it returns a
 * status, and the test looks at its results afterwards. When a rank fails, the job is aborted, as a
 * supervisor would do. */
#ifndef CONVOY_TESTS_RANKS_H
#define CONVOY_TESTS_RANKS_H

#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>

#include "comm/core/comm.h"
#include "dev/dev.h"
#include "kernels/cpu.h"

#ifndef RANKS_MAX /* a program may set another one before it includes this */
#define RANKS_MAX 8
#endif
#define RANKS_TIMEOUT_MS harness_patience_ms(20000)

struct ranks_one {
    int rank, ranks;
    struct comm *comm;
    struct dev *dev;
    void *arg;
    enum status st;
    char message[1024];
    atomic_bool *is_aborted;
    struct shm_threads_world *world;
    enum status (*fn)(struct ranks_one *one);
    int locals;
    int64_t timeout_ms;
    pthread_t thread;
};

/* Set before a run by programs whose ranks have another device or transport. */
static struct dev *(*ranks_own_dev)(int rank);
static enum status (*ranks_own_open)(struct ranks_one *one, struct comm_config config);

static inline bool ranks_aborted(void *arg) { return atomic_load((atomic_bool *)arg); }

static inline enum status ranks_open(struct ranks_one *one)
{
    int64_t bytes = 0;
    struct comm_config config = {.kind = COMM_KIND_THREADS,
                                 .place = {.rank = one->rank,
                                           .ranks = one->ranks,
                                           .node = one->rank / one->locals,
                                           .nodes = one->ranks / one->locals,
                                           .local = one->rank % one->locals,
                                           .locals = one->locals},
                                 .timeout_ms = one->timeout_ms,
                                 .is_aborted = ranks_aborted,
                                 .arg = one->is_aborted,
                                 .shm_fd = -1,
                                 .dev = one->dev,
                                 .threads = one->world};
    if (ranks_own_open)
        return ranks_own_open(one, config);
    static char none[COMM_ADDRESS_MAX * RANKS_MAX];
    static int64_t none_bytes[RANKS_MAX];
    char address[COMM_ADDRESS_MAX];
    TRY(comm_begin_open(&config, &one->comm, address, &bytes));
    return comm_end_open(one->comm, 1, none, none_bytes);
}

static inline void *ranks_main(void *arg)
{
    struct ranks_one *one = arg;
    one->st = ranks_open(one);
    if (one->st == ST_OK)
        one->st = one->fn(one);
    if (one->st != ST_OK)
        text_format(one->message, sizeof one->message, "%s", status_message());
    if (one->st != ST_OK)
        atomic_store(one->is_aborted, true);
    comm_close(one->comm);
    return NULL;
}

/* The device of a rank, opened at first use and kept. */
static inline struct dev *ranks_dev(int rank)
{
    static struct dev *devs[RANKS_MAX];
    if (ranks_own_dev)
        return ranks_own_dev(rank);
    if (!devs[rank])
        assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &devs[rank]), ST_OK);
    return devs[rank];
}

/* ranks_try — runs fn on every rank, with args + rank·arg_bytes as its arg; ranks may fail.
 * Nodes have equal numbers of ranks. */
static inline void ranks_try(int nodes, int locals, int64_t timeout_ms,
                             enum status (*fn)(struct ranks_one *one), void *args, size_t arg_bytes,
                             struct ranks_one one[RANKS_MAX])
{
    int ranks = nodes * locals;
    atomic_bool is_aborted = false;
    struct shm_threads_world *world = shm_threads_world_new(nodes, locals);
    assert_non_null(world);
    for (int rank = 0; rank < ranks; rank++) {
        one[rank] = (struct ranks_one){.rank = rank,
                                       .dev = ranks_dev(rank),
                                       .ranks = ranks,
                                       .locals = locals,
                                       .arg = (char *)args + (size_t)rank * arg_bytes,
                                       .is_aborted = &is_aborted,
                                       .world = world,
                                       .timeout_ms = timeout_ms,
                                       .fn = fn};
        assert_int_equal(pthread_create(&one[rank].thread, NULL, ranks_main, &one[rank]), 0);
    }
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(pthread_join(one[rank].thread, NULL), 0);
    shm_threads_world_free(world);
}

/* ranks_run — the same; all ranks must succeed. */
static inline void ranks_run(int nodes, int locals, enum status (*fn)(struct ranks_one *one),
                             void *args, size_t arg_bytes)
{
    struct ranks_one one[RANKS_MAX];
    ranks_try(nodes, locals, RANKS_TIMEOUT_MS, fn, args, arg_bytes, one);
    for (int rank = 0; rank < nodes * locals; rank++)
        if (one[rank].st != ST_OK)
            fail_msg("rank %d of %d: %s: %s", rank, nodes * locals, status_name(one[rank].st),
                     one[rank].message);
}

#endif

/* nccl_ranks — several ranks over the tests' own NCCL, each on a CUDA device without a GPU, with
 * streams that run at the same time (streams.h): for programs that define GUARDED_STREAMS. */
#ifndef CONVOY_TESTS_NCCL_RANKS_H
#define CONVOY_TESTS_NCCL_RANKS_H
#include "mesh/trial.h"

#include "tests/cuda/rank_devices.h"

static struct fake_nccl *knobs;
static pthread_barrier_t together;
static double nccl_ranks_pace[RANKS_MAX]; /* milliseconds of a kernel on a rank's device; 0: one */

static enum status open_nccl(struct ranks_one *one, struct comm_config config)
{
    static char addresses[RANKS_MAX][COMM_ADDRESS_MAX];
    static int64_t addresses_bytes[RANKS_MAX];
    config.kind = COMM_KIND_NCCL;
    streams_pace = nccl_ranks_pace[one->rank] > 0 ? nccl_ranks_pace[one->rank] : 1;
    enum status st =
        comm_begin_open(&config, &one->comm, addresses[one->rank], &addresses_bytes[one->rank]);
    pthread_barrier_wait(&together);
    return st == ST_OK ? comm_end_open(one->comm, 1, addresses, addresses_bytes) : st;
}

/* STAGED: through host memory. */
enum { STAGED, EAGER, GRAPHS };

static struct trial nccl_ranks_run(struct trial like, int ranks, int form)
{
    pthread_barrier_init(&together, NULL, (unsigned)ranks);
    ranks_own_open = form == STAGED ? NULL : open_nccl;
    like.config.is_eager = form != GRAPHS;
    struct trial got = trial_run(&like, 1, ranks);
    pthread_barrier_destroy(&together);
    assert_int_equal(streams.graphs_n, 0);
    assert_int_equal(atomic_load(&knobs->open_n), 0);
    assert_int_equal(atomic_load(&knobs->misused_n), 0);
    return got;
}

/* nccl_ranks_begin — opens the devices of `ranks` ranks, which leads to another folder, then the
 * library. */
static void nccl_ranks_begin(int ranks)
{
    static char path[700];
    streams_begin();
    ranks_own_dev = rank_device;
    for (int rank = 0; rank < ranks; rank++)
        open_once(rank_device(rank));
    text_format(path, sizeof path, "%s", here("/nccl"));
    library_dir(path);
    knobs = fake_nccl_find(path);
    knobs->base = knobs->alias = streams.space;
    knobs->bytes = STREAMS_SPACE;
}
#endif

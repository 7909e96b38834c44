/* device_copies — for tests: copies in peers' memory of a state that lies in the memory of devices.
 * The program sets device_copies_dev, and finds the tests' own NCCL. */
#ifndef CONVOY_TESTS_DEVICE_COPIES_H
#define CONVOY_TESTS_DEVICE_COPIES_H

#include "mesh/copies.h"

/* How the copies travel: by the transport of the step, in its queue; or over the host's transport
 * in a queue of their own, while NCCL does the rest. */
enum path { PATH_STAGED, PATH_NCCL, PATH_N };
static const char *const path_name[PATH_N] = {"host memory", "NCCL"};

static struct dev *(*device_copies_dev)(int rank);
static int device_copies_fd[RANKS_MAX]; /* of each node, as its supervisor makes it */
static const uint8_t device_copies_secret[COMM_SECRET_BYTES] = {7};
static char device_copies_addresses[RANKS_MAX][COMM_ADDRESS_MAX];
static int64_t device_copies_bytes[RANKS_MAX];
static pthread_barrier_t device_copies_apart;

static inline enum status device_copies_open(struct ranks_one *one, struct comm_config config)
{
    config.kind = COMM_KIND_NCCL;
    config.net = COMM_NET_TCP;
    config.secret = device_copies_secret;
    config.shm_fd = config.place.locals > 1 ? device_copies_fd[config.place.node] : -1;
    enum status st = comm_begin_open(&config, &one->comm, device_copies_addresses[one->rank],
                                     &device_copies_bytes[one->rank]);
    pthread_barrier_wait(&device_copies_apart);
    TRY(st);
    TRY(comm_end_open(one->comm, 1, device_copies_addresses, device_copies_bytes));
    return comm_open_host(one->comm);
}

static inline void device_copies_run(const struct job *job, enum path path, int nodes, int locals)
{
    ranks_own_dev = device_copies_dev;
    ranks_own_open = path == PATH_NCCL ? device_copies_open : NULL;
    pthread_barrier_init(&device_copies_apart, NULL, (unsigned)(nodes * locals));
    for (int node = 0; node < nodes; node++)
        device_copies_fd[node] = memfd_create("node", MFD_CLOEXEC);
    copies_run(job, nodes, locals);
    for (int node = 0; node < nodes; node++)
        close(device_copies_fd[node]);
    pthread_barrier_destroy(&device_copies_apart);
}

/* device_copies_heal — a rank ends at a unit of a step, and its node loses its memory if is_lost.
 * The newest copy is at most `every` steps old. */
static inline void device_copies_heal(const struct job *like, enum path path, int nodes, int locals,
                                      int unit, bool is_lost)
{
    char what[128];
    const int step = 4, ranks = nodes * locals;
    text_format(what, sizeof what, "%s, shard %d, dtype %d, %d x %d, unit %d, every %d%s",
                path_name[path], (int)like->trial.config.store.shard,
                (int)like->trial.config.store.dtype, nodes, locals, unit, like->every,
                is_lost ? ", lost" : "");
    copies_begin(ranks);
    device_copies_run(like, path, nodes, locals);
    copies_ended_well(ranks, what);
    copies_end(ranks);
    struct trial calm = copies_job[0].trial;
    struct job job = *like;
    job.leave_step = step;
    job.leave_unit = unit;
    job.leave_rank = ranks - 1;
    copies_begin(ranks);
    device_copies_run(&job, path, nodes, locals);
    assert_int_equal(copies_one[ranks - 1].st, ST_RETRY);
    if (is_lost)
        copies_lose_node(nodes - 1, locals);
    device_copies_run(like, path, nodes, locals);
    copies_ended_well(ranks, what);
    for (int rank = 0; rank < ranks; rank++) {
        const int64_t found = copies_job[rank].found_step;
        if (found < step - like->every || found > step || found != copies_job[0].found_step)
            fail_msg("%s: rank %d goes on from step %lld", what, rank, (long long)found);
    }
    trial_same_state(&copies_job[0].trial, &calm, what);
    print_message("# %s: found step %lld\n", what, (long long)copies_job[0].found_step);
    trial_free(&calm);
    trial_free(&copies_job[0].trial);
    copies_end(ranks);
}

#endif

/* test_comm_shm — the suite on the shared memory of one node, each rank with its own mapping. Also:
 * processes as ranks, and memory that an earlier generation has used. */
#include "comm/suite.h"

#include <sys/mman.h>

static void *world_new(const struct suite_job *job)
{
    (void)job;
    int *fd = malloc(sizeof(int));
    *fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(*fd >= 0);
    return fd;
}
static void world_free(void *world)
{
    close(*(int *)world);
    free(world);
}

static enum status open_on(int fd, const struct comm_config *config, int64_t generation,
                           struct comm **out)
{
    struct comm_config mine = *config;
    int64_t bytes = -1;
    mine.kind = COMM_KIND_HOST;
    mine.shm_fd = fd;
    enum status st = comm_begin_open(&mine, out, NULL, &bytes);
    return st == ST_OK ? comm_end_open(*out, generation, NULL, NULL) : st;
}

static enum status open_rank(struct suite_rank *me, const struct comm_config *config)
{
    return open_on(*(int *)me->job->world, config, SUITE_GENERATION, &me->comm);
}

static const int layouts[][2] = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}};
static const struct suite suite_shm = {.name = "shm",
                                       .layouts_n = sizeof(layouts) / sizeof(layouts[0]),
                                       .layouts = layouts,
                                       .world_new = world_new,
                                       .world_free = world_free,
                                       .open = open_rank};

static int process(int fd, int rank, int ranks, int64_t generation)
{
    struct comm_config config = {
        .place = {.rank = rank, .ranks = ranks, .nodes = 1, .local = rank, .locals = ranks},
        .timeout_ms = harness_patience_ms(20000)};
    enum { ELEMS = 300007 };
    struct comm *comm = NULL;
    void *data = NULL;
    if (open_on(fd, &config, generation, &comm) != ST_OK ||
        comm_alloc(comm, ELEMS * 4, &data) != ST_OK)
        return 2;
    for (int round = 0; round < 20; round++) {
        float *x = data;
        for (int i = 0; i < ELEMS; i++)
            x[i] = (float)(rank + i % 100);
        struct tensor t = {x, DTYPE_F32};
        if (comm_all_reduce(comm, t, t, ELEMS) != ST_OK)
            return 3;
        for (int i = 0; i < ELEMS; i++)
            if (x[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (i % 100)))
                return 4;
        if (comm_all_reduce(comm, t, t, 5) != ST_OK)
            return 5;
    }
    if (generation % 2 == 1)
        return 0; /* this generation ends without closing */
    comm_close(comm);
    return 0;
}

/* Three generations of three processes on one memfd; some end without closing. */
static void generations_of_processes(void **state)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    for (int64_t generation = 1; generation <= 3; generation++) {
        pid_t pids[3];
        for (int rank = 0; rank < 3; rank++) {
            pids[rank] = fork();
            if (pids[rank] == 0)
                _exit(process(fd, rank, 3, generation));
        }
        for (int rank = 0; rank < 3; rank++) {
            int ended = -1;
            assert_int_equal(waitpid(pids[rank], &ended, 0), pids[rank]);
            assert_int_equal(ended, 0);
        }
    }
    close(fd);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {SUITE_TESTS,
                                              cmocka_unit_test(generations_of_processes)};
    suite_this = &suite_shm;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}

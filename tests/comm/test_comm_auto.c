/* test_comm_auto — AUTO takes NCCL if every rank has it, else HOST, and gives the reason. */
#pragma GCC diagnostic ignored "-Wunused-function" /* not all of the suite is used here */
#include "comm/suite.h"

#include "comm/nccl/lib.h"
#include "suite_device.h"

#include "nccl_world.h"

static struct fake_nccl *knobs;
static atomic_int rank_without; /* a rank whose address has no NCCL; -1: none */
static const char *want_name, *want_why;

/* Makes the address of a rank without NCCL: its header begins with the bytes of HOST and
 * of NCCL. */
static void forget_nccl(char *address, int64_t *bytes)
{
    int32_t ucx_bytes, none = 0;
    memcpy(&ucx_bytes, address, sizeof ucx_bytes);
    memcpy(address + 4, &none, sizeof none);
    *bytes = 52 + ucx_bytes;
}

/* Makes the address of a rank whose NCCL accepts two ranks on one GPU. */
static atomic_int shares_gpus;
static enum status open_auto(struct suite_rank *me, const struct comm_config *config)
{
    struct nccl_world *world = me->job->world;
    struct comm_config mine = *config;
    int rank = me->place.rank;
    mine.kind = COMM_KIND_AUTO;
    mine.secret = HARNESS_SECRET;
    mine.dev = suite_dev;
    mine.shm_fd = world->fds[me->place.node];
    CHECK_OK(comm_begin_open(&mine, &me->comm, world->addresses[rank], &world->bytes[rank]));
    if (rank == atomic_load(&rank_without))
        forget_nccl(world->addresses[rank], &world->bytes[rank]);
    if (atomic_load(&shares_gpus) > rank) {
        char *address = world->addresses[rank];
        int32_t shares = 1;
        memcpy(address + 8, &shares, sizeof shares);
    }
    pthread_barrier_wait(&me->job->line_up);
    return comm_end_open(me->comm, SUITE_GENERATION, world->addresses, world->bytes);
}

static const struct suite suite_auto = {.name = "auto",
                                        .world_new = nccl_world_new,
                                        .world_free = nccl_world_free,
                                        .open = open_auto,
                                        .is_discrete = true};

static void chosen_rank(struct suite_rank *me)
{
    void *data;
    CHECK(strncmp(comm_name(me->comm), want_name, strlen(want_name)) == 0, "%s",
          comm_name(me->comm));
    CHECK(strstr(comm_choice_reason(me->comm), want_why) != NULL, "%s",
          comm_choice_reason(me->comm));
    CHECK_OK(comm_alloc(me->comm, 4000, &data));
    struct tensor t = {data, DTYPE_F32};
    suite_device_fill(t, me->place.rank, 0, 1000);
    CHECK_OK(comm_all_reduce(me->comm, t, t, 1000));
    for (int64_t i = 0, n = 1000; i < n; i++)
        SUITE_DEVICE_SAME(t, i, suite_device_sum(me->place.ranks, i), "all_reduce");
    CHECK_OK(comm_barrier(me->comm));
}

static void choose(int nodes, int locals, int without, const char *name, const char *why)
{
    want_name = name;
    want_why = why;
    atomic_store(&rank_without, without);
    suite_run_on(&suite_auto, nodes, locals, harness_patience_ms(20000), chosen_rank);
    assert_int_equal(atomic_load(&knobs->open_n), 0);
    assert_int_equal(fake_device.blocks_n, 0);
}

TEST(all_have_nccl)
{
    choose(1, 3, -1, "nccl 2.28.9", "all 3 ranks have NCCL");
    choose(2, 2, -1, "nccl 2.28.9", "all 4 ranks have NCCL");
}

TEST(one_has_no_nccl)
{
    choose(1, 3, 1, "shm", "NCCL is not on rank 1 of 3");
    choose(2, 1, 0, "ucx", "NCCL is not on rank 0 of 2");
}

/* All ranks of the tests have one device. With its bus id known, NCCL is refused inside a node, but
 * not between nodes, which may be machines; with its number known, also there. */
TEST(shared_gpu)
{
    strcpy(fake_device.bus, "0000:3b:00.0");
    choose(1, 2, -1, "shm", "two ranks on one GPU, and rank 1 shares 0000:3b:00.0");
    choose(2, 1, -1, "nccl", "all 2 ranks");
    fake_device.uuid[3] = 9;
    choose(2, 1, -1, "ucx", "two ranks on one GPU, and rank 1 shares 0000:3b:00.0");
    fake_device.uuid[3] = 0;
    fake_device.bus[0] = 0;
}

/* MIG instances of one GPU are told apart, but NCCL refuses them too, unless both ranks have an
 * NCCL that accepts them. */
TEST(mig_instances)
{
    strcpy(fake_device.bus, "0000:3b:00.0");
    fake_device.mig_n = 1;
    choose(1, 2, -1, "shm", "two MIG instances of one GPU, and ranks 0 and 1 have instances of");
    atomic_store(&shares_gpus, 1);
    choose(1, 2, -1, "shm", "two MIG instances");
    atomic_store(&shares_gpus, 2);
    choose(1, 2, -1, "nccl", "all 2 ranks");
    atomic_store(&shares_gpus, 0);
    fake_device.mig_n = 0;
    fake_device.bus[0] = 0;
}

/* The versions and the setting with which NCCL accepts several ranks on one GPU. */
TEST(sharing_is_enabled)
{
    assert_false(nccl_lib_shares_gpus(23004));
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0", 1);
    assert_false(nccl_lib_shares_gpus(23004));
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    assert_true(nccl_lib_shares_gpus(23004));
    assert_false(nccl_lib_shares_gpus(22907));
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

static enum status open_damaged(struct suite_rank *me, const struct comm_config *config)
{
    struct nccl_world *world = me->job->world;
    struct comm_config mine = *config;
    mine.kind = COMM_KIND_AUTO;
    mine.secret = HARNESS_SECRET;
    mine.dev = suite_dev;
    mine.shm_fd = world->fds[me->place.node];
    CHECK_OK(comm_begin_open(&mine, &me->comm, world->addresses[me->place.rank],
                             &world->bytes[me->place.rank]));
    pthread_barrier_wait(&me->job->line_up);
    if (me->place.rank == 0)
        world->bytes[1] = 20;
    pthread_barrier_wait(&me->job->line_up);
    CHECK(comm_end_open(me->comm, 1, world->addresses, world->bytes) == ST_DISAGREE &&
              strstr(status_message(), "rank 1 chooses its transport differently (20 bytes)"),
          "%s", status_message());
    return ST_OK;
}
static void nothing_rank(struct suite_rank *me) { (void)me; }
TEST(damaged_address)
{
    struct suite suite = suite_auto;
    suite.open = open_damaged;
    suite_run_on(&suite, 1, 2, harness_patience_ms(20000), nothing_rank);
}

int main(void)
{
    harness_loopback();
    knobs = nccl_world_begin();
    int failed = harness_run_all(__FILE__, NULL, NULL);
    fake_device_close(suite_dev);
    return failed;
}

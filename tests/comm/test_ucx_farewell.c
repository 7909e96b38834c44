/* test_ucx_farewell — who leaves because of a lost rank says which, and who leaves because of that
 * says so, too: four processes in a row, each connected to its neighbours alone, of which the last
 * is killed. */
#include "harness.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/must.h"
#include "comm/ucx.h"

#ifndef OVER
#define OVER UCX_NET_UCX
#endif
#define RANKS 4
#define ADDRESS_MAX 4096
#define LIMIT_MS 20000

struct shared {
    char addresses[RANKS][ADDRESS_MAX];
    int64_t bytes[RANKS];
    atomic_int packed, connected;
    bool has_lost[RANKS];
    struct ucx_loss loss[RANKS];
    char message[RANKS][512];
};
static struct shared *all;

static enum status in_time(void *arg)
{
    const int64_t *end_ms = arg;
    return clock_ms() < *end_ms ? ST_OK : FAIL(ST_BUG, "nothing came in time");
}

static enum status await(atomic_int *count, int64_t end_ms)
{
    while (atomic_load(count) < RANKS) {
        TRY(in_time(&end_ms));
        clock_sleep_ms(1);
    }
    return ST_OK;
}

/* Until the neighbour behind is gone: what it would send never comes. */
static enum status wait_for_end(struct ucx *ucx, int rank, struct ucx_watch watch)
{
    char byte;
    struct ucx_op op = {.bytes = 0};
    struct ucx_wait wait = {.watch = watch};
    const struct ucx_tag tag = {.group = 1, .from = rank + 1, .lane = UCX_LANE_PAIR};
    TRY(ucx_recv(ucx, &op, &byte, 1, tag));
    while (!ucx_is_done(&op))
        TRY(ucx_pump(ucx, &wait));
    return ST_OK;
}

static enum status live(struct ucx *ucx, int rank)
{
    int64_t end_ms = clock_ms() + harness_patient_ms(LIMIT_MS);
    bool is_peer[RANKS] = {false};
    const struct ucx_watch watch = {.check = in_time, .arg = &end_ms};
    for (int r = rank - 1; r <= rank + 1; r += 2)
        if (r >= 0 && r < RANKS)
            is_peer[r] = true;
    TRY(ucx_address(ucx, false, all->addresses[rank], ADDRESS_MAX, &all->bytes[rank]));
    atomic_fetch_add(&all->packed, 1);
    TRY(await(&all->packed, end_ms));
    const struct ucx_world world = {.generation = 1,
                                    .rank = rank,
                                    .ranks = RANKS,
                                    .is_peer = is_peer,
                                    .addresses = all->addresses,
                                    .stride = ADDRESS_MAX,
                                    .bytes = all->bytes,
                                    .secret = HARNESS_SECRET};
    TRY(ucx_connect(ucx, &world, watch));
    atomic_fetch_add(&all->connected, 1);
    TRY(await(&all->connected, end_ms));
    if (rank == RANKS - 1)
        pause(); /* to be killed */
    return wait_for_end(ucx, rank, watch);
}

static void child(int rank)
{
    struct ucx *ucx = NULL;
    enum status st = ucx_open(&(struct ucx_config){.net = OVER, .at_once = 4096}, &ucx);
    if (st == ST_OK)
        st = live(ucx, rank);
    snprintf(all->message[rank], sizeof all->message[rank], "%s: %s", status_name(st),
             status_message());
    all->has_lost[rank] = st == ST_PEER && ucx_lost(ucx, &all->loss[rank]);
    if (st != ST_OK && ucx)
        ucx_break(ucx);
    ucx_close(ucx);
    _exit(0);
}

static void the_lost_rank_is_passed_on(void **state)
{
    (void)state;
    pid_t pids[RANKS];
    fflush(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            child(rank);
    }
    assert_int_equal(await(&all->connected, clock_ms() + LIMIT_MS), ST_OK);
    kill(pids[RANKS - 1], SIGKILL);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(waitpid(pids[rank], NULL, 0), pids[rank]);
    for (int rank = 0; rank < RANKS - 1; rank++) {
        const struct ucx_loss *loss = &all->loss[rank];
        bool is_first = rank == RANKS - 2; /* it sees the death itself */
        if (!all->has_lost[rank] || loss->rank != rank + 1 || loss->has_left == is_first ||
            loss->blamed != (is_first ? -1 : RANKS - 1))
            fail_msg("rank %d lost %d, which left: %d, because of %d; %s", rank, loss->rank,
                     loss->has_left, loss->blamed, all->message[rank]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(the_lost_rank_is_passed_on)};
    harness_loopback();
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 99;
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}

/* test_ucx_goaway — a rank that ends because of a lost rank names it, and so does a rank that ends
 * because of that one. Only the neighbour of the lost rank reports a closed connection. Four
 * processes in a row, each connected to its neighbours alone; the last is killed. */
#include "harness.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "comm/message/messenger.h"

#ifndef OVER
#define OVER COMM_NET_UCX
#endif
#define RANKS 4
#define ADDRESS_MAX 4096
#define LIMIT_MS 20000

struct shared {
    char addresses[RANKS][ADDRESS_MAX];
    int64_t bytes[RANKS];
    atomic_int packed, connected;
    bool has_lost[RANKS];
    struct message_loss loss[RANKS];
    int closed[RANKS], closed_later[RANKS]; /* messenger_closed, before and after messenger_abort */
    char message[RANKS][512];
};
static struct shared *all;

static enum status in_time(void *arg)
{
    const int64_t *end_ms = arg;
    return clock_ms() < *end_ms ? ST_OK : FAIL(ST_BUG, "nothing came in time");
}

static enum status wait_for_all(atomic_int *count, int64_t end_ms)
{
    while (atomic_load(count) < RANKS) {
        TRY(in_time(&end_ms));
        clock_sleep_ms(1);
    }
    return ST_OK;
}

/* Waits until the next rank is gone: what it would send never comes. */
static enum status wait_for_end(struct messenger *m, int rank, struct message_watch watch)
{
    /* under way until messenger_abort, which the caller calls */
    static char byte;
    static struct message_op op;
    struct message_wait wait = {.watch = watch};
    const struct message_tag tag = {.group = 1, .from = rank + 1, .tag_class = MESSAGE_TAG_PAIR};
    TRY(messenger_recv(m, &op, &byte, 1, tag));
    while (!messenger_is_done(&op))
        TRY(messenger_progress(m, &wait));
    return ST_OK;
}

static enum status run_rank(struct messenger *m, int rank)
{
    int64_t end_ms = clock_ms() + harness_patience_ms(LIMIT_MS);
    bool is_peer[RANKS] = {false};
    const struct message_watch watch = {.check = in_time, .arg = &end_ms};
    for (int r = rank - 1; r <= rank + 1; r += 2)
        if (r >= 0 && r < RANKS)
            is_peer[r] = true;
    TRY(message_choose_pack(m, false, all->addresses[rank], ADDRESS_MAX, &all->bytes[rank]));
    atomic_fetch_add(&all->packed, 1);
    TRY(wait_for_all(&all->packed, end_ms));
    const struct message_world world = {.generation = 1,
                                        .rank = rank,
                                        .ranks = RANKS,
                                        .is_peer = is_peer,
                                        .addresses = all->addresses,
                                        .stride = ADDRESS_MAX,
                                        .bytes = all->bytes,
                                        .secret = HARNESS_SECRET};
    TRY(message_connect(m, &world, watch));
    atomic_fetch_add(&all->connected, 1);
    TRY(wait_for_all(&all->connected, end_ms));
    if (rank == RANKS - 1)
        pause(); /* to be killed */
    return wait_for_end(m, rank, watch);
}

static void child(int rank)
{
    struct messenger *m = NULL;
    enum status st = messenger_open(&(struct message_config){.net = OVER, .eager_bytes = 4096}, &m);
    if (st == ST_OK)
        st = run_rank(m, rank);
    snprintf(all->message[rank], sizeof all->message[rank], "%s: %s", status_name(st),
             status_message());
    all->has_lost[rank] = st == ST_PEER && messenger_lost(m, &all->loss[rank]);
    if (st != ST_OK && m) {
        all->closed[rank] = messenger_closed(m);
        messenger_abort(m);
        all->closed_later[rank] = messenger_closed(m);
    }
    messenger_close(m);
    _exit(0);
}

TEST(goaway_names_the_lost_rank)
{
    pid_t pids[RANKS];
    fflush(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            child(rank);
    }
    assert_int_equal(wait_for_all(&all->connected, clock_ms() + LIMIT_MS), ST_OK);
    kill(pids[RANKS - 1], SIGKILL);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(waitpid(pids[rank], NULL, 0), pids[rank]);
    for (int rank = 0; rank < RANKS - 1; rank++) {
        const struct message_loss *loss = &all->loss[rank];
        bool is_first = rank == RANKS - 2; /* it notices the death itself */
        if (!all->has_lost[rank] || loss->rank != rank + 1 || loss->sent_goaway == is_first ||
            loss->cause != (is_first ? -1 : RANKS - 1))
            fail_msg("rank %d lost %d, which left: %d, because of %d; %s", rank, loss->rank,
                     loss->sent_goaway, loss->cause, all->message[rank]);
        /* UCX calls the end of a process a timeout over some devices: then it says nothing. */
        const int closed = all->closed[rank], own = is_first ? RANKS - 1 : -1;
        if (closed != own && !(OVER == COMM_NET_UCX && closed == -1))
            fail_msg("rank %d: rank %d closed its connection, expected %d; %s", rank, closed, own,
                     all->message[rank]);
        assert_int_equal(all->closed_later[rank], closed);
    }
}

int main(void)
{
    harness_loopback();
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 99;
    return harness_run_all(__FILE__, NULL, NULL);
}

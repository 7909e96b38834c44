/* generations — processes go from generation to generation; this test is their supervisor and
 * uses the board as it does. */
#include "harness.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/text.h"
#include "comm/tcp/tcp_addr.h"
#include "node/worker/generations.h"

#define RANKS 2
#define GENERATION_LAST 3 /* the generation that ends with ST_OK */

struct seat {
    struct board *board;
    int rank;
    int64_t runs_n;
};

/* The ranks connect; generation 1 ends by an abort while they wait, the others with ST_OK. */
static enum status run(void *arg, struct comm *comm, int64_t generation)
{
    struct seat *seat = arg;
    struct board_worker stats = {.pid = getpid(), .rank = seat->rank, .step = generation};
    seat->runs_n++;
    TRY(comm_barrier(comm));
    board_worker_publish(seat->board, seat->rank, &stats);
    while (generation < GENERATION_LAST)
        TRY(comm_barrier(comm)); /* until it is over */
    return generation == GENERATION_LAST ? ST_OK
                                         : FAIL(ST_BUG, "generation %lld", (long long)generation);
}

static void wait_for_world(void *arg, bool is_first)
{
    (void)is_first;
    const struct seat *seat = arg;
    board_heartbeat(seat->board, seat->rank);
}

static enum status stopped(void *arg)
{
    const struct seat *seat = arg;
    return board_requested(seat->board) == BOARD_REQUEST_TERMINATE ? FAIL(ST_TERMINATED, "asked")
                                                                   : ST_OK;
}

static int nodes = 1;      /* or RANKS, each of one rank */
static bool needs_reached; /* of node 0 */

static int work(struct board *board, int rank, int shm_fd, uint64_t data)
{
    struct seat seat = {.board = board, .rank = rank};
    struct generations_config config = {.board = board,
                                        .worker_i = rank,
                                        .place = {.rank = rank,
                                                  .ranks = RANKS,
                                                  .node = nodes > 1 ? rank : 0,
                                                  .nodes = nodes,
                                                  .local = nodes > 1 ? 0 : rank,
                                                  .locals = RANKS / nodes},
                                        .kind = COMM_KIND_HOST,
                                        .net = COMM_NET_TCP,
                                        .data_addr = "",
                                        .master = needs_reached && rank == 0 ? "head" : "127.0.0.1",
                                        .needs_reached = needs_reached && rank == 0,
                                        .join_timeout_ms = harness_patience_ms(10000),
                                        .shm_fd = shm_fd,
                                        .timeout_ms = harness_patience_ms(10000),
                                        .data = data,
                                        .run = run,
                                        .wait = wait_for_world,
                                        .stopped = stopped,
                                        .arg = &seat};
    enum status st = generations_run(&config);
    return st == ST_OK ? (int)(100 + seat.runs_n) : status_exit_code(st);
}

struct team {
    struct board *board;
    int shm_fd, nodes; /* nodes: as rank 0 sees the world */
    pid_t pid[RANKS];
    struct board_address world[RANKS];
    int64_t revision[RANKS];
};

static void begin(struct team *t, uint64_t data_of_last)
{
    memset(t, 0, sizeof *t);
    t->nodes = nodes;
    assert_int_equal(board_create(RANKS, RANKS, &t->board), ST_OK);
    t->shm_fd = memfd_create("share", 0);
    for (int rank = 0; rank < RANKS; rank++) {
        t->pid[rank] = fork();
        assert_true(t->pid[rank] >= 0);
        if (t->pid[rank] == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
            _exit(work(t->board, rank, t->shm_fd, rank == RANKS - 1 ? data_of_last : 7));
    }
}

/* ready — all wait for a later generation than `after`; their addresses are in world. */
static bool ready(struct team *t, int64_t after)
{
    struct board_ready ready;
    int n = 0;
    for (int64_t until_ms = clock_ms() + harness_patience_ms(10000);
         n < RANKS && clock_ms() < until_ms; clock_sleep_ms(5)) {
        n = 0;
        for (int rank = 0; rank < RANKS; rank++) {
            if (!board_ready_copy(t->board, rank, &ready) || ready.after < after)
                continue;
            t->world[rank] = ready.address;
            assert_true(ready.revision >= t->revision[rank]);
            t->revision[rank] = ready.revision;
            n++;
        }
    }
    return n == RANKS;
}

static bool reached(struct team *t, int64_t generation)
{
    struct board_worker stats;
    int n = 0;
    for (int64_t until_ms = clock_ms() + harness_patience_ms(10000);
         n < RANKS && clock_ms() < until_ms; clock_sleep_ms(5)) {
        n = 0;
        for (int rank = 0; rank < RANKS; rank++)
            n += board_worker_copy(t->board, rank, &stats) && stats.step >= generation;
    }
    return n == RANKS;
}

static void finish(struct team *t, int code)
{
    int wait_status;
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(waitpid(t->pid[rank], &wait_status, 0), t->pid[rank]);
        assert_true(WIFEXITED(wait_status));
        assert_int_equal(WEXITSTATUS(wait_status), code);
    }
    close(t->shm_fd);
    board_close(t->board);
}

static void publish(const struct team *t, int64_t generation)
{
    const struct board_world_place place = {generation, t->nodes, 0};
    board_world_publish(t->board, &place, t->world, RANKS);
}

static void from_generation_to_generation(void **state)
{
    struct team t;
    begin(&t, 7);
    assert_true(ready(&t, 0));
    board_secret_publish(t.board, 1, HARNESS_SECRET);
    publish(&t, 1);
    assert_true(reached(&t, 1));
    int64_t begin_ms = clock_ms();
    board_abort(t.board, 1);
    assert_true(ready(&t, 1));
    assert_true(clock_ms() - begin_ms < harness_patience_ms(2000));
    board_abort(t.board, 2); /* a world that never came here: ready again all the same */
    assert_true(ready(&t, 2));
    board_secret_publish(t.board, GENERATION_LAST, HARNESS_SECRET);
    publish(&t, GENERATION_LAST);
    finish(&t, 100 + 2); /* in the processes they were */
}

/* is_open — does a worker listen there? The comm's address of TCP follows the fingerprints and the
 * sizes of both drivers' addresses. */
static bool is_open(const struct board_address *address)
{
    struct tcp_addr_packed packed;
    struct sockaddr_storage own = {.ss_family = AF_INET}, to;
    socklen_t bytes;
    memcpy(&packed, address->data + address->bytes - sizeof packed, sizeof packed);
    assert_true(tcp_addr_unpack(&packed, &own, &to, &bytes));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool is_there = connect(fd, (struct sockaddr *)&to, bytes) == 0;
    close(fd);
    return is_there;
}

/* Node 0 whose MASTER_ADDR is loopback there: its worker waits until it is known where other nodes
 * reach it. When that changes, the address of before still serves a world that was made of it. */
static void the_address_is_where_others_reach_it(void **state)
{
    struct team t;
    struct board_node node = {.n_nodes = RANKS};
    struct board_ready first;
    nodes = RANKS;
    needs_reached = true;
    begin(&t, 7);
    nodes = 1;
    needs_reached = false;
    clock_sleep_ms(600);
    assert_false(board_ready_copy(t.board, 0, &first));
    text_copy(node.reached, sizeof node.reached, "127.0.0.1");
    board_node_publish(t.board, &node);
    assert_true(ready(&t, 0));
    assert_true(board_ready_copy(t.board, 0, &first));
    text_copy(node.reached, sizeof node.reached, "127.0.0.2");
    board_node_publish(t.board, &node);
    for (int64_t until_ms = clock_ms() + harness_patience_ms(10000);
         t.revision[0] == first.revision && clock_ms() < until_ms; clock_sleep_ms(5))
        assert_true(ready(&t, 0));
    assert_true(t.revision[0] > first.revision);
    const struct board_address second = t.world[0];
    assert_true(is_open(&first.address) && is_open(&second));
    t.nodes = RANKS;
    t.world[0] = first.address;
    board_secret_publish(t.board, 1, HARNESS_SECRET);
    publish(&t, 1);
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000);
         is_open(&second) && clock_ms() < until_ms; clock_sleep_ms(5))
        continue;
    assert_true(is_open(&first.address) && !is_open(&second));
    board_request(t.board, BOARD_REQUEST_TERMINATE);
    finish(&t, status_exit_code(ST_TERMINATED));
}

static void other_data_are_refused(void **state)
{
    struct team t;
    begin(&t, 8);
    assert_true(ready(&t, 0));
    board_secret_publish(t.board, 1, HARNESS_SECRET);
    publish(&t, 1);
    finish(&t, status_exit_code(ST_DISAGREE));
}

static void a_stop_ends_the_waiting(void **state)
{
    struct team t;
    begin(&t, 7);
    assert_true(ready(&t, 0));
    board_request(t.board, BOARD_REQUEST_TERMINATE);
    finish(&t, status_exit_code(ST_TERMINATED));
}

/* One that never greets (frozen, or behind a firewall): there is no step to end, so a stop is
 * obeyed in seconds. */
static void a_stop_ends_a_meeting_that_does_not_come_about(void **state)
{
    struct team t;
    int wait_status;
    nodes = RANKS;
    begin(&t, 7);
    nodes = 1;
    assert_true(ready(&t, 0));
    kill(t.pid[1], SIGSTOP);
    board_secret_publish(t.board, 1, HARNESS_SECRET);
    const int64_t begin_ms = clock_ms(); /* rank 0 cannot count its 3 s from any earlier time */
    publish(&t, 1);
    board_request(t.board, BOARD_REQUEST_TERMINATE);
    assert_int_equal(waitpid(t.pid[0], &wait_status, 0), t.pid[0]);
    assert_in_range(clock_ms() - begin_ms, 2900, harness_patience_ms(6000));
    assert_true(WIFEXITED(wait_status) &&
                WEXITSTATUS(wait_status) == status_exit_code(ST_TERMINATED));
    kill(t.pid[1], SIGKILL);
    assert_int_equal(waitpid(t.pid[1], &wait_status, 0), t.pid[1]);
    close(t.shm_fd);
    board_close(t.board);
}

static enum status alone(void *arg, struct comm *comm, int64_t generation)
{
    int64_t *seen = arg;
    *seen += comm_place(comm)->ranks == 1 && !strcmp(comm_name(comm), "self") ? generation : 100;
    return FAIL(ST_PEER, "nobody else is here");
}

/* One rank has one generation and nothing to wait for. */
static void one_rank_lives_once(void **state)
{
    struct board *board;
    int64_t seen = 0;
    assert_int_equal(board_create(1, 1, &board), ST_OK);
    struct generations_config config = {.board = board,
                                        .place = {0, 1, 0, 1, 0, 1},
                                        .shm_fd = -1,
                                        .timeout_ms = 1000,
                                        .run = alone,
                                        .arg = &seen};
    assert_int_equal(generations_run(&config), ST_PEER);
    assert_string_equal(status_message(), "nobody else is here");
    assert_int_equal(seen, 1);
    board_close(board);
}

static void who_has_other_data_is_told_apart(void **state)
{
    char why[256] = "";
    struct board_address one = {.bytes = 40}, other = {.bytes = 900};
    memset(one.data, 7, 16);
    memset(other.data, 7, 17); /* what follows is not compared */
    assert_true(generations_same_data(&one, 0, &other, 3, why, sizeof why));
    other.data[8] = 8;
    assert_false(generations_same_data(&one, 0, &other, 3, why, sizeof why));
    assert_string_equal(why, "VAL_DATA differs: fingerprint 0707070707070707 on node 0, "
                             "0707070707070708 on node 3; give every node the same data");
    other.data[0] = 8;
    assert_false(generations_same_data(&one, 1, &other, 2, why, sizeof why));
    assert_memory_equal(
        why, "DATA differs: fingerprint 0707070707070707 on node 1, 0707070707070708 on node 2; ",
        70);
    other.bytes = 15; /* none at all: for the workers to refuse */
    assert_true(generations_same_data(&one, 1, &other, 2, why, sizeof why));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(from_generation_to_generation),
    cmocka_unit_test(the_address_is_where_others_reach_it),
    cmocka_unit_test(other_data_are_refused),
    cmocka_unit_test(a_stop_ends_the_waiting),
    cmocka_unit_test(a_stop_ends_a_meeting_that_does_not_come_about),
    cmocka_unit_test(one_rank_lives_once),
    cmocka_unit_test(who_has_other_data_is_told_apart),
};
HARNESS_MAIN(tests)

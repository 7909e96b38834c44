/* consensus — ranks as threads: one decision on all of them, whichever rank it came from. */
#include "harness.h"

#include <pthread.h>

#include "train/trainer/consensus.h"

#define RANKS 3

struct seat {
    struct shm_threads_world *world;
    int rank, nodes;
    enum board_request mine, agreed;
    enum status st, outcome, shared;
    char message[256];
    int64_t number;
    const char *device; /* NULL: "one kind" */
    struct consensus_differs differs;
};

static void *run_rank(void *arg)
{
    struct seat *seat = arg;
    struct consensus consensus;
    struct comm *comm = NULL;
    int64_t bytes[RANKS] = {0};
    static char addresses[RANKS][COMM_ADDRESS_MAX];
    struct comm_config config = {.kind = COMM_KIND_THREADS,
                                 .place = {.rank = seat->rank,
                                           .ranks = RANKS,
                                           .node = seat->nodes > 1 ? seat->rank : 0,
                                           .nodes = seat->nodes,
                                           .local = seat->nodes > 1 ? 0 : seat->rank,
                                           .locals = RANKS / seat->nodes},
                                 .timeout_ms = harness_patience_ms(5000),
                                 .shm_fd = -1,
                                 .threads = seat->world};
    seat->outcome = comm_begin_open(&config, &comm, addresses[seat->rank], &bytes[seat->rank]);
    if (seat->outcome == ST_OK)
        seat->outcome = comm_end_open(comm, 1, addresses, bytes);
    if (seat->outcome == ST_OK) {
        consensus_init(&consensus, comm);
        seat->shared = consensus_broadcast(&consensus, &seat->number, sizeof seat->number);
        if (consensus_compare(&consensus, seat->device ? seat->device : "one kind",
                              &seat->differs) != ST_OK)
            seat->differs.rank = -1;
        if (consensus_request(&consensus, seat->mine, &seat->agreed) != ST_OK)
            seat->agreed = BOARD_REQUEST_NONE;
        enum status st = ST_OK;
        if (consensus_is_rank0(&consensus) && seat->st != ST_OK)
            st = FAIL(seat->st, "the disk is full, %d bytes", 17);
        seat->outcome = consensus_outcome(&consensus, st);
        snprintf(seat->message, sizeof seat->message, "%s", status_message());
    }
    comm_close(comm);
    return NULL;
}

static const char *devices[RANKS]; /* of the next meeting */

/* meet — runs all ranks, on one node or on several; seen: the request that rank r has received. */
static void meet(struct seat seats[RANKS], int nodes, const enum board_request seen[RANKS],
                 enum status lead)
{
    pthread_t threads[RANKS];
    struct shm_threads_world *world = shm_threads_world_new(nodes, RANKS / nodes);
    assert_non_null(world);
    for (int r = 0; r < RANKS; r++) {
        seats[r] = (struct seat){.device = devices[r],
                                 .world = world,
                                 .rank = r,
                                 .nodes = nodes,
                                 .mine = seen[r],
                                 .st = lead,
                                 .number = 100 + r};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &seats[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    shm_threads_world_free(world);
}

TEST(requests_are_everybodys)
{
    static const struct {
        enum board_request seen[RANKS], agreed;
    } trials[] = {
        {{BOARD_REQUEST_NONE, BOARD_REQUEST_NONE, BOARD_REQUEST_NONE}, BOARD_REQUEST_NONE},
        {{BOARD_REQUEST_NONE, BOARD_REQUEST_NONE, BOARD_REQUEST_SAVE}, BOARD_REQUEST_SAVE},
        {{BOARD_REQUEST_SAVE, BOARD_REQUEST_TERMINATE, BOARD_REQUEST_NONE},
         BOARD_REQUEST_TERMINATE},
        {{BOARD_REQUEST_INTERRUPT, BOARD_REQUEST_TERMINATE, BOARD_REQUEST_PREEMPT},
         BOARD_REQUEST_INTERRUPT},
    };
    struct seat seats[RANKS];
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        meet(seats, 1, trials[i].seen, ST_OK);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(seats[r].agreed, trials[i].agreed);
            assert_int_equal(seats[r].shared, ST_OK);
            assert_int_equal(seats[r].number, 100);
            assert_int_equal(seats[r].outcome, ST_OK);
        }
    }
}

TEST(the_leads_failure_is_everybodys)
{
    static const enum board_request none[RANKS];
    struct seat seats[RANKS];
    meet(seats, 1, none, ST_STORE);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(seats[r].outcome, ST_STORE);
        assert_string_equal(seats[r].message, "the disk is full, 17 bytes");
    }
    meet(seats, RANKS, none, ST_STORE); /* the message must name the node, wherever it is read */
    for (int r = 0; r < RANKS; r++)
        assert_string_equal(seats[r].message, r == 0 ? "the disk is full, 17 bytes"
                                                     : "on node 0: the disk is full, 17 bytes");
}

TEST(one_rank_asks_nobody)
{
    struct consensus consensus;
    enum board_request agreed;
    int64_t number = 7;
    consensus_init(&consensus, NULL);
    assert_true(consensus_is_rank0(&consensus));
    assert_int_equal(consensus_broadcast(&consensus, &number, sizeof number), ST_OK);
    assert_int_equal(consensus_request(&consensus, BOARD_REQUEST_SAVE, &agreed), ST_OK);
    assert_int_equal(agreed, BOARD_REQUEST_SAVE);
    assert_int_equal(consensus_outcome(&consensus, FAIL(ST_NO_INPUT, "no file")), ST_NO_INPUT);
    assert_string_equal(status_message(), "no file");
}

/* The first rank that differs from rank 0, on all ranks. */
TEST(texts_are_compared)
{
    static const enum board_request none[RANKS];
    static const char *const kinds[][RANKS] = {
        {"a", "a", "a"}, {"a", "a", "b"}, {"a", "ab", "b"}, {"b", "a", "a"}};
    static const int first[] = {0, 2, 1, 1};
    for (int i = 0; i < 4; i++) {
        struct seat seats[RANKS];
        memcpy(devices, kinds[i], sizeof devices);
        meet(seats, 1, none, ST_OK);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(seats[r].differs.rank, first[i]);
            assert_string_equal(seats[r].differs.own, first[i] ? kinds[i][first[i]] : "");
            assert_string_equal(seats[r].differs.rank0, first[i] ? kinds[i][0] : "");
        }
    }
    memset(devices, 0, sizeof devices);
}

HARNESS_RUN_ALL()

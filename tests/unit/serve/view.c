/* view — phase, lead worker, percentiles, and the conditions of /livez and /readyz. */
#include "harness.h"

#include "base/board.h"
#include "serve/view.h"

static struct view view;
static struct board *board;
static char reason[256];

static int fresh(void **state)
{
    struct board_node node = {
        .node_id = 1, .n_nodes = 2, .workers_n = 2, .phase = BOARD_PHASE_STARTING};
    if (board_create(2, 2, &board) != ST_OK)
        return -1;
    board_node_publish(board, &node);
    return 0;
}
static int done(void **state)
{
    board_close(board);
    return 0;
}

static void node_says(enum board_phase phase)
{
    struct board_node node;
    board_node_copy(board, &node);
    node.phase = phase;
    board_node_publish(board, &node);
}
static void worker_says(int worker_i, int rank, enum board_phase phase)
{
    static struct board_worker worker;
    worker.rank = rank;
    worker.phase = phase;
    board_worker_publish(board, worker_i, &worker);
}
static void look(int64_t later_ms, int64_t hang_ms)
{
    view_copy(&view, board, clock_ms() + later_ms, 0, hang_ms);
}

TEST_WITH(phases, fresh, done)
{
    look(0, 1000);
    assert_int_equal(view.phase, BOARD_PHASE_STARTING);
    assert_null(view.first_worker);
    /* second worker of the second node, before it spoke */
    assert_int_equal(view_rank(&view, 1), 3);
    worker_says(1, 3, BOARD_PHASE_LOADING);
    look(0, 1000);
    assert_int_equal(view.phase, BOARD_PHASE_LOADING);
    worker_says(0, 2, BOARD_PHASE_TRAINING);
    look(0, 1000);
    assert_int_equal(view.phase, BOARD_PHASE_TRAINING); /* the lowest rank speaks */
    node_says(BOARD_PHASE_RECOVERING);
    look(0, 1000);
    assert_int_equal(view.phase, BOARD_PHASE_TRAINING);
    board_worker_clear(board, 0);
    board_worker_clear(board, 1);
    look(0, 1000);
    assert_int_equal(view.phase, BOARD_PHASE_RECOVERING);
    worker_says(0, 2, BOARD_PHASE_TRAINING);
    node_says(BOARD_PHASE_DONE);
    look(0, 1000);
    assert_int_equal(view.phase, BOARD_PHASE_DONE);
}

TEST(percentiles)
{
    static struct board_worker worker;
    assert_true(isnan(view_step_ms(&worker, 0)) && isnan(view_step_ms(&worker, 0.5)));
    worker.step_ms[0] = 7;
    worker.step_ms_n = 1;
    assert_true(view_step_ms(&worker, 0) == 7 && view_step_ms(&worker, 0.5) == 7 &&
                view_step_ms(&worker, 0.95) == 7);
    for (int i = 0; i < 100; i++)
        worker.step_ms[i] = (float)((i * 37) % 100 + 1); /* 1 … 100 in a jumble */
    worker.step_ms_n = 100;
    assert_true(view_step_ms(&worker, 0.5) == 50 && view_step_ms(&worker, 0.95) == 95 &&
                view_step_ms(&worker, 1) == 100);
    assert_true(view_step_ms(&worker, 0) == (99 * 37) % 100 + 1);
    for (int i = 0; i < BOARD_STEPS_KEPT; i++)
        worker.step_ms[i] = 5;
    worker.step_ms_n = 1000 * BOARD_STEPS_KEPT + 3; /* round the ring: the last one is at index 2 */
    worker.step_ms[2] = 9;
    assert_true(view_step_ms(&worker, 0) == 9 && view_step_ms(&worker, 0.95) == 5 &&
                view_step_ms(&worker, 1) == 9);
    worker.step_ms_n = INT64_MIN;
    assert_true(isnan(view_step_ms(&worker, 0)));
}

TEST_WITH(a_hang_is_told, fresh, done)
{
    worker_says(0, 2, BOARD_PHASE_TRAINING);
    worker_says(1, 3, BOARD_PHASE_TRAINING);
    look(0, 1000);
    assert_true(view_is_live(&view, reason, sizeof(reason))); /* no beat yet: nothing to judge by */
    assert_int_equal(view_progress_age_ms(&view), -1);
    board_heartbeat(board, 0);
    board_heartbeat(board, 1);
    look(900, 1000);
    assert_true(view_is_live(&view, reason, sizeof(reason)) &&
                view_is_ready(&view, reason, sizeof(reason)));
    assert_in_range(view_progress_age_ms(&view), 900, 1000);
    look(5000, 1000);
    assert_false(view_is_live(&view, reason, sizeof(reason)));
    assert_non_null(strstr(reason, "rank 2 hung: no progress for 5."));
    assert_non_null(strstr(reason, "while training"));
    assert_false(view_is_ready(&view, reason, sizeof(reason)));
    struct board_node node;
    board_node_copy(board, &node);
    node.limit_ms = 600000; /* steps of this node may be silent for longer */
    board_node_publish(board, &node);
    look(5000, 1000);
    assert_true(view_is_live(&view, reason, sizeof reason));
    look(631000, 1000);
    assert_false(view_is_live(&view, reason, sizeof reason));
    look(-500, 1000); /* a beat that is younger than the look */
    assert_int_equal(view_progress_age_ms(&view), 0);
    worker_says(0, 2, BOARD_PHASE_JOINING); /* waiting for peers is no hang */
    worker_says(1, 3, BOARD_PHASE_JOINING);
    look(5000, 1000);
    assert_true(view_is_live(&view, reason, sizeof(reason)));
}

TEST_WITH(ends_are_told, fresh, done)
{
    worker_says(0, 2, BOARD_PHASE_LOADING);
    look(0, 1000);
    assert_true(view_is_live(&view, reason, sizeof(reason)));
    assert_false(view_is_ready(&view, reason, sizeof(reason)));
    assert_string_equal(reason, "not training: loading");
    worker_says(0, 2, BOARD_PHASE_CHECKPOINTING);
    look(0, 1000);
    assert_true(view_is_ready(&view, reason, sizeof(reason)));
    board_request(board, BOARD_REQUEST_SAVE);
    look(0, 1000);
    assert_true(view_is_ready(&view, reason, sizeof(reason)));
    board_request(board, BOARD_REQUEST_PREEMPT);
    look(0, 1000);
    assert_false(view_is_ready(&view, reason, sizeof(reason)));
    assert_string_equal(reason, "not training: stopping");
    node_says(BOARD_PHASE_FAILED);
    look(0, 1000);
    /* it goes by itself: nothing to restart */
    assert_true(view_is_live(&view, reason, 64) && reason[0] == 0);
    assert_false(view_is_ready(&view, reason, 64));
    assert_string_equal(reason, "failed: the reason is unknown");
    node_says(BOARD_PHASE_DONE);
    look(0, 1000);
    assert_true(view_is_live(&view, reason, 64) && view_is_over(&view));
    assert_false(view_is_ready(&view, reason, 64));
}

static const char *state_of(int i)
{
    static struct view_peer peer;
    view_peer(&view, i, &peer);
    return peer.state;
}

/* What ranks said last is over with the run; and a worker that died in the midst is not hung for
 * it. */
TEST_WITH(ranks_end_with_the_run, fresh, done)
{
    static struct board_worker failed = {
        .rank = 3, .phase = BOARD_PHASE_TRAINING, .error = {.code = 79, .message = "x"}};
    struct view_peer peers[2] = {{.rank = 0, .state = "training"}, {.rank = 1, .state = "lost"}};
    worker_says(0, 2, BOARD_PHASE_TRAINING);
    board_worker_publish(board, 1, &failed);
    board_heartbeat(board, 0);
    look(0, 1000);
    assert_string_equal(state_of(0), "training");
    node_says(BOARD_PHASE_FAILED);
    look(60000, 1000);
    view.peers = peers;
    view.peers_n = 2;
    assert_string_equal(state_of(0), "stopped");
    assert_string_equal(state_of(1), "failed");
    assert_string_equal(state_of(2), "stopped");
    assert_string_equal(state_of(3), "lost");
    assert_true(view_is_live(&view, reason, sizeof(reason)));
    node_says(BOARD_PHASE_DONE);
    look(60000, 1000);
    assert_string_equal(state_of(0), "done");
}

TEST_WITH(the_nodes_error_comes_first, fresh, done)
{
    static struct board_worker worker = {.error = {.code = 65, .message = "worker's"}};
    look(0, 1000);
    assert_null(view_error(&view));
    board_worker_publish(board, 1, &worker);
    look(0, 1000);
    assert_string_equal(view_error(&view)->message, "worker's");
    struct board_node node;
    board_node_copy(board, &node);
    node.error = (struct board_error){.code = 81, .message = "node's"};
    board_node_publish(board, &node);
    look(0, 1000);
    assert_string_equal(view_error(&view)->message, "node's");
}

HARNESS_RUN_ALL()

/* history — points keep all of a run in bounded memory; events are kept one by one; the
 * JSON of both. */
#include "harness.h"

#include "base/json.h"
#include "serve/history.h"

static struct view view;
static struct board_worker lead;
static struct history history;

static int fresh(void **state)
{
    memset(&history, 0, sizeof(history));
    memset(&view, 0, sizeof(view));
    memset(&lead, 0, sizeof(lead));
    view.machine = machine_stats_unknown();
    view.node.started_ms = 1000;
    view.node.n_nodes = view.node.workers_n = 1;
    view.phase = BOARD_PHASE_TRAINING;
    lead.val_loss = lead.comm_ms = lead.wait_ms = NAN;
    lead.checkpoint.step = -1;
    return 0;
}

static void look(int64_t age_ms, int64_t step, double loss)
{
    view.now_ms = view.node.started_ms + age_ms;
    view.first_worker = &lead;
    lead.step = step;
    lead.loss = loss;
    lead.tokens_per_second = 1000;
    lead.step_ms[0] = 20;
    lead.step_ms_n = 1; /* of another step it is another */
    history_observe(&history, &view);
}

static double value(int i, enum history_curve curve) { return history.points[i].values[curve]; }
static const struct history_event *event(int64_t i) { return &history.events[i % HISTORY_EVENTS]; }

TEST_WITH(looks_become_points, fresh, NULL)
{
    look(100, 1, 8);
    look(600, 2, 6);
    look(1100, 3, 5);
    assert_int_equal(history.points_n, 2);
    assert_int_equal(history.points[0].at_ms, 0);
    assert_int_equal(history.points[0].step, 2);
    assert_true(value(0, HISTORY_CURVE_LOSS) == 7);
    assert_true(history.points[0].loss_low == 6 && history.points[0].loss_high == 8);
    assert_true(value(0, HISTORY_CURVE_STEP_MS) == 20);
    assert_true(isnan(value(0, HISTORY_CURVE_VAL_LOSS)));
    assert_int_equal(history.points[1].at_ms, 1000);
    look(500, 3, 5); /* from before the last: dropped */
    assert_int_equal(history.points_n, 2);
}

TEST_WITH(what_is_not_known_does_not_count, fresh, NULL)
{
    look(0, 1, NAN);
    look(400, 2, 4);
    look(800, 3, INFINITY);
    assert_true(value(0, HISTORY_CURVE_LOSS) == 4);
    lead.val_loss = 3;
    look(900, 4, 4);
    lead.val_loss = 2;
    look(950, 5, 4);
    assert_true(value(0, HISTORY_CURVE_VAL_LOSS) == 2); /* the last one, not their mean */
    view.first_worker = NULL;
    view.now_ms += 1000;
    history_observe(&history, &view);
    assert_int_equal(history.points[1].step, -1);
    assert_true(isnan(value(1, HISTORY_CURVE_LOSS)));
}

TEST_WITH(a_worker_on_its_way_back_measures_nothing, fresh, NULL)
{
    look(0, 7, 4);
    view.phase = BOARD_PHASE_RECOVERING;
    look(1000, 7, 4);
    assert_true(isnan(value(1, HISTORY_CURVE_LOSS)));
    assert_int_equal(history.points[1].phase, BOARD_PHASE_RECOVERING);
    view.phase = BOARD_PHASE_TRAINING;
    look(1500, 6, 4);
    assert_int_equal(history.points[1].phase, BOARD_PHASE_RECOVERING); /* the gravest stays */
    assert_int_equal(history.points[1].step, 6);
}

/* A flat line would say that loss and speed stood still, when nothing was measured at all. */
TEST_WITH(what_is_told_again_is_no_measurement, fresh, NULL)
{
    look(0, 7, 4);
    look(1000, 7, 4); /* a slow step: training all the while */
    assert_true(isnan(value(1, HISTORY_CURVE_LOSS)) &&
                isnan(value(1, HISTORY_CURVE_TOKENS_PER_SECOND)));
    assert_int_equal(history.points[1].phase, BOARD_PHASE_TRAINING);
    view.phase = BOARD_PHASE_EVALUATING;
    look(2000, 7, 4);
    assert_true(isnan(value(2, HISTORY_CURVE_LOSS)));
    assert_int_equal(history.points[2].phase, BOARD_PHASE_EVALUATING);
    view.phase = BOARD_PHASE_TRAINING;
    lead.val_loss = 3;
    look(3000, 7, 4); /* the evaluation has ended, and no step since */
    assert_true(isnan(value(3, HISTORY_CURVE_LOSS)) && value(3, HISTORY_CURVE_VAL_LOSS) == 3);
    assert_int_equal(history.points[3].step, 7);
    /* seen while it saves, but a step was done since the last look */
    view.phase = BOARD_PHASE_CHECKPOINTING;
    look(4000, 8, 5);
    assert_true(value(4, HISTORY_CURVE_LOSS) == 5 && isnan(value(4, HISTORY_CURVE_VAL_LOSS)));
    assert_int_equal(history.points[4].phase, BOARD_PHASE_TRAINING);
    look(4500, 8, 5);
    assert_int_equal(history.points[4].phase, BOARD_PHASE_TRAINING);
    look(5000, 8, 5);
    assert_int_equal(history.points[5].phase, BOARD_PHASE_CHECKPOINTING);
    lead.step_ms_n = 2; /* the same step, done again */
    view.phase = BOARD_PHASE_TRAINING;
    lead.loss = 6;
    view.now_ms = view.node.started_ms + 6000;
    history_observe(&history, &view);
    assert_true(value(6, HISTORY_CURVE_LOSS) == 6);
}

/* A node that shows its end for a while adds nothing to the course. */
TEST_WITH(the_end_is_no_part_of_the_course, fresh, NULL)
{
    look(0, 7, 4);
    view.node.phase = view.phase = BOARD_PHASE_DONE;
    look(1000, 7, 4);
    look(2000, 7, 4);
    look(50000, 7, 4);
    assert_int_equal(history.points_n, 2);
    assert_int_equal(history.points[1].phase, BOARD_PHASE_DONE);
    view.node.error = (struct board_error){.code = 75, .message = "late"};
    look(51000, 7, 4);
    assert_string_equal(event(history.events_n - 1)->text, "late");
}

/* A year, at two looks a second for the beginning and each hour later: never more points than there
 * is room for, the times in order, the loss's ends kept. */
/* Mean and highest load, fullest memory, sums of the rates; a machine of which nothing is known
 * does not count. */
TEST_WITH(machines_are_summed_up, fresh, NULL)
{
    const struct view_node nodes[3] = {
        {.node_id = 0, .state = "joined", .machine = {0.25, 10, 100, 1000, NAN, 5, 7}},
        {.node_id = 1, .state = "lost", .machine = machine_stats_unknown()},
        {.node_id = 2, .state = "joined", .machine = {0.75, 50, 100, 500, NAN, 5, NAN}}};
    view.nodes = nodes;
    view.nodes_n = 3;
    look(0, 1, 4);
    assert_true(value(0, HISTORY_CURVE_MACHINE_CPU) == 0.5);
    assert_true(value(0, HISTORY_CURVE_MACHINE_CPU_HIGH) == 0.75);
    assert_true(value(0, HISTORY_CURVE_MACHINE_MEMORY) == 0.5);
    assert_true(value(0, HISTORY_CURVE_MACHINE_DISK_READ) == 1500);
    assert_true(isnan(value(0, HISTORY_CURVE_MACHINE_DISK_WRITE)));
    assert_true(value(0, HISTORY_CURVE_MACHINE_RECEIVED) == 10);
    assert_true(value(0, HISTORY_CURVE_MACHINE_SENT) == 7);
}

TEST_WITH(memory_is_bounded, fresh, NULL)
{
    int64_t age_ms = 0;
    for (int i = 0; i < 20000; i++, age_ms += 500)
        look(age_ms, i, i == 777 ? 99 : 3);
    assert_true(history.points_n <= HISTORY_POINTS && history.points_n > HISTORY_POINTS / 2 - 1);
    assert_int_equal(history.period_ms, 32000);
    for (int i = 0; i < 365 * 24; i++, age_ms += 3600000)
        look(age_ms, 20000 + i, 2);
    assert_true(history.points_n <= HISTORY_POINTS && history.points_n > HISTORY_POINTS / 4);
    for (int i = 1; i < history.points_n; i++) {
        assert_true(history.points[i].at_ms > history.points[i - 1].at_ms);
        assert_int_equal(history.points[i].at_ms % history.period_ms, 0);
    }
    assert_true(history.points[0].loss_high == 99);
    assert_true(value(0, HISTORY_CURVE_LOSS) > 2 && value(0, HISTORY_CURVE_LOSS) < 3.1);
    assert_int_equal(history.points[history.points_n - 1].step, 20000 + 365 * 24 - 1);
}

TEST_WITH(gaps_need_no_neighbours, fresh, NULL)
{
    for (int64_t i = 0; i < HISTORY_POINTS + 50; i++)
        look(i * 1000000000, i, 3); /* 12 days apart */
    assert_true(history.points_n <= HISTORY_POINTS);
    assert_int_equal(history.points[history.points_n - 1].step, HISTORY_POINTS + 49);
}

TEST_WITH(events_tell_what_happened, fresh, NULL)
{
    struct view_node nodes[2] = {{.state = "joined"}, {.state = "awaited"}};
    view.nodes = nodes;
    view.nodes_n = 2;
    look(0, 1, 4);
    view.phase = BOARD_PHASE_CHECKPOINTING; /* part of training */
    look(500, 2, 4);
    nodes[1].state = "joined";
    look(900, 2, 4);
    text_copy(view.node.last_failure, sizeof(view.node.last_failure), "worker rank 1 was killed");
    view.node.restarts = 1;
    view.phase = BOARD_PHASE_RECOVERING;
    look(1500, 2, 4);
    look(1600, 2, 4);
    lead.checkpoint.failures = 1;
    text_copy(lead.checkpoint.error, sizeof(lead.checkpoint.error), "disk full");
    look(2000, 2, 4);
    lead.checkpoint.failures = 0; /* another worker, which counts anew */
    look(2100, 2, 4);
    view.node.error = (struct board_error){.code = 75, .message = "no restart left"};
    view.phase = BOARD_PHASE_FAILED;
    look(2500, 2, 4);
    look(2600, 2, 4);
    static const char *const wanted[][2] = {{"phase", "training"},
                                            {"nodes", "1 of 2 nodes are connected"},
                                            {"nodes", "2 of 2 nodes are connected"},
                                            {"restart", "restart 1: worker rank 1 was killed"},
                                            {"phase", "recovering"},
                                            {"checkpoint", "checkpoint not written: disk full"},
                                            {"phase", "failed"},
                                            {"error", "no restart left"}};
    assert_int_equal(history.events_n, 8);
    for (int i = 0; i < 8; i++) {
        assert_string_equal(event(i)->kind, wanted[i][0]);
        assert_string_equal(event(i)->text, wanted[i][1]);
    }
    assert_int_equal(event(3)->at_ms, 1500);
}

TEST_WITH(the_newest_events_are_kept, fresh, NULL)
{
    char last[64];
    for (int i = 1; i <= 3 * HISTORY_EVENTS; i++) {
        text_format(view.node.last_failure, sizeof(view.node.last_failure), "number %d", i);
        view.node.restarts = i;
        look(i * 100, i, 4);
    }
    text_format(last, sizeof(last), "restart %d: number %d", 3 * HISTORY_EVENTS,
                3 * HISTORY_EVENTS);
    assert_string_equal(event(history.events_n - 1)->text, last);
}

static cJSON *written(const struct history *from, size_t *bytes_out)
{
    struct text t = {0};
    cJSON *root = NULL;
    history_write(from, &t);
    assert_false(t.overflow);
    assert_int_equal(t.data[t.len - 1], '\n');
    assert_int_equal(json_parse(t.data, t.len, "history", &root), ST_OK);
    *bytes_out = t.len;
    text_free(&t);
    return root;
}

TEST_WITH(json_of_nothing, fresh, NULL)
{
    size_t bytes;
    for (int i = 0; i < 2; i++) {
        cJSON *root = written(i == 0 ? NULL : &history, &bytes);
        assert_int_equal(cJSON_GetObjectItem(root, "schema")->valueint, HISTORY_SCHEMA);
        const cJSON *points = cJSON_GetObjectItem(root, "points"), *list;
        assert_int_equal(cJSON_GetArraySize(points), 3 + HISTORY_CURVE_N + 2);
        cJSON_ArrayForEach(list, points) assert_int_equal(cJSON_GetArraySize(list), 0);
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "events")), 0);
        cJSON_Delete(root);
    }
}

TEST_WITH(json_at_its_largest, fresh, NULL)
{
    size_t bytes;
    /* six characters each, escaped */
    memset(view.node.last_failure, 1, sizeof(view.node.last_failure) - 1);
    lead.val_loss = lead.comm_ms = lead.wait_ms = lead.lr = lead.grad_norm = lead.compute_ms =
        -1.23456789e-100;
    for (int64_t i = 0; i < HISTORY_POINTS; i++) {
        view.node.restarts = i;
        look(i * 1000, INT64_MAX - 1000 + i, i % 2 ? NAN : -1.2345678e30);
    }
    cJSON *root = written(&history, &bytes);
    print_message("# %zu bytes\n", bytes);
    assert_true(bytes <= 680 << 10);
    const cJSON *points = cJSON_GetObjectItem(root, "points"), *list;
    cJSON_ArrayForEach(list, points) assert_int_equal(cJSON_GetArraySize(list), HISTORY_POINTS);
    assert_true(cJSON_IsNull(cJSON_GetArrayItem(cJSON_GetObjectItem(points, "loss"), 1)));
    assert_string_equal(
        cJSON_GetStringValue(cJSON_GetArrayItem(cJSON_GetObjectItem(points, "phase"), 1)),
        "training");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "events")), HISTORY_EVENTS);
    cJSON_Delete(root);
}

HARNESS_RUN_ALL()

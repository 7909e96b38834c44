/* watchdog — silence, limits, and pauses that do not count as silence. */
#include "harness.h"

#include "node/process/watchdog.h"

static bool look(struct watchdog *watchdog, int64_t now_ms, int64_t heartbeat_ms,
                 enum board_phase phase)
{
    int64_t silent_ms;
    return watchdog_check(watchdog, now_ms, heartbeat_ms, phase, &silent_ms);
}

/* hang_at — checks every 100 ms from start_ms, with the last heartbeat at heartbeat_ms; returns the
 * time of the first hang. */
static int64_t hang_at(struct watchdog *watchdog, int64_t start_ms, int64_t heartbeat_ms,
                       enum board_phase phase)
{
    watchdog_start(watchdog, start_ms);
    for (int64_t now_ms = start_ms; now_ms < start_ms + 4000000; now_ms += 100) {
        if (look(watchdog, now_ms, heartbeat_ms, phase))
            return now_ms;
    }
    return -1;
}

TEST(test_limits)
{
    struct watchdog automatic = {0}, set = {.limit_set_ms = 2000},
                    long_set = {.limit_set_ms = 3600000};
    assert_int_equal(watchdog_limit_ms(&automatic, BOARD_PHASE_TRAINING), 60000);
    assert_int_equal(watchdog_limit_ms(&automatic, BOARD_PHASE_LOADING), 600000);
    assert_int_equal(watchdog_limit_ms(&set, BOARD_PHASE_TRAINING), 2000);
    assert_int_equal(watchdog_limit_ms(&set, BOARD_PHASE_EVALUATING), 2000);
    assert_int_equal(watchdog_limit_ms(&set, BOARD_PHASE_CHECKPOINTING), 600000);
    assert_int_equal(watchdog_limit_ms(&set, BOARD_PHASE_RECOVERING), 600000);
    assert_int_equal(watchdog_limit_ms(&long_set, BOARD_PHASE_LOADING), 3600000);
}

/* Before the first step is timed the limit comes from its operations; after that from its time. A
 * limit that is set stays. */
TEST(test_first_step)
{
    struct watchdog watchdog = {0}, set = {.limit_set_ms = 2000};
    struct board_worker worker = {.planned_ms = 100000};
    watchdog_start(&watchdog, 0);
    watchdog_learn(&watchdog, &worker);
    assert_int_equal(watchdog_limit_ms(&watchdog, BOARD_PHASE_TRAINING), 5000000);
    assert_int_equal(watchdog_limit_ms(&watchdog, BOARD_PHASE_LOADING), 5000000);
    /* 4000 s of silence */
    assert_int_equal(hang_at(&watchdog, 1000, 1000, BOARD_PHASE_TRAINING), -1);
    watchdog_learn(&set, &worker);
    assert_int_equal(watchdog_limit_ms(&set, BOARD_PHASE_TRAINING), 2000);
    worker.step_ms[0] = 9000;
    worker.step_ms_n = 1;
    watchdog_start(&watchdog, 0);
    watchdog_learn(&watchdog, &worker);
    assert_int_equal(watchdog_limit_ms(&watchdog, BOARD_PHASE_TRAINING), 90000);
    watchdog = (struct watchdog){0};
    worker = (struct board_worker){.planned_ms = 3};
    watchdog_learn(&watchdog, &worker);
    assert_int_equal(watchdog_limit_ms(&watchdog, BOARD_PHASE_TRAINING), 60000);
}

TEST(test_slowest_step)
{
    struct watchdog watchdog = {0};
    struct board_worker worker = {.step_ms = {100, 9000, 200}, .step_ms_n = 3};
    watchdog_start(&watchdog, 0);
    watchdog_learn(&watchdog, &worker);
    assert_int_equal(watchdog.slowest_ms, 9000);
    assert_int_equal(watchdog_limit_ms(&watchdog, BOARD_PHASE_TRAINING), 90000);
    /* More steps than the ring holds since the last look: only those still there. */
    for (int i = 0; i < BOARD_STEPS_KEPT; i++)
        worker.step_ms[i] = 20000;
    worker.step_ms_n = 3 + 5 * BOARD_STEPS_KEPT;
    watchdog_learn(&watchdog, &worker);
    assert_int_equal(watchdog_limit_ms(&watchdog, BOARD_PHASE_TRAINING), 200000);
    /* A new worker starts a new ring; what was learnt stays. */
    watchdog_start(&watchdog, 0);
    worker = (struct board_worker){.step_ms = {50}, .step_ms_n = 1};
    watchdog_learn(&watchdog, &worker);
    assert_int_equal(watchdog.slowest_ms, 20000);
}

TEST(test_silence)
{
    struct watchdog watchdog = {.limit_set_ms = 2000};
    /* first look after 3500 */
    assert_int_equal(hang_at(&watchdog, 1000, 1500, BOARD_PHASE_TRAINING), 3600);
    /* no heartbeat: from the start */
    assert_int_equal(hang_at(&watchdog, 1000, 0, BOARD_PHASE_TRAINING), 3100);
    assert_int_equal(hang_at(&watchdog, 1000, 0, BOARD_PHASE_LOADING), 601100);
}

TEST(test_own_pause_is_no_hang)
{
    struct watchdog watchdog = {.limit_set_ms = 3000};
    watchdog_start(&watchdog, 0);
    assert_false(look(&watchdog, 100, 90, BOARD_PHASE_TRAINING));
    assert_false(look(&watchdog, 500000, 90, BOARD_PHASE_TRAINING)); /* Ctrl-Z, fg */
    assert_false(look(&watchdog, 501900, 90, BOARD_PHASE_TRAINING));
    assert_false(look(&watchdog, 502900, 90, BOARD_PHASE_TRAINING));
    /* 3 s of our own time without a heartbeat */
    assert_true(look(&watchdog, 503100, 90, BOARD_PHASE_TRAINING));
}

TEST(test_waiting_for_others)
{
    struct board_call waiting = {.call = "all_reduce", .published_ms = 9000},
                      idle = {.published_ms = 9000};
    assert_int_equal(watchdog_last_sign_ms(5000, NULL), 5000);
    /* alive, but not in a call: its own silence */
    assert_int_equal(watchdog_last_sign_ms(5000, &idle), 5000);
    assert_int_equal(watchdog_last_sign_ms(5000, &waiting), 9000);
    assert_int_equal(watchdog_last_sign_ms(9500, &waiting), 9500);
    /* what watches the collective on the GPU has not come back from CUDA since then */
    waiting.stuck_ms = 6000;
    assert_int_equal(watchdog_last_sign_ms(5000, &waiting), 6000);
    assert_int_equal(watchdog_last_sign_ms(7000, &waiting), 7000);
    /* it waited there for the others, until then */
    struct board_call out = {.left_ms = 8900, .published_ms = 9000};
    assert_int_equal(watchdog_last_sign_ms(5000, &out), 8900);
    assert_int_equal(watchdog_last_sign_ms(8950, &out), 8950);
}

/* A generation ends: silence counts from then, for a rank that waited in it too. */
TEST(test_anew)
{
    struct watchdog watchdog = {.limit_set_ms = 2000};
    watchdog_start(&watchdog, 0);
    for (int64_t now_ms = 100; now_ms <= 1900; now_ms += 100)
        assert_false(look(&watchdog, now_ms, 0, BOARD_PHASE_TRAINING));
    watchdog_rearm(&watchdog, 1950);
    for (int64_t now_ms = 2000; now_ms <= 3900; now_ms += 100)
        assert_false(look(&watchdog, now_ms, 0, BOARD_PHASE_TRAINING));
    assert_true(look(&watchdog, 4000, 0, BOARD_PHASE_TRAINING));
}

TEST(test_frozen)
{
    struct watchdog watchdog = {0};
    int64_t silent_ms = 0;
    watchdog_start(&watchdog, 10000);
    assert_false(look(&watchdog, 10100, 10050, BOARD_PHASE_TRAINING));
    assert_false(watchdog_is_frozen(&watchdog, 10100, 10050, 3000, &silent_ms));
    for (int64_t now_ms = 10200; now_ms <= 13000; now_ms += 100)
        assert_false(look(&watchdog, now_ms, 10050, BOARD_PHASE_TRAINING));
    assert_false(watchdog_is_frozen(&watchdog, 13000, 10050, 3000, &silent_ms));
    assert_true(watchdog_is_frozen(&watchdog, 13100, 10050, 3000, &silent_ms));
    assert_int_equal(silent_ms, 3050);
    /* we ourselves were stopped */
    assert_false(look(&watchdog, 20000, 10050, BOARD_PHASE_TRAINING));
    assert_false(watchdog_is_frozen(&watchdog, 20000, 10050, 3000, &silent_ms));
}

HARNESS_RUN_ALL()

/* restart_budget: incidents take restarts, repeats end them, calm gives them back, and the waits
 * grow. */
#include "harness.h"

#include "cluster/restart_budget.h"

#define WORKERS 8

static struct restart_budget budget;
static struct restart_repeat others[WORKERS - 1];
static char text[256];

static void begin(int64_t restarts_max)
{
    memset(others, 0, sizeof others);
    budget = (struct restart_budget){
        .restarts_max = restarts_max, .workers_n = WORKERS, .others = others};
}

/* Counts one more loss of this worker after this step. */
static bool lose(enum status st, int worker, int64_t step, int64_t generation)
{
    const struct restart_loss loss = {st, worker, step, generation};
    text[0] = 0;
    return restart_budget_spend(&budget, &loss, "worker hung", text, sizeof text);
}

/* A generation finishes steps up to this one. */
static void train_to(int64_t step)
{
    restart_budget_stepped(&budget, 0, 0);
    restart_budget_passed(&budget, step);
}

TEST(incidents_are_counted)
{
    begin(2);
    for (int i = 0; i < 2; i++) {
        assert_true(lose(ST_RETRY, i, 10 * i, i));
        assert_int_equal(budget.counts.losses, 1);
        train_to(10 * i + 5);
    }
    assert_false(lose(ST_RETRY, 2, 30, 3));
    assert_int_equal(budget.counts.restarts, 2);
    assert_string_equal(text, "worker hung; no restart left (MAX_RESTARTS=2)");
    begin(0);
    assert_false(lose(ST_RETRY, 0, 10, 1));
    begin(-1);
    assert_false(lose(ST_RETRY, 0, 10, 1)); /* a check knows none, and its text names none */
    assert_string_equal(text, "worker hung");
}

TEST(losses_during_a_recovery_are_one_incident)
{
    begin(1);
    for (int worker = 0; worker < WORKERS; worker++) {
        assert_true(lose(ST_PEER, worker, 10, worker));
        assert_int_equal(budget.counts.losses, worker + 1);
        assert_int_equal(budget.counts.restarts, 1);
    }
    train_to(11);
    assert_int_equal(budget.counts.losses, 0);
    assert_false(lose(ST_PEER, 0, 20, 20));
}

TEST(a_return_to_a_checkpoint_is_progress)
{
    static const int64_t steps[] = {900, 300, 500, 120, 899, 300, 301, 101};
    begin(8);
    for (int i = 0; i < 8; i++) { /* of one worker, each time from the checkpoint of step 100 */
        assert_true(lose(ST_RETRY, 3, steps[i], i));
        train_to(101);
    }
    assert_int_equal(budget.counts.restarts, 8);
}

TEST(only_the_same_worker_at_the_same_step_ends_them)
{
    begin(1000);
    for (int i = 0; i < 2; i++)
        for (int worker = 0; worker < WORKERS; worker++)
            assert_true(lose(ST_RETRY, worker, -1, i * WORKERS + worker));
    for (int i = 0; i < 100; i++) /* the job passes them in between */
        train_to(1), assert_true(lose(ST_RETRY, 2, -1, 100 + i));
    begin(1000);
    assert_true(lose(ST_RETRY, 2, 7, 1));
    assert_true(lose(ST_RETRY, 2, 3, 2)); /* after another step */
    assert_true(lose(ST_RETRY, 2, 7, 3));
    assert_true(lose(ST_RETRY, 2, 7, 4));
    train_to(8); /* other workers may be one step ahead */
    assert_false(lose(ST_RETRY, 2, 7, 5));
    assert_non_null(strstr(text, "worker hung; the same rank was lost three times after the same "
                                 "step, so more restarts would not help"));
    begin(1000);
    assert_true(lose(ST_RETRY, 2, 7, 1));
    assert_true(lose(ST_RETRY, 2, 7, 2));
    train_to(9);
    assert_true(lose(ST_RETRY, 2, 7, 3));
}

TEST(a_failure_of_the_state_is_tried_once_more)
{
    static const enum status kinds[] = {ST_NOT_FINITE, ST_SPIKE, ST_BUG};
    for (int i = 0; i < 3; i++) {
        begin(1000);
        for (int worker = 0; worker < WORKERS; worker++) /* all fail at once: no repeat */
            assert_true(lose(kinds[i], worker, 1, 1));
        train_to(1);
        assert_false(lose(kinds[i], WORKERS - 1, 1, 2));
        assert_non_null(strstr(text, "the same failure came again at the same step after a "
                                     "restart; it follows from the weights, the data and the "
                                     "settings, so more restarts would not help"));
        begin(1000);
        assert_true(lose(kinds[i], 1, 1, 1));
        assert_false(lose(kinds[i], 5, 1, 2)); /* on another worker */
        begin(1000);
        assert_true(lose(kinds[i], 1, -1, 0));
        assert_false(lose(kinds[i], 1, -1, 0)); /* while loading, before a generation */
        begin(1000);
        assert_true(lose(kinds[i], 1, 1, 1));
        train_to(4);
        assert_true(lose(kinds[i], 1, 4, 2)); /* at another step */
        assert_true(lose(ST_HANG, 1, 4, 3));  /* of another kind */
        begin(1000);
        assert_true(lose(kinds[i], 1, 1, 1));
        assert_true(lose(kinds[(i + 1) % 3], 2, 1, 2));
    }
    begin(1); /* the reason is named, not the number of restarts */
    assert_true(lose(ST_NOT_FINITE, 0, 1, 1));
    train_to(1);
    assert_false(lose(ST_NOT_FINITE, 0, 1, 2));
    assert_non_null(strstr(text, "same failure"));
}

TEST(calm_gives_restarts_back)
{
    begin(3);
    for (int i = 0; i < 3; i++) {
        train_to(10 * i + 5);
        assert_true(lose(ST_RETRY, i, 10 * i, i));
    }
    assert_false(restart_budget_refill(&budget, 0, INT64_C(1) << 40)); /* it still recovers */
    restart_budget_stepped(&budget, 50, 1000);
    restart_budget_stepped(&budget, 60, 2000); /* the first call counts */
    assert_false(restart_budget_refill(&budget, 149, 1000 + RESTART_BUDGET_REFILL_MS - 1));
    assert_true(restart_budget_refill(&budget, 150, 1500));
    assert_int_equal(restart_budget_used(&budget), 2);
    assert_int_equal(budget.counts.restarts, 3);
    assert_false(restart_budget_refill(&budget, 249, 1500 + RESTART_BUDGET_REFILL_MS - 1));
    assert_true(restart_budget_refill(&budget, 150, 1500 + RESTART_BUDGET_REFILL_MS));
    assert_int_equal(restart_budget_used(&budget), 1);
    assert_true(lose(ST_RETRY, 0, 100, 9));
    assert_int_equal(restart_budget_used(&budget), 2);
    restart_budget_stepped(&budget, 150, 5000);
    for (int i = 1; i < 10; i++) /* never below none */
        (void)restart_budget_refill(&budget, 150 + 100 * i, 5000);
    assert_int_equal(restart_budget_used(&budget), 0);
}

TEST(the_wait_grows)
{
    static const int64_t want_ms[] = {0, 0, 250, 500, 1000, 2000, 4000, 8000, 10000, 10000};
    for (int64_t i = 0; i < 10; i++)
        assert_int_equal(restart_budget_delay_ms(i), want_ms[i]);
    assert_int_equal(restart_budget_delay_ms(INT64_MAX), 10000);
}

HARNESS_RUN_ALL()

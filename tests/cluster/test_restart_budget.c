/* restart_budget: restarts are counted, end where no new step is made, and come ever later. */
#include "harness.h"

#include <string.h>

#include "cluster/restart_budget.h"

static struct restart_budget budget;
static char text[256];

/* take — one more failure at this step. */
static bool take(int64_t step, int64_t restarts_max)
{
    text[0] = 0;
    return restart_budget_take(&budget, step, restarts_max, "worker rank 0 hung", text,
                               sizeof text);
}

static void restarts_are_counted(void **state)
{
    (void)state;
    budget = (struct restart_budget){.best_step = -1};
    assert_true(take(10, 2));
    assert_true(take(20, 2));
    assert_false(take(30, 2));
    assert_int_equal(budget.restarts, 2);
    assert_string_equal(text, "worker rank 0 hung; no restart left (MAX_RESTARTS=2)");
    budget = (struct restart_budget){.best_step = -1};
    assert_false(take(10, 0));
    assert_false(take(10, -1)); /* a check knows none, and says nothing of them */
    assert_string_equal(text, "worker rank 0 hung");
}

static void no_progress_ends_them(void **state)
{
    (void)state;
    budget = (struct restart_budget){.best_step = -1};
    assert_true(take(-1, 1000)); /* no step at all: no progress from the first failure */
    assert_true(take(5, 1000));
    assert_int_equal(budget.no_progress, 0);
    assert_true(take(5, 1000));
    assert_true(take(4, 1000));
    assert_false(take(5, 1000));
    assert_non_null(strstr(text, "hung; 3 recoveries in a row made no new step"));
    budget = (struct restart_budget){.best_step = -1};
    for (int step = 1; step <= 1000; step++)
        assert_true(take(step, 1000));
}

static void the_wait_grows(void **state)
{
    (void)state;
    static const int64_t want_ms[] = {0, 0, 250, 500, 1000, 2000, 4000, 8000, 10000, 10000};
    for (int64_t i = 0; i < 10; i++)
        assert_int_equal(restart_budget_delay_ms(i), want_ms[i]);
    assert_int_equal(restart_budget_delay_ms(INT64_MAX), 10000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(restarts_are_counted),
    cmocka_unit_test(no_progress_ends_them),
    cmocka_unit_test(the_wait_grows),
};

HARNESS_MAIN(tests)

/* console — the progress line, and a bar that fits any terminal. */
#include "harness.h"

#include "train/trainer/console.h"

static const struct console_step example = {
    .step = 120,
    .steps = 5000,
    .loss = 3.21449,
    .lr = 3e-4,
    .grad_norm = 1.0249,
    .step_ms = 182.3,
    .tokens_per_second = 1410000,
    .mfu = 0.412,
    .eta_seconds = 14 * 60 + 5,
};

static void test_line(void **state)
{
    char out[512];
    assert_string_equal(console_line(out, sizeof out, &example),
                        "step 120/5000  loss 3.2145  lr 3.0e-04  norm 1.02  182 ms  1.41M tok/s  "
                        "mfu 41.2%  eta 14m");
}

static void test_several_ranks(void **state)
{
    char out[512];
    struct console_step now = example;
    now.comm = 0.123;
    now.hidden = 0.85;
    assert_non_null(
        strstr(console_line(out, sizeof out, &now), "  mfu 41.2%  comm 12% (85% hidden)  eta 14m"));
    now.hidden = NAN;
    assert_non_null(strstr(console_line(out, sizeof out, &now), "  mfu 41.2%  comm 12%  eta 14m"));
}

static void test_unknown_is_left_out(void **state)
{
    char out[512];
    struct console_step now = example;
    now.tokens_per_second = now.mfu = now.eta_seconds = NAN;
    now.step_ms = 1.234;
    assert_string_equal(console_line(out, sizeof out, &now),
                        "step 120/5000  loss 3.2145  lr 3.0e-04  norm 1.02  1.23 ms");
    now.step_ms = 12.34;
    assert_non_null(strstr(console_line(out, sizeof out, &now), "  12.3 ms"));
    now.step_ms = 1120;
    assert_non_null(strstr(console_line(out, sizeof out, &now), "  1.12 s"));
    now.step_ms = 12345678;
    assert_non_null(strstr(console_line(out, sizeof out, &now), "  12346 s"));
}

static void test_bar(void **state)
{
    char out[512];
    struct console_step now = example;
    now.step = 2500;
    assert_string_equal(
        console_bar(out, sizeof out, 200, &now),
        "[###############---------------]  50%  step 2500/5000  loss 3.2145  1.41M tok/s  eta 14m");
    assert_string_equal(
        console_bar(out, sizeof out, 79, &now),
        "[##########-----------]  50%  step 2500/5000  loss 3.2145  1.41M tok/s  eta 14m");
    now.step = now.steps;
    assert_non_null(
        strstr(console_bar(out, sizeof out, 200, &now), "[##############################] 100%"));
    for (int columns = 0; columns <= 200; columns++)
        assert_true(strlen(console_bar(out, sizeof out, columns, &now)) <= (size_t)columns);
    assert_string_equal(console_bar(out, sizeof out, 30, &now), "step 5000/5000  loss 3.2145…");
}

/* The steps of 1 to n that get a line if the output is no terminal, at a second a step and losses
 * of 3. */
static int lines_of(struct console console, int n, double second_ms)
{
    int lines = 0;
    struct console_step now = example;
    now.steps = n;
    for (now.step = 1; now.step <= n; now.step++) {
        int64_t at_ms = 1000 + (int64_t)(second_ms * (double)now.step);
        bool is_due = console_is_due(&console, &now, at_ms);
        lines += is_due;
        console.line_ms = is_due ? at_ms : console.line_ms;
        console.last = now;
    }
    return lines;
}

static void test_how_many_lines(void **state)
{
    /* the first, and every fiftieth */
    assert_int_equal(lines_of((struct console){0}, 5000, 1), 101);
    assert_int_equal(lines_of((struct console){0}, 30, 1), 30);
    assert_int_equal(lines_of((struct console){0}, 150, 1), 76);
    /* every 1000, and after a minute */
    assert_int_equal(lines_of((struct console){0}, 100000, 1000), 1 + 100 * 17);
    assert_int_equal(lines_of((struct console){.every = 1}, 5000, 1), 5000);
    assert_int_equal(lines_of((struct console){.every = 2000}, 5000, 1000), 4);
    assert_int_equal(lines_of((struct console){.is_terminal = true}, 5000, 1000), 11);
    /* of a node other than node 0: the first, one a minute, the last */
    assert_int_equal(lines_of((struct console){.is_brief = true}, 5000, 1), 2);
    assert_int_equal(lines_of((struct console){.is_brief = true, .every = 1}, 601, 1000), 11);
    assert_int_equal(lines_of((struct console){.is_terminal = true, .every = 1000}, 5000, 1), 6);
}

static void test_a_jump_is_shown(void **state)
{
    struct console_step now = example;
    struct console console = {.every = 1000, .line_ms = 1, .last = now};
    now.step = 121;
    assert_false(console_is_due(&console, &now, 2));
    now.loss = 1.7 * example.loss;
    assert_true(console_is_due(&console, &now, 2));
    now.loss = NAN;
    assert_true(console_is_due(&console, &now, 2));
    console.is_brief = true;
    assert_false(console_is_due(&console, &now, 2));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_how_many_lines),
    cmocka_unit_test(test_a_jump_is_shown),
    cmocka_unit_test(test_line),
    cmocka_unit_test(test_several_ranks),
    cmocka_unit_test(test_unknown_is_left_out),
    cmocka_unit_test(test_bar),
};
HARNESS_MAIN(tests)

/* spike — what is a spike and what is none, how many are skipped, and a history that is
 * written and read. */
#include "harness.h"

#include "base/rand.h"
#include "train/step/spike.h"

static const struct spike_config skip = {SPIKE_MODE_SKIP, 6};
static const struct spike_config stop = {SPIKE_MODE_STOP, 6};

static void feed(const struct spike_config *c, struct spike_history *h, int n, double loss,
                 double norm)
{
    for (int i = 0; i < n; i++) /* ± 0.5 % */
        assert_int_equal(
            spike_check(c, h, loss * (1 + 0.005 * (i % 3 - 1)), norm * (1 + 0.005 * (i % 3 - 1)))
                .cause,
            SPIKE_CAUSE_NONE);
}

TEST(test_needs_a_history)
{
    struct spike_history h = {.n = 0};
    feed(&stop, &h, SPIKE_WINDOW / 2 - 1, 3, 1);
    struct spike_history before = h;
    assert_int_equal(spike_check(&stop, &h, 300, 1).cause, SPIKE_CAUSE_NONE);
    h = before;
    feed(&stop, &h, 1, 3, 1);
    assert_int_equal(spike_check(&stop, &h, 300, 1).cause, SPIKE_CAUSE_LOSS);
}

TEST(test_what_is_a_spike)
{
    static const struct {
        double loss, norm;
        enum spike_cause cause;
    } cases[] = {
        {3, 1, SPIKE_CAUSE_NONE},
        {3.15, 1.05, SPIKE_CAUSE_NONE}, /* 6 x 1 % at least */
        {3.22, 1, SPIKE_CAUSE_LOSS},
        {3, 1.3, SPIKE_CAUSE_NONE},
        {3, 1.4, SPIKE_CAUSE_NORM},
        {9, 9, SPIKE_CAUSE_LOSS},
        {0.01, 0.01, SPIKE_CAUSE_NONE}, /* a fall is none */
        {0, 0, SPIKE_CAUSE_NONE},
        {1e300, 1, SPIKE_CAUSE_LOSS},
        {3, 1e-320, SPIKE_CAUSE_NONE},
        {NAN, 1, SPIKE_CAUSE_NOT_FINITE},
        {3, INFINITY, SPIKE_CAUSE_NOT_FINITE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spike_history h = {.n = 0};
        feed(&stop, &h, 100, 3, 1);
        struct spike_history before = h;
        struct spike_verdict v = spike_check(&stop, &h, cases[i].loss, cases[i].norm);
        if (v.cause != cases[i].cause)
            fail_msg("loss %g norm %g: cause %d", cases[i].loss, cases[i].norm, v.cause);
        assert_false(v.is_skipped);
        if (v.cause == SPIKE_CAUSE_LOSS)
            assert_true(fabs(v.expected - 3) < 0.02 && v.sigmas > 6);
        if (v.cause == SPIKE_CAUSE_NORM)
            assert_true(fabs(v.expected - 1) < 0.01 && v.sigmas > 6);
        if (v.cause != SPIKE_CAUSE_NONE) { /* the run ends with the history before the step */
            assert_int_equal(h.n, before.n);
            assert_memory_equal(&h.level[h.n - 1], &before.level[before.n - 1], sizeof *h.level);
        }
    }
}

/* log2 with 16 bits behind the point, of any value. */
TEST(test_levels)
{
    for (double value = 1e-29; value < 1e300; value *= 1.37) {
        struct spike_history h = {.n = 0};
        (void)spike_check(&stop, &h, value, 1);
        double level = (double)h.level[0].loss / 65536;
        assert_true(level <= log2(value) + 1e-12 && level > log2(value) - 1.0 / 65536 - 1e-12);
        assert_int_equal(h.level[0].norm, 0);
    }
}

/* Normal losses and log-normal norms, as runs have them: nothing is skipped. A tenth of the steps
 * as far off as spikes are changes the deviation little. */
TEST(test_noise)
{
    struct spike_history h = {.n = 0};
    for (uint64_t i = 0; i < 100000; i++) {
        double a = rand_normal(1, RAND_STREAM(TEST, 0), 2 * i),
               b = rand_normal(1, RAND_STREAM(TEST, 0), 2 * i + 1);
        struct spike_verdict v = spike_check(&skip, &h, 3 + 0.05 * a, exp(0.4 * b));
        if (v.cause != SPIKE_CAUSE_NONE)
            fail_msg("step %d: loss %g norm %g: %g deviations", (int)i, 3 + 0.05 * a, exp(0.4 * b),
                     v.sigmas);
    }
    assert_int_equal(spike_check(&skip, &h, 4.5, 1).cause, SPIKE_CAUSE_LOSS);
    for (int i = 0; i < SPIKE_WINDOW; i += 10)
        h.level[i].loss += 65536;
    assert_int_equal(spike_check(&skip, &h, 4.5, 1).cause, SPIKE_CAUSE_LOSS);
}

/* A norm that grows steadily, or a loss that begins to rise, is none; a jump out of it is. */
TEST(test_trends)
{
    static const double factor[] = {0.85, 0.99, 1, 1.002, 1.02, 1.1};
    for (size_t i = 0; i < sizeof factor / sizeof *factor; i++) {
        struct spike_history h = {.n = 0};
        double value = 5;
        for (int step = 0; step < 400; step++, value *= factor[i])
            if (spike_check(&skip, &h, 3, value).cause != SPIKE_CAUSE_NONE)
                fail_msg("factor %g: step %d", factor[i], step);
        double jump = factor[i] < 0.9 ? 1e7 : 2; /* far above the newer half, too */
        assert_int_equal(spike_check(&skip, &h, 3, jump * value).cause, SPIKE_CAUSE_NORM);
        for (int step = 0; step < 400; step++) /* and stays where it is */
            if (spike_check(&skip, &h, 3, value).cause != SPIKE_CAUSE_NONE)
                fail_msg("then level, factor %g: step %d", factor[i], step);
    }
}

TEST(test_limit)
{
    struct spike_history h = {.n = 0};
    feed(&skip, &h, SPIKE_WINDOW, 3, 1);
    for (int i = 1; i <= SPIKE_LIMIT; i++) {
        struct spike_verdict v = spike_check(&skip, &h, i == 2 ? NAN : 9, 1);
        assert_true(v.is_skipped);
        assert_int_equal(v.skipped_n, i);
        feed(&skip, &h, 5, 3, 1);
    }
    struct spike_history before = h;
    struct spike_verdict v = spike_check(&skip, &h, 9, 1);
    assert_int_equal(v.cause, SPIKE_CAUSE_LOSS);
    assert_false(v.is_skipped);
    assert_int_equal(v.skipped_n, SPIKE_LIMIT + 1);
    h = before;
    feed(&skip, &h, SPIKE_WINDOW - 6 * SPIKE_LIMIT, 3, 1); /* the first of them has left */
    assert_true(spike_check(&skip, &h, 9, 1).is_skipped);
    assert_int_equal(h.n, SPIKE_WINDOW);
}

/* What is skipped is no part of median and deviation, and not finite from the first step on. */
TEST(test_skipped_do_not_count)
{
    struct spike_history h = {.n = 0};
    assert_true(spike_check(&skip, &h, NAN, 1).is_skipped);
    feed(&skip, &h, SPIKE_WINDOW / 2 - 1, 3, 1);
    assert_int_equal(spike_check(&skip, &h, 9, 1).cause, SPIKE_CAUSE_NONE); /* 63 were applied */
    assert_int_equal(spike_check(&skip, &h, 99, 1).cause, SPIKE_CAUSE_LOSS);
}

TEST(test_write_and_parse)
{
    static char text[SPIKE_HISTORY_CHARS + 1], longer[3 * SPIKE_LEVEL_CHARS + sizeof text];
    struct spike_history h = {.n = 0}, back;
    spike_history_write(&h, text, sizeof text);
    assert_string_equal(text, "");
    assert_true(spike_history_parse(text, &back) && back.n == 0);
    feed(&skip, &h, SPIKE_WINDOW, 3, 0.2);
    assert_true(spike_check(&skip, &h, NAN, 1).is_skipped);
    feed(&skip, &h, 5, 3, 0.2);
    assert_int_equal(h.n, SPIKE_WINDOW);
    spike_history_write(&h, text, sizeof text);
    assert_true(spike_history_parse(text, &back));
    assert_memory_equal(&back, &h, sizeof h);
    /* an earlier version kept more steps */
    text_format(longer, sizeof longer, "%048d%s", 0, text);
    assert_true(spike_history_parse(longer, &back));
    assert_memory_equal(&back, &h, sizeof h);
}

TEST(test_parse_refuses)
{
    static const char *const bad[] = {"0",
                                      "000000000000000",
                                      "00000000000000000",
                                      "0000000g00000000",
                                      "0000000A00000000",
                                      "8000000000000000",
                                      "0000000080000000",
                                      "7fffffff00000000",
                                      "0000000080000001",
                                      "000000000800000",
                                      "0000000008000000",
                                      " 000000000000000"};
    struct spike_history back;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (spike_history_parse(bad[i], &back))
            fail_msg("%s was taken", bad[i]);
    assert_true(spike_history_parse("8000000080000000", &back));
    assert_true(spike_history_parse("07ffffff00000000", &back));
}

HARNESS_RUN_ALL()

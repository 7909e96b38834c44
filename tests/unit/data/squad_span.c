/* squad_span — the best spans equal those of a search over all pairs: inside the context,
 * not too long, with the least null score of the windows. */
#include "data/qa/squad.h"

#include <math.h>

#include "base/rand.h"
#include "harness.h"

enum { T = 90, WINDOWS = 3 };

static float logits[WINDOWS][T][2];

/* How many spans come before this one. */
static int rank_of(const struct squad_span *x, const int64_t *first, const int64_t *last)
{
    int before = 0;
    for (int64_t w = 0; w < WINDOWS; w++)
        for (int64_t s = first[w]; s <= last[w]; s++)
            for (int64_t e = s; e <= last[w] && e - s + 1 <= 30; e++) {
                double score = (double)logits[w][s][0] + logits[w][e][1];
                bool is_earlier = w != x->window  ? w < x->window
                                  : s != x->start ? s < x->start
                                                  : e < x->end;
                before += score > x->score || (score == x->score && is_earlier);
            }
    return before;
}

static void test_all_pairs(void **state)
{
    const int64_t first[WINDOWS] = {5, 40, 0}, last[WINDOWS] = {89, 62, -1};
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct squad_span_best best;
        bool is_coarse = seed % 2;
        for (uint64_t i = 0; i < WINDOWS * T; i++) {
            double s = rand_normal(seed, RAND_STREAM(TEST, 0), i),
                   e = rand_normal(seed, RAND_STREAM(TEST, 1), i);
            logits[i / T][i % T][0] = (float)(is_coarse ? round(s) : s); /* coarse: many equals */
            logits[i / T][i % T][1] = (float)(is_coarse ? round(e) : e);
        }
        squad_span_begin(&best);
        for (int w = 0; w < WINDOWS; w++)
            squad_span_window(&best, w, logits[w][0], first[w], last[w], w);
        assert_int_equal(best.n, SQUAD_SPAN_BEST);
        for (int i = 0; i < best.n; i++) {
            const struct squad_span *x = &best.span[i];
            assert_true(x->start >= first[x->window] && x->end <= last[x->window] &&
                        x->end >= x->start && x->end - x->start < SQUAD_SPAN_TOKENS_MAX);
            assert_true(x->score ==
                        (double)logits[x->window][x->start][0] + logits[x->window][x->end][1]);
            assert_int_equal(rank_of(x, first, last), i);
        }
        double null = INFINITY;
        for (int w = 0; w < WINDOWS; w++)
            null = fmin(null, (double)logits[w][w][0] + logits[w][w][1]);
        assert_true(best.null_score == null);
    }
}

static void test_length(void **state)
{
    struct squad_span_best best;
    for (int i = 0; i < T; i++)
        logits[0][i][0] = logits[0][i][1] = 0;
    logits[0][10][0] = 5;
    logits[0][40][1] = 9; /* 31 tokens: one too many */
    logits[0][39][1] = 3;
    squad_span_begin(&best);
    squad_span_window(&best, 7, logits[0][0], 0, T - 1, -1);
    assert_true(best.span[0].score == 9 && best.span[0].end == 40 && best.span[0].start > 10);
    logits[0][40][1] = 0;
    squad_span_begin(&best);
    squad_span_window(&best, 7, logits[0][0], 0, T - 1, -1);
    assert_int_equal(best.span[0].start, 10);
    assert_int_equal(best.span[0].end, 39);
    assert_int_equal(best.span[0].window, 7);
    assert_true(best.null_score == INFINITY);
    assert_false(squad_span_is_null(&best, 0));
}

static void test_null(void **state)
{
    struct squad_span_best best;
    float pair[6] = {2, 2, 1, 0, 0, 1};
    squad_span_begin(&best);
    assert_true(squad_span_is_null(&best, 0)); /* nothing was seen */
    squad_span_window(&best, 0, pair, 1, 2, 0);
    assert_int_equal(best.n, 3);
    assert_true(best.span[0].score == 2 && best.null_score == 4);
    assert_true(squad_span_is_null(&best, 1.9));
    assert_false(squad_span_is_null(&best, 2)); /* over by more than the margin */
    pair[0] = -3;
    squad_span_window(&best, 1, pair, 1, 2, 0);
    assert_true(best.null_score == -1);
    assert_false(squad_span_is_null(&best, 0));
}

static void test_few_and_not_finite(void **state)
{
    struct squad_span_best best;
    const float pair[6] = {NAN, 1, 1, 1, INFINITY, NAN}, none[6] = {NAN, NAN, NAN, NAN, NAN, NAN};
    squad_span_begin(&best);
    squad_span_window(&best, 0, pair, 0, 2, 0);
    assert_int_equal(best.n, 1);
    assert_int_equal(best.span[0].start, 1);
    assert_false(squad_span_is_null(&best, 0));
    squad_span_begin(&best);
    squad_span_window(&best, 0, none, 0, 2, 0);
    assert_true(squad_span_is_null(&best, 0));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_all_pairs),
    cmocka_unit_test(test_length),
    cmocka_unit_test(test_null),
    cmocka_unit_test(test_few_and_not_finite),
};
HARNESS_MAIN(tests)

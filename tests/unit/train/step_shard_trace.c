/* step_shard_trace — of which place the first entry is that differs. */
#include "harness.h"

#include "train/feature/step_shard_check.h"

#define N 3
#define RUN(i) ((uint64_t)(i) << 32)

/* Two ranks of a stage, then two of the next one: entries of the second come in between. */
static const struct sentinel_entry calm[][N] = {{{1, 10}, {2, 11}, {7, 12}},
                                                {{1, 20}, {2, 21}, {7, 22}},
                                                {{4, 30}, {5, 31}, {UINT64_MAX, 32}},
                                                {{4, 40}, {5, 41}, {UINT64_MAX, 42}}};
#define PLACES (int)(sizeof calm / sizeof *calm)

static void copy(struct sentinel_entry *out)
{
    for (int i = 0; i < PLACES * N; i++)
        out[i] = calm[i / N][i % N];
}

/* first_of — one entry of a place is wrong; spreads: and all later ones of all places. */
static int first_of(int place, int at, bool spreads)
{
    struct sentinel_entry other[PLACES * N];
    copy(other);
    const uint64_t order = calm[place][at].order;
    other[place * N + at].sum++;
    for (int i = 0; i < PLACES * N; i++)
        other[i].sum += spreads && other[i].order > order;
    return sentinel_first(calm[0], other, PLACES, N);
}

static void one_is_wrong(void **state)
{
    for (int place = 0; place < PLACES; place++)
        for (int at = 0; at < N; at++) {
            assert_int_equal(first_of(place, at, false), place);
            assert_int_equal(first_of(place, at, true), place);
        }
}

static void none_is_wrong(void **state)
{
    (void)state;
    struct sentinel_entry other[PLACES * N];
    copy(other);
    assert_int_equal(sentinel_first(calm[0], other, PLACES, N), -1);
}

static void several_are_wrong_at_once(void **state)
{
    (void)state;
    struct sentinel_entry other[PLACES * N];
    copy(other);
    other[1].sum++, other[N + 1].sum++;
    assert_int_equal(sentinel_first(calm[0], other, PLACES, N), -1);
    other[2 * N].sum++; /* which comes later */
    assert_int_equal(sentinel_first(calm[0], other, PLACES, N), -1);
    other[N].sum++; /* which comes before */
    assert_int_equal(sentinel_first(calm[0], other, PLACES, N), 1);
}

/* A trace that ends early, filled up with zeros. */
static void one_is_short(void **state)
{
    (void)state;
    struct sentinel_entry other[PLACES * N];
    copy(other);
    other[2 * N + 1] = other[2 * N + 2] = (struct sentinel_entry){0};
    assert_int_equal(sentinel_first(calm[0], other, PLACES, N), 2);
    assert_int_equal(sentinel_first(other, calm[0], PLACES, N), 2);
}

/* Sorted by order, whatever came first; numbers within a run of layers count from 0. */
static void sum_is_of_order(void **state)
{
    (void)state;
    struct sentinel_entry in_order[] = {{RUN(1), 5}, {RUN(1) + 1, 6}, {RUN(2), 7}},
                          between[] = {{RUN(2) + 1, 7}, {RUN(1), 5}, {RUN(1) + 2, 6}};
    struct step_shard_trace a = {.entry = in_order, .n = 3}, b = {.entry = between, .n = 3};
    assert_int_equal(step_shard_trace_sum(&a), step_shard_trace_sum(&b));
    assert_memory_equal(in_order, between, sizeof in_order);
    in_order[1].sum++;
    assert_int_not_equal(step_shard_trace_sum(&a), step_shard_trace_sum(&b));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_is_wrong), cmocka_unit_test(none_is_wrong),
    cmocka_unit_test(several_are_wrong_at_once), cmocka_unit_test(one_is_short),
    cmocka_unit_test(sum_is_of_order)};
HARNESS_MAIN(tests)

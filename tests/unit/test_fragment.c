/* test_fragment — every element of a table is in one fragment, at a place of its own; fragments are
 * nearly as large as each other; when they begin and land, against a list that is counted
 * through. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "train/fragment.h"

#define LAYERS 6

static void make_table(struct param_table *t)
{
    *t = (struct param_table){.layers = LAYERS};
    assert_int_equal(param_add(t, 0, PARAM_INIT_NORMAL, -1, "wte", 2, 211, 24), ST_OK);
    assert_int_equal(param_add(t, 0, PARAM_INIT_NORMAL, -1, "wpe", 2, 17, 24), ST_OK);
    for (int i = 0; i < LAYERS; i++) {
        char name[16] = "h.0.w";
        name[2] = (char)('0' + i);
        assert_int_equal(param_add(t, 1 + i, PARAM_INIT_NORMAL, -1, name, 2, 24, 31), ST_OK);
    }
    assert_int_equal(param_add(t, 1 + LAYERS, PARAM_INIT_ONE, -1, "ln_f", 1, 24, 1), ST_OK);
}

static void check_map(const struct param_table *t, int n)
{
    struct fragment_map map;
    int64_t all = 0, least = INT64_MAX, most = 0;
    assert_int_equal(fragment_init(t, n, &map), ST_OK);
    bool *seen[FRAGMENT_MAX];
    for (int i = 0; i < n; i++) {
        seen[i] = calloc((size_t)map.elems[i] + 1, sizeof(bool));
        all += map.elems[i];
        least = map.elems[i] < least ? map.elems[i] : least;
        most = map.elems[i] > most ? map.elems[i] : most;
    }
    assert_int_equal(all, t->total_elems);
    for (int64_t i = 0; i < t->total_elems; i++) {
        const struct fragment_range *r = fragment_at(&map, i);
        const int64_t at = r->at + i - r->first;
        assert_true(i >= r->first && i < r->first + r->elems && at < map.elems[r->fragment]);
        assert_false(seen[r->fragment][at]);
        seen[r->fragment][at] = true;
    }
    if (n == 1)
        assert_int_equal(map.ranges_n, 1);
    if (LAYERS % n == 0)
        assert_true(most - least <= 3 * 2 * PARAM_ALIGN);
    for (int i = 0; i < n; i++)
        free(seen[i]);
    fragment_free(&map);
    fragment_free(&map);
}

static void test_map(void **state)
{
    (void)state;
    struct param_table t;
    make_table(&t);
    for (int n = 1; n <= LAYERS; n++)
        check_map(&t, n);
    param_table_free(&t);
}

static void count_through(int64_t steps, int n, int64_t delay)
{
    const struct fragment_schedule s = {steps, n, delay};
    int flying = -1, next = 0;
    int64_t lands = -1;
    for (int64_t step = 1; step <= 3 * steps; step++) {
        assert_int_equal(fragment_flying(&s, step), flying);
        if (delay > 0)
            assert_int_equal(fragment_landing(&s, step), step == lands ? flying : -1);
        if (step == lands)
            flying = -1;
        assert_int_equal(fragment_begun(&s, step), step % (steps / n) == 0 ? next : -1);
        if (step % (steps / n) != 0)
            continue;
        flying = delay > 0 ? next : -1;
        lands = step + delay;
        next = (next + 1) % n;
    }
}

static void test_schedule(void **state)
{
    (void)state;
    count_through(1, 1, 0);
    count_through(10, 1, 0);
    count_through(10, 2, 3);
    count_through(10, 2, 5);
    count_through(12, 4, 1);
    count_through(3, 3, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_map),
    cmocka_unit_test(test_schedule),
};
HARNESS_MAIN(tests)

/* check_tournament: every pair of nodes meets exactly once, and no node is in two pairs of a
 * round. */
#include "harness.h"

#include <string.h>

#include "check/check_tournament.h"

static void meets_all(int nodes)
{
    const int rounds = check_tournament_rounds(nodes);
    assert_int_equal(rounds, nodes % 2 == 0 ? nodes - 1 : nodes);
    unsigned char *met = calloc((size_t)nodes, (size_t)nodes);
    assert_non_null(met);
    for (int r = 0; r < rounds; r++) {
        int resting = 0;
        for (int a = 0; a < nodes; a++) {
            const int b = check_tournament_peer(nodes, r, a);
            resting += b < 0;
            if (b < 0)
                continue;
            assert_true(b < nodes && b != a);
            assert_int_equal(check_tournament_peer(nodes, r, b), a);
            assert_int_equal(met[(size_t)a * (size_t)nodes + (size_t)b]++, 0);
        }
        assert_int_equal(resting, nodes % 2);
    }
    int64_t pairs = 0;
    for (size_t i = 0; i < (size_t)nodes * (size_t)nodes; i++)
        pairs += met[i];
    assert_int_equal(pairs, (int64_t)nodes * (nodes - 1));
    free(met);
}

static void every_pair_meets_once(void **state)
{
    (void)state;
    for (int nodes = 2; nodes <= 64; nodes++)
        meets_all(nodes);
    static const int large[] = {127, 128, 129, 1000, 1023, 2047, 4095, 4096};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        meets_all(large[i]);
}

static void one_node_has_no_rounds(void **state)
{
    (void)state;
    assert_int_equal(check_tournament_rounds(0), 0);
    assert_int_equal(check_tournament_rounds(1), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_pair_meets_once),
    cmocka_unit_test(one_node_has_no_rounds),
};
HARNESS_MAIN(tests)

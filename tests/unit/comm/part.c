/* part — parts of buffers: every small case, and large numbers. */
#include "harness.h"

#include "comm/core/part.h"

TEST(extents_cover)
{
    for (int parts = 1; parts <= 40; parts++)
        for (int64_t elems = 0; elems <= 700; elems++) {
            int64_t at = 0, least = INT64_MAX, most = 0;
            for (int i = 0; i < parts; i++) {
                struct part_extent e = part_extent(elems, parts, i);
                assert_int_equal(e.first, at);
                assert_true(e.elems >= 0);
                assert_true(i == parts - 1 || e.elems % PART_ALIGN == 0);
                at += e.elems;
                int64_t units = (e.elems + PART_ALIGN - 1) / PART_ALIGN;
                least = units < least ? units : least;
                most = units > most ? units : most;
            }
            assert_int_equal(at, elems);
            assert_true(most - least <= 1);
        }
}

TEST(extents_huge)
{
    int64_t elems = (INT64_MAX >> 16) - 3, at = 0;
    for (int i = 0; i < 4096; i++) {
        struct part_extent e = part_extent(elems, 4096, i);
        assert_int_equal(e.first, at);
        at += e.elems;
    }
    assert_int_equal(at, elems);
}

/* The rails together hold every element once. A rail packs the parts that part_extent gives, one
 * behind the other, each at an aligned offset. */
TEST(rails_cover)
{
    static const int64_t sizes[] = {0, 1, 17, 96, 1000, 20001};
    struct part_extent rail[5];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int nodes = 1; nodes <= 5; nodes++)
            for (int locals = 1; locals <= 3; locals++) {
                int64_t all = 0;
                for (int local = 0; local < locals; local++) {
                    int64_t elems = part_rail(sizes[i], nodes, locals, local, rail), at = 0;
                    for (int v = 0; v < nodes; v++) {
                        assert_int_equal(
                            rail[v].elems,
                            part_extent(sizes[i], nodes * locals, v * locals + local).elems);
                        assert_int_equal(rail[v].first, at);
                        assert_true(rail[v].elems == 0 || at % PART_ALIGN == 0);
                        at += rail[v].elems;
                    }
                    assert_int_equal(elems, at);
                    all += elems;
                }
                assert_int_equal(all, sizes[i]);
            }
}

HARNESS_RUN_ALL()

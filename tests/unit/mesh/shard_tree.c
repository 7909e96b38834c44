/* shard_tree — the order in which virtual shards are added: for every number of ranks the same
 * tree. A sum is simulated as the text of its additions. */
#include "harness.h"

#include "base/rand.h"
#include "mesh/store/shard_tree.h"

#define SHARDS_MAX 48
#define SLOTS_MAX 16
#define CONTEXTS_MAX 5

/* The tree as shard_tree.h describes it, as a number that depends on each addition. */
static uint64_t leaf(int shard) { return 0x9E3779B97F4A7C15u * (uint64_t)(shard + 1); }
static uint64_t sum(uint64_t a, uint64_t b) { return (a * 31 + b) * 0xBF58476D1CE4E5B9u + 1; }

static uint64_t truth_from(int from, int first, int n)
{
    int left = n - n / 2;
    return n == 1 ? leaf(from + first)
                  : sum(truth_from(from, first, left), truth_from(from, first + left, n - left));
}

/* A rank adds up its shards, of which shard 0 is called `from`; its partials come out. Returns how
 * many. */
static int partials_of(const int *begin, int ranks, int rank, int from, uint64_t *out)
{
    struct shard_tree t;
    uint64_t slot[SLOTS_MAX] = {0};
    shard_tree_init(begin, ranks, rank, &t);
    assert_int_equal(t.shards_n, begin[rank + 1] - begin[rank]);
    assert_int_equal(t.slots_n, shard_tree_slots(begin, ranks, rank));
    assert_true(t.slots_n <= SLOTS_MAX && t.partials_n <= t.slots_n);
    for (int i = 0; i < t.shards_n; i++) {
        assert_in_range(t.shard_slot[i], 0, t.slots_n - 1);
        slot[t.shard_slot[i]] = leaf(from + begin[rank] + i);
        for (int k = t.add_first[i]; k < t.add_first[i + 1]; k++) {
            assert_in_range(t.add[k].from, 1, t.slots_n - 1);
            slot[t.add[k].to] = sum(slot[t.add[k].to], slot[t.add[k].from]);
        }
    }
    assert_int_equal(t.add_first[t.shards_n], t.adds_n);
    int n = t.partials_n;
    memcpy(out, slot, (size_t)n * sizeof *slot);
    shard_tree_free(&t);
    shard_tree_free(&t);
    return n;
}

static void check(const int *begin, int ranks)
{
    uint64_t partial[2 * SHARDS_MAX];
    int count[SHARDS_MAX], all = 0, n = shard_tree_partials(begin, ranks, count);
    struct sum_tree_step join[SHARDS_MAX];
    for (int rank = 0; rank < ranks; rank++) {
        int mine = partials_of(begin, ranks, rank, 0, partial + all);
        assert_int_equal(mine, count[rank]);
        all += mine;
    }
    assert_int_equal(all, n);
    shard_tree_join(begin, ranks, 1, join);
    for (int i = 0; i < n - 1; i++)
        partial[join[i].to] = sum(partial[join[i].to], partial[join[i].from]);
    if (partial[0] != truth_from(0, 0, begin[ranks]))
        fail_msg("%d shards on %d ranks are added in another order", begin[ranks], ranks);
}

TEST(same_tree_on_any_ranks)
{
    int begin[SHARDS_MAX + 1];
    for (int shards = 1; shards <= SHARDS_MAX; shards++)
        for (int ranks = 1; ranks <= shards; ranks++) {
            shard_tree_deal(shards, ranks, begin);
            check(begin, ranks);
        }
}

/* Runs of any length, at least one shard each. */
TEST(same_tree_of_any_deal)
{
    int begin[SHARDS_MAX + 1] = {0};
    for (uint64_t seed = 0; seed < 2000; seed++) {
        int shards = 1 + (int)rand_below(seed, RAND_STREAM(TEST, 0), 0, SHARDS_MAX), ranks = 0;
        for (int at = 0; at < shards; begin[++ranks] = at)
            at += 1 + (int)rand_below(seed, RAND_STREAM(TEST, 1), (uint64_t)ranks,
                                      (uint64_t)(shards - at));
        check(begin, ranks);
    }
}

static int partials(int shards, int ranks)
{
    int begin[SHARDS_MAX + 1];
    shard_tree_deal(shards, ranks, begin);
    return shard_tree_partials(begin, ranks, NULL);
}

/* Powers of two have one partial each, and few slots. */
TEST(powers_of_two)
{
    int begin[SHARDS_MAX + 1];
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        assert_int_equal(partials(48, ranks), ranks);
        shard_tree_deal(16, ranks, begin);
        assert_int_equal(1 << (shard_tree_slots(begin, ranks, ranks - 1) - 1), 16 / ranks);
    }
    assert_int_equal(partials(12, 3), 7);
}

/* Every context has shards of its own: the tree of context c begins at shard c · SHARDS_MAX. */
static uint64_t truth_contexts(int shards, int first, int n)
{
    int left = n - n / 2;
    return n == 1 ? truth_from(first * SHARDS_MAX, 0, shards)
                  : sum(truth_contexts(shards, first, left),
                        truth_contexts(shards, first + left, n - left));
}

TEST(same_tree_with_contexts)
{
    for (int contexts = 1; contexts <= CONTEXTS_MAX; contexts++)
        for (int shards = 1; shards <= 13; shards++)
            for (int groups = 1; groups <= shards; groups++) {
                int begin[SHARDS_MAX + 1], all = 0;
                uint64_t partial[CONTEXTS_MAX * 2 * SHARDS_MAX];
                struct sum_tree_step join[CONTEXTS_MAX * 2 * SHARDS_MAX];
                shard_tree_deal(shards, groups, begin);
                for (int group = 0; group < groups; group++)
                    for (int context = 0; context < contexts; context++)
                        all +=
                            partials_of(begin, groups, group, context * SHARDS_MAX, partial + all);
                assert_int_equal(all, contexts * shard_tree_partials(begin, groups, NULL));
                shard_tree_join(begin, groups, contexts, join);
                for (int i = 0; i < all - 1; i++)
                    partial[join[i].to] = sum(partial[join[i].to], partial[join[i].from]);
                if (partial[0] != truth_contexts(shards, 0, contexts))
                    fail_msg("%d shards on %d x %d ranks are added in another order", shards,
                             groups, contexts);
            }
}

static bool follows_contexts(int shards, int contexts, int nodes, int locals)
{
    int begin[SHARDS_MAX + 1];
    shard_tree_deal(shards, nodes * locals / contexts, begin);
    return shard_tree_is_of_ranks(begin, contexts, nodes, locals);
}

static bool follows(int shards, int nodes, int locals)
{
    return follows_contexts(shards, 1, nodes, locals);
}

/* Where the comm's own sums are the tree's. */
TEST(sums_of_the_comm)
{
    assert_true(follows(1, 1, 1) && follows(8, 2, 2) && follows(8, 1, 4) && follows(48, 8, 2));
    assert_true(follows(3, 3, 1) && follows(3, 1, 3) && follows(6, 2, 3));
    assert_false(follows(12, 3, 1));  /* several partials of a rank */
    assert_false(follows(6, 6, 1));   /* 4 and 2, not 3 and 3 */
    assert_false(follows(6, 3, 2));   /* pairs first */
    assert_false(follows(12, 1, 12)); /* 8 and 4, not 6 and 6 */
    assert_false(follows(8, 3, 1));   /* unequal runs */
    assert_true(follows_contexts(8, 4, 1, 4) && follows_contexts(8, 4, 2, 2));
    assert_true(follows_contexts(8, 3, 3, 1));
    assert_false(follows_contexts(8, 2, 1, 4)); /* pairs of contexts first */
    assert_false(follows_contexts(8, 5, 1, 5)); /* 4 and 1, not 3 and 2 */
}

HARNESS_RUN_ALL()

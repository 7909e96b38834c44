/* shard_tree — see shard_tree.h. */
#include "mesh/shard_tree.h"

#include <stdlib.h>

#include "base/assert.h"

/* Neighbouring shards [first, first + n): a node of the tree. */
struct node {
    int first, n;
};

static struct node left_of(struct node v) { return (struct node){v.first, (v.n + 1) / 2}; }
static struct node right_of(struct node v)
{
    int left = (v.n + 1) / 2;
    return (struct node){v.first + left, v.n - left};
}

/* ---- the shards of one rank ---- */

static int last_shard(const struct shard_tree *t, int run_first, struct node v)
{
    int last = v.first + v.n - 1 - run_first;
    ASSERTF(last >= 0 && last < t->shards_n, "shard %d of %d", last, t->shards_n);
    return last;
}

/* Steps are noted in the order of shards, so those behind a shard lie together. */
static void add_up(struct shard_tree *t, int run_first, struct node v, int slot)
{
    t->slots_n = slot + 1 > t->slots_n ? slot + 1 : t->slots_n;
    if (v.n == 1) {
        t->shard_slot[v.first - run_first] = slot;
        return;
    }
    add_up(t, run_first, left_of(v), slot);
    add_up(t, run_first, right_of(v), slot + 1);
    t->add[t->adds_n++] = (struct sum_tree_step){.to = slot, .from = slot + 1};
    t->add_first[last_shard(t, run_first, v) + 1] = t->adds_n;
}

/* The pieces of the run, from left to right. */
static void find_pieces(struct shard_tree *t, struct node run, struct node v)
{
    int end = v.first + v.n, run_end = run.first + run.n;
    if (end <= run.first || v.first >= run_end)
        return;
    if (v.first >= run.first && end <= run_end) {
        add_up(t, run.first, v, t->pieces_n++);
        return;
    }
    find_pieces(t, run, left_of(v));
    find_pieces(t, run, right_of(v));
}

enum status shard_tree_init(int shards, int ranks, int rank, struct shard_tree *out)
{
    ASSERTF(ranks >= 1 && shards >= ranks && shards % ranks == 0, "%d shards %d ranks", shards,
            ranks);
    const struct node run = {rank * (shards / ranks), shards / ranks};
    struct shard_tree t = {.shards_n = run.n};
    t.shard_slot = calloc((size_t)run.n, sizeof *t.shard_slot);
    t.add_first = calloc((size_t)run.n + 1, sizeof *t.add_first);
    t.add = calloc((size_t)run.n, sizeof *t.add);
    if (!t.shard_slot || !t.add_first || !t.add) {
        shard_tree_free(&t);
        return FAIL(ST_RETRY, "out of memory: the order of %d virtual shards", run.n);
    }
    find_pieces(&t, run, (struct node){0, shards});
    for (int i = 1; i <= run.n; i++) /* shards that no step follows */
        if (t.add_first[i] < t.add_first[i - 1])
            t.add_first[i] = t.add_first[i - 1];
    *out = t;
    return ST_OK;
}

void shard_tree_free(struct shard_tree *t)
{
    free(t->shard_slot);
    free(t->add_first);
    free(t->add);
    *t = (struct shard_tree){0};
}

/* ---- the pieces of all ranks ---- */

/* each: shards of a rank. */
static bool is_piece(struct node v, int each)
{
    return v.first / each == (v.first + v.n - 1) / each;
}

static int count_pieces(struct node v, int each, int *count)
{
    if (!is_piece(v, each))
        return count_pieces(left_of(v), each, count) + count_pieces(right_of(v), each, count);
    if (count)
        count[v.first / each]++;
    return 1;
}

int shard_tree_pieces(int shards, int ranks, int *count)
{
    for (int rank = 0; count && rank < ranks; rank++)
        count[rank] = 0;
    return count_pieces((struct node){0, shards}, shards / ranks, count);
}

/* Returns the piece in which a node's sum ends. */
static int join(struct node v, int each, int *pieces_n, struct sum_tree_step **at)
{
    if (is_piece(v, each))
        return (*pieces_n)++;
    int to = join(left_of(v), each, pieces_n, at), from = join(right_of(v), each, pieces_n, at);
    *(*at)++ = (struct sum_tree_step){.to = to, .from = from};
    return to;
}

void shard_tree_join(int shards, int ranks, struct sum_tree_step *out)
{
    int pieces_n = 0;
    (void)join((struct node){0, shards}, shards / ranks, &pieces_n, &out);
}

/* is_same — whether two trees of n - 1 steps each are one. The order of steps may differ; the steps
 * are the tree, for each adds to the leftmost of its neighbours. */
static bool is_same(const struct sum_tree_step *a, const struct sum_tree_step *b, int n)
{
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < n && (a[i].to != b[k].to || a[i].from != b[k].from))
            k++;
        if (k == n)
            return false;
    }
    return true;
}

enum status shard_tree_is_of_ranks(int shards, int nodes, int locals, bool *out)
{
    int ranks = nodes * locals;
    *out = shard_tree_pieces(shards, ranks, NULL) == ranks;
    if (!*out)
        return ST_OK;
    struct sum_tree_step *steps = calloc(2 * (size_t)ranks, sizeof *steps);
    if (!steps)
        return FAIL(ST_RETRY, "out of memory: the order of %d ranks", ranks);
    shard_tree_join(shards, ranks, steps);
    sum_tree_plan_nodes(nodes, locals, steps + ranks);
    *out = is_same(steps, steps + ranks, ranks - 1);
    free(steps);
    return ST_OK;
}

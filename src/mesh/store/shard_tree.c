/* shard_tree — see shard_tree.h. */
#include "mesh/store/shard_tree.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"

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

/* Steps are stored in the order of shards, so the steps after one shard lie together. */
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
    const int last = v.first + v.n - 1 - run_first;
    ASSERTF(last >= 0 && last < t->shards_n, "shard %d of %d", last, t->shards_n);
    t->add_first[last + 1] = t->adds_n;
}

/* Finds the partials of the run, from left to right. */
static void find_partials(struct shard_tree *t, struct node run, struct node v)
{
    int end = v.first + v.n, run_end = run.first + run.n;
    if (end <= run.first || v.first >= run_end)
        return;
    if (v.first >= run.first && end <= run_end) {
        add_up(t, run.first, v, t->partials_n++);
        return;
    }
    find_partials(t, run, left_of(v));
    find_partials(t, run, right_of(v));
}

void shard_tree_deal(int shards, int ranks, int *begin)
{
    for (int rank = 0; rank <= ranks; rank++)
        begin[rank] = (int)((int64_t)shards * rank / ranks);
}

static struct node run_of(const int *begin, int rank)
{
    ASSERTF(begin[rank + 1] > begin[rank], "rank %d has no shard", rank);
    return (struct node){begin[rank], begin[rank + 1] - begin[rank]};
}

void shard_tree_init(const int *begin, int ranks, int rank, struct shard_tree *out)
{
    const struct node run = run_of(begin, rank);
    struct shard_tree t = {.shards_n = run.n};
    t.shard_slot = memory_new((size_t)run.n, sizeof *t.shard_slot);
    t.add_first = memory_new((size_t)run.n + 1, sizeof *t.add_first);
    t.add = memory_new((size_t)run.n, sizeof *t.add);
    find_partials(&t, run, (struct node){0, begin[ranks]});
    for (int i = 1; i <= run.n; i++) /* shards that no step follows */
        if (t.add_first[i] < t.add_first[i - 1])
            t.add_first[i] = t.add_first[i - 1];
    *out = t;
}

void shard_tree_free(struct shard_tree *t)
{
    free(t->shard_slot);
    free(t->add_first);
    free(t->add);
    *t = (struct shard_tree){0};
}

/* ---- the partials of all ranks ---- */

/* The runs of all ranks, and how far a walk through the tree has come. */
struct walk {
    const int *begin;
    int ranks, partials_n;
    int *count;               /* partials of each rank, or NULL */
    struct sum_tree_step *at; /* where the next step is added, or NULL */
};

/* join_node — returns the partial in which a node's sum ends. */
static int join_node(struct walk *w, struct node v)
{
    int rank = 0, high = w->ranks - 1;
    while (rank < high) {
        int middle = (rank + high + 1) / 2;
        if (w->begin[middle] <= v.first)
            rank = middle;
        else
            high = middle - 1;
    }
    if (v.first + v.n <= w->begin[rank + 1]) {
        if (w->count)
            w->count[rank]++;
        return w->partials_n++;
    }
    int to = join_node(w, left_of(v)), from = join_node(w, right_of(v));
    if (w->at)
        *w->at++ = (struct sum_tree_step){.to = to, .from = from};
    return to;
}

int shard_tree_partials(const int *begin, int ranks, int *count)
{
    struct walk w = {.begin = begin, .ranks = ranks, .count = count};
    for (int rank = 0; count && rank < ranks; rank++)
        count[rank] = 0;
    (void)join_node(&w, (struct node){0, begin[ranks]});
    return w.partials_n;
}

/* The number of each partial of context 0, by its number without contexts. at: its number among the
 * partials of all ranks; each: the distance to the same partial of the next context. */
struct numbers {
    int *at, *each;
};

/* renumber_steps — lists the steps of one context, from n steps `own` by numbers of its own
 * partials. */
static void renumber_steps(struct numbers number, int context, const struct sum_tree_step *own,
                           int n, struct sum_tree_step *out)
{
    for (int i = 0; i < n; i++) {
        int to = own[i].to, from = own[i].from;
        out[i] = (struct sum_tree_step){.to = number.at[to] + context * number.each[to],
                                        .from = number.at[from] + context * number.each[from]};
    }
}

/* join_contexts — lists the steps that add the sums of neighbouring contexts. Each sum lies in the
 * context's first partial; these are `each` apart. Returns the end of the steps. */
static struct sum_tree_step *join_contexts(struct node v, int each, struct sum_tree_step *out)
{
    if (v.n == 1)
        return out;
    out = join_contexts(left_of(v), each, out);
    out = join_contexts(right_of(v), each, out);
    *out = (struct sum_tree_step){.to = v.first * each, .from = right_of(v).first * each};
    return out + 1;
}

void shard_tree_join(const int *begin, int ranks, int contexts, struct sum_tree_step *out)
{
    const int partials = shard_tree_partials(begin, ranks, NULL), n = partials - 1;
    int *count = memory_new((size_t)ranks + 2 * (size_t)partials, sizeof *count);
    const struct numbers number = {.at = count + ranks, .each = count + ranks + partials};
    (void)shard_tree_partials(begin, ranks, count);
    for (int rank = 0, i = 0, all = 0; rank < ranks; all += contexts * count[rank++])
        for (int partial = 0; partial < count[rank]; partial++, i++) {
            number.at[i] = all + partial;
            number.each[i] = count[rank];
        }
    /* Lists the steps of one context, by numbers of its own partials. */
    struct walk w = {.begin = begin, .ranks = ranks, .at = out};
    (void)join_node(&w, (struct node){0, begin[ranks]});
    /* `out` begins with the steps of context 0 */
    for (int context = contexts - 1; context >= 0; context--)
        renumber_steps(number, context, out, n, out + context * n);
    (void)join_contexts((struct node){0, contexts}, number.each[0], out + contexts * n);
    free(count);
}

/* count_slots — returns the slots in which a node is added up: the first half's sum waits for the
 * second's. */
static int count_slots(struct node v)
{
    int left = v.n == 1 ? 1 : count_slots(left_of(v)),
        right = v.n == 1 ? 0 : 1 + count_slots(right_of(v));
    return left > right ? left : right;
}

/* slots_of — returns the slots that the partials of a run in this node need. *partials_n: partials
 * of the run before this node. */
static int slots_of(struct node run, struct node v, int *partials_n)
{
    int end = v.first + v.n, run_end = run.first + run.n;
    if (end <= run.first || v.first >= run_end)
        return 0;
    if (v.first >= run.first && end <= run_end)
        return (*partials_n)++ + count_slots(v);
    int left = slots_of(run, left_of(v), partials_n),
        right = slots_of(run, right_of(v), partials_n);
    return left > right ? left : right;
}

int shard_tree_slots(const int *begin, int ranks, int rank)
{
    int partials_n = 0;
    return slots_of(run_of(begin, rank), (struct node){0, begin[ranks]}, &partials_n);
}

/* is_same — returns true if two trees of n - 1 steps each are the same. The order of steps may
 * differ: the steps define the tree, because each adds to the leftmost of its neighbours. */
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

bool shard_tree_is_of_ranks(const int *begin, int contexts, int nodes, int locals)
{
    const int all = nodes * locals, ranks = all / contexts;
    ASSERTF(all % contexts == 0, "%d ranks in groups of %d", all, contexts);
    if (shard_tree_partials(begin, ranks, NULL) != ranks)
        return false;
    struct sum_tree_step *steps = memory_new(2 * (size_t)all, sizeof *steps);
    shard_tree_join(begin, ranks, contexts, steps);
    sum_tree_plan_nodes(nodes, locals, steps + all);
    bool is_of_ranks = is_same(steps, steps + all, all - 1);
    free(steps);
    return is_of_ranks;
}

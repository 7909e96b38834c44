/* test_peer_copy_history — random histories of a job with copies in peers' memory: in each
 * generation a rank ends somewhere in a step; then nodes lose their memory, one or several at a
 * time, a rank's and its keeper's among them; nodes leave and return. Each history ends with the
 * bits of a calm run. While no slice is lost together with its copy, every generation goes on from
 * the last finished step or the one before. In a quarter of them two ranks of a node share matrices
 * (TP).
 *
 *   test_peer_copy_history [FIRST_SEED COUNT]   the same seed is the same history */
#include "mesh/copies.h"

#define STEPS 14
#define GENERATIONS_MAX 6
#define NODES_MAX 4
#define TENSOR_MAX 2

/* What the memories must still have: the state after `step`, of a world of these nodes. */
struct kept {
    bool is_any;
    int64_t step;
    int node[NODES_MAX], nodes; /* of that world */
    bool is_lost[NODES_MAX];    /* by node of the largest world: its memory, since then */
};

struct history {
    uint64_t seed;
    int nodes_max, locals;
    int node[NODES_MAX], nodes; /* of the present world, in order; node 0 is in every one */
    struct job like;
    struct kept kept;
    uint64_t draws;
};

static int draw(struct history *h, int n)
{
    return (int)(rand_u64(h->seed, 77, h->draws++) % (uint64_t)n);
}

static const char *describe(const struct history *h, char out[128])
{
    text_format(out, 128, "seed %llu, %d nodes of at most %d, %d ranks each",
                (unsigned long long)h->seed, h->nodes, h->nodes_max, h->locals);
    return out;
}

/* ---- what must be found ---- */

/* is_whole — no slice is gone with its copy. */
static bool is_whole(const struct kept *k)
{
    for (int node = 0; node < k->nodes && k->is_any; node++) {
        const int keeper = copies_keeper(node, k->nodes);
        if (k->is_lost[k->node[node]] && (keeper < 0 || k->is_lost[k->node[keeper]]))
            return false;
    }
    return k->is_any;
}

/* note — after a generation that began at `from` (-1: nothing was found) and ended `steps` later.
 * Until the first step after a change of their number is finished, a second loss may take what
 * there is: that is said in docs/multi-node.md. */
static void note(struct history *h, int64_t from, int steps)
{
    struct kept *k = &h->kept;
    if (steps == 0 && (from < 0 || !k->is_any || k->nodes != h->nodes)) {
        k->is_any = false;
        return;
    }
    *k = (struct kept){.is_any = true, .step = (from > 0 ? from : 0) + (steps > 0 ? steps - 1 : 0)};
    k->nodes = h->nodes;
    memcpy(k->node, h->node, sizeof k->node);
}

/* ---- losses ---- */

static void lose_memory(struct history *h, int node)
{
    copies_lose_node(node, h->locals);
    h->kept.is_lost[node] = true;
}

static bool is_present(const struct history *h, int node)
{
    for (int i = 0; i < h->nodes; i++)
        if (h->node[i] == node)
            return true;
    return false;
}

static void set_present(struct history *h, int node, bool is_in)
{
    bool in[NODES_MAX];
    for (int i = 0; i < h->nodes_max; i++)
        in[i] = i == node ? is_in : is_present(h, i);
    h->nodes = 0;
    for (int i = 0; i < h->nodes_max; i++)
        if (in[i])
            h->node[h->nodes++] = i;
}

/* lose — what happens between two generations. */
static void lose(struct history *h)
{
    const int node = h->node[draw(h, h->nodes)], other = draw(h, h->nodes_max);
    switch (draw(h, 6)) {
    case 0: /* only the worker that has ended */
        break;
    case 1: /* a node, which is back at once */
        lose_memory(h, node);
        break;
    case 2: /* a node, with the one that keeps its copies or another one */
        lose_memory(h, node);
        lose_memory(h, other);
        break;
    default: /* a node leaves, or returns */
        if (other == 0)
            break;
        lose_memory(h, other);
        set_present(h, other, !is_present(h, other));
        break;
    }
}

/* ---- generations ---- */

static void run_world(struct history *h, const struct job *job)
{
    memcpy(copies_node, h->node, sizeof h->node);
    copies_run(job, h->nodes, h->locals);
}

/* check_found — all ranks agree, and nothing is lost that need not be. */
static int64_t check_found(const struct history *h, bool must_find, const struct kept *kept)
{
    char text[128];
    const int64_t found = copies_job[0].found_step;
    for (int rank = 1; rank < h->nodes * h->locals; rank++)
        if (copies_job[rank].found_step != found)
            fail_msg("%s: rank %d goes on from step %lld, rank 0 from %lld", describe(h, text),
                     rank, (long long)copies_job[rank].found_step, (long long)found);
    if (must_find && (found < kept->step || found > kept->step + 1))
        fail_msg("%s: goes on from step %lld, not from %lld or the next one", describe(h, text),
                 (long long)found, (long long)kept->step);
    return found;
}

/* finish — all nodes, to the end. */
static void finish(struct history *h, const struct trial *calm)
{
    char text[128];
    const struct kept before = h->kept;
    for (int node = 0; node < h->nodes_max; node++)
        if (!is_present(h, node))
            set_present(h, node, true);
    run_world(h, &h->like);
    copies_ended_well(h->nodes * h->locals, describe(h, text));
    (void)check_found(h, is_whole(&before), &before);
    for (int array = 0; array < TRIAL_ARRAYS; array++)
        if (memcmp(copies_job[0].trial.state[array], calm->state[array],
                   (size_t)calm->elems * sizeof(float)))
            fail_msg("%s: array %d differs from a calm run's", describe(h, text), array);
    trial_free(&copies_job[0].trial);
}

static struct job like(enum layout_shard shard, int tensor)
{
    struct job job = copies_job_of(shard);
    job.trial.config.shards = 12;
    job.trial.config.axis_ranks[MESH_AXIS_TENSOR] = tensor;
    job.trial.config.seq_tokens = 16;
    job.trial.config.dims.context = 19;
    job.last_step = STEPS;
    return job;
}

/* Calm runs, by the number of tensor ranks, and by shard. */
struct calm {
    struct trial of[TENSOR_MAX + 1][LAYOUT_SHARD_FULL + 1];
};

static void run_history(uint64_t seed, const struct calm *calm)
{
    struct history h = {.seed = seed};
    const int tensor = seed % 4 == 3 ? 2 : 1;
    const int drawn = draw(&h, 2 * (LAYOUT_SHARD_FULL + 1)), /* half of them without shards */
        shard = drawn <= LAYOUT_SHARD_FULL ? drawn : LAYOUT_SHARD_NONE;
    h.nodes_max = 2 + draw(&h, NODES_MAX - 1);
    h.locals = h.nodes_max <= 2 ? 1 + draw(&h, 2) : 1;
    h.locals = tensor > 1 ? tensor : h.locals;
    h.like = like((enum layout_shard)shard, tensor);
    h.like.ranks_min = h.locals;
    for (int node = 0; node < h.nodes_max; node++)
        set_present(&h, node, true);
    copies_begin(h.nodes_max * h.locals);
    for (int left = 1 + draw(&h, GENERATIONS_MAX); left > 0; left--) {
        static const int units[] = {4, 3, 1, 0};
        struct job job = h.like;
        const bool must_find = is_whole(&h.kept);
        const struct kept before = h.kept;
        job.leave_after = draw(&h, 3);
        job.leave_unit = units[draw(&h, 4)];
        job.leave_rank = draw(&h, h.nodes * h.locals);
        run_world(&h, &job);
        const int64_t found = check_found(&h, must_find, &before);
        note(&h, found, job.leave_after);
        lose(&h);
    }
    finish(&h, &calm->of[tensor][shard]);
    copies_end(h.nodes_max * h.locals);
}

static int first_seed = 1, seeds_n = 16;

TEST(test_histories)
{
    static struct calm calm;
    for (int tensor = 1; tensor <= TENSOR_MAX; tensor++)
        for (int shard = 0; shard <= LAYOUT_SHARD_FULL; shard++) {
            const struct job job = like((enum layout_shard)shard, tensor);
            calm.of[tensor][shard] = copies_calm(&job, 1, tensor);
        }
    for (int i = 0; i < seeds_n; i++)
        run_history((uint64_t)(first_seed + i), &calm);
    for (int tensor = 1; tensor <= TENSOR_MAX; tensor++)
        for (int shard = 0; shard <= LAYOUT_SHARD_FULL; shard++)
            trial_free(&calm.of[tensor][shard]);
    print_message("# %d histories\n", seeds_n);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        first_seed = atoi(argv[1]);
        seeds_n = atoi(argv[2]);
    }
    harness_quiet();
    return harness_run_all(__FILE__, NULL, NULL);
}

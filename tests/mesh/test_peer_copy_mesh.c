/* test_peer_copy_mesh — copies in peers' memory of ranks that hold different shards of the model
 * (TP, PP) or of samples (CP): a rank ends in the middle of a step, and a node loses its memory.
 * All go on from copies to the bits of a run that was never disturbed. */
#define RANKS_MAX 12
#include "mesh/copies.h"

struct shape {
    const char *name;
    int tensor, context, stages, chunks;
    int nodes, locals;
    bool is_sent_whole; /* with SHARD=none slices go to ranks of other shards */
};

/* Slices go beside the backward pass, to a rank of the same shard (4 x 1), of another tensor rank
 * (2 x 1); or after the passes, to other stages, in pairs, rings (3 x 1) and longer cycles. With
 * five ranks of each stage on three nodes a slice goes to the rank of its stage that is two
 * further. */
static const struct shape shapes[] = {
    {"TP=2", 2, 1, 1, 1, 2, 2, false},
    {"TP=2", 2, 1, 1, 1, 4, 1, false},
    {"TP=2", 2, 1, 1, 1, 2, 1, true},
    {"PP=2", 1, 1, 2, 1, 2, 2, true},
    {"PP=2", 1, 1, 2, 1, 4, 1, false},
    {"PP=2", 1, 1, 2, 1, 2, 1, true},
    {"PP=3", 1, 1, 3, 1, 3, 1, true},
    {"PP=2, two chunks", 1, 1, 2, 2, 2, 1, true},
    {"PP=2, two chunks", 1, 1, 2, 2, 4, 1, false},
    {"PP=2, unlike nodes", 1, 1, 2, 1, 5, 2, false},
    {"PP=2, three nodes", 1, 1, 2, 1, 3, 2, true},
    {"TP=2 PP=2", 2, 1, 2, 1, 2, 2, true},
    {"TP=2 PP=2", 2, 1, 2, 1, 4, 1, true},
    {"CP=2", 1, 2, 1, 1, 2, 2, false},
    {"CP=2", 1, 2, 1, 1, 4, 1, false},
    {"CP=2 TP=2", 2, 2, 1, 1, 2, 2, false},
    {"CP=2 PP=2", 1, 2, 2, 1, 4, 1, false},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

static struct job job_of(const struct shape *shape, enum layout_shard shard)
{
    struct job job = copies_job_of(shard);
    struct step_config *c = &job.trial.config;
    c->dims.layers = 4;
    c->dims.heads = 4;
    c->seq_tokens = 16;
    c->dims.context = 19;
    c->axis_ranks[MESH_AXIS_TENSOR] = shape->tensor;
    c->axis_ranks[MESH_AXIS_CONTEXT] = shape->context;
    c->axis_ranks[MESH_AXIS_PIPELINE] = shape->stages;
    c->pipe_chunks = shape->chunks;
    if (shape->nodes == 5)
        c->global_samples = 20;
    c->sentinel_every = 1;
    return job;
}

static const char *text_of(const struct shape *shape, const struct job *job, int unit, int lost,
                           char out[128])
{
    text_format(out, 128, "%s, %d x %d, shard %d, unit %d, node %d lost", shape->name, shape->nodes,
                shape->locals, (int)job->trial.config.store.shard, unit, lost);
    return out;
}

/* leaver — the rank that ends: of the node that is lost; lost -1: the last one. */
static int leaver(const struct shape *shape, int lost)
{
    return lost >= 0 ? lost * shape->locals : shape->nodes * shape->locals - 1;
}

/* heal — a rank ends at a unit of step 3. */
static void heal(const struct shape *shape, const struct job *like, int unit, int lost,
                 const struct trial *calm)
{
    char what[128];
    struct trial want = *calm;
    const bool is_none = like->trial.config.store.shard == LAYOUT_SHARD_NONE;
    text_of(shape, like, unit, lost, what);
    for (int array = 0; array < TRIAL_ARRAYS; array++) { /* copies_finish frees it */
        want.state[array] = calloc((size_t)calm->elems, sizeof(float));
        memcpy(want.state[array], calm->state[array], (size_t)calm->elems * sizeof(float));
    }
    copies_begin(shape->nodes * shape->locals);
    copies_lose(like, shape->nodes, shape->locals, 3, unit, leaver(shape, lost), lost >= 0);
    copies_finish(like, shape->nodes, shape->locals, 3, &want, what);
    if (copies_job[0].travels != (!is_none || shape->is_sent_whole))
        fail_msg("%s: slices %s", what, copies_job[0].travels ? "travel" : "do not travel");
    copies_end(shape->nodes * shape->locals);
}

/* Before the copy begins, in it, at its end, and when it is under way or done. */
static const int units[] = {COPIES_LAST_UNIT, 1, 0, COPIES_AFTER_UNIT_0};
#define UNITS (int)(sizeof units / sizeof *units)

/* heal_some — at every second of these units. */
static void heal_some(const struct shape *shape, enum layout_shard shard, int i)
{
    const struct job like = job_of(shape, shard);
    struct trial calm = copies_calm(&like, shape->nodes, shape->locals);
    for (int u = i % 2; u < UNITS; u += 2)
        heal(shape, &like, units[u], (i + u) % (shape->nodes + 1) - 1, &calm);
    trial_free(&calm);
}

TEST(test_heal)
{
    for (size_t i = 0; i < SHAPES; i++) {
        heal_some(&shapes[i], LAYOUT_SHARD_NONE, (int)i);
        heal_some(&shapes[i], LAYOUT_SHARD_FULL, (int)i + 1);
    }
    heal_some(&shapes[0], LAYOUT_SHARD_OPTIMIZER, 0);
    heal_some(&shapes[3], LAYOUT_SHARD_GRADIENTS, 1);
}

/* The second loss comes before the first copy after the first one is complete. */
static void heal_twice(const struct shape *shape, enum layout_shard shard, int second)
{
    char what[128];
    const struct job like = job_of(shape, shard);
    struct job again = like;
    struct trial calm = copies_calm(&like, shape->nodes, shape->locals);
    copies_begin(shape->nodes * shape->locals);
    copies_lose(&like, shape->nodes, shape->locals, 3, 1, leaver(shape, 1), true);
    again.leave_after = 0;
    copies_lose(&again, shape->nodes, shape->locals, -1, COPIES_LAST_UNIT, leaver(shape, second),
                true);
    copies_finish(&like, shape->nodes, shape->locals, 3, &calm,
                  text_of(shape, &like, 1, second, what));
    copies_end(shape->nodes * shape->locals);
}

TEST(test_heal_twice)
{
    for (size_t i = 0; i < SHAPES; i++)
        heal_twice(&shapes[i], i % 4 < 2 ? LAYOUT_SHARD_NONE : LAYOUT_SHARD_FULL, (int)i % 2);
}

/* found_without — from which step all go on after a whole run, when two nodes of four lost their
 * memory; the newest copy is of the state after step 5. */
static int64_t found_without(const struct shape *shape, enum layout_shard shard, int a, int b)
{
    struct job job = job_of(shape, shard);
    job.trial.reads_state = false;
    copies_begin(4);
    copies_run(&job, 4, 1);
    copies_ended_well(4, "first");
    copies_lose_node(a, 1);
    copies_lose_node(b, 1);
    copies_run(&job, 4, 1);
    copies_ended_well(4, "second");
    copies_end(4);
    return copies_job[0].found_step;
}

/* A rank and its keeper are gone: there is no state. Two ranks of different pairs are not. */
TEST(test_pair_lost)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += LAYOUT_SHARD_FULL) {
        const enum layout_shard s = (enum layout_shard)shard;
        assert_int_equal(found_without(&shapes[1], s, 0, 2), -1); /* TP=2: pairs of one shard */
        assert_int_equal(found_without(&shapes[1], s, 0, 1), 5);
        assert_int_equal(found_without(&shapes[4], s, 2, 3), -1); /* PP=2 */
        assert_int_equal(found_without(&shapes[4], s, 1, 2), 5);
        assert_int_equal(found_without(&shapes[12], s, 0, 1), -1); /* TP=2 PP=2 */
        assert_int_equal(found_without(&shapes[12], s, 0, 3), 5);
    }
}

/* change — a bit of a rank's parameters changes after step 3. Its next update finds that, and
 * copies that may hold it are not used. Returns from which step all go on. */
static int64_t change(const struct shape *shape, enum layout_shard shard, int rank)
{
    char what[128];
    struct job like = job_of(shape, shard);
    struct trial calm = copies_calm(&like, shape->nodes, shape->locals);
    copies_begin(shape->nodes * shape->locals);
    struct job job = like;
    job.flip_step = 3;
    job.flip_rank = rank;
    copies_run(&job, shape->nodes, shape->locals);
    text_of(shape, &like, 0, rank, what);
    if (!copies_job[rank].is_changed)
        fail_msg("%s: %s: %s", what, status_name(copies_one[rank].st), copies_one[rank].message);
    copies_run(&like, shape->nodes, shape->locals);
    copies_ended_well(shape->nodes * shape->locals, what);
    trial_same_state(&copies_job[0].trial, &calm, what);
    trial_free(&copies_job[0].trial);
    trial_free(&calm);
    copies_end(shape->nodes * shape->locals);
    return copies_job[0].found_step;
}

/* With SHARD=none and several ranks of a shard, updates are made in the next forward pass, so two
 * copies are made before all know. Of a slice that travels both may be wrong; of others the older
 * one is of memory that is right. */
TEST(test_change)
{
    for (size_t i = 0; i < SHAPES; i++) {
        const struct shape *s = &shapes[i];
        const int ranks = s->nodes * s->locals, each = ranks / (s->tensor * s->stages),
                  rank = (int)i % ranks;
        const int64_t none = change(s, LAYOUT_SHARD_NONE, rank);
        assert_int_equal(none, each == 1 ? 2 : s->is_sent_whole ? -1 : 2);
        assert_int_equal(change(s, LAYOUT_SHARD_FULL, rank), 2);
    }
}

/* Fewer or more nodes go on (ON_LOSS=shrink), with the same shards. */
TEST(test_resize)
{
    static const struct shape row[] = {
        {.tensor = 2, .context = 1, .stages = 1, .chunks = 1},
        {.tensor = 1, .context = 2, .stages = 1, .chunks = 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL;
             shard += LAYOUT_SHARD_FULL) {
            const struct job like = job_of(&row[i], (enum layout_shard)shard);
            copies_resize(like, 3, 2, 2, 0);
            copies_resize(like, 2, 3, 2, 4);
            copies_resize(like, 2, 1, 2, 1);
        }
}

HARNESS_RUN_ALL()

/* memory_advice — finds settings with which a run would fit, and tries each of them
 * (memory_advice.h). Read memory_advice_add first, at the foot. */
#include "node/choose/memory_advice.h"

/* number of nodes up to which each number is tried; above it, the number doubles */
#define NODES_LINEAR 16
#define RANKS_MOST 1024 /* the largest number of ranks that is tried */

/* suggest_batch — appends a smaller micro-batch. The samples of a step stay the same. */
static void suggest_batch(const struct memory_check *f, const struct trainer_config *c,
                          int64_t batch, struct text *out)
{
    text_add(out, "BATCH_SIZE=%lld", (long long)batch);
    if (conf_i64(f->conf, CONF_GLOBAL_BATCH) == 0)
        text_add(out, " GLOBAL_BATCH=%lld", (long long)c->step.global_samples);
}

/* pass_samples — returns the samples of one micro-batch on `ranks` ranks together; 0: these ranks
 * form no mesh. */
static int64_t pass_samples(const struct trainer_config *c, int ranks)
{
    struct mesh mesh;
    if (step_mesh(&c->step, ranks, &mesh) == ST_OK)
        return c->step.batch_samples * mesh.size[MESH_AXIS_DATA];
    status_clear();
    return 0;
}

/* is_dealt — returns true if the samples of a step can be divided among `ranks` ranks. */
static bool is_dealt(const struct trainer_config *c, int ranks)
{
    int64_t pass = pass_samples(c, ranks);
    return pass > 0 && c->step.global_samples % pass == 0;
}

static bool set_batch(const struct memory_check *f, struct trainer_config *c, int64_t batch)
{
    c->step.batch_samples = batch;
    return batch > 0 && is_dealt(c, f->place.at.ranks);
}

static void try_batch(const struct memory_check *f, const struct trainer_config *from,
                      struct text *out)
{
    struct trainer_config c = *from;
    for (int64_t batch = from->step.batch_samples - 1; batch > 0; batch--)
        if (set_batch(f, &c, batch) && memory_check_fits(f, &c, f->place.at)) {
            text_add(out, "; ");
            suggest_batch(f, &c, batch, out);
            return;
        }
}

static void try_tokens(const struct memory_check *f, const struct trainer_config *from,
                       struct text *out)
{
    struct trainer_config c = *from;
    for (c.step.seq_tokens /= 2; c.step.seq_tokens >= 32; c.step.seq_tokens /= 2)
        if (memory_check_fits(f, &c, f->place.at)) {
            text_add(out, "; SEQ_LEN=%lld", (long long)c.step.seq_tokens);
            return;
        }
}

/* try_recompute — tries recomputation with the present batch, then with the smallest one. */
static void try_recompute(const struct memory_check *f, const struct trainer_config *from,
                          struct text *out)
{
    char word[32];
    struct trainer_config c = *from;
    int first = (int)from->step.recompute.way + (from->step.recompute.layers == 0);
    for (int way = first; way <= MODEL_RECOMPUTE_BLOCK; way++) {
        c.step.recompute = (struct model_recomputed){.way = (enum model_recompute)way};
        if (memory_check_fits(f, &c, f->place.at)) {
            text_add(out, "; RECOMPUTE=%s",
                     model_recompute_text(c.step.recompute, word, sizeof word));
            return;
        }
    }
    if (c.step.batch_samples > 1 && set_batch(f, &c, 1) && memory_check_fits(f, &c, f->place.at)) {
        text_add(out, "; RECOMPUTE=block ");
        suggest_batch(f, &c, 1, out);
    }
}

/* fits_spread — returns true if the run fits when it is sharded over `nodes` nodes with the present
 * number of workers each. is_any_batch: the samples of a step may change with the ranks. */
static bool fits_spread(const struct memory_check *f, struct trainer_config c, int nodes,
                        bool is_any_batch)
{
    struct comm_place at = f->place.at;
    at.nodes = nodes;
    at.ranks = nodes * at.locals;
    at.node = at.rank = 0; /* node 0 needs most memory */
    if (conf_i64(f->conf, CONF_GLOBAL_BATCH) == 0)
        c.step.global_samples = pass_samples(&c, at.ranks);
    const bool has_samples = is_dealt(&c, at.ranks);
    c.step.store.shard = LAYOUT_SHARD_FULL;
    if (is_any_batch)
        c.step.global_samples = pass_samples(&c, at.ranks);
    return (has_samples || is_any_batch) && memory_check_fits(f, &c, at);
}

/* nodes_for — returns the smallest number of nodes on which the fully sharded run fits; 0: it never
 * fits. */
static int nodes_for(const struct memory_check *f, const struct trainer_config *c)
{
    const struct comm_place *at = &f->place.at;
    int first =
        at->ranks > 1 && c->step.store.shard != LAYOUT_SHARD_FULL ? at->nodes : at->nodes + 1;
    int most = RANKS_MOST / at->locals;
    /* even the largest job does not fit: the memory that is not sharded is too much */
    if (!fits_spread(f, *c, most > first ? most : first, true))
        return 0;
    for (int nodes = first; nodes <= most; nodes += nodes < NODES_LINEAR ? 1 : nodes)
        if (fits_spread(f, *c, nodes, false))
            return nodes;
    return 0;
}

/* try_shard — tries sharding over the present workers, then over more workers, then also with
 * recomputation and a smaller batch. LOCAL_STEPS excludes SHARD. */
static void try_shard(const struct memory_check *f, const struct trainer_config *from,
                      struct text *out)
{
    static const char *const words[] = {"", " RECOMPUTE=block", " RECOMPUTE=block BATCH_SIZE=1"};
    struct trainer_config c = *from;
    int locals = f->place.at.locals;
    if (from->step.local.steps > 0)
        return;
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            c.step.recompute = (struct model_recomputed){.way = MODEL_RECOMPUTE_BLOCK};
        c.step.batch_samples = i > 1 ? 1 : c.step.batch_samples;
        int nodes = nodes_for(f, &c);
        if (nodes == 0)
            continue;
        text_add(out, "; SHARD=full%s on %d workers (N_NODES=%d)", words[i], nodes * locals, nodes);
        return;
    }
}

/* try_axis — tries the present workers in larger tensor or context groups, or in more stages. A
 * tensor group stays inside its node. The samples of a step stay the same if they were set. */
static void try_axis(const struct memory_check *f, const struct trainer_config *from,
                     enum mesh_axis axis, const char *name, struct text *out)
{
    struct trainer_config c = *from;
    const struct comm_place *at = &f->place.at;
    int now = from->step.axis_ranks[axis] > 1 ? from->step.axis_ranks[axis] : 1,
        most = axis == MESH_AXIS_TENSOR ? at->locals : at->ranks;
    for (int n = 2 * now; n <= most; n *= 2) {
        c.step.axis_ranks[axis] = n;
        if (conf_i64(f->conf, CONF_GLOBAL_BATCH) == 0)
            c.step.global_samples = pass_samples(&c, at->ranks);
        if (most % n == 0 && is_dealt(&c, at->ranks) && memory_check_fits(f, &c, *at)) {
            text_add(out, "; %s=%d", name, n);
            return;
        }
    }
}

/* try_copy — tries CHECKPOINT_ASYNC=auto: without the copy for checkpoints in the background, if
 * training can do without it. */
static void try_copy(const struct memory_check *f, const struct trainer_config *from,
                     struct text *out)
{
    struct trainer_config c = *from;
    if (from->checkpoint_mode != CHECKPOINT_ASYNC_MODE_ON)
        return;
    c.checkpoint_mode = CHECKPOINT_ASYNC_MODE_AUTO;
    if (memory_check_fits(f, &c, f->place.at))
        text_add(out, "; CHECKPOINT_ASYNC=auto");
}

static void try_workers(const struct memory_check *f, const struct trainer_config *from,
                        struct text *out)
{
    struct trainer_config c = *from;
    struct comm_place at = {.ranks = 1, .nodes = 1, .locals = 1};
    if (f->is_device || f->place.at.nodes > 1 || f->place.at.locals == 1)
        return;
    if (conf_i64(f->conf, CONF_GLOBAL_BATCH) == 0)
        c.step.global_samples = c.step.batch_samples;
    c.step.local.replica_ranks = 1;
    if (memory_check_fits(f, &c, at))
        text_add(out, "; N_GPU_EACH_NODE=1");
}

void memory_advice_add(const struct memory_check *f, const struct trainer_config *c,
                       struct text *out)
{
    try_copy(f, c, out);
    try_batch(f, c, out);
    try_tokens(f, c, out);
    try_recompute(f, c, out);
    try_workers(f, c, out);
    /* TP, CP and PP are tried only without the settings that they exclude (conf_pairs.def). */
    if (c->step.local.steps <= 0 && !grad_compress_quantises(c->step.store.compress) &&
        c->step.store.shard != LAYOUT_SHARD_HYBRID) {
        if (c->step.optim.kind != OPTIM_KIND_MUON)
            try_axis(f, c, MESH_AXIS_TENSOR, "TP", out);
        try_axis(f, c, MESH_AXIS_CONTEXT, "CP", out);
        try_axis(f, c, MESH_AXIS_PIPELINE, "PP", out);
    }
    try_shard(f, c, out);
}

/* plan_search — see plan_search.h. Read plan_search_make first, at the end of the file. */
#include "plan/plan_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define MESHES_MAX 512
#define AXIS_MAX 32      /* ranks along an axis, unless they are fixed */
#define BATCH_MAX 64     /* samples of a micro-batch */
#define CONTEXT_MIN 2048 /* least tokens of a sample on a context rank */
#define WAYS_POINTS 8    /* values of RECOMPUTE from one word to the next */
#define TENSOR_CALLS 6   /* least calls of a layer, forward and backward */
#define CHUNKS_MAX 8
#define MESHES_TRIED 8 /* meshes that are tried with every SHARD and micro-batch */
#define WAYS_FIRST 64

/* One mesh, and the time of a step on it: first a lower bound, then the time with its smallest
 * micro-batch. */
struct candidate {
    int tensor, context, pipeline, chunks;
    double ms;
};

/* A way whose first stages fit, and whether it is near the fastest. */
struct way {
    struct plan_job job;
    struct plan_estimate estimate;
    bool is_near;
};

struct finding {
    const struct plan_job *asked;
    const struct plan_search_fixed *fixed;
    struct plan_search *out;
    struct candidate candidate[MESHES_MAX];
    int candidates_n;
    struct way *way;
    int ways_n, ways_cap;
    double best_ms; /* least time of the ways */
};

/* ---- meshes ---- */

static int axis_of(const struct plan_job *job, enum mesh_axis axis)
{
    int n = job->config.step.axis_ranks[axis];
    return n > 0 ? n : 1;
}

static double share_most(const struct plan_share *share)
{
    double most = share->n > 0 ? 0 : 1;
    for (int i = 0; i < share->n; i++)
        most = fmax(most, share->point[i].share);
    return most;
}

/* Returns the time of all products at the best share, divided evenly. */
static double compute_ms(const struct plan_job *job)
{
    const struct plan_cluster *c = job->cluster;
    const struct step_config *s = &job->config.step;
    double flops = model_flops_per_token(&s->dims, s->seq_tokens) * (double)s->seq_tokens *
                   (double)s->global_samples,
           share = fmax(share_most(&c->product[job->precision]), share_most(&c->attention));
    return 1e3 * flops / (c->peak[job->precision] * share * job->at.ranks);
}

/* Returns the time of a layer's calls on the tensor axis in one micro-batch of one sample. */
static double tensor_ms(const struct plan_job *job, const struct candidate *m)
{
    const struct step_config *s = &job->config.step;
    const struct plan_call call = {.kind = PLAN_CALL_ALL_GATHER,
                                   .ranks = m->tensor,
                                   .ranks_inside =
                                       m->tensor < job->at.locals ? m->tensor : job->at.locals,
                                   .bytes = (double)(s->seq_tokens / m->context * s->dims.embed) *
                                            (double)dtype_bytes(s->store.dtype)};
    double whole = plan_time_call_ms(job->cluster, &call);
    return TENSOR_CALLS * (whole - job->cluster->inside.latency_us / 1e3 * (m->tensor - 1));
}

/* Returns a lower bound of the time on a mesh: products, calls between products, and the bubble. */
static double least_ms(const struct plan_job *job, const struct candidate *m)
{
    const struct step_config *s = &job->config.step;
    double data = (double)job->at.ranks / (m->tensor * m->context * m->pipeline),
           micros = (double)s->global_samples / data, slots = micros * m->chunks,
           layers = (double)s->dims.layers / m->pipeline;
    double ms = compute_ms(job) + fmax(0, tensor_ms(job, m)) * layers * micros;
    return ms * (slots + m->pipeline - 1) / slots;
}

/* Returns true if the ranks, layers and samples can be divided by this mesh. Contradictions with
 * the model's own sizes show when memory is planned. */
static bool is_possible(const struct plan_job *job, const struct candidate *m)
{
    const struct step_config *s = &job->config.step;
    int replica_ranks = m->tensor * m->context * m->pipeline;
    if (job->at.ranks % replica_ranks != 0 || s->dims.layers < (int64_t)m->pipeline * m->chunks ||
        (m->pipeline == 1 && m->chunks > 1))
        return false;
    int64_t data = job->at.ranks / replica_ranks, micros = s->global_samples / data;
    return s->global_samples % data == 0 && (m->chunks == 1 || micros % m->pipeline == 0);
}

/* Adds a mesh, with one chunk for each stage unless chunks are fixed. */
static void add_mesh(struct finding *f, struct candidate mesh)
{
    const int chunks = f->asked->config.step.pipe_chunks;
    mesh.chunks = f->fixed->chunks && chunks > 0 ? chunks : 1;
    if (f->candidates_n == MESHES_MAX || !is_possible(f->asked, &mesh))
        return;
    mesh.ms = least_ms(f->asked, &mesh);
    f->candidate[f->candidates_n++] = mesh;
}

/* Returns the next size of an axis after n; most + 1: there is none. */
static int next_of(const struct finding *f, enum mesh_axis axis, int n, int most)
{
    return f->fixed->axis[axis] ? most + 1 : 2 * n;
}

static int first_of(const struct finding *f, enum mesh_axis axis)
{
    return f->fixed->axis[axis] ? axis_of(f->asked, axis) : 1;
}

static int most_of(const struct finding *f, enum mesh_axis axis)
{
    const struct step_config *s = &f->asked->config.step;
    int ranks = f->asked->at.ranks, most = ranks;
    if (f->fixed->axis[axis])
        return axis_of(f->asked, axis);
    if (axis == MESH_AXIS_TENSOR && s->optim.kind == OPTIM_KIND_MUON)
        return 1; /* Muon does not support TP */
    if (s->local.steps > 0)
        return 1; /* each worker has the whole model */
    if (axis == MESH_AXIS_TENSOR)
        most = f->asked->at.locals;
    if (axis == MESH_AXIS_CONTEXT)
        most = (int)(s->seq_tokens / CONTEXT_MIN);
    return most < AXIS_MAX ? most : AXIS_MAX;
}

static int compare_meshes(const void *a, const void *b)
{
    const struct candidate *left = a, *right = b;
    return (left->ms > right->ms) - (left->ms < right->ms);
}

/* ---- ways to train on a mesh ---- */

/* Chooses the least recomputation that fits; false: nothing fits. If stages share the layers, less
 * memory in total may be more in one of them, so each word is tried by itself. */
static bool first_recompute(const struct finding *f, struct plan_job *job)
{
    struct step_config *s = &job->config.step;
    bool has_stages = axis_of(job, MESH_AXIS_PIPELINE) > 1;
    int64_t layers = s->dims.layers,
            points = has_stages             ? 1
                     : layers < WAYS_POINTS ? layers
                                            : WAYS_POINTS,
            low = job->cluster->is_gpu ? 0 : points, high = MODEL_RECOMPUTE_BLOCK * points;
    if (f->fixed->recompute)
        return plan_job_fits(job);
    s->recompute = model_recompute_nth(layers, low * layers / points);
    if (plan_job_fits(job))
        return true;
    s->recompute = model_recompute_nth(layers, high * layers / points);
    if (!plan_job_fits(job))
        return false;
    low++;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        s->recompute = model_recompute_nth(layers, middle * layers / points);
        if (plan_job_fits(job))
            high = middle;
        else
            low = middle + 1;
    }
    s->recompute = model_recompute_nth(layers, high * layers / points);
    return true;
}

/* Keeps the first failure of a way that has room in memory. */
static void keep_failure(struct plan_search *out, enum status st)
{
    if (out->failure == ST_OK) {
        out->failure = st;
        status_save(&out->why);
    }
    status_clear();
}

/* Returns the time of a step with the job's batch and SHARD; infinite: it does not fit with any
 * recomputation. */
static double try_way(struct finding *f, struct plan_job *job, struct plan_estimate *out)
{
    if (!first_recompute(f, job))
        return INFINITY;
    f->out->tried_n++;
    enum status st = plan_estimate_make(job, out);
    if (st == ST_OK)
        return out->time.step_ms;
    keep_failure(f->out, st);
    return INFINITY;
}

/* Returns true if the step can be divided into micro-batches of the job. */
static bool is_divisible(const struct plan_job *job)
{
    const struct step_config *s = &job->config.step;
    const int stages = axis_of(job, MESH_AXIS_PIPELINE);
    int64_t data = job->at.ranks /
                   (axis_of(job, MESH_AXIS_TENSOR) * axis_of(job, MESH_AXIS_CONTEXT) * stages),
            pass = data * s->batch_samples;
    return s->global_samples % pass == 0 &&
           (s->pipe_chunks <= 1 || s->global_samples / pass % stages == 0);
}

/* Tries micro-batches from one sample on, as long as a larger one is faster; true: one fits. */
static bool try_batches(struct finding *f, struct plan_job *job)
{
    struct step_config *s = &job->config.step;
    int64_t asked = s->batch_samples, last = f->fixed->batch ? asked : BATCH_MAX;
    double before_ms = INFINITY;
    struct plan_estimate estimate;
    for (s->batch_samples = f->fixed->batch ? asked : 1; s->batch_samples <= last;
         s->batch_samples *= 2) {
        double ms = is_divisible(job) ? try_way(f, job, &estimate) : INFINITY;
        if (!(ms < before_ms))
            break;
        if (f->ways_n == f->ways_cap) {
            int cap = f->ways_cap > 0 ? 2 * f->ways_cap : WAYS_FIRST;
            f->way = memory_resize(f->way, (size_t)cap, sizeof *f->way);
            f->ways_cap = cap;
        }
        f->way[f->ways_n++] = (struct way){.job = *job, .estimate = estimate};
        f->best_ms = fmin(f->best_ms, estimate.time.step_ms);
        before_ms = ms;
    }
    s->batch_samples = asked;
    return isfinite(before_ms);
}

/* Returns true if several ranks hold the same shard of the model, and may shard it. */
static bool may_shard(const struct plan_job *job)
{
    return job->config.step.local.steps == 0 &&
           job->at.ranks > axis_of(job, MESH_AXIS_TENSOR) * axis_of(job, MESH_AXIS_PIPELINE);
}

/* Lists the shardings that are possible on a mesh, from least to most. */
static int shards_of(const struct plan_job *job, enum layout_shard out[LAYOUT_SHARD_AUTO])
{
    const struct comm_place *at = &job->at;
    bool is_divided = axis_of(job, MESH_AXIS_TENSOR) > 1 || axis_of(job, MESH_AXIS_CONTEXT) > 1 ||
                      axis_of(job, MESH_AXIS_PIPELINE) > 1;
    int n = 0;
    out[n++] = LAYOUT_SHARD_NONE;
    if (!may_shard(job))
        return n;
    out[n++] = LAYOUT_SHARD_OPTIMIZER;
    if (at->nodes > 1 && at->locals > 1 && !is_divided)
        out[n++] = LAYOUT_SHARD_HYBRID;
    out[n++] = LAYOUT_SHARD_FULL;
    return n;
}

static struct plan_job job_of(const struct finding *f, const struct candidate *mesh)
{
    struct plan_job job = *f->asked;
    struct step_config *s = &job.config.step;
    s->axis_ranks[MESH_AXIS_TENSOR] = mesh->tensor;
    s->axis_ranks[MESH_AXIS_CONTEXT] = mesh->context;
    s->axis_ranks[MESH_AXIS_PIPELINE] = mesh->pipeline;
    s->pipe_chunks = mesh->chunks;
    return job;
}

/* Tries more chunks for each stage, as long as that is faster than all ways so far. */
static void try_chunks(struct finding *f, struct candidate mesh)
{
    double before;
    do {
        before = f->best_ms;
        /* If a SHARD leaves enough memory without recomputation, more sharding only adds calls. */
        struct plan_job job = job_of(f, &mesh);
        struct step_config *s = &job.config.step;
        enum layout_shard shard[LAYOUT_SHARD_AUTO];
        int shards_n = f->fixed->shard ? 1 : shards_of(&job, shard);
        for (int i = 0; i < shards_n; i++) {
            if (!f->fixed->shard)
                s->store.shard = shard[i];
            if (try_batches(f, &job) && s->store.shard != LAYOUT_SHARD_NONE &&
                s->recompute.way == MODEL_RECOMPUTE_NONE)
                break;
        }
        mesh.chunks *= 2;
    } while (!f->fixed->chunks && mesh.pipeline > 1 && mesh.chunks <= CHUNKS_MAX &&
             is_possible(f->asked, &mesh) && (mesh.chunks == 2 || f->best_ms < before));
}

/* Returns the time on a mesh with one micro-batch and the SHARD that is mostly the fastest, else
 * the SHARD that needs least memory. */
static double quick_ms(struct finding *f, const struct candidate *mesh)
{
    struct plan_job job = job_of(f, mesh);
    struct step_config *s = &job.config.step;
    struct plan_estimate estimate;
    const bool is_open = !f->fixed->shard && may_shard(&job);
    s->batch_samples = f->fixed->batch ? s->batch_samples : 1;
    if (!is_divisible(&job))
        return INFINITY;
    if (!f->fixed->shard)
        s->store.shard = is_open ? LAYOUT_SHARD_OPTIMIZER : LAYOUT_SHARD_NONE;
    double ms = try_way(f, &job, &estimate);
    if (isfinite(ms) || !is_open)
        return ms;
    s->store.shard = LAYOUT_SHARD_FULL;
    return try_way(f, &job, &estimate);
}

/* Returns true if every stage fits. */
static bool fits_all(const struct plan_job *job)
{
    struct plan_memory *memory = memory_new(1, sizeof *memory);
    bool fits = plan_job_memory(job, memory) == ST_OK && plan_job_memory_over(job, memory) <= 0;
    free(memory);
    status_clear();
    return fits;
}

/* ---- the ways that are shown ---- */

static int compare_times(const void *a, const void *b)
{
    double left = ((const struct way *)a)->estimate.time.step_ms,
           right = ((const struct way *)b)->estimate.time.step_ms;
    return (left > right) - (left < right);
}

/* Lists the properties that make a way less simple, the weightiest first. */
#define BURDENS 6
static void burdens_of(const struct plan_job *job, int64_t out[BURDENS])
{
    const struct step_config *s = &job->config.step;
    const struct model_recomputed *r = &s->recompute;
    out[0] = (axis_of(job, MESH_AXIS_TENSOR) > 1) + (axis_of(job, MESH_AXIS_CONTEXT) > 1) +
             (axis_of(job, MESH_AXIS_PIPELINE) > 1);
    out[1] = s->pipe_chunks;
    out[2] = s->store.shard;
    out[3] = r->way;
    out[4] = r->layers > 0 ? r->layers : s->dims.layers;
    out[5] = s->batch_samples; /* a smaller one leaves more memory free */
}

/* Orders ways near the fastest before others, and among those the simplest first. */
static int compare_ways(const void *a, const void *b)
{
    const struct way *left = a, *right = b;
    int64_t of_left[BURDENS], of_right[BURDENS];
    if (left->is_near != right->is_near)
        return right->is_near - left->is_near;
    burdens_of(&left->job, of_left);
    burdens_of(&right->job, of_right);
    for (int i = 0; left->is_near && i < BURDENS; i++)
        if (of_left[i] != of_right[i])
            return of_left[i] < of_right[i] ? -1 : 1;
    return compare_times(a, b);
}

static bool has_mesh(const struct plan_search *out, const struct plan_job *job)
{
    for (int i = 0; i < out->found_n; i++) {
        bool is_same = true;
        for (int axis = 0; axis < MESH_AXES; axis++)
            is_same =
                is_same && (axis == MESH_AXIS_DATA || axis_of(&out->job[i], (enum mesh_axis)axis) ==
                                                          axis_of(job, (enum mesh_axis)axis));
        if (is_same)
            return true;
    }
    return false;
}

/* Copies the result: one way for each mesh. */
static void select_ways(struct finding *f)
{
    struct plan_search *out = f->out;
    if (f->ways_n == 0)
        return;
    /* Drops the ways at the head that have a stage that does not fit: only some stages were
     * checked before. */
    int first = 0;
    qsort(f->way, (size_t)f->ways_n, sizeof f->way[0], compare_times);
    while (first < f->ways_n && !fits_all(&f->way[first].job))
        first++;
    f->ways_n -= first;
    memmove(f->way, f->way + first, (size_t)f->ways_n * sizeof f->way[0]);
    f->out->fastest_tokens_per_second = f->ways_n > 0 ? f->way[0].estimate.tokens_per_second : 0;
    for (int i = 0; i < f->ways_n; i++)
        f->way[i].is_near = f->way[i].estimate.time.step_ms <=
                            (1 + PLAN_SEARCH_NEAR) * f->way[0].estimate.time.step_ms;
    qsort(f->way, (size_t)f->ways_n, sizeof f->way[0], compare_ways);
    for (int i = 0; i < f->ways_n && out->found_n < PLAN_SEARCH_TOP; i++) {
        const struct way *way = &f->way[i];
        if (has_mesh(out, &way->job) || !fits_all(&way->job))
            continue;
        out->job[out->found_n] = way->job;
        out->estimate[out->found_n++] = way->estimate;
    }
}

/* Finds the reason that refuses every mesh, unless it is memory. Called if no way was made. */
static void ask_why(struct finding *f)
{
    struct plan_memory *memory = memory_new(1, sizeof *memory);
    enum status st = ST_BAD_SETTING;
    for (int i = 0; st != ST_OK && i < f->candidates_n; i++) {
        struct plan_job job = job_of(f, &f->candidate[i]);
        job.config.step.batch_samples = f->fixed->batch ? job.config.step.batch_samples : 1;
        if (!f->fixed->shard)
            job.config.step.store.shard = LAYOUT_SHARD_NONE;
        if (!f->fixed->recompute)
            job.config.step.recompute = (struct model_recomputed){.way = MODEL_RECOMPUTE_BLOCK};
        st = plan_job_memory(&job, memory);
        if (st != ST_OK)
            keep_failure(f->out, st);
    }
    if (st == ST_OK)
        f->out->failure = ST_OK;
    free(memory);
}

static void search_meshes(struct finding *f)
{
    /* Every power of two along each axis, or the fixed value. */
    const int tensors = most_of(f, MESH_AXIS_TENSOR), contexts = most_of(f, MESH_AXIS_CONTEXT),
              stages = most_of(f, MESH_AXIS_PIPELINE);
    struct candidate m = {.chunks = 1};
    for (m.tensor = first_of(f, MESH_AXIS_TENSOR); m.tensor <= tensors;
         m.tensor = next_of(f, MESH_AXIS_TENSOR, m.tensor, tensors))
        for (m.context = first_of(f, MESH_AXIS_CONTEXT); m.context <= (contexts > 1 ? contexts : 1);
             m.context = next_of(f, MESH_AXIS_CONTEXT, m.context, contexts > 1 ? contexts : 1))
            for (m.pipeline = first_of(f, MESH_AXIS_PIPELINE); m.pipeline <= stages;
                 m.pipeline = next_of(f, MESH_AXIS_PIPELINE, m.pipeline, stages))
                add_mesh(f, m);
    /* Order them by quick_ms, without the meshes that cannot be among the fastest. */
    double least = INFINITY;
    qsort(f->candidate, (size_t)f->candidates_n, sizeof f->candidate[0], compare_meshes);
    for (int i = 0; i < f->candidates_n; i++) {
        bool is_hopeless = f->candidate[i].ms > least;
        f->candidate[i].ms = is_hopeless ? INFINITY : quick_ms(f, &f->candidate[i]);
        least = fmin(least, f->candidate[i].ms);
    }
    qsort(f->candidate, (size_t)f->candidates_n, sizeof f->candidate[0], compare_meshes);
    f->out->meshes_n = f->candidates_n;
    for (int i = 0; i < f->candidates_n && i < MESHES_TRIED && isfinite(f->candidate[i].ms); i++)
        try_chunks(f, f->candidate[i]);
    select_ways(f);
    if (f->out->tried_n == 0)
        ask_why(f);
}

void plan_search_make(const struct plan_job *job, const struct plan_search_fixed *fixed,
                      struct plan_search *out)
{
    struct finding *f = memory_new(1, sizeof *f);
    *out = (struct plan_search){.found_n = 0};
    f->asked = job;
    f->fixed = fixed;
    f->out = out;
    f->best_ms = INFINITY;
    search_meshes(f);
    free(f->way);
    free(f);
}

/* ---- advice ---- */

/* A job, and the figures with which other numbers of nodes are compared. */
struct base {
    const struct plan_job *job;
    const struct plan_search_fixed *fixed;
    const struct plan_search *found; /* result on the job's nodes */
    bool is_auto;                    /* the job is the first result */
    double tokens_per_second;        /* rate of the job */
};

static double rate_of(const struct plan_job *job)
{
    struct plan_estimate estimate;
    bool is_made = plan_job_fits(job) && plan_estimate_make(job, &estimate) == ST_OK;
    status_clear();
    return is_made ? estimate.tokens_per_second : 0;
}

static void set_nodes(double rate, double than, const struct base *base,
                      struct plan_advice_nodes *out)
{
    out->is_known = rate > 0 && than > 0;
    out->tokens_per_second = rate;
    if (out->is_known)
        out->speed_ratio = out->nodes > base->job->at.nodes ? rate / than : than / rate;
}

static void try_nodes(const struct base *base, int nodes, struct plan_advice_nodes *out)
{
    struct plan_job other;
    bool is_same = plan_job_nodes(base->job, nodes, &other) && !base->is_auto;
    *out = (struct plan_advice_nodes){.nodes = nodes};
    if (is_same)
        set_nodes(rate_of(&other), base->tokens_per_second, base, out);
    if (!out->is_known) {
        /* Compares the fastest mesh on other nodes with the fastest on the job's nodes. */
        const struct plan_search *found = base->found;
        if (found->found_n != 0 && out->nodes <= PLAN_SEARCH_NODES_MAX) {
            struct plan_search *space = memory_new(1, sizeof *space);
            plan_search_make(&other, base->fixed, space);
            if (space->found_n > 0)
                set_nodes(space->fastest_tokens_per_second, found->fastest_tokens_per_second, base,
                          out);
            free(space);
        }
    }
}

void plan_search_advice(const struct plan_job *job, const struct plan_search_fixed *fixed,
                        const struct plan_search *found, struct plan_advice *out)
{
    const int nodes = job->at.nodes, most = job->cluster->nodes;
    *out = (struct plan_advice){.less = {.is_known = false}};
    if (!found)
        plan_search_make(job, fixed, &out->search);
    const struct base base = {job, fixed, found ? found : &out->search, found != NULL,
                              rate_of(job)};
    if (nodes > 1)
        try_nodes(&base, nodes - 1, &out->less);
    if (job->cluster->across.bytes_per_second > 0 && nodes < PLAN_CLUSTER_NODES_MAX &&
        (most <= 0 || nodes < most))
        try_nodes(&base, nodes + 1, &out->more);
}

bool plan_search_is_worth(double speed_ratio, int nodes)
{
    double ideal = 1.0 / (nodes - 1);
    return speed_ratio - 1 >= ideal * PLAN_SEARCH_WORTH;
}

/* plan_time — see plan_time.h. Read plan_time_make first, at the end of the file. */
#include "plan/plan_time.h"

#include <math.h>
#include <string.h>

static const char *const texts[PLAN_TIME_N] = {
#define PLAN_TIME_TEXT(name, text) [PLAN_TIME_##name] = text,
    PLAN_TIME_LIST(PLAN_TIME_TEXT)
#undef PLAN_TIME_TEXT
};

const char *plan_time_text(enum plan_time_kind kind) { return texts[kind]; }

/* The machine, and the precision of products. */
struct machine {
    const struct plan_cluster *cluster;
    enum plan_precision precision;
};

/* Calls during computation: their time and their number. */
struct beside {
    double ms, calls;
};

/* The work of a stage in ms: in one micro-batch, and in addition once a step. */
struct stage {
    double pass[PLAN_TIME_N], step[PLAN_TIME_N];
    double forward, backward;  /* computation of one micro-batch, contained in pass */
    double to_next, to_before; /* messages of a micro-batch that are not hidden */
    /* hidden calls: of a micro-batch, and of a step during its first forward and last backward
     * pass */
    struct beside pass_forward, pass_backward, step_forward, step_backward;
    double axis[MESH_AXES]; /* communication of a whole step */
    double hidden;          /* hidden communication of a whole step */
};

/* ---- operations ---- */

/* With a rate of 0 a time is infinite; zero times that time is still 0. */
static double seconds_of(double work, double rate) { return work > 0 ? work / rate : 0; }
static double scale_time(double n, double ms) { return n > 0 ? n * ms : 0; }

/* Returns the time at this share of the peak, but not less than memory needs. */
static double compute_ms(const struct machine *m, double share, const struct op_cost *cost)
{
    const struct plan_cluster *c = m->cluster;
    double bytes = (double)(cost->bytes_read + cost->bytes_written);
    return 1e3 * fmax(seconds_of((double)cost->flops, c->peak[m->precision] * share),
                      seconds_of(bytes, c->memory_bytes_per_second));
}

static double product_share(const struct machine *m, const struct plan_op *op)
{
    if (m->cluster->product_rows.n > 0) {
        /* By rows and widths; a layer between block and wide is between the two. */
        double rows = (double)op->rows, in = (double)op->in, out = (double)op->out,
               width = fmin(in, out),
               share = plan_cluster_rows_share(&m->cluster->product_rows, rows, width),
               ratio = log(fmax(in, out) / PLAN_CLUSTER_BLOCK) /
                       log((double)PLAN_CLUSTER_WIDE / PLAN_CLUSTER_BLOCK);
        if (m->cluster->product_wide.n == 0 || ratio <= 0)
            return share;
        double wide = plan_cluster_rows_share(&m->cluster->product_wide, rows, width);
        return share + fmin(ratio, 1) * (wide - share);
    }
    return plan_cluster_share(&m->cluster->product[m->precision], (double)op->cost.flops);
}

/* Returns the rates of the program's own kernels in the direction of an attention. */
static const struct plan_share *own_rates(const struct plan_cluster *c, const struct plan_op *op)
{
    return op->op == OP_KIND_attention_bwd ? &c->attention_own_backward : &c->attention_own_forward;
}

/* Returns the share of attention. A narrow head has more exponentials for each FLOP of its
 * products. */
static double attention_share(const struct machine *m, const struct plan_op *op)
{
    const struct plan_share *own = own_rates(m->cluster, op);
    bool has_own = op->is_own && own->n > 0;
    return plan_cluster_share(has_own ? own : &m->cluster->attention, (double)op->cost.flops) *
           plan_cluster_share(&m->cluster->attention_width, (double)op->width);
}

static double memory_ms(const struct machine *m, double share, const struct op_cost *cost)
{
    return 1e3 * seconds_of((double)(cost->bytes_read + cost->bytes_written),
                            m->cluster->memory_bytes_per_second * share);
}

static enum plan_time_kind kind_of(enum op_kind op)
{
    switch (op) {
    case OP_KIND_matmul_fwd:
    case OP_KIND_matmul_bwd_x:
    case OP_KIND_matmul_bwd_w:
        return PLAN_TIME_PRODUCTS;
    case OP_KIND_attention_fwd:
    case OP_KIND_attention_decode:
    case OP_KIND_attention_bwd:
        return PLAN_TIME_ATTENTION;
    case OP_KIND_adamw:
    case OP_KIND_sgd:
        return PLAN_TIME_OPTIMIZER;
    default:
        return PLAN_TIME_MEMORY;
    }
}

static double op_ms(const struct machine *m, const struct plan_op *op)
{
    const struct plan_cluster *c = m->cluster;
    switch (kind_of(op->op)) {
    case PLAN_TIME_PRODUCTS:
        return compute_ms(m, product_share(m, op), &op->cost);
    case PLAN_TIME_ATTENTION:
        return compute_ms(m, attention_share(m, op), &op->cost);
    case PLAN_TIME_OPTIMIZER:
        return memory_ms(m, c->optimizer_share, &op->cost);
    default:
        return memory_ms(m, c->memory_share, &op->cost);
    }
}

/* ---- calls ---- */

/* A group of a call: its ranks on a node, its nodes, and its share of either link. */
struct group {
    bool has_levels;
    double ranks, inside, nodes;
    double inside_rate, across_rate;    /* bytes/s: of one rank; of its ranks on one node */
    double inside_s, across_s;          /* latency */
    double scatter_ratio, gather_ratio; /* 0: not measured */
};

/* Returns the time of one way around all ranks: a reduce-scatter, or an all-gather. */
static double ring_s(const struct group *g, double bytes)
{
    double rate = g->nodes == 1    ? g->inside_rate
                  : g->inside == 1 ? g->across_rate
                                   : fmin(g->inside_rate, g->across_rate);
    double hops_across = g->nodes > 1 ? g->nodes : 0;
    return seconds_of(bytes * (g->ranks - 1) / g->ranks, rate) +
           fmax(g->ranks - 1 - hops_across, 0) * g->inside_s +
           fmin(hops_across, g->ranks - 1) * g->across_s;
}

/* Returns the time of half an all-reduce. NCCL goes around one ring of all ranks; our own calls
 * between hosts have two levels. */
static double half_s(const struct group *g, double bytes)
{
    return g->has_levels && g->nodes > 1 && g->inside > 1
               ? seconds_of(bytes * (g->inside - 1) / g->inside, g->inside_rate) +
                     (g->inside - 1) * g->inside_s +
                     seconds_of(bytes * (g->nodes - 1) / g->nodes, g->across_rate) +
                     (g->nodes - 1) * g->across_s
               : ring_s(g, bytes);
}

/* Returns the time of an all-reduce up and down two trees, each with half of the bytes, in chunks:
 * fewer hops than a ring. Between nodes each edge carries the bytes once each way. */
static double tree_s(const struct group *g, double bytes)
{
    double inside_hops = ceil(log2(g->inside)), across_hops = ceil(log2(g->nodes)), rate;
    rate = g->nodes > 1 ? g->across_rate * g->nodes / (g->nodes - 1) : g->inside_rate;
    rate = g->inside > 1 ? fmin(rate, g->inside_rate) : rate;
    return 2 * (seconds_of(bytes, rate) + inside_hops * g->inside_s + across_hops * g->across_s);
}

static double all_reduce_s(const struct group *g, double bytes)
{
    return fmin(2 * half_s(g, bytes), tree_s(g, bytes));
}

/* Returns the time of a reduce-scatter or an all-gather: its measured ratio to an all-reduce. */
static double ratio_s(const struct group *g, double ratio, double bytes)
{
    return ratio > 0 ? ratio * all_reduce_s(g, bytes) : half_s(g, bytes);
}

/* Returns the time in which each rank sends a part to every other one. */
static double to_all_s(const struct group *g, double bytes)
{
    double inside = bytes * (g->inside - 1) / g->ranks,
           across = bytes * (g->ranks - g->inside) / g->ranks * g->inside;
    return fmax(seconds_of(inside, g->inside_rate), seconds_of(across, g->across_rate)) +
           (g->inside - 1) * g->inside_s + (g->ranks - g->inside) * g->across_s;
}

double plan_time_call_ms(const struct plan_cluster *cluster, const struct plan_call *call)
{
    const struct plan_link *in = &cluster->inside, *out = &cluster->across;
    struct group g = {
        .has_levels = !cluster->is_gpu, .ranks = call->ranks, .inside = call->ranks_inside};
    g.nodes = ceil(g.ranks / g.inside);
    g.inside_rate = in->bytes_per_second * plan_cluster_share(&in->share, call->bytes);
    g.across_rate = out->bytes_per_second * plan_cluster_share(&out->share, call->bytes) *
                    (call->sharers > 0 ? 1.0 / call->sharers : fmin(1, g.inside / cluster->locals));
    g.inside_s = in->latency_us / 1e6;
    g.across_s = out->latency_us / 1e6;
    g.scatter_ratio = g.nodes > 1 ? out->scatter_ratio : in->scatter_ratio;
    g.gather_ratio = g.nodes > 1 ? out->gather_ratio : in->gather_ratio;
    if (call->ranks <= 1)
        return 0;
    switch (call->kind) {
    case PLAN_CALL_ALL_REDUCE:
        return 1e3 * all_reduce_s(&g, call->bytes);
    case PLAN_CALL_ALL_TO_ALL:
        return 1e3 * to_all_s(&g, call->bytes);
    case PLAN_CALL_BROADCAST:
        return 1e3 * tree_s(&g, call->bytes) / 2;
    case PLAN_CALL_MESSAGE:
        return 1e3 * (g.nodes > 1 ? seconds_of(call->bytes * g.inside, g.across_rate) + g.across_s
                                  : seconds_of(call->bytes, g.inside_rate) + g.inside_s);
    case PLAN_CALL_REDUCE_SCATTER:
        return 1e3 * ratio_s(&g, g.scatter_ratio, call->bytes);
    default: /* PLAN_CALL_ALL_GATHER */
        return 1e3 * ratio_s(&g, g.gather_ratio, call->bytes);
    }
}

static void add_beside(struct beside *to, double calls, double ms)
{
    to->calls += calls;
    to->ms += scale_time(calls, ms);
}

static void add_call(const struct plan_cluster *c, const struct plan_call *call, double passes,
                     struct stage *s)
{
    double ms = plan_time_call_ms(c, call);
    s->axis[call->axis] += scale_time(call->per_pass * passes + call->per_step, ms);
    if (call->is_hidden) {
        /* Sums of gradients run during the backward pass. Gathered parameters run during both
         * passes, after an update only during the forward pass; other calls during both. */
        bool is_sum = call->kind == PLAN_CALL_ALL_REDUCE || call->kind == PLAN_CALL_REDUCE_SCATTER,
             is_gather = call->kind == PLAN_CALL_ALL_GATHER;
        double ratio = is_sum ? 0 : 0.5;
        add_beside(&s->pass_forward, call->per_pass * ratio, ms);
        add_beside(&s->pass_backward, call->per_pass * (1 - ratio), ms);
        ratio = is_gather ? 1 : ratio;
        add_beside(&s->step_forward, call->per_step * ratio, ms);
        add_beside(&s->step_backward, call->per_step * (1 - ratio), ms);
        return;
    }
    if (call->kind == PLAN_CALL_MESSAGE)
        *(call->is_to_next ? &s->to_next : &s->to_before) += scale_time(call->per_pass, ms);
    else
        s->pass[PLAN_TIME_COMM_EXPOSED] += scale_time(call->per_pass, ms);
    s->step[PLAN_TIME_COMM_EXPOSED] += scale_time(call->per_step, ms);
}

/* ---- the exposed time of hidden calls ---- */

/* Returns the time of calls in the middle of a step that exceeds the computation during them. */
static double exposed_ms(struct beside b, double window_ms) { return fmax(0, b.ms - window_ms); }

/* Returns the same for the first forward and the last backward pass. Of k calls, one overlaps no
 * computation; and 1/k of the computation overlaps no call. */
static double over_at_end(struct beside pass, struct beside step, double window_ms)
{
    struct beside all = {pass.ms + step.ms, pass.calls + step.calls};
    if (step.calls <= 0)
        return exposed_ms(pass, window_ms);
    double calls = fmax(all.calls, 1);
    return fmax(step.ms / fmax(step.calls, 1), all.ms - window_ms * (1 - 1 / calls));
}

/* ---- stages ---- */

static double sum_times(const double ms[PLAN_TIME_N])
{
    double all = 0;
    for (int kind = 0; kind < PLAN_TIME_N; kind++)
        all += ms[kind];
    return all;
}

static void make_stage(const struct machine *m, const struct plan_ops *ops, struct stage *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < ops->ops_n; i++) {
        enum plan_time_kind kind = kind_of(ops->op[i].op);
        double ms = op_ms(m, &ops->op[i]), launch_ms = m->cluster->operation_us / 1e3;
        out->pass[kind] += scale_time(ops->op[i].per_pass, ms);
        out->step[kind] += scale_time(ops->op[i].per_step, ms);
        out->pass[PLAN_TIME_LAUNCH] += scale_time(ops->op[i].per_pass, launch_ms);
        out->step[PLAN_TIME_LAUNCH] += scale_time(ops->op[i].per_step, launch_ms);
        *(ops->op[i].is_backward ? &out->backward : &out->forward) +=
            scale_time(ops->op[i].per_pass, ms + launch_ms);
    }
    for (int i = 0; i < ops->calls_n; i++)
        add_call(m->cluster, &ops->call[i], (double)ops->passes, out);
    /* to both neighbours at the same time: links carry bytes both ways */
    out->pass[PLAN_TIME_COMM_EXPOSED] += fmax(out->to_next, out->to_before);
    /* Count the exposed time of hidden calls as exposed communication; the time that the rest costs
     * computation counts as longer computation. */
    double passes = (double)ops->passes;
    double pass = exposed_ms(out->pass_forward, out->forward) +
                  exposed_ms(out->pass_backward, out->backward),
           ends = over_at_end(out->pass_forward, out->step_forward, out->forward) +
                  over_at_end(out->pass_backward, out->step_backward, out->backward),
           all_pass = out->pass_forward.ms + out->pass_backward.ms,
           all_step = out->step_forward.ms + out->step_backward.ms,
           step = fmax(0, ends - pass); /* the first and last pass are among the passes */
    double hidden_pass = all_pass - pass, hidden_step = fmax(0, all_step - step);
    out->pass[PLAN_TIME_COMM_EXPOSED] += pass;
    out->step[PLAN_TIME_COMM_EXPOSED] += step;
    out->pass[PLAN_TIME_OVERLAP] += scale_time(hidden_pass, m->cluster->overlap_cost);
    out->step[PLAN_TIME_OVERLAP] += scale_time(hidden_step, m->cluster->overlap_cost);
    out->hidden = hidden_pass * passes + hidden_step;
    out->step[PLAN_TIME_LAUNCH] += m->cluster->step_us / 1e3;
}

/* A pipeline so far: the stage that works longest, and the micro-batches of all. */
struct pipeline {
    struct stage longest;
    double longest_ms, slowest_pass, all_passes;
    double all_ms; /* time of all stages */
};

static void add_stage(const struct stage *s, double passes, struct pipeline *to)
{
    double pass = sum_times(s->pass), ms = pass * passes + sum_times(s->step);
    to->all_passes += pass;
    to->all_ms += ms;
    to->slowest_pass = fmax(to->slowest_pass, pass);
    if (to->longest_ms > 0 && ms <= to->longest_ms)
        return;
    to->longest_ms = ms;
    to->longest = *s;
}

/* Returns the bubble. The stage that works longest waits while the first micro-batch travels to the
 * slowest stage and the last one comes from it, in each of its chunks. */
static double bubble_ms(const struct pipeline *p, double passes, int chunks)
{
    double pass = sum_times(p->longest.pass);
    return passes * (p->slowest_pass - pass) +
           (p->all_passes - p->slowest_pass) / (chunks > 0 ? chunks : 1);
}

bool plan_time_shares_cores(const struct plan_cluster *c, int locals)
{
    return !c->is_gpu && c->cores > 0 && (int64_t)locals * c->threads_n > c->cores;
}

void plan_time_make(const struct plan_ops *ops, int stages, enum plan_precision precision,
                    const struct plan_cluster *cluster, double checkpoint_ms, struct plan_time *out)
{
    const struct machine m = {cluster, precision};
    const double passes = (double)ops->passes;
    struct pipeline pipeline = {.longest_ms = 0};
    for (int i = 0; i < stages; i++) {
        struct stage stage;
        make_stage(&m, &ops[i], &stage);
        /* A stage waits for the first micro-batch while the stages before it compute, and finishes
         * its last one before they do: calls of a step run during that time. */
        double before_ms = pipeline.all_passes / (ops->chunks > 0 ? ops->chunks : 1);
        double hidden = fmin(stage.step[PLAN_TIME_COMM_EXPOSED], before_ms);
        stage.step[PLAN_TIME_COMM_EXPOSED] -= hidden;
        stage.hidden += hidden;
        stage.step[PLAN_TIME_OVERLAP] -= fmin(stage.step[PLAN_TIME_OVERLAP], before_ms - hidden);
        add_stage(&stage, passes, &pipeline);
    }
    *out = (struct plan_time){.step_ms = 0};
    /* The terms of the stage that works longest, and the additional time of the step. If the step
     * is shorter than that stage's own time, all its terms are scaled down, communication too. */
    double bubble = stages > 1 ? bubble_ms(&pipeline, (double)ops->passes, ops->chunks) : 0,
           all = pipeline.longest_ms + bubble, ratio = 1;
    if (stages > 1 && ops->nodes <= 1 && plan_time_shares_cores(cluster, ops->locals)) {
        /* Stages that share cores, at rates of workers that all compute. sharers: threads for each
         * core. While a stage waits, its core computes for other stages: a step needs the mean of
         * the stages' times, and the time of the first micro-batches until each core has a stage
         * that computes. That is exact for equal stages. The slowest stage, with a core to itself,
         * needs its own time. */
        const double sharers = (double)ops->locals * cluster->threads_n / cluster->cores;
        double cores = stages / sharers, first = pipeline.all_passes / stages / sharers;
        all = fmax(pipeline.all_ms / stages + fmax(0, cores - 1) * first, all / sharers);
        ratio = fmin(1, all / pipeline.longest_ms);
        bubble = fmax(0, all - pipeline.longest_ms);
    }
    for (int kind = 0; kind < PLAN_TIME_N; kind++)
        out->ms[kind] = scale_time(ratio, pipeline.longest.pass[kind] * (double)ops->passes +
                                              pipeline.longest.step[kind]);
    out->ms[PLAN_TIME_BUBBLE] = bubble;
    out->comm_hidden_ms = scale_time(ratio, pipeline.longest.hidden);
    for (int axis = 0; axis < MESH_AXES; axis++)
        out->axis_ms[axis] = scale_time(ratio, pipeline.longest.axis[axis]);
    out->ms[PLAN_TIME_CHECKPOINT] = checkpoint_ms;
    for (int i = 0; i < ops->ops_n; i++) {
        const struct plan_op *op = &ops->op[i];
        bool is_lacking = op->is_own && own_rates(cluster, op)->n == 0;
        bool *lacks =
            op->op == OP_KIND_attention_bwd ? &out->lacks_own_backward : &out->lacks_own_forward;
        *lacks |= is_lacking;
    }
    out->step_ms = sum_times(out->ms);
    if (!isfinite(out->step_ms))
        out->step_ms = INFINITY;
}

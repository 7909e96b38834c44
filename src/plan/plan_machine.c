/* plan_machine — see plan_machine.h. */
#include "plan/plan_machine.h"

#include <string.h>

#include "base/quantile.h"
#include "base/thread_pool.h"
#include "measure/measure_collective.h"
#include "measure/measure_ranks.h"
#include "plan/plan_time.h"

#define MEASUREMENTS 46 /* approximate number of measurements, of several slices each */
#define SLICES 11.0

enum status plan_machine_time(const struct plan_machine *m, measure_work *work, void *arg,
                              double *seconds_out)
{
    return measure_time_together(&m->timer, m->slice, m->shares_cores, work, arg, seconds_out);
}

/* ---- links: sums between workers by size. The time of a call is turned into the latency and the
 * rates with which plan_time computes the same time. ---- */

#define HALVINGS 60
#define RATE_LEAST 1e3
#define RATE_MOST 4      /* times the memory's rate: no link is faster */
#define SHARE_LEAST 1e-6 /* the least share that a file may hold */
#define BESIDE 3         /* calls during computation */
#define OVERLAP_MOST 10.0
#define OVERLAP_SPREAD 0.5 /* most spread of the middle half of the tries */
#define OVERLAP_SLICES 60  /* slices for all tries together */
#define OVERLAP_ELEMS_LEAST 16384
#define TRIES 7
#define RATIO_SLOTS 8
#define RATIO_MOST 2.0 /* the most that a file may hold */

static const int64_t sizes[] = {64,      16 << 10, 64 << 10, 256 << 10,
                                1 << 20, 4 << 20,  16 << 20, 64 << 20};
#define SIZES (int)(sizeof sizes / sizeof sizes[0])

/* A call that is repeated, each time on the next range of the memory. So it finds little of its
 * data in caches, as in a step, whose gradients were written some time ago. */
struct call {
    struct comm *comm;
    struct measure_collective_memory memory;
    struct measure_collective_call what;
    int64_t elems, slots, at;
};

static struct call call_of(const struct plan_machine *m, struct comm *comm,
                           enum bus_collective collective, int64_t bytes)
{
    return (struct call){.comm = comm,
                         .memory = {.data = m->shared},
                         .what = {.collective = collective, .dtype = DTYPE_F32, .bytes = bytes},
                         .elems = bytes / (int64_t)sizeof(float),
                         .slots = m->shared_bytes / bytes};
}

static void advance_call(struct call *call)
{
    call->at = (call->at + 1) % call->slots;
    call->what.at_elems = call->at * call->elems;
}

static enum status run_call(void *arg)
{
    struct call *call = arg;
    advance_call(call);
    return measure_collective_make(&call->memory, call->comm, &call->what);
}

static enum status time_call(const struct plan_machine *m, struct comm *comm,
                             enum bus_collective collective, int64_t bytes, double *seconds_out)
{
    struct call call = call_of(m, comm, collective, bytes);
    return plan_machine_time(m, run_call, &call, seconds_out);
}

/* A link that is being fitted: a link of the cluster, and a call that uses no other. */
struct search {
    struct plan_cluster *cluster;
    struct plan_link *link;
    struct plan_call call;
};

static double planned_ms(const struct search *s) { return plan_time_call_ms(s->cluster, &s->call); }

/* Finds the rate with which a plan computes this time: a larger rate makes the time shorter. */
static double find_rate(struct search *s, double seconds)
{
    double low = RATE_LEAST, high = RATE_MOST * s->cluster->memory_bytes_per_second;
    for (int i = 0; i < HALVINGS; i++) {
        s->link->bytes_per_second = __builtin_sqrt(low * high);
        if (planned_ms(s) > 1e3 * seconds)
            low = s->link->bytes_per_second;
        else
            high = s->link->bytes_per_second;
    }
    return s->link->bytes_per_second;
}

void plan_machine_link_fit(struct plan_cluster *cluster, struct plan_link *link,
                           const struct plan_call *like, const double *bytes, const double *seconds,
                           int n)
{
    struct search s = {cluster, link, *like};
    double rates[PLAN_CLUSTER_POINTS_MAX], least = seconds[0], best = 0;
    for (int i = 1; i < n; i++)
        least = seconds[i] < least ? seconds[i] : least;
    link->share.n = 0;
    /* Find the latency with an unlimited bandwidth. */
    s.link->bytes_per_second = 1e18;
    s.link->latency_us = 1;
    s.link->latency_us = 1e3 * least / planned_ms(&s);
    for (int i = n - 1; i > 0; i--) {
        s.call.bytes = bytes[i];
        rates[i] = i < n - 1 && seconds[i] <= least ? rates[i + 1] : find_rate(&s, seconds[i]);
        best = rates[i] > best ? rates[i] : best;
    }
    link->bytes_per_second = best;
    for (int i = 1; i < n; i++) {
        double share = rates[i] / best;
        link->share.point[link->share.n].size = bytes[i];
        link->share.point[link->share.n++].share = share > SHARE_LEAST ? share : SHARE_LEAST;
    }
}

/* Measures a reduce-scatter and an all-gather as ratios of an all-reduce's time, in calls of a
 * block's size, limited to RATIO_MOST. */
static enum status measure_ratios(const struct plan_machine *m, struct comm *comm,
                                  struct plan_link *link)
{
    const int64_t bytes = m->shared_bytes / RATIO_SLOTS / 4096 * 4096;
    double sum, scatter, gather;
    TRY(time_call(m, comm, BUS_COLLECTIVE_ALL_REDUCE, bytes, &sum));
    TRY(time_call(m, comm, BUS_COLLECTIVE_REDUCE_SCATTER, bytes, &scatter));
    TRY(time_call(m, comm, BUS_COLLECTIVE_ALL_GATHER, bytes, &gather));
    link->scatter_ratio = scatter < RATIO_MOST * sum ? scatter / sum : RATIO_MOST;
    link->gather_ratio = gather < RATIO_MOST * sum ? gather / sum : RATIO_MOST;
    return ST_OK;
}

/* Measures the link of the calls of one comm. */
static enum status measure_sums(const struct plan_machine *m, struct comm *comm,
                                struct plan_link *link, const struct plan_call *like)
{
    double bytes[SIZES], seconds[SIZES];
    int n = 0;
    for (; n < SIZES && sizes[n] <= m->shared_bytes; n++) {
        bytes[n] = (double)sizes[n];
        TRY(time_call(m, comm, BUS_COLLECTIVE_ALL_REDUCE, sizes[n], &seconds[n]));
    }
    plan_machine_link_fit(m->cluster, link, like, bytes, seconds, n);
    return measure_ratios(m, comm, link);
}

/* ---- calls during computation ---- */

/* Products, and calls at the same time. */
struct both {
    struct dev *dev;
    struct stream *stream;
    struct matmul_fwd product;
    int64_t products;
    struct call call;
    int calls; /* BESIDE, or 0: products only */
};

static enum status run_both(void *arg)
{
    struct both *b = arg;
    struct comm_ticket ticket[BESIDE];
    for (int i = 0; i < b->calls; i++) {
        advance_call(&b->call);
        const struct tensor all =
            tensor_at((struct tensor){b->call.memory.data, DTYPE_F32}, b->call.what.at_elems);
        TRY(comm_all_reduce_begin(b->call.comm, all, all, b->call.elems, &ticket[i]));
    }
    for (int64_t i = 0; i < b->products; i++)
        TRY(dev_op(b->dev)->matmul_fwd(b->stream, &b->product));
    TRY(dev_sync(b->stream));
    for (int i = 0; i < b->calls; i++)
        TRY(comm_wait(b->call.comm, ticket[i]));
    return ST_OK;
}

static enum status time_both(const struct plan_machine *m, struct both *b, int calls,
                             double *seconds_out)
{
    b->calls = calls;
    TRY(measure_time_runs(&m->timer, run_both, b, 1, seconds_out, 1));
    return measure_ranks_max(m->config->comm, seconds_out, 1);
}

/* Returns the time of one of the calls as planned. */
static double planned_seconds(const struct plan_machine *m, const struct call *call)
{
    const struct plan_call planned = {.kind = PLAN_CALL_ALL_REDUCE,
                                      .ranks = m->ranks,
                                      .ranks_inside = m->cluster->locals,
                                      .bytes = (double)call->elems * sizeof(float)};
    return plan_time_call_ms(m->cluster, &planned) / 1e3;
}

/* Measures the share of the calls' time by which computation needs longer because of them. It runs
 * alternately without and with calls, so that other work of the machine is in both. */
static enum status measure_lost_ratios(const struct plan_machine *m, struct both *b,
                                       double ratio[TRIES])
{
    const double calls = planned_seconds(m, &b->call) * BESIDE;
    double alone, together;
    TRY(time_both(m, b, 0, &alone)); /* a first one may load kernels */
    TRY(time_both(m, b, 0, &alone));
    b->products = (int64_t)(3 * calls / alone) + 1;
    for (int i = 0; i < TRIES; i++) {
        TRY(time_both(m, b, 0, &alone));
        TRY(time_both(m, b, BESIDE, &together));
        ratio[i] = (together - alone) / calls;
    }
    return ST_OK;
}

bool plan_machine_link_overlap(double *ratio, int n, double *out)
{
    const double middle = quantile_median(ratio, n); /* sorts */
    const bool is_sure =
        quantile_of(ratio, n, 0.75) - quantile_of(ratio, n, 0.25) <= OVERLAP_SPREAD;
    const double most = is_sure ? OVERLAP_MOST : 1;
    *out = middle < 0 ? 0 : middle < most ? middle : most;
    return is_sure;
}

/* ---- all links ---- */

/* Measures the link between some ranks, with a separate comm for them. */
static enum status measure_group(struct plan_machine *m, struct plan_link *link, int first,
                                 int step, int n)
{
    struct comm *group = m->config->comm;
    const struct plan_call like = {.kind = PLAN_CALL_ALL_REDUCE,
                                   .ranks = n,
                                   .ranks_inside = link == &m->cluster->inside ? n : 1};
    if (n < m->ranks) {
        /* n ranks from `first` on, `step` apart. */
        int ranks[COMM_RANKS_MAX];
        for (int i = 0; i < n; i++)
            ranks[i] = first + i * step;
        TRY(comm_split(m->config->comm, ranks, n, &group));
    }
    enum status st = measure_sums(m, group, link, &like);
    if (n < m->ranks)
        comm_close(group);
    return st;
}

/* Measures inside, across and overlap_cost, after the device. */
static enum status measure_links(struct plan_machine *m)
{
    struct plan_cluster *c = m->cluster;
    if (m->ranks == 1)
        return ST_OK;
    const struct comm_place *place = comm_place(m->config->comm);
    if (place->locals > 1)
        TRY(measure_group(m, &c->inside, place->node * place->locals, 1, place->locals));
    if (place->nodes > 1)
        TRY(measure_group(m, &c->across, place->local, place->locals, place->nodes));
    /* On a CPU, more than the calls' own time may be lost: their thread alternates with computation
     * on a core, and uses some of the memory's bandwidth. */
    const int64_t n = 256, bytes = 3 * n * n * (int64_t)sizeof(float);
    struct measure_memory memory;
    struct both b = {.dev = m->config->dev, .stream = m->timer.stream, .products = 1};
    double ratio[TRIES];
    b.call = call_of(m, m->config->comm, BUS_COLLECTIVE_ALL_REDUCE, m->shared_bytes);
    /* Makes the calls as large as the budget has time for. The products need three times as long,
     * and each trial runs them once without and once with the calls. */
    b.call.elems = m->shared_bytes / BESIDE / 4096 * 4096 / (int64_t)sizeof(float);
    while (b.call.elems > OVERLAP_ELEMS_LEAST &&
           planned_seconds(m, &b.call) * BESIDE * (3 + 4) * TRIES > OVERLAP_SLICES * m->slice)
        b.call.elems /= 2;
    b.call.slots = m->shared_bytes / (int64_t)sizeof(float) / b.call.elems;
    TRY(measure_memory_open(&memory, b.dev, b.stream, bytes));
    const struct tensor x = {memory.data, DTYPE_F32};
    b.product = (struct matmul_fwd){
        .y = x, .x = tensor_at(x, n * n), .w = tensor_at(x, 2 * n * n), .n = n, .in = n, .out = n};
    enum status st = measure_memory_fill(&memory, DTYPE_F32);
    if (st == ST_OK)
        st = measure_lost_ratios(m, &b, ratio);
    measure_memory_close(&memory);
    if (st == ST_OK) {
        size_t len = strlen(m->cluster->source);
        if (!plan_machine_link_overlap(ratio, TRIES, &m->cluster->overlap_cost))
            text_format(m->cluster->source + len, sizeof m->cluster->source - len,
                        "; overlap_cost could not be measured: %.2f to %.2f",
                        quantile_of(ratio, TRIES, 0.25), quantile_of(ratio, TRIES, 0.75));
    }
    return st;
}

/* ---- the additional time of a step ---- */

#define STEP_TOKENS 16
#define STEP_RUNS 10

/* Plans the step of the first rank; the others do the same. */
static enum status planned_step(const struct plan_machine *m, const struct step_config *config,
                                double *seconds_out)
{
    struct trainer_config trainer = {.step = *config};
    const struct memory_plan_place place = {
        .at = {.ranks = m->ranks, .nodes = m->cluster->nodes, .locals = m->cluster->locals},
        .is_discrete = m->cluster->is_gpu,
        .stays_on_device = m->ranks > 1 && comm_stays_on_device(m->config->comm)};
    enum plan_precision precision = m->dtype != DTYPE_F32 ? PLAN_PRECISION_BF16
                                    : m->info.is_tf32     ? PLAN_PRECISION_TF32
                                                          : PLAN_PRECISION_F32;
    struct plan_ops ops;
    struct plan_time time;
    TRY(plan_ops_make(&trainer, &place, &ops));
    plan_time_make(&ops, 1, precision, m->cluster, 0, &time);
    plan_ops_free(&ops);
    *seconds_out = time.step_ms / 1e3;
    return ST_OK;
}

struct steps {
    struct step *step;
    struct batch batch;
    int64_t step_i;
};

static enum status run_step(void *arg)
{
    struct steps *s = arg;
    struct step_result result;
    const int64_t i = s->step_i++;
    return step_run_batch(s->step, &s->batch, i, i, 1e-3, false, &result);
}

static enum status measure_step(struct plan_machine *m)
{
    const struct measure_timer timer = {.comm = NULL}; /* steps wait for each other themselves */
    struct step_config config = (struct step_config){
        .dev = m->config->dev,
        .comm = m->config->comm,
        .batch_samples = 1,
        .global_samples = m->ranks,
        .seq_tokens = STEP_TOKENS,
        .store.dtype = m->dtype,
        .dims = {.name = "tiny",
                 .layers = 1,
                 .heads = 1,
                 .embed = 32,
                 .context = STEP_TOKENS,
                 .vocab = 64},
        .optim = {
            .kind = OPTIM_KIND_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .grad_clip = 1}};
    struct steps steps = {.step = NULL};
    double seconds[2], planned = 0; /* the first ones warm up */
    enum status st;
    TRY_OR(step_open(&config, &steps.step), out_close);
    TRY_OR(batch_init(&steps.batch, FEED_TASK_LM, 1, STEP_TOKENS), out_close);
    TRY_OR(measure_time_runs(&timer, run_step, &steps, STEP_RUNS, seconds, 2), out_close);
    TRY_OR(measure_ranks_max(m->config->comm, &seconds[1], 1), out_close);
    TRY_OR(planned_step(m, &config, &planned), out_close);
    const double step_s = seconds[1] / STEP_RUNS;
    m->cluster->step_us = step_s > planned ? (step_s - planned) * 1e6 : 0;
out_close:
    step_close(steps.step);
    batch_free(&steps.batch);
    return st;
}

/* ---- all ---- */

static void init_cluster(struct plan_machine *m)
{
    struct plan_cluster *c = m->cluster;
    const struct plan_machine_config *config = m->config;
    *c = (struct plan_cluster){.is_gpu = dev_is_discrete(config->dev),
                               .nodes = 1,
                               .locals = 1,
                               .threads_n = m->info.threads_n,
                               .cores = dev_is_discrete(config->dev) ? 0 : thread_pool_cores(),
                               .memory_bytes = (double)m->info.memory_bytes,
                               .disk_bytes_per_second = config->disk_bytes_per_second};
    if (config->comm) {
        c->nodes = comm_place(config->comm)->nodes;
        c->locals = comm_place(config->comm)->locals;
    }
    m->ranks = c->nodes * c->locals;
    m->timer.comm = m->ranks > 1 ? config->comm : NULL;
    m->shares_cores = plan_time_shares_cores(c, c->locals);
    m->dtype = c->is_gpu ? DTYPE_BF16 : DTYPE_F32;
    m->slice = (double)config->budget_ms / 1e3 / MEASUREMENTS / SLICES;
    text_format(c->name, sizeof c->name, "%s", config->name);
    text_format(c->source, sizeof c->source, "measured: %s, %d worker%s of a node", m->info.name,
                c->locals, c->locals == 1 ? "" : "s");
}

enum status plan_machine_measure(const struct plan_machine_config *config, struct plan_cluster *out)
{
    struct plan_cluster cluster;
    struct plan_machine m = {.config = config, .cluster = &cluster};
    dev_info(config->dev, &m.info);
    init_cluster(&m);
    TRY(dev_stream_open(config->dev, &m.timer.stream));
    enum status st = plan_machine_device(&m);
    if (st == ST_OK)
        st = measure_links(&m);
    if (st == ST_OK)
        st = measure_step(&m);
    dev_stream_close(m.timer.stream);
    if (st == ST_OK)
        *out = cluster;
    return st;
}

/* plan_machine — see plan_machine.h. */
#include "plan/plan_machine.h"

#include "base/thread_pool.h"
#include "measure/measure_ranks.h"
#include "plan/plan_machine_inside.h"
#include "plan/plan_time.h"

#define MEASUREMENTS 46 /* about as many are made, of several slices each */
#define SLICES 11.0

/* ---- what a step takes besides ---- */

#define STEP_TOKENS 16
#define STEP_RUNS 10

/* tiny — a model whose operations take next to nothing. */
static struct step_config tiny(const struct plan_machine *m)
{
    return (struct step_config){
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
}

/* planned_step — of the first rank; the others do the same. */
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
    struct step_config config = tiny(m);
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

static void begin(struct plan_machine *m)
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

enum status plan_machine_time(const struct plan_machine *m, measure_work *work, void *arg,
                              double *seconds_out)
{
    return measure_time_together(&m->timer, m->slice, m->shares_cores, work, arg, seconds_out);
}

enum status plan_machine_measure(const struct plan_machine_config *config, struct plan_cluster *out)
{
    struct plan_cluster cluster;
    struct plan_machine m = {.config = config, .cluster = &cluster};
    dev_info(config->dev, &m.info);
    begin(&m);
    TRY(dev_stream_open(config->dev, &m.timer.stream));
    enum status st = plan_machine_device(&m);
    if (st == ST_OK)
        st = plan_machine_link(&m);
    if (st == ST_OK)
        st = measure_step(&m);
    dev_stream_close(m.timer.stream);
    if (st == ST_OK)
        *out = cluster;
    return st;
}

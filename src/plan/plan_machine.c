/* plan_machine — see plan_machine.h. */
#include "plan/plan_machine.h"

#include "base/clock.h"
#include "base/thread_pool.h"
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

static enum status run_steps(struct step *step, const struct batch *batch, double *seconds_out)
{
    struct step_result result;
    int64_t begin = clock_ns();
    for (int i = 0; i < 2 * STEP_RUNS; i++) {
        if (i == STEP_RUNS) /* the first half is warming up */
            begin = clock_ns();
        TRY(step_run_batch(step, batch, i, i, 1e-3, false, &result));
    }
    *seconds_out = (double)(clock_ns() - begin) * 1e-9 / STEP_RUNS;
    return ST_OK;
}

static enum status measure_step(struct plan_machine *m)
{
    struct step_config config = tiny(m);
    struct step *step = NULL;
    struct batch batch = {0};
    double seconds = 0, planned = 0;
    enum status st;
    TRY_OR(step_open(&config, &step), out_close);
    TRY_OR(batch_init(&batch, FEED_TASK_LM, 1, STEP_TOKENS), out_close);
    TRY_OR(run_steps(step, &batch, &seconds), out_close);
    TRY_OR(plan_machine_time_largest(m, &seconds), out_close);
    TRY_OR(planned_step(m, &config, &planned), out_close);
    m->cluster->step_us = seconds > planned ? (seconds - planned) * 1e6 : 0;
out_close:
    step_close(step);
    batch_free(&batch);
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
    m->rank = config->comm ? comm_place(config->comm)->rank : 0;
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
    begin(&m);
    TRY(dev_stream_open(config->dev, &m.stream));
    enum status st = plan_machine_device(&m);
    if (st == ST_OK)
        st = plan_machine_link(&m);
    if (st == ST_OK)
        st = measure_step(&m);
    dev_stream_close(m.stream);
    if (st == ST_OK)
        *out = cluster;
    return st;
}

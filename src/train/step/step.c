/* step — life and state of a step (step.h). Memory is step/memory.c, the update step/update.c,
 * evaluation step/eval.c. The store allocates parameters, gradients and moments
 * (mesh/store/store.h). */
#include "train/step/step.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "mesh/store/state.h"
#include "train/step/inside.h"
#include "train/step/pipe.h"
#include "train/step/lr_schedule.h"

/* ---- initial values: a range of a tensor on each thread ----
 *
 * The pool is its own: the device's belongs to the device. */

#define FILL_RANGE ((int64_t)1 << 16)
#define FILL_RANGES 32

struct fill {
    const struct param_table *table;
    uint64_t seed;
    int param;
    int64_t first, n;
    float *out;
};

static void fill_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct fill *f = arg;
    int64_t at = range_i * FILL_RANGE, n = f->n - at < FILL_RANGE ? f->n - at : FILL_RANGE;
    param_fill(f->table, f->param, f->seed, f->first + at, n, f->out + at);
}

static enum status fill_row(struct step *s, struct thread_pool *pool, int row, float *buffer)
{
    const struct param *p = &s->core.table.param[row];
    for (int64_t first = 0; first < p->elems; first += FILL_RANGES * FILL_RANGE) {
        struct fill f = {.table = &s->core.table,
                         .seed = s->core.config.seed,
                         .param = row,
                         .first = first,
                         .n = p->elems - first,
                         .out = buffer};
        if (f.n > FILL_RANGES * FILL_RANGE)
            f.n = FILL_RANGES * FILL_RANGE;
        if (!store_holds(s->core.store, 0, p->offset + first, f.n))
            continue;
        thread_pool_run(pool, (int)((f.n + FILL_RANGE - 1) / FILL_RANGE), fill_range, &f);
        TRY(state_write(store_state(s->core.store), 0, p->offset + first, f.n, buffer));
        step_heartbeat(&s->core);
    }
    return ST_OK;
}

static enum status fill_params(struct step *s)
{
    enum status st = ST_OK;
    struct thread_pool *pool = NULL;
    float *buffer = memory_new(FILL_RANGES * FILL_RANGE, sizeof *buffer);
    TRY_OR(thread_pool_open(thread_pool_cores() < THREAD_POOL_MAX ? thread_pool_cores()
                                                                  : THREAD_POOL_MAX,
                            &pool),
           out_buffer);
    for (int row = 0; st == ST_OK && row < s->core.table.params_n; row++)
        st = fill_row(s, pool, row, buffer);
    thread_pool_close(pool);
out_buffer:
    free(buffer);
    return st;
}

/* ---- functions that all files of a step use ---- */

struct step_core *step_core(const struct step *s) { return &s->core.step->core; }

struct comm *step_world(const struct step_core *s)
{
    return s->local.world ? s->local.world : s->config.comm;
}

enum feed_task step_task(const struct step_core *s)
{
    return s->config.dims.task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA;
}

int64_t step_sample_losses(const struct step_core *s)
{
    return s->config.dims.task == MODEL_TASK_LM ? s->own_tokens : 2;
}

void step_heartbeat(const struct step_core *s)
{
    if (s->config.heartbeat)
        s->config.heartbeat(s->config.heartbeat_arg);
}

double step_loss_factor(const struct step *s)
{
    return s->loss_scale.factor > 0 ? s->loss_scale.factor : 1;
}

double step_grad_clip(const struct step *s)
{
    double clip = s->core.config.optim.grad_clip;
    return s->loss_scale.factor > 0 ? clip : (double)(float)clip;
}

void step_feature_add(struct step_core *s, const struct step_feature *hooks, void *self)
{
    struct step *step = s->step;
    ASSERTF(step->features_n < STEP_FEATURES_MAX, "%s", hooks->name);
    step->feature[step->features_n].hooks = hooks;
    step->feature[step->features_n++].self = self;
}

void *step_feature_find(const struct step *s, const struct step_feature *hooks)
{
    for (int i = 0; i < s->features_n; i++)
        if (s->feature[i].hooks == hooks)
            return s->feature[i].self;
    return NULL;
}

struct step_loss_scale *step_loss_scale_of(struct step *s) { return &s->loss_scale; }

/* The features in the order of their hooks. The loss scale is first, because a step that is
 * repeated is not compared. Shards are compared before their gradients are added, and before the
 * passes are timed; replicas agree on numbers before spikes are looked for. */
static enum status (*const features[])(struct step_core *s) = {
    step_loss_scale_add, step_update_sums_add, step_shard_check_add, step_shards_add,
    step_balance_add,    step_local_add,       step_spikes_add,
};

static enum status open_features(struct step_core *s)
{
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        TRY(features[i](s));
    if (s->config.feature)
        step_feature_add(s, s->config.feature, s->config.feature_arg);
    return ST_OK;
}

static void close_features(struct step *s)
{
    for (int i = 0; i < s->features_n; i++)
        if (s->feature[i].hooks->close)
            s->feature[i].hooks->close(s->feature[i].self);
}

/* ---- life ---- */

static enum status check_config(const struct step_config *c, const struct mesh *mesh)
{
    const int ranks = mesh->size[MESH_AXIS_DATA];
    TRY(model_check(&c->dims));
    ASSERTF(c->batch_samples > 0 && c->global_samples > 0 &&
                (c->shards > 0 || (c->global_samples % c->batch_samples == 0 &&
                                   c->global_samples / c->batch_samples >= ranks)),
            "batch_samples %lld global_samples %lld data ranks %d", (long long)c->batch_samples,
            (long long)c->global_samples, ranks);
    if (c->seq_tokens < 1 || c->seq_tokens > c->dims.context)
        return FAIL(ST_BAD_SETTING, "SEQ_LEN=%lld is outside 1 … CONTEXT=%lld; lower it",
                    (long long)c->seq_tokens, (long long)c->dims.context);
    int64_t elems,
        widths = c->dims.embed + model_ffn(&c->dims) + c->dims.heads * model_head_dim(&c->dims);
    if (__builtin_mul_overflow(c->global_samples, c->seq_tokens, &elems) ||
        __builtin_mul_overflow(elems, 64 * widths, &elems))
        return FAIL(ST_BAD_SETTING,
                    "GLOBAL_BATCH=%lld with SEQ_LEN=%lld is too large to address; lower it",
                    (long long)c->global_samples, (long long)c->seq_tokens);
    return ST_OK;
}

/* open_graphs — lets a step on a GPU record its work as CUDA graphs (dev_graph_begin). */
static enum status open_graphs(struct step *s)
{
    const struct step_config *c = &s->core.config;
    if (!dev_is_discrete(c->dev) && c->is_timed)
        LOG_WARN("CUDA_TIMES=1 has no effect on a CPU; set DEVICE=cuda or hip");
    if (!dev_is_discrete(c->dev) || c->is_eval)
        return ST_OK;
    if (!c->is_eager)
        return dev_graph_begin(s->core.stream);
    if (comm_place(c->comm)->rank != 0)
        return ST_OK;
    LOG_INFO("%s: the GPU gets operations one by one, not as graphs",
             c->is_timed ? "CUDA_TIMES=1" : "CUDA_GRAPH=off");
    return c->is_timed ? dev_times_begin(s->core.stream) : ST_OK;
}

/* open_local — changes the config to this rank's replica, for all later code. */
static enum status open_local(struct step *s)
{
    const struct comm *comm = s->core.config.comm;
    struct step_place place = {.rank = comm ? comm_place(comm)->rank : 0,
                               .ranks = comm ? comm_place(comm)->ranks : 1};
    TRY(step_local_place(&s->core, &place));
    return step_local_open(&s->core);
}

static enum status open_all(struct step *s)
{
    const struct step_config *c = &s->core.config;
    TRY(open_local(s));
    TRY(step_mesh_open(&s->core));
    TRY(check_config(c, &s->core.mesh.mesh));
    struct step_place place = step_place_of(s);
    s->async.is_on = step_async_is_possible(c, &place);
    TRY(step_mesh_describe(&s->core, place.is_discrete));
    TRY(step_mesh_open_axes(&s->core));
    step_update_open(s);
    TRY(dev_stream_open(c->dev, &s->core.stream));
    TRY(open_graphs(s));
    /* with virtual shards a product has the same multiprocessors on any number of ranks */
    if (c->comm_sms > 0 && (c->shards > 0 || comm_stays_on_device(c->comm)))
        TRY(dev_leave_sms(s->core.stream, c->comm_sms));
    struct store_config config = step_store_config(s);
    TRY(store_open(&config, &s->core.store));
    TRY(step_mesh_open_state(&s->core));
    TRY(open_features(&s->core));
    TRY(step_memory_alloc(s));
    TRY(step_local_alloc(&s->core));
    TRY(step_pipe_open(&s->core));
    TRY(batch_init(&s->batch, step_task(&s->core), s->core.samples, c->seq_tokens));
    if (step_has_first_key(c))
        TRY(batch_add_documents(&s->batch));
    if (step_has_positions(c))
        TRY(batch_add_positions(&s->batch));
    TRY(step_context_batch_open(&s->core, s->core.samples, &s->own));
    step_end_open(s);
    TRY(step_async_open(s));
    TRY(step_memory_check(s));
    step_memory_log(s);
    if (c->is_loaded)
        return ST_OK;
    TRY(fill_params(s));
    return step_local_sync_fill(&s->core);
}

enum status step_open(const struct step_config *config, struct step **out)
{
    struct step *s = memory_new(1, sizeof *s);
    s->core.step = s;
    s->core.config = *config;
    enum status st = open_all(s);
    if (st == ST_OK)
        *out = s;
    else
        step_close(s);
    return st;
}

void step_close(struct step *s)
{
    if (!s)
        return;
    step_pipe_quiesce(&s->core);
    if (s->core.store)
        store_quiesce(s->core.store); /* freeing memory of a GPU waits for its work */
    for (int i = 0; i < STEP_ARENA_N; i++)
        dev_free(s->core.config.dev, s->arena[i].base, s->arena[i].cap_bytes);
    store_close(s->core.store);
    step_async_close(s);
    close_features(s);
    model_plan_free(s->acts);
    dev_stream_close(s->core.stream);
    dev_event_free(s->async.results_ready);
    step_pipe_close(&s->core);
    batch_free(&s->batch);
    batch_free(&s->own);
    step_mesh_forget(&s->core);
    dev_unpin(s->core.config.dev, s->async.grad_scale_host); /* and losses_host */
    step_update_close(s);
    step_end_close(s);
    step_mesh_close(&s->core);
    step_local_close(&s->core);
    free(s);
}

/* ---- the state of training ---- */

const char *const step_array_names[STEP_ARRAYS_MAX] = {"parameters", "first moments",
                                                       "second moments"};

int step_arrays(const struct step *s)
{
    return s->core.config.is_eval ? 1 : 1 + optim_moments(&s->core.config.optim);
}
const struct param_table *step_whole_table(const struct step *s)
{
    return s->core.has_whole ? &s->core.whole : &s->core.table;
}
const struct param_table *step_own_table(const struct step *s) { return &s->core.table; }
struct tensor step_grads(const struct step *s) { return store_grads(s->core.store); }
const struct batch *step_batch(const struct step *s) { return &s->batch; }
struct stream *step_stream(const struct step *s) { return s->core.stream; }

const struct state *step_state(const struct step *s) { return &s->core.state; }

const struct param_table *step_frozen_table(const struct step *s)
{
    return s->core.has_whole ? &s->core.frozen.whole : &s->core.frozen.table;
}
const struct state *step_frozen_state(const struct step *s) { return &s->core.frozen.state; }

struct tensor step_tensor(const struct step *s, int array)
{
    const struct state_array p = state_describe(store_state(s->core.store), array, 0);
    ASSERTF(p.here, "array %d does not lie whole on a rank", array);
    return (struct tensor){p.here, DTYPE_F32};
}

float *step_array(struct step *s, int array) { return step_tensor(s, array).data; }

enum status step_drain(struct step *s) { return store_drain(s->core.store); }

enum status step_flip(struct step *s, int bit, struct store_flip *out)
{
    return store_params_flip(s->core.store, bit, out);
}

void step_vote(struct step *s, int vote)
{
    ASSERTF(vote >= 0 && vote < STEP_VOTES, "vote %d", vote);
    s->vote = vote;
}

double step_flops(const struct step *s, int64_t samples)
{
    const int64_t t = s->core.config.seq_tokens;
    return model_flops_per_token(&s->core.config.dims, t) * (double)(samples * t);
}

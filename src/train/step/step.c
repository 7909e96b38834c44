/* step — memory and state of a step (step.h). The update is step/run.c, evaluation step/eval.c.
 *
 * The store allocates parameters, gradients and moments (mesh/store/store.h). Three arenas
 * (activations, scratch, inputs) are measured by running plan() without memory, allocated whole,
 * divided by the same plan(), and sealed. That the plan equals what was taken is asserted. */
#include "train/step/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "kernels/cuda.h"
#include "mesh/store/state.h"
#include "train/step/inside.h"
#include "train/step/pipe.h"
#include "train/feature/step_update_sums.h"

int64_t step_sample_losses(const struct step *s)
{
    return s->config.dims.task == MODEL_TASK_LM ? s->own_tokens : 2;
}

double step_grad_clip(const struct step *s)
{
    double clip = s->config.optim.grad_clip;
    return s->loss_scale.factor > 0 ? clip : (double)(float)clip;
}

/* ---- memory ---- */

static struct tensor take(struct arena *a, int64_t elems, enum dtype dtype)
{
    return (struct tensor){arena_take(a, (size_t)elems * dtype_bytes(dtype)), dtype};
}

enum status step_plan_arenas(struct step *s, struct arena arena[STEP_ARENA_N])
{
    const struct step_config *c = &s->config;
    int64_t b = c->batch_samples, n = b * s->own_tokens, all = b * c->seq_tokens;
    struct arena *input = &arena[STEP_ARENA_INPUT];
    s->grad_scale = take(input, 2, DTYPE_F64);
    s->loss_sum = take(input, 1, DTYPE_F64);
    s->losses = take(input, b * step_sample_losses(s), DTYPE_F32);
    s->tokens = take(input, n, DTYPE_I32);
    if (!c->is_eval && step_mesh_partial_elems(s) > 0)
        s->partial = take(input, step_mesh_partial_elems(s), DTYPE_F32);
    if (!c->is_eval && c->optim.kind == OPTIM_KIND_MUON)
        s->muon = muon_take(input, &s->table);
    s->logits = take(input, c->dims.task == MODEL_TASK_LM ? c->dims.vocab : 2 * all, DTYPE_F32);
    if (c->dims.task == MODEL_TASK_LM) {
        s->targets = take(input, n, DTYPE_I32);
        if (step_has_first_key(c))
            s->first_key = take(input, all, DTYPE_I32);
    } else {
        s->mask = take(input, all, DTYPE_U8);
        s->starts = take(input, b, DTYPE_I32);
        s->ends = take(input, b, DTYPE_I32);
    }
    if (s->pipe)
        return step_pipe_plan(s, arena);
    model_plan_free(s->acts);
    s->acts = NULL;
    return model_plan(&s->dims, b, s->own_tokens, c->recompute, !c->is_eval, c->store.dtype,
                      &arena[STEP_ARENA_ACTS], &arena[STEP_ARENA_SCRATCH], &s->acts);
}

void step_heartbeat(const struct step *s)
{
    if (s->config.heartbeat)
        s->config.heartbeat(s->config.heartbeat_arg);
}

static enum status take_memory(struct step *s)
{
    static const char *const name[STEP_ARENA_N] = {"acts", "scratch", "input"};
    struct arena planned[STEP_ARENA_N];
    for (int i = 0; i < STEP_ARENA_N; i++)
        arena_init(&planned[i], name[i], NULL, 0);
    TRY(step_plan_arenas(s, planned));
    for (int i = 0; i < STEP_ARENA_N; i++) {
        void *base = NULL;
        if (planned[i].used_bytes > 0)
            TRY(dev_alloc(s->config.dev, planned[i].used_bytes, &base));
        arena_init(&s->arena[i], name[i], base, planned[i].used_bytes);
        step_heartbeat(s);
    }
    TRY(step_plan_arenas(s, s->arena));
    for (int i = 0; i < STEP_ARENA_N; i++) {
        ASSERTF(s->arena[i].used_bytes == planned[i].used_bytes, "arena %s: planned %zu taken %zu",
                name[i], planned[i].used_bytes, s->arena[i].used_bytes);
        arena_seal(&s->arena[i]);
    }
    return ST_OK;
}

/* ---- figures of memory ---- */

/* batch_bytes_of — of the samples of a step, in host memory. */
static int64_t batch_bytes_of(const struct step *s)
{
    const struct step_config *c = &s->config;
    int64_t documents =
        step_has_first_key(c) ? batch_documents_bytes(s->samples, c->seq_tokens) : 0;
    return batch_bytes(step_task(s), s->samples, c->seq_tokens) + documents +
           step_context_bytes(s) + step_shard_check_bytes(s);
}

struct step_memory step_memory(const struct step *s)
{
    struct dev_info info;
    dev_info(s->config.dev, &info);
    struct step_memory m = {.scratch = info.scratch_bytes,
                            .store = store_memory(s->store),
                            .activations = (int64_t)s->arena[STEP_ARENA_ACTS].cap_bytes,
                            .gathered = step_async_memory(s),
                            .readback = s->readback_bytes + step_async_memory(s),
                            .outer = step_local_bytes(s),
                            .batch = batch_bytes_of(s)};
    for (int i = 0; i < STEP_ARENA_N; i++)
        m.passes += s->arena[i].base ? (int64_t)s->arena[i].cap_bytes
                                     : 0; /* a step that only measures has no memory */
    return m;
}

int64_t step_memory_bytes(const struct step *s)
{
    return store_memory_bytes(s->store) + step_memory(s).passes;
}

/* text_held — "; the process holds …", and of a GPU what this process took of it: buffers and
 * kernel scratch, without CUDA's own. "" where that is not known. */
static void text_held(const struct step *s, char *out, size_t cap)
{
    struct memory now = {0};
    struct dev_info info;
    char host[32], device[32];
    int64_t held_bytes = memory_resident(&now, 1);
    out[0] = 0;
    if (held_bytes < 0) /* no /proc */
        return;
    dev_info(s->config.dev, &info);
    text_format(out, cap, "; the process holds %s%s%s",
                text_format_bytes(host, sizeof(host), (double)held_bytes),
                info.taken_bytes < 0 ? "" : ", and of its GPU ",
                info.taken_bytes < 0
                    ? ""
                    : text_format_bytes(device, sizeof(device), (double)info.taken_bytes));
}

/* log_memory — once for all ranks: the memory of a rank, as it was planned. */
static void log_memory(const struct step *s)
{
    const struct comm_place *place = comm_place(s->config.comm);
    struct step_memory m = step_memory(s);
    char word[7][32], held[112];
    bool is_discrete = dev_is_discrete(s->config.dev);
    if (place->rank != 0 || (place->ranks == 1 && !is_discrete))
        return;
    text_held(s, held, sizeof(held));
    LOG_INFO("memory of a rank, planned and taken: parameters %s, gradients %s, moments %s, "
             "unsharded buffers %s, compression %s, passes %s, kernel scratch %s%s",
             text_format_bytes(word[0], 32, (double)m.store.params),
             text_format_bytes(word[1], 32, (double)m.store.grads),
             text_format_bytes(word[2], 32, (double)m.store.moments),
             text_format_bytes(word[3], 32, (double)m.store.unsharded),
             text_format_bytes(word[4], 32, (double)m.store.residuals),
             text_format_bytes(word[5], 32, (double)m.passes),
             text_format_bytes(word[6], 32, (double)m.scratch), held);
}

/* ---- initial values: a part of a tensor on each thread ----
 *
 * The pool is its own: the device's belongs to the device. */

#define FILL_PART ((int64_t)1 << 16)
#define FILL_PARTS 32

struct fill {
    const struct param_table *table;
    uint64_t seed;
    int param;
    int64_t first, n;
    float *out;
};

static void fill_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct fill *f = arg;
    int64_t at = part_i * FILL_PART, n = f->n - at < FILL_PART ? f->n - at : FILL_PART;
    param_fill(f->table, f->param, f->seed, f->first + at, n, f->out + at);
}

static enum status fill_row(struct step *s, struct thread_pool *pool, int row, float *buffer)
{
    const struct param *p = &s->table.param[row];
    for (int64_t first = 0; first < p->elems; first += FILL_PARTS * FILL_PART) {
        struct fill f = {.table = &s->table,
                         .seed = s->config.seed,
                         .param = row,
                         .first = first,
                         .n = p->elems - first,
                         .out = buffer};
        if (f.n > FILL_PARTS * FILL_PART)
            f.n = FILL_PARTS * FILL_PART;
        if (!store_holds(s->store, 0, p->offset + first, f.n))
            continue;
        thread_pool_run(pool, (int)((f.n + FILL_PART - 1) / FILL_PART), fill_part, &f);
        TRY(state_write(store_state(s->store), 0, p->offset + first, f.n, buffer));
        step_heartbeat(s);
    }
    return ST_OK;
}

static enum status fill_params(struct step *s)
{
    enum status st = ST_OK;
    struct thread_pool *pool = NULL;
    float *buffer = memory_new(FILL_PARTS * FILL_PART, sizeof *buffer);
    TRY_OR(thread_pool_open(thread_pool_cores() < THREAD_POOL_MAX ? thread_pool_cores()
                                                                  : THREAD_POOL_MAX,
                            &pool),
           out_buffer);
    for (int row = 0; st == ST_OK && row < s->table.params_n; row++)
        st = fill_row(s, pool, row, buffer);
    thread_pool_close(pool);
out_buffer:
    free(buffer);
    return st;
}

/* ---- life ---- */

static enum status check_config(const struct step_config *c, const struct mesh *mesh)
{
    const int ranks = mesh->size[MESH_AXIS_DATA];
    TRY(model_check(&c->dims));
    ASSERTF(c->batch_samples > 0 && c->global_samples > 0 &&
                (c->shards > 0 || (c->global_samples % ranks == 0 &&
                                   c->global_samples / ranks % c->batch_samples == 0)),
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

struct store_config step_store_config(struct step *s)
{
    const struct step_config *c = &s->config;
    struct store_settings settings = c->store;
    /* another stage may hold a part of the embedding's gradient, or another rank tokens of the
     * same samples */
    if (s->pipe || step_mesh_context_ranks(s) > 1)
        settings.has_whole_embed = true;
    return (struct store_config){.dev = c->dev,
                                 .stream = s->stream,
                                 .comm = step_mesh_data(s),
                                 .world = c->comm,
                                 .table = &s->table,
                                 .whole = step_whole_table(s),
                                 .settings = settings,
                                 .shards = c->shards,
                                 .exact = step_mesh_exact(s),
                                 .deals_shards = c->balances,
                                 .has_grads = !c->is_eval,
                                 .accumulates = s->samples > c->batch_samples,
                                 .moments_n = step_parts(s) - 1,
                                 .skips_hidden_second = c->optim.kind == OPTIM_KIND_MUON,
                                 .updates_together = c->optim.kind == OPTIM_KIND_MUON,
                                 .pass_tokens = c->batch_samples * s->own_tokens,
                                 .heartbeat = c->heartbeat,
                                 .heartbeat_arg = c->heartbeat_arg,
                                 .update = step_run_update,
                                 .update_arg = s};
}

static int64_t readback_bytes(const struct step *s)
{
    return (int64_t)(2 * sizeof *s->grad_scale_host) +
           s->samples * step_sample_losses(s) * (int64_t)sizeof *s->losses_host;
}

/* plan_memory — measures the store and the arenas of a step without memory. */
static enum status plan_memory(struct step *s, const struct step_place *place,
                               struct step_memory *out)
{
    struct arena measured[STEP_ARENA_N];
    struct step_memory m = {.store = {0}};
    struct store_config store = step_store_config(s);
    TRY(store_plan(&store, step_mesh_store_rank(s), step_mesh_store_ranks(s), place->is_discrete,
                   &m.store));
    for (int i = 0; i < STEP_ARENA_N; i++)
        arena_init(&measured[i], "measured", NULL, 0);
    TRY(step_plan_arenas(s, measured));
    m.activations = (int64_t)measured[STEP_ARENA_ACTS].used_bytes;
    for (int i = 0; i < STEP_ARENA_N; i++)
        m.passes += (int64_t)measured[i].used_bytes;
    m.batch = batch_bytes_of(s);
    m.scratch = place->is_discrete ? (int64_t)CUDA_SCRATCH_BYTES : 0;
    m.gathered = step_async_plan(s, place);
    m.readback = readback_bytes(s) + m.gathered;
    m.outer = step_local_plan(s);
    *out = m;
    return ST_OK;
}

enum status step_plan(const struct step_config *config, const struct step_place *place,
                      struct step_memory *out)
{
    struct step s = {.config = *config};
    struct step_place inside = *place;
    enum status st = model_check(&config->dims);
    if (st == ST_OK)
        st = step_local_place(&s, &inside);
    if (st == ST_OK)
        st = step_mesh_place(&s, inside.rank, inside.ranks);
    if (st == ST_OK)
        st = step_mesh_describe(&s, inside.is_discrete);
    if (st == ST_OK)
        st = plan_memory(&s, &inside, out);
    step_pipe_close(&s);
    model_plan_free(s.acts);
    step_mesh_forget(&s);
    return st;
}

static struct step_place place_of(const struct step *s)
{
    const struct comm_place *at = comm_place(s->config.comm);
    return (struct step_place){.rank = at->rank,
                               .ranks = at->ranks,
                               .is_discrete = dev_is_discrete(s->config.dev),
                               .stays_on_device = comm_stays_on_device(s->config.comm)};
}

/* check_plan — asserts that what was taken is what was planned. */
static enum status check_plan(const struct step *s)
{
    struct step_place place = place_of(s);
    struct step_config config;
    struct step_memory planned, taken = step_memory(s);
    step_local_outside(s, &config, &place);
    TRY(step_plan(&config, &place, &planned));
    ASSERTF(memcmp(&planned, &taken, sizeof planned) == 0,
            "planned passes %lld params %lld readback %lld, taken %lld %lld %lld",
            (long long)planned.passes, (long long)planned.store.params, (long long)planned.readback,
            (long long)taken.passes, (long long)taken.store.params, (long long)taken.readback);
    return ST_OK;
}

/* open_graphs — a step on a GPU records its work as CUDA graphs (dev_graph_begin). */
static enum status open_graphs(struct step *s)
{
    const struct step_config *c = &s->config;
    if (!dev_is_discrete(c->dev) && c->is_timed)
        LOG_WARN("CUDA_TIMES=1 has no effect on a CPU; set DEVICE=cuda");
    if (!dev_is_discrete(c->dev) || c->is_eval)
        return ST_OK;
    if (!c->is_eager)
        return dev_graph_begin(s->stream);
    if (comm_place(c->comm)->rank != 0)
        return ST_OK;
    LOG_INFO("%s: the GPU gets operations one by one, not as CUDA graphs",
             c->is_timed ? "CUDA_TIMES=1" : "CUDA_GRAPH=off");
    return c->is_timed ? dev_times_begin(s->stream) : ST_OK;
}

/* take_readback — pinned host memory for what comes back in every step, so that it is copied
 * directly. */
static enum status take_readback(struct step *s)
{
    int64_t bytes = readback_bytes(s);
    void *data = NULL;
    TRY(dev_pin(s->config.dev, (size_t)bytes, &data));
    memset(data, 0, (size_t)bytes);
    s->readback_bytes = bytes;
    s->grad_scale_host = data;
    s->losses_host = (float *)(void *)(s->grad_scale_host + 2);
    return ST_OK;
}

/* open_local — from here on the config is that of this rank's replica. */
static enum status open_local(struct step *s)
{
    const struct comm *comm = s->config.comm;
    struct step_place place = {.rank = comm ? comm_place(comm)->rank : 0,
                               .ranks = comm ? comm_place(comm)->ranks : 1};
    TRY(step_local_place(s, &place));
    return step_local_open(s);
}

static enum status open_all(struct step *s)
{
    const struct step_config *c = &s->config;
    TRY(open_local(s));
    TRY(step_mesh_open(s));
    TRY(check_config(c, &s->mesh.mesh));
    s->loss_scale.factor = c->store.dtype == DTYPE_F16 ? STEP_LOSS_SCALE_INIT : 0;
    struct step_place place = place_of(s);
    s->is_async = step_async_takes(c, &place);
    TRY(step_mesh_describe(s, place.is_discrete));
    TRY(step_shards_open(s));
    TRY(step_shard_check_open(s));
    TRY(step_mesh_open_axes(s));
    s->spans = optim_spans(&s->table, &c->optim, &s->spans_n);
    s->cut = memory_new((size_t)s->spans_n + 1, sizeof *s->cut);
    TRY(dev_stream_open(c->dev, &s->stream));
    TRY(open_graphs(s));
    if (c->comm_sms > 0 && comm_stays_on_device(c->comm))
        TRY(dev_leave_sms(s->stream, c->comm_sms));
    struct store_config config = step_store_config(s);
    TRY(store_open(&config, &s->store));
    TRY(step_mesh_open_state(s));
    step_update_sums_open(s);
    TRY(take_memory(s));
    TRY(step_local_take(s));
    TRY(step_pipe_open(s));
    TRY(batch_init(&s->batch, step_task(s), s->samples, c->seq_tokens));
    if (step_has_first_key(c))
        TRY(batch_add_documents(&s->batch));
    TRY(step_context_open(s));
    TRY(take_readback(s));
    TRY(step_async_open(s));
    TRY(check_plan(s));
    log_memory(s);
    if (c->is_loaded)
        return ST_OK;
    TRY(fill_params(s));
    return step_local_sync_fill(s);
}

enum status step_open(const struct step_config *config, struct step **out)
{
    struct step *s = memory_new(1, sizeof *s);
    s->config = *config;
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
    step_pipe_quiesce(s);
    if (s->store)
        store_quiesce(s->store); /* freeing memory of a GPU waits for its work */
    for (int i = 0; i < STEP_ARENA_N; i++)
        dev_free(s->config.dev, s->arena[i].base, s->arena[i].cap_bytes);
    step_update_sums_close(s);
    store_close(s->store);
    step_async_close(s);
    model_plan_free(s->acts);
    dev_stream_close(s->stream);
    dev_event_free(s->results_ready);
    step_pipe_close(s);
    batch_free(&s->batch);
    step_shards_close(s);
    step_shard_check_close(s);
    step_context_close(s);
    step_mesh_forget(s);
    dev_unpin(s->config.dev, s->grad_scale_host); /* and losses_host */
    free(s->spans);
    free(s->cut);
    step_mesh_close(s);
    step_local_close(s);
    free(s);
}

/* ---- what the files of a step share ---- */

enum feed_task step_task(const struct step *s)
{
    return s->config.dims.task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA;
}

struct pass step_pass(const struct step *s, int64_t samples)
{
    const struct step_config *c = &s->config;
    struct pass p = {.dims = &s->dims,
                     .b = samples,
                     .t = s->own_tokens,
                     .op = dev_op(c->dev),
                     .stream = s->stream,
                     .acts = s->acts,
                     .tensor = s->tensor_axis,
                     .context = s->context_axis,
                     .tokens = s->tokens,
                     .targets = s->targets,
                     .first_key = s->first_key,
                     .mask = s->mask,
                     .starts = s->starts,
                     .ends = s->ends,
                     .losses = s->losses};
    store_bind(s->store, &p);
    if (s->pipe) /* the last chunk, which the head follows */
        step_pipe_bind(s, s->pipe->pipe.chunks - 1, 0, &p);
    return p;
}

enum status step_forward(struct step *s, const struct pass *p)
{
    if (s->pipe)
        return step_pipe_run_forward(s, p);
    TRY(store_unshard(s->store, 0, 1));
    TRY(s->model->embed_fwd(p));
    for (int block = 0; block < p->dims->layers; block++) {
        TRY(store_unshard(s->store, block + 1, 1));
        TRY(s->model->block_fwd(p, block));
        step_heartbeat(s);
    }
    return ST_OK;
}

/* The head reads the last unit and the embedding. */
enum status step_unshard_head(struct step *s)
{
    TRY(store_unshard(s->store, s->table.units_n - 1, 0));
    return s->table.param[0].unit == 0 ? store_unshard(s->store, 0, 0) : ST_OK;
}

/* ---- logits ---- */

/* head_logits — to s->logits, `elems` of them, on all stages. */
static enum status head_logits(struct step *s, const struct pass *p, int64_t row, int64_t elems)
{
    if (!s->dims.shard.lacks_head) {
        TRY(step_unshard_head(s));
        TRY(s->model->logits(p, row, s->logits));
    }
    return s->pipe ? step_pipe_run_share(s, s->logits, elems) : ST_OK;
}

/* copy_tokens — one sample's; attention is causal, so those behind the n do not matter. */
static enum status copy_tokens(struct step *s, const struct pass *p, const int32_t *tokens,
                               int64_t n)
{
    if (p->context->ranks > 1) {
        tokens = step_context_tokens(s, tokens, n);
        n = p->t;
    }
    TRY(dev_copy(s->stream, s->tokens.data, tokens, (size_t)n * sizeof *tokens));
    if (p->t == n)
        return ST_OK;
    return dev_fill(s->stream, tensor_at(s->tokens, n).data, 0,
                    (size_t)(p->t - n) * dtype_bytes(s->tokens.dtype));
}

enum status step_logits(struct step *s, const int32_t *tokens, int64_t n, float *out)
{
    struct pass p = step_pass(s, 1);
    ASSERTF(p.dims->task == MODEL_TASK_LM && n > 0 && n <= s->config.seq_tokens, "n %lld of %lld",
            (long long)n, (long long)s->config.seq_tokens);
    p.first_key = (struct tensor){0};            /* a prompt is one document */
    if (p.tensor->ranks * p.context->ranks == 1) /* whole samples have rows for all of a group */
        p.t = n;
    TRY(copy_tokens(s, &p, tokens, n));
    TRY(step_forward(s, &p));
    TRY(head_logits(s, &p, n - 1, p.dims->vocab));
    TRY(dev_copy(s->stream, out, s->logits.data, (size_t)p.dims->vocab * sizeof *out));
    TRY(dev_sync(s->stream));
    return comm_check(s->config.comm);
}

enum status step_spans(struct step *s, const struct batch *batch, float *out)
{
    struct pass p = step_pass(s, batch->samples);
    int64_t elems = 2 * p.b * batch->seq_tokens;
    ASSERTF(p.dims->task == MODEL_TASK_QA && p.b > 0 && p.b <= s->config.batch_samples &&
                batch->seq_tokens == s->config.seq_tokens,
            "samples %lld seq_tokens %lld", (long long)p.b, (long long)batch->seq_tokens);
    TRY(batch_check(batch, p.dims->vocab));
    TRY(step_run_copy_inputs(s, step_context_batch(s, batch), 0, &p));
    TRY(step_forward(s, &p));
    TRY(head_logits(s, &p, 0, elems));
    TRY(dev_copy(s->stream, out, s->logits.data, (size_t)elems * sizeof *out));
    TRY(dev_sync(s->stream));
    return comm_check(s->config.comm);
}

/* ---- the state of training ---- */

const char *const step_part_names[STEP_PARTS_MAX] = {"parameters", "first moments",
                                                     "second moments"};

int step_parts(const struct step *s)
{
    return s->config.is_eval ? 1 : 1 + optim_moments(&s->config.optim);
}
const struct param_table *step_whole_table(const struct step *s)
{
    return s->has_whole ? &s->whole : &s->table;
}
const struct param_table *step_own_table(const struct step *s) { return &s->table; }
struct tensor step_grads(const struct step *s) { return store_grads(s->store); }
const struct batch *step_batch(const struct step *s) { return &s->batch; }
struct stream *step_stream(const struct step *s) { return s->stream; }

const struct state *step_state(const struct step *s) { return &s->state; }

struct tensor step_tensor(const struct step *s, int part)
{
    const struct state_part p = state_describe(store_state(s->store), part, 0);
    ASSERTF(p.here, "part %d does not lie whole on a rank", part);
    return (struct tensor){p.here, DTYPE_F32};
}

float *step_part(struct step *s, int part) { return step_tensor(s, part).data; }

struct step_loss_scale step_loss_scale(const struct step *s) { return s->loss_scale; }

void step_set_loss_scale(struct step *s, struct step_loss_scale scale)
{
    if (s->loss_scale.factor > 0 && scale.factor >= 1)
        s->loss_scale = scale;
}

enum status step_drain(struct step *s) { return store_drain(s->store); }

enum status step_flip(struct step *s, int bit, struct store_flip *out)
{
    return store_params_flip(s->store, bit, out);
}

void step_vote(struct step *s, int vote)
{
    ASSERTF(vote >= 0 && vote < STEP_VOTES, "vote %d", vote);
    s->vote = vote;
}

double step_flops(const struct step *s, int64_t samples)
{
    const int64_t t = s->config.seq_tokens;
    return model_flops_per_token(&s->config.dims, t) * (double)(samples * t);
}

void step_spikes(const struct step *s, struct step_spikes *out) { *out = s->spikes; }

void step_set_spikes(struct step *s, const struct step_spikes *spikes)
{
    s->spikes = *spikes;
    if (s->config.spike.mode == SPIKE_MODE_OFF)
        s->spikes.history.n = 0;
}

int64_t step_warmup_at(const struct warmup *warmup, int64_t to, int64_t unit, int64_t s)
{
    if (s >= warmup->steps)
        return to;
    ASSERTF(s >= 0 && unit > 0 && warmup->from > 0 && warmup->from <= to,
            "step %lld unit %lld from %lld to %lld", (long long)s, (long long)unit,
            (long long)warmup->from, (long long)to);
    const __int128 units = (to - warmup->from) / unit;
    return warmup->from + unit * (int64_t)(units * s / warmup->steps);
}

int64_t step_samples_at(const struct step_config *c, int64_t step_i)
{
    return step_warmup_at(&c->batch_warmup, c->global_samples, c->batch_warmup.from, step_i);
}

int64_t step_samples_before(const struct step_config *c, int64_t steps)
{
    const int64_t rising = steps < c->batch_warmup.steps ? steps : c->batch_warmup.steps;
    __int128 samples = (__int128)(steps - rising) * c->global_samples;
    for (int64_t i = 0; i < rising; i++)
        samples += step_samples_at(c, i);
    return samples < INT64_MAX / 2 ? (int64_t)samples : INT64_MAX / 2;
}

int64_t step_count(const struct step_config *c, int64_t step_i, int64_t *samples)
{
    int64_t i = step_i;
    for (; i < c->batch_warmup.steps && *samples >= step_samples_at(c, i); i++)
        *samples -= step_samples_at(c, i);
    if (i < c->batch_warmup.steps)
        return i - step_i;
    const int64_t whole = *samples / c->global_samples;
    *samples %= c->global_samples;
    return i - step_i + whole;
}

bool step_has_first_key(const struct step_config *c)
{
    return c->masks_documents || c->window_warmup.steps > 0;
}

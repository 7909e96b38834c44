/* step_memory — see step/memory.h and step/inside.h. Three arenas (activations, scratch, inputs)
 * are measured without memory, allocated whole, divided in the same way, and sealed. An
 * assertion compares the plan with the sizes allocated. */
#include "train/step/memory.h"

#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "kernels/cuda.h"
#include "train/step/inside.h"
#include "train/step/pipe.h"
#include "train/step/lr_schedule.h"

/* ---- arenas ---- */

static struct tensor allocate_tensor(struct arena *a, int64_t elems, enum dtype dtype)
{
    return (struct tensor){arena_alloc(a, (size_t)elems * dtype_bytes(dtype)), dtype};
}

/* has_sums — Returns true if the step needs memory for sums of bits (core.h). */
static bool has_sums(const struct step *s)
{
    return s->core.config.sentinel_every > 0 && !s->core.config.is_eval;
}

/* sums_bytes — Returns the bytes of all checksums. They have room for the sums of all buckets. */
static int64_t sums_bytes(const struct step *s)
{
    _Static_assert(STEP_ARRAYS_MAX * CHECKSUM_N * sizeof(uint64_t) >= sizeof(struct optim_sums),
                   "a copy of either has room");
    return has_sums(s) ? step_checksums_n(&s->core) * (int64_t)(CHECKSUM_N * sizeof(uint64_t)) : 0;
}

enum status step_memory_arenas(struct step *s, struct arena arena[STEP_ARENA_N])
{
    const struct step_config *c = &s->core.config;
    int64_t b = c->batch_samples, n = b * s->core.own_tokens, all = b * c->seq_tokens;
    struct arena *input = &arena[STEP_ARENA_INPUT];
    s->grad_scale = allocate_tensor(input, 2, DTYPE_F64);
    s->async.loss_sum = allocate_tensor(input, 1, DTYPE_F64);
    if (has_sums(s)) { /* a bucket has at least one tensor */
        s->core.sums.updates =
            arena_alloc(input, (size_t)s->core.table.params_n * sizeof *s->core.sums.updates);
        s->core.sums.checksums = arena_alloc(input, (size_t)sums_bytes(s));
    }
    s->losses = allocate_tensor(input, b * step_sample_losses(&s->core), DTYPE_F32);
    s->in.tokens = allocate_tensor(input, n, DTYPE_I32);
    if (!c->is_eval && step_mesh_partial_elems(&s->core) > 0)
        s->core.partial = allocate_tensor(input, step_mesh_partial_elems(&s->core), DTYPE_F32);
    if (!c->is_eval && c->optim.kind == OPTIM_KIND_MUON)
        s->update.muon = muon_alloc(input, &s->core.table);
    s->logits =
        allocate_tensor(input, c->dims.task == MODEL_TASK_LM ? c->dims.vocab : 2 * all, DTYPE_F32);
    if (c->dims.task == MODEL_TASK_LM) {
        s->in.hits = allocate_tensor(input, n, DTYPE_F32);
        s->in.targets = allocate_tensor(input, n, DTYPE_I32);
        if (step_has_first_key(c))
            s->in.first_key = allocate_tensor(input, all, DTYPE_I32);
        if (step_has_positions(c))
            s->in.positions = allocate_tensor(input, n, DTYPE_I32);
    } else {
        s->in.mask = allocate_tensor(input, all, DTYPE_U8);
        s->in.starts = allocate_tensor(input, b, DTYPE_I32);
        s->in.ends = allocate_tensor(input, b, DTYPE_I32);
    }
    if (s->core.pipe)
        return step_pipe_plan(&s->core, arena);
    model_plan_free(s->acts);
    s->acts = NULL;
    return model_plan(&s->core.dims, b, s->core.own_tokens, c->recompute, !c->is_eval,
                      c->store.dtype, &arena[STEP_ARENA_ACTS], &arena[STEP_ARENA_SCRATCH],
                      &s->acts);
}

static enum status allocate_arenas(struct step *s)
{
    static const char *const name[STEP_ARENA_N] = {"acts", "scratch", "input"};
    struct arena planned[STEP_ARENA_N];
    for (int i = 0; i < STEP_ARENA_N; i++)
        arena_init(&planned[i], name[i], NULL, 0);
    TRY(step_memory_arenas(s, planned));
    for (int i = 0; i < STEP_ARENA_N; i++) {
        void *base = NULL;
        if (planned[i].used_bytes > 0)
            TRY(dev_alloc(s->core.config.dev, planned[i].used_bytes, &base));
        arena_init(&s->arena[i], name[i], base, planned[i].used_bytes);
        step_heartbeat(&s->core);
    }
    TRY(step_memory_arenas(s, s->arena));
    for (int i = 0; i < STEP_ARENA_N; i++) {
        ASSERTF(s->arena[i].used_bytes == planned[i].used_bytes, "arena %s: planned %zu has %zu",
                name[i], planned[i].used_bytes, s->arena[i].used_bytes);
        arena_seal(&s->arena[i]);
    }
    return ST_OK;
}

/* ---- figures of memory ---- */

/* batch_bytes_of — Returns the bytes of the samples of a step, in host memory. */
static int64_t batch_bytes_of(const struct step *s)
{
    const struct step_config *c = &s->core.config;
    int64_t documents = (step_has_first_key(c) + step_has_positions(c)) *
                        batch_documents_bytes(s->core.samples, c->seq_tokens);
    return batch_bytes(step_task(&s->core), s->core.samples, c->seq_tokens) + documents +
           step_context_batch_bytes(&s->core, s->core.samples) + step_shard_check_bytes(&s->core);
}

struct step_memory step_memory(const struct step *s)
{
    struct dev_info info;
    dev_info(s->core.config.dev, &info);
    struct step_memory m = {.scratch = info.scratch_bytes,
                            .store = store_memory(s->core.store),
                            .activations = (int64_t)s->arena[STEP_ARENA_ACTS].cap_bytes,
                            .gathered = step_async_memory(s),
                            .readback = s->readback_bytes + step_async_memory(s),
                            .outer = step_local_bytes(&s->core),
                            .batch = batch_bytes_of(s)};
    for (int i = 0; i < STEP_ARENA_N; i++)
        m.passes += s->arena[i].base ? (int64_t)s->arena[i].cap_bytes
                                     : 0; /* a step that only measures has no memory */
    return m;
}

int64_t step_memory_bytes(const struct step *s)
{
    return store_memory_bytes(s->core.store) + step_memory(s).passes;
}

/* text_held — Writes "; the process holds …", and on a GPU this process's memory there: buffers and
 * kernel scratch, without CUDA's own. It writes "" if the size is unknown. */
static void text_held(const struct step *s, char *out, size_t cap)
{
    struct memory now = {0};
    struct dev_info info;
    char host[32], device[32];
    int64_t held_bytes = memory_resident(&now, 1);
    out[0] = 0;
    if (held_bytes < 0) /* no /proc */
        return;
    dev_info(s->core.config.dev, &info);
    text_format(out, cap, "; the process holds %s%s%s",
                text_format_bytes(host, sizeof(host), (double)held_bytes),
                info.allocated_bytes < 0 ? "" : ", and of its GPU ",
                info.allocated_bytes < 0
                    ? ""
                    : text_format_bytes(device, sizeof(device), (double)info.allocated_bytes));
}

/* Rank 0 logs the memory of a rank, as it was planned. */
void step_memory_log(const struct step *s)
{
    const struct comm_place *place = comm_place(s->core.config.comm);
    struct step_memory m = step_memory(s);
    char word[8][32], held[112];
    bool is_discrete = dev_is_discrete(s->core.config.dev);
    if (place->rank != 0 || (place->ranks == 1 && !is_discrete))
        return;
    text_held(s, held, sizeof(held));
    LOG_INFO("memory of a rank, planned and taken: parameters %s%s%s, gradients %s, moments %s, "
             "unsharded buffers %s, compression %s, passes %s, kernel scratch %s%s",
             text_format_bytes(word[0], 32, (double)m.store.params),
             m.store.frozen > 0 ? ", frozen ones " : "",
             m.store.frozen > 0 ? text_format_bytes(word[7], 32, (double)m.store.frozen) : "",
             text_format_bytes(word[1], 32, (double)m.store.grads),
             text_format_bytes(word[2], 32, (double)m.store.moments),
             text_format_bytes(word[3], 32, (double)m.store.unsharded),
             text_format_bytes(word[4], 32, (double)m.store.residuals),
             text_format_bytes(word[5], 32, (double)m.passes),
             text_format_bytes(word[6], 32, (double)m.scratch), held);
}

/* ---- the plan ---- */

struct store_config step_store_config(struct step *s)
{
    const struct step_config *c = &s->core.config;
    struct store_settings settings = c->store;
    /* another stage may hold a term of the embedding's gradient, or another rank tokens of the
     * same samples; a frozen embedding has no gradient */
    if (s->core.pipe || step_mesh_context_ranks(&s->core) > 1 || c->dims.adapter.r > 0)
        settings.has_whole_embed = true;
    return (struct store_config){.dev = c->dev,
                                 .stream = s->core.stream,
                                 .comm = step_mesh_data(&s->core),
                                 .world = c->comm,
                                 .table = &s->core.table,
                                 .whole = step_whole_table(s),
                                 .frozen = s->core.frozen.table.params_n > 0 ? &s->core.frozen.table
                                                                             : NULL,
                                 .frozen_comm = s->core.local.world,
                                 .settings = settings,
                                 .shards = c->shards,
                                 .exact = step_mesh_exact(&s->core),
                                 .deals_shards = c->balances,
                                 .has_grads = !c->is_eval,
                                 .accumulates = s->core.samples > c->batch_samples,
                                 .moments_n = step_arrays(s) - 1,
                                 .skips_hidden_second = c->optim.kind == OPTIM_KIND_MUON,
                                 .updates_together = c->optim.kind == OPTIM_KIND_MUON,
                                 .pass_tokens = c->batch_samples * s->core.own_tokens,
                                 .heartbeat = c->heartbeat,
                                 .heartbeat_arg = c->heartbeat_arg,
                                 .update = step_update_bucket,
                                 .update_arg = s};
}

static int64_t readback_bytes(const struct step *s)
{
    return (int64_t)(2 * sizeof *s->async.grad_scale_host) + sums_bytes(s) +
           s->core.samples * step_sample_losses(&s->core) * (int64_t)sizeof *s->losses_host;
}

/* plan_memory — Measures the store and the arenas of a step without memory. */
static enum status plan_memory(struct step *s, const struct step_place *place,
                               struct step_memory *out)
{
    struct arena measured[STEP_ARENA_N];
    struct step_memory m = {.store = {0}};
    struct store_config store = step_store_config(s);
    TRY(store_plan(&store, step_mesh_store_rank(&s->core), step_mesh_store_ranks(&s->core),
                   place->is_discrete, &m.store));
    for (int i = 0; i < STEP_ARENA_N; i++)
        arena_init(&measured[i], "measured", NULL, 0);
    TRY(step_memory_arenas(s, measured));
    m.activations = (int64_t)measured[STEP_ARENA_ACTS].used_bytes;
    for (int i = 0; i < STEP_ARENA_N; i++)
        m.passes += (int64_t)measured[i].used_bytes;
    m.batch = batch_bytes_of(s);
    m.scratch = place->is_discrete ? (int64_t)CUDA_SCRATCH_BYTES : 0;
    m.gathered = step_async_plan(s, place);
    m.readback = readback_bytes(s) + m.gathered;
    m.outer = step_local_plan(&s->core);
    *out = m;
    return ST_OK;
}

enum status step_plan(const struct step_config *config, const struct step_place *place,
                      struct step_memory *out)
{
    struct step s = {.core.config = *config};
    struct step_place inside = *place;
    s.core.step = &s;
    enum status st = model_check(&config->dims);
    if (st == ST_OK)
        st = step_local_place(&s.core, &inside);
    if (st == ST_OK)
        st = step_mesh_place(&s.core, inside.rank, inside.ranks);
    if (st == ST_OK)
        st = step_mesh_describe(&s.core, inside.is_discrete);
    if (st == ST_OK)
        st = plan_memory(&s, &inside, out);
    step_pipe_close(&s.core);
    model_plan_free(s.acts);
    step_mesh_forget(&s.core);
    return st;
}

struct step_place step_place_of(const struct step *s)
{
    const struct comm_place *at = comm_place(s->core.config.comm);
    return (struct step_place){.rank = at->rank,
                               .ranks = at->ranks,
                               .is_discrete = dev_is_discrete(s->core.config.dev),
                               .stays_on_device = comm_stays_on_device(s->core.config.comm)};
}

enum status step_memory_check(const struct step *s)
{
    struct step_place place = step_place_of(s);
    struct step_config config;
    struct step_memory planned, allocated = step_memory(s);
    step_local_outside(&s->core, &config, &place);
    TRY(step_plan(&config, &place, &planned));
    ASSERTF(memcmp(&planned, &allocated, sizeof planned) == 0,
            "planned passes %lld params %lld readback %lld, allocated %lld %lld %lld",
            (long long)planned.passes, (long long)planned.store.params, (long long)planned.readback,
            (long long)allocated.passes, (long long)allocated.store.params,
            (long long)allocated.readback);
    return ST_OK;
}

/* allocate_readback — Allocates pinned host memory for the results that are read back in every
 * step, so that they are copied directly. */
static enum status allocate_readback(struct step *s)
{
    int64_t bytes = readback_bytes(s);
    void *data = NULL;
    TRY(dev_pin(s->core.config.dev, (size_t)bytes, &data));
    memset(data, 0, (size_t)bytes);
    s->readback_bytes = bytes;
    s->async.grad_scale_host = data;
    s->core.sums.host = s->async.grad_scale_host + 2;
    s->losses_host = (float *)(void *)((char *)s->core.sums.host + sums_bytes(s));
    return ST_OK;
}

enum status step_memory_alloc(struct step *s)
{
    TRY(allocate_arenas(s));
    return allocate_readback(s);
}

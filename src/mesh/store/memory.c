/* store_memory — plans and allocates a rank's memory of parameters, gradients and moments.
 *
 * Memory whose contents are sent comes from the comm, so that the transport can reach it; the rest
 * comes from the device. The planned bytes are asserted to be the allocated bytes. Must not know
 * when data are gathered or reduced. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "mesh/store/inside.h"

#define BLOCK_ALIGN 256 /* as cudaMalloc aligns */

struct store_policy store_memory_policy(const struct store_config *c, int ranks)
{
    static const struct store_policy policies[] = {
        /* parameters, gradients, moments, all-gathered, masters of f32 */
        [LAYOUT_SHARD_NONE] = {STORE_WHOLE, STORE_WHOLE, STORE_WHOLE, STORE_GATHER_GRADS,
                               STORE_WHOLE},
        [LAYOUT_SHARD_OPTIMIZER] = {STORE_WHOLE, STORE_WHOLE, STORE_SHARD, STORE_GATHER_UPDATED,
                                    STORE_WHOLE},
        [LAYOUT_SHARD_GRADIENTS] = {STORE_WHOLE, STORE_BUFFER, STORE_SHARD, STORE_GATHER_UPDATED,
                                    STORE_WHOLE},
        [LAYOUT_SHARD_FULL] = {STORE_BUFFER, STORE_BUFFER, STORE_SHARD, STORE_GATHER_USED,
                               STORE_SHARD},
        [LAYOUT_SHARD_HYBRID] = {STORE_BUFFER, STORE_BUFFER, STORE_SHARD, STORE_GATHER_USED,
                                 STORE_SHARD},
    };
    static const struct store_policy alone = {.gather = STORE_GATHER_NONE}; /* all is whole */
    struct store_policy policy = ranks == 1 ? alone : policies[c->settings.shard];
    /* a deferred update runs when a rank needs the parameters, which may be on that rank only */
    if (c->updates_together && policy.gather == STORE_GATHER_GRADS)
        policy.gather = STORE_GATHER_NONE;
    if (c->accumulates) /* every micro-batch adds to all gradients */
        policy.grads = STORE_WHOLE;
    /* if passes read a copy, masters are needed for the update only */
    if (c->settings.dtype != DTYPE_F32 && !c->is_frozen)
        policy.masters = policy.moments;
    return policy;
}

static int64_t elems_of(const struct store *s, enum store_extent extent)
{
    return extent == STORE_WHOLE   ? s->c.table->total_elems
           : extent == STORE_SHARD ? s->layout.shard_elems
                                   : s->layout.buffer_elems;
}

/* Returns the bytes of an element of the dense gradient as it is sent. */
static int dense_bytes(const struct store_settings *settings)
{
    return settings->compress == GRAD_COMPRESS_KIND_NONE   ? 4
           : settings->compress == GRAD_COMPRESS_KIND_BF16 ? 2
                                                           : 1; /* or less than 1 */
}

bool store_memory_uses_sparse(const struct store *s, const char **why_out)
{
    const struct param *wte = &s->c.table->param[0];
    const struct sparse_embed_cost cost = {.ranks = s->layout.ranks,
                                           .rows_n = wte->dim[0],
                                           .tokens_max = s->c.pass_tokens,
                                           .dense_bytes = dense_bytes(&s->c.settings),
                                           .is_tied = !wte->grad_is_added,
                                           .accumulates = s->c.accumulates};
    *why_out = wte->cut.whole > 0              ? "each rank of a tensor group has a part of them"
               : s->c.shards > 0               ? "EXACT=layout adds whole gradients"
               : store_is_hybrid(s)            ? "SHARD=hybrid"
               : s->is_discrete                ? "gradients lie in GPU memory"
               : s->c.settings.has_whole_embed ? "other ranks have parts of the model or of samples"
                                               : NULL;
    return !*why_out && sparse_embed_is_used(&cost, why_out) && s->c.has_grads;
}

static int64_t sparse_elems(const struct store *s)
{
    const struct param *wte = &s->c.table->param[0];
    return s->is_sparse ? sparse_embed_buffer_elems(s->layout.ranks, wte->dim[0], wte->dim[1],
                                                    s->c.pass_tokens)
                        : 0;
}

/* ---- gradient compression ---- */

bool store_memory_compresses(const struct store *s)
{
    return grad_compress_quantises(s->c.settings.compress) && s->c.has_grads && !s->is_alone;
}

/* Returns the configuration of gradient compression. The caller frees bucket_elems. */
static struct grad_compress_config compress_config(const struct store *s)
{
    int n = s->layout.buckets_n, deferred_first = s->is_sparse ? 1 : 0;
    int64_t *elems = memory_new((size_t)n, sizeof *elems);
    for (int i = 0; i < n; i++)
        elems[i] = s->layout.bucket[i].elems;
    return (struct grad_compress_config){
        .comm = s->c.comm,
        .dev = s->c.dev,
        .kind = s->c.settings.compress,
        .deferred_first = s->policy.gather == STORE_GATHER_GRADS ? deferred_first : n,
        .buckets_n = n,
        .bucket_elems = elems};
}

/* ---- planned ---- */

struct store_memory store_memory_plan(const struct store *s)
{
    const struct store_config *c = &s->c;
    const struct store_policy *p = &s->policy;
    const int64_t each = (int64_t)sizeof(float);
    struct store_memory m = {.params =
                                 elems_of(s, p->masters) * (int64_t)dtype_bytes(s->params_dtype)};
    if (store_has_copy(s))
        m.unsharded = elems_of(s, p->params) * (int64_t)dtype_bytes(c->settings.dtype);
    if (c->has_grads) {
        m.grads = elems_of(s, p->grads == STORE_BUFFER ? STORE_SHARD : STORE_WHOLE) * each;
        m.grads += store_exact_slots(s) * each;
        m.unsharded += (p->grads == STORE_BUFFER ? elems_of(s, STORE_BUFFER) : 0) * each;
        m.unsharded += (sparse_elems(s) + store_exact_received(s)) * each;
        if (store_rounds_grads(s))
            m.unsharded += elems_of(s, p->grads) * (int64_t)dtype_bytes(DTYPE_BF16);
        for (int array = 1; array <= c->moments_n; array++)
            m.moments += store_memory_moment_elems(s, array) * each;
    }
    if (store_memory_compresses(s)) {
        const struct grad_compress_config config = compress_config(s);
        m.residuals = grad_compress_plan(&config, s->layout.rank, s->layout.ranks, s->is_discrete);
        free((void *)(uintptr_t)config.bucket_elems);
    }
    return m;
}

struct store_memory store_memory(const struct store *s) { return s->allocated; }

int64_t store_memory_bytes(const struct store *s)
{
    const struct store_memory *m = &s->allocated;
    return m->params + m->grads + m->moments + m->unsharded + m->residuals + m->frozen;
}

/* ---- groups ---- */

/* split_every — opens the comm of n ranks from `first` on, `step` apart. */
static enum status split_every(struct store *s, int first, int step, int n, struct comm **out)
{
    int *ranks = memory_new((size_t)n, sizeof *ranks);
    for (int i = 0; i < n; i++)
        ranks[i] = first + i * step;
    enum status st = comm_split(s->c.comm, ranks, n, out);
    free(ranks);
    return st;
}

enum status store_memory_split(struct store *s)
{
    int group = s->layout.ranks, ranks = comm_place(s->c.comm)->ranks;
    s->within = s->c.comm;
    if (!store_is_hybrid(s))
        return ST_OK;
    TRY(split_every(s, s->rank - s->layout.rank, 1, group, &s->within));
    return split_every(s, s->layout.rank, group, ranks / group, &s->across);
}

/* ---- allocated ---- */

/* NCCL's allocator rounds each allocation up: to 2 MiB, in older versions to the granularity of a
 * multicast object, which is 512 MiB if GPUs share an NVSwitch. So on a GPU all data that are sent
 * lie in one allocation. The alignment of its arrays is less than such a rounding, and not
 * counted. */
static bool is_in_block(const struct store *s, bool is_comm)
{
    return is_comm && s->is_discrete && !s->is_alone;
}

static int64_t align_bytes(size_t bytes)
{
    return (int64_t)(bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
}

static enum status allocate_tensor(struct store *s, int64_t elems, enum dtype dtype, bool is_comm,
                                   struct tensor *out)
{
    size_t bytes = (size_t)elems * dtype_bytes(dtype);
    void *data = NULL;
    if (s->block.is_measuring) {
        s->block.bytes += is_in_block(s, is_comm) ? align_bytes(bytes) : 0;
        return ST_OK;
    }
    ASSERT(s->memory_n < STORE_ALLOCS_MAX);
    if (is_in_block(s, is_comm)) {
        data = s->block.data + s->block.used;
        s->block.used += align_bytes(bytes);
        ASSERTF(s->block.used <= s->block.bytes, "%lld of %lld bytes", (long long)s->block.used,
                (long long)s->block.bytes);
    } else if (is_comm)
        TRY(comm_alloc(s->c.comm, (int64_t)bytes, &data));
    else
        TRY(dev_alloc(s->c.dev, bytes, &data));
    s->memory[s->memory_n].data = data;
    s->memory[s->memory_n].bytes = bytes;
    s->memory[s->memory_n++].is_comm = is_comm;
    *out = (struct tensor){data, dtype};
    if (s->c.heartbeat)
        s->c.heartbeat(s->c.heartbeat_arg);
    return ST_OK;
}

/* Allocates gradients. The sparse embedding's rows lie in the same allocation, so that a pass finds
 * the rows by an offset from the gradients (store_sparse_embed_pass). */
static enum status allocate_grads(struct store *s)
{
    int64_t elems = elems_of(s, s->policy.grads);
    TRY(allocate_tensor(s, elems + sparse_elems(s), DTYPE_F32, !s->is_alone, &s->grads));
    if (store_exact_slots(s) > 0)
        TRY(allocate_tensor(s, store_exact_slots(s), DTYPE_F32, false, &s->shard_grads));
    if (store_exact_received(s) > 0)
        TRY(allocate_tensor(s, store_exact_received(s), DTYPE_F32, true, &s->received));
    if (s->c.shards > 0)
        TRY(allocate_tensor(s, s->blocks.n, DTYPE_F64, false, &s->blocks.sums));
    if (s->policy.grads == STORE_BUFFER)
        TRY(allocate_tensor(s, s->layout.shard_elems, DTYPE_F32, !s->is_alone, &s->grads_own));
    if (store_rounds_grads(s))
        TRY(allocate_tensor(s, elems, DTYPE_BF16, true, &s->grads_rounded));
    if (s->is_sparse) {
        float *buffer = (float *)s->grads.data + elems;
        const struct param *wte = &s->c.table->param[0];
        TRY(sparse_embed_open(&(struct sparse_embed_config){.comm = s->c.comm,
                                                            .dev = s->c.dev,
                                                            .stream = s->c.stream,
                                                            .rows_n = wte->dim[0],
                                                            .row_elems = wte->dim[1],
                                                            .tokens_max = s->c.pass_tokens,
                                                            .buffer = buffer},
                              &s->sparse));
    }
    for (int i = 0; i < s->c.moments_n; i++)
        TRY(allocate_tensor(s, store_memory_moment_elems(s, i + 1), DTYPE_F32, false,
                            &s->moment[i]));
    return allocate_tensor(s, s->layout.buckets_n + 2, DTYPE_F64, false, &s->norms);
}

/* Allocates the parameters. The gathered array is the masters, or with a 16-bit dtype the compute
 * copy. */
static enum status allocate_params(struct store *s)
{
    bool is_gathered = s->policy.moments == STORE_SHARD,
         is_sent = s->c.settings.dtype == s->params_dtype;
    TRY(allocate_tensor(s, elems_of(s, s->policy.masters), s->params_dtype, is_gathered && is_sent,
                        &s->params));
    s->compute_copy = s->params;
    if (!store_has_copy(s))
        return ST_OK;
    return allocate_tensor(s, elems_of(s, s->policy.params), s->c.settings.dtype, is_gathered,
                           &s->compute_copy);
}

/* Logs, once for all ranks, how the embedding's gradient is sent, and why. */
static void log_sparse(const struct store *s)
{
    const struct param *wte = &s->c.table->param[0];
    int64_t rows = sparse_embed_rows_most(wte->dim[0], s->c.pass_tokens);
    char all[32], whole[32];
    const char *why;
    if (comm_place(s->c.world)->rank > 0 || s->is_alone || !s->c.has_grads || wte->unit > 0)
        return;
    (void)store_memory_uses_sparse(s, &why);
    text_format_bytes(all, sizeof all,
                      (double)(s->layout.ranks * rows * wte->dim[1]) * sizeof(float));
    text_format_bytes(whole, sizeof whole, (double)(wte->elems * dense_bytes(&s->c.settings)));
    if (s->sparse)
        LOG_INFO("gradient of %s: the part of the input layer is exchanged as rows of tokens, at "
                 "most %lld of each rank: %s (%s of rows at most, %s whole)",
                 wte->name, (long long)rows, why, all, whole);
    else
        LOG_INFO("gradient of %s: reduced whole, not as rows of tokens: %s (%s of rows at most, %s "
                 "whole)",
                 wte->name, why, all, whole);
}

enum status store_memory_alloc(struct store *s)
{
    if (s->is_discrete && !s->is_alone) {
        /* Measures the block without allocating, then allocates it. */
        void *data = NULL;
        s->block.is_measuring = true;
        TRY(allocate_params(s));
        if (s->c.has_grads)
            TRY(allocate_grads(s));
        s->block.is_measuring = false;
        if (s->block.bytes > 0)
            TRY(comm_alloc(s->c.comm, s->block.bytes, &data));
        s->block.data = data;
    }
    TRY(allocate_params(s));
    if (s->c.has_grads)
        TRY(allocate_grads(s));
    /* the memory of norms is not counted */
    int64_t bytes = s->allocated.residuals + s->allocated.frozen, planned = store_memory_bytes(s);
    for (int i = 0; i < s->memory_n; i++)
        if (s->memory[i].data != s->norms.data && s->memory[i].data != s->blocks.sums.data)
            bytes += (int64_t)s->memory[i].bytes;
    ASSERTF(bytes == planned, "planned %lld allocated %lld", (long long)planned, (long long)bytes);
    log_sparse(s);
    if (!store_memory_compresses(s))
        return ST_OK;
    const struct grad_compress_config config = compress_config(s);
    enum status st = grad_compress_open(&config, &s->grad_compress);
    free((void *)(uintptr_t)config.bucket_elems);
    return st;
}

/* ---- where an element's moments lie ---- */

static bool is_rest(const struct store *s, int array)
{
    return array == 2 && s->c.skips_hidden_second;
}

static bool is_whole(const struct store *s) { return s->policy.moments == STORE_WHOLE; }

int64_t store_memory_moment_elems(const struct store *s, int array)
{
    const struct param_table *t = s->c.table;
    if (is_rest(s, array))
        return is_whole(s) ? param_rest(t, 0, t->total_elems) : s->layout.rest_elems;
    return is_whole(s) ? t->total_elems : s->layout.shard_elems;
}

/* begin_of — returns the begin of this rank's part of a bucket in a moment. */
static int64_t begin_of(const struct store *s, int array, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    if (is_rest(s, array))
        return is_whole(s) ? param_rest(s->c.table, 0, l->first) : l->rest_at;
    return is_whole(s) ? l->first : l->shard_at;
}

struct tensor store_memory_moment_at(const struct store *s, int array, int bucket)
{
    return tensor_at(s->moment[array - 1], begin_of(s, array, bucket));
}

int64_t store_memory_moment_run(const struct store *s, int array, int64_t first, int64_t *n)
{
    int bucket = layout_bucket_at(&s->layout, first);
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    int64_t begin = is_whole(s) ? l->first : l->first + l->own.first,
            end = begin + (is_whole(s) ? l->elems : l->own.elems);
    ASSERTF(first >= begin && first < end, "element %lld of another rank", (long long)first);
    *n = *n < end - first ? *n : end - first;
    if (!is_rest(s, array))
        return begin_of(s, array, bucket) + first - begin;
    const struct param_table *t = s->c.table;
    int param = param_at(t, first);
    int64_t left = param_end(t, param) - first;
    *n = *n < left ? *n : left;
    return t->param[param].is_hidden ? -1
                                     : begin_of(s, array, bucket) + param_rest(t, begin, first);
}

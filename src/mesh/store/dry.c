/* store_dry — see store/dry.h. */
#include "mesh/store/dry.h"

#include "base/memory.h"
#include "dev/dev_dry.h"

bool store_dry_gathers_for_use(const struct store *s)
{
    return s->policy.gather == STORE_GATHER_USED;
}

/* is_awaited — returns true if the call is waited for immediately. This holds for the data of unit
 * 0: at the start of a forward pass, and at the end of the backward pass, except for the head's
 * gradient if rows are sent separately. */
static bool is_awaited(const struct store *s, const struct store_call *call)
{
    if (call->bucket < 0)
        return true;
    bool is_early = s->is_sparse && call->bucket == 0 && call->kind == STORE_CALL_ALL_REDUCE;
    return s->layout.bucket[call->bucket].unit_first == 0 && !is_early;
}

static enum status report_call(struct store *s, const struct store_call *call, enum dtype dtype,
                               bool is_now)
{
    s->dry->on_call(s->dry->arg, call, call->elems * (int64_t)dtype_bytes(dtype), is_now);
    return ST_OK;
}

static enum status begin(struct store *s, const struct store_call *call, struct comm_ticket *ticket)
{
    *ticket = (struct comm_ticket){0};
    return report_call(s, call, call->out.dtype, is_awaited(s, call));
}

/* tell_compressed — counts an exchange of quantised parts, or a gather of sums. The lengths of
 * coded messages are gathered before. */
static enum status tell_compressed(struct store *s, const struct store_call *call)
{
    struct store_call lengths = *call;
    lengths.kind = STORE_CALL_ALL_GATHER;
    lengths.elems = s->ranks * GRAD_COMPRESS_LENGTH_BYTES;
    if (grad_compress_is_coded(s->c.settings.compress))
        TRY(report_call(s, &lengths, DTYPE_U8, is_awaited(s, call)));
    return report_call(s, call, DTYPE_U8, is_awaited(s, call));
}

static enum status exchange_compressed(struct store *s, int bucket, bool is_reduced,
                                       bool is_gathered)
{
    struct store_call call = {STORE_CALL_ALL_TO_ALL, STORE_GROUP_ALL, bucket, {0}, {0}, 0};
    call.elems = s->ranks * grad_compress_part_bytes(s->c.settings.compress, s->ranks,
                                                     s->layout.bucket[bucket].elems);
    if (is_reduced)
        TRY(tell_compressed(s, &call));
    call.kind = STORE_CALL_ALL_GATHER;
    return is_gathered ? tell_compressed(s, &call) : ST_OK;
}

static enum status reduce_compressed(struct store *s, int bucket, struct tensor from,
                                     struct tensor to_all, struct tensor to_own)
{
    (void)from, (void)to_own;
    return exchange_compressed(s, bucket, true, to_all.data != NULL);
}

static enum status gather_compressed(struct store *s, int bucket, struct tensor to_all)
{
    (void)to_all;
    return exchange_compressed(s, bucket, false, true);
}

/* ---- virtual shards ---- */

static int groups_n(const struct store *s) { return s->layout.ranks / s->c.exact.context_ranks; }

/* has_tree — returns true if grad/tree.h adds the partial sums of all ranks. It does so over NCCL,
 * and plans assume NCCL on GPUs. On CPUs they assume one node. */
static bool has_tree(const struct store *s)
{
    return s->c.shards > 0 && !s->is_alone &&
           (s->is_discrete ||
            !shard_tree_is_of_ranks(s->deal, s->c.exact.context_ranks, 1, s->layout.ranks));
}

static enum status reduce_exact(struct store *s, int bucket, struct tensor to_all,
                                struct tensor to_own)
{
    const int64_t elems = s->layout.bucket[bucket].elems, part = elems / s->layout.ranks;
    struct store_call call = {STORE_CALL_ALL_TO_ALL, STORE_GROUP_ALL, bucket, {0}, {0}, 0};
    const struct tensor sums = dev_dry_tensor(DTYPE_F32);
    const struct combine add = {.out = sums,
                                .in = sums,
                                .own = sums,
                                .elems = part,
                                .stride = elems,
                                .sources_n = s->c.exact.context_ranks *
                                             shard_tree_partials(s->deal, groups_n(s), NULL)};
    (void)to_own;
    call.elems = grad_tree_received_elems(s->deal, groups_n(s), elems);
    TRY(report_call(s, &call, DTYPE_F32, is_awaited(s, &call)));
    if (s->is_discrete) /* else the comm's thread adds */
        TRY(dev_op(s->c.dev)->combine(s->c.stream, &add));
    call.kind = STORE_CALL_ALL_GATHER;
    call.elems = elems;
    return to_all.data ? report_call(s, &call, DTYPE_F32, is_awaited(s, &call)) : ST_OK;
}

int store_dry_adds(const struct store *s) { return s->shards.adds_n; }

/* ---- rows of the embedding: the most that a rank sends ---- */

static int64_t rows_most(const struct store *s)
{
    return sparse_embed_rows_most(s->c.table->param[0].dim[0], s->c.pass_tokens);
}

static enum status gather_rows(struct store *s, int64_t each, enum dtype dtype, bool is_now)
{
    struct store_call call = {STORE_CALL_ALL_GATHER,         STORE_GROUP_ALL, 0, {0}, {0},
                              s->ranks * rows_most(s) * each};
    return report_call(s, &call, dtype, is_now);
}

static enum status sparse_ids(struct store *s, const int32_t *tokens, int64_t n)
{
    (void)tokens, (void)n;
    return gather_rows(s, 1, DTYPE_I32, false);
}

static enum status sparse_rows(struct store *s)
{
    return gather_rows(s, s->c.table->param[0].dim[1], DTYPE_F32, true);
}

static enum status sparse_add(struct store *s, struct part_extent part, struct tensor to)
{
    const struct param *wte = &s->c.table->param[0];
    const struct sparse_embed_sum sum = {.rows = dev_dry_tensor(DTYPE_F32),
                                         .ids = dev_dry_tensor(DTYPE_I32),
                                         .n = s->ranks * rows_most(s),
                                         .row_elems = wte->dim[1],
                                         .rows_n = wte->dim[0]};
    const struct embed_bwd whole = sparse_embed_whole_rows(&sum, part, to);
    return whole.rows > 0 ? dev_op(s->c.dev)->embed_bwd(s->c.stream, &whole) : ST_OK;
}

/* ---- life ---- */

static enum status wait(struct store *s, struct comm_ticket ticket)
{
    (void)s, (void)ticket;
    return ST_OK;
}

static enum status wait_stream(struct store *s)
{
    (void)s;
    return ST_OK;
}

static const struct store_calls counted_calls = {.wait = wait,
                                                 .stream_wait = wait,
                                                 .wait_stream = wait_stream,
                                                 .begin = begin,
                                                 .reduce_compressed = reduce_compressed,
                                                 .gather_compressed = gather_compressed,
                                                 .reduce_exact = reduce_exact,
                                                 .sparse_ids = sparse_ids,
                                                 .sparse_rows = sparse_rows,
                                                 .sparse_add = sparse_add};

enum status store_dry_open(const struct store_config *config, const struct store_dry *dry, int rank,
                           int ranks, bool is_discrete, bool has_groups, struct store **out)
{
    struct store *s = memory_new(1, sizeof *s);
    s->c = *config;
    s->c.comm = s->c.world = NULL;
    s->dry = dry;
    s->calls = &counted_calls;
    s->has_groups = has_groups;
    s->grad_in_slot[0] = s->grad_in_slot[1] = -1;
    enum status st = store_set_place(s, rank, ranks, is_discrete);
    if (st != ST_OK) {
        store_close(s);
        return st;
    }
    if (config->frozen) {
        const struct store_config frozen = store_frozen_config(config);
        st = store_dry_open(&frozen, dry, rank, ranks, is_discrete, has_groups, &s->frozen);
        if (st != ST_OK) {
            store_close(s);
            return st;
        }
    }
    store_new_lists(s);
    s->params = dev_dry_tensor(s->params_dtype);
    s->grads = s->grads_own = dev_dry_tensor(DTYPE_F32);
    s->moment[0] = s->moment[1] = dev_dry_tensor(DTYPE_F32);
    s->compute_copy = dev_dry_tensor(config->settings.dtype);
    s->grads_rounded = dev_dry_tensor(DTYPE_BF16);
    s->norms = s->blocks.sums = dev_dry_tensor(DTYPE_F64);
    s->shard_grads = dev_dry_tensor(DTYPE_F32);
    s->has_tree = has_tree(s);
    store_reduce_choose(s);
    *out = s;
    return ST_OK;
}

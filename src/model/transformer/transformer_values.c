/* transformer_values — value embeddings: v[n,:] += table[token[n],:] before attention, and the
 * gradient of the table. The table is the block's own, so that what scales it needs no parameter
 * besides. It must not know which rank has which positions: rows and tokens are a pass's own.
 *
 * Values are columns of qkv. Operations on rows one behind the other do the work, so the columns
 * are copied to scratch, and back. Source Zhou et al. 2024 (value residuals), and the token tables
 * of modded-nanogpt (Jordan et al. 2024). */
#include "dev/dev.h"
#include "model/transformer/transformer.h"

/* copy_values — between the columns of qkv and rows of their own. */
static enum status copy_values(const struct pass *p, struct tensor qkv, struct tensor own,
                               bool is_back)
{
    int64_t stride = transformer_params_qkv(p->dims), kv = transformer_params_kv(p->dims);
    struct tensor at = tensor_at(qkv, transformer_params_qk(p->dims));
    return p->op->copy_2d(p->stream, &(struct copy_2d){.y = is_back ? at : own,
                                                       .x = is_back ? own : at,
                                                       .rows = p->b * p->t,
                                                       .columns = kv,
                                                       .y_stride = is_back ? stride : kv,
                                                       .x_stride = is_back ? kv : stride});
}

enum status transformer_values_fwd(const struct pass *p, int block, struct tensor rows)
{
    const int table = transformer_params_values(p->dims, block);
    const int64_t n = p->b * p->t, kv = transformer_params_kv(p->dims);
    struct tensor v = transformer_acts(p)->wide, embedded = tensor_at(v, n * kv);
    if (table < 0)
        return ST_OK;
    TRY(copy_values(p, rows, v, false));
    TRY(p->op->embed_fwd(p->stream, &(struct embed_fwd){.x = embedded,
                                                        .tokens = p->tokens,
                                                        .wte = transformer_w(p, table),
                                                        .n = n,
                                                        .t = p->t,
                                                        .c = kv}));
    TRY(p->op->branch_add(
        p->stream, &(struct branch_add){.y = v, .x = embedded, .residual = v, .n = n, .c = kv}));
    return copy_values(p, rows, v, true);
}

enum status transformer_values_bwd(const struct pass *p, int block, struct tensor dqkv)
{
    const int table = transformer_params_values(p->dims, block);
    const int64_t n = p->b * p->t, kv = transformer_params_kv(p->dims);
    struct tensor dv = tensor_at(dqkv, n * transformer_params_qkv(p->dims));
    if (table < 0)
        return ST_OK;
    struct tensor dtable = transformer_dw(p, table);
    if (!p->accumulate)
        TRY(dev_fill(p->stream, dtable.data, 0,
                     (size_t)(p->dims->vocab * kv) * dtype_bytes(dtable.dtype)));
    TRY(copy_values(p, dqkv, dv, false));
    return p->op->embed_bwd(p->stream, &(struct embed_bwd){.dwte = dtable,
                                                           .dx = dv,
                                                           .tokens = p->tokens,
                                                           .n = n,
                                                           .t = p->t,
                                                           .c = kv,
                                                           .v = p->dims->vocab,
                                                           .accumulate = true});
}

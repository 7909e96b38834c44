/* transformer_attn — queries, keys and values, rotary positions, and attention, forward and
 * backward. It must not know which activations are kept and which are computed again
 * (transformer.h). */
#include "model/transformer/transformer.h"

#include "base/assert.h"

/* ---- q, k and v ---- */

struct tensor transformer_qkv(const struct pass *p, int block)
{
    return tensor_at(transformer_kept(p, block)->qkv, p->past * transformer_params_qkv(p->dims));
}

enum status transformer_rotate(const struct pass *p, struct tensor rows, bool inverse)
{
    struct rope rope = {.x = rows,
                        .table = transformer_acts(p)->rope,
                        .n = p->b * p->t,
                        .t = p->t,
                        .h = p->dims->heads,
                        .hk = model_kv_heads(p->dims),
                        .d = model_head_dim(p->dims),
                        .rot = transformer_params_rotated(p->dims),
                        .layout = transformer_arch(p->dims->arch)->heads,
                        .inverse = inverse};
    return p->dims->features.position == MODEL_POSITION_ROPE ? p->op->rope(p->stream, &rope)
                                                             : ST_OK;
}

/* The heads of q, or of k: their norm's weight, their number, and their position in a row. */
struct heads {
    enum transformer_param norm;
    int64_t n, at;
};

static void heads_of(const struct pass *p, struct heads out[2])
{
    int64_t h = p->dims->heads, hk = model_kv_heads(p->dims);
    out[0] = (struct heads){TRANSFORMER_PARAM_Q_NORM, h, 0};
    out[1] = (struct heads){TRANSFORMER_PARAM_K_NORM, hk, h * model_head_dim(p->dims)};
}

/* Computes the gradients of q and k before their norms, in place in dqkv. */
static enum status norm_heads_bwd(const struct pass *p, int block, struct tensor dqkv)
{
    struct tensor raw = transformer_acts(p)->block[block].raw;
    struct heads heads[2];
    heads_of(p, heads);
    for (int i = 0; p->dims->features.has_qk_norm && i < 2; i++) {
        int w = transformer_params_at(p->dims, block, heads[i].norm);
        struct tensor dqk = tensor_at(dqkv, heads[i].at);
        struct head_norm_bwd norm = {.dx = dqk,
                                     .dw = transformer_dw(p, w),
                                     .dy = dqk,
                                     .x = tensor_at(raw, heads[i].at),
                                     .w = transformer_w(p, w),
                                     .n = p->b * p->t,
                                     .heads = heads[i].n,
                                     .d = model_head_dim(p->dims),
                                     .stride = transformer_params_qkv(p->dims),
                                     .eps = (float)model_norm_eps(p->dims),
                                     .accumulate = p->accumulate};
        TRY(p->op->head_norm_bwd(p->stream, &norm));
    }
    return ST_OK;
}

/* Copies rows of v from raw, if one matrix computes q, k and v. */
static enum status copy_v(const struct pass *p, struct tensor rows, struct tensor raw)
{
    int64_t stride = transformer_params_qkv(p->dims), at = transformer_params_qk(p->dims);
    return p->op->copy_2d(p->stream, &(struct copy_2d){.y = tensor_at(rows, at),
                                                       .x = tensor_at(raw, at),
                                                       .rows = p->b * p->t,
                                                       .columns = stride - at,
                                                       .y_stride = stride,
                                                       .x_stride = stride});
}

/* Computes q and k before their norms, in raw. v has a product of its own unless one matrix
 * computes all three. */
static enum status project_raw(const struct pass *p, int block, struct tensor rows, struct tensor x)
{
    struct tensor raw = transformer_acts(p)->block[block].raw;
    int64_t stride = transformer_params_qkv(p->dims);
    struct matmul_fwd all = {.y = raw, .x = x}, qk = {.y = raw, .x = x, .y_stride = stride},
                      v = {.y = tensor_at(rows, transformer_params_qk(p->dims)),
                           .x = x,
                           .y_stride = stride};
    if (transformer_params_at(p->dims, block, TRANSFORMER_PARAM_QKV) >= 0) {
        TRY(transformer_linear(p, block, TRANSFORMER_LAYER_QKV, all));
        return copy_v(p, rows, raw);
    }
    TRY(transformer_linear(p, block, TRANSFORMER_LAYER_QK, qk));
    return transformer_linear(p, block, TRANSFORMER_LAYER_V, v);
}

enum status transformer_norm_qkv(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = transformer_kept(p, block);
    struct tensor rows = transformer_qkv(p, block), x;
    if (!p->dims->features.has_qk_norm)
        return transformer_norm_linear(p, block, &a->norm1, TRANSFORMER_LAYER_QKV,
                                       (struct matmul_fwd){.y = rows});
    TRY(transformer_norm_fwd(p, &a->norm1));
    TRY(transformer_all_gather_rows(p, a->norm1.y, &x));
    TRY(project_raw(p, block, rows, x));
    /* Norms of the heads: q and k of raw become q and k of rows. */
    struct heads heads[2];
    heads_of(p, heads);
    for (int i = 0; i < 2; i++) {
        int w = transformer_params_at(p->dims, block, heads[i].norm);
        struct head_norm_fwd norm = {.y = tensor_at(rows, heads[i].at),
                                     .x = tensor_at(a->raw, heads[i].at),
                                     .w = transformer_w(p, w),
                                     .n = p->b * p->t,
                                     .heads = heads[i].n,
                                     .d = model_head_dim(p->dims),
                                     .stride = transformer_params_qkv(p->dims),
                                     .eps = (float)model_norm_eps(p->dims)};
        TRY(p->op->head_norm_fwd(p->stream, &norm));
    }
    return ST_OK;
}

enum status transformer_norm_qkv_bwd(const struct pass *p, int block)
{
    const struct transformer_acts *m = transformer_acts(p);
    TRY(norm_heads_bwd(p, block, m->wide));
    return transformer_norm_linear_bwd(p, block, &m->block[block].norm1, TRANSFORMER_LAYER_QKV,
                                       m->dx, m->dmid);
}

/* ---- attention ---- */

/* Returns the number of the first own head in the whole model. */
static int64_t head_first(const struct pass *p) { return p->tensor->at * p->dims->heads; }

static struct dropout probs_dropout(const struct pass *p, int block)
{
    int64_t t = transformer_tokens(p);
    return transformer_dropout(p, block, TRANSFORMER_DROPOUT_PROBS,
                               p->dims->heads * p->tensor->ranks * t * t);
}

enum status transformer_attention(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = transformer_kept(p, block);
    int64_t h = p->dims->heads, hk = model_kv_heads(p->dims), d = model_head_dim(p->dims);
    enum attention_layout layout = transformer_arch(p->dims->arch)->heads;
    struct attention_fwd attention = {.out = a->att,
                                      .lse = a->lse,
                                      .qkv = a->qkv,
                                      .mask = p->mask,
                                      .first_key = p->first_key,
                                      .b = p->b,
                                      .t = transformer_tokens(p),
                                      .h = h,
                                      .hk = hk,
                                      .d = d,
                                      .layout = layout,
                                      .dropout = probs_dropout(p, block),
                                      .head_first = head_first(p),
                                      .heads_whole = p->dims->shard.heads};
    struct attention_decode last = {.out = a->att,
                                    .qkv = a->qkv,
                                    .b = 1,
                                    .t = p->past + 1,
                                    .h = h,
                                    .hk = hk,
                                    .d = d,
                                    .layout = layout};
    ASSERTF(p->past == 0 || p->b * p->t == 1, "past %lld b %lld t %lld", (long long)p->past,
            (long long)p->b, (long long)p->t);
    if (p->past > 0)
        return p->op->attention_decode(p->stream, &last);
    TRY(transformer_all_gather_kv(p, a->qkv, &attention.kv, &attention.own));
    return p->op->attention_fwd(p->stream, &attention);
}

enum status transformer_attention_bwd(const struct pass *p, int block)
{
    const struct transformer_acts *m = transformer_acts(p);
    const struct transformer_acts_block *a = &m->block[block];
    struct attention_bwd attention = {.dqkv = m->wide,
                                      .dout = m->datt,
                                      .out = a->att,
                                      .qkv = a->qkv,
                                      .lse = a->lse,
                                      .mask = p->mask,
                                      .first_key = p->first_key,
                                      .b = p->b,
                                      .t = transformer_tokens(p),
                                      .h = p->dims->heads,
                                      .hk = model_kv_heads(p->dims),
                                      .d = model_head_dim(p->dims),
                                      .layout = transformer_arch(p->dims->arch)->heads,
                                      .dropout = probs_dropout(p, block),
                                      .head_first = head_first(p),
                                      .heads_whole = p->dims->shard.heads,
                                      .dkv = m->exchange};
    TRY(transformer_all_gather_kv(p, a->qkv, &attention.kv, &attention.own));
    TRY(p->op->attention_bwd(p->stream, &attention));
    return transformer_reduce_scatter_kv(p, m->wide);
}

/* transformer_attn — the first half of a block: mid = x + drop(attention(norm(x)·Wqkv + b)·Wo + b),
 * and its backward. It must not know which activations were kept and which are computed again
 * (transformer.h). */
#include "model/transformer/transformer.h"

#include "base/assert.h"

static int norm_of(const struct pass *p, int block)
{
    return transformer_params_at(p->dims, block, TRANSFORMER_PARAM_NORM1);
}

/* heads_whole — of the whole model, where the pass has a part of them. */
static int64_t heads_whole(const struct pass *p) { return p->tensor ? p->dims->shard.heads : 0; }

static int64_t head_first(const struct pass *p)
{
    return p->tensor ? p->tensor->part * p->dims->heads : 0;
}

static struct dropout probs_dropout(const struct pass *p, int block)
{
    int64_t heads = p->tensor ? heads_whole(p) : p->dims->heads, t = transformer_context_tokens(p);
    return transformer_dropout(p, block, TRANSFORMER_DROPOUT_PROBS, heads * t * t);
}

/* ---- q, k and v ---- */

/* rotate — q and k by their positions, or their gradients back; nothing without RoPE. */
static enum status rotate(const struct pass *p, struct tensor rows, bool inverse)
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

/* The heads of q, or of k: their norm's weight, how many they are, and where they begin in a row.
 * */
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

/* norm_heads_bwd — the gradients of q and k in dqkv, in place. */
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

/* take_v — rows of v from raw, where one matrix makes q, k and v. */
static enum status take_v(const struct pass *p, struct tensor rows, struct tensor raw)
{
    int64_t stride = transformer_params_qkv(p->dims), at = transformer_params_qk(p->dims);
    return p->op->copy_2d(p->stream, &(struct copy_2d){.y = tensor_at(rows, at),
                                                       .x = tensor_at(raw, at),
                                                       .rows = p->b * p->t,
                                                       .columns = stride - at,
                                                       .y_stride = stride,
                                                       .x_stride = stride});
}

/* project_raw — q and k before their norms, in raw; v has a product of its own unless one matrix
 * makes all three. */
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
        return take_v(p, rows, raw);
    }
    TRY(transformer_linear(p, block, TRANSFORMER_LAYER_QK, qk));
    return transformer_linear(p, block, TRANSFORMER_LAYER_V, v);
}

/* project — rows of qkv from x, all rows of norm1. With norms of q and k, these come from raw. */
static enum status project(const struct pass *p, int block, struct tensor rows, struct tensor x)
{
    if (!p->dims->features.has_qk_norm) {
        TRY(transformer_linear(p, block, TRANSFORMER_LAYER_QKV,
                               (struct matmul_fwd){.y = rows, .x = x}));
        return rotate(p, rows, false);
    }
    TRY(project_raw(p, block, rows, x));
    /* Norms of the heads: q and k of raw become those of rows. */
    struct tensor raw = transformer_acts(p)->block[block].raw;
    struct heads heads[2];
    heads_of(p, heads);
    for (int i = 0; i < 2; i++) {
        int w = transformer_params_at(p->dims, block, heads[i].norm);
        struct head_norm_fwd norm = {.y = tensor_at(rows, heads[i].at),
                                     .x = tensor_at(raw, heads[i].at),
                                     .w = transformer_w(p, w),
                                     .n = p->b * p->t,
                                     .heads = heads[i].n,
                                     .d = model_head_dim(p->dims),
                                     .stride = transformer_params_qkv(p->dims),
                                     .eps = (float)model_norm_eps(p->dims)};
        TRY(p->op->head_norm_fwd(p->stream, &norm));
    }
    return rotate(p, rows, false);
}

/* ---- attention ---- */

/* look — attention's output from qkv: of all rows, or of the last row alone with a KV cache. */
static enum status look(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = &transformer_acts(p)->block[block];
    int64_t h = p->dims->heads, hk = model_kv_heads(p->dims), d = model_head_dim(p->dims);
    enum attention_layout layout = transformer_arch(p->dims->arch)->heads;
    struct attention_fwd attention = {.out = a->att,
                                      .lse = a->lse,
                                      .qkv = a->qkv,
                                      .mask = p->mask,
                                      .first_key = p->first_key,
                                      .b = p->b,
                                      .t = transformer_context_tokens(p),
                                      .h = h,
                                      .hk = hk,
                                      .d = d,
                                      .layout = layout,
                                      .dropout = probs_dropout(p, block),
                                      .head_first = head_first(p),
                                      .heads_whole = heads_whole(p)};
    struct attention_decode last = {.out = a->att,
                                    .qkv = a->qkv,
                                    .b = 1,
                                    .t = p->past + 1,
                                    .h = h,
                                    .hk = hk,
                                    .d = d,
                                    .layout = layout};
    return p->past > 0 ? p->op->attention_decode(p->stream, &last)
                       : transformer_context_attention_fwd(p, attention);
}

/* The norm, qkv and attention's output: what RECOMPUTE=attention computes twice. */
static enum status attend(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = &transformer_acts(p)->block[block];
    ASSERTF(p->past == 0 || p->b * p->t == 1, "past %lld b %lld t %lld", (long long)p->past,
            (long long)p->b, (long long)p->t);
    struct tensor x, rows = tensor_at(a->qkv, p->past * transformer_params_qkv(p->dims));
    TRY(transformer_norm(p, norm_of(p, block), a->norm1, a->norm1_mean, a->norm1_rstd, a->x));
    TRY(transformer_tensor_gather(p, a->norm1, &x));
    TRY(project(p, block, rows, x));
    return look(p, block);
}

enum status transformer_attn_fwd(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = &transformer_acts(p)->block[block];
    struct dropout dropout = transformer_dropout(p, block, TRANSFORMER_DROPOUT_ATT,
                                                 transformer_context_tokens(p) * p->dims->embed);
    TRY(attend(p, block));
    return transformer_tensor_branch(
        p, block, TRANSFORMER_LAYER_ATT,
        (struct matmul_fwd){.y = a->mid, .x = a->att, .residual = a->x, .dropout = dropout});
}

/* dx, the gradient of mid, to dqkv at the start of wide; the gradient of attention's output lies
 * behind it. */
static enum status attend_bwd(const struct pass *p, int block, struct tensor dqkv)
{
    const struct transformer_acts_block *a = &transformer_acts(p)->block[block];
    struct tensor none = {0}, dout,
                  datt = tensor_at(dqkv, p->b * p->t * transformer_params_qkv(p->dims));
    struct attention_bwd attention = {.dqkv = dqkv,
                                      .dout = datt,
                                      .out = a->att,
                                      .qkv = a->qkv,
                                      .lse = a->lse,
                                      .mask = p->mask,
                                      .first_key = p->first_key,
                                      .b = p->b,
                                      .t = transformer_context_tokens(p),
                                      .h = p->dims->heads,
                                      .hk = model_kv_heads(p->dims),
                                      .d = model_head_dim(p->dims),
                                      .layout = transformer_arch(p->dims->arch)->heads,
                                      .dropout = probs_dropout(p, block),
                                      .head_first = head_first(p),
                                      .heads_whole = heads_whole(p)};
    TRY(transformer_branch_grad(p, block, TRANSFORMER_DROPOUT_ATT, &dout));
    TRY(transformer_linear_bwd_w(p, block, TRANSFORMER_LAYER_ATT, a->att, dout));
    TRY(transformer_linear_bwd_x(p, block, TRANSFORMER_LAYER_ATT, datt, dout, none));
    TRY(transformer_context_attention_bwd(p, attention));
    TRY(rotate(p, dqkv, true));
    return norm_heads_bwd(p, block, dqkv);
}

enum status transformer_attn_bwd(const struct pass *p, int block)
{
    const struct transformer_acts *m = transformer_acts(p);
    const struct transformer_acts_block *a = &m->block[block];
    struct tensor dqkv = m->wide, x;
    /* Whether this half computes its own forward pass again. With RECOMPUTE=block the whole block
     * does so before its backward pass (transformer.c). */
    enum model_recompute way = transformer_recompute(p, block);
    if (way == MODEL_RECOMPUTE_ATTENTION ||
        (way == MODEL_RECOMPUTE_BLOCK && p->dims->features.is_parallel))
        TRY(attend(p, block));
    TRY(attend_bwd(p, block, dqkv));
    TRY(transformer_norm_again(p, block, norm_of(p, block), a->norm1, a->x));
    TRY(transformer_tensor_gather(p, a->norm1, &x));
    TRY(transformer_linear_bwd_w(p, block, TRANSFORMER_LAYER_QKV, x, dqkv));
    TRY(transformer_tensor_input_grad(p, block, TRANSFORMER_LAYER_QKV, dqkv));
    return transformer_norm_bwd(
        p, norm_of(p, block),
        (struct norm_bwd){.dx = m->dx,
                          .dy = m->y,
                          .x = a->x,
                          .mean = a->norm1_mean,
                          .rstd = a->norm1_rstd,
                          .dresidual = p->dims->features.is_parallel ? m->dmid : m->dx});
}

/* transformer — what the files of the decoder-only transformer share; for src/model only.
 *
 * It is driven by data: struct model_dims (with its features), the architecture's names
 * (transformer_arch.h), and the numbers of parameters in the table (transformer_params.c). A block
 * has two halves: attention (x to mid) and MLP (mid to the next block's x). With parallel
 * residuals, the second half's norm reads x, and its output is added to mid. */
#ifndef CONVOY_MODEL_TRANSFORMER_H
#define CONVOY_MODEL_TRANSFORMER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/rope.h"
#include "kernels/tensor.h"
#include "model/model.h"
#include "model/model_shard.h"
#include "model/transformer/transformer_arch.h"

/* The functions of both tasks, for model.c. */
extern const struct model_ops transformer_lm_ops, transformer_qa_ops;

/* transformer_acts — the activations that backward needs, and the scratch that both directions
 * share; for src/model only.
 *
 * Kept for each block, in elements a row (U: F, or 2F with a gate: what the MLP's first product
 * makes; Q = (H+2K)·D):
 * - its input (C), the middle of the block (C; not with parallel residuals), that product (U)
 * - qkv (Q), the output (H·D) and lse (H) of attention, mean and rstd of both norms
 * - with norms of q and k: q and k before them, in rows as wide as those of qkv (Q)
 * - the outputs of the norms (C, C) and of the MLP's activation (F)
 * Less is kept:
 * - RECOMPUTE=light and all below: the outputs of norms and activation lie in y and wide of the
 *   scratch. GPT-2 keeps 16C, then 10C.
 * - RECOMPUTE=attention: all blocks share one qkv, raw q and k, output and lse.
 * - RECOMPUTE=block, and without gradients: all blocks share everything but their inputs.
 * With RECOMPUTE=block:12 and such, each block keeps what its own way says.
 * Shared tensors are written again in the block's backward before they are read. With a KV cache
 * (model_plan_kv_cache) each block has a qkv of its own; earlier passes wrote its first `past`
 * rows.
 *
 * With tensor parallelism over P parts a pass has all N rows of heads and of the MLP's width, but
 * M = N/P own rows of what is C wide: residuals and norms. Else M = N.
 *
 * With context parallelism over P parts a pass has T/P positions of each sample: T in all shapes
 * here is this number, N = B·T, and T·P are all positions.
 *
 * Scratch: y (M,C); dx (M,C), the gradient on its way down; dmid (M,C), with parallel residuals;
 * rows (N,C), where M < N: what a product reads, after the parts of all ranks are gathered, or what
 * it makes, before the sums of all ranks are added;
 * exchange and kv (B,T·P,2K·D), with context parallelism: keys and values of all positions, or
 * their gradients, by parts and in order;
 * wide, the largest of: dqkv with the gradient of attention's output, (N,Q+H·D); the gradients of
 * the MLP, (N,F), or (N,3F) with a gate; a chunk of logits. rope is the table of cosines and sines
 * of a pass, f32. All other tensors that are Q, U, C or F wide and all scratch are of the plan's
 * dtype, the others are f32. */
struct transformer_acts_block {
    enum model_recompute recompute;                 /* what its backward pass computes again */
    struct tensor x;                                /* (M,C) input of the block */
    struct tensor norm1_mean, norm1_rstd, qkv;      /* (M) (M) (N,Q); RMSNorm: no mean */
    struct tensor raw, att, lse;                    /* (N,Q) or {0}, (N,H·D) (B,H,T) */
    struct tensor mid, norm2_mean, norm2_rstd, pre; /* (M,C) (M) (M) (N,U) */
    struct tensor norm1, norm2, act;                /* (M,C) (M,C) (N,F); may be y, y and wide */
};

struct transformer_acts {
    int64_t b, t; /* planned for at most */
    enum dtype dtype;
    bool want_grad;
    struct transformer_acts_block *block;
    struct tensor out; /* (M,C) output of the last block */
    struct tensor norm_mean, norm_rstd;
    struct tensor rope; /* (T, rotated/2, 2), or {0} */
    struct tensor y, dx, dmid, wide;
    struct tensor rows;         /* (N,C) of all ranks, or {0}: y is already of all rows */
    struct tensor exchange, kv; /* of all positions, or {0} */
    struct tensor stats;        /* (P,3·logits_rows) f32, or {0}: of the vocabulary's parts */
    struct tensor dact;         /* in wide: the gradient of act; act itself where it is not kept */
    int64_t logits_rows, logits_stride; /* LM: a chunk of logits in wide */
    int64_t stats_stride;               /* from part to part of stats */
};

static inline struct transformer_acts *transformer_acts(const struct pass *p)
{
    return (struct transformer_acts *)p->acts;
}

/* What a block's backward pass computes again. */
static inline enum model_recompute transformer_recompute(const struct pass *p, int block)
{
    return transformer_acts(p)->block[block].recompute;
}

/* ---- parameters (transformer_params.c) ---- */

/* _params_describe  as struct model_ops.describe.
 * _params_at        the number of a block's parameter; -1: the block has none.
 * _params_end       the number of the final norm's weight; its bias follows, then the QA head's
 *                   weight and bias, or the untied vocabulary weights.
 * _params_vocab     the number of the vocabulary's weights: tied, the token embedding. */
enum status transformer_params_describe(const struct model_dims *dims, struct param_table *out);
int transformer_params_at(const struct model_dims *dims, int block, enum transformer_param part);
int transformer_params_end(const struct model_dims *dims);
int transformer_params_qa(const struct model_dims *dims);
int transformer_params_vocab(const struct model_dims *dims);

/* A linear layer: the numbers of its weight and bias (-1: none), its widths. Packed weights count
 * as one: the first's number, the sum of the widths. */
struct transformer_linear {
    int w, b;
    int64_t in, out;
};
enum transformer_layer {
    TRANSFORMER_LAYER_QKV,
    TRANSFORMER_LAYER_QK, /* q and k alone */
    TRANSFORMER_LAYER_V,  /* v alone */
    TRANSFORMER_LAYER_ATT,
    TRANSFORMER_LAYER_UP, /* with the gate */
    TRANSFORMER_LAYER_DOWN
};
struct transformer_linear transformer_params_linear(const struct model_dims *dims, int block,
                                                    enum transformer_layer layer);

/* Widths: of a row of q, k and v; of attention's output; of what the MLP's
 * first product makes; of a head's elements that rotate, 0 without RoPE. */
int64_t transformer_params_qkv(const struct model_dims *dims);
int64_t transformer_params_qk(const struct model_dims *dims); /* q and k alone */
int64_t transformer_params_rotated(const struct model_dims *dims);
int64_t transformer_params_att(const struct model_dims *dims);
int64_t transformer_params_up(const struct model_dims *dims);

/* rope_freq — writes the inverse frequencies of rotated/2 pairs, the rest 0. Returns what cosines
 * and sines are multiplied by: 1, or YaRN's attention factor. Pure (rope_freq.c). */
float rope_freq(const struct model_rope *rope, int64_t rotated, float out[ROPE_FREQ_MAX]);

/* ---- operations (transformer.c) ---- */

#define TRANSFORMER_WTE 0
#define TRANSFORMER_WPE 1
struct tensor transformer_w(const struct pass *p, int param);  /* values; param -1: {0} */
struct tensor transformer_dw(const struct pass *p, int param); /* where its gradient goes */
/* transformer_dw_vocab — of the head's product; tied weights: what embed_bwd adds to, too. */
struct tensor transformer_dw_vocab(const struct pass *p);

/* Operations on all N = B·T rows of a pass; norms on own rows (transformer_tensor.c).
 * _norm        y = norm(x); mean and rstd are kept, or not where they are {0}. param: the number of
 *              its weight; its bias follows.
 * _norm_again  y = norm(x) for a backward pass of a block, unless RECOMPUTE=none kept it.
 * _norm_bwd    `how` holds dx, dy, x, mean, rstd and dresidual; the rest is filled in.
 * _linear      y = x·W + b; `how` holds y, x and what is fused (GELU, dropout, residual); weights
 *              and sizes are filled in.
 * _linear_sum  y = x·W alone, without bias.
 * _linear_bwd  _w: gradients of weight and bias; _x: of x, through GELU where `pre` is given. */
enum status transformer_norm(const struct pass *p, int param, struct tensor y, struct tensor mean,
                             struct tensor rstd, struct tensor x);
enum status transformer_norm_again(const struct pass *p, int block, int param, struct tensor y,
                                   struct tensor x);
enum status transformer_norm_bwd(const struct pass *p, int param, struct norm_bwd how);
enum status transformer_linear(const struct pass *p, int block, enum transformer_layer layer,
                               struct matmul_fwd how);
enum status transformer_linear_sum(const struct pass *p, int block, enum transformer_layer layer,
                                   struct tensor y, struct tensor x);
enum status transformer_linear_bwd_w(const struct pass *p, int block, enum transformer_layer layer,
                                     struct tensor x, struct tensor dy);
enum status transformer_linear_bwd_x(const struct pass *p, int block, enum transformer_layer layer,
                                     struct tensor dx, struct tensor dy, struct tensor pre);

/* Where a block applies dropout; the embedding's counts as of block 0. */
enum transformer_dropout_place {
    TRANSFORMER_DROPOUT_PROBS,
    TRANSFORMER_DROPOUT_ATT,
    TRANSFORMER_DROPOUT_MLP,
    TRANSFORMER_DROPOUT_EMBED
};
/* _dropout: off without gradients. sample_elems: elements of one sample at this place, in the whole
 * model. Element 0 is the first of the pass's samples, also where own rows begin behind it.
 * _branch_grad: the gradient of all rows that enters a residual branch: dx of the plan itself, or,
 * with dropout, dx through the branch's dropout, in y of the plan; in `rows` where these are
 * gathered. */
struct dropout transformer_dropout(const struct pass *p, int block,
                                   enum transformer_dropout_place place, int64_t sample_elems);
enum status transformer_branch_grad(const struct pass *p, int block,
                                    enum transformer_dropout_place place, struct tensor *out);

/* ---- rows of tensor parallelism (transformer_tensor.c) ---- */

/* Parts of a tensor that ranks exchange are multiples of this. */
#define TRANSFORMER_SHARE_ELEMS 16

/* What is C wide lies on the ranks in parts by rows, what is wider in parts by columns. Without
 * tensor parallelism own rows are all rows.
 * _tensor_own_rows    how many rows are own, and, in *first, the number of the first.
 * _tensor_vocab_most  the columns of logits of the part that has most, rounded up to what ranks
 *                     exchange.
 * _tensor_gather      *out: all rows of `own`; lies in `rows` of the plan, or is `own`.
 * _tensor_full        where a product of own columns puts its sum of all rows: `rows`, or y.
 * _tensor_scatter     y = own rows of the sum of _tensor_full over the ranks.
 * _tensor_branch      the last product of a branch; `how` as in transformer_linear, with the
 *                     residual: y and residual are own rows, x is all rows.
 * _tensor_input_grad  y = own rows of the gradient of a branch's first product's input. */
int64_t transformer_tensor_own_rows(const struct pass *p, int64_t *first);
int64_t transformer_tensor_vocab_most(const struct model_dims *dims);
enum status transformer_tensor_gather(const struct pass *p, struct tensor own, struct tensor *out);
struct tensor transformer_tensor_full(const struct pass *p);
enum status transformer_tensor_scatter(const struct pass *p);
enum status transformer_tensor_branch(const struct pass *p, int block, enum transformer_layer layer,
                                      struct matmul_fwd how);
enum status transformer_tensor_input_grad(const struct pass *p, int block,
                                          enum transformer_layer layer, struct tensor dy);
enum status transformer_tensor_embed_fwd(const struct pass *p, struct embed_fwd embed);
enum status transformer_tensor_embed_bwd(const struct pass *p, struct embed_bwd embed);

/* ---- positions of context parallelism (transformer_context.c) ---- */

/* Rows [first, first + n) of a pass that are neighbours in a sample; index: the number of the first
 * one, with all positions of all samples counted. */
struct transformer_rows {
    int64_t first, n, index;
};
/* A sample's positions are all in a pass, or two runs of them. Without context parallelism own
 * positions are all positions.
 * _context_tokens      tokens of a whole sample.
 * _context_next        the rows that follow *rows, up to `end`; false: there are none. Begin with
 *                      n = 0.
 * _context_drop, _context_branch_add
 *                      the operation on own rows (transformer_tensor.c); n and c are filled in.
 * _context_embed_fwd, _bwd, _attention_fwd, _bwd
 *                      the operation on all rows of the pass; of attention, kv and own are filled
 *                      in.
 * _context_row         the pass's row that is row `row` of whole samples; *is_own false: another
 *                      part has it, and the result is 0.
 * _context_share       x of the part that has is_own, on all parts.
 * Of QA's two logits a row, `whole` those of all positions:
 * _context_spans_place   where the pass's rows are to be written.
 * _context_spans_gather  then writes those of all rows to `whole`.
 * _context_spans_take    *out: the pass's rows of `whole`. */
int64_t transformer_context_tokens(const struct pass *p);
bool transformer_context_next(const struct pass *p, int64_t end, struct transformer_rows *rows);
enum status transformer_context_drop(const struct pass *p, struct drop drop);
enum status transformer_context_branch_add(const struct pass *p, struct branch_add add);
enum status transformer_context_embed_fwd(const struct pass *p, const struct embed_fwd *embed);
enum status transformer_context_embed_bwd(const struct pass *p, const struct embed_bwd *embed);
enum status transformer_context_attention_fwd(const struct pass *p, struct attention_fwd attention);
enum status transformer_context_attention_bwd(const struct pass *p, struct attention_bwd attention);
int64_t transformer_context_row(const struct pass *p, int64_t row, bool *is_own);
enum status transformer_context_share(const struct pass *p, struct tensor x, int64_t elems,
                                      bool is_own);
struct tensor transformer_context_spans_place(const struct pass *p, struct tensor whole);
enum status transformer_context_spans_gather(const struct pass *p, struct tensor whole);
enum status transformer_context_spans_take(const struct pass *p, struct tensor whole,
                                           struct tensor *out);

/* ---- halves of a block, heads, memory ---- */

/* x to mid, mid to the next block's x; backward from dx to dx, the MLP first. */
enum status transformer_attn_fwd(const struct pass *p, int block);
enum status transformer_attn_bwd(const struct pass *p, int block);
enum status transformer_mlp_fwd(const struct pass *p, int block);
enum status transformer_mlp_bwd(const struct pass *p, int block);

/* Heads: losses and, with want_grad, gradients of parameters and (in dx) of the last block's
 * output; logits as in struct model_ops. */
enum status transformer_head_lm_run(const struct pass *p);
enum status transformer_head_lm_logits(const struct pass *p, int64_t row, struct tensor out);
enum status transformer_head_qa_run(const struct pass *p);
enum status transformer_head_qa_logits(const struct pass *p, int64_t row, struct tensor out);

/* Memory and arithmetic, as in struct model_ops. */
enum status transformer_plan(const struct model_dims *dims, int64_t b, int64_t t,
                             struct model_recomputed recompute, bool want_grad, enum dtype dtype,
                             struct arena *acts, struct arena *scratch, struct model_acts **out);
void transformer_plan_kv_cache(const struct model_dims *dims, struct model_acts *plan,
                               struct arena *acts);
double transformer_plan_flops_per_token(const struct model_dims *dims, int64_t t);

#endif

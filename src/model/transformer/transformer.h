/* transformer — the types and functions that the files of the decoder-only transformer share; for
 * src/model only.
 *
 * Blocks are gpt2/gpt2.c and llama/llama.c: each shows the order of its computation, forward and
 * backward, in calls of the functions below. A block has two halves: attention (x to mid) and MLP
 * (mid to next). With parallel residuals the second half's norm reads x, and its output is added to
 * mid. All other differences between models are data: struct model_dims (with its features), the
 * architecture's names (transformer_arch.h), and the numbers of parameters in the table
 * (transformer_params.c). */
#ifndef CONVOY_MODEL_TRANSFORMER_H
#define CONVOY_MODEL_TRANSFORMER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/rope.h"
#include "kernels/tensor.h"
#include "model/model.h"
#include "model/transformer/transformer_arch.h"

/* The functions of both tasks, for model.c. */
extern const struct model_ops transformer_lm_ops, transformer_qa_ops;

/* transformer_acts — the activations that backward needs, and the scratch that both directions
 * share; for src/model only.
 *
 * Kept for each block, in elements per row (U: F, or 2F with a gate: the width of the MLP's first
 * product; Q = (H+2K)·D):
 * - its input (C), the middle of the block (C; not with parallel residuals), the MLP's first
 *   product (U)
 * - qkv (Q), the output (H·D) and lse (H) of attention, mean and rstd of both norms
 * - with norms of q and k: q and k before them, in rows as wide as the rows of qkv (Q)
 * - the outputs of the norms (C, C) and of the MLP's activation (F)
 * - with an adapter, always: the rows between the A and the B of each module (r)
 * Less is kept:
 * - RECOMPUTE=light and all below: the outputs of norms and activation lie in y and wide of the
 *   scratch. GPT-2 keeps 16C, then 10C.
 * - RECOMPUTE=attention: all blocks share one qkv, raw q and k, output and lse.
 * - RECOMPUTE=block, and without gradients: all blocks share everything but their inputs.
 * With RECOMPUTE=block:12 and such, each block keeps the tensors of its own way. Shared tensors are
 * written again in the block's backward before they are read. With a KV cache (model_plan_kv_cache)
 * each block has a qkv of its own; earlier passes wrote its first `past` rows.
 *
 * A tensor axis of P ranks: a pass has all N rows of heads and of the MLP's width, but only M = N/P
 * own rows of the tensors that are C wide: residuals and norms. A context axis of P ranks: a pass
 * has T/P positions of each sample; T in all shapes here is this number, N = B·T, and T·P are all
 * positions. An axis of one rank omits the tensors that only ranks exchange.
 *
 * Scratch:
 *   y       (M,C)
 *   dx      (M,C), the gradient on its way down
 *   dmid    (M,C), the gradient of mid with parallel residuals, else dx
 *   rows    (N,C) if M < N, else y: the input of a product, after the rows of all ranks are
 *           gathered, or its output, before the sums of all ranks are added
 *   exchange, kv  (B,T·P,2K·D), if ranks share samples: keys and values of all positions, or their
 *                 gradients, by rank and in order
 *   wide    the largest of: dqkv with the gradient of attention's output, (N,Q+H·D); the gradients
 *           of the MLP, (N,F), or (N,3F) with a gate; a chunk of logits
 *   rope    the table of cosines and sines of a pass, f32
 *   dlow, low_all  with an adapter: rows between the A and the B of a layer, of up to three
 *                  modules: gradients, each module's rows apart, (3,N,r); and together, (N,3r)
 *   unread  with an adapter: gradients of the model's frozen vectors, which nothing reads, f32
 * All other tensors that are Q, U, C or F wide and all scratch are of the plan's dtype, the others
 * are f32. */
struct transformer_norm {
    int w;                    /* number of its weight; its bias follows */
    struct tensor x, y;       /* (M,C) y may be the y of the scratch */
    struct tensor mean, rstd; /* (M); {0}: not kept; RMSNorm has no mean */
};

/* The layers of a block that have adapters: of q, k and v, of attention's output, and the MLP's. */
#define TRANSFORMER_ADAPTED_N 4

struct transformer_acts_block {
    enum model_recompute recompute;           /* recomputation in its backward pass */
    struct tensor x, mid, next;               /* (M,C) input, after attention, output */
    struct transformer_norm norm1, norm2;     /* norm before attention, norm before the MLP */
    struct tensor qkv, raw, att, lse;         /* (N,Q), (N,Q) or {0}, (N,H·D) (B,H,T) */
    struct tensor pre, act;                   /* (N,U) (N,F); act may be in wide */
    struct tensor low[TRANSFORMER_ADAPTED_N]; /* (modules,N,r), or {0} */
};

struct transformer_acts {
    int64_t b, t; /* largest pass that is planned */
    enum dtype dtype;
    bool want_grad;
    struct transformer_acts_block *block;
    struct tensor out;            /* (M,C) output of the last block */
    struct transformer_norm norm; /* norm of out, to y */
    struct tensor rope;           /* (T, rotated/2, 2), or {0} */
    struct tensor y, dx, dmid, wide;
    struct tensor rows;         /* (N,C) rows of all ranks */
    struct tensor exchange, kv; /* keys and values of all positions, or {0} */
    struct tensor stats; /* (P,3·logits_rows) f32, or {0}: statistics of each rank's vocabulary */
    struct tensor dlow, low_all, unread;
    struct tensor datt, dact; /* in wide: the gradients of att and of act */
    /* LM: rows of a chunk of logits in wide, and their stride */
    int64_t logits_rows, logits_stride;
    int64_t stats_stride; /* elements from one rank to the next in stats */
};

static inline struct transformer_acts *transformer_acts(const struct pass *p)
{
    return (struct transformer_acts *)p->acts;
}

static inline const struct transformer_acts_block *transformer_kept(const struct pass *p, int block)
{
    return &transformer_acts(p)->block[block];
}

/* ---- parameters (transformer_params.c) ---- */

/* transformer_params_describe — as struct model_ops.describe. */
enum status transformer_params_describe(const struct model_dims *dims, struct param_table *out);
/* transformer_params_at — returns the number of a block's parameter; -1: the block does not have
 * it. */
int transformer_params_at(const struct model_dims *dims, int block, enum transformer_param param);
/* transformer_params_end — returns the number of the final norm's weight; its bias, if it has one,
 * follows, then the QA head's weight and bias, or the untied vocabulary weights. */
int transformer_params_end(const struct model_dims *dims);
/* transformer_params_qa — returns the number of the QA head's weight; its bias follows. Only if the
 * task is QA. */
int transformer_params_qa(const struct model_dims *dims);
/* transformer_params_vocab — returns the number of the vocabulary's weights: tied, the token
 * embedding. */
int transformer_params_vocab(const struct model_dims *dims);

/* A linear layer: the numbers of its weight and bias (-1: none), its widths. Packed weights count
 * as one: the number of the first, the sum of the widths. */
struct transformer_linear {
    int w, b;
    int64_t in, out;
};
enum transformer_layer {
    TRANSFORMER_LAYER_QKV,
    TRANSFORMER_LAYER_QK, /* only q and k */
    TRANSFORMER_LAYER_V,  /* only v */
    TRANSFORMER_LAYER_ATT,
    TRANSFORMER_LAYER_UP, /* with the gate */
    TRANSFORMER_LAYER_DOWN,
    TRANSFORMER_LAYER_N
};
/* transformer_params_linear — returns a linear layer of a block. */
struct transformer_linear transformer_params_linear(const struct model_dims *dims, int block,
                                                    enum transformer_layer layer);

/* transformer_params_qkv — returns the width of a row of q, k and v. */
int64_t transformer_params_qkv(const struct model_dims *dims);
int64_t transformer_params_qk(const struct model_dims *dims); /* only q and k */
/* transformer_params_rotated — returns the elements of a head that rotate; 0 without RoPE. */
int64_t transformer_params_rotated(const struct model_dims *dims);
/* transformer_params_att — returns the width of attention's output. */
int64_t transformer_params_att(const struct model_dims *dims);
/* transformer_params_up — returns the width of the output of the MLP's first product. */
int64_t transformer_params_up(const struct model_dims *dims);

/* The adapter of a linear layer: `modules` of its matrices, whose outputs begin at column `at` of
 * the layer's output. a: the number of the first A; the others follow without padding, and one
 * product reads all. adapted, first: its rows between A and B are `low[adapted]` of the block, from
 * module `first` on. */
#define TRANSFORMER_MODULES_MAX 3
struct transformer_adapter {
    int modules; /* 0: the layer has no adapter */
    int adapted, first;
    int a, b[TRANSFORMER_MODULES_MAX];
    int64_t r, in, out[TRANSFORMER_MODULES_MAX], at[TRANSFORMER_MODULES_MAX];
};
/* transformer_params_target — returns the set of targets (enum model_target) that a matrix is; 0:
 * the model does not have it, or it has no adapter. */
unsigned transformer_params_target(const struct model_dims *dims, enum transformer_param param);
/* transformer_params_adapter — returns the adapter of a layer, with numbers of the adapter's
 * table. */
struct transformer_adapter transformer_params_adapter(const struct model_dims *dims, int block,
                                                      enum transformer_layer layer);
/* transformer_params_describe_adapter — as struct model_ops.describe_adapter. */
enum status transformer_params_describe_adapter(const struct model_dims *dims,
                                                struct param_table *out);

/* rope_freq — writes the inverse frequencies of rotated/2 pairs, the rest 0. Returns the factor of
 * cosines and sines: 1, or YaRN's attention factor. Pure (rope_freq.c). */
float rope_freq(const struct model_rope *rope, int64_t rotated, float out[ROPE_FREQ_MAX]);

/* ---- tensors of parameters (transformer.c) ---- */

#define TRANSFORMER_WTE 0
#define TRANSFORMER_WPE 1
/* values of a parameter; param -1: {0} */
struct tensor transformer_w(const struct pass *p, int param);
/* memory of its gradient; with an adapter it is not read, and only vectors may be written */
struct tensor transformer_dw(const struct pass *p, int param);
/* transformer_unread — returns the elements of the gradient of the longest frozen vector of a
 * norm. */
int64_t transformer_unread(const struct model_dims *dims);
/* transformer_dw_vocab — returns the memory of the gradient of the head's product; with tied
 * weights embed_bwd adds to it, too. */
struct tensor transformer_dw_vocab(const struct pass *p);

/* ---- adapters (transformer_adapter.c): nothing if the layer has none ---- */

/* Adds the adapter's output to y, rows of the layer's output, y_stride elements apart. */
enum status transformer_adapter_fwd(const struct pass *p, int block, enum transformer_layer layer,
                                    struct tensor y, int64_t y_stride, struct tensor x);
/* Computes the gradients of A and B from dy, the gradient of the layer's output, and leaves the
 * gradient of A's output in low_all. */
enum status transformer_adapter_bwd_w(const struct pass *p, int block, enum transformer_layer layer,
                                      struct tensor x, struct tensor dy);
/* Adds the gradient of x through A to dx. Call it after transformer_adapter_bwd_w. */
enum status transformer_adapter_bwd_x(const struct pass *p, int block, enum transformer_layer layer,
                                      struct tensor dx);

/* ---- norms and linear layers (transformer_linear.c) ---- */

/* Shares of a tensor that ranks exchange are multiples of this. */
#define TRANSFORMER_SHARE_ELEMS 16

/* The sites where a block applies dropout; the embedding's counts as dropout of block 0. */
enum transformer_dropout_site {
    TRANSFORMER_DROPOUT_PROBS,
    TRANSFORMER_DROPOUT_ATT,
    TRANSFORMER_DROPOUT_MLP,
    TRANSFORMER_DROPOUT_EMBED
};
/* Returns the dropout of a pass at a site; off without gradients. sample_elems: elements of one
 * sample there, in the whole model. Element 0 is the first element of the pass's samples. */
struct dropout transformer_dropout(const struct pass *p, int block,
                                   enum transformer_dropout_site site, int64_t sample_elems);
/* Returns the dropout of rows of C elements. */
struct dropout transformer_row_dropout(const struct pass *p, int block,
                                       enum transformer_dropout_site site);
/* Sets *out to the gradient of all rows that enters a residual branch: dx of the plan itself, or,
 * with dropout, dx through the branch's dropout, in y of the plan; gathered rows are in `rows`. */
enum status transformer_branch_grad(const struct pass *p, int block,
                                    enum transformer_dropout_site site, struct tensor *out);

/* Returns the number of own rows, and, in *first, the number of the first. */
int64_t transformer_own_rows(const struct pass *p, int64_t *first);
/* Returns true if the own rows are all rows of the pass: it has one tensor rank. */
bool transformer_has_all_rows(const struct pass *p);
/* Sets *all to all rows of `own`. They are in `rows` of the plan, or are `own` itself. */
enum status transformer_all_gather_rows(const struct pass *p, struct tensor own,
                                        struct tensor *all);
/* Writes own rows of the sum of `rows` over the ranks to y. */
enum status transformer_reduce_scatter_rows(const struct pass *p);

/* Computes norm->y of own rows; mean and rstd are kept unless they are {0}. */
enum status transformer_norm_fwd(const struct pass *p, const struct transformer_norm *norm);
/* Computes dx, the gradient of norm->x, plus dresidual, and the gradients of weight and bias. */
enum status transformer_norm_bwd(const struct pass *p, const struct transformer_norm *norm,
                                 struct tensor dy, struct tensor dx, struct tensor dresidual);

/* Computes how.y = x·W + b of all rows, with the epilogue of `how` (GELU); weights and sizes are
 * filled in. */
enum status transformer_linear(const struct pass *p, int block, enum transformer_layer layer,
                               struct matmul_fwd how);
/* Begins a branch: how.y = norm(x)·W + b. */
enum status transformer_norm_linear(const struct pass *p, int block,
                                    const struct transformer_norm *norm,
                                    enum transformer_layer layer, struct matmul_fwd how);
/* Ends a branch's backward pass: from the gradient of how.y, in wide, computes the gradients of
 * weights and bias, and dx = dresidual + the gradient of the norm's x. */
enum status transformer_norm_linear_bwd(const struct pass *p, int block,
                                        const struct transformer_norm *norm,
                                        enum transformer_layer layer, struct tensor dx,
                                        struct tensor dresidual);
/* Ends a branch: y = residual + dropout(x·W + b). */
enum status transformer_linear_residual(const struct pass *p, int block,
                                        enum transformer_layer layer, struct tensor y,
                                        struct tensor x, struct tensor residual);
/* Begins a branch's backward pass: from dx of the plan, the gradient of y, computes the gradients
 * of weights and bias, and dx, the gradient of x, through GELU if `pre` is not {0}. */
enum status transformer_linear_residual_bwd(const struct pass *p, int block,
                                            enum transformer_layer layer, struct tensor dx,
                                            struct tensor x, struct tensor pre);

/* Computes some operations of a block's forward pass. */
typedef enum status (*transformer_block_fn)(const struct pass *p, int block);
/* Computes again the tensors that a block did not keep for its backward pass. attend: computes the
 * block's first half up to att; activate: computes act from pre. */
enum status transformer_keep_or_recompute(const struct pass *p, int block,
                                          transformer_block_fn attend,
                                          transformer_block_fn activate);

/* ---- attention (transformer_attn.c) ---- */

/* Computes q, k and v of norm1(x), with norms of the heads of q and k if the model has them. */
enum status transformer_norm_qkv(const struct pass *p, int block);
/* Computes, from the gradients of q, k and v in wide, the gradients of weights and biases, and dx,
 * the gradient of the block's input, to which it adds dmid. */
enum status transformer_norm_qkv_bwd(const struct pass *p, int block);
/* Returns the rows of q, k and v that a pass computes; with a KV cache earlier rows are before
 * them. */
struct tensor transformer_qkv(const struct pass *p, int block);
/* Rotates q and k by their positions, or their gradients back; nothing without RoPE. */
enum status transformer_rotate(const struct pass *p, struct tensor rows, bool inverse);
/* Computes att = softmax(q·k/√D)·v; with a KV cache only of the last row. */
enum status transformer_attention(const struct pass *p, int block);
/* Computes the gradients of q, k and v, in wide, from datt. */
enum status transformer_attention_bwd(const struct pass *p, int block);

/* ---- positions (transformer_context.c) ---- */

/* Rows [first, first + n) of a pass that are neighbours in their samples. index: the number of the
 * first row among all positions of all samples. */
struct transformer_rows {
    int64_t first, n, index;
};
/* Returns the tokens of a whole sample. */
int64_t transformer_tokens(const struct pass *p);
/* Returns true if a pass has all positions of its samples. */
bool transformer_has_all_tokens(const struct pass *p);
/* Advances to the rows that follow *rows, up to `end`; false: there are none. Begin with n = 0. */
bool transformer_rows_next(const struct pass *p, int64_t end, struct transformer_rows *rows);
/* Applies dropout to own rows (transformer_own_rows); n is filled in. */
enum status transformer_drop(const struct pass *p, struct drop drop);
/* Runs branch_add on own rows; n and c are filled in. */
enum status transformer_branch_add(const struct pass *p, struct branch_add add);
/* Runs embed_fwd on all rows of the pass. */
enum status transformer_embed_fwd(const struct pass *p, const struct embed_fwd *embed);
/* Runs embed_bwd on all rows of the pass. */
enum status transformer_embed_bwd(const struct pass *p, const struct embed_bwd *embed);
/* Sets *kv to the keys and values of all positions, and *own to the positions of the pass; both are
 * unchanged if qkv has all positions. */
enum status transformer_all_gather_kv(const struct pass *p, struct tensor qkv, struct tensor *kv,
                                      struct attention_runs *own);
/* Writes own sums of the gradients of keys and values, which are in `exchange`, to dqkv. */
enum status transformer_reduce_scatter_kv(const struct pass *p, struct tensor dqkv);
/* Returns the pass's row that is row `row` of whole samples. *is_own false: another rank has it,
 * and the result is 0. */
int64_t transformer_row_of(const struct pass *p, int64_t row, bool *is_own);
/* Sends x from the rank whose is_own is true to all ranks. */
enum status transformer_broadcast(const struct pass *p, struct tensor x, int64_t elems,
                                  bool is_own);
/* Returns the memory to which the pass's rows of QA's two logits per row are written: `whole`,
 * which has the logits of all positions, if the pass has all positions, else `exchange`. */
struct tensor transformer_own_spans(const struct pass *p, struct tensor whole);
/* Writes the rows of all ranks to `whole`, after the pass's rows were written. */
enum status transformer_all_gather_spans(const struct pass *p, struct tensor whole);
/* Sets *out to the pass's rows of `whole`: to a copy in `exchange`, or to `whole` itself. */
enum status transformer_slice_spans(const struct pass *p, struct tensor whole, struct tensor *out);

/* ---- heads ---- */

/* Returns the bytes of wide in which ranks gather one row of logits; 0: each rank has the whole
 * row. */
int64_t transformer_head_lm_row_bytes(const struct model_dims *dims);
/* Computes the losses and, with want_grad, the gradients of parameters and, in dx, of the last
 * block's output. */
enum status transformer_head_lm_run(const struct pass *p);
/* Computes the logits (V) of a row, as struct model_ops.logits. */
enum status transformer_head_lm_logits(const struct pass *p, int64_t row, struct tensor out);
/* Computes the losses and, with want_grad, the gradients, as transformer_head_lm_run. */
enum status transformer_head_qa_run(const struct pass *p);
/* Computes the logits (B·T,2) of all rows, as struct model_ops.logits; row is 0. */
enum status transformer_head_qa_logits(const struct pass *p, int64_t row, struct tensor out);

#endif

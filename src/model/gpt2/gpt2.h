/* gpt2 — what the files of GPT-2 share; for src/model only.
 *
 * Parameters are numbered as in the table: wte, wpe, then those of each block, then ln_f and, for
 * QA, qa_outputs. A bias follows its weight; functions take the weight's number. */
#ifndef CONVOY_MODEL_GPT2_H
#define CONVOY_MODEL_GPT2_H

#include "model/gpt2/gpt2_acts.h"
#include "model/model.h"

/* The architecture, for model.c. */
extern const struct model_ops gpt2_lm_ops, gpt2_qa_ops;

#define GPT2_WTE 0
#define GPT2_WPE 1
enum gpt2_param { /* of a block */
                  GPT2_PARAM_LN1,
                  GPT2_PARAM_QKV = GPT2_PARAM_LN1 + 2,
                  GPT2_PARAM_ATT = GPT2_PARAM_QKV + 2,
                  GPT2_PARAM_LN2 = GPT2_PARAM_ATT + 2,
                  GPT2_PARAM_FC = GPT2_PARAM_LN2 + 2,
                  GPT2_PARAM_MLP = GPT2_PARAM_FC + 2,
                  GPT2_BLOCK_PARAMS = GPT2_PARAM_MLP + 2,
};
enum gpt2_end { GPT2_END_LNF, GPT2_END_QA = GPT2_END_LNF + 2 }; /* after the last block */
int gpt2_param(int block, enum gpt2_param which);
int gpt2_end_param(const struct pass *p, enum gpt2_end which);
struct tensor gpt2_w(const struct pass *p, int param);  /* the parameter's values */
struct tensor gpt2_dw(const struct pass *p, int param); /* where its gradient goes */

/* Operations on all N = B·T rows of a pass, with parameters `param` (weight) and `param` + 1
 * (bias).
 * _norm        y = LayerNorm(x); mean and rstd are kept, or not where they are {0}.
 * _norm_again  y = LayerNorm(x) for a backward pass, unless RECOMPUTE=none kept it.
 * _norm_bwd    dx of the plan = LayerNorm's gradient for dy, plus dx itself when is_residual; and
 *              the gradients of weight and bias.
 * _linear      y = x·W + b; `how` holds y, x and what is fused (GELU, dropout, residual); weights
 *              and sizes are filled in.
 * _linear_bwd  _w: gradients of weight and bias; _x: of x, through GELU where `pre` is given. */
enum status gpt2_norm(const struct pass *p, int param, struct tensor y, struct tensor mean,
                      struct tensor rstd, struct tensor x);
enum status gpt2_norm_again(const struct pass *p, int param, struct tensor y, struct tensor x);
enum status gpt2_norm_bwd(const struct pass *p, int param, struct tensor dy, struct tensor x,
                          struct tensor mean, struct tensor rstd, bool is_residual);
enum status gpt2_linear(const struct pass *p, int param, struct matmul_fwd how);
enum status gpt2_linear_bwd_w(const struct pass *p, int param, struct tensor x, struct tensor dy);
enum status gpt2_linear_bwd_x(const struct pass *p, int param, struct tensor dx, struct tensor dy,
                              struct tensor pre);

/* Where a block applies dropout; the embedding's counts as of block 0. */
enum gpt2_dropout_place {
    GPT2_DROPOUT_PROBS,
    GPT2_DROPOUT_ATT,
    GPT2_DROPOUT_MLP,
    GPT2_DROPOUT_EMBED
};
/* _dropout: off without gradients. sample_elems: elements of one sample at this place.
 * _branch_grad: the gradient that enters a residual branch: dx of the plan itself, or, with
 * dropout, dx through the branch's dropout, in y of the plan. */
struct dropout gpt2_dropout(const struct pass *p, int block, enum gpt2_dropout_place place,
                            int64_t sample_elems);
enum status gpt2_branch_grad(const struct pass *p, int block, enum gpt2_dropout_place place,
                             struct tensor *out);

/* The halves of a block: x to mid, mid to the next block's x; backward from dx to dx, in place. */
enum status gpt2_attn_fwd(const struct pass *p, int block);
enum status gpt2_attn_bwd(const struct pass *p, int block);
enum status gpt2_mlp_fwd(const struct pass *p, int block);
enum status gpt2_mlp_bwd(const struct pass *p, int block);

/* Heads: losses and, with want_grad, gradients of parameters and (in dx) of the last block's
 * output; logits as in struct model_ops. */
enum status gpt2_head_lm_run(const struct pass *p);
enum status gpt2_head_lm_logits(const struct pass *p, int64_t row, struct tensor out);
enum status gpt2_head_qa_run(const struct pass *p);
enum status gpt2_head_qa_logits(const struct pass *p, int64_t row, struct tensor out);

/* Memory and arithmetic, as in struct model_ops. */
enum status gpt2_plan(const struct model_dims *dims, int64_t b, int64_t t,
                      enum model_recompute recompute, bool want_grad, enum dtype dtype,
                      struct arena *acts, struct arena *scratch, struct model_acts **out);
void gpt2_plan_kv_cache(const struct model_dims *dims, struct model_acts *plan, struct arena *acts);
double gpt2_plan_flops_per_token(const struct model_dims *dims, int64_t t);

#endif

/* gpt2 — the pieces of GPT-2 that its files share. Inside room model only. */
#ifndef CONVOY_MODEL_GPT2_H
#define CONVOY_MODEL_GPT2_H

#include "model/gpt2/gpt2_acts.h"
#include "model/model.h"

/* Rows of the parameter table: wte, wpe, then these for each block, then ln_f and, for QA,
 * qa_outputs. A bias always follows its weight. */
enum gpt2_param {
    GPT2_PARAM_LN1,
    GPT2_PARAM_QKV = GPT2_PARAM_LN1 + 2,
    GPT2_PARAM_ATT = GPT2_PARAM_QKV + 2,
    GPT2_PARAM_LN2 = GPT2_PARAM_ATT + 2,
    GPT2_PARAM_FC = GPT2_PARAM_LN2 + 2,
    GPT2_PARAM_MLP = GPT2_PARAM_FC + 2,
    GPT2_BLOCK_PARAMS = GPT2_PARAM_MLP + 2,
};
enum gpt2_end { GPT2_END_LNF, GPT2_END_QA = GPT2_END_LNF + 2 };
#define GPT2_WTE 0
#define GPT2_WPE 1
int gpt2_param(int block, enum gpt2_param row);              /* number in the table */
int gpt2_end_param(const struct pass *p, enum gpt2_end row); /* number in the table */
struct tensor gpt2_w(const struct pass *p, int row);         /* the parameter */
struct tensor gpt2_dw(const struct pass *p, int row);        /* where its gradient goes */

/* The operations on all N = B·T rows of a pass, with the weight and bias of table rows `row`, `row`
 * + 1. */
/* y = LayerNorm(x); mean and rstd kept unless none. */
enum status gpt2_norm(const struct pass *p, int row, struct tensor y, struct tensor mean,
                      struct tensor rstd, struct tensor x);
/* acts->dx ← its own value, when is_residual, + LayerNorm's gradient for dy; the weights' gradients
 * too. */
enum status gpt2_norm_bwd(const struct pass *p, int row, struct tensor dy, struct tensor x,
                          struct tensor mean, struct tensor rstd, bool is_residual);
/* A Conv1D: `how` holds y, x and what is folded in; weights and sizes are filled in here. */
enum status gpt2_linear(const struct pass *p, int row, struct matmul_fwd how);
enum status gpt2_linear_bwd_w(const struct pass *p, int row, struct tensor x, struct tensor dy);
enum status gpt2_linear_bwd_x(const struct pass *p, int row, struct tensor dx, struct tensor dy,
                              struct tensor pre);

/* Dropout's places in a layer; the embedding is place 3 of layer 0. elems: elements a sample has
 * there. Off without gradients. */
enum gpt2_dropout_place {
    GPT2_DROPOUT_PROBS,
    GPT2_DROPOUT_ATT,
    GPT2_DROPOUT_MLP,
    GPT2_DROPOUT_EMBED
};
struct dropout gpt2_dropout(const struct pass *p, int block, enum gpt2_dropout_place place,
                            int64_t elems);
/* gpt2_branch_grad — the gradient of a residual branch: acts->dx itself, or dx through the branch's
 * dropout in acts->y. */
enum status gpt2_branch_grad(const struct pass *p, int block, enum gpt2_dropout_place place,
                             struct tensor *out);

/* The halves of a block; x, mid, out are acts->block[block]'s and its follower's. Backward goes
 * from dx to dx. */
enum status gpt2_attn_fwd(const struct pass *p, int block);
enum status gpt2_attn_bwd(const struct pass *p, int block);
enum status gpt2_mlp_fwd(const struct pass *p, int block);
enum status gpt2_mlp_bwd(const struct pass *p, int block);

/* The heads: losses and, when wanted, gradients of parameters and (in dx) of the last block's
 * output. */
enum status gpt2_head_lm_run(const struct pass *p);
enum status gpt2_head_lm_logits(const struct pass *p, int64_t row, struct tensor out);
enum status gpt2_head_qa_run(const struct pass *p);
enum status gpt2_head_qa_logits(const struct pass *p, int64_t row, struct tensor out);

/* The tables of architecture functions, for model.c. */
extern const struct model_ops gpt2_lm_ops, gpt2_qa_ops;

#endif

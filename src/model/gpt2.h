/* gpt2 — the pieces of GPT-2 that its files share. Inside room model only. */
#ifndef CONVOY_MODEL_GPT2_H
#define CONVOY_MODEL_GPT2_H

#include "model/acts.h"
#include "model/model.h"

#define GPT2_EPS 1e-5f

/* Rows of the parameter table: wte, wpe, then these for each block, then ln_f and, for QA, qa_outputs. */
enum gpt2_row {
    GPT2_ROW_LN1_W, GPT2_ROW_LN1_B, GPT2_ROW_QKV_W, GPT2_ROW_QKV_B, GPT2_ROW_ATT_W, GPT2_ROW_ATT_B,
    GPT2_ROW_LN2_W, GPT2_ROW_LN2_B, GPT2_ROW_FC_W, GPT2_ROW_FC_B, GPT2_ROW_MLP_W, GPT2_ROW_MLP_B, GPT2_ROW_N
};
enum gpt2_end { GPT2_END_LNF_W, GPT2_END_LNF_B, GPT2_END_QA_W, GPT2_END_QA_B };
#define GPT2_WTE 0
#define GPT2_WPE 1

/* A parameter and where its gradient goes. */
struct gpt2_param {
    struct tensor w, dw;
};
struct gpt2_param gpt2_at(const struct pass *p, int row);
struct gpt2_param gpt2_block(const struct pass *p, int block, enum gpt2_row row);
struct gpt2_param gpt2_end(const struct pass *p, enum gpt2_end row);

/* Dropout's places in a layer; the embedding is place 3 of layer 0. elems: elements a sample has there. Off without gradients. */
enum gpt2_place { GPT2_PLACE_PROBS, GPT2_PLACE_ATT, GPT2_PLACE_MLP, GPT2_PLACE_EMBED };
struct dropout gpt2_dropout(const struct pass *p, int block, enum gpt2_place place, int64_t elems);
/* gpt2_branch — the gradient of a residual branch: dx itself, or dx through the branch's dropout in y. */
enum status gpt2_branch(const struct pass *p, int block, enum gpt2_place place, struct tensor *out);

/* LayerNorm of N rows of x. */
enum status gpt2_norm(const struct pass *p, struct tensor y, struct tensor mean, struct tensor rstd, struct tensor x,
                      struct gpt2_param w, struct gpt2_param b);
/* dx ← dx (when is_residual) + the norm's gradient of dy; weight gradients too. */
enum status gpt2_norm_bwd(const struct pass *p, struct tensor dy, struct tensor x, struct tensor mean, struct tensor rstd,
                          struct gpt2_param w, struct gpt2_param b, bool is_residual);

/* The halves of a block; x, mid, out are acts->block[block]'s and its follower's. Backward goes from dx to dx. */
enum status block_attn_fwd(const struct pass *p, int block);
enum status block_attn_bwd(const struct pass *p, int block);
enum status block_mlp_fwd(const struct pass *p, int block);
enum status block_mlp_bwd(const struct pass *p, int block);

/* The heads: losses and, when wanted, gradients of parameters and (in dx) of the last block's output. */
enum status head_lm_run(const struct pass *p);
enum status head_lm_logits(const struct pass *p, int64_t row, struct tensor out);
enum status head_qa_run(const struct pass *p);

/* The table of architecture functions, for model.c. */
extern const struct model_ops gpt2_lm_ops, gpt2_qa_ops;

#endif

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
#ifndef CONVOY_MODEL_TRANSFORMER_ACTS_H
#define CONVOY_MODEL_TRANSFORMER_ACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"
#include "model/model.h"

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

#endif

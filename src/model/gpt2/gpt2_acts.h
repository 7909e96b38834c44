/* gpt2_acts — where a pass keeps what backward needs, and the scratch both directions share. Inside
 * room model only.
 *
 * Kept for each block and token: its input (C), ln_1's mean and rstd, qkv (3C), attention's output
 * (C) and lse (H), the middle of the block (C), ln_2's mean and rstd, and the MLP before GELU (4C):
 * 10C floats. LayerNorm's and GELU's outputs are computed again. With RECOMPUTE=attention qkv,
 * output and lse are one piece that all blocks share; with RECOMPUTE=block (and without gradients)
 * all but the input. A shared piece is written again by block_bwd before use. model_plan_kv_cache
 * gives every block a qkv of its own, whose first `past` rows earlier passes wrote.
 *
 * Scratch, N = B·T rows: y (N,C), dx (N,C) the gradient on its way down, wide (N,4C) or a chunk of
 * logits, whichever is larger. C, 3C and 4C wide pieces and all of scratch are of the plan's dtype,
 * the others f32. */
#ifndef CONVOY_GPT2_ACTS_H
#define CONVOY_GPT2_ACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"

struct gpt2_acts_block {
    struct tensor x;                            /* (N,C) input of the block */
    struct tensor ln1_mean, ln1_rstd, qkv;      /* (N) (N) (N,3C) */
    struct tensor att, lse;                     /* (N,C) (B,H,T) */
    struct tensor mid, ln2_mean, ln2_rstd, pre; /* (N,C) (N) (N) (N,4C) */
};

struct model_acts {
    int64_t b, t; /* planned for at most */
    enum dtype dtype;
    bool want_grad;
    struct gpt2_acts_block *block;
    struct tensor out; /* (N,C) output of the last block */
    struct tensor lnf_mean, lnf_rstd;
    struct tensor y, dx, wide;
    int64_t logits_rows, logits_stride; /* LM: a chunk of logits in wide */
};

#endif

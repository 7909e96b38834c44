/* gpt2_acts — the activations that backward needs, and the scratch that both directions share; for
 * src/model only.
 *
 * Kept for each block, in elements a row; 16C together:
 * - its input (C), the middle of the block (C), the MLP before GELU (4C)
 * - qkv (3C), the output (C) and lse (H) of attention, mean and rstd of ln_1 and ln_2
 * - the outputs of ln_1 (C), ln_2 (C) and GELU (4C)
 * Less is kept:
 * - RECOMPUTE=light and all below: the outputs of LayerNorm and GELU lie in y and wide of the
 *   scratch; 10C are left.
 * - RECOMPUTE=attention: all blocks share one qkv, output and lse.
 * - RECOMPUTE=block, and without gradients: all blocks share everything but their inputs.
 * Shared tensors are written again in the block's backward before they are read. With a KV cache
 * (model_plan_kv_cache) each block has a qkv of its own; earlier passes wrote its first `past`
 * rows.
 *
 * Scratch: y (N,C); dx (N,C), the gradient on its way down; wide: (N,4C) or a chunk of logits,
 * whichever is larger. Tensors C, 3C and 4C wide and all scratch are of the plan's dtype, the
 * others are f32. */
#ifndef CONVOY_GPT2_ACTS_H
#define CONVOY_GPT2_ACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"
#include "model/model.h"

struct gpt2_acts_block {
    struct tensor x;                            /* (N,C) input of the block */
    struct tensor ln1_mean, ln1_rstd, qkv;      /* (N) (N) (N,3C) */
    struct tensor att, lse;                     /* (N,C) (B,H,T) */
    struct tensor mid, ln2_mean, ln2_rstd, pre; /* (N,C) (N) (N) (N,4C) */
    struct tensor ln1, ln2, gelu;               /* (N,C) (N,C) (N,4C); may be y, y and wide */
};

struct gpt2_acts {
    int64_t b, t; /* planned for at most */
    enum dtype dtype;
    bool want_grad;
    struct gpt2_acts_block *block;
    struct tensor out; /* (N,C) output of the last block */
    struct tensor lnf_mean, lnf_rstd;
    struct tensor y, dx, wide;
    int64_t logits_rows, logits_stride; /* LM: a chunk of logits in wide */
};

static inline struct gpt2_acts *gpt2_acts(const struct pass *p)
{
    return (struct gpt2_acts *)p->acts;
}

#endif

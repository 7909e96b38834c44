/* attention_f32 — the launchers of attention in float (attention_f32.cu), for attention.cu and
 * attention_bwd.cu, which set up the arguments. Must not know layers. */
#ifndef CONVOY_KERNELS_ATTENTION_F32_CUH
#define CONVOY_KERNELS_ATTENTION_F32_CUH

#include "kernels/attention_args.cuh"

constexpr int ATTENTION_F32_BK = 32; /* keys and queries in a tile of the backward pass */

/* Launches the forward pass of b samples. Returns 0, a cudaError_t or an enum cuda_refusal. */
int attention_f32_fwd(const struct cuda *cuda, const attention_args<float> &x, int64_t b);
/* Launches the backward pass and returns as attention_f32_fwd does. width: the width of a head,
 * rounded up to 64, 128 or 256. */
int attention_f32_bwd(const struct cuda *cuda, const attention_args<float> &x, int width);

#endif

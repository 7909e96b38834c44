/* attention_f32 — the launchers of attention in float (attention_f32.cu), for attention.cu and
 * attention_bwd.cu, which set up the arguments. Must not know layers. */
#ifndef CONVOY_KERNELS_ATTENTION_F32_CUH
#define CONVOY_KERNELS_ATTENTION_F32_CUH

#include "kernels/attention_args.cuh"

/* attention_f32_bk — returns the keys, and the queries, in a tile of the backward pass for heads of
 * a width: 32, or what 64 KiB of shared memory hold. */
__host__ __device__ static constexpr int attention_f32_bk(int width)
{
    return BLOCK_SHARED > 64 * 1024 || width <= 64 ? 32 : width <= 128 ? 16 : 8;
}

/* Launches the forward pass of b samples. Returns 0, a cudaError_t or an enum cuda_refusal. */
int attention_f32_fwd(const struct cuda *cuda, const attention_args<float> &x, int64_t b);
/* Launches the backward pass and returns as attention_f32_fwd does. width: the width of a head,
 * rounded up to 64, 128 or 256. */
int attention_f32_bwd(const struct cuda *cuda, const attention_args<float> &x, int width);

#endif

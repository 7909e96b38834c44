/* compress — floats in fewer bytes and back (compress.h), byte for byte as on the CPU. A warp packs
 * a block of 256 elements, a lane every 32nd. Products and differences are rounded one by one, so
 * that the compiler does not fuse them. */
#include "kernels/stride.cuh"

constexpr int WARPS = 8, EACH = COMPRESS_BLOCK / WARP;
constexpr uint32_t NOT_A_NUMBER = 0x7FC00000u;

__device__ static inline bool is_finite(float x)
{
    return (__float_as_uint(x) & 0x7F800000u) != 0x7F800000u;
}

__device__ static inline void pack(const float (&y)[EACH], uint8_t *out, float (&error)[EACH])
{
    float most = 0;
    bool all_finite = true;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        all_finite = all_finite && is_finite(y[k]);
        most = fmaxf(most, fabsf(y[k]));
    }
    most = warp_max(most);
    all_finite = __all_sync(WARP_ALL, all_finite);
    float scale = most < COMPRESS_TINY ? 0 : most / 127, inverse = scale > 0 ? 127 / most : 0;
    if (threadIdx.x % WARP == 0)
        *(uint32_t *)out = all_finite ? __float_as_uint(scale) : NOT_A_NUMBER;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        float q = all_finite ? rintf(__fmul_rn(y[k], inverse)) : 1;
        out[4 + k * WARP + threadIdx.x % WARP] = (uint8_t)(int8_t)q;
        error[k] = all_finite ? __fadd_rn(y[k], -__fmul_rn(scale, q)) : 0;
    }
}

static __global__ void compress_warp(uint8_t *packed, float *residual, const float *x, int64_t n)
{
    int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP,
            first = block * COMPRESS_BLOCK + threadIdx.x % WARP;
    float y[EACH], error[EACH];
    if (block * COMPRESS_BLOCK >= n)
        return;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + k * WARP;
        y[k] = i < n ? x[i] + (residual ? residual[i] : 0) : 0;
    }
    pack(y, packed + block * COMPRESS_BLOCK_BYTES, error);
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (residual && first + k * WARP < n)
            residual[first + k * WARP] = error[k];
}

extern "C" int compress_cuda(const struct cuda *cuda, const struct compress *a)
{
    if (a->n == 0)
        return 0;
    return cuda_launch(compress_warp, (unsigned)ceil_div(a->n, COMPRESS_BLOCK * WARPS),
                       WARPS * WARP, 0, cuda->stream, (uint8_t *)a->packed.data,
                       (float *)a->residual.data, (const float *)a->x.data, a->n);
}

static __global__ void expand_one(float *y, const uint8_t *packed, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_step()) {
        const uint8_t *from = packed + i / COMPRESS_BLOCK * COMPRESS_BLOCK_BYTES;
        y[i] = __fmul_rn(*(const float *)from, (float)(int8_t)from[4 + i % COMPRESS_BLOCK]);
    }
}

extern "C" int expand_cuda(const struct cuda *cuda, const struct expand *a)
{
    if (a->n == 0)
        return 0;
    return cuda_launch(expand_one, cuda_blocks(cuda, a->n, 256), 256, 0, cuda->stream,
                       (float *)a->y.data, (const uint8_t *)a->packed.data, a->n);
}

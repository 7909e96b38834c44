/* emu_kernels — see emu_kernels.h. */
#include "tests/cuda/emu_kernels.h"

#include "kernels/tensor_core.cuh"

template <emu_mistake M> __global__ void sum_kernel(int *out, const int *in)
{
    CUDA_SHARED(shared);
    int *tile = (int *)shared, *partial = tile + 256, t = (int)threadIdx.x, warp = t / 32,
        lane = t % 32;
    if constexpr (M == EMU_MISTAKE_EARLY_RETURN)
        if (t >= 200)
            return;
    if (t < 64)
        cp_async(shared_address(tile + 4 * t),
                 (const char *)(in + blockIdx.x * 256 + 4 * t) +
                     (M == EMU_MISTAKE_ALIGNMENT ? 4 : 0),
                 16);
    cp_commit();
    if constexpr (M != EMU_MISTAKE_NO_WAIT)
        cp_wait<0>();
    if constexpr (M == EMU_MISTAKE_TWO_BARRIERS) {
        if (t < 128)
            __syncthreads();
        else
            __syncthreads();
    } else if constexpr (M != EMU_MISTAKE_NO_BARRIER) {
        __syncthreads();
    }
    int x = tile[255 - t];
    if constexpr (M == EMU_MISTAKE_LANES) {
        x = lane < 16 ? __shfl_xor_sync(WARP_ALL, x, 0) : (int)(__ballot_sync(WARP_ALL, x) * 0) + x;
    }
    /* through shared memory rather than shuffles, to need __syncwarp */
    for (int step = 16; step > 0; step /= 2) {
        partial[t] = x;
        if constexpr (M != EMU_MISTAKE_NO_WARP)
            __syncwarp();
        x += partial[t ^ step];
        __syncwarp();
    }
    if (lane == 0)
        partial[256 + warp] = x;
    __syncthreads();
    if (t < 8)
        partial[256 + t] += 0;
    if (t == 0) {
        int sum = 0;
        for (int i = 0; i < 8; i++)
            sum += partial[256 + i];
        out[blockIdx.x] = sum;
        if constexpr (M == EMU_MISTAKE_SHARED_END)
            partial[256 + 8] = 1;
    }
}

template <int M>
static int sum_launch(int *out, const int *in, int blocks, enum emu_mistake mistake)
{
    if constexpr (M < EMU_MISTAKE_N) {
        if (mistake == M)
            return cuda_launch(sum_kernel<(emu_mistake)M>, dim3((unsigned)blocks), dim3(256),
                               (256 + 256 + 8) * sizeof(int), NULL, out, in);
        return sum_launch<M + 1>(out, in, blocks, mistake);
    }
    return CUDA_REFUSAL_SHAPE;
}

int emu_kernels_sum(int *out, const int *in, int blocks, enum emu_mistake mistake)
{
    return sum_launch<0>(out, in, blocks, mistake);
}

template <typename T> __device__ static uint32_t pair(const T *low, const T *high)
{
    uint16_t x, y;
    memcpy(&x, low, 2);
    memcpy(&y, high, 2);
    return (uint32_t)x | (uint32_t)y << 16;
}

template <typename T> __global__ void mma_kernel(float *out, const T *a, const T *b)
{
    int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    float d[4] = {};
    if constexpr (sizeof(T) == 2) {
        uint32_t x[4], y[2];
        for (int i = 0; i < 4; i++) {
            const T *p = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
            x[i] = pair(p, p + 1);
        }
        for (int i = 0; i < 2; i++) {
            const T *p = b + (2 * t + 8 * i) * 8 + g;
            y[i] = pair(p, p + 8);
        }
        mma<T>(d, x, y);
    } else {
        uint32_t x[4] = {to_tf32(a[g * 8 + t]), to_tf32(a[(g + 8) * 8 + t]),
                         to_tf32(a[g * 8 + t + 4]), to_tf32(a[(g + 8) * 8 + t + 4])};
        uint32_t y[2] = {to_tf32(b[t * 8 + g]), to_tf32(b[(t + 4) * 8 + g])};
        mma_tf32(d, x, y);
    }
    for (int i = 0; i < 4; i++)
        out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

int emu_kernels_mma(float *d, struct tensor a, struct tensor b)
{
    return cuda_floats(a.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_launch(mma_kernel<T>, dim3(1), dim3(32), 0, NULL, d, (const T *)a.data,
                           (const T *)b.data);
    });
}

/* Tiles of 16 rows of 128 bytes; only the first 16 columns of a, 8 of b, are filled. */
__global__ void ldmatrix_kernel(float *out, const bf16 *a, const bf16 *b)
{
    CUDA_SHARED(shared);
    shared_at tile_a = shared_address(shared), tile_b = tile_a + 16 * 128;
    int lane = (int)threadIdx.x, row = lane % 16;
    cp_async(tile_a + (shared_at)swizzle<8>(row, lane / 16), a + row * 16 + lane / 16 * 8, 16);
    if (lane < 16)
        cp_async(tile_b + (shared_at)swizzle<8>(row, 0), b + row * 8, 16);
    cp_commit();
    cp_wait<0>();
    __syncwarp();
    uint32_t x[4], y[4];
    ldmatrix_x4(x, tile_a + (shared_at)swizzle<8>(row, lane / 16));
    ldmatrix_x4_trans(y, tile_b + (shared_at)swizzle<8>(row, 0));
    uint32_t y2[2] = {y[0], y[1]};
    float d[4] = {};
    mma<bf16>(d, x, y2);
    for (int i = 0; i < 4; i++)
        out[(lane / 4 + i / 2 * 8) * 8 + 2 * (lane % 4) + i % 2] = d[i];
}

int emu_kernels_ldmatrix(float *d, struct tensor a, struct tensor b)
{
    return cuda_launch(ldmatrix_kernel, dim3(1), dim3(32), 32 * 128, NULL, d, (const bf16 *)a.data,
                       (const bf16 *)b.data);
}

__global__ void drop_kernel(float *out, int n, uint64_t first, struct drop_args d)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        out[i] = drop_factor(d, first + (uint64_t)i);
    for (int i = (int)threadIdx.x * 8; i + 8 <= n; i += (int)blockDim.x * 8) {
        float x[8];
        drop_factors(x, d, first + (uint64_t)i);
        for (int j = 0; j < 8; j++)
            out[n + i + j] = x[j];
    }
}

int emu_kernels_drop(float *out, int n, uint64_t first, const struct dropout *d)
{
    const struct cuda cuda = {};
    return cuda_launch(drop_kernel, dim3(1), dim3(64), 0, NULL, out, n, first,
                       drop_args_of(&cuda, d));
}

template <typename T> __global__ void round_kernel(T *bits, float *back, const float *in)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    float x[8], y[8];
    load_floats<CACHE_STREAM>(x, in + i);
    store_floats(bits + i, x);
    load_floats(y, bits + i);
    store_floats<CACHE_STREAM>(back + i, y);
}

int emu_kernels_round(uint16_t *bits, float *back, const float *in, int n, enum dtype dtype)
{
    dim3 grid((unsigned)n / 256);
    if (dtype == DTYPE_BF16)
        return cuda_launch(round_kernel<bf16>, grid, dim3(32), 0, NULL, (bf16 *)bits, back, in);
    return cuda_launch(round_kernel<f16>, grid, dim3(32), 0, NULL, (f16 *)bits, back, in);
}

__global__ void reduce_kernel(float *out, const float *in)
{
    __shared__ unsigned lowest;
    float x = in[threadIdx.x];
    if (threadIdx.x == 0)
        lowest = 0xFFFFFFFFu;
    float sum = block_sum(x), max = block_max(x); /* which also order the write of lowest */
    atomicMin(&lowest, (unsigned)(x + 1000.0f));
    int above = __syncthreads_count(x > 0);
    if (threadIdx.x == 0)
        out[0] = sum, out[1] = max, out[2] = (float)above, out[3] = (float)lowest - 1000.0f;
}

int emu_kernels_reduce(float *out, const float *in)
{
    return cuda_launch(reduce_kernel, dim3(1), dim3(256), 0, NULL, out, in);
}

template <int N> __global__ void large_kernel(int *out)
{
    if (threadIdx.x == 0)
        *out = N;
}

template <int N> static int large_launch(int *out, int kernel)
{
    if constexpr (N < EMU_KERNELS_LARGE) {
        if (kernel != N)
            return large_launch<N + 1>(out, kernel);
        return cuda_launch(large_kernel<N>, dim3(1), dim3(32), 64 << 10, NULL, out);
    }
    return -1;
}

int emu_kernels_large(int *out, int kernel) { return large_launch<0>(out, kernel); }

__global__ void shared_kernel(int *out, size_t bytes)
{
    CUDA_SHARED(shared);
    int *last = (int *)(shared + bytes) - 1;
    if (threadIdx.x == 0)
        *last = 7, *out = *last;
}

int emu_kernels_shared(int *out, size_t bytes)
{
    return cuda_launch(shared_kernel, dim3(1), dim3(32), bytes, NULL, out, bytes);
}

__device__ static float number_of(float x, emu_number number)
{
    switch (number) {
    case EMU_NUMBER_EXP:
        return expf(x);
    case EMU_NUMBER_EXP2:
        return exp2f(x);
    case EMU_NUMBER_LOG:
        return logf(x);
    case EMU_NUMBER_LOG2:
        return log2f(x);
    case EMU_NUMBER_TANH:
        return tanhf(x);
    case EMU_NUMBER_RSQRT:
        return rsqrtf(x);
    case EMU_NUMBER_EXP2_QUICK:
        return exp2_quick(x);
    case EMU_NUMBER_RCP_QUICK:
        return rcp_quick(x);
    case EMU_NUMBER_TWICE:
        return x + x;
    case EMU_NUMBER_HALF:
        return x * 0.5f;
    case EMU_NUMBER_SQUARE:
        return x * x - 1.0f;
    case EMU_NUMBER_ROUNDED:
        return __fmul_rn(x, x) - 1.0f;
    case EMU_NUMBER_N:
        break;
    }
    return NAN;
}

__global__ void number_kernel(float *out, const float *in, int n, emu_number number)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        out[i] = number_of(in[i], number);
}

int emu_kernels_number(float *out, const float *in, int n, enum emu_number number)
{
    return cuda_launch(number_kernel, dim3(1), dim3(32), 0, NULL, out, in, n, number);
}

/* access_kernels — see access_kernels.h. */
#include "tests/cuda/access_kernels.h"

#include "kernels/tensor_core.cuh"

struct memory {
    int *out;
    const int *in;
    int *scratch;
};

/* ---- mistakes: `made` makes it ---- */

__device__ static void through_neighbour(const struct memory &m, int *shared, bool made)
{
    int t = (int)threadIdx.x;
    shared[t] = m.in[t];
    if (!made)
        __syncthreads();
    m.out[blockIdx.x * 64 + t] = shared[(t + 32) % 64];
}

__device__ static void through_lane(const struct memory &m, int *shared, bool made)
{
    int t = (int)threadIdx.x;
    shared[t] = m.in[t];
    if (made)
        shared[t] += __shfl_xor_sync(WARP_ALL, t, 1) * 0;
    else
        __syncwarp();
    m.out[blockIdx.x * 64 + t] = shared[t ^ 1];
}

__device__ static void write_again(const struct memory &m, int *shared, bool made)
{
    int t = (int)threadIdx.x;
    shared[t] = m.in[t];
    __syncthreads();
    int x = shared[63 - t];
    if (!made)
        __syncthreads();
    shared[t] = x;
    m.out[blockIdx.x * 64 + t] = shared[t];
}

__device__ static void share_atomics(const struct memory &m, int *shared, bool made)
{
    int t = (int)threadIdx.x;
    if (t == 0)
        shared[0] = 0;
    __syncthreads();
    atomicAdd(shared, m.in[t]);
    atomicAdd(m.scratch, 1);
    if (!made)
        __syncthreads();
    m.out[blockIdx.x * 64 + t] = shared[0];
}

__device__ static void copy_in(const struct memory &m, int *shared, bool made)
{
    int t = (int)threadIdx.x;
    cp_async(shared_address(shared + 4 * t), m.in + 4 * t, 16);
    cp_commit();
    if (!made)
        cp_wait<0>();
    m.out[blockIdx.x * 64 + t] = shared[4 * t];
    cp_wait<0>();
}

__device__ static void copy_over(const struct memory &m, int *shared, bool made)
{
    int t = (int)threadIdx.x;
    shared[t] = m.in[t];
    __syncthreads();
    m.out[blockIdx.x * 64 + t] = shared[63 - t];
    if (!made)
        __syncthreads();
    if (t < 16)
        cp_async(shared_address(shared + 4 * t), m.in + 4 * t, 16);
    cp_commit();
    cp_wait<0>();
}

__global__ void mistake_kernel(struct memory m, enum access_mistake mistake, bool made)
{
    CUDA_SHARED(bytes);
    int *shared = (int *)bytes, t = (int)threadIdx.x, block = (int)blockIdx.x;
    switch (mistake) {
    case ACCESS_RACE_BLOCK:
        return through_neighbour(m, shared, made);
    case ACCESS_RACE_WARP:
        return through_lane(m, shared, made);
    case ACCESS_RACE_AFTER:
        return write_again(m, shared, made);
    case ACCESS_RACE_GLOBAL:
        m.out[t + (made ? 0 : block * 64)] = m.in[t];
        return;
    case ACCESS_RACE_READ:
        m.scratch[block * 64 + t] = m.in[t];
        m.out[block * 64 + t] = m.scratch[(made ? 0 : block) * 64 + t];
        return;
    case ACCESS_RACE_ATOMIC:
        return share_atomics(m, shared, made);
    case ACCESS_RACE_COPY:
        return copy_in(m, shared, made);
    case ACCESS_RACE_COPY_OVER:
        return copy_over(m, shared, made);
    case ACCESS_UNSET_SHARED:
        if (!made || t < 63)
            shared[t] = m.in[t];
        m.out[block * 64 + t] = shared[t];
        return;
    case ACCESS_UNSET_SCRATCH:
        if (!made || t < 63)
            m.scratch[block * 64 + t] = m.in[t];
        m.out[block * 64 + t] = m.scratch[block * 64 + t];
        return;
    default:
        m.out[block * 64 + t] = m.in[made ? t + ACCESS_WORDS - 63 : t];
    }
}

int access_kernels_mistake(int *out, const int *in, int *scratch, enum access_mistake mistake,
                           bool is_made)
{
    struct memory m = {out, in, scratch};
    if (mistake == ACCESS_RACE_ATOMIC)
        CUDA_TRY((int)cudaMemsetAsync(scratch, 0, sizeof *scratch, NULL));
    return cuda_launch(mistake_kernel, 2, 64, ACCESS_WORDS * sizeof(int), NULL, m, mistake,
                       is_made);
}

/* ---- shapes of accesses ---- */

__device__ static int word_of(enum access_shape shape, int lane)
{
    return shape == ACCESS_BROADCAST     ? 0
           : shape == ACCESS_EIGHT_WAY   ? 8 * lane
           : shape == ACCESS_WIDE        ? 4 * lane
           : shape == ACCESS_WIDE_STRIDE ? 8 * lane
                                         : lane;
}

/* Words, vectors or halves of `from` at the shape's positions, to `to` in rows. */
__device__ static void shape_load(enum access_shape shape, int *to, const int *from, int lane)
{
    int at = word_of(shape, lane);
    if (shape == ACCESS_WIDE || shape == ACCESS_WIDE_STRIDE)
        *(uint4 *)(to + 4 * lane) = *(const uint4 *)(from + at);
    else if (shape == ACCESS_HALVES)
        ((uint16_t *)to)[lane] = ((const uint16_t *)from)[lane];
    else
        to[lane] = from[at];
}

__device__ static void shape_matrix(enum access_shape shape, int *out, unsigned char *shared)
{
    int lane = (int)threadIdx.x, row = lane % 16;
    uint32_t r[4];
    ldmatrix_x4(r, shared_address(shared) +
                       (shared_at)(shape == ACCESS_MATRIX ? row * 128 : swizzle<8>(row, 0)));
    out[lane] = (int)r[0];
}

__global__ void shape_kernel(int *out, const int *in, enum access_shape shape, bool is_shared)
{
    CUDA_SHARED(bytes);
    int lane = (int)threadIdx.x, *shared = (int *)bytes;
    if (!is_shared)
        return shape_load(shape, out, in, lane);
    if (shape == ACCESS_COPIES) {
        cp_async(shared_address(shared + 4 * lane), in + 4 * lane, 16);
        cp_commit();
        cp_wait<0>();
        return;
    }
    for (int i = lane; i < 512; i += 32)
        shared[i] = in[i];
    __syncwarp();
    if (shape == ACCESS_MATRIX || shape == ACCESS_MATRIX_SWIZZLED)
        shape_matrix(shape, out, bytes);
    else
        shape_load(shape, out, shared, lane);
}

int access_kernels_shape(int *out, const int *in, enum access_shape shape, bool is_shared)
{
    return cuda_launch(shape_kernel, 1, 32, 2048, NULL, out, in, shape, is_shared);
}

/* ---- limits ---- */

struct large {
    char bytes[4096 - sizeof(int)];
};
struct too_large {
    char bytes[4096];
};
__global__ void limit_kernel(int) {}
__global__ void no_opt_in_kernel(void) {}
__global__ void params_kernel(int, struct large) {}
__global__ void too_many_params_kernel(int, struct too_large) {}

int access_kernels_limit(enum access_limit limit, bool is_broken)
{
    switch (limit) {
    case ACCESS_LIMIT_SHARED:
        if (!is_broken)
            return cuda_launch(limit_kernel, 1, 32, 48 * 1024, NULL, 0);
        return emu_launch_kernel(no_opt_in_kernel, 1, 32, 48 * 1024, [] {});
    case ACCESS_LIMIT_PARAMS:
        if (!is_broken)
            return cuda_launch(params_kernel, 1, 32, 0, NULL, 0, large());
        return cuda_launch(too_many_params_kernel, 1, 32, 0, NULL, 0, too_large());
    case ACCESS_LIMIT_GRID:
        return cuda_launch(limit_kernel, dim3(1, is_broken ? 65536 : 65535), 32, 0, NULL, 0);
    default:
        return cuda_launch(limit_kernel, 1, is_broken ? 1056 : 1024, 0, NULL, 0);
    }
}

/* checksum — sums of words and of words times their places (checksum.h): each thread adds in
 * registers, each block adds its threads and then adds to the result, in any order. */
#include "kernels/checksum.h"
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

struct checksum_words {
    const uint32_t *x;
    int64_t bytes, groups_n; /* groups of four words, which are read in one access */
    unsigned long long first;
};

static __global__ void __launch_bounds__(THREADS)
    checksum_add(unsigned long long *out, struct checksum_words a)
{
    unsigned long long sum[CHECKSUM_N] = {0, 0};
    int64_t words = a.bytes / 4;
    auto add = [&](int64_t i, uint32_t word) {
        sum[0] += word;
        sum[1] += word * (2 * (a.first + (unsigned long long)i) + 1);
    };
    for (int64_t group = thread_first(); group < a.groups_n; group += thread_step()) {
        uint32_t word[4];
        move_words<CACHE_STREAM>(word, a.x + 4 * group);
#pragma unroll
        for (int j = 0; j < 4; j++)
            add(4 * group + j, word[j]);
    }
    for (int64_t i = 4 * a.groups_n + thread_first(); i < words; i += thread_step())
        add(i, a.x[i]);
    if (a.bytes % 4 != 0 && thread_first() == 0) {
        const uint8_t *last = (const uint8_t *)(a.x + words);
        for (int64_t at = 0; at < a.bytes % 4; at++)
            add(words, (uint32_t)last[at] << (8 * at));
    }
    block_add(out, sum);
}

extern "C" int checksum_cuda(const struct cuda *cuda, const struct checksum *a)
{
    const int64_t bytes = a->n * (int64_t)dtype_bytes(a->x.dtype);
    const bool is_aligned = (uintptr_t)a->x.data % 16 == 0;
    const struct checksum_words words = {(const uint32_t *)a->x.data, bytes,
                                         is_aligned ? bytes / 16 : 0, (unsigned long long)a->first};
    if (bytes == 0)
        return 0;
    return cuda_launch(checksum_add, cuda_blocks(cuda, ceil_div(bytes, 16), THREADS), THREADS, 0,
                       cuda->stream, (unsigned long long *)a->out, words);
}

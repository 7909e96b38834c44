/* checksum_cpu — fast checksums, at the speed of memory, without a product for each word.
 *
 * A range is read as vectors of 64-bit lanes, with two words each. `sum` adds up the words of a
 * lane, `sums` adds up `sum` after each vector: the word of vector k counts vectors_n - k times
 * there (Fletcher 1982). So Σ k·w = vectors_n·sum - sums, and the places follow from it. Threads
 * add their ranges in any order. */
#include "kernels/checksum.h"

#include <stdatomic.h>

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

#define RANGE_BYTES ((int64_t)1 << 18)
#define LANES (VEC_W / 2)

typedef uint64_t vecl __attribute__((vector_size(VEC_W * 4)));

struct checksum_work {
    const struct checksum *a;
    int64_t bytes;
    _Atomic uint64_t sum[CHECKSUM_N];
};

/* Sums of one half of each lane: the words of even places, or of odd ones. */
struct half {
    vecl sum, sums;
};

static inline void add_words(struct half *half, vecl words)
{
    half->sum += words;
    half->sums += half->sum;
}

/* add_half — Adds the sums of a half. first: place of its word in lane 0 of the first vector. */
static void add_half(uint64_t out[CHECKSUM_N], const struct half *half, uint64_t first,
                     uint64_t vectors_n)
{
    for (int lane = 0; lane < LANES; lane++) {
        const uint64_t sum = half->sum[lane], place = first + 2 * (uint64_t)lane;
        out[0] += sum;
        out[1] += (2 * place + 1) * sum + 2 * VEC_W * (vectors_n * sum - half->sums[lane]);
    }
}

static void sum_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    struct checksum_work *work = arg;
    const int64_t first = range_i * RANGE_BYTES,
                  bytes = cpu_range_end(work->bytes, RANGE_BYTES, range_i) - first,
                  vectors_n = bytes / (VEC_W * 4);
    const char *from = (const char *)work->a->x.data + first;
    const int64_t place = work->a->first + first / 4;
    struct half low = {{0}, {0}}, high = {{0}, {0}};
    for (int64_t k = 0; k < vectors_n; k++) {
        vecl words;
        memcpy(&words, from + k * (int64_t)sizeof words, sizeof words);
        add_words(&low, words & UINT32_MAX);
        add_words(&high, words >> 32);
    }
    uint64_t sum[CHECKSUM_N] = {0, 0};
    add_half(sum, &low, (uint64_t)place, (uint64_t)vectors_n);
    add_half(sum, &high, (uint64_t)place + 1, (uint64_t)vectors_n);
    const int64_t done = vectors_n * VEC_W * 4;
    checksum_plain(
        NULL, &(struct checksum){
                  sum, {(char *)(uintptr_t)from + done, DTYPE_U8}, bytes - done, place + done / 4});
    for (int i = 0; i < CHECKSUM_N; i++)
        atomic_fetch_add_explicit(&work->sum[i], sum[i], memory_order_relaxed);
}

void CPU_FN(checksum)(const struct cpu *cpu, const struct checksum *a)
{
    struct checksum_work work = {.a = a, .bytes = a->n * (int64_t)dtype_bytes(a->x.dtype)};
    thread_pool_run(cpu->pool, cpu_ranges(work.bytes, RANGE_BYTES), sum_range, &work);
    for (int i = 0; i < CHECKSUM_N; i++)
        a->out[i] += atomic_load_explicit(&work.sum[i], memory_order_relaxed);
}

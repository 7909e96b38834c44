/* dropout_cpu — fast dropout: random words vector by vector, 256 elements at a time. */
#include "kernels/dropout.h"

#include "kernels/cpu.h"
#include "kernels/philox_cpu.h"
#include "kernels/vec_cpu.h"

#define RANGE_ELEMS 16384
#define TILE_ELEMS 256

typedef uint32_t vecu __attribute__((vector_size(VEC_W * 4)));

/* Returns x·keep, or 0 if the word is below the threshold. */
static inline vec dropout_vec(vec x, const uint32_t *words, vecu threshold, vec keep)
{
    vecu w;
    memcpy(&w, words, sizeof w);
    return (vec)((veci)(w >= threshold) & (veci)(x * keep));
}

/* Drops n elements; words: a random word for each lane of the vectors that cover n elements. */
static void dropout_tile(float *y, const float *x, const uint32_t *words, int64_t n,
                         const struct dropout *d)
{
    vecu threshold = (vecu){0} + dropout_threshold(d);
    vec keep = vec_set(dropout_scale(d));
    int64_t i = 0;
    for (; i + VEC_W <= n; i += VEC_W)
        vec_store(y + i, dropout_vec(vec_load(x + i), words + i, threshold, keep));
    if (i < n) {
        int left = (int)(n - i);
        vec_store_n(y + i, left, dropout_vec(vec_load_n(x + i, left), words + i, threshold, keep));
    }
}

static void dropout_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct drop *a = arg;
    uint32_t words[TILE_ELEMS] = {0};
    struct philox p = philox_of(a->dropout.seed, a->dropout.stream);
    int64_t end = cpu_range_end(a->n, RANGE_ELEMS, range_i);
    for (int64_t i = (int64_t)range_i * RANGE_ELEMS; i < end; i += TILE_ELEMS) {
        int64_t n = end - i < TILE_ELEMS ? end - i : TILE_ELEMS;
        philox_fill(&p, a->dropout.offset + (uint64_t)i, n, words);
        dropout_tile((float *)a->y.data + i, (const float *)a->x.data + i, words, n, &a->dropout);
    }
}

static void dropout_copy_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct drop *a = arg;
    int64_t i = (int64_t)range_i * RANGE_ELEMS, n = cpu_range_end(a->n, RANGE_ELEMS, range_i) - i;
    memcpy((float *)a->y.data + i, (const float *)a->x.data + i, (size_t)n * sizeof(float));
}

void CPU_FN(drop)(const struct cpu *cpu, const struct drop *a)
{
    if (a->dropout.p <= 0 && a->y.data == a->x.data)
        return;
    thread_pool_fn *range = a->dropout.p > 0 ? dropout_range : dropout_copy_range;
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ELEMS), range, (void *)a);
}

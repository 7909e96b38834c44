/* rope_cpu — fast rotary position embedding: each task processes some rows. A row of the table is
 * split into cosines and sines once, for all heads of the row. */
#include "kernels/rope.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

#define RANGE_ROWS 16
#define TABLE_ROWS 64

static void rope_table_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct rope_table *a = arg;
    int64_t end = cpu_range_end(a->t, TABLE_ROWS, range_i);
    for (int64_t t = (int64_t)range_i * TABLE_ROWS; t < end; t++) {
        float *row = (float *)a->table.data + t * a->rot;
        for (int64_t i = 0; i < a->rot / 2; i++) {
            double angle = (double)((float)(a->first + t) * a->freq[i]);
            row[2 * i] = (float)cos(angle) * a->scale;
            row[2 * i + 1] = (float)sin(angle) * a->scale;
        }
    }
}

void CPU_FN(rope_table)(const struct cpu *cpu, const struct rope_table *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->t, TABLE_ROWS), rope_table_range, (void *)a);
}

/* A row of the table, cosines and sines apart. */
struct rotation {
    float cos[ROPE_FREQ_MAX], sin[ROPE_FREQ_MAX];
};

static void rotation_load(struct rotation *r, const float *table, int64_t pairs, bool inverse)
{
    float sign = inverse ? -1 : 1;
    for (int64_t i = 0; i < pairs; i++) {
        r->cos[i] = table[2 * i];
        r->sin[i] = sign * table[2 * i + 1];
    }
}

static void rope_head(float *x, const struct rotation *r, int64_t pairs)
{
    float *y = x + pairs;
    int64_t i = 0;
    for (; i + VEC_W <= pairs; i += VEC_W) {
        vec a = vec_load(x + i), b = vec_load(y + i), c = vec_load(r->cos + i),
            s = vec_load(r->sin + i);
        vec_store(x + i, a * c - b * s);
        vec_store(y + i, b * c + a * s);
    }
    if (i < pairs) {
        int n = (int)(pairs - i);
        vec a = vec_load_n(x + i, n), b = vec_load_n(y + i, n), c = vec_load_n(r->cos + i, n),
            s = vec_load_n(r->sin + i, n);
        vec_store_n(x + i, n, a * c - b * s);
        vec_store_n(y + i, n, b * c + a * s);
    }
}

static void rope_row(const struct rope *a, int64_t n)
{
    struct rotation r;
    struct attention_row at = attention_row_of(a->layout, a->h, a->hk, a->d);
    float *row = (float *)a->x.data + n * at.row;
    rotation_load(&r, (const float *)a->table.data + n % a->t * a->rot, a->rot / 2, a->inverse);
    for (int64_t i = 0; i < a->h; i++)
        rope_head(row + i * at.head, &r, a->rot / 2);
    for (int64_t i = 0; i < a->hk; i++)
        rope_head(row + at.k + i * at.head, &r, a->rot / 2);
}

static void rope_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct rope *a = arg;
    int64_t end = cpu_range_end(a->n, RANGE_ROWS, range_i);
    for (int64_t n = (int64_t)range_i * RANGE_ROWS; n < end; n++)
        rope_row(a, n);
}

void CPU_FN(rope)(const struct cpu *cpu, const struct rope *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ROWS), rope_range, (void *)a);
}

/* rope — the plain truth of rotary position embedding: one head after the other, in double. */
#include "kernels/rope.h"

#include <math.h>

#include "kernels/cpu.h"

void rope_table_plain(const struct cpu *cpu, const struct rope_table *a)
{
    (void)cpu;
    float *table = a->table.data;
    for (int64_t t = 0; t < a->t; t++)
        for (int64_t i = 0; i < a->rot / 2; i++, table += 2) {
            float angle = (float)(a->first + t) * a->freq[i];
            table[0] = (float)cos((double)angle) * a->scale;
            table[1] = (float)sin((double)angle) * a->scale;
        }
}

/* Rotates one head: pairs (i, i+R/2). */
static void rope_head(float *x, const float *table, int64_t pairs, bool inverse)
{
    for (int64_t i = 0; i < pairs; i++) {
        double c = table[2 * i], s = inverse ? -table[2 * i + 1] : table[2 * i + 1];
        double x1 = x[i], x2 = x[i + pairs];
        x[i] = (float)(x1 * c - x2 * s);
        x[i + pairs] = (float)(x2 * c + x1 * s);
    }
}

void rope_plain(const struct cpu *cpu, const struct rope *a)
{
    (void)cpu;
    struct attention_row at = attention_row_of(a->layout, a->h, a->hk, a->d);
    for (int64_t n = 0; n < a->n; n++) {
        float *row = (float *)a->x.data + n * at.row;
        const float *table = (const float *)a->table.data + n % a->t * a->rot;
        for (int64_t i = 0; i < a->h; i++)
            rope_head(row + i * at.head, table, a->rot / 2, a->inverse);
        for (int64_t i = 0; i < a->hk; i++)
            rope_head(row + at.k + i * at.head, table, a->rot / 2, a->inverse);
    }
}

/* normuon_cpu — the fast division by a neuron's root mean square: a task takes a row, or a few
 * neighbouring columns of all rows, and reads them twice. Sums are in double. */
#include "kernels/normuon.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/grad_scale.h" /* grad_scale_get */
#include "kernels/reduce_lanes_cpu.h"

#define COLUMNS 64 /* of a task */

/* new_mean — moves v towards a mean of squares; returns what elements are multiplied by. */
static inline float new_mean(const struct normuon *a, float *v, double mean)
{
    *v = (float)(*v + (1 - a->beta2) * (mean - *v));
    return (float)(1 / (sqrt((double)*v) + a->eps));
}

static void one_row(void *arg, int row, int thread_i)
{
    (void)thread_i;
    const struct normuon *a = arg;
    float *restrict x = (float *)a->x.data + row * a->columns;
    double mean = reduce_lanes(x, a->columns, true) / (double)a->columns;
    float factor = new_mean(a, (float *)a->v.data + row, mean);
    for (int64_t i = 0; i < a->columns; i++)
        x[i] *= factor;
}

/* add_squares, multiply — of a row's part of at most COLUMNS columns. */
static inline void add_squares(double *restrict sum, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)x[i] * (double)x[i];
}
static inline void multiply(float *restrict x, const float *restrict factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor[i];
}

static void some_columns(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct normuon *a = arg;
    int64_t first = (int64_t)part_i * COLUMNS,
            n = cpu_part_end(a->columns, COLUMNS, part_i) - first;
    float *x = (float *)a->x.data + first, factor[COLUMNS];
    double sum[COLUMNS] = {0};
    for (int64_t row = 0; row < a->rows; row++)
        add_squares(sum, x + row * a->columns, n);
    for (int64_t i = 0; i < n; i++)
        factor[i] = new_mean(a, (float *)a->v.data + first + i, sum[i] / (double)a->rows);
    for (int64_t row = 0; row < a->rows; row++)
        multiply(x + row * a->columns, factor, n);
}

void CPU_FN(normuon)(const struct cpu *cpu, const struct normuon *a)
{
    if (isnan(grad_scale_get(a->grad_scale.data)))
        return;
    if (a->is_by_column)
        thread_pool_run(cpu->pool, cpu_parts(a->columns, COLUMNS), some_columns, (void *)a);
    else
        thread_pool_run(cpu->pool, cpu_parts(a->rows, 1), one_row, (void *)a);
}

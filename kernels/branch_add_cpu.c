/* branch_add_cpu — the end of a branch by rows; random words vector by vector. */
#include "kernels/branch_add.h"

#include "kernels/cpu.h"
#include "kernels/philox_cpu.h"

#define RANGE_ELEMS 16384
#define TILE_ELEMS 256

struct row {
    float *y;
    const float *x, *b, *residual; /* b NULL: no bias */
};

static void add_plain(const struct row *r, int64_t n)
{
    if (r->b)
        for (int64_t i = 0; i < n; i++)
            r->y[i] = r->residual[i] + (r->x[i] + r->b[i]);
    else
        for (int64_t i = 0; i < n; i++)
            r->y[i] = r->residual[i] + r->x[i];
}

static void add_kept(const struct row *r, const float *factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = r->b ? r->x[i] + r->b[i] : r->x[i];
        r->y[i] = r->residual[i] + (factor[i] == 0 ? 0 : sum * factor[i]);
    }
}

/* Elements [c, c + n) of row `row`. */
static void branch_add_tile(const struct branch_add *a, int64_t row, int64_t c, int64_t n)
{
    int64_t at = row * a->c + c;
    const float *b = a->b.data;
    struct row r = {(float *)a->y.data + at, (const float *)a->x.data + at, b ? b + c : NULL,
                    (const float *)a->residual.data + at};
    float factor[TILE_ELEMS];
    if (a->dropout.p > 0) {
        philox_scale(&a->dropout, (uint64_t)at, n, factor);
        add_kept(&r, factor, n);
    } else
        add_plain(&r, n);
}

static int64_t range_rows(const struct branch_add *a)
{
    return a->c < RANGE_ELEMS ? RANGE_ELEMS / a->c : 1;
}

static void branch_add_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct branch_add *a = arg;
    int64_t rows = range_rows(a), end = cpu_range_end(a->n, rows, range_i);
    for (int64_t row = range_i * rows; row < end; row++)
        for (int64_t c = 0; c < a->c; c += TILE_ELEMS)
            branch_add_tile(a, row, c, a->c - c < TILE_ELEMS ? a->c - c : TILE_ELEMS);
}

void CPU_FN(branch_add)(const struct cpu *cpu, const struct branch_add *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, range_rows(a)), branch_add_range, (void *)a);
}

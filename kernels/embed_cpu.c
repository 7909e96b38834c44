/* embed_cpu — fast embedding. Forward works by rows. Backward works by columns, so that one task
 * adds to each element of dwte, in the order of tokens, for any number of threads. */
#include "kernels/embed.h"

#include "kernels/cpu.h"
#include "kernels/philox_cpu.h"
#include "kernels/vec_cpu.h"

#define RANGE_ROWS 16
#define RANGE_COLUMNS 128

/* Returns the factors of row n, columns c … c+width-1; NULL: dropout is off. */
static const float *embed_factors(const struct dropout *d, int64_t first, int64_t width,
                                  float *factors)
{
    if (d->p <= 0)
        return NULL;
    philox_scale(d, (uint64_t)first, width, factors);
    return factors;
}

/* y += factor·x; a dropped element adds nothing, even if it is infinite. */
static void embed_add(float *y, const float *x, const float *factor, int64_t n)
{
    if (factor)
        for (int64_t i = 0; i < n; i++)
            y[i] += factor[i] == 0 ? 0 : x[i] * factor[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
}

static void embed_sum(float *x, const float *te, const float *pe, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = te[i] + pe[i];
}

/* Adds the rows of token and position; te NULL: zeros, pe NULL: none. */
static void embed_row_fwd(float *x, const float *te, const float *pe, int64_t n)
{
    if (te && pe)
        embed_sum(x, te, pe, n);
    else if (te || pe)
        memcpy(x, te ? te : pe, (size_t)n * sizeof *x);
    else
        memset(x, 0, (size_t)n * sizeof *x);
}

static void embed_fwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct embed_fwd *a = arg;
    const int32_t *tokens = a->tokens.data, *positions = a->positions.data;
    float factors[RANGE_COLUMNS];
    int64_t end = cpu_range_end(a->n, RANGE_ROWS, range_i);
    for (int64_t n = (int64_t)range_i * RANGE_ROWS; n < end; n++) {
        float *x = (float *)a->x.data + n * a->c;
        const float *wte = a->wte.data, *wpe = a->wpe.data;
        int64_t row = embed_row(tokens[n], a->first, a->rows),
                position = positions ? positions[n] : n % a->t;
        embed_row_fwd(x, row < 0 ? NULL : wte + row * a->c, wpe ? wpe + position * a->c : NULL,
                      a->c);
        for (int64_t c = 0; c < a->c && a->dropout.p > 0; c += RANGE_COLUMNS) {
            int64_t width = a->c - c < RANGE_COLUMNS ? a->c - c : RANGE_COLUMNS;
            const float *factor = embed_factors(&a->dropout, n * a->c + c, width, factors);
            for (int64_t i = 0; i < width; i++)
                x[c + i] = factor[i] == 0 ? 0 : x[c + i] * factor[i];
        }
    }
}

void CPU_FN(embed_fwd)(const struct cpu *cpu, const struct embed_fwd *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ROWS), embed_fwd_range, (void *)a);
}

static void embed_bwd_tokens(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct embed_bwd *a = arg;
    const int32_t *tokens = a->tokens.data;
    float *dwte = a->dwte.data, factors[RANGE_COLUMNS];
    const float *dx = a->dx.data;
    int64_t c = (int64_t)range_i * RANGE_COLUMNS,
            width = cpu_range_end(a->c, RANGE_COLUMNS, range_i) - c;
    for (int64_t n = 0; n < a->n; n++) {
        int64_t row = embed_row(tokens[n], a->first, a->rows),
                next = n + 8 < a->n ? embed_row(tokens[n + 8], a->first, a->rows) : -1;
        for (int64_t i = 0; i < width && next >= 0; i += 16) /* rows of dwte are far apart */
            __builtin_prefetch(dwte + next * a->c + c + i, 1);
        if (row < 0)
            continue;
        const float *factor = embed_factors(&a->dropout, n * a->c + c, width, factors);
        embed_add(dwte + row * a->c + c, dx + n * a->c + c, factor, width);
    }
}

/* Sums the positions t of a range: the samples' rows one after the other. */
static void embed_bwd_positions(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct embed_bwd *a = arg;
    float *dwpe = a->dwpe.data, factors[RANGE_COLUMNS];
    const float *dx = a->dx.data;
    int64_t end = cpu_range_end(a->context, RANGE_ROWS, range_i);
    for (int64_t t = (int64_t)range_i * RANGE_ROWS; t < end; t++) {
        if (!a->accumulate)
            memset(dwpe + t * a->c, 0, (size_t)a->c * sizeof *dwpe);
        for (int64_t n = t; n < a->n && t < a->t; n += a->t)
            for (int64_t c = 0; c < a->c; c += RANGE_COLUMNS) {
                int64_t width = a->c - c < RANGE_COLUMNS ? a->c - c : RANGE_COLUMNS;
                const float *factor = embed_factors(&a->dropout, n * a->c + c, width, factors);
                embed_add(dwpe + t * a->c + c, dx + n * a->c + c, factor, width);
            }
    }
}

void CPU_FN(embed_bwd)(const struct cpu *cpu, const struct embed_bwd *a)
{
    if (a->dwte.data)
        thread_pool_run(cpu->pool, cpu_ranges(a->c, RANGE_COLUMNS), embed_bwd_tokens, (void *)a);
    if (a->dwpe.data)
        thread_pool_run(cpu->pool, cpu_ranges(a->context, RANGE_ROWS), embed_bwd_positions,
                        (void *)a);
}

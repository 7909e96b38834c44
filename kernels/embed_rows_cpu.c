/* embed_rows_cpu — fast addition of rows. A task takes whole rows of the table, every PARTS-th one,
 * so one task adds to each element, in the order of lists, for any number of threads. */
#include "kernels/embed_rows.h"

#include "kernels/cpu.h"

#define PARTS 32

/* Adds row `row` of the lists to row `id` of the table, as far as that lies in the part. */
static void embed_rows_one(const struct embed_rows_add *a, int64_t row, int64_t id)
{
    int64_t at = id * a->c - a->first, first = at < 0 ? -at : 0,
            end = a->elems - at < a->c ? a->elems - at : a->c;
    float *out = a->out.data;
    const float *x = (const float *)a->rows.data + row * a->c;
    for (int64_t i = first; i < end; i++)
        out[at + i] += x[i];
}

/* embed_rows_next — the first row, from `row` on, with an id of a task; none: `end`. */
static int64_t embed_rows_next(const int32_t *ids, int64_t row, int64_t end, int part_i)
{
    while (row < end && (ids[row] < 0 || ids[row] % PARTS != part_i))
        row++;
    return row;
}

static void embed_rows_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct embed_rows_add *a = arg;
    const int32_t *ids = a->ids.data;
    int64_t end = a->lists * a->n;
    for (int64_t row = embed_rows_next(ids, 0, end, part_i); row < end;
         row = embed_rows_next(ids, row + 1, end, part_i))
        embed_rows_one(a, row, ids[row]);
}

void CPU_FN(embed_rows_add)(const struct cpu *cpu, const struct embed_rows_add *a)
{
    thread_pool_run(cpu->pool, PARTS, embed_rows_part, (void *)a);
}

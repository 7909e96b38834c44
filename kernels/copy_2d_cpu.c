/* copy_2d_cpu — the loop of the plain truth, cut into parts for the threads: of several short rows,
 * or of one long row. */
#include "kernels/copy_2d.h"

#include "kernels/cpu.h"

#define PART_ELEMS 65536

static int64_t part_columns(const struct copy_2d *a)
{
    return a->columns < PART_ELEMS ? a->columns : PART_ELEMS;
}

static int64_t part_rows(const struct copy_2d *a) { return PART_ELEMS / part_columns(a); }

static void copy_2d_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct copy_2d *a = arg;
    int across = cpu_parts(a->columns, part_columns(a));
    int64_t rows = part_rows(a), row = part_i / across * rows,
            end = cpu_part_end(a->rows, rows, part_i / across);
    int64_t column = part_i % across * part_columns(a),
            columns_end = cpu_part_end(a->columns, part_columns(a), part_i % across);
    copy_2d_plain(NULL, &(struct copy_2d){tensor_at(a->y, row * a->y_stride + column),
                                          tensor_at(a->x, row * a->x_stride + column), end - row,
                                          columns_end - column, a->y_stride, a->x_stride});
}

void CPU_FN(copy_2d)(const struct cpu *cpu, const struct copy_2d *a)
{
    if (a->rows == 0)
        return;
    int parts = cpu_parts(a->rows, part_rows(a)) * cpu_parts(a->columns, part_columns(a));
    thread_pool_run(cpu->pool, parts, copy_2d_part, (void *)a);
}

/* copy_2d_cpu — the loop of the plain truth, cut into ranges for the threads: of several short
 * rows, or of one long row. */
#include "kernels/copy_2d.h"

#include "kernels/cpu.h"

#define RANGE_ELEMS 65536

static int64_t range_columns(const struct copy_2d *a)
{
    return a->columns < RANGE_ELEMS ? a->columns : RANGE_ELEMS;
}

static int64_t range_rows(const struct copy_2d *a) { return RANGE_ELEMS / range_columns(a); }

static void copy_2d_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct copy_2d *a = arg;
    int across = cpu_ranges(a->columns, range_columns(a));
    int64_t rows = range_rows(a), row = range_i / across * rows,
            end = cpu_range_end(a->rows, rows, range_i / across);
    int64_t column = range_i % across * range_columns(a),
            columns_end = cpu_range_end(a->columns, range_columns(a), range_i % across);
    copy_2d_plain(NULL,
                  &(struct copy_2d){tensor_at(a->y, row * a->y_stride + column),
                                    tensor_at(a->x, row * a->x_stride + column), end - row,
                                    columns_end - column, a->y_stride, a->x_stride, a->scale});
}

void CPU_FN(copy_2d)(const struct cpu *cpu, const struct copy_2d *a)
{
    if (a->rows == 0)
        return;
    int ranges = cpu_ranges(a->rows, range_rows(a)) * cpu_ranges(a->columns, range_columns(a));
    thread_pool_run(cpu->pool, ranges, copy_2d_range, (void *)a);
}

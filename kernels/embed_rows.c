/* embed_rows — the plain truth of rows that are added to a table. */
#include "kernels/embed_rows.h"

#include "kernels/cpu.h"

void embed_rows_add_plain(const struct cpu *cpu, const struct embed_rows_add *a)
{
    (void)cpu;
    float *out = a->out.data;
    const float *rows = a->rows.data;
    const int32_t *ids = a->ids.data;
    for (int64_t row = 0; row < a->lists * a->n; row++)
        for (int64_t c = 0; c < a->c && ids[row] >= 0; c++) {
            int64_t at = ids[row] * a->c + c - a->first;
            if (at >= 0 && at < a->elems)
                out[at] += rows[row * a->c + c];
        }
}

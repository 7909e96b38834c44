/* copy_2d — the plain truth: one row after the other. */
#include "kernels/copy_2d.h"

#include <string.h>

#include "kernels/cpu.h"

void copy_2d_plain(const struct cpu *cpu, const struct copy_2d *a)
{
    (void)cpu;
    for (int64_t i = 0; i < a->rows; i++) {
        void *y = tensor_at(a->y, i * a->y_stride).data;
        const void *x = tensor_at(a->x, i * a->x_stride).data;
        if (a->scale == 0)
            memcpy(y, x, (size_t)a->columns * dtype_bytes(a->x.dtype));
        for (int64_t j = 0; a->scale != 0 && j < a->columns; j++)
            ((float *)y)[j] = a->scale * ((const float *)x)[j];
    }
}

/* combine — the plain truth: the tree as it is written in combine.h, one element at a time. */
#include "kernels/combine.h"

#include "kernels/cpu.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"

static struct tensor get_source(const struct combine *a, int s)
{
    return s == a->own_i ? a->own : tensor_at(a->in, s * a->stride);
}

static int left_half(int n)
{
    int left = 1;
    while (2 * left < n)
        left *= 2;
    return left;
}

static float sum_f32(const struct combine *a, int64_t i, int first, int n)
{
    struct tensor t = get_source(a, first);
    int left = left_half(n);
    if (n > 1)
        return sum_f32(a, i, first, left) + sum_f32(a, i, first + left, n - left);
    return t.dtype == DTYPE_BF16  ? bf16_to_float(((const uint16_t *)t.data)[i])
           : t.dtype == DTYPE_F16 ? f16_to_float(((const uint16_t *)t.data)[i])
                                  : ((const float *)t.data)[i];
}

static double sum_f64(const struct combine *a, int64_t i, int first, int n)
{
    int left = left_half(n);
    if (n > 1)
        return sum_f64(a, i, first, left) + sum_f64(a, i, first + left, n - left);
    return ((const double *)get_source(a, first).data)[i];
}

void combine_plain(const struct cpu *cpu, const struct combine *a)
{
    (void)cpu;
    for (int64_t i = 0; i < a->elems; i++) {
        if (a->out.dtype == DTYPE_F64)
            ((double *)a->out.data)[i] = sum_f64(a, i, 0, a->sources_n);
        else if (a->out.dtype == DTYPE_BF16)
            ((uint16_t *)a->out.data)[i] = bf16_from_float(sum_f32(a, i, 0, a->sources_n));
        else if (a->out.dtype == DTYPE_F16)
            ((uint16_t *)a->out.data)[i] = f16_from_float(sum_f32(a, i, 0, a->sources_n));
        else
            ((float *)a->out.data)[i] = sum_f32(a, i, 0, a->sources_n);
    }
}

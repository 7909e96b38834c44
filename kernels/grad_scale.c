/* grad_scale — the plain truth. */
#include "kernels/grad_scale.h"

#include "kernels/cpu.h"

void grad_scale_plain(const struct cpu *cpu, const struct grad_scale *a)
{
    (void)cpu;
    const double *squares = a->squares.data, *loss = a->loss.data;
    double *out = a->out.data, total = 0;
    for (int64_t i = a->squares_n - 1; i >= 0; i--)
        total += squares[i];
    out[0] = isfinite(*loss) ? grad_scale_of(total, a->clip, a->loss_scale) : NAN;
    out[1] = total;
}

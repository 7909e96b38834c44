/* grad_scale — one thread, because the sum has an order. */
#include "kernels/grad_scale.h"
#include "kernels/step_scalars.h"
#include "kernels/stride.cuh"

constexpr int THREADS = 32;

static __global__ void grad_scale_total(double *out, const double *squares, const double *loss,
                                        int64_t squares_n, double clip, double loss_scale,
                                        const struct step_scalars *scalars)
{
    double total = 0;
    if (threadIdx.x > 0)
        return;
    for (int64_t i = squares_n - 1; i >= 0; i--)
        total += squares[i];
    loss_scale = scalars ? (double)scalars->scale[0] : loss_scale;
    bool is_finite = fabs(*loss) < (double)INFINITY;
    out[0] = is_finite ? grad_scale_of(total, clip, loss_scale) : (double)NAN;
    out[1] = total;
}

extern "C" int grad_scale_cuda(const struct cuda *cuda, const struct grad_scale *a)
{
    return cuda_launch(grad_scale_total, 1, THREADS, 0, cuda->stream, (double *)a->out.data,
                       (const double *)a->squares.data, (const double *)a->loss.data, a->squares_n,
                       a->clip, a->loss_scale, cuda->scalars);
}

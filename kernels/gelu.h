/* gelu — GELU as an operation: for a forward value that was not kept and is computed again, or for
 * a kind that no product's epilogue has. Must not know layers. */
#ifndef CONVOY_KERNELS_GELU_H
#define CONVOY_KERNELS_GELU_H
#include "kernels/tensor.h"

/* TANH: 0.5x(1+tanh(√(2/π)(x+0.044715x³))), GPT-2's "gelu_new". ERF: x·Φ(x) with the normal
 * distribution Φ(x) = 0.5(1+erf(x/√2)), as torch.nn.GELU() and GPT-NeoX's "gelu". */
enum gelu_kind { GELU_KIND_TANH, GELU_KIND_ERF };

/* Φ(-a) = exp(-a²/2)·t·Q(t), t = 1/(1+0.3a), for a in [0, 13.5]; beyond it is below f32. Q is the
 * polynomial of degree 7 with the least relative error, 1.3e-7; X(coefficient), the highest power
 * first. Used by vectors and by CUDA kernels. */
#define GELU_ERF_MOST 13.5f
#define GELU_ERF_STEP 0.3f
#define GELU_ERF_LIST(X) \
    X(0.035931725f)      \
    X(-0.158275962f)     \
    X(0.208206534f)      \
    X(-0.0553937927f)    \
    X(0.129469171f)      \
    X(0.0996375009f)     \
    X(0.120798357f)      \
    X(0.119626388f)

/* gelu_fwd — y = gelu(x), of either kind.
 * out  y (n)  may be x | in  x (n). Tolerance to plain: nmse 1e-12. */
struct gelu_fwd {
    struct tensor y, x;
    int64_t n;
    enum gelu_kind kind;
};

/* gelu_bwd — dx = dy · gelu'(x).
 * out  dx (n)  replaced; may be dy | in  dy, x (n) */
struct gelu_bwd {
    struct tensor dx, dy, x;
    int64_t n;
    enum gelu_kind kind;
};
#endif

/* matmul — the dense products of a layer: forward and both gradients, with an epilogue (bias, GELU,
 * dropout, residual) in the same pass. Must not know layers or models. */
#ifndef CONVOY_KERNELS_MATMUL_H
#define CONVOY_KERNELS_MATMUL_H
#include "kernels/tensor.h"

/* The level `amx` computes an fp32 product in bf16 tiles, each factor as a sum of three bf16, at
 * fp32 accuracy (gemm_amx_tile_cpu.h). Two promises are narrower there:
 *   a factor that is not finite, or beyond 3.395e38, makes every sum that it enters NaN, even if
 *   the other factor is 0
 *   factors and sums below 2^-126 count as 0, and factors below 2^-110 lose their last bits
 * A value that is not finite never becomes finite. */

/* Layouts of w in memory: IO is (I,O), as GPT-2's Conv1D; OI is (O,I), as torch.nn.Linear and the
 * tied embedding. */
enum matmul_layout { MATMUL_LAYOUT_IO, MATMUL_LAYOUT_OI };
enum matmul_act { MATMUL_ACT_NONE, MATMUL_ACT_GELU };

/* matmul_fwd — u = x·w + b;  y = act(u), or y = residual + dropout(u).
 * out  y (N,O)  row stride y_stride elements (0: O); must not overlap x or w; may be residual
 *      pre (N,O)  u, kept for GELU's backward; act reads the kept u. NULL: not kept (act GELU only)
 * in   x (N,I) · w in `layout` · b (O) or NULL
 *      residual (N,O)  row stride y_stride; or NULL (act NONE only)
 * Needs any sizes ≥ 1. GELU is the tanh form: 0.5u(1+tanh(√(2/π)(u+0.044715u³))) (Hendrycks, Gimpel
 * 2016). Tolerance to plain: nmse 1e-12. */
struct matmul_fwd {
    struct tensor y, pre, x, w, b, residual;
    int64_t n, in, out, y_stride;
    enum matmul_layout layout;
    enum matmul_act act;
    struct dropout dropout; /* dropout of u when residual is given; element index n·O + o */
};

/* matmul_bwd_x — dx = dy·wᵀ, or (dy·wᵀ)·gelu'(pre) when `pre` is given.
 * out  dx (N,I)  replaced; must not overlap dy
 * in   dy (N,O)  row stride dy_stride (0: O)
 *      w in `layout` · pre (N,I) or NULL */
struct matmul_bwd_x {
    struct tensor dx, dy, w, pre;
    int64_t n, in, out, dy_stride;
    enum matmul_layout layout;
};

/* matmul_bwd_w — dw (+)= xᵀ·dy in w's layout;  db (+)= Σ_n dy[n,:].
 * out  dw · db (O) or NULL  added to when accumulate, else replaced
 * in   x (N,I) · dy (N,O)  row stride dy_stride (0: O)
 * The order of a sum depends only on the shape. */
struct matmul_bwd_w {
    struct tensor dw, db, x, dy;
    int64_t n, in, out, dy_stride;
    enum matmul_layout layout;
    bool accumulate;
};
#endif

/* matmul — the plain truth of the dense products: one thread, sums in double, no tricks.
 *
 * Each product is C(m,n) = Σ_k A(m,k)·B(k,n) with a stride for each index. Must not know models. */
#include "kernels/matmul.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/dropout.h"

#define MATMUL_RUN 64 /* columns summed together, so that rows of w are read in order */

struct matmul_side {
    const float *data;
    int64_t row, col; /* strides, elements */
};

static int64_t matmul_min(int64_t a, int64_t b) { return a < b ? a : b; }

/* matmul_sums — acc[j] = Σ_k a(row,k)·b(k,col+j) for j < cols. */
static void matmul_sums(struct matmul_side a, struct matmul_side b, int64_t row, int64_t col,
                        int64_t cols, int64_t k, double *acc)
{
    for (int64_t j = 0; j < cols; j++)
        acc[j] = 0.0;
    for (int64_t i = 0; i < k; i++) {
        double x = (double)a.data[row * a.row + i * a.col];
        const float *p = b.data + i * b.row + col * b.col;
        for (int64_t j = 0; j < cols; j++)
            acc[j] += x * (double)p[j * b.col];
    }
}

static double matmul_gelu(double u)
{
    return 0.5 * u * (1.0 + tanh(sqrt(2.0 / M_PI) * (u + 0.044715 * u * u * u)));
}

static double matmul_gelu_grad(double u)
{
    double a = sqrt(2.0 / M_PI), t = tanh(a * (u + 0.044715 * u * u * u));
    return 0.5 * (1.0 + t) + 0.5 * u * (1.0 - t * t) * a * (1.0 + 3.0 * 0.044715 * u * u);
}

static void matmul_fwd_finish(const struct matmul_fwd *a, int64_t row, int64_t col, double u)
{
    int64_t at = row * a->out + col;
    if (a->b.data)
        u += (double)((const float *)a->b.data)[col];
    if (a->pre.data)
        u = ((float *)a->pre.data)[at] = (float)u;
    if (a->act == MATMUL_ACT_GELU)
        u = matmul_gelu(u);
    int64_t to = row * (a->y_stride ? a->y_stride : a->out) + col;
    if (a->residual.data)
        u = (double)((const float *)a->residual.data)[to] +
            (double)dropout_factor(&a->dropout, at) * u;
    ((float *)a->y.data)[to] = (float)u;
}

void matmul_fwd_plain(const struct cpu *cpu, const struct matmul_fwd *a)
{
    (void)cpu;
    bool io = a->layout == MATMUL_LAYOUT_IO;
    struct matmul_side x = {a->x.data, a->in, 1}, w = {a->w.data, io ? a->out : 1, io ? 1 : a->in};
    double acc[MATMUL_RUN];
    for (int64_t row = 0; row < a->n; row++)
        for (int64_t col = 0; col < a->out; col += MATMUL_RUN) {
            int64_t cols = matmul_min(MATMUL_RUN, a->out - col);
            matmul_sums(x, w, row, col, cols, a->in, acc);
            for (int64_t j = 0; j < cols; j++)
                matmul_fwd_finish(a, row, col + j, acc[j]);
        }
}

void matmul_bwd_x_plain(const struct cpu *cpu, const struct matmul_bwd_x *a)
{
    (void)cpu;
    bool io = a->layout == MATMUL_LAYOUT_IO;
    struct matmul_side dy = {a->dy.data, a->dy_stride ? a->dy_stride : a->out, 1};
    struct matmul_side w = {a->w.data, io ? 1 : a->in, io ? a->out : 1};
    const float *pre = a->pre.data;
    double acc[MATMUL_RUN];
    for (int64_t row = 0; row < a->n; row++)
        for (int64_t col = 0; col < a->in; col += MATMUL_RUN) {
            int64_t cols = matmul_min(MATMUL_RUN, a->in - col), at = row * a->in + col;
            matmul_sums(dy, w, row, col, cols, a->out, acc);
            for (int64_t j = 0; j < cols; j++)
                ((float *)a->dx.data)[at + j] =
                    (float)(acc[j] * (pre ? matmul_gelu_grad((double)pre[at + j]) : 1.0));
        }
}

static void matmul_store(float *p, bool accumulate, double x)
{
    *p = (float)((accumulate ? (double)*p : 0.0) + x);
}

void matmul_bwd_w_plain(const struct cpu *cpu, const struct matmul_bwd_w *a)
{
    (void)cpu;
    bool io = a->layout == MATMUL_LAYOUT_IO;
    int64_t stride = a->dy_stride ? a->dy_stride : a->out;
    struct matmul_side xt = {a->x.data, 1, a->in}, dyt = {a->dy.data, 1, stride};
    struct matmul_side x = {a->x.data, a->in, 1}, dy = {a->dy.data, stride, 1};
    int64_t rows = io ? a->in : a->out, width = io ? a->out : a->in;
    double acc[MATMUL_RUN];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t col = 0; col < width; col += MATMUL_RUN) {
            int64_t cols = matmul_min(MATMUL_RUN, width - col);
            matmul_sums(io ? xt : dyt, io ? dy : x, row, col, cols, a->n, acc);
            for (int64_t j = 0; j < cols; j++)
                matmul_store((float *)a->dw.data + row * width + col + j, a->accumulate, acc[j]);
        }
    for (int64_t o = 0; a->db.data && o < a->out; o++) {
        double sum = 0.0;
        for (int64_t n = 0; n < a->n; n++)
            sum += (double)dy.data[n * stride + o];
        matmul_store((float *)a->db.data + o, a->accumulate, sum);
    }
}

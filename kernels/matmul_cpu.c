/* matmul_cpu — the fast dense products. Each is one gemm, with an epilogue while its tiles are
 * still in cache. Forward with a single row is one gemv instead: packing weights that are read once
 * would not pay.
 *
 * It knows the use of C; gemm_cpu.h or gemm_bf16_cpu.h, and gemv_cpu.h, compute it. Compiled once
 * for each ISA level, see cpu.h. */
#include "kernels/matmul.h"

#include "kernels/cpu.h"
#if defined(CPU_AMX) || defined(CPU_BF16)
#define CPU_PACKED_BF16
#include "kernels/gemm_bf16_cpu.h"
#else
#include "kernels/gemm_cpu.h"
#endif
#include "kernels/gemv_cpu.h"
#include "kernels/philox_cpu.h"
#include "kernels/vec_cpu.h"

_Static_assert(GEMV_COLS >= GEMM_NR, "matmul_fwd_row takes a row of either");

static inline vec matmul_load(const float *p, int n)
{
    return n >= VEC_W ? vec_load(p) : vec_load_n(p, n);
}
static inline void matmul_store(float *p, int n, vec x)
{
    if (n >= VEC_W)
        vec_store(p, x);
    else
        vec_store_n(p, n, x);
}

/* matmul_fwd_bare_row — y = sums (+ bias) (+ residual). The branches of matmul_fwd_row cost more
 * than the work itself, and the next tile waits for them. */
static inline void matmul_fwd_bare_row(float *y, const float *b, const float *residual,
                                       const float *sums, int cols)
{
    for (int j = 0; j < cols; j += VEC_W) {
        vec u = vec_load(sums + j);
        if (b)
            u += matmul_load(b + j, cols - j);
        if (residual)
            u += matmul_load(residual + j, cols - j);
        matmul_store(y + j, cols - j, u);
    }
}

/* Finishes one row of a tile of matmul_fwd. */
static inline void matmul_fwd_row(const struct matmul_fwd *a, const float *sums, int64_t row,
                                  int64_t col, int cols)
{
    int64_t at = row * a->out + col, to = row * (a->y_stride ? a->y_stride : a->out) + col;
    float *y = (float *)a->y.data + to;
    const float *b = a->b.data, *residual = a->residual.data;
    float scale[GEMV_COLS], *pre = a->pre.data;
    bool drop = residual && a->dropout.p > 0.0f;
    if (drop)
        philox_scale(&a->dropout, (uint64_t)at, cols, scale);
    for (int j = 0; j < cols; j += VEC_W) {
        int n = cols - j;
        vec u = vec_load(sums + j);
        if (b)
            u += matmul_load(b + col + j, n);
        if (pre)
            matmul_store(pre + at + j, n, u);
        if (a->act == MATMUL_ACT_GELU)
            u = vec_gelu(u);
        if (drop)
            u *= matmul_load(scale + j, n);
        if (residual)
            u += matmul_load(residual + to + j, n);
        matmul_store(y + j, n, u);
    }
}

static void matmul_fwd_finish(const struct gemm *g, const float *tile, int64_t row, int64_t col,
                              int rows, int cols)
{
    const struct matmul_fwd *a = g->op;
    if (a->act == MATMUL_ACT_NONE && !(a->dropout.p > 0.0f) && !a->pre.data) {
        int64_t step = a->y_stride ? a->y_stride : a->out, at = row * step + col;
        float *y = a->y.data;
        const float *b = a->b.data ? (const float *)a->b.data + col : NULL,
                    *residual = a->residual.data;
        for (int i = 0; i < rows; i++, at += step)
            matmul_fwd_bare_row(y + at, b, residual ? residual + at : NULL, tile + i * GEMM_NR,
                                cols);
        return;
    }
    for (int i = 0; i < rows; i++)
        matmul_fwd_row(a, tile + i * GEMM_NR, row + i, col, cols);
}

/* Computes columns [range_i·GEMV_COLS, …) of a single row. */
static void matmul_fwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct matmul_fwd *a = arg;
    float sums[GEMV_COLS] = {0};
    const float *w = a->w.data, *x = a->x.data;
    int64_t col = (int64_t)range_i * GEMV_COLS;
    int cols = (int)(cpu_range_end(a->out, GEMV_COLS, range_i) - col);
    if (a->layout == MATMUL_LAYOUT_OI)
        for (int j = 0; j < cols; j++)
            sums[j] = gemv_dot(w + (col + j) * a->in, x, a->in, GEMV_FETCH);
    else if (cols == GEMV_COLS)
        gemv_columns(w + col, a->out, x, a->in, sums);
    else
        gemv_columns_n(w + col, a->out, x, a->in, cols, sums);
    matmul_fwd_row(a, sums, 0, col, cols);
}

void CPU_FN(matmul_fwd)(const struct cpu *cpu, const struct matmul_fwd *a)
{
    if (a->n == 1) {
        struct matmul_fwd one = *a;
        thread_pool_run(cpu->pool, cpu_ranges(a->out, GEMV_COLS), matmul_fwd_range, &one);
        return;
    }
#ifdef CPU_PACKED_BF16
    const bool is_narrow = a->out <= GEMM_NARROW && a->layout == MATMUL_LAYOUT_OI;
    if (is_narrow || !gemm_fits(a->in)) {
        matmul_fwd_v4(cpu, a);
        return;
    }
#endif
    bool io = a->layout == MATMUL_LAYOUT_IO;
    struct gemm g = {.a = a->x.data,
                     .a_step = a->in,
                     .b = a->w.data,
                     .b_step = io ? a->out : a->in,
                     .b_transposed = !io,
                     .m = a->n,
                     .n = a->out,
                     .k = a->in,
                     .finish = matmul_fwd_finish,
                     .op = a};
    g.lines[0] = (struct gemm_lines){a->y.data, 4 * (a->y_stride ? a->y_stride : a->out)};
    g.lines[1] = a->pre.data ? (struct gemm_lines){a->pre.data, 4 * a->out}
                             : (struct gemm_lines){a->residual.data, g.lines[0].step};
    gemm_run(cpu, &g);
}

static void matmul_bwd_x_finish(const struct gemm *g, const float *tile, int64_t row, int64_t col,
                                int rows, int cols)
{
    const struct matmul_bwd_x *a = g->op;
    for (int i = 0; i < rows; i++) {
        int64_t at = (row + i) * a->in + col;
        float *dx = (float *)a->dx.data + at;
        const float *pre = a->pre.data ? (const float *)a->pre.data + at : NULL;
        for (int j = 0; j < cols; j += VEC_W) {
            vec u = vec_load(tile + i * GEMM_NR + j);
            if (pre)
                u *= vec_gelu_grad(matmul_load(pre + j, cols - j));
            matmul_store(dx + j, cols - j, u);
        }
    }
}

void CPU_FN(matmul_bwd_x)(const struct cpu *cpu, const struct matmul_bwd_x *a)
{
    bool io = a->layout == MATMUL_LAYOUT_IO;
    struct gemm g = {.a = a->dy.data,
                     .a_step = a->dy_stride ? a->dy_stride : a->out,
                     .b = a->w.data,
                     .b_step = io ? a->out : a->in,
                     .b_transposed = io,
                     .m = a->n,
                     .n = a->in,
                     .k = a->out,
                     .finish = matmul_bwd_x_finish,
                     .op = a,
                     .partial = a->dx.data,
                     .partial_step = a->in};
    g.lines[0] = (struct gemm_lines){a->dx.data, 4 * a->in};
    g.lines[1] = (struct gemm_lines){a->pre.data, 4 * a->in};
    gemm_run(cpu, &g);
}

/* Gradients that are written for the first time are not read back soon: whole lines go past the
 * caches. */
static void matmul_bwd_w_finish(const struct gemm *g, const float *tile, int64_t row, int64_t col,
                                int rows, int cols)
{
    const struct matmul_bwd_w *a = g->op;
    float *dw = (float *)a->dw.data + row * g->n + col;
    bool stream =
        !a->accumulate && VEC_W >= 8 && cols % 16 == 0 && g->n % 16 == 0 && (uintptr_t)dw % 64 == 0;
    for (int i = 0; i < rows; i++, dw += g->n, tile += GEMM_NR) {
        for (int j = 0; j < cols; j += VEC_W) {
            vec u = vec_load(tile + j);
            if (stream)
                vec_stream(dw + j, u);
            else
                matmul_store(dw + j, cols - j,
                             a->accumulate ? u + matmul_load(dw + j, cols - j) : u);
        }
    }
}

void CPU_FN(matmul_bwd_w)(const struct cpu *cpu, const struct matmul_bwd_w *a)
{
#ifdef CPU_PACKED_BF16
    if (!gemm_fits(a->n)) {
        matmul_bwd_w_v4(cpu, a);
        return;
    }
#endif
    bool io = a->layout == MATMUL_LAYOUT_IO;
    int64_t dy_step = a->dy_stride ? a->dy_stride : a->out;
    struct gemm g = {.a = io ? a->x.data : a->dy.data,
                     .a_step = io ? a->in : dy_step,
                     .a_transposed = true,
                     .b = io ? a->dy.data : a->x.data,
                     .b_step = io ? dy_step : a->in,
                     .m = io ? a->in : a->out,
                     .n = io ? a->out : a->in,
                     .k = a->n,
                     .finish = matmul_bwd_w_finish,
                     .op = a,
                     .accumulates_sums = a->accumulate};
    if (a->accumulate)
        g.lines[0] = (struct gemm_lines){a->dw.data, 4 * g.n};
    *(io ? &g.b_sums : &g.a_sums) = a->db.data;
    gemm_run(cpu, &g);
}

/* gemm_cpu — C(m,n) = Σ_k A(m,k)·B(k,n) on all threads, cut into tasks that fit the caches.
 *
 * Included by matmul_cpu.c only. It knows matrices, caches and threads; it must not know the use of
 * C: each finished tile of C is passed to `finish`, once. After Goto and van de Geijn (2008): a
 * task is a block of rows of C by a few panels of columns. For each block of k its rows of A stay
 * in L2, and the panels of B pass over them one after the other. Here, every task packs its own B
 * while it computes its first tile, and prefetches the next panel while it computes the others. So
 * a weight that is read once from memory costs no time of its own. */
#ifndef CONVOY_KERNELS_GEMM_CPU_H
#define CONVOY_KERNELS_GEMM_CPU_H

#include "base/isa.h"
#include "kernels/gemm_op_cpu.h"
#include "kernels/gemm_pack_cpu.h"
#include "kernels/gemm_tile_cpu.h"

/* The longest block of k. A longer one ends fewer tiles and leaves fewer sums between blocks. At
 * AVX2 the panels then stream from L2, which costs less. A shorter one lets more rows of A's block
 * share a panel of B, which is expensive to transpose (b_transposed). */
#if CPU_ISA == 3
#define GEMM_K_MAX 768
#define GEMM_K_MAX_B_TRANSPOSED 768
#define GEMM_K_MAX_A_TRANSPOSED 1024
#else
#if CPU_ISA == 4
#define GEMM_K_MAX 768
#else
#define GEMM_K_MAX 384
#endif
#define GEMM_K_MAX_B_TRANSPOSED 384
#define GEMM_K_MAX_A_TRANSPOSED 512
#endif
/* A's block (rows × k) fills up to 40 % of the second-level cache: with more rows, fewer tasks pack
 * a panel of B again. At AVX2 a quarter of the thread's share of the third-level cache is used if
 * that is more: a tile reads 4 bytes of A a cycle, and that cache can deliver them too.
 * GEMM_A_BLOCK: the most elements; _UNKNOWN: if the sizes of the caches are unknown. */
#if CPU_ISA == 3
#define GEMM_A_BLOCK (512 * 768)
#else
#define GEMM_A_BLOCK (512 * 384)
#endif
#define GEMM_A_BLOCK_UNKNOWN (96 * 384)
#define GEMM_M_MAX 1024
#define GEMM_PANELS_MAX 16

/* One thread's scratch memory. */
struct gemm_workspace {
    /* the current panel, and the panel that is packed ahead */
    float panels[2][(GEMM_K_MAX > GEMM_K_MAX_A_TRANSPOSED ? GEMM_K_MAX : GEMM_K_MAX_A_TRANSPOSED) *
                    GEMM_NR];
    float a[GEMM_A_BLOCK + GEMM_MR * GEMM_K_MAX_A_TRANSPOSED];
    /* tiles of C between blocks of k */
    float sums[(GEMM_M_MAX + GEMM_MR) * GEMM_NR * GEMM_PANELS_MAX];
    float totals[(GEMM_M_MAX + GEMM_MR) + GEMM_NR * GEMM_PANELS_MAX];
};
_Static_assert(sizeof(struct gemm_workspace) <= CPU_SCRATCH_BYTES,
               "a thread's scratch memory is large enough for a product");

/* The current task: rows m0 … m0+rows-1, columns n0 … n0+cols-1, k0 … k0+k-1. */
struct gemm_task {
    const struct gemm *g;
    struct gemm_workspace *workspace;
    int64_t m0, rows, n0, cols, k0, k;
    const float *a; /* its rows of A, packed */
    struct gemm_ahead ahead;
    int panel_i;    /* the current one of the workspace's panels */
    bool is_packed; /* the panel was packed ahead */
    int64_t next;   /* the task this thread does after this one */
};

/* Fewer rows than this are read in place: packing them would not pay, and short tiles exist for
 * rows only. */
#define GEMM_PACK_MIN 16
/* Fewer rows than this in a task do not pay for the panel of B that it packs. */
#define GEMM_ROWS_MIN 32

/* gemm_a_block — returns the elements of A's block on this machine. */
static int64_t gemm_a_block(const struct gemm *g)
{
    int64_t bytes = isa_l2_bytes() / 5 * 2;
    if (CPU_ISA == 3)
        bytes = gemm_max(bytes, isa_l3_bytes() / (4 * thread_pool_threads(g->cpu->pool)));
    return gemm_min(gemm_max(bytes / (int64_t)sizeof(float), GEMM_A_BLOCK_UNKNOWN), GEMM_A_BLOCK);
}

/* gemm_rows_max — returns the most rows of a task: of A's block, or fewer if there are few columns,
 * so that each thread has several tasks. The choice of rows for a task changes no sum, so this may
 * depend on caches and threads. */
static int64_t gemm_rows_max(const struct gemm *g)
{
    const int64_t panels = gemm_ceil(g->n, GEMM_NR), threads = thread_pool_threads(g->cpu->pool);
    return gemm_min(gemm_a_block(g) / g->k_block,
                    gemm_max(g->m * panels / (2 * threads), GEMM_ROWS_MIN));
}

/* gemm_slab — returns the length of k, in whole blocks, for which the packed A of all rows fits
 * into shared memory. */
static int64_t gemm_slab(const struct gemm *g)
{
    int64_t rows = gemm_ceil(g->m, GEMM_MR) * GEMM_MR,
            most = (int64_t)(CPU_SHARED_BYTES / sizeof(float)) / rows;
    return most / g->k_block * g->k_block;
}

/* gemm_wide — returns the panels of a task if k has several blocks. A wide task reads its rows of A
 * from far memory once for many panels. Tasks that the threads can share equally end together. The
 * choice of columns for a task changes no sum, so this may depend on the number of threads. */
static int64_t gemm_wide(const struct gemm *g)
{
    int64_t panels = gemm_ceil(g->n, GEMM_NR), threads = thread_pool_threads(g->cpu->pool),
            wide = gemm_min(GEMM_PANELS_MAX, panels * g->m_tasks / (4 * threads));
    for (; wide > GEMM_PANELS_MAX / 2; wide--) {
        int64_t tasks = g->m_tasks * gemm_ceil(g->n, gemm_even(g->n, wide * GEMM_NR, GEMM_NR));
        if (tasks % threads == 0 || tasks >= 16 * threads)
            break;
    }
    return wide;
}

/* gemm_wide_alone — returns the panels of a task that packs its own rows of A. With one block of k
 * there are no sums to keep. So if the tasks by rows are enough for all threads, a task has all
 * columns, and A is packed once. */
static int64_t gemm_wide_alone(const struct gemm *g)
{
    bool keeps_none = g->k <= g->k_block && !g->b_sums;
    return keeps_none && g->m_tasks >= 8 * thread_pool_threads(g->cpu->pool)
               ? gemm_ceil(g->n, GEMM_NR)
               : GEMM_PANELS_MAX;
}

/* gemm_cut — cuts the product; k by the shape only, so that sums have the same bits on every
 * machine of a level. */
static void gemm_cut(struct gemm *g)
{
    int64_t k_max = g->a_transposed   ? GEMM_K_MAX_A_TRANSPOSED
                    : g->b_transposed ? GEMM_K_MAX_B_TRANSPOSED
                                      : GEMM_K_MAX;
    g->k_block = gemm_even(g->k, k_max, GEMM_CHUNK);
    g->m_block = gemm_even(g->m, gemm_min(gemm_rows_max(g), GEMM_M_MAX), GEMM_MR);
    g->m_tasks = gemm_ceil(g->m, g->m_block);
    int64_t slab = gemm_slab(g);
    bool fits = slab >= g->k || (slab > 0 && g->partial);
    g->a_packed = g->a_transposed || (fits && g->m >= GEMM_PACK_MIN && g->n > GEMM_NARROW);
    g->a_shared = g->a_packed && fits ? (void *)g->cpu->shared : NULL;
    g->k_to = g->a_shared ? gemm_min(slab, g->k) : g->k;
    int64_t wide = 1;
    if (g->a_packed && !g->a_shared)
        wide = gemm_wide_alone(g);
    else if (g->k > g->k_block)
        wide = gemm_wide(g);
    wide = wide < 1 ? 1 : wide;
    g->n_block = gemm_even(g->n, wide * GEMM_NR, GEMM_NR);
    g->n_tasks = gemm_ceil(g->n, g->n_block);
}

/* gemm_locate — computes the rows and columns of a task. Columns run fastest, so that A's block
 * stays in cache. Returns false if there is no such task. */
static bool gemm_locate(const struct gemm *g, int64_t task_i, struct gemm_task *p)
{
    if (task_i >= g->m_tasks * g->n_tasks)
        return false;
    p->m0 = task_i / g->n_tasks * g->m_block;
    p->n0 = task_i % g->n_tasks * g->n_block;
    p->rows = gemm_min(g->m_block, g->m - p->m0);
    p->cols = gemm_min(g->n_block, g->n - p->n0);
    return true;
}

/* gemm_look_ahead — finds the panel that this thread needs next: of this task, or of its next task.
 * If its columns are contiguous it is packed ahead, else its lines are prefetched. */
static void gemm_look_ahead(struct gemm_task *p, int64_t col)
{
    const struct gemm *g = p->g;
    struct gemm_task next = *p;
    int64_t n = p->n0 + col + GEMM_NR, k = p->k0, cols = p->n0 + p->cols - n;
    if (cols <= 0) {
        n = p->n0, cols = p->cols, k += g->k_block;
        if (k >= g->k_to && gemm_locate(g, p->next, &next))
            n = next.n0, cols = next.cols, k = g->k_from;
    }
    p->ahead = (struct gemm_ahead){0};
    if (k >= g->k_to)
        return;
    int64_t kn = gemm_min(g->k_block, g->k_to - k);
    cols = gemm_min(cols, GEMM_NR);
    p->ahead.at = (const char *)(g->b + (g->b_transposed ? n * g->b_step + k : k * g->b_step + n));
    p->ahead.step = g->b_step * 4;
    p->ahead.rows = g->b_transposed ? cols : kn;
    p->ahead.width = (g->b_transposed ? kn : cols) * 4 + (int64_t)((uintptr_t)p->ahead.at % 64);
    if (!g->b_transposed && cols == GEMM_NR)
        p->ahead.to = p->workspace->panels[!p->panel_i];
    int64_t chunks = gemm_ceil(p->rows, GEMM_MR) * (p->k / GEMM_CHUNK), prefetches = p->ahead.rows;
    if (!p->ahead.to)
        prefetches *= gemm_ceil(p->ahead.width, 64 * GEMM_AHEAD_LINES);
    while (p->ahead.mask < 7 && prefetches * 2 * (p->ahead.mask + 1) <= chunks)
        p->ahead.mask = 2 * p->ahead.mask + 1;
}

/* gemm_total — totals[j] (+)= Σ_k panel[k·width + j], in the order of k. */
static void gemm_total(const float *panel, int64_t k, int width, bool add, float *totals)
{
    for (int j = 0; j < width; j++)
        totals[j] = add ? totals[j] : 0.0f;
    for (int64_t i = 0; i < k; i++, panel += width)
        for (int j = 0; j < width; j++)
            totals[j] += panel[j];
}

/* gemm_panel_ready — packs the panel unless that was done ahead. Returns true if the first tile has
 * to pack it. */
static bool gemm_panel_ready(struct gemm_task *p, const float *b, int cols, int nv, float *panel)
{
    const struct gemm *g = p->g;
    if (p->is_packed)
        return false;
    if (g->b_transposed)
        gemm_pack_transposed(b, g->b_step, cols, p->k, nv, panel);
    else if (cols % VEC_W == 0)
        return true;
    else
        gemm_pack_along(b, g->b_step, cols, p->k, nv, panel);
    return false;
}

/* gemm_partial — stores a tile's sums between two slabs of k in the memory of C, or loads them. */
static void gemm_partial(const struct gemm *g, float *tile, int64_t row, int64_t col, int rows,
                         int cols, bool back)
{
    for (int i = 0; i < rows; i++) {
        float *at = g->partial + (row + i) * g->partial_step + col, *sums = tile + i * GEMM_NR;
        memcpy(back ? sums : at, back ? at : sums, (size_t)cols * sizeof(float));
    }
}

/* gemm_tile_begin — prepares a tile before it is computed: loads its sums so far. */
static void gemm_tile_begin(const struct gemm_task *p, struct gemm_tile *t, int64_t row,
                            int64_t col, int cols)
{
    const struct gemm *g = p->g;
    if (p->k0 == g->k_from && p->k0 > 0)
        gemm_partial(g, t->out, p->m0 + row, p->n0 + col, t->rows, cols, true);
    for (int i = 0; i < GEMM_STREAMS; i++) {
        t->lines[i] = g->lines[i];
        if (t->lines[i].at && p->k0 + p->k >= g->k)
            t->lines[i].at += (p->m0 + row) * t->lines[i].step + (p->n0 + col) * 4;
        else
            t->lines[i].at = NULL;
    }
}

/* gemm_tile_end — finishes C after a tile is computed, or stores its sums for the next slab. */
static void gemm_tile_end(const struct gemm_task *p, const struct gemm_tile *t, int64_t row,
                          int64_t col, int cols)
{
    const struct gemm *g = p->g;
    if (p->k0 + p->k >= g->k)
        g->finish(g, t->out, p->m0 + row, p->n0 + col, t->rows, cols);
    else if (p->k0 + p->k >= g->k_to)
        gemm_partial(g, t->out, p->m0 + row, p->n0 + col, t->rows, cols, false);
}

/* gemm_panel — multiplies one panel of B by all rows of the task. */
static void gemm_panel(struct gemm_task *p, int64_t col)
{
    const struct gemm *g = p->g;
    int cols = (int)gemm_min(GEMM_NR, p->cols - col), nv = (int)gemm_ceil(cols, VEC_W);
    const float *b = g->b + (g->b_transposed ? (p->n0 + col) * g->b_step + p->k0
                                             : p->k0 * g->b_step + p->n0 + col);
    float *panel = p->workspace->panels[p->panel_i];
    bool whole = p->k0 == g->k_from && p->k0 + p->k >= g->k_to,
         pack = gemm_panel_ready(p, b, cols, nv, panel);
    float *sums = p->workspace->sums + (whole ? 0 : col * (GEMM_M_MAX + GEMM_MR));
    struct gemm_tile t = {.a_step = g->a_step,
                          .b = pack ? b : panel,
                          .b_step = g->b_step,
                          .panel = panel,
                          .k = p->k,
                          .add = p->k0 > 0,
                          .ahead = &p->ahead};
    for (int64_t row = 0; row < p->rows; row += GEMM_MR) {
        t.rows = (int)gemm_min(GEMM_MR, p->rows - row);
        t.a = g->a_packed ? p->a + row * p->k : g->a + (p->m0 + row) * g->a_step + p->k0;
        t.out = sums + (whole ? 0 : row * GEMM_NR);
        gemm_tile_begin(p, &t, row, col, cols);
        gemm_tile_pick(t.rows, nv, g->a_packed, pack)(&t);
        gemm_tile_end(p, &t, row, col, cols);
        t.b = panel;
        pack = false;
    }
    if (g->b_sums && p->m0 == 0)
        gemm_total(panel, p->k, nv * VEC_W, p->k0 > 0, p->workspace->totals + col);
    p->is_packed = p->ahead.to != NULL;
    while (p->is_packed && p->ahead.rows > 0)
        gemm_fetch_row(&p->ahead);
    p->panel_i = !p->panel_i;
}

/* gemm_totals_end — stores sums of B's columns or A's rows. The task that begins with row 0 or
 * column 0 does it. */
static void gemm_totals_end(const struct gemm_task *p, float *to, int64_t from, int64_t n,
                            const float *totals)
{
    for (int64_t i = 0; i < n; i++)
        to[from + i] = (p->g->accumulates_sums ? to[from + i] : 0.0f) + totals[i];
}

/* gemm_shared_at — returns the packed A of a row (a multiple of GEMM_MR) in the block of k at
 * k0. */
static float *gemm_shared_at(const struct gemm *g, int64_t k0, int64_t row)
{
    int64_t rows = gemm_ceil(g->m, GEMM_MR) * GEMM_MR;
    return (float *)g->a_shared + (k0 - g->k_from) * rows +
           row * gemm_min(g->k_block, g->k_to - k0);
}

/* gemm_share — packs GEMM_SHARE rows of A for all threads; runs before the tasks. */
#define GEMM_SHARE (GEMM_MR * 4)
static void gemm_share(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    const struct gemm *g = arg;
    int64_t row = (int64_t)task_i * GEMM_SHARE, rows = gemm_min(GEMM_SHARE, g->m - row);
    for (int64_t k0 = g->k_from; k0 < g->k_to; k0 += g->k_block) {
        int64_t k = gemm_min(g->k_block, g->k_to - k0);
        if (g->a_transposed)
            gemm_pack_a(g->a + k0 * g->a_step + row, g->a_step, rows, k,
                        gemm_shared_at(g, k0, row));
        else
            gemm_pack_rows(g->a + row * g->a_step + k0, g->a_step, rows, k,
                           gemm_shared_at(g, k0, row));
    }
}

/* gemm_task_run — computes one task, over the blocks of k of this slab. */
static void gemm_task_run(struct gemm_task *at)
{
    struct gemm_task p = *at;
    const struct gemm *g = p.g;
    float *a_totals = p.workspace->totals + GEMM_NR * GEMM_PANELS_MAX;
    for (p.k0 = g->k_from; p.k0 < g->k_to; p.k0 += g->k_block) {
        p.k = gemm_min(g->k_block, g->k_to - p.k0);
        if (g->a_shared)
            p.a = gemm_shared_at(g, p.k0, p.m0);
        else if (g->a_transposed)
            p.a =
                gemm_pack_a(g->a + p.k0 * g->a_step + p.m0, g->a_step, p.rows, p.k, p.workspace->a);
        for (int64_t row = 0; g->a_sums && p.n0 == 0 && row < p.rows; row += GEMM_MR)
            gemm_total(p.a + row * p.k, p.k, GEMM_MR, p.k0 > 0, a_totals + row);
        for (int64_t col = 0; col < p.cols; col += GEMM_NR) {
            gemm_look_ahead(&p, col);
            gemm_panel(&p, col);
        }
    }
    if (g->b_sums && p.m0 == 0)
        gemm_totals_end(&p, g->b_sums, p.n0, p.cols, p.workspace->totals);
    if (g->a_sums && p.n0 == 0)
        gemm_totals_end(&p, g->a_sums, p.m0, p.rows, a_totals);
    *at = p;
}

/* gemm_thread — claims tasks until none is left, and always the next one before it begins this one,
 * so that the next task's first panel can be packed ahead. A task has the same sums on any
 * thread. */
static void gemm_thread(void *arg, int task_i, int thread_i)
{
    (void)task_i;
    struct gemm *g = arg;
    struct gemm_task p = {.g = g,
                          .workspace = (struct gemm_workspace *)(void *)g->cpu->scratch[thread_i]};
    int64_t now = atomic_fetch_add_explicit(&g->claimed, 1, memory_order_relaxed);
    while (gemm_locate(g, now, &p)) {
        p.next = atomic_fetch_add_explicit(&g->claimed, 1, memory_order_relaxed);
        gemm_task_run(&p);
        now = p.next;
    }
    vec_fence(); /* `finish` may have written past the caches */
}

static void gemm_run(const struct cpu *cpu, struct gemm *g)
{
    g->cpu = cpu;
    gemm_cut(g);
    for (int64_t slab = g->k_to; g->k_from < g->k;
         g->k_from = g->k_to, g->k_to = gemm_min(g->k, g->k_to + slab)) {
        if (g->a_shared)
            thread_pool_run(cpu->pool, (int)gemm_ceil(g->m, GEMM_SHARE), gemm_share, g);
        atomic_store_explicit(&g->claimed, 0, memory_order_relaxed);
        thread_pool_run(cpu->pool,
                        (int)gemm_min(thread_pool_threads(cpu->pool), g->m_tasks * g->n_tasks),
                        gemm_thread, g);
    }
}

#endif

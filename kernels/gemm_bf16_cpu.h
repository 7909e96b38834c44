/* gemm_bf16_cpu — C(m,n) = Σ_k A(m,k)·B(k,n) of packed bf16 on all threads: in AMX tiles, or,
 * without CPU_AMX, by the dot products of AVX512_BF16.
 *
 * Included by matmul_cpu.c in place of gemm_cpu.h at the level `amx` and for products of bf16. It
 * knows matrices, caches and threads; it must not know the use of C. A is packed for all threads
 * first, in slabs that fit the shared memory. A task is a block of rows by a few panels of
 * columns of C. The packed A of these rows stays in L2 for a block of k. The tile unit leaves the
 * core's other units idle. So during each of its steps the vector units pack rows of the next
 * panel of B, and finish some rows of the previous tile. */
#ifndef CONVOY_KERNELS_GEMM_BF16_CPU_H
#define CONVOY_KERNELS_GEMM_BF16_CPU_H

#ifdef CPU_AMX
#include "kernels/gemm_amx_tile_cpu.h"
#else
#include "kernels/gemm_dot_tile_cpu.h"
#endif
#include "kernels/gemm_bf16_pack_cpu.h"

#define GEMM_K_MAX 768
#ifdef CPU_BF16
#define GEMM_A_BLOCK (512 * 768) /* elements of 2 bytes: 40 % of an L2 of 2 MiB */
#else
#define GEMM_A_BLOCK (256 * 768) /* elements of 6 bytes: 60 % of an L2 of 2 MiB */
#endif
#define GEMM_M_MAX 1024
#define GEMM_PANELS_MAX 8
#define GEMM_ELEM_BYTES (2 * GEMM_TERMS) /* bytes of a packed element */
#define GEMM_LAG 8                       /* packing begins after this fraction of a panel's steps */

/* gemm_fits — returns true if the whole k of GEMM_NR rows can be packed in the shared memory. Other
 * products are left to the level below. */
static inline bool gemm_fits(int64_t k)
{
    return k <= (int64_t)CPU_SHARED_BYTES / (GEMM_ELEM_BYTES * GEMM_NR) - GEMM_STEP;
}

/* One thread's scratch memory. */
struct gemm_workspace {
    /* the current panel, and the next one, which is packed during it */
    _Alignas(64) char panels[2][GEMM_K_MAX / GEMM_STEP * GEMM_BLOCK];
    /* the tile that is computed, and the tile that is finished */
    _Alignas(64) float tiles[2][GEMM_NR * GEMM_NR];
    /* sums of C between blocks of k */
    float sums[GEMM_M_MAX * GEMM_NR * GEMM_PANELS_MAX];
};
_Static_assert(sizeof(struct gemm_workspace) <= CPU_SCRATCH_BYTES,
               "a thread's scratch memory is large enough for a product");

/* A panel of B to pack: columns n … n+cols-1, k … k+k_n-1, unit by unit, one unit every `every`
 * steps of the tile. */
struct gemm_ahead {
    int64_t n, cols, k, k_n;
    char *to;
    int units, unit_i, every;
    bool prefetches; /* prefetches its own lines */
};

/* The epilogue of a tile, row by row: its sums are added to the sums of earlier blocks of k; then
 * they are stored for later blocks, or passed to `finish`. */
struct gemm_epilogue {
    float *tile, *before, *after; /* before NULL: no earlier block; after NULL: C is complete */
    int64_t before_step, after_step, row, col;
    int rows, cols, row_i, each; /* each: rows with each step */
};

/* The current task: rows m0 … m0+rows-1, columns n0 … n0+cols-1, k0 … k0+k-1. */
struct gemm_task {
    const struct gemm *g;
    struct gemm_workspace *workspace;
    int64_t m0, rows, n0, cols, k0, k;
    struct gemm_ahead ahead;
    struct gemm_fetch fetch;
    struct gemm_epilogue epilogue;
    struct gemm_lines prefetch[GEMM_STREAMS];
    int prefetch_n;      /* rows to prefetch during this tile */
    int step_i;          /* counts steps, for ahead.every */
    int panel_i, tile_i; /* the current panel and tile of the workspace's two */
    bool is_packed;      /* the panel was packed during the previous one */
    int64_t next;        /* the task this thread does after this one */
};

/* gemm_cut — cuts the product. k is cut by the shape only: few and long blocks keep sums in the
 * tiles. A task of several panels reads A's blocks less often, but two tasks for each thread let
 * the threads end together. The choice of columns for a task changes no sum. */
static void gemm_cut(struct gemm *g)
{
    int64_t packed = (int64_t)CPU_SHARED_BYTES / GEMM_ELEM_BYTES;
    g->k_block = gemm_even(g->k, GEMM_K_MAX, GEMM_STEP);
    g->m_block = gemm_even(g->m, gemm_min(GEMM_A_BLOCK / g->k_block, GEMM_M_MAX), GEMM_NR);
    int64_t k_all = gemm_ceil(g->k, GEMM_STEP) * GEMM_STEP,
            rows = packed / k_all / GEMM_NR * GEMM_NR;
    g->k_to = g->k;
    if (rows < g->m_block && g->partial) {
        rows = g->m_block * gemm_ceil(GEMM_M_MAX, g->m_block);
        rows = gemm_min(rows, gemm_ceil(g->m, g->m_block) * g->m_block);
        g->k_to = packed / rows / g->k_block * g->k_block;
    }
    g->m_block = gemm_min(g->m_block, rows);
    g->m_to = gemm_min(g->m, rows / g->m_block * g->m_block);
    g->m_tasks = gemm_ceil(g->m_to, g->m_block);
    int64_t panels = gemm_ceil(g->n, GEMM_NR), wide = 1;
    if (g->k > g->k_block)
        wide = gemm_min(GEMM_PANELS_MAX,
                        panels * g->m_tasks / (2 * thread_pool_threads(g->cpu->pool)));
    g->n_block = gemm_even(g->n, (wide < 1 ? 1 : wide) * GEMM_NR, GEMM_NR);
    g->n_tasks = gemm_ceil(g->n, g->n_block);
    g->a_shared = (void *)g->cpu->shared;
}

/* gemm_locate — computes the rows and columns of a task. Columns run fastest, so that A's block
 * stays in cache. Returns false if there is no such task. */
static bool gemm_locate(const struct gemm *g, int64_t task_i, struct gemm_task *p)
{
    int64_t m_tasks = gemm_ceil(g->m_to - g->m_from, g->m_block);
    if (task_i >= m_tasks * g->n_tasks)
        return false;
    p->m0 = g->m_from + task_i / g->n_tasks * g->m_block;
    p->n0 = task_i % g->n_tasks * g->n_block;
    p->rows = gemm_min(g->m_block, g->m_to - p->m0);
    p->cols = gemm_min(g->n_block, g->n - p->n0);
    return true;
}

/* ---- packing ---- */

/* gemm_shared_at — returns the packed A of 32 rows in the block of k at k0. */
static char *gemm_shared_at(const struct gemm *g, int64_t k0, int64_t row)
{
    int64_t rows = gemm_ceil(g->m_to - g->m_from, GEMM_NR) * GEMM_NR;
    int64_t blocks = gemm_ceil(gemm_min(g->k_block, g->k_to - k0), GEMM_STEP);
    return (char *)g->a_shared + (k0 - g->k_from) * rows * GEMM_ELEM_BYTES +
           (row - g->m_from) / GEMM_NR * blocks * GEMM_BLOCK;
}

/* gemm_share — packs 32 rows of A for all threads; runs before the tasks. */
static void gemm_share(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    const struct gemm *g = arg;
    struct gemm_source from = {g->a, g->a_step, g->a_transposed, g->a_transposed, true};
    int64_t row = g->m_from + (int64_t)task_i * GEMM_NR;
    for (int64_t k0 = g->k_from; k0 < g->k_to; k0 += g->k_block) {
        int64_t k_end = gemm_min(k0 + g->k_block, g->k_to);
        char *to = gemm_shared_at(g, k0, row);
        for (int64_t k = k0; k < k_end; k += GEMM_STEP, to += GEMM_BLOCK)
            for (int t = 0; t < 2; t++)
                gemm_pack_unit(&from, row, g->m_to - row, k, k_end - k, t, to);
    }
}

/* gemm_ahead_unit — packs one unit of the next panel. */
static inline void gemm_ahead_unit(const struct gemm *g, struct gemm_ahead *h)
{
    struct gemm_source from = {g->b, g->b_step, !g->b_transposed, g->b_transposed, h->prefetches};
    int64_t k = h->unit_i / 2 * GEMM_STEP;
    gemm_pack_unit(&from, h->n, h->cols, h->k + k, h->k_n - k, h->unit_i & 1,
                   h->to + h->unit_i / 2 * GEMM_BLOCK);
    h->unit_i++;
}

/* gemm_ahead_begin — spreads the next panel over the steps of this one. Its lines are prefetched
 * from the first step on; packing follows GEMM_LAG of the steps later. */
static void gemm_ahead_begin(struct gemm_task *p, int64_t n, int64_t cols, int64_t k, int64_t k_n)
{
    const struct gemm *g = p->g;
    int64_t blocks = gemm_ceil(k_n, GEMM_STEP),
            steps = gemm_ceil(p->rows, GEMM_NR) * gemm_ceil(p->k, GEMM_STEP),
            lag = steps / GEMM_LAG;
    p->ahead = (struct gemm_ahead){
        n, cols, k, k_n, p->workspace->panels[!p->panel_i], (int)blocks * 2, 0, 1, false};
    while ((p->ahead.every + 1) * blocks * 2 <= steps - lag)
        p->ahead.every++;
    p->step_i = -(int)lag;
    int64_t at = g->b_transposed ? n * g->b_step + k : k * g->b_step + n;
    p->fetch = (struct gemm_fetch){.at = (uintptr_t)(g->b + at),
                                   .step = g->b_step * 4,
                                   .block_step = g->b_transposed ? 128 : 128 * g->b_step,
                                   .left = blocks * 32,
                                   .each = (int)gemm_ceil(blocks * 32, steps - lag)};
}

/* gemm_look_ahead — finds the panel that this thread needs next: of this task, or of its next
 * task. */
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
    p->fetch = (struct gemm_fetch){0};
    if (k < g->k_to)
        gemm_ahead_begin(p, n, gemm_min(cols, GEMM_NR), k, gemm_min(g->k_block, g->k_to - k));
}

/* ---- a tile ---- */

/* gemm_epilogue_row — finishes one row: adds the sums of earlier blocks of k, and stores the sums
 * that later blocks need. */
static inline void gemm_epilogue_row(const struct gemm_epilogue *t, int i)
{
    float *sums = t->tile + i * GEMM_NR;
    for (int j = 0; j < t->cols; j += VEC_W) {
        vec u = vec_load(sums + j);
        if (t->before)
            u += gemm_load_edge(t->before + i * t->before_step + j, true, t->cols - j);
        if (t->after)
            gemm_store_edge(t->after + i * t->after_step + j, t->cols - j, u);
        else
            vec_store(sums + j, u);
    }
}

/* gemm_epilogue_rows — finishes the next n rows of the previous tile. */
static void gemm_epilogue_rows(const struct gemm *g, struct gemm_epilogue *t, int n)
{
    n = n < t->rows - t->row_i ? n : t->rows - t->row_i;
    for (int i = 0; (t->before || t->after) && i < n; i++)
        gemm_epilogue_row(t, t->row_i + i);
    if (!t->after && n > 0)
        g->finish(g, t->tile + t->row_i * GEMM_NR, t->row + t->row_i, t->col, n, t->cols);
    t->row_i += n;
}

/* gemm_epilogue_begin — prepares the epilogue of the tile just computed, which runs during the next
 * tile. Its sums lie in the workspace between blocks of k, and in `partial` between slabs. */
static void gemm_epilogue_begin(struct gemm_task *p, int64_t row, int64_t col, int64_t steps)
{
    const struct gemm *g = p->g;
    struct gemm_epilogue *t = &p->epilogue;
    float *sums = p->workspace->sums + col * GEMM_M_MAX + row * GEMM_NR,
          *partial = g->partial ? g->partial + (p->m0 + row) * g->partial_step + p->n0 + col : NULL;
    *t = (struct gemm_epilogue){.tile = p->workspace->tiles[p->tile_i],
                                .row = p->m0 + row,
                                .col = p->n0 + col,
                                .rows = (int)gemm_min(GEMM_NR, p->rows - row),
                                .cols = (int)gemm_min(GEMM_NR, p->cols - col),
                                .each = (int)gemm_ceil(GEMM_NR, steps)};
    if (p->k0 > g->k_from)
        t->before = sums, t->before_step = GEMM_NR;
    else if (p->k0 > 0)
        t->before = partial, t->before_step = g->partial_step;
    if (p->k0 + p->k < g->k_to)
        t->after = sums, t->after_step = GEMM_NR;
    else if (p->k0 + p->k < g->k)
        t->after = partial, t->after_step = g->partial_step;
    p->tile_i = !p->tile_i;
}

/* gemm_prefetch — prefetches one row, of each stream, of the lines that the epilogue of this tile
 * writes. They arrive before its rows are finished during the next tile: a store that waits for its
 * line would delay the later stores of packing. */
static inline void gemm_prefetch(struct gemm_task *p)
{
    for (int i = 0; i < GEMM_STREAMS; i++) {
        struct gemm_lines *lines = &p->prefetch[i];
        if (!lines->at)
            continue;
        __builtin_prefetch(lines->at, 1, 3);
        __builtin_prefetch(lines->at + 64, 1, 3);
        lines->at = (const char *)((uintptr_t)lines->at + (uintptr_t)lines->step);
    }
    p->prefetch_n--;
}

static void gemm_prefetch_begin(struct gemm_task *p, int64_t row, int64_t col)
{
    const struct gemm *g = p->g;
    p->prefetch_n = p->k0 + p->k >= g->k ? (int)gemm_min(GEMM_NR, p->rows - row) : 0;
    for (int i = 0; p->prefetch_n > 0 && i < GEMM_STREAMS; i++) {
        p->prefetch[i] = g->lines[i];
        if (p->prefetch[i].at)
            p->prefetch[i].at += (p->m0 + row) * p->prefetch[i].step + (p->n0 + col) * 4;
    }
}

/* gemm_beside — does the share of the other work that belongs to one of a tile's steps. */
static inline __attribute__((always_inline)) void gemm_beside(struct gemm_task *p, int64_t steps)
{
    for (int64_t n = 0; p->prefetch_n > 0 && n * steps < GEMM_NR; n++)
        gemm_prefetch(p);
    if (p->epilogue.row_i < p->epilogue.rows)
        gemm_epilogue_rows(p->g, &p->epilogue, p->epilogue.each);
    if (p->ahead.unit_i < p->ahead.units && ++p->step_i >= p->ahead.every) {
        gemm_ahead_unit(p->g, &p->ahead);
        p->step_i = 0;
    }
}

/* gemm_tile — multiplies 32 rows of packed A by the current panel, with some of the other work in
 * each step. */
#ifdef CPU_AMX
static void gemm_tile(struct gemm_task *p, const char *a, const char *b, int64_t steps)
{
    /* packed data is in memory: the compiler does not see that tiles load it */
    __asm__ volatile("" ::: "memory");
    gemm_zero();
    gemm_block_first(a, b);
    for (int64_t i = 0; i < steps; i++, a += GEMM_BLOCK, b += GEMM_BLOCK) {
        int64_t on = i + 1 < steps ? GEMM_BLOCK : 0;
        gemm_block(a, b, a + on, b + on, &p->fetch);
        gemm_beside(p, steps);
    }
    gemm_epilogue_rows(p->g, &p->epilogue, GEMM_NR);
    gemm_store(p->workspace->tiles[p->tile_i]);
}
#else
static void gemm_tile(struct gemm_task *p, const char *a, const char *b, int64_t steps)
{
    int64_t done = 0;
    for (int r = 0; r < GEMM_NR; r += GEMM_DOT_ROWS) {
        gemm_dot_rows(a + r / 16 * GEMM_TILE + r % 16 * 64, b, steps,
                      p->workspace->tiles[p->tile_i] + r * GEMM_NR);
        for (; done * GEMM_NR < steps * (r + GEMM_DOT_ROWS); done++) {
            for (int slot = 0; slot < GEMM_SLOTS; slot++)
                gemm_fetch(&p->fetch, slot);
            gemm_beside(p, steps);
        }
    }
    gemm_epilogue_rows(p->g, &p->epilogue, GEMM_NR);
}
#endif

/* gemm_total — to[j] = Σ_k from[k·step + j], added to to[j] when `add`; in four sums: sum i adds
 * each k = i modulo 4. */
static void gemm_total(const float *from, int64_t step, int64_t k, int64_t width, bool add,
                       float *to)
{
    for (int64_t j = 0; j < width; j += VEC_W) {
        int lanes = (int)gemm_min(width - j, VEC_W);
        vec sum[4] = {{0}};
        for (int64_t i = 0; i < k; i++)
            sum[i % 4] += gemm_load_edge(from + i * step + j, true, lanes);
        vec all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        if (add)
            all += gemm_load_edge(to + j, true, lanes);
        gemm_store_edge(to + j, lanes, all);
    }
}

/* gemm_panel — multiplies one panel of B by all rows of the task. */
static void gemm_panel(struct gemm_task *p, int64_t col)
{
    const struct gemm *g = p->g;
    int64_t steps = gemm_ceil(p->k, GEMM_STEP), cols = gemm_min(GEMM_NR, p->cols - col);
    char *panel = p->workspace->panels[p->panel_i];
    if (!p->is_packed) {
        struct gemm_ahead now = {p->n0 + col, cols, p->k0, p->k, panel, (int)steps * 2, 0, 1, true};
        while (now.unit_i < now.units)
            gemm_ahead_unit(g, &now);
    }
    if (g->b_sums && p->m0 == 0)
        gemm_total(g->b + p->k0 * g->b_step + p->n0 + col, g->b_step, p->k, cols,
                   g->accumulates_sums || p->k0 > 0, g->b_sums + p->n0 + col);
    gemm_look_ahead(p, col);
    for (int64_t row = 0; row < p->rows; row += GEMM_NR) {
        gemm_prefetch_begin(p, row, col);
        gemm_tile(p, gemm_shared_at(g, p->k0, p->m0 + row), panel, steps);
        gemm_epilogue_begin(p, row, col, steps);
    }
    while (p->ahead.unit_i < p->ahead.units)
        gemm_ahead_unit(g, &p->ahead);
    p->is_packed = p->ahead.units > 0;
    p->panel_i = !p->panel_i;
}

/* ---- tasks ---- */

static void gemm_task_run(struct gemm_task *p)
{
    const struct gemm *g = p->g;
    for (p->k0 = g->k_from; p->k0 < g->k_to; p->k0 += g->k_block) {
        p->k = gemm_min(g->k_block, g->k_to - p->k0);
        if (g->a_sums && p->n0 == 0)
            gemm_total(g->a + p->k0 * g->a_step + p->m0, g->a_step, p->k, p->rows,
                       g->accumulates_sums || p->k0 > 0, g->a_sums + p->m0);
        for (int64_t col = 0; col < p->cols; col += GEMM_NR)
            gemm_panel(p, col);
    }
}

/* gemm_thread — claims tasks until none is left, and always the next one before it begins this one,
 * so that the next task's first panel can be packed during it. A task has the same sums on any
 * thread. Tiles are released at the end: a thread that keeps them makes every context switch save
 * them. */
static void gemm_thread(void *arg, int task_i, int thread_i)
{
    (void)task_i;
    struct gemm *g = arg;
    struct gemm_task p = {.g = g,
                          .workspace = (struct gemm_workspace *)(void *)g->cpu->scratch[thread_i]};
    int64_t now = atomic_fetch_add_explicit(&g->claimed, 1, memory_order_relaxed);
#ifdef CPU_AMX
    _tile_loadconfig(&gemm_tiles);
#endif
    while (gemm_locate(g, now, &p)) {
        p.next = atomic_fetch_add_explicit(&g->claimed, 1, memory_order_relaxed);
        gemm_task_run(&p);
        now = p.next;
    }
    gemm_epilogue_rows(g, &p.epilogue, GEMM_NR);
#ifdef CPU_AMX
    _tile_release();
#endif
    vec_fence(); /* `finish` may have written past the caches */
}

static void gemm_slab(struct gemm *g)
{
    int64_t m_tasks = gemm_ceil(g->m_to - g->m_from, g->m_block),
            threads = thread_pool_threads(g->cpu->pool);
    thread_pool_run(g->cpu->pool, (int)gemm_ceil(g->m_to - g->m_from, GEMM_NR), gemm_share, g);
    atomic_store_explicit(&g->claimed, 0, memory_order_relaxed);
    thread_pool_run(g->cpu->pool, (int)gemm_min(threads, m_tasks * g->n_tasks), gemm_thread, g);
}

static void gemm_run(const struct cpu *cpu, struct gemm *g)
{
    g->cpu = cpu;
    gemm_cut(g);
    int64_t rows = g->m_to, depth = g->k_to;
    for (; g->m_from < g->m; g->m_from = g->m_to, g->m_to = gemm_min(g->m, g->m_to + rows))
        for (g->k_from = 0; g->k_from < g->k; g->k_from += depth) {
            g->k_to = gemm_min(g->k, g->k_from + depth);
            gemm_slab(g);
        }
}

#endif

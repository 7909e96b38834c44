/* gemm_cpu — C(m,n) = Σ_k A(m,k)·B(k,n) on all threads, cut into parts that fit the caches.
 *
 * Included by matmul_cpu.c only. It knows matrices, caches and threads, not what C is for: each finished tile of C is
 * handed to `finish`, once. After the scheme of Goto and van de Geijn (2008): a part of C is a block of rows by a few
 * slivers of columns; per block of k its rows of A stay in L2 while one sliver of B after the other passes over them.
 * What differs: every part packs its own B while it computes its first tile, and fetches the sliver after that from
 * memory while it computes the others, so that a weight read once from memory costs no time of its own. */
#ifndef CONVOY_KERNELS_GEMM_CPU_H
#define CONVOY_KERNELS_GEMM_CPU_H

#include <limits.h>

#include "kernels/cpu.h"
#include "kernels/gemm_pack_cpu.h"
#include "kernels/gemm_tile_cpu.h"

/* k in one pass, and rows in one part: A's block (rows × k) takes up to 40 % of the L2 that the level's machines have. */
#if CPU_LEVEL == 4
#define GEMM_K_MAX 768
#define GEMM_K_MAX_ACROSS 512
#define GEMM_A_BLOCK (256 * 768)
#else
#define GEMM_K_MAX 384
#define GEMM_K_MAX_ACROSS 512
#define GEMM_A_BLOCK (96 * 384)
#endif
#define GEMM_M_MAX 1024
#define GEMM_SLIVERS_MAX 16

struct gemm;
typedef void gemm_finish_fn(const struct gemm *g, const float *tile, int64_t row, int64_t col, int rows, int cols);

struct gemm {
    /* A(m,k) = a[m·a_step + k], or a[k·a_step + m] when a_across;  B(k,n) = b[k·b_step + n], or b[n·b_step + k]. */
    const float *a, *b;
    int64_t a_step, b_step;
    bool a_across, b_across;
    int64_t m, n, k;
    gemm_finish_fn *finish; /* tile: rows of GEMM_NR */
    const void *op;         /* the operation's arguments, for finish */
    float *b_sums, *a_sums; /* Σ_k B(k,n), Σ_k A(m,k), or NULL; a_sums needs a_across */
    bool sums_add;
    const struct cpu *cpu;
    /* the cut, see gemm_cut */
    int64_t k_block, m_block, n_block, m_parts, n_parts;
    float *a_shared; /* all of A in packed slivers, k by k block; NULL: each part packs its own */
};

/* One thread's scratch memory. */
struct gemm_room {
    float slivers[2][(GEMM_K_MAX > GEMM_K_MAX_ACROSS ? GEMM_K_MAX : GEMM_K_MAX_ACROSS) * GEMM_NR]; /* at work, and packed ahead */
    float a[GEMM_A_BLOCK + GEMM_MR * GEMM_K_MAX_ACROSS];
    float sums[(GEMM_M_MAX + GEMM_MR) * GEMM_NR * GEMM_SLIVERS_MAX]; /* tiles of C between blocks of k */
    float totals[(GEMM_M_MAX + GEMM_MR) + GEMM_NR * GEMM_SLIVERS_MAX];
};
_Static_assert(sizeof(struct gemm_room) <= CPU_SCRATCH_BYTES, "a thread's scratch memory holds what a product needs");

/* A part at work: rows m0 … m0+rows-1, columns n0 … n0+cols-1, k0 … k0+k-1. */
struct gemm_part {
    const struct gemm *g;
    struct gemm_room *room;
    int64_t m0, rows, n0, cols, k0, k;
    const float *a; /* its rows of A, packed */
    struct gemm_ahead ahead;
    int turn; /* which of the room's slivers is at work */
    bool is_packed;
};

static inline int64_t gemm_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t gemm_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* gemm_even — the size of equal pieces of `whole`, multiples of `unit`, none over `most` (itself ≥ unit). */
static int64_t gemm_even(int64_t whole, int64_t most, int64_t unit)
{
    int64_t pieces = gemm_ceil(whole, most / unit * unit);
    return gemm_ceil(gemm_ceil(whole, pieces), unit) * unit;
}

/* gemm_cut — by shape alone. Wide parts read A less often; but each thread should get several, to end together. */
static void gemm_cut(struct gemm *g)
{
    g->k_block = gemm_even(g->k, g->a_across ? GEMM_K_MAX_ACROSS : GEMM_K_MAX, GEMM_CHUNK);
    g->m_block = gemm_even(g->m, gemm_min(GEMM_A_BLOCK / g->k_block, GEMM_M_MAX), GEMM_MR);
    g->m_parts = gemm_ceil(g->m, g->m_block);
    size_t a_bytes = (size_t)(gemm_ceil(g->m, GEMM_MR) * GEMM_MR * g->k) * sizeof(float);
    g->a_shared = g->a_across && a_bytes <= CPU_SHARED_BYTES ? (float *)(void *)g->cpu->shared : NULL;
    bool a_streams = g->k > g->k_block;
    int64_t wide = gemm_ceil(g->n, GEMM_NR) * g->m_parts / (a_streams ? 8 : 24);
    wide = wide < 1 ? 1 : gemm_min(wide, g->a_across && !g->a_shared ? GEMM_SLIVERS_MAX : 4);
    g->n_block = gemm_even(g->n, wide * GEMM_NR, GEMM_NR);
    g->n_parts = gemm_ceil(g->n, g->n_block);
}

/* gemm_place — part number → its rows and columns; columns run fastest, so that A's block stays. False: no such part. */
static bool gemm_place(const struct gemm *g, int64_t part_i, struct gemm_part *p)
{
    if (part_i >= g->m_parts * g->n_parts)
        return false;
    p->m0 = part_i / g->n_parts * g->m_block;
    p->n0 = part_i % g->n_parts * g->n_block;
    p->rows = gemm_min(g->m_block, g->m - p->m0);
    p->cols = gemm_min(g->n_block, g->n - p->n0);
    return true;
}

/* gemm_look_ahead — names the sliver that this thread needs next: of this part (packed ahead, if it can be), or the
 * first of the part that it will most likely be dealt (fetched only). */
static void gemm_look_ahead(struct gemm_part *p, int64_t col, int part_i)
{
    const struct gemm *g = p->g;
    int64_t n = p->n0 + col + GEMM_NR, k = p->k0, cols = p->n0 + p->cols - n;
    bool here = true;
    if (cols <= 0) {
        n = p->n0, cols = p->cols, k += g->k_block;
        struct gemm_part next;
        if (k >= g->k && gemm_place(g, part_i + task_threads(g->cpu->pool), &next))
            n = next.n0, cols = next.cols, k = 0, here = false;
    }
    p->ahead = (struct gemm_ahead){0};
    if (k >= g->k)
        return;
    int64_t kn = gemm_min(g->k_block, g->k - k), piece = 64;
    cols = gemm_min(cols, GEMM_NR);
    p->ahead.at = (const char *)(g->b + (g->b_across ? n * g->b_step + k : k * g->b_step + n));
    p->ahead.step = g->b_step * 4;
    p->ahead.rows = g->b_across ? cols : kn;
    p->ahead.width = (g->b_across ? kn : cols) * 4;
    if (here && !g->b_across && cols % VEC_W == 0)
        p->ahead.to = p->room->slivers[!p->turn], piece = VEC_W * 4;
    else
        p->ahead.width += (int64_t)((uintptr_t)p->ahead.at % 64);
    int64_t pieces = p->ahead.rows * gemm_ceil(p->ahead.width, piece);
    p->ahead.pieces = (int)gemm_min(gemm_ceil(pieces, gemm_ceil(p->rows, GEMM_MR) * gemm_ceil(p->k, GEMM_CHUNK)), 16);
}

/* gemm_total — totals[j] (+)= Σ_k sliver[k·width + j], in the order of k. */
static void gemm_total(const float *sliver, int64_t k, int width, bool add, float *totals)
{
    for (int j = 0; j < width; j++)
        totals[j] = add ? totals[j] : 0.0f;
    for (int64_t i = 0; i < k; i++, sliver += width)
        for (int j = 0; j < width; j++)
            totals[j] += sliver[j];
}

/* gemm_sliver_ready — packs the sliver unless that was done ahead; true: the first tile is to do it. */
static bool gemm_sliver_ready(struct gemm_part *p, const float *b, int cols, int nv, float *sliver)
{
    const struct gemm *g = p->g;
    if (p->is_packed)
        return false;
    if (g->b_across)
        gemm_pack_across(b, g->b_step, cols, p->k, nv, sliver);
    else if (cols % VEC_W == 0)
        return true;
    else
        gemm_pack_along(b, g->b_step, cols, p->k, nv, sliver);
    return false;
}

/* gemm_sliver — one sliver of B over all rows of the part. */
static void gemm_sliver(struct gemm_part *p, int64_t col, bool last)
{
    const struct gemm *g = p->g;
    int cols = (int)gemm_min(GEMM_NR, p->cols - col), nv = (int)gemm_ceil(cols, VEC_W);
    const float *b = g->b + (g->b_across ? (p->n0 + col) * g->b_step + p->k0 : p->k0 * g->b_step + p->n0 + col);
    float *sliver = p->room->slivers[p->turn];
    bool whole = p->k0 == 0 && last, pack = gemm_sliver_ready(p, b, cols, nv, sliver);
    float *sums = p->room->sums + (whole ? 0 : col * (GEMM_M_MAX + GEMM_MR));
    struct gemm_tile t = {.a_step = g->a_step, .b = pack ? b : sliver, .b_step = g->b_step, .sliver = sliver, .k = p->k,
                          .add = p->k0 > 0, .ahead = &p->ahead};
    for (int64_t row = 0; row < p->rows; row += GEMM_MR) {
        t.rows = (int)gemm_min(GEMM_MR, p->rows - row);
        t.a = g->a_across ? p->a + row * p->k : g->a + (p->m0 + row) * g->a_step + p->k0;
        t.out = sums + (whole ? 0 : row * GEMM_NR);
        gemm_tile_pick(t.rows, nv, g->a_across, pack)(&t);
        if (last)
            g->finish(g, t.out, p->m0 + row, p->n0 + col, t.rows, cols);
        t.b = sliver;
        pack = false;
    }
    if (g->b_sums && p->m0 == 0)
        gemm_total(sliver, p->k, nv * VEC_W, p->k0 > 0, p->room->totals + col);
    p->is_packed = p->ahead.to != NULL;
    if (p->is_packed)
        gemm_fetch(&p->ahead, INT_MAX);
    p->turn = !p->turn;
}

/* gemm_totals_end — sums of B's columns and A's rows leave the part that begins with row 0 or column 0. */
static void gemm_totals_end(const struct gemm_part *p, float *to, int64_t from, int64_t n, const float *totals)
{
    for (int64_t i = 0; i < n; i++)
        to[from + i] = (p->g->sums_add ? to[from + i] : 0.0f) + totals[i];
}

/* gemm_shared_place — where the packed A of a block of k keeps a row (a multiple of GEMM_MR). */
static float *gemm_shared_place(const struct gemm *g, int64_t k0, int64_t row)
{
    int64_t rows = gemm_ceil(g->m, GEMM_MR) * GEMM_MR;
    return g->a_shared + k0 * rows + row * gemm_min(g->k_block, g->k - k0);
}

/* gemm_share — a part of the work before the parts proper: packs GEMM_SHARE rows of A for all. */
#define GEMM_SHARE (GEMM_MR * 4)
static void gemm_share(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct gemm *g = arg;
    int64_t row = (int64_t)part_i * GEMM_SHARE, rows = gemm_min(GEMM_SHARE, g->m - row);
    for (int64_t k0 = 0; k0 < g->k; k0 += g->k_block)
        gemm_pack_a(g->a + k0 * g->a_step + row, g->a_step, rows, gemm_min(g->k_block, g->k - k0),
                    gemm_shared_place(g, k0, row));
}

static void gemm_part_run(void *arg, int part_i, int thread_i)
{
    const struct gemm *g = arg;
    struct gemm_part p = {.g = g, .room = (struct gemm_room *)(void *)g->cpu->scratch[thread_i]};
    gemm_place(g, part_i, &p);
    float *a_totals = p.room->totals + GEMM_NR * GEMM_SLIVERS_MAX;
    for (p.k0 = 0; p.k0 < g->k; p.k0 += g->k_block) {
        p.k = gemm_min(g->k_block, g->k - p.k0);
        if (g->a_shared)
            p.a = gemm_shared_place(g, p.k0, p.m0);
        else if (g->a_across)
            p.a = gemm_pack_a(g->a + p.k0 * g->a_step + p.m0, g->a_step, p.rows, p.k, p.room->a);
        for (int64_t row = 0; g->a_sums && p.n0 == 0 && row < p.rows; row += GEMM_MR)
            gemm_total(p.a + row * p.k, p.k, GEMM_MR, p.k0 > 0, a_totals + row);
        for (int64_t col = 0; col < p.cols; col += GEMM_NR) {
            gemm_look_ahead(&p, col, part_i);
            gemm_sliver(&p, col, p.k0 + p.k >= g->k);
        }
    }
    if (g->b_sums && p.m0 == 0)
        gemm_totals_end(&p, g->b_sums, p.n0, p.cols, p.room->totals);
    if (g->a_sums && p.n0 == 0)
        gemm_totals_end(&p, g->a_sums, p.m0, p.rows, a_totals);
}

static void gemm_run(const struct cpu *cpu, struct gemm *g)
{
    g->cpu = cpu;
    gemm_cut(g);
    if (g->a_shared)
        task_run(cpu->pool, (int)gemm_ceil(g->m, GEMM_SHARE), gemm_share, g);
    task_run(cpu->pool, (int)(g->m_parts * g->n_parts), gemm_part_run, g);
}

#endif

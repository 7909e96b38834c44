/* emu_access_race — the order of accesses (see emu_access.h). A cell keeps the last write and the
 * reads since: enough, since an earlier write that is not ordered with an access is not ordered
 * with the last write either, or was reported then. */
#include "tests/emu/emu_access_inside.h"

#define WARPS_MAX 32

static uint32_t epoch = 2, block_first = 2, launch_first = 2;
static uint32_t phase[WARPS_MAX];
static uint32_t *firsts; /* the first epochs of the launch's blocks */
static int firsts_n, firsts_room;

void race_launch(void)
{
    launch_first = ++epoch;
    firsts_n = 0;
}

void race_block(int)
{
    block_first = ++epoch;
    memset(phase, 0, sizeof phase);
    if (firsts_n == firsts_room) {
        firsts_room = firsts_room ? 2 * firsts_room : 256;
        firsts = (uint32_t *)realloc(firsts, (size_t)firsts_room * sizeof *firsts);
    }
    firsts[firsts_n++] = block_first;
}

void race_barrier(void)
{
    epoch++;
    memset(phase, 0, sizeof phase);
}

void race_warp(int warp) { phase[warp]++; }

int race_block_of(uint32_t at)
{
    int i = firsts_n - 1;
    while (i > 0 && firsts[i] > at)
        i--;
    return i;
}

/* ---- relations of an access that was, and one that is ---- */

/* Each block has its own shared memory. */
static bool is_other_block(const struct access *a, uint32_t then)
{
    return !a->space->is_shared && then >= launch_first && then < block_first;
}

static bool write_races(const struct access *a, const struct access_cell *c)
{
    int thread = a->thread;
    if (is_other_block(a, c->w_epoch))
        return true;
    if (c->w_epoch != epoch)
        return false;
    return c->is_many || (c->w_thread != thread &&
                          (c->w_thread / 32 != thread / 32 || c->w_phase >= phase[thread / 32]));
}

/* A thread that has read the cell and is not ordered with this one; -1: none. -2: another block. */
static int reader_that_races(const struct access *a, const struct access_cell *c)
{
    int thread = a->thread;
    if (is_other_block(a, c->r_epoch) || is_other_block(a, c->r_before))
        return -2;
    if (c->r_epoch != epoch)
        return -1;
    if (c->r_warp != thread / 32)
        return c->r_warp * 32 + __builtin_ctz(c->r_lanes);
    if (c->r_other)
        return (c->r_other - 1) * 32;
    uint32_t others = c->r_lanes & ~(1u << thread % 32);
    return c->r_phase == phase[c->r_warp] && others ? c->r_warp * 32 + __builtin_ctz(others) : -1;
}

static void report_write(const struct access *a, const struct access_cell *c, const char *what)
{
    bool is_block = is_other_block(a, c->w_epoch);
    report_add(a, what,
               c->is_pending  ? "copy"
               : c->is_atomic ? "atomic"
                              : "write",
               is_block ? "block" : "thread", is_block ? race_block_of(c->w_epoch) : c->w_thread,
               c->w_pc);
}

static void check_readers(const struct access *a, const struct access_cell *c)
{
    int reader = reader_that_races(a, c);
    uint32_t when = is_other_block(a, c->r_before) ? c->r_before : c->r_epoch;
    if (reader != -1)
        report_add(a, "race", "read", reader == -2 ? "block" : "thread",
                   reader == -2 ? race_block_of(when) : reader, c->r_pc);
}

/* ---- accesses ---- */

static void keep_read(struct access_cell *c, const struct access *a)
{
    int warp = a->thread / 32;
    if (is_other_block(a, c->r_epoch))
        c->r_before = c->r_epoch;
    if (c->r_epoch == epoch && c->r_warp != warp) {
        c->r_other = (uint8_t)(warp + 1);
        return;
    }
    if (c->r_epoch != epoch)
        c->r_other = 0;
    if (c->r_epoch != epoch || c->r_phase != phase[warp])
        c->r_lanes = 0;
    c->r_epoch = epoch, c->r_phase = phase[warp], c->r_pc = a->pc;
    c->r_warp = (uint8_t)warp;
    c->r_lanes |= 1u << a->thread % 32;
}

static void keep_write(struct access_cell *c, const struct access *a)
{
    bool is_atomic = a->kind == ACCESS_ATOMIC;
    c->is_many = is_atomic && c->is_atomic && write_races(a, c);
    c->is_atomic = is_atomic, c->is_pending = a->kind == ACCESS_COPY;
    c->w_epoch = epoch, c->w_phase = phase[a->thread / 32], c->w_pc = a->pc;
    c->w_thread = (uint16_t)a->thread;
    c->r_epoch = c->r_before = 0;
}

static bool is_unset(const struct access *a, const struct access_cell *c)
{
    return a->space->is_shared ? c->w_epoch < block_first : !a->space->is_set && c->w_epoch == 0;
}

static void touch(struct access_cell *c, const struct access *a)
{
    bool is_here = !a->space->is_shared || c->w_epoch >= block_first;
    if (a->kind == ACCESS_COPIED) {
        if (c->is_pending)
            c->is_pending = false, c->w_epoch = epoch, c->w_phase = phase[a->thread / 32];
        return;
    }
    if (c->is_pending && is_here)
        report_write(a, c, "access to a copy under way");
    else if (is_here && !(a->kind == ACCESS_ATOMIC && c->is_atomic) && write_races(a, c))
        report_write(a, c, "race");
    if (a->kind == ACCESS_READ || a->kind == ACCESS_ATOMIC)
        if (is_unset(a, c))
            report_add(a, "unset memory", NULL, NULL, 0, 0);
    if (a->kind == ACCESS_READ) {
        keep_read(c, a);
    } else {
        check_readers(a, c);
        keep_write(c, a);
    }
}

static void split(struct access_cell *word)
{
    word[0].is_split = true;
    for (int i = 1; i < 4; i++)
        word[i] = word[0];
}

void race_touch(const struct access *a)
{
    size_t first = (size_t)(a->at - a->space->at), end = first + (size_t)a->bytes;
    for (size_t word = first / 4 * 4; word < end; word += 4) {
        struct access_cell *c = a->space->cells + word;
        size_t from = word < first ? first : word, to = word + 4 < end ? word + 4 : end;
        if (to - from == 4 && !c->is_split) {
            touch(c, a);
            continue;
        }
        if (!c->is_split)
            split(c);
        for (size_t i = from; i < to; i++)
            touch(a->space->cells + i, a);
    }
}

/* emu — blocks, fibers and warp operations (see emu.h). */
#include "tests/emu/emu.h"
#include "tests/emu/emu_limits.h"
#include "tests/emu/emu_numbers.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMU_ASAN 1
#endif

#define EMU_THREADS_MAX 1024
#define EMU_STACK_BYTES ((size_t)256 << 10)
#define EMU_COPIES_MAX 512
#define EMU_GUARD 256
#define EMU_GUARD_BYTE 0xA5

struct emu_copy {
    void *to;
    const void *from;
    int bytes, valid_bytes, group;
    bool has_landed;
};

struct emu_fiber {
    void *sp;
    struct emu_where where;
    int barriers_met;
    bool is_done;
    const char *file;
    int line, vote;
    emu_warp_fn *all; /* of the warp operation it waits in */
    unsigned mask;
    void *args;
    struct emu_copy copies[EMU_COPIES_MAX];
    int copies_n, groups_n;
    void *fake_stack;
};

struct emu_where emu_where;
static struct emu_fiber *fibers, *self;
static char *stacks;
static int fibers_n, alive_n, waiting_n, skip_barrier = -1, barriers_most;
static int ready[EMU_THREADS_MAX / 32][32], ready_n[EMU_THREADS_MAX / 32]; /* of each warp */
static uint32_t warps_ready;                                               /* bits */
/* lanes in a warp operation; that have left */
static uint32_t met[EMU_THREADS_MAX / 32], gone[EMU_THREADS_MAX / 32];
static int warp_now;
/* in this block all fibers are equally likely to continue; else one warp mostly runs on */
static bool is_fair;
static void *main_sp;
static void (*block_run)(void *);
static void *block_arg;
static unsigned char *shared_all;
/* AHEAD: choices after which another warp may continue; more for AMD, where 64 lanes meet. */
#ifdef EMU_HIP
#define SHARED_MOST ((size_t)64 << 10)
#define AHEAD 1024
#else
#define SHARED_MOST ((size_t)227 << 10)
#define AHEAD 256
#endif
static size_t shared_bytes_now, shared_most = SHARED_MOST;
static uint64_t seed_now, draws;
static char error_text[512], error_out[512];
static bool is_failed;
#ifdef EMU_ASAN
static void *main_fake_stack;
static const void *main_stack;
static size_t main_stack_bytes;
#endif

/* Registers that a call keeps, pushed; the stack changed; popped. */
extern "C" void emu_switch(void **save_sp, void *load_sp);
#if defined(__x86_64__)
__asm__(".text\n.globl emu_switch\n.type emu_switch,@function\nemu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size emu_switch,.-emu_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");
#else
#error "the emulation switches fibers on x86-64 only"
#endif

static uint64_t draw(void)
{
    uint64_t x = seed_now + ++draws * 0x9E3779B97F4A7C15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

float emu_quick_error;
float emu_quick(float x) { return x * (1 + emu_quick_error); }
int (*emu_device)(void *stream, int (*run)(void *arg), const void *arg, size_t bytes);

const struct emu_watch *emu_watch;

void emu_seed(uint64_t seed) { seed_now = seed, draws = 0; }
void emu_skip_barrier(int n) { skip_barrier = n; }
int emu_barriers(void)
{
    int most = barriers_most;
    barriers_most = 0;
    return most;
}
const char *emu_error(void)
{
    if (error_text[0] == 0)
        return NULL;
    memcpy(error_out, error_text, sizeof error_out);
    error_text[0] = 0;
    return error_out;
}

/* ---- fibers ---- */

static void switch_to(struct emu_fiber *next)
{
    struct emu_fiber *from = self;
    if (next == from)
        return;
    void **save = from ? &from->sp : &main_sp;
    if (from)
        from->where = emu_where;
    self = next;
    if (next)
        emu_where = next->where;
#ifdef EMU_ASAN
    void **fake = from ? &from->fake_stack : &main_fake_stack;
    const void *bottom = next ? stacks + (size_t)(next - fibers) * EMU_STACK_BYTES : main_stack;
    __sanitizer_start_switch_fiber(from && (from->is_done || is_failed) ? NULL : fake, bottom,
                                   next ? EMU_STACK_BYTES : main_stack_bytes);
    emu_switch(save, next ? next->sp : main_sp);
    __sanitizer_finish_switch_fiber(*fake, NULL, NULL);
#else
    emu_switch(save, next ? next->sp : main_sp);
#endif
}

static void make_ready(int fiber)
{
    int warp = fiber / 32;
    ready[warp][ready_n[warp]++] = fiber;
    warps_ready |= 1u << warp;
}

/* Another warp that has a fiber ready. Fair draws alone would keep all warps at about the same
 * place. */
static void pick_warp(void)
{
    if (seed_now == 0) {
        warp_now = warps_ready >> warp_now & 1 ? warp_now : __builtin_ctz(warps_ready);
#ifdef EMU_HIP /* the other half of the wavefront, which may wait for this one */
    } else if (!is_fair && !(warps_ready >> warp_now & 1) && warps_ready >> (warp_now ^ 1) & 1) {
        warp_now ^= 1;
#endif
    } else if (is_fair || !(warps_ready >> warp_now & 1) || draw() % AHEAD == 0) {
        uint32_t left = warps_ready;
        for (int skip = (int)(draw() % (uint64_t)__builtin_popcount(left)); skip > 0; skip--)
            left &= left - 1;
        warp_now = __builtin_ctz(left);
    }
}

/* Draws a fiber that is ready; back to the launch when none is. */
static void go_on(void)
{
    if (warps_ready == 0 || is_failed) {
        if (!is_failed && alive_n > 0)
            emu_fail("all %d threads that are left wait: thread %u at %s:%d", alive_n,
                     self->where.thread.x, self->file ? self->file : "a warp operation",
                     self->line);
        switch_to(NULL);
        return;
    }
    pick_warp();
    int *list = ready[warp_now], *n = &ready_n[warp_now],
        at = seed_now == 0 ? *n - 1 : (int)(draw() % (uint64_t)*n);
    struct emu_fiber *next = &fibers[list[at]];
    list[at] = list[--*n];
    if (*n == 0)
        warps_ready &= ~(1u << warp_now);
    switch_to(next);
}

/* The block is given up: its fibers never go on. */
void emu_fail(const char *fmt, ...)
{
    if (error_text[0] == 0) {
        va_list args;
        va_start(args, fmt);
        int n = vsnprintf(error_text, sizeof error_text, fmt, args);
        va_end(args);
        if (n >= 0 && n < (int)sizeof error_text)
            snprintf(error_text + n, sizeof error_text - (size_t)n,
                     " (block %u %u %u of %u %u %u, seed %llu)", emu_where.block.x,
                     emu_where.block.y, emu_where.block.z, emu_where.grid_dim.x,
                     emu_where.grid_dim.y, emu_where.grid_dim.z, (unsigned long long)seed_now);
    }
    is_failed = true;
    if (self)
        switch_to(NULL);
}

static void fiber_main(void)
{
#ifdef EMU_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (main_stack == NULL)
        main_stack = bottom, main_stack_bytes = bytes;
#endif
    block_run(block_arg);
    self->is_done = true;
    gone[(self - fibers) / 32] |= 1u << self->where.lane;
    alive_n--;
    barriers_most = self->barriers_met > barriers_most ? self->barriers_met : barriers_most;
    if (waiting_n > 0)
        emu_fail("thread %u has left while others wait at a barrier", self->where.thread.x);
    go_on();
    __builtin_trap();
}

/* Tops of stacks lie in different sets of the caches: at the same place of each they would push one
 * another out. */
static void fiber_start(struct emu_fiber *f, char *stack)
{
    uintptr_t top = (uintptr_t)(stack + EMU_STACK_BYTES) - (uintptr_t)(f - fibers) % 128 * 576;
    void **sp = (void **)top;
    *--sp = NULL; /* what fiber_main would return to; keeps the stack aligned as after a call */
    *--sp = (void *)fiber_main;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    f->sp = sp;
}

/* ---- blocks ---- */

static bool shared_guards_whole(void)
{
    for (size_t i = 0; i < EMU_GUARD; i++)
        if (shared_all[i] != EMU_GUARD_BYTE ||
            shared_all[EMU_GUARD + shared_bytes_now + i] != EMU_GUARD_BYTE)
            return false;
    return true;
}

/* The launch's stack lies above the place where the fibers were entered. */
bool emu_is_stack(const void *p)
{
    const char *at = (const char *)p, *launch = (const char *)main_sp;
    return (at >= stacks && at < stacks + EMU_THREADS_MAX * EMU_STACK_BYTES) ||
           (at >= launch && at < launch + ((size_t)64 << 20));
}

unsigned char *emu_shared(void) { return shared_all + EMU_GUARD; }

static void run_block(dim3 grid, dim3 block, uint64_t number)
{
    uint3 at = {(unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
                (unsigned)(number / grid.x / grid.y)};
    fibers_n = alive_n = (int)(block.x * block.y * block.z);
    waiting_n = warp_now = 0;
    warps_ready = 0;
    memset(ready_n, 0, sizeof ready_n);
    memset(met, 0, sizeof met);
    memset(gone, 0, sizeof gone);
    is_fair = draw() % 4 == 0;
    memset(shared_all + EMU_GUARD, 0xFF, shared_bytes_now);
#ifdef EMU_ASAN /* fibers never return, so their frames' marks stay */
    __asan_unpoison_memory_region(stacks, (size_t)fibers_n * EMU_STACK_BYTES);
#endif
    for (int i = 0; i < fibers_n; i++) {
        struct emu_fiber *f = &fibers[i];
        unsigned t = (unsigned)i;
        f->where = {
            {t % block.x, t / block.x % block.y, t / block.x / block.y}, at, block, grid, i % 32};
        f->barriers_met = f->copies_n = f->groups_n = 0;
        f->is_done = false;
        f->all = NULL, f->file = NULL, f->fake_stack = NULL;
        fiber_start(f, stacks + (size_t)i * EMU_STACK_BYTES);
    }
    for (int i = fibers_n - 1; i >= 0; i--)
        make_ready(i);
    if (emu_watch)
        emu_watch->block(emu_shared(), shared_bytes_now);
    go_on();
    if (emu_watch)
        emu_watch->block_end();
    if (!shared_guards_whole())
        emu_fail("wrote beside the shared memory of %zu bytes", shared_bytes_now);
}

void emu_shared_max(size_t bytes)
{
    shared_most = bytes == 0 || bytes > SHARED_MOST ? SHARED_MOST : bytes;
}
bool emu_is_hip(void) { return SHARED_MOST == 64 << 10; }
size_t emu_shared_most(void) { return shared_most; }

static int launch_ready(const struct emu_launch *launch)
{
    size_t shared_bytes = launch->shared_bytes;
    char why[256];
    if (!emu_limits_hold(launch, shared_most, why, sizeof why))
        emu_fail("%s", why);
    if (is_failed)
        return EMU_MISTAKE;
    if (!fibers) {
        fibers = (struct emu_fiber *)malloc(EMU_THREADS_MAX * sizeof *fibers);
        stacks = (char *)mmap(NULL, EMU_THREADS_MAX * EMU_STACK_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    shared_bytes_now = shared_bytes;
    shared_all =
        (unsigned char *)aligned_alloc(1024, (shared_bytes + 2 * EMU_GUARD + 1023) / 1024 * 1024);
    if (!fibers || stacks == MAP_FAILED || !shared_all)
        emu_fail("out of memory");
    return is_failed ? EMU_MISTAKE : 0;
}

int emu_launch_raw(const struct emu_launch *launch, void (*run)(void *), void *arg)
{
    dim3 grid = launch->grid, block = launch->block;
    size_t shared_bytes = launch->shared_bytes;
    is_failed = false;
#ifdef EMU_ASAN
    main_stack = NULL; /* another thread may launch than the last time */
#endif
    emu_where.grid_dim = grid;
    int refused = launch_ready(launch);
    if (refused != 0)
        return refused;
    if (emu_watch)
        emu_watch->launch(launch);
    memset(shared_all, EMU_GUARD_BYTE, EMU_GUARD);
    memset(shared_all + EMU_GUARD + shared_bytes, EMU_GUARD_BYTE, EMU_GUARD);
    block_run = run, block_arg = arg;
    /* Blocks in an order by a step that shares no factor with their number. */
    uint64_t n = (uint64_t)grid.x * grid.y * grid.z, step = 1, at = 0;
    if (seed_now != 0 && n > 2) {
        uint64_t a, b;
        do {
            step = draw() % n;
            for (a = step, b = n; a != 0;) {
                uint64_t rest = b % a;
                b = a, a = rest;
            }
        } while (b != 1 || step == 0);
        at = draw() % n;
    }
    unsigned arithmetic = emu_flush_begin();
    for (uint64_t i = 0; i < n && !is_failed; i++, at = (at + step) % n)
        run_block(grid, block, at);
    emu_flush_end(arithmetic);
    free(shared_all);
    shared_all = NULL;
    return is_failed ? EMU_MISTAKE : 0;
}

/* ---- meeting ---- */

__attribute__((nonnull(1))) int emu_barrier(const char *file, int line, enum emu_vote vote,
                                            int value)
{
    if (self->barriers_met++ == skip_barrier)
        return 0;
    self->file = file, self->line = line, self->vote = value;
    if (alive_n < fibers_n)
        emu_fail("thread %u comes to the barrier %s:%d and others have left", self->where.thread.x,
                 file, line);
    if (++waiting_n < fibers_n) {
        go_on();
    } else {
        int count = 0;
        for (int i = 0; i < fibers_n; i++) {
            const struct emu_fiber *other = &fibers[i];
            if (other->line != line || strcmp(other->file, file) != 0)
                emu_fail("threads at two barriers: %u at %s:%d, %d at %s:%d", self->where.thread.x,
                         file, line, i, other->file, other->line);
            count += fibers[i].vote;
        }
        for (int i = 0; i < fibers_n; i++) {
            fibers[i].vote = vote == EMU_VOTE_COUNT ? count
                             : vote == EMU_VOTE_AND ? count == fibers_n
                                                    : count > 0;
            if (&fibers[i] != self)
                make_ready(i);
        }
        waiting_n = 0;
        if (emu_watch)
            emu_watch->barrier();
        make_ready((int)(self - fibers)); /* the last to come has no lead */
        go_on();
    }
    self->file = NULL;
    return self->vote;
}

void emu_warp(unsigned mask, emu_warp_fn *all, void *args)
{
    int lane = self->where.lane, first = (int)(self - fibers) - lane;
    if (!(mask >> lane & 1))
        emu_fail("lane %d is not in its own mask %08x", lane, mask);
    self->all = all, self->mask = mask, self->args = args;
    const int warp = first / 32;
    met[warp] |= 1u << lane;
    if (gone[warp] & mask)
        emu_fail("lane %d of thread %d's warp has left, and the mask %08x waits for it",
                 __builtin_ctz(gone[warp] & mask), first + lane, mask);
    if (mask & ~met[warp]) { /* some lanes are missing */
        go_on();
        return;
    }
    void *lanes[32] = {};
    for (int i = 0; i < 32; i++) {
        struct emu_fiber *f = &fibers[first + i];
        if (!(mask >> i & 1))
            continue;
        if (f->all != all || f->mask != mask)
            emu_fail("lanes %d and %d of the warp of thread %d are in different operations", lane,
                     i, first + lane);
        lanes[i] = f->args;
    }
    all(lanes, mask);
    if (emu_watch)
        emu_watch->warp(warp, mask, all == emu_nothing_all);
    met[warp] &= ~mask;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) {
            fibers[first + i].all = NULL;
            make_ready(first + i);
        }
    go_on();
}

void emu_nothing_all(void **args, unsigned mask) { (void)args, (void)mask; }

void emu_shuffle_all(void **args, unsigned mask)
{
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) {
            struct emu_shuffle *s = (struct emu_shuffle *)args[i];
            if (!(mask >> s->from & 1))
                emu_fail("a shuffle from lane %d, which is not in the mask %08x", s->from, mask);
            s->out = ((struct emu_shuffle *)args[s->from])->in;
        }
}

#ifdef EMU_HIP
int emu_wave_lane(void) { return (int)(self - fibers) % 64; }
uint64_t emu_draw(void) { return draw(); }

/* Both warps meet: their lanes count as in a warp operation, of two warps. */
void emu_wave(emu_warp_fn *all, void *args)
{
    int first = (int)(self - fibers) / 64 * 64, warp = first / 32;
    if (first + 64 > fibers_n)
        emu_fail("thread %d is in an operation of a wavefront, which has only %d lanes here",
                 (int)(self - fibers), fibers_n - first);
    self->all = all, self->mask = 0, self->args = args;
    met[self->where.thread.x / 32] |= 1u << self->where.lane;
    if (gone[warp] | gone[warp + 1])
        emu_fail("lanes of thread %d's wavefront have left", (int)(self - fibers));
    if (~met[warp] | ~met[warp + 1]) {
        go_on();
        return;
    }
    void *lanes[64];
    for (int i = 0; i < 64; i++) {
        const struct emu_fiber *f = &fibers[first + i];
        if (f->all != all || f->mask != 0)
            emu_fail("lane %d of the wavefront of thread %d is in another operation", i,
                     (int)(self - fibers));
        lanes[i] = f->args;
    }
    all(lanes, 0);
    for (int i = 0; i < 2; i++) {
        if (emu_watch)
            emu_watch->warp(warp + i, 0xFFFFFFFFu, false);
        met[warp + i] = 0;
    }
    for (int i = 0; i < 64; i++) {
        fibers[first + i].all = NULL;
        make_ready(first + i);
    }
    go_on();
}

void emu_wave_shuffle_all(void **args, unsigned)
{
    for (int i = 0; i < 64; i++) {
        struct emu_shuffle *s = (struct emu_shuffle *)args[i];
        s->out = ((struct emu_shuffle *)args[s->from])->in;
    }
}
#endif

void emu_ballot_all(void **args, unsigned mask)
{
    uint64_t votes = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            votes |= ((struct emu_shuffle *)args[i])->in << i;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            ((struct emu_shuffle *)args[i])->out = votes;
}

void emu_check_aligned(const void *p, size_t bytes, const char *what)
{
    if ((uintptr_t)p % bytes != 0)
        emu_fail("%s of %zu bytes at %p, which is not aligned", what, bytes, p);
}

/* ---- asynchronous copies: each lands at once or when its group is waited for ---- */

static void land(struct emu_copy *c)
{
    if (c->valid_bytes > 0)
        memcpy(c->to, c->from, (size_t)c->valid_bytes);
    memset((char *)c->to + c->valid_bytes, 0, (size_t)(c->bytes - c->valid_bytes));
}

void emu_cp_async(void *to, const void *from, int bytes, int valid_bytes)
{
    emu_check_aligned(to, (size_t)bytes, "cp.async to");
    emu_check_aligned(from, (size_t)bytes, "cp.async from");
    unsigned char *p = (unsigned char *)to;
    if (p < emu_shared() || p + bytes > emu_shared() + shared_bytes_now)
        emu_fail("cp.async to outside of the shared memory");
    if (self->copies_n == EMU_COPIES_MAX)
        emu_fail("%d copies under way", EMU_COPIES_MAX);
    struct emu_copy c = {to,          from,           bytes,
                         valid_bytes, self->groups_n, seed_now != 0 && draw() % 2 == 0};
    if (c.has_landed)
        land(&c);
    if (emu_watch)
        emu_watch->copy(to, from, bytes, valid_bytes, __builtin_return_address(0));
    if (!c.has_landed || emu_watch)
        self->copies[self->copies_n++] = c;
}

void emu_cp_commit(void) { self->groups_n++; }

void emu_cp_wait(int groups_left)
{
    int left = 0;
    for (int i = 0; i < self->copies_n; i++) {
        struct emu_copy *c = &self->copies[i];
        if (c->group >= self->groups_n - groups_left) {
            self->copies[left++] = *c;
            continue;
        }
        if (!c->has_landed)
            land(c);
        if (emu_watch)
            emu_watch->copied(c->to, c->bytes, c->valid_bytes);
    }
    self->copies_n = left;
}

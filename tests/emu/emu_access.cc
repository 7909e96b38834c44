/* emu_access — the hooks that instrumented kernels call, and the memory that they touch (see
 * emu_access.h). The hooks have the names of the thread sanitizer, whose library is not linked. */
#define EMU_ACCESS

#include <stdio.h>
#include <sys/mman.h>

#include "tests/emu/emu_access_inside.h"

#define TENSORS_MAX 32
#define SHARED_MAX ((size_t)256 << 10)
#define CALLS_MAX 64
#define THREADS_MAX 1024

extern const char __executable_start[], __bss_start[], _end[];

/* The calls that a thread is in: a hash of where each comes from. */
struct calls {
    uint64_t hash[CALLS_MAX];
    int depth;
};

static struct access_space tensors[TENSORS_MAX], shared_space, static_space;
static int tensors_n;
static bool is_running; /* a kernel's threads do; else the launcher does */
static struct calls calls[THREADS_MAX];
static int threads_n;

static uint32_t offset_of(const void *pc)
{
    return (uint32_t)((const char *)pc - __executable_start);
}

static int thread_now(void)
{
    const struct emu_where *w = &emu_where;
    return (int)(w->thread.x + w->block_dim.x * (w->thread.y + w->block_dim.y * w->thread.z));
}

/* ---- memory ---- */

static void *map_zeros(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "emu_access: no memory for the history of %zu bytes\n", bytes);
        abort();
    }
    return p;
}

static size_t cells_bytes(size_t bytes) { return (bytes + 4) * sizeof(struct access_cell); }

static void free_tensors(void)
{
    for (int i = 0; i < tensors_n; i++) {
        munmap(tensors[i].cells, cells_bytes(tensors[i].bytes));
        free(tensors[i].read_seen);
        free(tensors[i].written_seen);
    }
    tensors_n = 0;
}

void emu_access_tensor(const char *name, const void *data, size_t bytes, int flags)
{
    size_t bits = bytes / 256 + 1;
    if (!data || bytes == 0)
        return;
    if (tensors_n == TENSORS_MAX)
        abort();
    tensors[tensors_n++] = {name,
                            (const char *)data,
                            bytes,
                            false,
                            (flags & EMU_ACCESS_IN) != 0,
                            (flags & EMU_ACCESS_CACHED) != 0,
                            (struct access_cell *)map_zeros(cells_bytes(bytes)),
                            0,
                            0,
                            (uint8_t *)calloc(bits, 1),
                            (uint8_t *)calloc(bits, 1)};
}

static bool is_in(const struct access_space *s, const char *at)
{
    return (size_t)(at - s->at) < s->bytes;
}

static struct access_space *find_space(const char *at)
{
    if (is_in(&shared_space, at))
        return &shared_space;
    for (int i = 0; i < tensors_n; i++)
        if (is_in(&tensors[i], at))
            return &tensors[i];
    return is_in(&static_space, at) ? &static_space : NULL;
}

/* What is no memory of the device: stacks, the emulation's own variables, constants. */
static bool is_ignored(const char *at)
{
    return emu_is_stack(at) || (size_t)(at - (const char *)&emu_where) < sizeof emu_where ||
           (at >= __executable_start && at < __bss_start);
}

/* ---- one access ---- */

static uint64_t site_of(int thread, const void *pc)
{
    const struct calls *c = &calls[thread];
    return (uint64_t)(uintptr_t)pc ^ (c->depth > 0 ? c->hash[c->depth - 1] : 0) << 20;
}

__attribute__((noinline)) static void check_one(const char *at, int bytes, enum access_kind kind,
                                                const void *pc)
{
    if (!is_running || is_ignored(at))
        return;
    int thread = thread_now();
    struct access a = {find_space(at), at, bytes, kind, thread, offset_of(pc)};
    if (!a.space || (size_t)(at - a.space->at) + (size_t)bytes > a.space->bytes) {
        report_add(&a, "beside all tensors", NULL, NULL, 0, 0);
        return;
    }
    race_touch(&a);
    warp_add(&a, site_of(thread, pc));
}

/* Short, for half of all accesses are to stacks and to shared memory. */
__attribute__((always_inline)) static inline void access_one(const char *at, int bytes,
                                                             enum access_kind kind, const void *pc)
{
    if (touch_bytes == 0)
        check_one(at, bytes, kind, pc);
    else if ((size_t)(at - touch_space) < touch_bytes)
        touch_add(at, (size_t)bytes, kind != ACCESS_READ);
}

extern "C" {
#define HOOK(bytes)                                                       \
    void __tsan_read##bytes(const char *at);                              \
    void __tsan_read##bytes(const char *at)                               \
    {                                                                     \
        access_one(at, bytes, ACCESS_READ, __builtin_return_address(0));  \
    }                                                                     \
    void __tsan_write##bytes(const char *at);                             \
    void __tsan_write##bytes(const char *at)                              \
    {                                                                     \
        access_one(at, bytes, ACCESS_WRITE, __builtin_return_address(0)); \
    }
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)

void __tsan_read_range(const char *at, size_t bytes);
void __tsan_read_range(const char *at, size_t bytes)
{
    access_one(at, (int)bytes, ACCESS_READ, __builtin_return_address(0));
}
void __tsan_write_range(const char *at, size_t bytes);
void __tsan_write_range(const char *at, size_t bytes)
{
    access_one(at, (int)bytes, ACCESS_WRITE, __builtin_return_address(0));
}

void __tsan_init(void);
void __tsan_init(void) {}

void __tsan_func_entry(const void *pc);
void __tsan_func_entry(const void *pc)
{
    if (!is_running)
        return;
    struct calls *c = &calls[thread_now()];
    if (c->depth == CALLS_MAX)
        abort();
    uint64_t above = c->depth > 0 ? c->hash[c->depth - 1] : 0;
    c->hash[c->depth++] = (above ^ (uint64_t)(uintptr_t)pc) * 0x9E3779B97F4A7C15u;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
    if (is_running)
        calls[thread_now()].depth--;
}
}

void emu_access_move(void *to, const void *from, int bytes)
{
    const void *pc = __builtin_return_address(0);
    char copy[16];
    access_one((const char *)from, bytes, ACCESS_READ, pc);
    access_one((const char *)to, bytes, ACCESS_WRITE, pc);
    memcpy(copy, from, (size_t)bytes);
    memcpy(to, copy, (size_t)bytes);
}

void emu_access_atomic(const void *p, int bytes)
{
    access_one((const char *)p, bytes, ACCESS_ATOMIC, __builtin_return_address(0));
}

/* The host's fills count as written bytes; they are ordered with every kernel. */
void emu_access_host(const void *p, size_t bytes)
{
    if (touch_bytes > 0 && (size_t)((const char *)p - touch_space) < touch_bytes)
        touch_add((const char *)p, bytes, true);
    struct access_space *s = emu_watch ? find_space((const char *)p) : NULL;
    if (!s)
        return;
    size_t first = (size_t)((const char *)p - s->at);
    for (size_t i = first; i < first + bytes && i < s->bytes; i++)
        s->cells[i / 4 * 4].w_epoch = s->cells[i].w_epoch = 1;
    s->written += (bytes + 31) / 32;
}

/* ---- the emulation tells ---- */

static void on_launch(const struct emu_launch *launch)
{
    race_launch();
    warp_kernel(launch->kernel);
    report_kernel(launch->kernel);
    threads_n = (int)(launch->block.x * launch->block.y * launch->block.z);
}

static void on_block(const unsigned char *shared, size_t bytes)
{
    shared_space.at = (const char *)shared, shared_space.bytes = bytes;
    for (int i = 0; i < threads_n; i++)
        calls[i].depth = 0;
    race_block(threads_n);
    is_running = true;
}

static void flush_all(void)
{
    for (int i = 0; i < threads_n / 32; i++)
        warp_flush(i);
}

static void on_block_end(void)
{
    flush_all();
    is_running = false;
}

static void on_barrier(void)
{
    flush_all();
    race_barrier();
}

static void on_warp(int warp, unsigned mask, bool is_sync)
{
    warp_flush(warp);
    if (is_sync && mask == 0xFFFFFFFFu)
        race_warp(warp);
}

static void on_copy(const void *to, const void *from, int bytes, int valid_bytes, const void *pc)
{
    if (valid_bytes > 0)
        access_one((const char *)from, valid_bytes, ACCESS_READ, pc);
    access_one((const char *)to, bytes, ACCESS_COPY, pc);
}

static void on_copied(const void *to, int bytes, int)
{
    struct access a = {&shared_space, (const char *)to, bytes, ACCESS_COPIED, thread_now(), 0};
    race_touch(&a);
}

/* Each lane reads four bytes of each matrix. */
static void on_ldmatrix(const void *const *rows, int matrices, const void *pc)
{
    int warp = thread_now() / 32;
    struct access a = {&shared_space, NULL, 4, ACCESS_READ, 0, offset_of(pc)};
    for (int m = 0; m < matrices; m++)
        for (int lane = 0; lane < 32; lane++) {
            a.at = (const char *)rows[8 * m + lane / 4] + lane % 4 * 4;
            a.thread = warp * 32 + lane;
            if (is_in(&shared_space, a.at))
                race_touch(&a);
            else
                report_add(&a, "ldmatrix outside of shared memory", NULL, NULL, 0, 0);
        }
    warp_rows(rows, matrices, a.pc);
}

/* ---- begin, end, results ---- */

void emu_access_begin(void)
{
    static const struct emu_watch watch = {on_launch, on_block, on_block_end, on_barrier,
                                           on_warp,   on_copy,  on_copied,    on_ldmatrix};
    free_tensors();
    report_reset();
    warp_reset();
    if (!shared_space.cells) {
        shared_space.name = "shared memory", shared_space.is_shared = true;
        shared_space.cells = (struct access_cell *)map_zeros(cells_bytes(SHARED_MAX));
        static_space.name = "static shared memory", static_space.is_shared = true;
        static_space.at = (const char *)((uintptr_t)__bss_start & ~(uintptr_t)127);
        static_space.bytes = (size_t)(_end - static_space.at);
        static_space.cells = (struct access_cell *)map_zeros(cells_bytes(static_space.bytes));
    }
    emu_watch = &watch;
}

void emu_access_end(void) { emu_watch = NULL; }

struct emu_access_moved emu_access_bytes_of(const char *name)
{
    struct emu_access_moved bytes = {0, 0};
    for (int i = 0; i < tensors_n; i++)
        if (!name || strcmp(tensors[i].name, name) == 0)
            bytes.read += 32 * tensors[i].read, bytes.written += 32 * tensors[i].written;
    return bytes;
}

struct emu_access_moved emu_access_bytes(void) { return emu_access_bytes_of(NULL); }

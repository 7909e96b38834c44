/* dev_cpu — the CPU as a device: a pool of threads, memory in huge pages, and kernels of the best level of x86-64 that
 * this machine has. A stream's work is done before the call returns. Must not know what the kernels compute. */
#include <emmintrin.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/must.h"
#include "base/text.h"
#include "dev/dev.h"
#include "dev/dev_check.h"
#include "kernels/cpu.h"
#include "kernels/probe.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define COPY_BYTES ((size_t)1 << 20) /* one part of a copy, fill or first touch */
#define PAST_BYTES ((size_t)32 << 20) /* copies of this size go past the cache */

/* The kernels of one level. */
struct kernels {
#define KERNEL_ENTRY(name) void (*name)(const struct cpu *cpu, const struct name *a);
    OP_LIST(KERNEL_ENTRY)
#undef KERNEL_ENTRY
};
#define ROW_PLAIN(name) .name = name##_plain,
#define ROW_V2(name) .name = name##_v2,
#define ROW_V3(name) .name = name##_v3,
#define ROW_V4(name) .name = name##_v4,
static const struct kernels level_kernels[CPU_LEVEL_N] = {
    [CPU_LEVEL_PLAIN] = {OP_LIST(ROW_PLAIN)},
    [CPU_LEVEL_V2] = {OP_LIST(ROW_V2)},
    [CPU_LEVEL_V3] = {OP_LIST(ROW_V3)},
    [CPU_LEVEL_V4] = {OP_LIST(ROW_V4)},
    [CPU_LEVEL_AMX] = {OP_LIST(ROW_V4)}, /* but for its products, see kernels_of */
};
static const char *const level_name[CPU_LEVEL_N] = {"plain", "sse4", "avx2", "avx512", "amx"};

struct dev {
    struct dev_head head;
    struct cpu cpu;
    struct kernels kernels;
    enum cpu_level level;
    double peak_flops;
    char *scratch; /* all threads' scratch, then the shared piece */
};

struct stream {
    struct stream_head head;
};

static size_t scratch_bytes(int threads_n) { return (size_t)threads_n * CPU_SCRATCH_BYTES + CPU_SHARED_BYTES; }

/* --- memory ------------------------------------------------------------------------------------------------ */

/* A part of a copy (src), or of a fill (src NULL). */
struct span {
    char *dst;
    const char *src;
    int byte;
    size_t bytes;
};

/* copy_past — stores that go past the cache: a line written whole need not be read first, which is a third of a plain
 * copy's traffic, and what training has in the cache stays there. For copies that no cache would hold. */
static void copy_past(char *dst, const char *src, size_t bytes)
{
    size_t head = -(uintptr_t)dst % 64, at = head < bytes ? head : bytes;
    memcpy(dst, src, at);
    for (; bytes - at >= 64; at += 64) {
        const __m128i *from = (const __m128i *)(const void *)(src + at);
        __m128i *to = (__m128i *)(void *)(dst + at);
        __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1), c = _mm_loadu_si128(from + 2);
        _mm_stream_si128(to + 3, _mm_loadu_si128(from + 3));
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to, a);
    }
    memcpy(dst + at, src + at, bytes - at);
    _mm_sfence();
}

static void span_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct span *s = arg;
    size_t at = (size_t)part_i * COPY_BYTES, n = s->bytes - at < COPY_BYTES ? s->bytes - at : COPY_BYTES;
    if (s->src && s->bytes >= PAST_BYTES)
        copy_past(s->dst + at, s->src + at, n);
    else if (s->src)
        memcpy(s->dst + at, s->src + at, n);
    else
        memset(s->dst + at, s->byte, n);
}

static void span_run(const struct cpu *cpu, struct span s)
{
    /* parts are counted in int: 2^31 parts of 1 MiB are beyond any address space */
    task_run(cpu->pool, (int)((s.bytes + COPY_BYTES - 1) / COPY_BYTES), span_part, &s);
}

static size_t map_bytes(size_t bytes)
{
    size_t unit = bytes >= HUGE_BYTES ? HUGE_BYTES : 4096;
    return (bytes + unit - 1) / unit * unit;
}

/* Large pieces start on a huge page: one more is mapped, and what sticks out on both sides is given back. */
static void *map_aligned(size_t bytes)
{
    size_t slack = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *data = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED || !slack)
        return data;
    size_t head = (HUGE_BYTES - (uintptr_t)data % HUGE_BYTES) % HUGE_BYTES;
    if (head)
        munmap(data, head);
    if (slack - head)
        munmap(data + head + bytes, slack - head);
    (void)madvise(data + head, bytes, MADV_HUGEPAGE); /* a wish: without it the pages are small, nothing else */
    return data + head;
}

static enum status cpu_alloc(struct dev *dev, size_t bytes, void **out)
{
    char text[32];
    if (bytes > PTRDIFF_MAX - 2 * HUGE_BYTES)
        return FAIL(ST_BAD_SETTING, "out of memory: %zu bytes are more than can be addressed", bytes);
    size_t mapped = map_bytes(bytes ? bytes : 1);
    void *data = map_aligned(mapped);
    if (data == MAP_FAILED)
        return FAIL(memory_status((int64_t)bytes),
                    "out of memory: mmap of %s for the device: %s; use a smaller model or batch",
                    text_human(text, sizeof text, (double)bytes), strerror(errno));
    span_run(&dev->cpu, (struct span){.dst = data, .bytes = mapped}); /* touched by the threads that will use it */
    *out = data;
    return ST_OK;
}

static void cpu_free(struct dev *dev, void *data, size_t bytes)
{
    (void)dev;
    int rc = munmap(data, map_bytes(bytes ? bytes : 1));
    ASSERTF(rc == 0, "munmap of %zu bytes: %s", bytes, strerror(errno));
}

/* --- streams ----------------------------------------------------------------------------------------------- */

static enum status cpu_stream_open(struct dev *dev, struct stream **out)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return FAIL(ST_RETRY, "out of memory: a stream of %zu bytes", sizeof *s);
    s->head.dev = dev;
    *out = s;
    return ST_OK;
}

static void cpu_stream_close(struct stream *s) { free(s); }

static enum status cpu_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    span_run(&s->head.dev->cpu, (struct span){.dst = dst, .src = src, .bytes = bytes});
    return ST_OK;
}

static enum status cpu_fill(struct stream *s, void *dst, int byte, size_t bytes)
{
    span_run(&s->head.dev->cpu, (struct span){.dst = dst, .byte = byte, .bytes = bytes});
    return ST_OK;
}

static enum status cpu_after(struct stream *late, struct stream *early)
{
    (void)late, (void)early; /* early's work was done before its call returned */
    return ST_OK;
}

static enum status cpu_sync(struct stream *s)
{
    (void)s;
    return ST_OK;
}

/* --- operations -------------------------------------------------------------------------------------------- */

#define OP_DEFINE(name)                                                                                     \
    static enum status op_##name(struct stream *s, const struct name *a)                                    \
    {                                                                                                       \
        const struct dev *dev = s->head.dev;                                                                \
        TRY(dev_check_##name(a, false));                                                                    \
        dev->kernels.name(&dev->cpu, a);                                                                   \
        return ST_OK;                                                                                       \
    }
OP_LIST(OP_DEFINE)

#define OP_ROW(name) .name = op_##name,
static const struct op_table cpu_op = {OP_LIST(OP_ROW)};

/* --- open, info, close ------------------------------------------------------------------------------------- */

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

/* Tiles are 8 KiB of state that a process must ask for before a thread of it uses them; asking twice is no harm. The
 * kernel refuses where it has no AMX, or where an alternate signal stack could not hold them. */
static bool amx_is_here(void)
{
    return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("amx-tile") &&
           __builtin_cpu_supports("amx-bf16") &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool level_is_here(enum cpu_level level)
{
    switch (level) {
    case CPU_LEVEL_PLAIN:
        return true;
    case CPU_LEVEL_V2:
        return __builtin_cpu_supports("x86-64-v2");
    case CPU_LEVEL_V3:
        return __builtin_cpu_supports("x86-64-v3");
    case CPU_LEVEL_V4:
        return __builtin_cpu_supports("x86-64-v4");
    case CPU_LEVEL_AMX:
        return amx_is_here();
    default:
        return false;
    }
}

static struct kernels kernels_of(enum cpu_level level)
{
    struct kernels kernels = level_kernels[level];
#define SET_AMX(name) kernels.name = name##_amx;
    if (level == CPU_LEVEL_AMX) {
        CPU_AMX_LIST(SET_AMX)
    }
#undef SET_AMX
    return kernels;
}

static enum status level_choose(int asked, enum cpu_level *out)
{
    ASSERTF(asked >= 0 && asked <= CPU_LEVEL_N, "level %d", asked);
    int level = asked;
    if (asked == CPU_LEVEL_N)
        for (level = CPU_LEVEL_N - 1; !level_is_here((enum cpu_level)level);)
            level--;
    if (!level_is_here((enum cpu_level)level))
        return FAIL(ST_NO_DEVICE, "this processor has no %s (x86-64-v%d%s); choose a lower level", level_name[level],
                    level < CPU_LEVEL_AMX ? level + 1 : 4, level < CPU_LEVEL_AMX ? "" : " with AMX tiles of bf16");
    *out = (enum cpu_level)level;
    return ST_OK;
}

/* The best of three short looks: a core may wake up slowly, or be shared for a moment. Measured at the best level here,
 * whatever level computes: it is what the machine could do. */
static double peak_measure(const struct cpu *cpu)
{
    double best = 0;
    for (int i = 0; i < 3; i++) {
        double flops = level_is_here(CPU_LEVEL_AMX)  ? probe_amx(cpu, 0.002)
                       : level_is_here(CPU_LEVEL_V4) ? probe_fma_v4(cpu, 0.002)
                       : level_is_here(CPU_LEVEL_V3) ? probe_fma_v3(cpu, 0.002)
                                                     : probe_fma_v2(cpu, 0.002);
        best = flops > best ? flops : best;
    }
    return best;
}

static void cpu_info(const struct dev *dev, struct dev_info *out)
{
    int threads_n = task_threads(dev->cpu.pool);
    *out = (struct dev_info){.kind = DEV_KIND_CPU, .free_bytes = -1, .peak_flops = dev->peak_flops, .threads_n = threads_n};
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    out->memory_bytes = pages > 0 ? pages * page_bytes : -1;
    text_format(out->name, sizeof out->name, "cpu %d thread%s %s", threads_n, threads_n == 1 ? "" : "s",
                level_name[dev->level]);
}

static void cpu_close(struct dev *dev)
{
    if (dev->scratch)
        cpu_free(dev, dev->scratch, scratch_bytes(task_threads(dev->cpu.pool)));
    task_close(dev->cpu.pool);
    free(dev);
}

static const struct dev_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .info = cpu_info,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .stream_open = cpu_stream_open,
    .stream_close = cpu_stream_close,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .after = cpu_after,
    .sync = cpu_sync,
};

enum status dev_cpu_open(int threads_n, int level, struct dev **out)
{
    enum status st;
    enum cpu_level chosen = CPU_LEVEL_PLAIN;
    TRY(level_choose(level, &chosen));
    if (threads_n == 0)
        threads_n = task_cores() < TASK_THREADS_MAX ? task_cores() : TASK_THREADS_MAX;
    struct dev *dev = calloc(1, sizeof *dev);
    if (!dev)
        return FAIL(ST_RETRY, "out of memory: a device of %zu bytes", sizeof *dev);
    *dev = (struct dev){.head = {&cpu_ops, &cpu_op}, .kernels = kernels_of(chosen), .level = chosen};
    TRY_OR(task_open(threads_n, &dev->cpu.pool), out_close);
    void *scratch;
    TRY_OR(cpu_alloc(dev, scratch_bytes(threads_n), &scratch), out_close);
    dev->scratch = scratch;
    for (int i = 0; i < threads_n; i++)
        dev->cpu.scratch[i] = dev->scratch + (size_t)i * CPU_SCRATCH_BYTES;
    dev->cpu.shared = dev->scratch + (size_t)threads_n * CPU_SCRATCH_BYTES;
    dev->peak_flops = peak_measure(&dev->cpu);
    *out = dev;
    return ST_OK;
out_close:
    cpu_close(dev);
    return st;
}

/* dev_cpu — the CPU as a device: a pool of threads, memory in huge pages, and kernels of the best
 * ISA level of this machine (cpu/isa.h). A stream's work is done when the call returns. It does not
 * depend on the meaning of the kernels. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/assert.h"
#include "base/text.h"
#include "dev/dev.h"
#include "dev/dev_check.h"
#include "dev/cpu/isa.h"
#include "kernels/cpu.h"

#define PAGE_BYTES ((size_t)4096) /* the smallest page size */
#define HUGE_BYTES ((size_t)2 << 20)
#define COPY_BYTES ((size_t)1 << 20)  /* one range of a copy, fill or first touch */
#define PAST_BYTES ((size_t)32 << 20) /* from this size on, copies go past the cache */

struct dev {
    struct dev_head head;
    struct cpu cpu;
    struct dev_cpu_kernels kernels;
    enum cpu_isa isa;
    bool is_bf16; /* products are in bf16 */
    double peak_flops;
    char *scratch; /* all threads' scratch, then cpu.shared */
};

struct stream {
    struct stream_head head;
};

static size_t scratch_bytes(int threads_n)
{
    return (size_t)threads_n * CPU_SCRATCH_BYTES + CPU_SHARED_BYTES;
}

/* ---- memory ---- */

/* A copy (src), or a fill (src NULL). */
struct span {
    char *dst;
    const char *src;
    int byte;
    size_t bytes;
};

static void span_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct span *s = arg;
    size_t at = (size_t)range_i * COPY_BYTES,
           n = s->bytes - at < COPY_BYTES ? s->bytes - at : COPY_BYTES;
    if (s->src && s->bytes >= PAST_BYTES)
        dev_cpu_isa_copy(s->dst + at, s->src + at, n);
    else if (s->src)
        memcpy(s->dst + at, s->src + at, n);
    else
        memset(s->dst + at, s->byte, n);
}

static void span_run(const struct cpu *cpu, struct span s)
{
    /* ranges are counted in int: 2^31 ranges of 1 MiB are beyond any address space */
    thread_pool_run(cpu->pool, (int)((s.bytes + COPY_BYTES - 1) / COPY_BYTES), span_range, &s);
}

/* touch_range — maps new memory, which is already zero: one write for each page is enough, by a
 * thread that will use it. */
static void touch_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct span *s = arg;
    const size_t at = (size_t)range_i * COPY_BYTES,
                 end = s->bytes - at < COPY_BYTES ? s->bytes : at + COPY_BYTES;
    for (size_t i = at; i < end; i += PAGE_BYTES)
        *(volatile char *)(s->dst + i) = 0;
}

static size_t map_bytes(size_t bytes)
{
    size_t unit = bytes >= HUGE_BYTES ? HUGE_BYTES : PAGE_BYTES;
    return (bytes + unit - 1) / unit * unit;
}

/* Maps memory that starts on a huge page: one more page is mapped, and the rest on both sides is
 * unmapped. */
static void *map_aligned(size_t bytes)
{
    size_t slack = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *data =
        mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED || !slack)
        return data;
    size_t head = (HUGE_BYTES - (uintptr_t)data % HUGE_BYTES) % HUGE_BYTES;
    if (head)
        munmap(data, head);
    if (slack - head)
        munmap(data + head + bytes, slack - head);
    /* a hint: without it the pages are small */
    (void)madvise(data + head, bytes, MADV_HUGEPAGE);
    return data + head;
}

static enum status cpu_alloc(struct dev *dev, size_t bytes, void **out)
{
    char text[32];
    if (bytes > PTRDIFF_MAX - 2 * HUGE_BYTES)
        return FAIL(ST_BAD_SETTING, "out of memory: %zu bytes are more than can be addressed",
                    bytes);
    size_t mapped = map_bytes(bytes ? bytes : 1);
    void *data = map_aligned(mapped);
    if (data == MAP_FAILED)
        return FAIL(memory_status((int64_t)bytes),
                    "out of memory: mmap of %s for the device: %s; use a smaller model or batch",
                    text_format_bytes(text, sizeof text, (double)bytes), strerror(errno));
    struct span s = {.dst = data, .bytes = mapped};
    thread_pool_run(dev->cpu.pool, (int)((mapped + COPY_BYTES - 1) / COPY_BYTES), touch_range, &s);
    *out = data;
    return ST_OK;
}

static void cpu_free(struct dev *dev, void *data, size_t bytes)
{
    (void)dev;
    int rc = munmap(data, map_bytes(bytes ? bytes : 1));
    ASSERTF(rc == 0, "munmap of %zu bytes: %s", bytes, strerror(errno));
}

/* ---- streams ---- */

static enum status cpu_stream_open(struct dev *dev, struct stream **out)
{
    struct stream *s = memory_new(1, sizeof *s);
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

static enum status cpu_stream_wait_stream(struct stream *waiting, struct stream *first)
{
    (void)waiting, (void)first; /* all work is done already */
    return ST_OK;
}

static enum status cpu_sync(struct stream *s)
{
    (void)s;
    return ST_OK;
}

/* ---- operations ---- */

#define OP_DEFINE(name)                                                  \
    static enum status op_##name(struct stream *s, const struct name *a) \
    {                                                                    \
        const struct dev *dev = s->head.dev;                             \
        TRY(dev_check_##name(a, false));                                 \
        dev->kernels.name(&dev->cpu, a);                                 \
        return ST_OK;                                                    \
    }
OP_LIST(OP_DEFINE)

#define OP_ROW(name) .name = op_##name,
static const struct op_table cpu_op = {OP_LIST(OP_ROW)};

/* ---- open, info, close ---- */

static void cpu_info(const struct dev *dev, struct dev_info *out)
{
    int threads_n = thread_pool_threads(dev->cpu.pool);
    *out = (struct dev_info){.kind = DEV_KIND_CPU,
                             .free_bytes = -1,
                             .allocated_bytes = -1,
                             .peak_flops = dev->peak_flops,
                             .threads_n = threads_n};
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    out->memory_bytes = pages > 0 ? pages * page_bytes : -1;
    text_format(out->name, sizeof out->name, "cpu %d thread%s %s%s", threads_n,
                threads_n == 1 ? "" : "s", dev_cpu_isa_name(dev->isa), dev->is_bf16 ? " bf16" : "");
}

static void cpu_close(struct dev *dev)
{
    if (dev->scratch)
        cpu_free(dev, dev->scratch, scratch_bytes(thread_pool_threads(dev->cpu.pool)));
    thread_pool_close(dev->cpu.pool);
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
    .stream_wait_stream = cpu_stream_wait_stream,
    .sync = cpu_sync,
};

enum status dev_cpu_open(int threads_n, int isa, struct dev **out)
{
    enum status st;
    enum cpu_isa chosen = CPU_ISA_PLAIN;
    TRY(dev_cpu_isa_choose(isa, &chosen));
    if (threads_n == 0)
        threads_n = thread_pool_cores() < THREAD_POOL_MAX ? thread_pool_cores() : THREAD_POOL_MAX;
    struct dev *dev = memory_new(1, sizeof *dev);
    *dev = (struct dev){
        .head = {&cpu_ops, NULL, &cpu_op}, .kernels = dev_cpu_isa_kernels(chosen), .isa = chosen};
    TRY_OR(thread_pool_open(threads_n, &dev->cpu.pool), out_close);
    void *scratch;
    TRY_OR(cpu_alloc(dev, scratch_bytes(threads_n), &scratch), out_close);
    dev->scratch = scratch;
    for (int i = 0; i < threads_n; i++)
        dev->cpu.scratch[i] = dev->scratch + (size_t)i * CPU_SCRATCH_BYTES;
    dev->cpu.shared = dev->scratch + (size_t)threads_n * CPU_SCRATCH_BYTES;
    dev->peak_flops = dev_cpu_isa_peak(&dev->cpu);
    *out = dev;
    return ST_OK;
out_close:
    cpu_close(dev);
    return st;
}

enum status dev_cpu_bf16(struct dev *dev)
{
    dev->is_bf16 = dev_cpu_isa_bf16(dev->isa, &dev->kernels);
    return dev->is_bf16 ? ST_OK
                        : FAIL(ST_NO_DEVICE,
                               "this processor (%s) has neither AMX tiles nor AVX512_BF16, which "
                               "products of bf16 need; use PRECISION=fp32",
                               dev_cpu_isa_name(dev->isa));
}

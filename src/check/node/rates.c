/* check_node_rates — measures the rates of products and memory on all ranks at the same time, and
 * again if a rate is suspect; also the copies between a GPU and the host. The memory is larger than
 * the caches. A quick check of a CPU does not measure it. */
#include "check/node/inside.h"

#include <stdlib.h>

#include <xxhash.h>

#include "base/memory.h"
#include "base/quantile.h"
#include "base/text.h"
#include "measure/measure_product.h"
#include "measure/measure_ranks.h"

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)
#define SIDE_LEAST 64
#define ELEMS_LEAST 16384
#define ROUNDS 3    /* most repetitions */
#define AGAIN_MS 30 /* milliseconds of the first repetition; doubled each time */
#define SUSPECT 0.9 /* share of the peers' median */

static bool is_product(int kind) { return kind <= CHECK_NODE_KIND_F16; }

static const char *name_of(const struct check_node *n, int kind)
{
    static const char *const names[] = {"product fp32", "product bf16", "product fp16",
                                        "copy bandwidth", "triad bandwidth"};
    return kind == CHECK_NODE_KIND_F32 && n->info.is_tf32 ? "product tf32" : names[kind];
}

/* value_of — returns the rate in *unit_out; 0: not measured. Bytes that are read and bytes that are
 * written both count, as in STREAM. */
static double value_of(const struct check_node *n, int kind, const char **unit_out)
{
    const double seconds = n->rate[kind].seconds, size = (double)n->sizes.of[kind];
    *unit_out = !is_product(kind) ? "GB/s" : n->is_gpu ? "TFLOP/s" : "GFLOP/s";
    if (seconds <= 0)
        return 0;
    if (is_product(kind))
        return 2 * size * size * size / seconds * (n->is_gpu ? 1e-12 : 1e-9);
    return (kind == CHECK_NODE_KIND_COPY ? 8 : 12) * size / seconds * 1e-9;
}

/* ---- one rate ---- */

static enum status run_product(const struct check_node *n, int kind, int64_t side,
                               const struct measure_timer *timer, int64_t limit_ms,
                               struct measure_best *best)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    const struct measure_product product = {
        .kind = MEASURE_PRODUCT_FORWARD, .n = side, .in = side, .out = side, .dtype = dtypes[kind]};
    struct measure_memory memory;
    struct measure_product_run run;
    TRY(measure_memory_open(&memory, n->config->dev, n->timer.stream,
                            measure_product_bytes(&product)));
    enum status st = measure_memory_fill(&memory, product.dtype);
    if (st == ST_OK && measure_product_open(&product, &memory, &run))
        st = measure_time_best(timer, limit_ms, measure_product_work, &run, best);
    measure_memory_close(&memory);
    return st;
}

static enum status run_memory(const struct check_node *n, int kind, int64_t elems,
                              const struct measure_timer *timer, int64_t limit_ms,
                              struct measure_best *best)
{
    struct measure_args t = {.memory = &n->memory};
    const int64_t half = n->memory.bytes / 2 / (int64_t)sizeof(float);
    struct measure_memory_run run = {.memory = &n->memory,
                                     .to = measure_memory_alloc(&t, half, DTYPE_F32),
                                     .from = measure_memory_alloc(&t, half, DTYPE_F32),
                                     .elems = elems};
    return measure_time_best(
        timer, limit_ms, kind == CHECK_NODE_KIND_COPY ? measure_memory_copy : measure_memory_triad,
        &run, best);
}

static enum status run_kind(const struct check_node *n, int kind, int64_t size,
                            const struct measure_timer *timer, int64_t limit_ms,
                            struct measure_best *best)
{
    return is_product(kind) ? run_product(n, kind, size, timer, limit_ms, best)
                            : run_memory(n, kind, size, timer, limit_ms, best);
}

/* ---- sizes ---- */

/* find_size — finds the largest size, growing from `size` by `factor`, at which a run needs less
 * than `longest` seconds. The time is predicted as `more` times the time of the previous size. */
static enum status find_size(const struct check_node *n, int kind, int64_t size, int64_t most,
                             int factor, double more, double longest, int64_t *size_out)
{
    struct measure_timer timer = n->timer;
    timer.slices_min = 2; /* the first slice warms up */
    for (;; size *= factor) {
        struct measure_best best = {0};
        TRY(run_kind(n, kind, size, &timer, 0, &best));
        *size_out = size;
        if (more * best.seconds > longest || factor * size > most)
            return ST_OK;
    }
}

static int64_t side_max(const struct check_node *n)
{
    const bool is_quick = n->config->depth == CHECK_DEPTH_QUICK;
    int64_t side = n->is_gpu ? (is_quick ? 4096 : 8192) : (is_quick ? 512 : 2048);
    while (n->info.free_bytes >= 0 && side > SIDE_LEAST &&
           12 * side * side > n->info.free_bytes / 4)
        side /= 2;
    return side;
}

/* buffer_bytes — returns the bytes of one of two buffers. All workers of a CPU node hold their
 * buffers at the same time. */
static int64_t buffer_bytes(const struct check_node *n)
{
    static const int64_t cpu[] = {0, 64 * MIB, 256 * MIB}, gpu[] = {256 * MIB, 256 * MIB, GIB};
    int64_t bytes = n->is_gpu ? gpu[n->config->depth] : cpu[n->config->depth];
    const int64_t share = n->info.free_bytes / (8 * (n->is_gpu ? 1 : n->config->place.locals));
    while (n->info.free_bytes >= 0 && bytes > MIB && bytes > share)
        bytes /= 2;
    return bytes;
}

/* begin_memory — opens the memory. Only the size for which a slice stays short is used: slow
 * memory, and an emulated GPU, use less. */
static enum status begin_memory(struct check_node *n)
{
    const int64_t bytes = buffer_bytes(n), most = bytes / (int64_t)sizeof(float);
    int64_t elems = 0;
    if (bytes == 0)
        return ST_OK;
    enum status st = measure_memory_open(&n->memory, n->config->dev, n->timer.stream, 2 * bytes);
    if (st == ST_OK)
        st = find_size(n, CHECK_NODE_KIND_TRIAD, ELEMS_LEAST, most, 4, 4, 30e-3, &elems);
    if (st != ST_OK)
        return check_node_failed(n, name_of(n, CHECK_NODE_KIND_TRIAD), st);
    n->sizes.of[CHECK_NODE_KIND_COPY] = n->sizes.of[CHECK_NODE_KIND_TRIAD] = elems;
    return ST_OK;
}

enum status check_node_rates_begin(struct check_node *n)
{
    const double longest = n->config->depth == CHECK_DEPTH_QUICK ? 1.5e-3 : 10e-3;
    for (int kind = 0; is_product(kind) && (kind == 0 || n->is_gpu); kind++) {
        enum status st =
            find_size(n, kind, SIDE_LEAST, side_max(n), 2, 8, longest, &n->sizes.of[kind]);
        if (st == ST_OK)
            continue;
        n->sizes.of[kind] = 0;
        TRY(check_node_failed(n, name_of(n, kind), st));
    }
    return begin_memory(n);
}

static enum status measure_one(struct check_node *n, int kind, int64_t limit_ms)
{
    const int64_t size = n->sizes.of[kind];
    if (size == 0)
        return ST_OK;
    enum status st = run_kind(n, kind, size, &n->timer, limit_ms, &n->rate[kind]);
    if (st == ST_OK)
        return ST_OK;
    n->rate[kind] = (struct measure_best){0};
    n->sizes.of[kind] = 0;
    return check_node_failed(n, name_of(n, kind), st);
}

/* ---- suspects ---- */

/* Message between ranks: ranks with the same kind of device are peers. */
struct told {
    uint64_t device;
    double value[CHECK_NODE_KIND_N]; /* 0: not measured */
};

/* median_of — returns the median of the peers of rank `rank`. values: room for all ranks. */
static double median_of(const struct told *all, int ranks, int rank, int kind, double *values)
{
    int n = 0;
    for (int i = 0; i < ranks; i++)
        if (all[i].device == all[rank].device && all[i].value[kind] > 0)
            values[n++] = all[i].value[kind];
    return n ? quantile_median(values, n) : 0;
}

static enum status gather_rates(const struct check_node *n, struct told *all)
{
    const char *device = n->is_gpu ? n->hardware : "cpu", *unit;
    struct told own = {.device = XXH3_64bits(device, n->is_gpu ? sizeof n->hardware : 3)};
    for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++)
        own.value[kind] = value_of(n, kind, &unit);
    return measure_ranks_gather(n->config->comm, &own, sizeof own, all);
}

static enum status measure_again(struct check_node *n, struct told *all, double *values)
{
    for (int round = 0; round < ROUNDS; round++) {
        bool suspect[CHECK_NODE_KIND_N] = {false}, any = false;
        TRY(gather_rates(n, all));
        /* Find the suspects of this rank, and whether any rank has one, with the same result on all
         * ranks. */
        const int ranks = n->config->place.ranks, rank = n->config->place.rank;
        for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++) {
            uint64_t device = 0;
            double median = 0;
            for (int i = 0; i < ranks; i++) {
                if (i == 0 || all[i].device != device)
                    median = median_of(all, ranks, i, kind, values);
                device = all[i].device;
                const bool is_slow =
                    all[i].value[kind] > 0 && all[i].value[kind] < SUSPECT * median;
                any = any || is_slow;
                if (i == rank)
                    suspect[kind] = is_slow;
            }
        }
        if (!any)
            return ST_OK;
        for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++)
            if (suspect[kind])
                TRY(measure_one(n, kind, AGAIN_MS << round));
    }
    return ST_OK;
}

static enum status measure_suspects(struct check_node *n)
{
    const int ranks = n->config->place.ranks;
    if (!n->config->comm)
        return ST_OK;
    struct told *all = memory_new((size_t)ranks, sizeof *all);
    double *values = memory_new((size_t)ranks, sizeof *values);
    enum status st = measure_again(n, all, values);
    free(all);
    free(values);
    return st;
}

/* ---- rows ---- */

enum status check_node_rates_measure(struct check_node *n)
{
    if (n->config->comm)
        TRY(comm_barrier(n->config->comm));
    for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++)
        TRY(measure_one(n, kind, n->limit_ms));
    TRY(measure_suspects(n));
    /* Add a row for each kind. */
    for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++) {
        char why[128];
        const char *unit;
        const double value = value_of(n, kind, &unit);
        const struct measure_best *best = &n->rate[kind];
        const long long size = (long long)n->sizes.of[kind];
        if (value <= 0)
            continue;
        if (is_product(kind))
            text_format(why, sizeof why, "the best of %d products of %lld x %lld x %lld numbers",
                        best->slices, size, size, size);
        else
            text_format(why, sizeof why, "the best of %d runs over %lld MB", best->slices,
                        size * 4 / 1000000);
        check_node_add(n, name_of(n, kind), unit, value, measure_time_slack(best, value, 0.05),
                       why);
    }
    if (buffer_bytes(n) == 0) {
        struct check_row row = check_row_found(
            CHECK_STAGE_NODE, CHECK_POINT_HOST, n->config->place.node, "copy bandwidth",
            CHECK_VERDICT_SKIPPED, "a quick check does not measure the memory of a CPU");
        row.rank = n->config->place.rank;
        if (row.rank == 0)
            check_row_add(n->rows, &row);
    }
    return ST_OK;
}

/* ---- copies to and from the host ---- */

static enum status measure_way(struct check_node *n, const char *name, void *to, void *from,
                               int64_t elems)
{
    struct measure_best best = {0};
    struct measure_memory_run run = {
        .memory = &n->memory, .to = {to, DTYPE_F32}, .from = {from, DTYPE_F32}, .elems = elems};
    char why[128], size[32];
    TRY(measure_time_best(&n->timer, n->limit_ms, measure_memory_copy, &run, &best));
    const double bytes = (double)elems * sizeof(float), value = bytes / best.seconds * 1e-9;
    text_format(why, sizeof why, "the best of %d copies of %s", best.slices,
                text_format_bytes(size, sizeof size, bytes));
    check_node_add(n, name, "GB/s", value, measure_time_slack(&best, value, 0.05), why);
    return ST_OK;
}

/* measure_host — measures page-locked memory, which checkpoints and collectives also use. */
static enum status measure_host(struct check_node *n)
{
    const int64_t most = (n->config->depth == CHECK_DEPTH_QUICK ? 32 : 128) * MIB / 4;
    int64_t elems = n->sizes.of[CHECK_NODE_KIND_TRIAD];
    void *host = NULL;
    if (elems == 0)
        return ST_OK;
    elems = elems < most ? elems : most;
    TRY(dev_pin(n->config->dev, (size_t)elems * sizeof(float), &host));
    enum status st = measure_way(n, "host to device", n->memory.data, host, elems);
    if (st == ST_OK)
        st = measure_way(n, "device to host", host, n->memory.data, elems);
    dev_unpin(n->config->dev, host);
    return st;
}

enum status check_node_rates_host(struct check_node *n)
{
    const struct check_config *config = n->config;
    for (int turn = 0; turn < config->place.locals; turn++) {
        enum status st = n->is_gpu && turn == config->place.local ? measure_host(n) : ST_OK;
        if (st != ST_OK)
            TRY(check_node_failed(n, "host to device", st));
        if (config->comm && config->place.locals > 1)
            TRY(comm_barrier(config->comm));
    }
    return ST_OK;
}

/* check_node_memory — the bandwidth of a device's memory, and of the way between a GPU and the
 * host. Buffers are larger than caches, except in a quick check of a CPU. */
#include "check/check_node_inside.h"

#include "base/text.h"

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

struct run {
    struct check_node *node;
    size_t bytes;
    void *to, *from;
};

static enum status copy_run(void *arg)
{
    const struct run *m = arg;
    TRY(dev_copy(m->node->stream, m->to, m->from, m->bytes));
    return dev_sync(m->node->stream);
}

/* The device's own multiply-add over memory: an optimiser without moments. */
static enum status triad_run(void *arg)
{
    const struct run *m = arg;
    const struct optim_span span = {.elems = (int64_t)(m->bytes / sizeof(float))};
    const struct sgd a = {.p = {m->to, DTYPE_F32},
                          .g = {m->from, DTYPE_F32},
                          .spans = &span,
                          .spans_n = 1,
                          .lr = 0.5,
                          .step = 1};
    TRY(dev_op(m->node->config->dev)->sgd(m->node->stream, &a));
    return dev_sync(m->node->stream);
}

/* Of one buffer. All workers of a CPU's node hold theirs at once. */
static int64_t bytes_max(const struct check_node *n)
{
    static const int64_t cpu[] = {0, 64 * MIB, 256 * MIB}, gpu[] = {256 * MIB, 256 * MIB, GIB};
    int64_t bytes = n->is_gpu ? gpu[n->config->depth] : cpu[n->config->depth];
    int64_t share = n->info.free_bytes / (8 * (n->is_gpu ? 1 : n->config->place.locals));
    while (n->info.free_bytes >= 0 && bytes > MIB && bytes > share)
        bytes /= 2;
    return bytes;
}

/* As large as a slice stays short: slow memory, and a GPU that is emulated, take less. */
static enum status find_elems(struct check_node *n)
{
    const double slice = 30e-3;
    double seconds = 0;
    struct run m = {.node = n, .to = n->buffer[0], .from = n->buffer[1], .bytes = 65536};
    TRY(check_node_time_once(n, triad_run, &m, &seconds));
    while (4 * seconds < slice && 4 * m.bytes <= n->buffer_bytes) {
        m.bytes *= 4;
        TRY(check_node_time_once(n, triad_run, &m, &seconds));
    }
    n->sizes.elems = (int64_t)(m.bytes / sizeof(float));
    return ST_OK;
}

enum status check_node_memory_begin(struct check_node *n)
{
    n->buffer_bytes = (size_t)bytes_max(n);
    if (n->buffer_bytes == 0)
        return ST_OK;
    enum status st = dev_alloc(n->config->dev, n->buffer_bytes, &n->buffer[0]);
    if (st == ST_OK)
        st = dev_alloc(n->config->dev, n->buffer_bytes, &n->buffer[1]);
    if (st == ST_OK)
        st = find_elems(n);
    return st == ST_OK ? ST_OK : check_node_failed(n, "triad bandwidth", st);
}

void check_node_memory_end(struct check_node *n)
{
    dev_free(n->config->dev, n->buffer[0], n->buffer_bytes);
    dev_free(n->config->dev, n->buffer[1], n->buffer_bytes);
}

const char *check_node_memory_name(enum check_node_kind kind)
{
    return kind == CHECK_NODE_KIND_COPY ? "copy bandwidth" : "triad bandwidth";
}

/* Bytes that are read and those that are written both count, as in STREAM. */
double check_node_memory_value(const struct check_node *n, enum check_node_kind kind,
                               const char **unit_out)
{
    const double bytes = (double)n->sizes.elems * sizeof(float);
    *unit_out = "GB/s";
    return (kind == CHECK_NODE_KIND_COPY ? 2 : 3) * bytes / n->rate[kind].seconds * 1e-9;
}

enum status check_node_memory_rate(struct check_node *n, enum check_node_kind kind,
                                   int64_t limit_ms)
{
    struct run m = {.node = n,
                    .bytes = (size_t)n->sizes.elems * sizeof(float),
                    .to = n->buffer[0],
                    .from = n->buffer[1]};
    return check_node_time_best(n, limit_ms, kind == CHECK_NODE_KIND_COPY ? copy_run : triad_run,
                                &m, &n->rate[kind]);
}

/* ---- the way to the host ---- */

static enum status measure_way(struct check_node *n, const char *name, void *to, void *from,
                               size_t bytes)
{
    struct check_node_best best = {0};
    struct run m = {.node = n, .bytes = bytes, .to = to, .from = from};
    char why[128], size[32];
    TRY(check_node_time_best(n, n->limit_ms, copy_run, &m, &best));
    double value = (double)bytes / best.seconds * 1e-9;
    text_format(why, sizeof why, "the best of %d copies of %s", best.slices,
                text_format_bytes(size, sizeof size, (double)bytes));
    return check_node_add(n, name, "GB/s", value, check_node_time_slack(&best, value), why);
}

/* Page-locked memory, as that of checkpoints and of collectives is. */
static enum status measure_host(struct check_node *n)
{
    const size_t most = (size_t)((n->config->depth == CHECK_DEPTH_QUICK ? 32 : 128) * MIB);
    size_t bytes = (size_t)n->sizes.elems * sizeof(float) < most
                       ? (size_t)n->sizes.elems * sizeof(float)
                       : most;
    void *host = NULL;
    if (bytes == 0)
        return ST_OK;
    TRY(dev_pin(n->config->dev, bytes, &host));
    enum status st = measure_way(n, "host to device", n->buffer[0], host, bytes);
    if (st == ST_OK)
        st = measure_way(n, "device to host", host, n->buffer[0], bytes);
    dev_unpin(n->config->dev, host);
    return st;
}

enum status check_node_memory_host(struct check_node *n)
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

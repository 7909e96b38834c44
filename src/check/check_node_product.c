/* check_node_product — the rate of matrix products, per element type that the device has. Numbers
 * are random: a GPU that multiplies zeros takes less power and runs at a higher clock. */
#include "check/check_node_inside.h"

#include "base/text.h"

#define FILL_BYTES 65536

struct product {
    struct check_node *node;
    int64_t side;
    struct tensor y, x, w;
};

static const enum dtype dtypes[CHECK_NODE_PRODUCTS] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

static bool has_product(const struct check_node *n, int i) { return i == 0 || n->is_gpu; }

const char *check_node_product_name(const struct check_node *n, enum check_node_kind kind)
{
    static const char *const names[] = {"product fp32", "product bf16", "product fp16"};
    return kind == CHECK_NODE_KIND_F32 && n->info.is_tf32 ? "product tf32" : names[kind];
}

double check_node_product_value(const struct check_node *n, enum check_node_kind kind,
                                const char **unit_out)
{
    const double side = (double)n->sizes.side[kind];
    *unit_out = n->is_gpu ? "TFLOP/s" : "GFLOP/s";
    return 2 * side * side * side / n->rate[kind].seconds * (n->is_gpu ? 1e-12 : 1e-9);
}

/* random_bits — numbers of 0.5 … 1 with any sign, of each element type. */
static void random_bits(enum dtype dtype, void *out)
{
    uint32_t state = 2463534242u, *word = out;
    const uint32_t one = dtype == DTYPE_F32    ? 0x3F000000u
                         : dtype == DTYPE_BF16 ? 0x3F003F00u
                                               : 0x38003800u,
                   keep = dtype == DTYPE_F32    ? 0x807FFFFFu
                          : dtype == DTYPE_BF16 ? 0x807F807Fu
                                                : 0x83FF83FFu;
    for (size_t i = 0; i < FILL_BYTES / sizeof *word; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        word[i] = one | (state & keep);
    }
}

static enum status fill(const struct product *p, struct tensor t, size_t bytes)
{
    static _Thread_local uint32_t block[FILL_BYTES / 4];
    random_bits(t.dtype, block);
    for (size_t at = 0; at < bytes; at += FILL_BYTES)
        TRY(dev_copy(p->node->stream, (char *)t.data + at, block,
                     bytes - at < FILL_BYTES ? bytes - at : FILL_BYTES));
    return dev_sync(p->node->stream);
}

static size_t product_bytes(const struct product *p)
{
    return (size_t)(p->side * p->side) * dtype_bytes(p->x.dtype);
}

static void product_close(struct product *p)
{
    struct dev *dev = p->node->config->dev;
    dev_free(dev, p->x.data, product_bytes(p));
    dev_free(dev, p->w.data, product_bytes(p));
    dev_free(dev, p->y.data, product_bytes(p));
}

static enum status product_open(struct check_node *n, int i, int64_t side, struct product *p)
{
    struct dev *dev = n->config->dev;
    const struct tensor none = {NULL, dtypes[i]};
    *p = (struct product){n, side, none, none, none};
    enum status st = dev_alloc(dev, product_bytes(p), &p->y.data);
    if (st == ST_OK)
        st = dev_alloc(dev, product_bytes(p), &p->x.data);
    if (st == ST_OK)
        st = dev_alloc(dev, product_bytes(p), &p->w.data);
    if (st == ST_OK)
        st = fill(p, p->x, product_bytes(p));
    if (st == ST_OK)
        st = fill(p, p->w, product_bytes(p));
    if (st != ST_OK)
        product_close(p);
    return st;
}

static enum status product_run(void *arg)
{
    struct product *p = arg;
    const struct matmul_fwd a = {
        .y = p->y, .x = p->x, .w = p->w, .n = p->side, .in = p->side, .out = p->side};
    TRY(dev_op(p->node->config->dev)->matmul_fwd(p->node->stream, &a));
    return dev_sync(p->node->stream);
}

/* The side doubles, and with it a product takes eight times as long, until a slice would be long,
 * or the largest that memory allows. */
static int64_t side_max(const struct check_node *n)
{
    bool is_quick = n->config->depth == CHECK_DEPTH_QUICK;
    int64_t side = n->is_gpu ? (is_quick ? 4096 : 8192) : (is_quick ? 512 : 2048);
    while (n->info.free_bytes >= 0 && side > 64 && 12 * side * side > n->info.free_bytes / 4)
        side /= 2;
    return side;
}

static enum status find_side(struct check_node *n, int i, int64_t *side_out)
{
    const double slice = n->config->depth == CHECK_DEPTH_QUICK ? 1.5e-3 : 10e-3;
    double seconds = 0;
    for (*side_out = 64;; *side_out *= 2) {
        struct product p;
        TRY(product_open(n, i, *side_out, &p));
        enum status st = check_node_time_once(n, product_run, &p, &seconds);
        product_close(&p);
        if (st != ST_OK || 8 * seconds > slice || 2 * *side_out > side_max(n))
            return st;
    }
}

enum status check_node_product_begin(struct check_node *n)
{
    for (int i = 0; i < CHECK_NODE_PRODUCTS; i++) {
        int64_t side = 0;
        if (!has_product(n, i))
            continue;
        enum status st = find_side(n, i, &side);
        if (st != ST_OK)
            TRY(check_node_failed(n, check_node_product_name(n, (enum check_node_kind)i), st));
        n->sizes.side[i] = st == ST_OK ? side : 0;
    }
    return ST_OK;
}

enum status check_node_product_rate(struct check_node *n, enum check_node_kind kind,
                                    int64_t limit_ms)
{
    struct product p;
    TRY(product_open(n, (int)kind, n->sizes.side[kind], &p));
    enum status st = product_run(&p); /* a first one may load kernels */
    if (st == ST_OK)
        st = check_node_time_best(n, limit_ms, product_run, &p, &n->rate[kind]);
    product_close(&p);
    return st;
}

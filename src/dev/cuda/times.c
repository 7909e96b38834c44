/* dev_cuda_times — measures the time of each operation of a stream on the GPU (CUDA_TIMES=1): an
 * event before it, an event after it, and a table when the stream is closed. Must not know the
 * purpose of the operations.
 *
 * A row of the table is one operation with one shape. The first TIMES_WARM steps are left out if
 * more follow: they load kernels and choose cuBLASLt's algorithms. Pairs of events are read at the
 * end of a step, or when TIMES_PAIRS are in use; the host waits for the device there. A stream with
 * times submits its work one by one, because a graph would repeat the pairs of one step. */
#include "dev/cuda/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/log.h"
#include "base/text.h"
#include "dev/op_cost.h"

#define TIMES_WARM 2
#define TIMES_PAIRS 1024
#define TIMES_ROWS 256 /* operations of further shapes share the last row */

struct times_row {
    const char *op;
    char shape[64];
    int64_t calls;
    double ms, flops, bytes; /* sums of all calls */
};

struct cuda_times {
    struct times_row row[TIMES_ROWS];
    int rows_n;
    struct {
        gpu_event before, after;
        int row_i;
    } pair[TIMES_PAIRS];
    int events_n, pairs_n; /* pairs with events; pairs that wait to be read */
    int64_t steps_n;       /* steps that ended so far */
    bool is_warm;          /* the rows belong to steps after the first TIMES_WARM */
};

void dev_cuda_times_open(struct stream *s)
{
    ASSERT(!s->graphs && !s->times);
    s->times = memory_new(1, sizeof *s->times);
}

/* ---- rows ---- */

static const char *name_of(enum cuda_work work)
{
    return work == CUDA_WORK_FILL   ? "fill"
           : work == CUDA_WORK_COPY ? "copy"
           : work == CUDA_WORK_READ ? "read"
                                    : op_cost_name((enum op_kind)work);
}

/* Returns the work of an operation: for a fill or a copy all its bytes, else the result of
 * op_cost. */
static struct op_cost cost_of(enum cuda_work work, const void *args)
{
    struct op_cost cost = {0};
    if (work == CUDA_WORK_FILL)
        cost.bytes_written = (int64_t)((const struct cuda_fill *)args)->bytes;
    else if (work == CUDA_WORK_COPY || work == CUDA_WORK_READ)
        cost.bytes_read = cost.bytes_written = (int64_t)((const struct cuda_copy *)args)->bytes;
    else
        (void)op_cost((enum op_kind)work, args, &cost);
    if (work == CUDA_WORK_READ)
        cost.bytes_written = 0; /* the data go to the host */
    return cost;
}

/* A shape as text, without spaces: sizes, element type, and fused operations. */
struct shape {
    int64_t size[4]; /* 0: no further size */
    enum dtype dtype;
    const char *form;
};

static const char *form_of_fwd(const struct matmul_fwd *a)
{
    return a->act == MATMUL_ACT_GELU ? ",bias,gelu"
           : a->residual.data        ? ",bias,residual"
           : a->b.data               ? ",bias"
                                     : "";
}

static const char *form_of_bwd_w(const struct matmul_bwd_w *a)
{
    return a->db.data && a->accumulate ? ",db,added"
           : a->db.data                ? ",db"
           : a->accumulate             ? ",added"
                                       : "";
}

#define A(name) ((const struct name *)args)
static struct shape shape_of_product(enum cuda_work work, const void *args)
{
    switch (work) {
    case CUDA_WORK_matmul_fwd:
        return (struct shape){{A(matmul_fwd)->n, A(matmul_fwd)->in, A(matmul_fwd)->out},
                              A(matmul_fwd)->x.dtype,
                              form_of_fwd(args)};
    case CUDA_WORK_matmul_bwd_x:
        return (struct shape){{A(matmul_bwd_x)->n, A(matmul_bwd_x)->in, A(matmul_bwd_x)->out},
                              A(matmul_bwd_x)->dy.dtype,
                              A(matmul_bwd_x)->pre.data ? ",gelu" : ""};
    case CUDA_WORK_matmul_bwd_w:
        return (struct shape){{A(matmul_bwd_w)->n, A(matmul_bwd_w)->in, A(matmul_bwd_w)->out},
                              A(matmul_bwd_w)->dy.dtype,
                              form_of_bwd_w(args)};
    default:
        ASSERTF(false, "work %d has no shape", (int)work);
        return (struct shape){{0}, DTYPE_U8, ""};
    }
}

/* The operations with one size, a number of elements: its member and the tensor of its type. */
#define FLAT_OPS(X)  \
    X(gelu_fwd, x)   \
    X(gelu_bwd, dy)  \
    X(relu2_fwd, x)  \
    X(relu2_bwd, dy) \
    X(drop, x)       \
    X(sum, x)        \
    X(sumsq, x)      \
    X(checksum, x)   \
    X(compress, x)   \
    X(expand, y)     \
    X(cast, x)

/* Attention's sizes are samples, tokens, heads, head width. */
#define ATTENTION_OPS(X) \
    X(attention_fwd)     \
    X(attention_decode)  \
    X(attention_bwd)

static struct shape shape_of(enum cuda_work work, const void *args)
{
    switch (work) {
#define FLAT_CASE(name, of) \
    case CUDA_WORK_##name:  \
        return (struct shape){{A(name)->n}, A(name)->of.dtype, ""};
        FLAT_OPS(FLAT_CASE)
#define ATTENTION_CASE(name)   \
    case CUDA_WORK_##name:     \
        return (struct shape){ \
            {A(name)->b, A(name)->t, A(name)->h, A(name)->d}, A(name)->qkv.dtype, ""};
        ATTENTION_OPS(ATTENTION_CASE)
    case CUDA_WORK_embed_fwd:
        return (struct shape){{A(embed_fwd)->n, A(embed_fwd)->c}, A(embed_fwd)->x.dtype, ""};
    case CUDA_WORK_embed_bwd:
        return (struct shape){{A(embed_bwd)->n, A(embed_bwd)->c}, A(embed_bwd)->dx.dtype, ""};
    case CUDA_WORK_norm_fwd:
        return (struct shape){{A(norm_fwd)->n, A(norm_fwd)->c}, A(norm_fwd)->x.dtype, ""};
    case CUDA_WORK_norm_bwd:
        return (struct shape){{A(norm_bwd)->n, A(norm_bwd)->c},
                              A(norm_bwd)->x.dtype,
                              A(norm_bwd)->dresidual.data ? ",residual" : ""};
    case CUDA_WORK_head_norm_fwd:
        return (struct shape){{A(head_norm_fwd)->n, A(head_norm_fwd)->heads, A(head_norm_fwd)->d},
                              A(head_norm_fwd)->x.dtype,
                              ""};
    case CUDA_WORK_head_norm_bwd:
        return (struct shape){{A(head_norm_bwd)->n, A(head_norm_bwd)->heads, A(head_norm_bwd)->d},
                              A(head_norm_bwd)->x.dtype,
                              ""};
    case CUDA_WORK_rope_table:
        return (struct shape){{A(rope_table)->t, A(rope_table)->rot}, DTYPE_F32, ""};
    case CUDA_WORK_rope:
        return (struct shape){{A(rope)->n, A(rope)->h + A(rope)->hk, A(rope)->rot},
                              A(rope)->x.dtype,
                              A(rope)->inverse ? ",inverse" : ""};
    case CUDA_WORK_swiglu_fwd:
        return (struct shape){{A(swiglu_fwd)->n, A(swiglu_fwd)->f}, A(swiglu_fwd)->gu.dtype, ""};
    case CUDA_WORK_swiglu_bwd:
        return (struct shape){{A(swiglu_bwd)->n, A(swiglu_bwd)->f}, A(swiglu_bwd)->gu.dtype, ""};
    case CUDA_WORK_softcap:
        return (struct shape){{A(softcap)->n, A(softcap)->v}, A(softcap)->x.dtype, ""};
    case CUDA_WORK_xent:
        return (struct shape){
            {A(xent)->n, A(xent)->v}, A(xent)->logits.dtype, A(xent)->want_grad ? ",grad" : ""};
    case CUDA_WORK_qa_xent:
        return (struct shape){{A(qa_xent)->b, A(qa_xent)->t}, A(qa_xent)->logits.dtype, ""};
    case CUDA_WORK_xent_shard:
        return (struct shape){
            {A(xent_shard)->n, A(xent_shard)->v_n}, A(xent_shard)->logits.dtype, ""};
    case CUDA_WORK_xent_join:
        return (struct shape){{A(xent_join)->n, A(xent_join)->v_n, A(xent_join)->shards},
                              A(xent_join)->logits.dtype,
                              A(xent_join)->want_grad ? ",grad" : ""};
    case CUDA_WORK_branch_add:
        return (struct shape){{A(branch_add)->n, A(branch_add)->c}, A(branch_add)->x.dtype, ""};
    case CUDA_WORK_copy_2d:
        return (struct shape){{A(copy_2d)->rows, A(copy_2d)->columns}, A(copy_2d)->x.dtype, ""};
    case CUDA_WORK_grad_scale:
        return (struct shape){{A(grad_scale)->squares_n}, DTYPE_F64, ""};
    case CUDA_WORK_combine:
        return (struct shape){
            {A(combine)->elems, A(combine)->sources_n}, A(combine)->out.dtype, ""};
    case CUDA_WORK_FILL:
        return (struct shape){{(int64_t)A(cuda_fill)->bytes}, DTYPE_U8, ""};
    case CUDA_WORK_COPY:
    case CUDA_WORK_READ:
        return (struct shape){{(int64_t)A(cuda_copy)->bytes}, DTYPE_U8, ""};
    default:
        return shape_of_product(work, args);
    }
}

/* Returns the number of parameters of an optimiser's spans: all buckets of one size share a row. */
static int64_t span_elems(const struct optim_span *span, int64_t n)
{
    int64_t elems = 0;
    for (int64_t i = 0; i < n; i++)
        elems += span[i].elems;
    return elems;
}

static struct shape shape_of_any(enum cuda_work work, const void *args)
{
    switch (work) {
    case CUDA_WORK_adamw:
        return (struct shape){
            {span_elems(A(adamw)->spans, A(adamw)->spans_n)}, A(adamw)->p.dtype, ""};
    case CUDA_WORK_sgd:
        return (struct shape){{span_elems(A(sgd)->spans, A(sgd)->spans_n)}, A(sgd)->p.dtype, ""};
    default:
        return shape_of(work, args);
    }
}
#undef A

/* Writes sizes such as "65536x768x2304". */
static void text_sizes(const struct shape *shape, char *out, size_t cap)
{
    out[0] = 0;
    for (int i = 0; i < 4 && (i == 0 || shape->size[i] > 0); i++) {
        size_t used = strlen(out);
        text_format(out + used, cap - used, "%s%lld", i > 0 ? "x" : "", (long long)shape->size[i]);
    }
}

/* Returns the row of this operation and shape; adds a new one if there is none. */
static int row_of(struct cuda_times *t, enum cuda_work work, const void *args)
{
    struct times_row row = {.op = name_of(work)};
    struct shape shape = shape_of_any(work, args);
    static const char *const type[DTYPE_N] = {"fp32", "bf16", "fp16", "fp64", "int32", "bytes"};
    char sizes[48];
    text_sizes(&shape, sizes, sizeof sizes);
    text_format(row.shape, sizeof row.shape, "%s,%s%s", sizes, type[shape.dtype], shape.form);
    for (int i = 0; i < t->rows_n; i++)
        if (strcmp(t->row[i].op, row.op) == 0 && strcmp(t->row[i].shape, row.shape) == 0)
            return i;
    if (t->rows_n == TIMES_ROWS) {
        t->row[TIMES_ROWS - 1].op = "others";
        text_copy(t->row[TIMES_ROWS - 1].shape, sizeof row.shape, "-");
        return TIMES_ROWS - 1;
    }
    t->row[t->rows_n] = row;
    return t->rows_n++;
}

/* ---- events ---- */

/* Waits for the device, and adds the times of the open pairs to their rows. */
static enum status collect_times(struct cuda_times *t)
{
    for (int i = 0; i < t->pairs_n; i++) {
        float ms = 0;
        CUDA_CHECK(dev_runtime->EventSynchronize(t->pair[i].after));
        CUDA_CHECK(dev_runtime->EventElapsedTime(&ms, t->pair[i].before, t->pair[i].after));
        t->row[t->pair[i].row_i].ms += (double)ms;
    }
    t->pairs_n = 0;
    return ST_OK;
}

/* Ensures that a pair of events is free. */
static enum status next_pair(struct cuda_times *t)
{
    if (t->pairs_n == TIMES_PAIRS)
        TRY(collect_times(t));
    if (t->pairs_n < t->events_n)
        return ST_OK;
    CUDA_CHECK(dev_runtime->EventCreateWithFlags(&t->pair[t->events_n].before, GPU_EVENT_DEFAULT));
    gpu_error error =
        dev_runtime->EventCreateWithFlags(&t->pair[t->events_n].after, GPU_EVENT_DEFAULT);
    if (error != GPU_SUCCESS) {
        (void)dev_runtime->EventDestroy(t->pair[t->events_n].before);
        return dev_cuda_error_fail(error, "creating an event for CUDA_TIMES");
    }
    t->events_n++;
    return ST_OK;
}

static void forget_rows(struct cuda_times *t)
{
    for (int i = 0; i < t->rows_n; i++)
        t->row[i].calls = 0, t->row[i].ms = t->row[i].flops = t->row[i].bytes = 0;
    t->is_warm = true;
}

enum status dev_cuda_times_before(struct stream *s, enum cuda_work work, const void *args)
{
    struct cuda_times *t = s->times;
    if (t->steps_n == TIMES_WARM && !t->is_warm)
        forget_rows(t);
    TRY(next_pair(t));
    struct op_cost cost = cost_of(work, args);
    int row_i = row_of(t, work, args);
    struct times_row *row = &t->row[row_i];
    t->pair[t->pairs_n].row_i = row_i;
    row->calls++;
    row->flops += (double)cost.flops;
    row->bytes += (double)cost.bytes_read + (double)cost.bytes_written;
    CUDA_CHECK(dev_runtime->EventRecord(t->pair[t->pairs_n].before, s->stream));
    return ST_OK;
}

enum status dev_cuda_times_after(struct stream *s)
{
    CUDA_CHECK(dev_runtime->EventRecord(s->times->pair[s->times->pairs_n].after, s->stream));
    s->times->pairs_n++;
    return ST_OK;
}

enum status dev_cuda_times_step(struct stream *s)
{
    if (!s->times)
        return ST_OK;
    s->times->steps_n++;
    return collect_times(s->times);
}

/* ---- the table ---- */

static int slower_first(const void *a, const void *b)
{
    double x = ((const struct times_row *)a)->ms, y = ((const struct times_row *)b)->ms;
    return (x < y) - (x > y);
}

/* Logs a row. The rate of a product is in TFLOP/s, of other operations in GB/s; "-": the events
 * measured no time. */
static void log_row(const struct times_row *row, double steps, double all_ms)
{
    char rate[32] = "- -";
    bool is_product = row->flops > 0;
    if (row->ms > 0)
        text_format(rate, sizeof rate, "%.1f %s",
                    (is_product ? row->flops * 1e-3 : row->bytes) / row->ms * 1e-6,
                    is_product ? "TFLOP/s" : "GB/s");
    LOG_INFO("times: %-16s %-34s %8.1f %10.4f %6.2f %% %s", row->op, row->shape,
             (double)row->calls / steps, row->ms / steps, row->ms / all_ms * 100, rate);
}

static void log_table(struct cuda_times *t)
{
    int64_t steps = t->is_warm ? t->steps_n - TIMES_WARM : t->steps_n;
    double all_ms = 0;
    for (int i = 0; i < t->rows_n; i++)
        all_ms += t->row[i].ms;
    if (steps == 0 || !(all_ms > 0)) {
        LOG_WARN("CUDA_TIMES=1: no step ended, so there are no times of operations");
        return;
    }
    qsort(t->row, (size_t)t->rows_n, sizeof *t->row, slower_first);
    LOG_INFO("times of operations: the mean of %lld steps%s; all operations of a step need %.3f ms",
             (long long)steps, t->is_warm ? "" : ", the first ones, which also load kernels",
             all_ms / (double)steps);
    LOG_INFO("times: %-16s %-34s %8s %10s %8s %s", "operation", "shape", "calls", "ms", "share",
             "rate");
    for (int i = 0; i < t->rows_n; i++)
        if (t->row[i].calls > 0)
            log_row(&t->row[i], (double)steps, all_ms);
}

void dev_cuda_times_close(struct cuda_times *t)
{
    if (!t)
        return;
    log_table(t);
    for (int i = 0; i < t->events_n; i++) {
        (void)dev_runtime->EventDestroy(t->pair[i].before);
        (void)dev_runtime->EventDestroy(t->pair[i].after);
    }
    free(t);
}

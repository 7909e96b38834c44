/* dev_cuda_attention — chooses the kernels of a stream's attention (cuda/cuda.h): a table of the
 * shapes for which cuDNN is expected to be faster, the choice of the user, and one line in the log.
 * Must not know cuDNN's objects. */
#include "dev/cuda/internal.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "dev/cudnn/cudnn.h"
#include "kernels/attention_sample.h"

/* ---- the shapes for which cuDNN is expected to be faster ---- */

/* An operation, in the terms of the table. */
struct asked {
    int sm; /* 90: compute capability 9.0; 0: any chip */
    enum dtype dtype;
    int64_t d, t;
    bool is_backward, is_atomic;
};

/* Operations that ATTENTION=auto computes by cuDNN. No row was measured yet: each follows the
 * estimates of docs/decisions/028-*.md and 079-*.md. The deterministic backward pass has no row,
 * because it moves all B·H·T·T scores through memory. cuDNN has no backward pass of heads over 128
 * on Blackwell. */
struct row {
    int sm_first, sm_last;
    int64_t d_first, d_last, t_first, t_last;
    bool is_forward, is_atomic_backward;
};
static const struct row table[] = {
    {90, 90, 64, 256, 512, 65536, true, true},    /* Hopper: WGMMA, which own kernels lack */
    {100, 103, 64, 256, 512, 65536, true, false}, /* Blackwell: TCGEN05, the same */
    {100, 103, 64, 128, 512, 65536, false, true},
};

static bool is_in_table(const struct asked *x)
{
    bool is_found = false, is_16 = x->dtype == DTYPE_BF16 || x->dtype == DTYPE_F16;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct row *r = &table[i];
        is_found |= is_16 && (x->sm == 0 || (x->sm >= r->sm_first && x->sm <= r->sm_last)) &&
                    x->d >= r->d_first && x->d <= r->d_last && x->t >= r->t_first &&
                    x->t <= r->t_last &&
                    (x->is_backward ? x->is_atomic && r->is_atomic_backward : r->is_forward);
    }
    return is_found;
}

/* ---- memory ---- */

#define MARGIN_BYTES ((int64_t)64 << 10) /* memory of the engine itself, and alignment */

/* Returns the scratch in bytes that cuDNN's engines need for the backward pass of one sample.
 * test_cudnn_real_cuda.c compares it with the library's own figures. Engines before Hopper have a
 * second sum. */
static int64_t sample_bytes(bool is_atomic, const struct dev_cuda_attention_shape *x)
{
    const int64_t rows = x->h * x->t, halves = 2, f32 = 4;
    return f32 * rows + (is_atomic ? 2 * f32 * rows * x->d : halves * rows * x->t) +
           (x->hk < x->h ? 2 * halves * rows * x->d : 0) + MARGIN_BYTES;
}

bool dev_cuda_attention_is_own(enum dev_cuda_attention by, bool is_atomic, bool is_backward,
                               const struct dev_cuda_attention_shape *shape)
{
    const struct asked x = {0, shape->dtype, shape->d, shape->t, is_backward, is_atomic};
    return by == DEV_CUDA_ATTENTION_OWN || (by == DEV_CUDA_ATTENTION_AUTO && !is_in_table(&x));
}

int64_t dev_cuda_attention_bytes(enum dev_cuda_attention by, bool is_atomic,
                                 const struct dev_cuda_attention_shape *shape)
{
    const bool is_own = dev_cuda_attention_is_own(by, is_atomic, true, shape);
    const int64_t bytes = is_own ? 0 : sample_bytes(is_atomic, shape);
    return bytes > (int64_t)CUDA_SCRATCH_BYTES ? bytes : 0;
}

void dev_cuda_attention(struct dev *dev, enum dev_cuda_attention by, bool is_atomic)
{
    dev->attention = by;
    dev->is_atomic = is_atomic;
}

enum status dev_cuda_attention_find(char *about, size_t cap)
{
    TRY(dev_cuda_check_built());
    return cudnn_find(about, cap);
}

struct cuda_attention {
    struct cudnn *cudnn; /* NULL: the library is missing */
    char reason[600];    /* the reason if cudnn is NULL */
    struct dev *dev;
    void *scratch; /* NULL: the stream's scratch was enough so far, or there was no memory */
    size_t scratch_bytes;
    bool has_asked; /* scratch was requested */
};

/* ---- the choice ---- */

/* Logs the kernels once for each process and direction; `why` NULL: cuDNN. */
static void log_kernels(const struct stream *s, bool is_backward, const char *why)
{
    static atomic_bool is_told[2][2];
    const char *what = is_backward ? "backward" : "forward";
    if (atomic_exchange(&is_told[is_backward][!why], true))
        return;
    if (why && s->attention && why == s->attention->reason)
        LOG_WARN("attention %s: own kernels, which are slower (GPT-2 124M on an H100, forward: an "
                 "estimated 6.5 instead of 3.7 ms a step): %s",
                 what, why);
    else if (why)
        LOG_INFO("attention %s: own kernels, because %s", what, why);
    else
        LOG_INFO("attention %s: cuDNN %s, %s%s", what, cudnn_about(s->attention->cudnn),
                 cudnn_how(s->attention->cudnn),
                 is_backward && s->head.dev->is_atomic ? ", by atomic additions" : "");
}

/* Looks for the library, once for each stream. */
static enum status open_cudnn(struct stream *s)
{
    if (s->attention)
        return ST_OK;
    struct cuda_attention *x = memory_new(1, sizeof *x);
    s->attention = x;
    x->dev = s->head.dev;
    if (!s->is_captured && cudnn_open(s->stream, &x->cudnn) == ST_OK)
        return ST_OK;
    text_copy(x->reason, sizeof x->reason, status_message());
    if (s->head.dev->attention == DEV_CUDA_ATTENTION_CUDNN)
        return FAIL(ST_NO_DEVICE, "ATTENTION=cudnn: %s", x->reason);
    return ST_OK;
}

void dev_cuda_attention_close(struct cuda_attention *x)
{
    if (x)
        cudnn_close(x->cudnn);
    if (x && x->scratch)
        dev_free(x->dev, x->scratch, x->scratch_bytes);
    free(x);
}

/* Returns the reason why the program's kernel computes this operation before cuDNN is tried, or
 * NULL. */
static const char *why_own(enum dev_cuda_attention by, const struct asked *x)
{
    struct asked atomic = *x;
    atomic.is_atomic = true;
    if (!dev_runtime->has_cudnn)
        return "AMD GPUs have no cuDNN";
    if (by == DEV_CUDA_ATTENTION_OWN)
        return "ATTENTION=own";
    if (by == DEV_CUDA_ATTENTION_CUDNN || is_in_table(x))
        return NULL;
    return is_in_table(&atomic)
               ? "cuDNN's deterministic form stores all scores (DETERMINISTIC=0: another form)"
               : "no row of the table has this chip, type and shape";
}

/* Finds the library. *out NULL: the program's kernel computes this operation. */
static enum status library_for(struct stream *s, const struct asked *x, struct cudnn **out)
{
    const char *why = why_own(s->head.dev->attention, x);
    *out = NULL;
    if (why) {
        log_kernels(s, x->is_backward, why);
        return ST_OK;
    }
    TRY(open_cudnn(s));
    *out = s->attention->cudnn;
    if (!*out)
        log_kernels(s, x->is_backward, s->attention->reason);
    return ST_OK;
}

/* Logs the result of cuDNN's call. If cuDNN did not compute and ATTENTION=cudnn, that is an
 * error. */
static enum status report_result(const struct stream *s, const struct asked *x, bool is_done)
{
    const char *why = is_done ? NULL : cudnn_reason(s->attention->cudnn);
    if (why && s->head.dev->attention == DEV_CUDA_ATTENTION_CUDNN)
        return FAIL(ST_BAD_SETTING,
                    "ATTENTION=cudnn: cuDNN does not compute attention %s here: %s; "
                    "use ATTENTION=auto",
                    x->is_backward ? "backward" : "forward", why);
    log_kernels(s, x->is_backward, why);
    return ST_OK;
}

static int chip_of(const struct stream *s)
{
    const struct gpu_props *prop = &s->head.dev->prop;
    return 10 * prop->major + prop->minor;
}

enum status dev_cuda_attention_fwd(struct stream *s, const void *args)
{
    const struct attention_fwd *a = args;
    const struct asked x = {chip_of(s), a->qkv.dtype, a->d, a->t, false, false};
    struct cudnn *c = NULL;
    bool is_done = false;
    TRY(library_for(s, &x, &c));
    if (c) {
        TRY(cudnn_attention_fwd(c, &s->cuda, a, s->is_captured, &is_done));
        TRY(report_result(s, &x, is_done));
    }
    return is_done ? ST_OK
                   : dev_cuda_error_launched(dev_runtime->launch_attention_fwd(&s->cuda, a),
                                             "attention_fwd");
}

/* Returns the struct cuda for cuDNN. If one sample needs more scratch than the stream has, it is
 * allocated, once; a CUDA graph may hold its address, so it does not move. Without memory for it
 * cuDNN finds no plan. */
static struct cuda cuda_for(struct stream *s, const struct attention_bwd *a)
{
    struct cuda_attention *x = s->attention;
    struct cuda cuda = s->cuda;
    const struct dev_cuda_attention_shape shape = {a->t, a->h, a->hk, a->d, a->qkv.dtype};
    const int64_t bytes =
        cudnn_may_bwd(x->cudnn, a, x->dev->is_atomic)
            ? dev_cuda_attention_bytes(x->dev->attention, x->dev->is_atomic, &shape)
            : 0;
    if (bytes > 0 && !x->has_asked && !s->is_captured) {
        x->has_asked = true;
        if (dev_alloc(x->dev, (size_t)bytes, &x->scratch) == ST_OK)
            x->scratch_bytes = (size_t)bytes;
        else {
            LOG_WARN("attention backward: cuDNN has no scratch: %s", status_message());
            status_clear();
        }
    }
    if (bytes > 0 && x->scratch) {
        cuda.scratch = x->scratch;
        cuda.scratch_bytes = x->scratch_bytes;
    }
    return cuda;
}

enum status dev_cuda_attention_bwd(struct stream *s, const void *args)
{
    const struct attention_bwd *a = args;
    const bool is_atomic = s->head.dev->is_atomic;
    const struct asked x = {chip_of(s), a->qkv.dtype, a->d, a->t, true, is_atomic};
    struct cudnn *c = NULL;
    bool is_done = false;
    TRY(library_for(s, &x, &c));
    if (c) {
        const struct cuda cuda = cuda_for(s, a);
        TRY(cudnn_attention_bwd(c, &cuda, a, is_atomic, s->is_captured, &is_done));
        TRY(report_result(s, &x, is_done));
    }
    return is_done ? ST_OK
                   : dev_cuda_error_launched(dev_runtime->launch_attention_bwd(&s->cuda, a),
                                             "attention_bwd");
}

/* ---- dropout of own heads ---- */

enum status dev_cuda_attention_fwd_apart(struct stream *s, const void *args, bool *is_done)
{
    const struct attention_fwd *a = args;
    *is_done = attention_is_by_sample(&a->dropout, a->heads_whole);
    for (int64_t b = 0; *is_done && b < a->b; b++) {
        const struct attention_fwd one = attention_fwd_sample(a, b);
        TRY(dev_op(s->head.dev)->attention_fwd(s, &one));
    }
    return ST_OK;
}

enum status dev_cuda_attention_bwd_apart(struct stream *s, const void *args, bool *is_done)
{
    const struct attention_bwd *a = args;
    *is_done = attention_is_by_sample(&a->dropout, a->heads_whole);
    for (int64_t b = 0; *is_done && b < a->b; b++) {
        const struct attention_bwd one = attention_bwd_sample(a, b);
        TRY(dev_op(s->head.dev)->attention_bwd(s, &one));
    }
    return ST_OK;
}

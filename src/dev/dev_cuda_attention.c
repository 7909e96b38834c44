/* dev_cuda_attention — by what a stream computes attention (dev_cuda.h): a table of what is
 * expected to be faster, the choice of the user, and one line in the log. Must not know cuDNN's
 * objects. */
#include "dev/dev_cuda_internal.h"

#ifndef CONVOY_CUDA
void dev_cuda_attention(struct dev *dev, enum dev_cuda_attention by) { (void)dev, (void)by; }

enum status dev_cuda_attention_find(char *about, size_t cap)
{
    return dev_cuda_blas(about, cap); /* which says that there is no CUDA here */
}
#else
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"
#include "dev/cudnn.h"
#include "kernels/attention_sample.h"

void dev_cuda_attention(struct dev *dev, enum dev_cuda_attention by) { dev->attention = by; }

enum status dev_cuda_attention_find(char *about, size_t cap) { return cudnn_find(about, cap); }

struct cuda_attention {
    struct cudnn *cudnn; /* NULL: the library is not there */
    char reason[600];    /* then: why */
};

/* What is asked for, in words of the table. */
struct asked {
    int sm; /* 90: compute capability 9.0 */
    enum dtype dtype;
    int64_t d, t;
    bool is_backward;
};

/* Where ATTENTION=auto takes cuDNN. No row was measured yet: each follows the estimates of
 * docs/decisions/028-attention-by-cudnn.md. Backward has no row, because cuDNN's deterministic form
 * moves all B·H·T·T scores through memory. */
struct row {
    int sm_first, sm_last;
    int64_t d_first, d_last, t_first, t_last;
    bool is_forward, is_backward;
};
static const struct row table[] = {
    {90, 90, 64, 128, 512, 4096, true, false},   /* Hopper: WGMMA, which own kernels do not use */
    {100, 103, 64, 128, 512, 4096, true, false}, /* Blackwell: TCGEN05, the same */
};

static bool is_in_table(const struct asked *x)
{
    bool is_found = false;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct row *r = &table[i];
        is_found |= x->sm >= r->sm_first && x->sm <= r->sm_last && x->d >= r->d_first &&
                    x->d <= r->d_last && x->t >= r->t_first && x->t <= r->t_last &&
                    (x->dtype == DTYPE_BF16 || x->dtype == DTYPE_F16) &&
                    (x->is_backward ? r->is_backward : r->is_forward);
    }
    return is_found;
}

/* tell — once for a process and a direction; `why` NULL: by cuDNN. */
static void tell(const struct stream *s, bool is_backward, const char *why)
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
        LOG_INFO("attention %s: cuDNN %s, %s", what, cudnn_about(s->attention->cudnn),
                 cudnn_how(s->attention->cudnn));
}

/* open — looks for the library once for a stream. */
static enum status open_cudnn(struct stream *s)
{
    if (s->attention)
        return ST_OK;
    struct cuda_attention *x = calloc(1, sizeof *x);
    if (!x)
        return FAIL(ST_RETRY, "out of memory: %zu bytes", sizeof *x);
    s->attention = x;
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
    free(x);
}

/* library_for — *out NULL: the program's kernel takes this one. */
static enum status library_for(struct stream *s, const struct asked *x, struct cudnn **out)
{
    enum dev_cuda_attention by = s->head.dev->attention;
    *out = NULL;
    if (by == DEV_CUDA_ATTENTION_OWN || (by == DEV_CUDA_ATTENTION_AUTO && !is_in_table(x))) {
        tell(s, x->is_backward,
             by == DEV_CUDA_ATTENTION_OWN ? "ATTENTION=own"
                                          : "no row of the table has this chip, type and shape");
        return ST_OK;
    }
    TRY(open_cudnn(s));
    *out = s->attention->cudnn;
    if (!*out)
        tell(s, x->is_backward, s->attention->reason);
    return ST_OK;
}

/* settle — what becomes of cuDNN's answer. */
static enum status settle(const struct stream *s, const struct asked *x, bool is_done)
{
    const char *why = is_done ? NULL : cudnn_reason(s->attention->cudnn);
    if (why && s->head.dev->attention == DEV_CUDA_ATTENTION_CUDNN)
        return FAIL(ST_BAD_SETTING,
                    "ATTENTION=cudnn: cuDNN does not compute attention %s here: %s; "
                    "use ATTENTION=auto",
                    x->is_backward ? "backward" : "forward", why);
    tell(s, x->is_backward, why);
    return ST_OK;
}

static int chip_of(const struct stream *s)
{
    const struct cudaDeviceProp *prop = &s->head.dev->prop;
    return 10 * prop->major + prop->minor;
}

enum status dev_cuda_attention_fwd(struct stream *s, const void *args)
{
    const struct attention_fwd *a = args;
    const struct asked x = {chip_of(s), a->qkv.dtype, a->d, a->t, false};
    struct cudnn *c = NULL;
    bool is_done = false;
    TRY(library_for(s, &x, &c));
    if (c) {
        TRY(cudnn_attention_fwd(c, &s->cuda, a, s->is_captured, &is_done));
        TRY(settle(s, &x, is_done));
    }
    return is_done ? ST_OK
                   : dev_cuda_error_launched(attention_fwd_cuda(&s->cuda, a), "attention_fwd");
}

enum status dev_cuda_attention_bwd(struct stream *s, const void *args)
{
    const struct attention_bwd *a = args;
    const struct asked x = {chip_of(s), a->qkv.dtype, a->d, a->t, true};
    struct cudnn *c = NULL;
    bool is_done = false;
    TRY(library_for(s, &x, &c));
    if (c) {
        TRY(cudnn_attention_bwd(c, &s->cuda, a, s->is_captured, &is_done));
        TRY(settle(s, &x, is_done));
    }
    return is_done ? ST_OK
                   : dev_cuda_error_launched(attention_bwd_cuda(&s->cuda, a), "attention_bwd");
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
#endif

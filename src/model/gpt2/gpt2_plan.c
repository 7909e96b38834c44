/* gpt2_plan — memory for activations and scratch of a GPT-2 pass (gpt2_acts.h), and how many
 * floating point operations it takes. */
#include <stdlib.h>

#include "base/assert.h"
#include "model/gpt2/gpt2.h"

/* Rows of a chunk of logits. Each chunk reads the token embedding twice, and reads and writes its
 * gradient once, so chunks are few and large: 512 rows of 50,272 are 98 MiB. 16-bit types are for
 * devices with thousands of threads: 8192 rows are 786 MiB, and the product fills the device. */
#define LOGITS_ROWS 512
#define LOGITS_ROWS_HALF 8192
/* A row of logits begins at a whole line of a GPU's cache: GPT-2's 50257 become 50304 in 16 bits.
 * No kernel touches the padding. */
#define LOGITS_ALIGN_BYTES 128

double gpt2_plan_flops_per_token(const struct model_dims *dims, int64_t t)
{
    double c = (double)dims->embed, layers = (double)dims->layers;
    double outputs = dims->task == MODEL_TASK_LM ? (double)dims->vocab : 2;
    return 6 * (12 * layers * c * c + outputs * c) + 6 * layers * c * (double)t;
}

static struct tensor take(struct arena *a, int64_t elems, enum dtype dtype)
{
    return (struct tensor){arena_take(a, (size_t)elems * dtype_bytes(dtype)), dtype};
}

/* A block's tensors in three groups; a group that all blocks share is taken once, from scratch. */
static void take_attention(struct gpt2_acts_block *out, struct arena *from,
                           const struct gpt2_acts *m, int64_t c, int64_t heads)
{
    int64_t n = m->b * m->t;
    out->qkv = take(from, n * 3 * c, m->dtype);
    out->att = take(from, n * c, m->dtype);
    out->lse = take(from, n * heads, DTYPE_F32);
}

static void take_rest(struct gpt2_acts_block *out, struct arena *from, const struct gpt2_acts *m,
                      int64_t c)
{
    int64_t n = m->b * m->t;
    out->ln1_mean = take(from, n, DTYPE_F32);
    out->ln1_rstd = take(from, n, DTYPE_F32);
    out->mid = take(from, n * c, m->dtype);
    out->ln2_mean = take(from, n, DTYPE_F32);
    out->ln2_rstd = take(from, n, DTYPE_F32);
    out->pre = take(from, n * 4 * c, m->dtype);
}

/* take_outputs — of LayerNorm and GELU. */
static void take_outputs(struct gpt2_acts_block *out, struct arena *from, const struct gpt2_acts *m,
                         int64_t c)
{
    int64_t n = m->b * m->t;
    out->ln1 = take(from, n * c, m->dtype);
    out->ln2 = take(from, n * c, m->dtype);
    out->gelu = take(from, n * 4 * c, m->dtype);
}

static void plan_blocks(struct gpt2_acts *m, const struct model_dims *dims,
                        enum model_recompute recompute, struct arena *acts, struct arena *scratch)
{
    int64_t n = m->b * m->t, c = dims->embed;
    bool keeps_rest = m->want_grad && recompute != MODEL_RECOMPUTE_BLOCK;
    bool keeps_attention = keeps_rest && recompute != MODEL_RECOMPUTE_ATTENTION;
    bool keeps_outputs = keeps_attention && recompute != MODEL_RECOMPUTE_LIGHT;
    struct gpt2_acts_block shared = {.ln1 = m->y, .ln2 = m->y, .gelu = m->wide};
    if (!keeps_attention)
        take_attention(&shared, scratch, m, c, dims->heads);
    if (!keeps_rest)
        take_rest(&shared, scratch, m, c);
    for (int64_t i = 0; i < dims->layers; i++) {
        struct gpt2_acts_block *block = &m->block[i];
        *block = shared;
        block->x = m->want_grad || i < 2 ? take(acts, n * c, m->dtype) : m->block[i - 2].x;
        if (keeps_attention)
            take_attention(block, acts, m, c, dims->heads);
        if (keeps_rest)
            take_rest(block, acts, m, c);
        if (keeps_outputs)
            take_outputs(block, acts, m, c);
    }
    m->out = m->want_grad || dims->layers < 2 ? take(acts, n * c, m->dtype)
                                              : m->block[dims->layers - 2].x;
}

enum status gpt2_plan(const struct model_dims *dims, int64_t b, int64_t t,
                      enum model_recompute recompute, bool want_grad, enum dtype dtype,
                      struct arena *acts, struct arena *scratch, struct model_acts **out)
{
    struct gpt2_acts *m = calloc(1, sizeof *m + (size_t)dims->layers * sizeof *m->block);
    if (!m)
        return FAIL(ST_RETRY,
                    "out of memory: the plan of %lld layers; use a machine with more memory",
                    (long long)dims->layers);
    int64_t n = b * t, c = dims->embed, wide_elems = n * 4 * c;
    int64_t logits_rows = dtype == DTYPE_F32 ? LOGITS_ROWS : LOGITS_ROWS_HALF,
            align = LOGITS_ALIGN_BYTES / (int64_t)dtype_bytes(dtype);
    m->b = b;
    m->t = t;
    m->dtype = dtype;
    m->want_grad = want_grad;
    m->block = (struct gpt2_acts_block *)(m + 1);
    m->lnf_mean = take(acts, n, DTYPE_F32);
    m->lnf_rstd = take(acts, n, DTYPE_F32);
    m->y = take(scratch, n * c, dtype);
    m->dx = want_grad ? take(scratch, n * c, dtype) : (struct tensor){0};
    if (dims->task == MODEL_TASK_LM) {
        m->logits_rows = n < logits_rows ? n : logits_rows;
        m->logits_stride = (dims->vocab + align - 1) / align * align;
        if (m->logits_rows * m->logits_stride > wide_elems)
            wide_elems = m->logits_rows * m->logits_stride;
    }
    m->wide = take(scratch, wide_elems, dtype);
    plan_blocks(m, dims, recompute, acts, scratch);
    *out = (struct model_acts *)m;
    return ST_OK;
}

void gpt2_plan_kv_cache(const struct model_dims *dims, struct model_acts *plan, struct arena *acts)
{
    struct gpt2_acts *m = (struct gpt2_acts *)plan;
    ASSERTF(m->b == 1 && !m->want_grad, "b %lld", (long long)m->b);
    /* the first block keeps the shared one */
    for (int64_t i = 1; i < dims->layers; i++)
        m->block[i].qkv = take(acts, m->t * 3 * dims->embed, m->dtype);
}

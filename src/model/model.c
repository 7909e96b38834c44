/* model — presets, bounds, counts of work, and where a pass keeps its numbers. The mathematics is
 * in one file per architecture. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "model/gpt2/gpt2.h"

/* Rows of logits that exist at a time. Each chunk reads the token embedding twice and its gradient
 * once, and writes that, so few large chunks; 512 rows of 50,272 are 98 MiB. 16-bit numbers are for
 * devices with thousands of threads: 8192 rows are 786 MiB, and the product fills the device. */
#define LOGITS_ROWS 512
#define LOGITS_ROWS_HALF 8192
#define DIM_MAX ((int64_t)1 << 24)

bool model_preset(const char *name, struct model_dims *out)
{
    static const struct {
        const char *name;
        int layers, heads, embed;
    } preset[] = {{"gpt2-nano", 4, 4, 128},     {"gpt2-mini", 6, 6, 384},
                  {"gpt2", 12, 12, 768},        {"gpt2-medium", 24, 16, 1024},
                  {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}};
    for (size_t i = 0; i < sizeof preset / sizeof *preset; i++) {
        if (strcmp(name, preset[i].name) != 0)
            continue;
        *out = (struct model_dims){.layers = preset[i].layers,
                                   .heads = preset[i].heads,
                                   .embed = preset[i].embed,
                                   .context = 1024,
                                   .vocab = 50257};
        return text_copy(out->name, sizeof out->name, name);
    }
    return false;
}

enum status model_check(const struct model_dims *dims)
{
    const struct {
        const char *name;
        int64_t value, max;
    } row[] = {{"LAYERS", dims->layers, 4096},
               {"HEADS", dims->heads, 65536},
               {"EMBED", dims->embed, 1 << 20},
               {"CONTEXT", dims->context, DIM_MAX},
               {"VOCAB", dims->vocab, DIM_MAX}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].value < 1 || row[i].value > row[i].max)
            return FAIL(ST_BAD_SETTING, "%s is %lld, outside 1 … %lld; set it within", row[i].name,
                        (long long)row[i].value, (long long)row[i].max);
    if (dims->embed % dims->heads != 0)
        return FAIL(ST_BAD_SETTING,
                    "HEADS=%lld does not divide EMBED=%lld; choose a number of heads that does",
                    (long long)dims->heads, (long long)dims->embed);
    return ST_OK;
}

double model_flops_per_token(const struct model_dims *dims, int64_t t)
{
    double c = (double)dims->embed, layers = (double)dims->layers;
    double outputs = dims->task == MODEL_TASK_LM ? (double)dims->vocab : 2;
    return 6 * (12 * layers * c * c + outputs * c) + 6 * layers * c * (double)t;
}

const struct model_ops *model_ops(const struct model_dims *dims)
{
    return dims->task == MODEL_TASK_LM ? &gpt2_lm_ops : &gpt2_qa_ops;
}

static struct tensor take(struct arena *a, int64_t elems, enum dtype dtype)
{
    return (struct tensor){arena_take(a, (size_t)elems * dtype_bytes(dtype)), dtype};
}

/* One set of a block's pieces. The groups that are shared come from scratch, once, in `shared`. */
static void take_attention(struct gpt2_acts_block *out, struct arena *from,
                           const struct model_acts *m, int64_t c, int64_t heads)
{
    int64_t n = m->b * m->t;
    out->qkv = take(from, n * 3 * c, m->dtype);
    out->att = take(from, n * c, m->dtype);
    out->lse = take(from, n * heads, DTYPE_F32);
}

static void take_rest(struct gpt2_acts_block *out, struct arena *from, const struct model_acts *m,
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

static void plan_blocks(struct model_acts *m, const struct model_dims *dims,
                        enum model_recompute recompute, struct arena *acts, struct arena *scratch)
{
    int64_t n = m->b * m->t, c = dims->embed;
    bool keeps_rest = m->want_grad && recompute != MODEL_RECOMPUTE_BLOCK;
    bool keeps_attention = keeps_rest && recompute != MODEL_RECOMPUTE_ATTENTION;
    struct gpt2_acts_block shared = {0};
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
    }
    m->out = m->want_grad || dims->layers < 2 ? take(acts, n * c, m->dtype)
                                              : m->block[dims->layers - 2].x;
}

enum status model_plan(const struct model_dims *dims, int64_t b, int64_t t,
                       enum model_recompute recompute, bool want_grad, enum dtype dtype,
                       struct arena *acts, struct arena *scratch, struct model_acts **out)
{
    ASSERTF(b > 0 && t > 0 && t <= dims->context, "b %lld t %lld context %lld", (long long)b,
            (long long)t, (long long)dims->context);
    struct model_acts *m = calloc(1, sizeof *m + (size_t)dims->layers * sizeof *m->block);
    if (!m)
        return FAIL(ST_RETRY,
                    "out of memory: the plan of %lld layers; use a machine with more memory",
                    (long long)dims->layers);
    int64_t n = b * t, c = dims->embed, wide_elems = n * 4 * c;
    int64_t logits_rows = dtype == DTYPE_F32 ? LOGITS_ROWS : LOGITS_ROWS_HALF;
    m->b = b;
    m->t = t;
    m->dtype = dtype;
    m->want_grad = want_grad;
    m->block = (struct gpt2_acts_block *)(m + 1);
    plan_blocks(m, dims, recompute, acts, scratch);
    m->lnf_mean = take(acts, n, DTYPE_F32);
    m->lnf_rstd = take(acts, n, DTYPE_F32);
    m->y = take(scratch, n * c, dtype);
    m->dx = want_grad ? take(scratch, n * c, dtype) : (struct tensor){0};
    if (dims->task == MODEL_TASK_LM) {
        m->logits_rows = n < logits_rows ? n : logits_rows;
        m->logits_stride = (dims->vocab + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
        if (m->logits_rows * m->logits_stride > wide_elems)
            wide_elems = m->logits_rows * m->logits_stride;
    }
    m->wide = take(scratch, wide_elems, dtype);
    *out = m;
    return ST_OK;
}

void model_plan_kv_cache(const struct model_dims *dims, struct model_acts *plan, struct arena *acts)
{
    ASSERTF(plan->b == 1 && !plan->want_grad, "b %lld", (long long)plan->b);
    /* the first keeps the piece that all of them shared */
    for (int64_t i = 1; i < dims->layers; i++)
        plan->block[i].qkv = take(acts, plan->t * 3 * dims->embed, plan->dtype);
}

void model_plan_free(struct model_acts *acts) { free(acts); }

/* transformer_plan — memory for activations and scratch of a pass (transformer.h), and the number
 * of its floating point operations. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"
#include "model/transformer/transformer.h"

/* Rows of a chunk of logits. Each chunk reads the token embedding twice, and reads and writes its
 * gradient once, so chunks are few and large: 512 rows of 50,272 are 98 MiB. 16-bit types are for
 * devices with thousands of threads: 8192 rows are 786 MiB, and the product fills the device. */
#define LOGITS_ROWS 512
#define LOGITS_ROWS_HALF 8192
/* A row of logits begins at a whole line of a GPU's cache: GPT-2's 50257 become 50304 in 16 bits.
 * Only the vocabulary products touch the padding (model_vocab_rows). */
#define LOGITS_ALIGN_BYTES 128

/* adapter_weights — returns the elements of a block's adapters. */
static double adapter_weights(const struct model_dims *dims)
{
    static const enum transformer_layer layer[] = {TRANSFORMER_LAYER_QKV, TRANSFORMER_LAYER_ATT,
                                                   TRANSFORMER_LAYER_UP, TRANSFORMER_LAYER_DOWN};
    double elems = 0;
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
        const struct transformer_adapter a = transformer_params_adapter(dims, 0, layer[i]);
        for (int module = 0; module < a.modules; module++)
            elems += (double)(a.r * (a.in + a.out[module]));
    }
    return elems;
}

double model_flops_per_token(const struct model_dims *dims, int64_t t)
{
    double c = (double)dims->embed, layers = (double)dims->layers, f = (double)model_ffn(dims);
    double att = (double)transformer_params_att(dims);
    double linear = c * (double)transformer_params_qkv(dims) + att * c +
                    c * (double)transformer_params_up(dims) + f * c;
    int64_t vocab_first, vocab;
    model_vocab_shard(dims, &vocab_first, &vocab);
    double outputs = dims->task == MODEL_TASK_LM ? (double)vocab : 2;
    if (dims->shard.lacks_head)
        outputs = 0;
    /* a product and its two gradients; a frozen matrix has no gradient */
    const double each = dims->adapter.r > 0 ? 4 : 6;
    return each * (layers * linear + outputs * c) + 6 * layers * adapter_weights(dims) +
           6 * layers * att * (double)t;
}

/* Returns the rows of tensors that are C wide. */
static int64_t own_rows(const struct transformer_acts *m, const struct model_dims *dims)
{
    return m->b * m->t / model_tensor_ranks(dims);
}

static struct tensor allocate_tensor(struct arena *a, int64_t elems, enum dtype dtype)
{
    return (struct tensor){arena_alloc(a, (size_t)elems * dtype_bytes(dtype)), dtype};
}

/* act_at — returns the position, in wide, of the MLP's activation and its gradient, in elements per
 * row: with a gate after the gradients of its two inputs, else in the place of the gradient of its
 * input. */
static int64_t act_at(const struct model_dims *dims)
{
    return dims->features.mlp == MODEL_MLP_SWIGLU ? 2 * model_ffn(dims) : 0;
}

/* Allocate a block's tensors in three groups; a group that all blocks share is allocated once, from
 * scratch. */
static void allocate_attention(struct transformer_acts_block *out, struct arena *from,
                               const struct transformer_acts *m, const struct model_dims *dims)
{
    int64_t n = m->b * m->t;
    out->qkv = allocate_tensor(from, n * transformer_params_qkv(dims), m->dtype);
    if (dims->features.has_qk_norm)
        out->raw = allocate_tensor(from, n * transformer_params_qkv(dims), m->dtype);
    out->att = allocate_tensor(from, n * transformer_params_att(dims), m->dtype);
    out->lse = allocate_tensor(from, n * dims->heads, DTYPE_F32);
}

static void allocate_norm(struct transformer_norm *out, struct arena *from,
                          const struct transformer_acts *m, const struct model_dims *dims)
{
    if (dims->features.norm == MODEL_NORM_LAYER)
        out->mean = allocate_tensor(from, own_rows(m, dims), DTYPE_F32);
    out->rstd = allocate_tensor(from, own_rows(m, dims), DTYPE_F32);
}

static void allocate_rest(struct transformer_acts_block *out, struct arena *from,
                          const struct transformer_acts *m, const struct model_dims *dims)
{
    allocate_norm(&out->norm1, from, m, dims);
    if (!dims->features.is_parallel)
        out->mid = allocate_tensor(from, own_rows(m, dims) * dims->embed, m->dtype);
    allocate_norm(&out->norm2, from, m, dims);
    out->pre = allocate_tensor(from, m->b * m->t * transformer_params_up(dims), m->dtype);
}

/* way_of — returns the recomputation of a block of the dimensions; without gradients nothing is
 * kept. */
static enum model_recompute way_of(const struct transformer_acts *m, const struct model_dims *dims,
                                   struct model_recomputed recompute, int64_t block)
{
    return m->want_grad ? model_recompute_of(recompute, model_layer(dims, block))
                        : MODEL_RECOMPUTE_BLOCK;
}

int64_t transformer_unread(const struct model_dims *dims)
{
    int64_t c = dims->embed, d = model_head_dim(dims), most = c > d ? c : d;
    return (most + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

/* allocate_adapter — allocates the scratch of adapters. */
static void allocate_adapter(struct transformer_acts *m, const struct model_dims *dims,
                             struct arena *scratch)
{
    const int64_t elems = m->b * m->t * TRANSFORMER_MODULES_MAX * dims->adapter.r;
    if (elems == 0)
        return;
    m->dlow = allocate_tensor(scratch, elems, m->dtype);
    m->low_all = allocate_tensor(scratch, elems, m->dtype);
    if (m->want_grad)
        m->unread = allocate_tensor(scratch, 2 * transformer_unread(dims), DTYPE_F32);
}

/* allocate_low — allocates a block's rows between the factors of its adapters; without gradients
 * all layers share the scratch. */
static void allocate_low(struct transformer_acts_block *out, struct arena *acts,
                         const struct transformer_acts *m, const struct model_dims *dims)
{
    static const enum transformer_layer layer[TRANSFORMER_ADAPTED_N] = {
        TRANSFORMER_LAYER_QKV, TRANSFORMER_LAYER_ATT, TRANSFORMER_LAYER_UP, TRANSFORMER_LAYER_DOWN};
    for (int i = 0; i < TRANSFORMER_ADAPTED_N; i++) {
        const struct transformer_adapter a = transformer_params_adapter(dims, 0, layer[i]);
        out->low[a.adapted] = m->dlow;
        if (m->want_grad && a.modules > 0)
            out->low[a.adapted] = allocate_tensor(acts, m->b * m->t * a.modules * a.r, m->dtype);
    }
}

static void plan_blocks(struct transformer_acts *m, const struct model_dims *dims,
                        struct model_recomputed recompute, struct arena *acts,
                        struct arena *scratch)
{
    int64_t own = own_rows(m, dims), c = dims->embed;
    /* The tensors that blocks share: earlier layers recompute as much as later ones, or more. */
    const enum model_recompute most = way_of(m, dims, recompute, 0);
    struct transformer_acts_block shared = {.norm1.y = m->y, .norm2.y = m->y, .act = m->dact};
    if (most >= MODEL_RECOMPUTE_ATTENTION)
        allocate_attention(&shared, scratch, m, dims);
    if (most >= MODEL_RECOMPUTE_BLOCK)
        allocate_rest(&shared, scratch, m, dims);
    for (int64_t i = 0; i < dims->layers; i++) {
        struct transformer_acts_block *block = &m->block[i];
        *block = shared;
        block->recompute = way_of(m, dims, recompute, i);
        allocate_low(block, acts, m, dims);
        block->x =
            m->want_grad || i < 2 ? allocate_tensor(acts, own * c, m->dtype) : m->block[i - 2].x;
        if (block->recompute < MODEL_RECOMPUTE_ATTENTION)
            allocate_attention(block, acts, m, dims);
        if (block->recompute < MODEL_RECOMPUTE_BLOCK)
            allocate_rest(block, acts, m, dims);
        if (block->recompute < MODEL_RECOMPUTE_LIGHT) {
            block->norm1.y = allocate_tensor(acts, own * c, m->dtype);
            block->norm2.y = allocate_tensor(acts, own * c, m->dtype);
            block->act = allocate_tensor(acts, m->b * m->t * model_ffn(dims), m->dtype);
        }
    }
    m->out = m->want_grad || dims->layers < 2 ? allocate_tensor(acts, own * c, m->dtype)
                                              : m->block[dims->layers - 2].x;
}

/* connect_blocks — sets the input and the output of each block: the next block reads its output.
 * With parallel residuals the second half adds its output to the first's, in place. */
static void connect_blocks(struct transformer_acts *m, const struct model_dims *dims)
{
    const bool is_parallel = dims->features.is_parallel;
    for (int i = 0; i < dims->layers; i++) {
        struct transformer_acts_block *block = &m->block[i];
        block->next = i + 1 < dims->layers ? m->block[i + 1].x : m->out;
        block->mid = is_parallel ? block->next : block->mid;
        block->norm1.x = block->x;
        block->norm1.w = transformer_params_at(dims, i, TRANSFORMER_PARAM_NORM1);
        block->norm2.x = is_parallel ? block->x : block->mid;
        block->norm2.w = transformer_params_at(dims, i, TRANSFORMER_PARAM_NORM2);
    }
    m->norm.x = m->out;
    m->norm.y = m->y;
    m->norm.w = transformer_params_end(dims);
}

/* plan_logits — sets the rows of a chunk and their stride. */
static void plan_logits(struct transformer_acts *m, const struct model_dims *dims)
{
    int64_t n = m->b * m->t, rows = m->dtype == DTYPE_F32 ? LOGITS_ROWS : LOGITS_ROWS_HALF,
            align = LOGITS_ALIGN_BYTES / (int64_t)dtype_bytes(m->dtype);
    if (dims->task != MODEL_TASK_LM || dims->shard.lacks_head)
        return;
    m->logits_rows = n < rows ? n : rows;
    m->logits_stride = (model_vocab_rows(dims) + align - 1) / align * align;
    /* three numbers per row; shares of a gathered tensor are multiples of
     * TRANSFORMER_SHARE_ELEMS */
    m->stats_stride = 3 * ((m->logits_rows + TRANSFORMER_SHARE_ELEMS - 1) /
                           TRANSFORMER_SHARE_ELEMS * TRANSFORMER_SHARE_ELEMS);
}

static int64_t wide_elems(const struct transformer_acts *m, const struct model_dims *dims)
{
    int64_t n = m->b * m->t, logits = m->logits_rows * m->logits_stride,
            mlp = n * (act_at(dims) + model_ffn(dims)),
            attention = n * (transformer_params_qkv(dims) + transformer_params_att(dims));
    int64_t most = mlp > attention ? mlp : attention;
    const int64_t text = m->logits_rows > 0
                             ? transformer_head_lm_row_bytes(dims) / (int64_t)dtype_bytes(m->dtype)
                             : 0;
    logits = logits > text ? logits : text;
    return most > logits ? most : logits;
}

/* allocate_exchange — allocates keys and values of all positions, or QA's two logits, which may be
 * f32. */
static void allocate_exchange(struct transformer_acts *m, const struct model_dims *dims,
                              struct arena *scratch)
{
    int64_t kv = 2 * model_kv_heads(dims) * model_head_dim(dims), ranks = model_context_ranks(dims),
            logits = 2 * (int64_t)(sizeof(float) / dtype_bytes(m->dtype)),
            elems = m->b * m->t * ranks * (kv > logits ? kv : logits);
    if (ranks == 1)
        return;
    m->exchange = allocate_tensor(scratch, elems, m->dtype);
    m->kv = allocate_tensor(scratch, elems, m->dtype);
}

/* check_rows — checks that own rows of a pass of one sample are a share that the ranks can
 * exchange. */
static enum status check_rows(const struct model_dims *dims, int64_t t)
{
    /* Elements of one sample in the narrowest tensor that ranks of a context exchange. */
    const int64_t ranks = model_tensor_ranks(dims), contexts = model_context_ranks(dims),
                  kv = 2 * model_kv_heads(dims) * model_head_dim(dims),
                  width = dims->task == MODEL_TASK_QA ? 2 : kv;
    if (contexts > 1 && t * width % TRANSFORMER_SHARE_ELEMS != 0)
        return FAIL(
            ST_BAD_SETTING,
            "CP=%lld divides SEQ_LEN=%lld into parts of %lld rows of %lld numbers, and a part "
            "must be a multiple of %d numbers; choose another SEQ_LEN or CP",
            (long long)contexts, (long long)(t * contexts), (long long)t, (long long)width,
            TRANSFORMER_SHARE_ELEMS);
    if (ranks == 1 || (t % ranks == 0 && t / ranks * dims->embed % TRANSFORMER_SHARE_ELEMS == 0))
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "TP=%lld does not divide %s=%lld rows of EMBED=%lld into parts of a multiple "
                "of %d numbers; choose another SEQ_LEN or TP",
                (long long)ranks, contexts > 1 ? "SEQ_LEN / CP" : "SEQ_LEN", (long long)t,
                (long long)dims->embed, TRANSFORMER_SHARE_ELEMS);
}

enum status model_plan(const struct model_dims *dims, int64_t b, int64_t t,
                       struct model_recomputed recompute, bool want_grad, enum dtype dtype,
                       struct arena *acts, struct arena *scratch, struct model_acts **out)
{
    ASSERTF(b > 0 && t > 0 && t <= dims->context, "b %lld t %lld context %lld", (long long)b,
            (long long)t, (long long)dims->context);
    ASSERTF(recompute.way < MODEL_RECOMPUTE_AUTO, "recompute %d", (int)recompute.way);
    TRY(check_rows(dims, t));
    struct transformer_acts *m = memory_new(1, sizeof *m + (size_t)dims->layers * sizeof *m->block);
    m->b = b;
    m->t = t;
    m->dtype = dtype;
    m->want_grad = want_grad;
    m->block = (struct transformer_acts_block *)(m + 1);
    int64_t n = b * t, own = own_rows(m, dims), c = dims->embed;
    allocate_norm(&m->norm, acts, m, dims);
    m->y = allocate_tensor(scratch, own * c, dtype);
    if (want_grad)
        m->dmid = m->dx = allocate_tensor(scratch, own * c, dtype);
    if (want_grad && dims->features.is_parallel)
        m->dmid = allocate_tensor(scratch, own * c, dtype);
    m->rows = own < n ? allocate_tensor(scratch, n * c, dtype) : m->y;
    allocate_exchange(m, dims, scratch);
    allocate_adapter(m, dims, scratch);
    if (transformer_params_rotated(dims) > 0)
        m->rope = allocate_tensor(scratch, t * transformer_params_rotated(dims), DTYPE_F32);
    plan_logits(m, dims);
    if (own < n && m->stats_stride > 0)
        m->stats = allocate_tensor(scratch, model_tensor_ranks(dims) * m->stats_stride, DTYPE_F32);
    m->wide = allocate_tensor(scratch, wide_elems(m, dims), dtype);
    m->datt = tensor_at(m->wide, n * transformer_params_qkv(dims));
    m->dact = tensor_at(m->wide, n * act_at(dims));
    plan_blocks(m, dims, recompute, acts, scratch);
    connect_blocks(m, dims);
    *out = (struct model_acts *)m;
    return ST_OK;
}

void model_plan_kv_cache(const struct model_dims *dims, struct model_acts *plan, struct arena *acts)
{
    struct transformer_acts *m = (struct transformer_acts *)plan;
    ASSERTF(m->b == 1 && !m->want_grad, "b %lld", (long long)m->b);
    /* the first block keeps the shared qkv */
    for (int64_t i = 1; i < dims->layers; i++)
        m->block[i].qkv = allocate_tensor(acts, m->t * transformer_params_qkv(dims), m->dtype);
}

void model_plan_free(struct model_acts *acts) { free(acts); }

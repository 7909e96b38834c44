/* transformer_params — the table of parameters and the numbers in it, from the dimensions and the
 * architecture's list of names (transformer_arch.h). Pure arithmetic. */
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "model/transformer/transformer.h"

/* The initial values of a parameter, and its cut by tensor parallelism: columns of the output, or
 * of the input. */
enum role {
    ROLE_SCALE,
    ROLE_SHIFT,
    ROLE_OUT_CUT,
    ROLE_OUT_CUT_BIAS,
    ROLE_IN_CUT,
    ROLE_IN_CUT_BIAS
};

struct shape {
    int64_t out, in; /* vectors: out */
    enum role role;
};

int64_t transformer_params_att(const struct model_dims *dims)
{
    return dims->heads * model_head_dim(dims);
}

static int64_t kv_width(const struct model_dims *dims)
{
    return model_kv_heads(dims) * model_head_dim(dims);
}

int64_t transformer_params_qkv(const struct model_dims *dims)
{
    return transformer_params_att(dims) + 2 * kv_width(dims);
}

int64_t transformer_params_qk(const struct model_dims *dims)
{
    return transformer_params_att(dims) + kv_width(dims);
}

int64_t transformer_params_rotated(const struct model_dims *dims)
{
    if (dims->features.position != MODEL_POSITION_ROPE)
        return 0;
    return (int64_t)((double)model_head_dim(dims) * dims->features.rope.fraction);
}

int64_t transformer_params_up(const struct model_dims *dims)
{
    return model_ffn(dims) * (dims->features.mlp == MODEL_MLP_SWIGLU ? 2 : 1);
}

static struct shape shape_of(const struct model_dims *dims, enum transformer_param param)
{
    int64_t c = dims->embed, f = model_ffn(dims), d = model_head_dim(dims), kv = kv_width(dims),
            att = transformer_params_att(dims), qkv = transformer_params_qkv(dims);
    const struct shape shape[TRANSFORMER_PARAMS] = {
        [TRANSFORMER_PARAM_NORM1] = {c, 0, ROLE_SCALE},
        [TRANSFORMER_PARAM_NORM1_BIAS] = {c, 0, ROLE_SHIFT},
        [TRANSFORMER_PARAM_QKV] = {qkv, c, ROLE_OUT_CUT},
        [TRANSFORMER_PARAM_QKV_BIAS] = {qkv, 0, ROLE_OUT_CUT_BIAS},
        [TRANSFORMER_PARAM_Q] = {att, c, ROLE_OUT_CUT},
        [TRANSFORMER_PARAM_K] = {kv, c, ROLE_OUT_CUT},
        [TRANSFORMER_PARAM_V] = {kv, c, ROLE_OUT_CUT},
        [TRANSFORMER_PARAM_Q_BIAS] = {att, 0, ROLE_OUT_CUT_BIAS},
        [TRANSFORMER_PARAM_K_BIAS] = {kv, 0, ROLE_OUT_CUT_BIAS},
        [TRANSFORMER_PARAM_V_BIAS] = {kv, 0, ROLE_OUT_CUT_BIAS},
        [TRANSFORMER_PARAM_Q_NORM] = {d, 0, ROLE_SCALE},
        [TRANSFORMER_PARAM_K_NORM] = {d, 0, ROLE_SCALE},
        [TRANSFORMER_PARAM_ATT] = {c, att, ROLE_IN_CUT},
        [TRANSFORMER_PARAM_ATT_BIAS] = {c, 0, ROLE_IN_CUT_BIAS},
        [TRANSFORMER_PARAM_NORM2] = {c, 0, ROLE_SCALE},
        [TRANSFORMER_PARAM_NORM2_BIAS] = {c, 0, ROLE_SHIFT},
        [TRANSFORMER_PARAM_GATE] = {f, c, ROLE_OUT_CUT},
        [TRANSFORMER_PARAM_UP] = {f, c, ROLE_OUT_CUT},
        [TRANSFORMER_PARAM_GATE_BIAS] = {f, 0, ROLE_OUT_CUT_BIAS},
        [TRANSFORMER_PARAM_UP_BIAS] = {f, 0, ROLE_OUT_CUT_BIAS},
        [TRANSFORMER_PARAM_DOWN] = {c, f, ROLE_IN_CUT},
        [TRANSFORMER_PARAM_DOWN_BIAS] = {c, 0, ROLE_IN_CUT_BIAS},
    };
    return shape[param];
}

/* Returns true if a model has the parameter; the list of an architecture has all that its models
 * may have. */
static bool has_param(const struct model_dims *dims, enum transformer_param param)
{
    enum model_bias bias = dims->features.bias;
    switch (param) {
    case TRANSFORMER_PARAM_QKV_BIAS:
    case TRANSFORMER_PARAM_Q_BIAS:
    case TRANSFORMER_PARAM_K_BIAS:
    case TRANSFORMER_PARAM_V_BIAS:
        return bias != MODEL_BIAS_NONE;
    case TRANSFORMER_PARAM_ATT_BIAS:
    case TRANSFORMER_PARAM_GATE_BIAS:
    case TRANSFORMER_PARAM_UP_BIAS:
    case TRANSFORMER_PARAM_DOWN_BIAS:
        return bias == MODEL_BIAS_ALL;
    case TRANSFORMER_PARAM_Q_NORM:
    case TRANSFORMER_PARAM_K_NORM:
        return dims->features.has_qk_norm;
    default:
        return true;
    }
}

/* Returns true if a parameter follows the one before it without padding. */
static bool is_packed(const struct transformer_arch *arch, enum transformer_param param)
{
    bool has_gate = false;
    for (int i = 0; i < TRANSFORMER_PARAMS && arch->row[i].name; i++)
        has_gate = has_gate || arch->row[i].param == TRANSFORMER_PARAM_GATE;
    return param == TRANSFORMER_PARAM_K || param == TRANSFORMER_PARAM_V ||
           param == TRANSFORMER_PARAM_K_BIAS || param == TRANSFORMER_PARAM_V_BIAS ||
           (has_gate && (param == TRANSFORMER_PARAM_UP || param == TRANSFORMER_PARAM_UP_BIAS));
}

/* ---- numbers ---- */

/* embeds_n — returns the number of parameters of unit 0. */
static int embeds_n(const struct model_dims *dims)
{
    if (dims->shard.lacks_embed)
        return (dims->shard.lacks_embed && !dims->shard.lacks_head && !dims->features.is_untied &&
                dims->task == MODEL_TASK_LM)
                   ? 1
                   : 0;
    return transformer_arch(dims->arch)->positions &&
                   dims->features.position == MODEL_POSITION_LEARNED
               ? 2
               : 1;
}

/* Returns the position of a parameter in a block; for TRANSFORMER_PARAMS the number of a block's
 * parameters. */
static int index_of(const struct model_dims *dims, enum transformer_param param)
{
    const struct transformer_arch *arch = transformer_arch(dims->arch);
    int n = 0;
    for (int i = 0; i < TRANSFORMER_PARAMS && arch->row[i].name; i++) {
        if (!has_param(dims, arch->row[i].param))
            continue;
        if (arch->row[i].param == param)
            return n;
        n++;
    }
    return param == TRANSFORMER_PARAMS ? n : -1;
}

/* block_first — Returns the number of a block's first parameter. */
static int block_first(const struct model_dims *dims, int block)
{
    return embeds_n(dims) + block * index_of(dims, TRANSFORMER_PARAMS);
}

int transformer_params_at(const struct model_dims *dims, int block, enum transformer_param param)
{
    int index = index_of(dims, param);
    return index < 0 ? -1 : block_first(dims, block) + index;
}

int transformer_params_end(const struct model_dims *dims)
{
    return block_first(dims, (int)dims->layers);
}

static int after_norm(const struct model_dims *dims)
{
    return transformer_params_end(dims) + (transformer_arch(dims->arch)->norm_bias ? 2 : 1);
}

int transformer_params_qa(const struct model_dims *dims) { return after_norm(dims); }

int transformer_params_vocab(const struct model_dims *dims)
{
    return dims->features.is_untied ? after_norm(dims) : TRANSFORMER_WTE;
}

struct transformer_linear transformer_params_linear(const struct model_dims *dims, int block,
                                                    enum transformer_layer layer)
{
    int64_t c = dims->embed;
    const struct {
        enum transformer_param w, w_first, b, b_first; /* one tensor, or the first of a pack */
        int64_t in, out;
    } row[] = {
        [TRANSFORMER_LAYER_QKV] = {TRANSFORMER_PARAM_QKV, TRANSFORMER_PARAM_Q,
                                   TRANSFORMER_PARAM_QKV_BIAS, TRANSFORMER_PARAM_Q_BIAS, c,
                                   transformer_params_qkv(dims)},
        [TRANSFORMER_LAYER_QK] = {TRANSFORMER_PARAM_Q, TRANSFORMER_PARAM_Q,
                                  TRANSFORMER_PARAM_Q_BIAS, TRANSFORMER_PARAM_Q_BIAS, c,
                                  transformer_params_qk(dims)},
        [TRANSFORMER_LAYER_V] = {TRANSFORMER_PARAM_V, TRANSFORMER_PARAM_V, TRANSFORMER_PARAM_V_BIAS,
                                 TRANSFORMER_PARAM_V_BIAS, c, kv_width(dims)},
        [TRANSFORMER_LAYER_ATT] = {TRANSFORMER_PARAM_ATT, TRANSFORMER_PARAM_ATT,
                                   TRANSFORMER_PARAM_ATT_BIAS, TRANSFORMER_PARAM_ATT_BIAS,
                                   transformer_params_att(dims), c},
        [TRANSFORMER_LAYER_UP] = {TRANSFORMER_PARAM_GATE, TRANSFORMER_PARAM_UP,
                                  TRANSFORMER_PARAM_GATE_BIAS, TRANSFORMER_PARAM_UP_BIAS, c,
                                  transformer_params_up(dims)},
        [TRANSFORMER_LAYER_DOWN] = {TRANSFORMER_PARAM_DOWN, TRANSFORMER_PARAM_DOWN,
                                    TRANSFORMER_PARAM_DOWN_BIAS, TRANSFORMER_PARAM_DOWN_BIAS,
                                    model_ffn(dims), c},
    };
    int w = transformer_params_at(dims, block, row[layer].w),
        b = transformer_params_at(dims, block, row[layer].b);
    return (struct transformer_linear){
        .w = w >= 0 ? w : transformer_params_at(dims, block, row[layer].w_first),
        .b = b >= 0 ? b : transformer_params_at(dims, block, row[layer].b_first),
        .in = row[layer].in,
        .out = row[layer].out};
}

/* ---- shards of a model ---- */

/* whole_of — returns those dimensions of the whole model that the numbers of parameters depend
 * on. */
static struct model_dims whole_of(const struct model_dims *dims)
{
    struct model_dims whole = *dims;
    whole.shard = (struct model_shard){0};
    whole.layers = dims->shard.layers > 0 ? dims->shard.layers : dims->layers;
    return whole;
}

/* Marks the last parameter as one that all ranks have. */
static void mark_shared(const struct model_dims *dims, struct param_table *t, bool is_partial)
{
    struct param *p = &t->param[t->params_n - 1];
    p->tensor_copies = model_tensor_ranks(dims);
    p->grad_is_partial = is_partial && p->tensor_copies > 1;
}

/* Sets the position of the last parameter in the whole model's; a parameter that is the whole one
 * is not cut. */
static void mark_cut(struct param_table *t, struct param_cut cut)
{
    if (cut.groups * cut.n < cut.whole)
        t->param[t->params_n - 1].cut = cut;
}

/* Marks the last parameter as one of key heads. If several ranks have a head, each computes a share
 * of its gradient. */
static void mark_keys(const struct model_dims *dims, struct param_table *t)
{
    struct param *p = &t->param[t->params_n - 1];
    int64_t ranks = model_tensor_ranks(dims), d = model_head_dim(dims), own = model_kv_heads(dims),
            heads = dims->shard.kv_heads > 0 ? dims->shard.kv_heads : own;
    mark_cut(t, (struct param_cut){.whole = heads * d,
                                   .groups = 1,
                                   .first = heads * dims->shard.tensor_rank / ranks * d,
                                   .n = own * d});
    p->tensor_copies = (int)(ranks * own / heads);
    p->grad_is_partial = p->tensor_copies > 1;
}

/* Marks the last parameter, of a block. Norms read own rows, norms of heads read own heads: their
 * gradients are partial. The bias of a product that is cut by columns of its input is added after
 * all ranks' sums, and its gradient is computed from all rows. */
static void mark_param(const struct model_dims *dims, struct param_table *t,
                       enum transformer_param param, enum role role)
{
    bool is_fused = param == TRANSFORMER_PARAM_QKV || param == TRANSFORMER_PARAM_QKV_BIAS,
         is_three = transformer_arch(dims->arch)->heads == ATTENTION_LAYOUT_QKV;
    const struct param *p = &t->param[t->params_n - 1];
    int groups = is_fused && is_three ? 3 : 1;
    if (role == ROLE_SCALE || role == ROLE_SHIFT) {
        mark_shared(dims, t, true);
    } else if (role == ROLE_IN_CUT_BIAS) {
        mark_shared(dims, t, false);
    } else if (param == TRANSFORMER_PARAM_K || param == TRANSFORMER_PARAM_V ||
               param == TRANSFORMER_PARAM_K_BIAS || param == TRANSFORMER_PARAM_V_BIAS) {
        mark_keys(dims, t);
    } else {
        int64_t own = p->dim[p->split_dim], n = own / groups;
        mark_cut(t, (struct param_cut){.whole = own * model_tensor_ranks(dims),
                                       .groups = groups,
                                       .first = n * dims->shard.tensor_rank,
                                       .n = n});
    }
}

/* ---- numbers of an adapter ---- */

/* The layers of a block that have adapters, in the order of the adapter's table; the modules of QKV
 * belong to QK and V, too. */
static const enum transformer_layer adapted[TRANSFORMER_ADAPTED_N] = {
    TRANSFORMER_LAYER_QKV, TRANSFORMER_LAYER_ATT, TRANSFORMER_LAYER_UP, TRANSFORMER_LAYER_DOWN};

/* The matrices of those layers, in the order of the layer's output. */
static const struct {
    int n;
    enum transformer_param apart[TRANSFORMER_MODULES_MAX], fused;
} matrices[] = {
    [TRANSFORMER_LAYER_QKV] = {3,
                               {TRANSFORMER_PARAM_Q, TRANSFORMER_PARAM_K, TRANSFORMER_PARAM_V},
                               TRANSFORMER_PARAM_QKV},
    [TRANSFORMER_LAYER_ATT] = {1, {TRANSFORMER_PARAM_ATT}, TRANSFORMER_PARAM_ATT},
    [TRANSFORMER_LAYER_UP] = {2,
                              {TRANSFORMER_PARAM_GATE, TRANSFORMER_PARAM_UP},
                              TRANSFORMER_PARAM_UP},
    [TRANSFORMER_LAYER_DOWN] = {1, {TRANSFORMER_PARAM_DOWN}, TRANSFORMER_PARAM_DOWN}};

unsigned transformer_params_target(const struct model_dims *dims, enum transformer_param param)
{
    static const unsigned target[TRANSFORMER_PARAMS] = {
        [TRANSFORMER_PARAM_QKV] = MODEL_TARGET_Q | MODEL_TARGET_K | MODEL_TARGET_V,
        [TRANSFORMER_PARAM_Q] = MODEL_TARGET_Q,
        [TRANSFORMER_PARAM_K] = MODEL_TARGET_K,
        [TRANSFORMER_PARAM_V] = MODEL_TARGET_V,
        [TRANSFORMER_PARAM_ATT] = MODEL_TARGET_O,
        [TRANSFORMER_PARAM_GATE] = MODEL_TARGET_GATE,
        [TRANSFORMER_PARAM_UP] = MODEL_TARGET_UP,
        [TRANSFORMER_PARAM_DOWN] = MODEL_TARGET_DOWN};
    if (index_of(dims, param) < 0)
        return 0;
    return param == TRANSFORMER_PARAM_UP && index_of(dims, TRANSFORMER_PARAM_GATE) < 0
               ? MODEL_TARGET_GATE | MODEL_TARGET_UP
               : target[param];
}

/* is_target — returns true if a matrix has an adapter. */
static bool is_target(const struct model_dims *dims, enum transformer_param param)
{
    return dims->adapter.r > 0 &&
           (dims->adapter.targets & transformer_params_target(dims, param)) != 0;
}

/* matrices_of — lists the matrices of a layer. Returns their number. */
static int matrices_of(const struct model_dims *dims, enum transformer_layer layer,
                       enum transformer_param out[TRANSFORMER_MODULES_MAX])
{
    const bool is_apart = index_of(dims, matrices[layer].apart[0]) >= 0;
    const int n = is_apart ? matrices[layer].n : 1;
    for (int i = 0; i < n; i++)
        out[i] = is_apart ? matrices[layer].apart[i] : matrices[layer].fused;
    return n;
}

/* modules_of — lists the matrices of a layer that have an adapter each. Returns their number. */
static int modules_of(const struct model_dims *dims, enum transformer_layer layer,
                      enum transformer_param out[TRANSFORMER_MODULES_MAX])
{
    enum transformer_param all[TRANSFORMER_MODULES_MAX];
    const int all_n = matrices_of(dims, layer, all);
    int n = 0;
    for (int i = 0; i < all_n; i++)
        if (is_target(dims, all[i]))
            out[n++] = all[i];
    return n;
}

/* adapted_first — returns the position in a block of the first parameter of a layer's adapter;
 * TRANSFORMER_LAYER_N: the number of a block's parameters. */
static int adapted_first(const struct model_dims *dims, enum transformer_layer layer)
{
    enum transformer_param module[TRANSFORMER_MODULES_MAX];
    int n = 0;
    for (int i = 0; i < TRANSFORMER_ADAPTED_N && adapted[i] != layer; i++)
        n += 2 * modules_of(dims, adapted[i], module);
    return n;
}

struct transformer_adapter transformer_params_adapter(const struct model_dims *dims, int block,
                                                      enum transformer_layer layer)
{
    const bool is_qk = layer == TRANSFORMER_LAYER_QK, is_v = layer == TRANSFORMER_LAYER_V;
    const enum transformer_layer whole = is_qk || is_v ? TRANSFORMER_LAYER_QKV : layer;
    enum transformer_param matrix[TRANSFORMER_MODULES_MAX];
    const int modules = modules_of(dims, whole, matrix), n = matrices_of(dims, whole, matrix),
              first = block * adapted_first(dims, TRANSFORMER_LAYER_N) + adapted_first(dims, whole);
    struct transformer_adapter a = {.r = dims->adapter.r,
                                    .in = transformer_params_linear(dims, block, whole).in};
    int64_t at = 0;
    while (adapted[a.adapted] != whole)
        a.adapted++;
    for (int i = 0; i < n; i++) {
        const bool has_one = is_target(dims, matrix[i]);
        const int64_t out = shape_of(dims, matrix[i]).out;
        if (is_v && i < 2)
            a.first += has_one;
        if ((is_v && i < 2) || (is_qk && i == 2))
            continue; /* belongs to another layer */
        if (has_one) {
            a.b[a.modules] = first + modules + a.first + a.modules;
            a.at[a.modules] = at;
            a.out[a.modules++] = out;
        }
        at += out;
    }
    a.a = first + a.first;
    return a;
}

/* ---- the table ---- */

static enum param_init init_of(const struct model_dims *dims, enum role role)
{
    static const enum param_init init[] = {
        [ROLE_SCALE] = PARAM_INIT_ONE,       [ROLE_SHIFT] = PARAM_INIT_ZERO,
        [ROLE_OUT_CUT] = PARAM_INIT_NORMAL,  [ROLE_OUT_CUT_BIAS] = PARAM_INIT_ZERO,
        [ROLE_IN_CUT] = PARAM_INIT_RESIDUAL, [ROLE_IN_CUT_BIAS] = PARAM_INIT_ZERO};
    return dims->features.has_zero_init && role == ROLE_IN_CUT ? PARAM_INIT_ZERO : init[role];
}

/* name_of — writes the name of row i of an architecture in a block, with `ending` in the place of
 * "weight" if that is not NULL. */
static void name_of(const struct model_dims *dims, int block, int i, const char *ending,
                    char out[PARAM_NAME_MAX])
{
    const struct transformer_arch *arch = transformer_arch(dims->arch);
    const int cut = ending ? (int)sizeof "weight" - 1 : 0;
    char prefix[PARAM_NAME_MAX];
    bool fits =
        text_format(prefix, sizeof prefix, arch->block, (int)model_layer(dims, block)) &&
        text_format(out, PARAM_NAME_MAX, "%s%.*s%s", prefix, (int)strlen(arch->row[i].name) - cut,
                    arch->row[i].name, ending ? ending : "");
    ASSERTF(fits, "name too long: %s", arch->row[i].name);
}

static enum status add_param(const struct model_dims *dims, struct param_table *t, int block, int i)
{
    const struct transformer_arch *arch = transformer_arch(dims->arch);
    const struct shape s = shape_of(dims, arch->row[i].param);
    bool is_matrix = s.in > 0, is_io = is_matrix && arch->layout == MATMUL_LAYOUT_IO;
    int out_dim = is_io ? 1 : 0, split_dim = -1;
    if (s.role == ROLE_OUT_CUT || s.role == ROLE_OUT_CUT_BIAS)
        split_dim = out_dim;
    else if (s.role == ROLE_IN_CUT)
        split_dim = 1 - out_dim;
    char name[PARAM_NAME_MAX];
    name_of(dims, block, i, NULL, name);
    TRY(param_add(t, 1 + block, init_of(dims, s.role), split_dim, name, is_matrix ? 2 : 1,
                  is_io ? s.in : s.out, is_io ? s.out : s.in));
    if (is_packed(arch, arch->row[i].param))
        param_pack(t);
    mark_param(dims, t, arch->row[i].param, s.role);
    if (is_matrix) {
        /* The last parameter is a matrix between activations; a fused one is three. */
        bool is_fused = arch->row[i].param == TRANSFORMER_PARAM_QKV;
        struct param *p = &t->param[t->params_n - 1];
        int64_t d = model_head_dim(dims), att = transformer_params_att(dims), kv = kv_width(dims);
        bool is_three = transformer_arch(dims->arch)->heads == ATTENTION_LAYOUT_QKV;
        p->is_hidden = true;
        if (is_fused)
            p->fused = is_three ? (struct param_fused){3, {att, kv, kv}, 1}
                                : (struct param_fused){3, {d, d, d}, dims->heads};
    }
    return ST_OK;
}

/* Adds a parameter that all ranks have. */
static enum status add_whole(const struct model_dims *dims, struct param_table *t, int unit,
                             enum param_init init, const char *name, int64_t dim0, int64_t dim1)
{
    TRY(param_add(t, unit, init, -1, name, dim1 > 0 ? 2 : 1, dim0, dim1));
    mark_shared(dims, t, false);
    return ST_OK;
}

/* add_vocab — adds own rows of the token embedding, or of the untied vocabulary weights. If the
 * vocabulary product reads them, memory is reserved for all rows of the product. */
static enum status add_vocab(const struct model_dims *dims, struct param_table *t, int unit,
                             const char *name, bool is_of_product)
{
    int64_t first, n;
    model_vocab_shard(dims, &first, &n);
    TRY(param_add(t, unit, PARAM_INIT_NORMAL, 0, name, 2, n, dims->embed));
    if (is_of_product)
        param_reserve(t, model_vocab_rows(dims) * dims->embed);
    mark_cut(t, (struct param_cut){.whole = dims->vocab, .groups = 1, .first = first, .n = n});
    return ST_OK;
}

static enum status add_end(const struct model_dims *dims, struct param_table *t)
{
    const struct transformer_arch *arch = transformer_arch(dims->arch);
    int last = (int)dims->layers + 1;
    TRY(param_add(t, last, PARAM_INIT_ONE, -1, arch->norm, 1, dims->embed, 0));
    mark_shared(dims, t, true);
    if (arch->norm_bias) {
        TRY(param_add(t, last, PARAM_INIT_ZERO, -1, arch->norm_bias, 1, dims->embed, 0));
        mark_shared(dims, t, true);
    }
    if (dims->task == MODEL_TASK_QA) {
        TRY(add_whole(dims, t, last, PARAM_INIT_NORMAL, "qa_outputs.weight", 2, dims->embed));
        return add_whole(dims, t, last, PARAM_INIT_ZERO, "qa_outputs.bias", 2, 0);
    }
    return dims->features.is_untied ? add_vocab(dims, t, last, arch->head, true) : ST_OK;
}

static enum status add_embedding(const struct model_dims *dims, struct param_table *t)
{
    const struct transformer_arch *arch = transformer_arch(dims->arch);
    if (embeds_n(dims) == 0)
        return ST_OK;
    const bool is_of_product =
        dims->task == MODEL_TASK_LM && !dims->features.is_untied && !dims->shard.lacks_head;
    TRY(add_vocab(dims, t, 0, arch->embed, is_of_product));
    /* if no product with the embedding follows, only embed_bwd computes its gradient, by adding */
    t->param[TRANSFORMER_WTE].grad_is_added = !is_of_product;
    return embeds_n(dims) == 2 ? add_whole(dims, t, 0, PARAM_INIT_NORMAL, arch->positions,
                                           dims->context, dims->embed)
                               : ST_OK;
}

/* number_params — sets the numbers of the parameters in the whole model, where the parameters of a
 * unit follow each other: the first of block 0 is `first`, and a block has `each`. */
static void number_params(const struct model_dims *dims, struct param_table *t, int first, int each)
{
    int in_unit = 0;
    for (int i = 0; i < t->params_n; i++) {
        struct param *p = &t->param[i];
        in_unit = i > 0 && p[-1].unit == p->unit ? in_unit + 1 : 0;
        int block = p->unit > dims->layers ? (int)whole_of(dims).layers
                                           : (int)model_layer(dims, p->unit - 1);
        p->whole_param = in_unit + (p->unit == 0 ? 0 : first + block * each);
    }
}

static enum status describe_all(const struct model_dims *dims, struct param_table *t)
{
    t->layers = (int)whole_of(dims).layers;
    TRY(add_embedding(dims, t));
    for (int block = 0; block < dims->layers; block++) {
        const struct transformer_arch *arch = transformer_arch(dims->arch);
        for (int i = 0; i < TRANSFORMER_PARAMS && arch->row[i].name; i++)
            if (has_param(dims, arch->row[i].param))
                TRY(add_param(dims, t, block, i));
    }
    if (!dims->shard.lacks_head)
        TRY(add_end(dims, t));
    t->units_n = (int)dims->layers + 2;
    struct model_dims whole = whole_of(dims);
    number_params(dims, t, block_first(&whole, 0), index_of(&whole, TRANSFORMER_PARAMS));
    return ST_OK;
}

enum status transformer_params_describe(const struct model_dims *dims, struct param_table *out)
{
    struct param_table t = {0};
    enum status st = describe_all(dims, &t);
    if (st == ST_OK)
        *out = t;
    else
        param_table_free(&t);
    return st;
}

/* ---- the table of an adapter ---- */

/* add_factor — adds A or B of a matrix. If tensor parallelism cuts the matrix along its output, B
 * is cut in the same way, and each rank has all of A and a summand of its gradient; along its
 * input, A is cut, and each rank has all of B. */
static enum status add_factor(const struct model_dims *dims, struct param_table *t, int block,
                              enum transformer_param param, bool is_b)
{
    const struct shape s = shape_of(dims, param);
    const bool is_out_cut = s.role == ROLE_OUT_CUT, is_cut = is_out_cut == is_b;
    const int64_t r = dims->adapter.r;
    char name[PARAM_NAME_MAX];
    int i = 0;
    while (transformer_arch(dims->arch)->row[i].param != param)
        i++;
    name_of(dims, block, i, is_b ? "lora_B.weight" : "lora_A.weight", name);
    TRY(param_add(t, 1 + block, is_b ? PARAM_INIT_ZERO : PARAM_INIT_UNIFORM,
                  is_cut ? (is_b ? 0 : 1) : -1, name, 2, is_b ? s.out : r, is_b ? r : s.in));
    t->param[t->params_n - 1].is_hidden = true;
    if (is_cut)
        mark_param(dims, t, param, s.role);
    else
        mark_shared(dims, t, true);
    return ST_OK;
}

static enum status add_adapters(const struct model_dims *dims, struct param_table *t)
{
    t->layers = (int)whole_of(dims).layers;
    for (int block = 0; block < dims->layers; block++)
        for (int i = 0; i < TRANSFORMER_ADAPTED_N; i++) {
            enum transformer_param module[TRANSFORMER_MODULES_MAX];
            const int modules = modules_of(dims, adapted[i], module);
            for (int j = 0; j < modules; j++) {
                TRY(add_factor(dims, t, block, module[j], false));
                if (j > 0)
                    param_pack(t);
            }
            for (int j = 0; j < modules; j++)
                TRY(add_factor(dims, t, block, module[j], true));
        }
    t->units_n = (int)dims->layers + 2;
    number_params(dims, t, 0, adapted_first(dims, TRANSFORMER_LAYER_N));
    return ST_OK;
}

enum status transformer_params_describe_adapter(const struct model_dims *dims,
                                                struct param_table *out)
{
    struct param_table t = {0};
    enum status st = add_adapters(dims, &t);
    if (st == ST_OK)
        *out = t;
    else
        param_table_free(&t);
    return st;
}

/* model — presets, the values that dimensions of 0 stand for, and bounds. The mathematics is in
 * transformer/. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "kernels/rope.h"
#include "model/transformer/transformer.h"

#define DIM_MAX ((int64_t)1 << 24)
#define FFN_MULTIPLE 256 /* multiple of the width of Llama's MLP (Touvron et al. 2023) */
#define ROTATED_MAX 256  /* elements of a head, rope.h */
#define NORM_EPS 1e-5    /* GPT-2's */
/* Bounds of the cap: below, logits are practically equal; above, no logit reaches it. */
#define LOGIT_CAP_LEAST 0.1
#define LOGIT_CAP_MOST 1e6
#define ADAPTER_ALPHA_LEAST 1e-6
#define ADAPTER_ALPHA_MOST 1e6

int64_t model_kv_heads(const struct model_dims *dims)
{
    return dims->kv_heads > 0 ? dims->kv_heads : dims->heads;
}

int64_t model_head_dim(const struct model_dims *dims)
{
    return dims->head_dim > 0 ? dims->head_dim : dims->embed / dims->heads;
}

int64_t model_ffn(const struct model_dims *dims)
{
    if (dims->ffn > 0)
        return dims->ffn;
    if (dims->features.mlp != MODEL_MLP_SWIGLU)
        return 4 * dims->embed;
    return (8 * dims->embed / 3 + FFN_MULTIPLE - 1) / FFN_MULTIPLE * FFN_MULTIPLE;
}

double model_norm_eps(const struct model_dims *dims)
{
    return dims->norm_eps > 0 ? dims->norm_eps : NORM_EPS;
}

void model_resolve(struct model_dims *dims)
{
    dims->kv_heads = model_kv_heads(dims);
    dims->head_dim = model_head_dim(dims);
    dims->ffn = model_ffn(dims);
    dims->norm_eps = model_norm_eps(dims);
}

int model_tensor_ranks(const struct model_dims *dims)
{
    return dims->shard.tensor_ranks > 1 ? dims->shard.tensor_ranks : 1;
}

int model_context_ranks(const struct model_dims *dims)
{
    return dims->shard.context_ranks > 1 ? dims->shard.context_ranks : 1;
}

int64_t model_layer(const struct model_dims *dims, int64_t block)
{
    const struct model_shard *shard = &dims->shard;
    for (int i = 0; i < shard->chunks_n; block -= shard->chunk[i++].n)
        if (block < shard->chunk[i].n)
            return shard->chunk[i].first + block;
    return block;
}

void model_vocab_shard(const struct model_dims *dims, int64_t *first, int64_t *n)
{
    int64_t ranks = model_tensor_ranks(dims), at = dims->shard.tensor_rank;
    *first = dims->vocab * at / ranks;
    *n = dims->vocab * (at + 1) / ranks - *first;
}

int64_t model_vocab_rows(const struct model_dims *dims)
{
    int64_t first, n, each = dims->shard.vocab_multiple > 1 ? dims->shard.vocab_multiple : 1;
    model_vocab_shard(dims, &first, &n);
    return (n + each - 1) / each * each;
}

/* preset_at — returns preset i of all architectures, one after the other; NULL: there are fewer. */
static const struct model_dims *preset_at(int i)
{
    for (int arch = 0; arch < MODEL_ARCH_N; arch++) {
        const struct transformer_arch *row = transformer_arch((enum model_arch)arch);
        if (i < row->presets_n)
            return &row->preset[i];
        i -= row->presets_n;
    }
    return NULL;
}

const char *model_preset_name(int i)
{
    const struct model_dims *preset = preset_at(i);
    return preset ? preset->name : NULL;
}

bool model_preset(const char *name, struct model_dims *out)
{
    const struct model_dims *preset;
    for (int i = 0; (preset = preset_at(i)) != NULL; i++)
        if (strcmp(name, preset->name) == 0) {
            *out = *preset;
            return true;
        }
    return false;
}

const char *model_arch_name(enum model_arch arch) { return transformer_arch(arch)->name; }

struct model_features model_arch_features(enum model_arch arch)
{
    return transformer_arch(arch)->features;
}

bool model_arch_find(const char *name, enum model_arch *out)
{
    for (int arch = 0; arch < MODEL_ARCH_N; arch++)
        if (strcmp(name, model_arch_name((enum model_arch)arch)) == 0) {
            *out = (enum model_arch)arch;
            return true;
        }
    return false;
}

/* check_bounds — checks each dimension by itself. */
static enum status check_bounds(const struct model_dims *dims)
{
    const struct {
        const char *name;
        int64_t value, min, max;
    } row[] = {{"LAYERS", dims->layers, 1, 4096},      {"HEADS", dims->heads, 1, 65536},
               {"EMBED", dims->embed, 1, 1 << 20},     {"CONTEXT", dims->context, 1, DIM_MAX},
               {"VOCAB", dims->vocab, 1, DIM_MAX},     {"KV_HEADS", dims->kv_heads, 0, 65536},
               {"HEAD_DIM", dims->head_dim, 0, 65536}, {"FFN", dims->ffn, 0, DIM_MAX}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].value < row[i].min || row[i].value > row[i].max)
            return FAIL(ST_BAD_SETTING, "%s is %lld, outside %lld … %lld; set it within",
                        row[i].name, (long long)row[i].value, (long long)row[i].min,
                        (long long)row[i].max);
    return ST_OK;
}

/* check_rope — checks that the elements of a head that rotate are pairs, and that scaling has its
 * numbers. */
static enum status check_rope(const struct model_dims *dims)
{
    const struct model_rope *r = &dims->features.rope;
    int64_t rotated = transformer_params_rotated(dims);
    if (dims->features.position != MODEL_POSITION_ROPE)
        return ST_OK;
    if (rotated < 2 || rotated % 2 != 0 || rotated > ROTATED_MAX)
        return FAIL(ST_BAD_SETTING,
                    "%lld of HEAD_DIM=%lld elements of a head rotate; an even number in 2 … %d is "
                    "needed: choose another HEAD_DIM, or EMBED and HEADS",
                    (long long)rotated, (long long)model_head_dim(dims), ROTATED_MAX);
    /* Frequencies must stay in [0,1] (kernels/rope.h). The conditions are negated, so that a NaN is
     * refused. */
    bool is_scaled = r->kind != MODEL_ROPE_KIND_NONE, has_context = r->original_context > 0;
    if (!(r->theta >= 1 && (!is_scaled || r->factor >= 1)))
        return FAIL(ST_BAD_SETTING,
                    "rotary positions with theta %g and factor %g; both must be 1 or more: use "
                    "another model",
                    r->theta, r->factor);
    if (r->kind == MODEL_ROPE_KIND_LLAMA3 &&
        !(has_context && r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
        return FAIL(ST_BAD_SETTING,
                    "rotary positions by llama3 with low_freq_factor %g, high_freq_factor %g and "
                    "%lld original positions; they must be above 0 and in this order: use another "
                    "model",
                    r->low_freq_factor, r->high_freq_factor, (long long)r->original_context);
    if (r->kind == MODEL_ROPE_KIND_YARN &&
        !(has_context && r->theta > 1 && r->beta_fast > 0 && r->beta_slow > 0))
        return FAIL(ST_BAD_SETTING,
                    "rotary positions by YaRN with beta_fast %g, beta_slow %g and %lld original "
                    "positions; they must be above 0: use another model",
                    r->beta_fast, r->beta_slow, (long long)r->original_context);
    return ST_OK;
}

/* check_gpt2 — checks the features that only GPT-2 may have. */
static enum status check_gpt2(const struct model_dims *dims)
{
    const struct model_features *f = &dims->features;
    bool has_any = f->mlp == MODEL_MLP_RELU2 || f->logit_cap != 0 || f->has_zero_init;
    if (has_any && dims->arch != MODEL_ARCH_GPT2)
        return FAIL(ST_BAD_SETTING,
                    "ACTIVATION=relu2, LOGIT_CAP and ZERO_INIT are for GPT-2, and the model is of "
                    "the architecture %s; leave them out",
                    transformer_arch(dims->arch)->name);
    if (dims->arch != MODEL_ARCH_GPT2)
        return ST_OK;
    if (!(f->logit_cap == 0 || (f->logit_cap >= LOGIT_CAP_LEAST && f->logit_cap <= LOGIT_CAP_MOST)))
        return FAIL(ST_BAD_SETTING, "LOGIT_CAP is %g, outside %g … %g; set it within, or to 0",
                    f->logit_cap, LOGIT_CAP_LEAST, LOGIT_CAP_MOST);
    if (dims->task == MODEL_TASK_QA && (f->logit_cap > 0 || f->is_untied))
        return FAIL(ST_BAD_SETTING, "LOGIT_CAP and TIE_EMBEDDINGS=0 are for the vocabulary of a "
                                    "language model, which TASK=qa does not have; leave them out");
    return ST_OK;
}

/* ---- targets of an adapter ---- */

/* The matrices that may have an adapter, in the order of a block, and their words. */
static const struct {
    const char *word;
    enum transformer_param param;
} target_words[] = {{"qkv", TRANSFORMER_PARAM_QKV}, {"q", TRANSFORMER_PARAM_Q},
                    {"k", TRANSFORMER_PARAM_K},     {"v", TRANSFORMER_PARAM_V},
                    {"o", TRANSFORMER_PARAM_ATT},   {"gate", TRANSFORMER_PARAM_GATE},
                    {"up", TRANSFORMER_PARAM_UP},   {"down", TRANSFORMER_PARAM_DOWN}};
#define TARGET_WORDS ((int)(sizeof target_words / sizeof *target_words))

/* module_name — returns the name of a matrix in a block, with n characters before ".weight"; NULL:
 * the architecture does not have it. */
static const char *module_name(const struct model_dims *dims, enum transformer_param param, int *n)
{
    const struct transformer_arch *arch = transformer_arch(dims->arch);
    for (int i = 0; i < TRANSFORMER_PARAMS && arch->row[i].name; i++)
        if (arch->row[i].param == param) {
            *n = (int)(strlen(arch->row[i].name) - strlen(".weight"));
            return arch->row[i].name;
        }
    return NULL;
}

/* is_named — returns true if the word is the name, or its end after a dot. */
static bool is_named(const char *name, int n, const char *word, int word_n)
{
    return word_n <= n && strncmp(name + n - word_n, word, (size_t)word_n) == 0 &&
           (word_n == n || name[n - word_n - 1] == '.');
}

/* targets_of_word — returns the targets of one word; 0: it is unknown. */
static unsigned targets_of_word(const struct model_dims *dims, const char *word, int n)
{
    static const struct {
        const char *word;
        unsigned targets;
    } general[] = {
        {"all", MODEL_TARGETS_ALL}, {"attention", MODEL_TARGETS_ATTENTION},
        {"mlp", MODEL_TARGETS_MLP}, {"qkv", MODEL_TARGET_Q | MODEL_TARGET_K | MODEL_TARGET_V},
        {"q", MODEL_TARGET_Q},      {"k", MODEL_TARGET_K},
        {"v", MODEL_TARGET_V},      {"gate", MODEL_TARGET_GATE}};
    unsigned found = 0;
    for (size_t i = 0; i < sizeof general / sizeof *general; i++)
        if (is_named(general[i].word, (int)strlen(general[i].word), word, n))
            return general[i].targets;
    for (int i = 0, name_n; i < TARGET_WORDS; i++) {
        const char *own = target_words[i].word,
                   *name = module_name(dims, target_words[i].param, &name_n);
        if (name && (is_named(own, (int)strlen(own), word, n) || is_named(name, name_n, word, n)))
            found |= transformer_params_target(dims, target_words[i].param);
    }
    return found;
}

/* check_targets — checks that the targets are whole matrices of the model. */
static enum status check_targets(const struct model_dims *dims, const char *what, unsigned targets)
{
    for (int i = 0, n; i < TARGET_WORDS; i++) {
        const unsigned own = transformer_params_target(dims, target_words[i].param);
        const char *name = module_name(dims, target_words[i].param, &n);
        if (name && (targets & own) != 0 && (targets & own) != own)
            return FAIL(ST_BAD_SETTING,
                        "%s: a model of the architecture %s has one matrix, %.*s, for %s; name it "
                        "as %s, or leave it out",
                        what, transformer_arch(dims->arch)->name, n, name,
                        target_words[i].param == TRANSFORMER_PARAM_QKV
                            ? "q, k and v"
                            : "the first product of its MLP, which has no gate",
                        target_words[i].word);
    }
    return targets != 0 && (targets & ~(unsigned)MODEL_TARGETS_ALL) == 0
               ? ST_OK
               : FAIL(ST_BAD_SETTING, "%s names no linear layer; use all, attention or mlp", what);
}

enum status model_targets_parse(const struct model_dims *dims, const char *what, const char *text,
                                unsigned *out)
{
    unsigned targets = 0;
    for (const char *at = text, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, ",");
        at += strspn(at, " ");
        int n = (int)(end - at);
        while (n > 0 && at[n - 1] == ' ')
            n--;
        const unsigned found = n > 0 ? targets_of_word(dims, at, n) : 0;
        if (!found)
            return FAIL(ST_BAD_SETTING,
                        "%s: \"%.*s\" is no linear layer of the architecture %s; use all, "
                        "attention, mlp, or some of q, k, v, o, gate, up, down with commas",
                        what, n < 40 ? n : 40, at, transformer_arch(dims->arch)->name);
        targets |= found;
    }
    TRY(check_targets(dims, what, targets));
    *out = targets;
    return ST_OK;
}

const char *model_targets_text(const struct model_dims *dims, char out[MODEL_TARGETS_TEXT_MAX])
{
    const unsigned targets = dims->adapter.targets;
    size_t at = 0;
    out[0] = 0;
    if (targets == MODEL_TARGETS_ALL || targets == MODEL_TARGETS_ATTENTION ||
        targets == MODEL_TARGETS_MLP) {
        text_copy(out, MODEL_TARGETS_TEXT_MAX,
                  targets == MODEL_TARGETS_ALL   ? "all"
                  : targets == MODEL_TARGETS_MLP ? "mlp"
                                                 : "attention");
        return out;
    }
    for (int i = 0; i < TARGET_WORDS; i++)
        if (targets & transformer_params_target(dims, target_words[i].param)) {
            text_format(out + at, MODEL_TARGETS_TEXT_MAX - at, "%s%s", at > 0 ? "," : "",
                        target_words[i].word);
            at += strlen(out + at);
        }
    return out;
}

unsigned model_targets_of(const struct model_dims *dims, const char *name)
{
    const char *end = strstr(name, ".lora_");
    for (int i = 0, n; end && i < TARGET_WORDS; i++) {
        const char *module = module_name(dims, target_words[i].param, &n);
        if (module && is_named(name, (int)(end - name), module, n))
            return transformer_params_target(dims, target_words[i].param);
    }
    return 0;
}

/* check_adapter — checks the numbers of an adapter. The condition on alpha is negated, so that a
 * NaN is refused. */
static enum status check_adapter(const struct model_dims *dims)
{
    const struct model_adapter *a = &dims->adapter;
    if (a->r < 0 || a->r > MODEL_ADAPTER_RANK_MAX)
        return FAIL(ST_BAD_SETTING, "LORA=%lld is outside 0 … %d; set it within", (long long)a->r,
                    MODEL_ADAPTER_RANK_MAX);
    if (a->r > 0 && !(a->alpha >= ADAPTER_ALPHA_LEAST && a->alpha <= ADAPTER_ALPHA_MOST))
        return FAIL(ST_BAD_SETTING, "LORA_ALPHA=%g is outside %g … %g; set it within", a->alpha,
                    ADAPTER_ALPHA_LEAST, ADAPTER_ALPHA_MOST);
    if (a->r > 0 && dims->task == MODEL_TASK_QA)
        return FAIL(ST_BAD_SETTING, "LORA trains no head, and TASK=qa begins with a new one; use "
                                    "TASK=chat or lm, or LORA=0");
    return a->r > 0 ? check_targets(dims, "LORA_TARGETS", a->targets) : ST_OK;
}

enum status model_check(const struct model_dims *dims)
{
    const struct transformer_arch *arch = transformer_arch(dims->arch);
    TRY(check_bounds(dims));
    TRY(check_gpt2(dims));
    if (dims->head_dim == 0 && dims->embed % dims->heads != 0)
        return FAIL(ST_BAD_SETTING,
                    "HEADS=%lld does not divide EMBED=%lld; choose a number of heads that does",
                    (long long)dims->heads, (long long)dims->embed);
    if (dims->heads % model_kv_heads(dims) != 0)
        return FAIL(ST_BAD_SETTING,
                    "KV_HEADS=%lld does not divide HEADS=%lld; choose a number that does",
                    (long long)model_kv_heads(dims), (long long)dims->heads);
    TRY(check_rope(dims));
    TRY(check_adapter(dims));
    if (dims->task == MODEL_TASK_QA && !arch->has_qa)
        return FAIL(
            ST_BAD_SETTING,
            "TASK=qa is for GPT-2, and the model is of the architecture %s; use TASK=lm, or "
            "another MODEL",
            arch->name);
    return arch->check ? arch->check(dims) : ST_OK;
}

const struct model_ops *model_ops(const struct model_dims *dims)
{
    return dims->task == MODEL_TASK_QA ? &transformer_qa_ops : &transformer_lm_ops;
}

enum status model_describe_trained(const struct model_dims *dims, struct param_table *out)
{
    const struct model_ops *ops = model_ops(dims);
    return dims->adapter.r > 0 ? ops->describe_adapter(dims, out) : ops->describe(dims, out);
}

enum model_recompute model_recompute_of(struct model_recomputed what, int64_t layer)
{
    bool is_first = what.layers == 0 || layer < what.layers;
    return is_first || what.way == MODEL_RECOMPUTE_NONE ? what.way
                                                        : (enum model_recompute)(what.way - 1);
}

struct model_recomputed model_recompute_nth(int64_t layers, int64_t i)
{
    ASSERTF(i >= 0 && i <= MODEL_RECOMPUTE_BLOCK * layers, "%lld of %lld layers", (long long)i,
            (long long)layers);
    return (struct model_recomputed){.way = (enum model_recompute)((i + layers - 1) / layers),
                                     .layers = i % layers};
}

const char *model_recompute_text(struct model_recomputed what, char *out, size_t cap)
{
    static const char *const words[] = {[MODEL_RECOMPUTE_NONE] = "none",
                                        [MODEL_RECOMPUTE_LIGHT] = "light",
                                        [MODEL_RECOMPUTE_ATTENTION] = "attention",
                                        [MODEL_RECOMPUTE_BLOCK] = "block",
                                        [MODEL_RECOMPUTE_AUTO] = "auto"};
    text_copy(out, cap, words[what.way]);
    if (what.layers > 0)
        text_format(out, cap, "%s:%lld", words[what.way], (long long)what.layers);
    return out;
}

struct tensor model_shard_input(const struct pass *p) { return transformer_acts(p)->block[0].x; }
struct tensor model_shard_output(const struct pass *p) { return transformer_acts(p)->out; }
struct tensor model_shard_grad(const struct pass *p) { return transformer_acts(p)->dx; }

/* ---- an axis of one rank ---- */

static enum status gather_self(void *arg, struct stream *s, struct tensor own, struct tensor *all,
                               int64_t elems)
{
    (void)arg, (void)s, (void)elems;
    *all = own;
    return ST_OK;
}

static enum status scatter_self(void *arg, struct stream *s, struct tensor own, struct tensor in,
                                int64_t elems)
{
    (void)arg, (void)s, (void)elems;
    ASSERT(own.data == in.data);
    return ST_OK;
}

static enum status sum_self(void *arg, struct stream *s, struct tensor x, int64_t elems, int copies)
{
    (void)arg, (void)s, (void)x, (void)elems;
    ASSERTF(copies == 1, "%d copies", copies);
    return ST_OK;
}

const struct model_axis model_axis_self = {
    .ranks = 1, .gather = gather_self, .scatter_sum = scatter_self, .sum = sum_self};

/* load_dims — the dimensions of a model: from a config.json, and as JSON in a checkpoint's manifest
 * (load.h).
 *
 * Features that follow from an architecture (model_arch_features) are not written. GPT-2 needs only
 * the fields of the first version, so its manifests are as they were, and a manifest without "arch"
 * is GPT-2's. A GPT-2 with other features has the "arch" MODERN, which older versions refuse. */
#include "train/weights/load.h"

#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/text.h"

#define WIDTH_MAX ((int64_t)1 << 40)
#define GPT2_END 50256 /* begins and ends GPT-2's texts */
#define MODERN "gpt2-modern"

/* ---- from config.json ---- */

static struct model_features features_of(const struct hf_config *c)
{
    struct model_features features = model_arch_features((enum model_arch)c->arch);
    if (c->arch == HF_ARCH_GPT2)
        return features;
    features.bias = c->out_bias ? MODEL_BIAS_ALL : c->qkv_bias ? MODEL_BIAS_QKV : MODEL_BIAS_NONE;
    features.mlp = c->gelu_tanh ? MODEL_MLP_GELU_TANH : features.mlp;
    if (c->arch == HF_ARCH_NEOX && c->gelu_tanh)
        features.mlp = MODEL_MLP_GELU_TANH;
    features.is_parallel = c->parallel_residual;
    features.is_untied = !c->is_tied;
    features.rope = (struct model_rope){.kind = (enum model_rope_kind)c->rope.kind,
                                        .theta = c->rope.theta,
                                        .fraction = c->rope.fraction,
                                        .factor = c->rope.factor,
                                        .low_freq_factor = c->rope.low_freq_factor,
                                        .high_freq_factor = c->rope.high_freq_factor,
                                        .beta_fast = c->rope.beta_fast,
                                        .beta_slow = c->rope.beta_slow,
                                        .attention_factor = c->rope.attention_factor,
                                        .original_context = c->rope.original_context};
    return features;
}

_Static_assert((int)HF_ARCH_N == (int)MODEL_ARCH_N && (int)HF_ARCH_NEOX == (int)MODEL_ARCH_NEOX &&
                   (int)HF_ROPE_YARN == (int)MODEL_ROPE_KIND_YARN,
               "format and model number architectures and scalings alike");
_Static_assert(HF_EOS_MAX == MODEL_EOS_MAX, "a list of one fits the other");

void load_dims_of_config(const struct hf_config *config, const char *path, enum model_task task,
                         struct model_dims *out)
{
    struct model_dims dims = {.arch = (enum model_arch)config->arch,
                              .task = task,
                              .layers = config->layers,
                              .heads = config->heads,
                              .embed = config->embed,
                              .context = config->context,
                              .vocab = config->vocab,
                              .kv_heads = config->kv_heads,
                              .head_dim = config->head_dim,
                              .ffn = config->ffn,
                              .norm_eps = config->norm_eps,
                              .features = features_of(config),
                              .marks = {.has_bos = config->bos >= 0,
                                        .bos = config->bos >= 0 ? config->bos : 0,
                                        .eos_n = config->eos_n}};
    memcpy(dims.marks.eos, config->eos, sizeof dims.marks.eos);
    /* The name is the last component of the path. */
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    text_format(dims.name, sizeof dims.name, "%.*s", (int)(end - start), path + start);
    *out = dims;
}

enum status load_dims_of_hf(const char *dir, enum model_task task, struct model_dims *out)
{
    struct hf_config config;
    TRY(hf_read_config(dir, &config));
    load_dims_of_config(&config, dir, task, out);
    return ST_OK;
}

/* ---- as JSON ---- */

static const char *const mlp_words[] = {[MODEL_MLP_GELU_TANH] = "gelu_tanh",
                                        [MODEL_MLP_GELU_ERF] = "gelu_erf",
                                        [MODEL_MLP_SWIGLU] = "swiglu",
                                        [MODEL_MLP_RELU2] = "relu2"};
static const char *const bias_words[] = {
    [MODEL_BIAS_ALL] = "all", [MODEL_BIAS_QKV] = "qkv", [MODEL_BIAS_NONE] = "none"};
static const char *const scaling_words[] = {[MODEL_ROPE_KIND_NONE] = "none",
                                            [MODEL_ROPE_KIND_LINEAR] = "linear",
                                            [MODEL_ROPE_KIND_LLAMA3] = "llama3",
                                            [MODEL_ROPE_KIND_YARN] = "yarn"};
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* add_rope — Adds the fields of RoPE, and the fields of its scaling only if frequencies are
 * scaled. */
static void add_rope(const struct model_rope *r, struct text *out)
{
    text_add(out, ",\"rope_theta\":%s,\"rope_fraction\":%s", text_f64(r->theta).text,
             text_f64(r->fraction).text);
    if (r->kind == MODEL_ROPE_KIND_NONE)
        return;
    text_add(out,
             ",\"rope_scaling\":\"%s\",\"rope_factor\":%s,\"rope_low_freq_factor\":%s,"
             "\"rope_high_freq_factor\":%s,\"rope_beta_fast\":%s,\"rope_beta_slow\":%s,"
             "\"rope_attention_factor\":%s,\"rope_original_context\":%lld",
             scaling_words[r->kind], text_f64(r->factor).text, text_f64(r->low_freq_factor).text,
             text_f64(r->high_freq_factor).text, text_f64(r->beta_fast).text,
             text_f64(r->beta_slow).text, text_f64(r->attention_factor).text,
             (long long)r->original_context);
}

/* is_modern — Returns true for a GPT-2 that computes otherwise; its origin makes no difference any
 * more. */
static bool is_modern(const struct model_dims *d)
{
    const struct model_features *p = &d->features;
    return d->arch == MODEL_ARCH_GPT2 &&
           (p->mlp != MODEL_MLP_GELU_TANH || p->position != MODEL_POSITION_LEARNED ||
            p->has_qk_norm || p->is_untied || p->logit_cap > 0);
}

/* add_marks — Adds the marks: a list only if there are several, and nothing for GPT-2's usual
 * ones. */
static void add_marks(const struct model_dims *d, struct text *out)
{
    const struct model_marks *m = &d->marks;
    if (d->arch == MODEL_ARCH_GPT2 && m->eos_n < 2 && (m->eos_n == 0 || m->eos[0] == GPT2_END) &&
        (!m->has_bos || m->bos == GPT2_END))
        return;
    if (m->has_bos)
        text_add(out, ",\"bos\":%lld", (long long)m->bos);
    if (m->eos_n > 0)
        text_add(out, ",\"eos\":%s", m->eos_n > 1 ? "[" : "");
    for (int i = 0; i < m->eos_n; i++)
        text_add(out, "%s%lld", i > 0 ? "," : "", (long long)m->eos[i]);
    if (m->eos_n > 1)
        text_add(out, "]");
}

enum status load_dims_json(const struct model_dims *dims, char *out, size_t cap)
{
    char name[4 * sizeof dims->name], targets[MODEL_TARGETS_TEXT_MAX];
    struct text text = {.data = NULL};
    json_quote(name, sizeof name, dims->name);
    text_add(&text,
             "{\"name\":%s,\"task\":\"%s\",\"layers\":%lld,\"heads\":%lld,\"embed\":"
             "%lld,\"context\":%lld,\"vocab\":%lld",
             name, dims->task == MODEL_TASK_LM ? "lm" : "qa", (long long)dims->layers,
             (long long)dims->heads, (long long)dims->embed, (long long)dims->context,
             (long long)dims->vocab);
    if (dims->arch != MODEL_ARCH_GPT2) {
        text_add(&text,
                 ",\"arch\":\"%s\",\"kv_heads\":%lld,\"head_dim\":%lld,\"ffn\":%lld,"
                 "\"norm_eps\":%s,\"mlp\":\"%s\",\"bias\":\"%s\",\"parallel\":%d,\"untied\":%d",
                 model_arch_name(dims->arch), (long long)model_kv_heads(dims),
                 (long long)model_head_dim(dims), (long long)model_ffn(dims),
                 text_f64(model_norm_eps(dims)).text, mlp_words[dims->features.mlp],
                 bias_words[dims->features.bias], dims->features.is_parallel,
                 dims->features.is_untied);
        add_rope(&dims->features.rope, &text);
    } else if (is_modern(dims)) {
        text_add(&text,
                 ",\"arch\":\"" MODERN
                 "\",\"mlp\":\"%s\",\"qk_norm\":%d,\"untied\":%d,\"logit_cap\":%s",
                 mlp_words[dims->features.mlp], dims->features.has_qk_norm,
                 dims->features.is_untied, text_f64(dims->features.logit_cap).text);
        if (dims->features.position == MODEL_POSITION_ROPE)
            add_rope(&dims->features.rope, &text);
    }
    if (dims->adapter.r > 0)
        text_add(&text,
                 ",\"lora_rank\":%lld,\"lora_alpha\":%s,\"lora_targets\":\"%s\","
                 "\"base_sha256\":\"%s\"",
                 (long long)dims->adapter.r, text_f64(dims->adapter.alpha).text,
                 model_targets_text(dims, targets), dims->adapter.base_sha256);
    add_marks(dims, &text);
    text_add(&text, "}");
    bool is_made = !text.overflow, fits = is_made && text_copy(out, cap, text.data);
    text_free(&text);
    if (!is_made)
        return FAIL(ST_RETRY, "out of memory: the dimensions of a model as JSON");
    ASSERTF(fits, "cap %zu", cap);
    return ST_OK;
}

static enum status read_word(const cJSON *object, const char *key, const char *const *words,
                             size_t words_n, int *out)
{
    const char *word;
    TRY(json_get_string(object, key, &word));
    for (size_t i = 0; i < words_n; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (int)i;
            return ST_OK;
        }
    return FAIL(ST_BAD_DATA,
                "model dimensions: %s is \"%.20s\", which this version does not support; use "
                "a newer version of the program",
                key, word);
}

static enum status read_flag(const cJSON *object, const char *key, bool *out)
{
    int64_t value;
    TRY(json_get_i64(object, key, 0, 1, &value));
    *out = value != 0;
    return ST_OK;
}

static enum status read_rope(const cJSON *object, struct model_rope *r)
{
    int kind = 0;
    TRY(json_get_f64(object, "rope_theta", &r->theta));
    TRY(json_get_f64(object, "rope_fraction", &r->fraction));
    if (!cJSON_GetObjectItemCaseSensitive(object, "rope_scaling"))
        return ST_OK;
    TRY(read_word(object, "rope_scaling", scaling_words, COUNT_OF(scaling_words), &kind));
    r->kind = (enum model_rope_kind)kind;
    TRY(json_get_f64(object, "rope_factor", &r->factor));
    TRY(json_get_f64(object, "rope_low_freq_factor", &r->low_freq_factor));
    TRY(json_get_f64(object, "rope_high_freq_factor", &r->high_freq_factor));
    TRY(json_get_f64(object, "rope_beta_fast", &r->beta_fast));
    TRY(json_get_f64(object, "rope_beta_slow", &r->beta_slow));
    TRY(json_get_f64(object, "rope_attention_factor", &r->attention_factor));
    return json_get_i64(object, "rope_original_context", 0, WIDTH_MAX, &r->original_context);
}

/* read_adapter — Reads the adapter; without "lora_rank" there is none. dims: the model's. */
static enum status read_adapter(const cJSON *object, const struct model_dims *dims,
                                struct model_adapter *out)
{
    const char *targets;
    if (!cJSON_GetObjectItemCaseSensitive(object, "lora_rank"))
        return ST_OK;
    TRY(json_get_i64(object, "lora_rank", 1, MODEL_ADAPTER_RANK_MAX, &out->r));
    TRY(json_get_f64(object, "lora_alpha", &out->alpha));
    TRY(json_get_string(object, "lora_targets", &targets));
    if (model_targets_parse(dims, "lora_targets", targets, &out->targets) != ST_OK)
        return FAIL(ST_BAD_DATA,
                    "model dimensions: lora_targets is \"%.60s\", which this version "
                    "does not support; use a newer version of the program",
                    targets);
    text_copy(out->base_sha256, sizeof out->base_sha256, json_text(object, "base_sha256"));
    return ST_OK;
}

/* read_marks — Reads the marks. Older versions wrote none, or one that ends a text. */
static enum status read_marks(const cJSON *object, int64_t vocab, struct model_marks *out)
{
    out->has_bos = cJSON_GetObjectItemCaseSensitive(object, "bos") != NULL;
    if (out->has_bos)
        TRY(json_get_i64(object, "bos", 0, vocab - 1, &out->bos));
    /* A number or a list. */
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, "eos");
    out->eos_n = list ? 1 : 0;
    if (!cJSON_IsArray(list))
        return list ? json_get_i64(object, "eos", 0, vocab - 1, &out->eos[0]) : ST_OK;
    out->eos_n = cJSON_GetArraySize(list);
    if (out->eos_n > MODEL_EOS_MAX)
        return FAIL(ST_BAD_DATA, "model dimensions: eos lists %d tokens, at most %d are read",
                    out->eos_n, MODEL_EOS_MAX);
    for (int i = 0; i < out->eos_n; i++)
        TRY(json_item_i64(cJSON_GetArrayItem(list, i), "eos", 0, vocab - 1, &out->eos[i]));
    return ST_OK;
}

/* read_modern — Reads a GPT-2 with features of its own. */
static enum status read_modern(const cJSON *object, struct model_features *out)
{
    int mlp = 0;
    TRY(read_word(object, "mlp", mlp_words, COUNT_OF(mlp_words), &mlp));
    out->mlp = (enum model_mlp)mlp;
    TRY(read_flag(object, "qk_norm", &out->has_qk_norm));
    TRY(read_flag(object, "untied", &out->is_untied));
    TRY(json_get_f64(object, "logit_cap", &out->logit_cap));
    if (!cJSON_GetObjectItemCaseSensitive(object, "rope_theta"))
        return ST_OK;
    out->position = MODEL_POSITION_ROPE;
    return read_rope(object, &out->rope);
}

/* read_arch — Reads the fields after "vocab"; without "arch" there are none. */
static enum status read_arch(const cJSON *object, struct model_dims *out)
{
    const char *name;
    int mlp = 0, bias = 0;
    if (!cJSON_GetObjectItemCaseSensitive(object, "arch"))
        return ST_OK;
    TRY(json_get_string(object, "arch", &name));
    if (strcmp(name, MODERN) == 0)
        return read_modern(object, &out->features);
    if (strcmp(name, "gpt2-value-embeds") == 0)
        return FAIL(ST_BAD_DATA,
                    "model dimensions: arch is gpt2-value-embeds, and value embeddings were "
                    "removed; train a model without VALUE_EMBEDS");
    if (!model_arch_find(name, &out->arch))
        return FAIL(ST_BAD_DATA,
                    "model dimensions: arch is \"%.20s\", which this version does not support; "
                    "use a newer version of the program",
                    name);
    out->features = model_arch_features(out->arch);
    TRY(json_get_i64(object, "kv_heads", 1, WIDTH_MAX, &out->kv_heads));
    TRY(json_get_i64(object, "head_dim", 1, WIDTH_MAX, &out->head_dim));
    TRY(json_get_i64(object, "ffn", 1, WIDTH_MAX, &out->ffn));
    TRY(json_get_f64(object, "norm_eps", &out->norm_eps));
    TRY(read_word(object, "mlp", mlp_words, COUNT_OF(mlp_words), &mlp));
    TRY(read_word(object, "bias", bias_words, COUNT_OF(bias_words), &bias));
    out->features.mlp = (enum model_mlp)mlp;
    out->features.bias = (enum model_bias)bias;
    TRY(read_flag(object, "parallel", &out->features.is_parallel));
    TRY(read_flag(object, "untied", &out->features.is_untied));
    return read_rope(object, &out->features.rope);
}

static enum status read_dims(const cJSON *object, struct model_dims *out)
{
    const char *name, *task;
    TRY(json_get_string(object, "name", &name));
    TRY(json_get_string(object, "task", &task));
    text_copy(out->name, sizeof out->name, name);
    if (strcmp(task, "lm") != 0 && strcmp(task, "qa") != 0)
        return FAIL(ST_BAD_DATA, "model dimensions: task is \"%.20s\", expected lm or qa", task);
    out->task = strcmp(task, "lm") == 0 ? MODEL_TASK_LM : MODEL_TASK_QA;
    TRY(json_get_i64(object, "layers", 1, WIDTH_MAX, &out->layers));
    TRY(json_get_i64(object, "heads", 1, WIDTH_MAX, &out->heads));
    TRY(json_get_i64(object, "embed", 1, WIDTH_MAX, &out->embed));
    TRY(json_get_i64(object, "context", 1, WIDTH_MAX, &out->context));
    TRY(json_get_i64(object, "vocab", 1, WIDTH_MAX, &out->vocab));
    TRY(read_arch(object, out));
    TRY(read_adapter(object, out, &out->adapter));
    TRY(read_marks(object, out->vocab, &out->marks));
    return model_check(out);
}

enum status load_dims_agree(const struct model_dims *was, const struct model_dims *is,
                            const char *where)
{
    const struct model_features *a = &was->features, *b = &is->features;
    if (a->mlp != b->mlp)
        return FAIL(ST_BAD_SETTING,
                    "ACTIVATION is %s, but the model in %s has %s; set the model's value",
                    mlp_words[b->mlp], where, mlp_words[a->mlp]);
    if (a->logit_cap != b->logit_cap)
        return FAIL(ST_BAD_SETTING,
                    "LOGIT_CAP is %s, but the model in %s has %s; set the model's value",
                    text_f64(b->logit_cap).text, where, text_f64(a->logit_cap).text);
    if (a->position != b->position || a->rope.theta != b->rope.theta)
        return FAIL(ST_BAD_SETTING,
                    "POSITIONS=%s, but the model in %s has %s positions; set the model's value",
                    b->position == MODEL_POSITION_ROPE ? "rope" : "learned", where,
                    a->position == MODEL_POSITION_ROPE ? "rotary" : "learned");
    return ST_OK;
}

enum status load_dims_parse(const char *json, struct model_dims *out)
{
    cJSON *object;
    struct model_dims dims = {0};
    TRY(json_parse(json, strlen(json), "model dimensions", &object));
    enum status st = read_dims(object, &dims);
    cJSON_Delete(object);
    TRY(st);
    *out = dims;
    return ST_OK;
}

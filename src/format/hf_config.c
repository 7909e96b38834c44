/* hf_config — see hf_config.h. Every field is checked against the range of struct hf_config: a file
 * whose numbers mean something else must be refused, never loaded. It must not know our models'
 * code, only their names. */
#include "format/hf_config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"

#define DIM_MAX (1 << 24) /* far above any model; products of two stay in range */
#define GPT2_EPS 1e-5
#define GPT2_TEXT_END 50256
#define EPS_USUAL 1e-6
#define NEOX_EPS_USUAL 1e-5
#define WINDOW_USUAL 4096 /* default of Mistral and Qwen, for files without a window */
#define WINDOW_LAYERS_USUAL 28

/* is_unset — returns true if a key is missing or null, so that transformers' default applies. */
static bool is_unset(const cJSON *item) { return !item || cJSON_IsNull(item); }

/* check_flag — checks a switch of transformers for which our model has one position; unset means
 * that position. */
static enum status check_flag(const cJSON *root, const char *key, bool want)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    if (is_unset(item) || (cJSON_IsBool(item) && (bool)cJSON_IsTrue(item) == want))
        return ST_OK;
    return FAIL(ST_BAD_DATA, "\"%s\" is not %s, which is not supported; use another model", key,
                want ? "true" : "false");
}

/* check_text — checks a word that is one of two; unset means the first. */
static enum status check_text(const cJSON *root, const char *key, const char *want,
                              const char *also)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    if (is_unset(item) || (cJSON_IsString(item) && (strcmp(item->valuestring, want) == 0 ||
                                                    strcmp(item->valuestring, also) == 0)))
        return ST_OK;
    return FAIL(ST_BAD_DATA, "\"%s\" is \"%.40s\", expected \"%s\"; use another model", key,
                cJSON_IsString(item) ? item->valuestring : "not a string", want);
}

/* read_bool — reads a flag; unset means `usual`. */
static enum status read_bool(const cJSON *root, const char *key, bool usual, bool *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    *out = is_unset(item) ? usual : cJSON_IsTrue(item);
    return is_unset(item) || cJSON_IsBool(item)
               ? ST_OK
               : FAIL(ST_BAD_DATA, "\"%s\" is not true or false; the file is damaged", key);
}

/* read_dim — reads a dimension; missing or null means `usual`; 0: it must be there. */
static enum status read_dim(const cJSON *root, const char *key, int64_t usual, int64_t *out)
{
    if (usual > 0 && is_unset(cJSON_GetObjectItemCaseSensitive(root, key))) {
        *out = usual;
        return ST_OK;
    }
    return json_get_i64(root, key, 1, DIM_MAX, out);
}

/* ---- GPT-2 ---- */

static enum status check_heads(const struct hf_config *c, const char *embed_key,
                               const char *heads_key)
{
    if (c->embed % c->heads == 0)
        return ST_OK;
    return FAIL(ST_BAD_DATA, "\"%s\" %" PRId64 " is not divisible by \"%s\" %" PRId64, embed_key,
                c->embed, heads_key, c->heads);
}

static enum status read_gpt2(const cJSON *root, struct hf_config *out)
{
    const cJSON *eps = cJSON_GetObjectItemCaseSensitive(root, "layer_norm_epsilon");
    TRY(check_text(root, "activation_function", "gelu_new", "gelu_pytorch_tanh"));
    if (!is_unset(eps) && !(cJSON_IsNumber(eps) && eps->valuedouble == GPT2_EPS))
        return FAIL(ST_BAD_DATA, "\"layer_norm_epsilon\" is %g, expected %g; use another model",
                    cJSON_IsNumber(eps) ? eps->valuedouble : 0.0, GPT2_EPS);
    TRY(check_flag(root, "scale_attn_weights", true));
    TRY(check_flag(root, "scale_attn_by_inverse_layer_idx", false));
    TRY(check_flag(root, "add_cross_attention", false));
    TRY(check_flag(root, "tie_word_embeddings", true));
    TRY(read_dim(root, "n_layer", 0, &out->layers));
    TRY(read_dim(root, "n_head", 0, &out->heads));
    TRY(read_dim(root, "n_embd", 0, &out->embed));
    TRY(read_dim(root, "n_positions", 0, &out->context));
    TRY(read_dim(root, "vocab_size", 0, &out->vocab));
    TRY(check_heads(out, "n_embd", "n_head"));
    out->ffn = 4 * out->embed;
    if (!is_unset(cJSON_GetObjectItemCaseSensitive(root, "n_inner")))
        TRY(json_get_i64(root, "n_inner", 1, (int64_t)DIM_MAX * 4, &out->ffn));
    if (out->ffn != 4 * out->embed)
        return FAIL(ST_BAD_DATA,
                    "\"n_inner\" is %" PRId64 ", expected null or 4 × n_embd = %" PRId64
                    "; use another model",
                    out->ffn, 4 * out->embed);
    out->kv_heads = out->heads;
    out->head_dim = out->embed / out->heads;
    out->norm_eps = GPT2_EPS;
    out->is_tied = out->qkv_bias = out->out_bias = out->gelu_tanh = true;
    return ST_OK;
}

/* ---- the others ---- */

/* One model_type and the defaults of its class; kv_heads 0: equal to heads; head_dim 0: embed /
 * heads. */
static const struct kind {
    const char *type;
    enum hf_arch arch;
    int64_t kv_heads, head_dim, context;
    const char *model_class;
} kind_list[] = {
    {"gpt2", HF_ARCH_GPT2, 0, 0, 0, "GPT2LMHeadModel"},
    {"llama", HF_ARCH_LLAMA, 0, 0, 2048, "LlamaForCausalLM"},
    {"mistral", HF_ARCH_LLAMA, 8, 0, 131072, "MistralForCausalLM"},
    {"qwen2", HF_ARCH_QWEN2, 32, 0, 32768, "Qwen2ForCausalLM"},
    {"qwen3", HF_ARCH_QWEN3, 32, 128, 32768, "Qwen3ForCausalLM"},
    {"gpt_neox", HF_ARCH_NEOX, 0, 0, 2048, "GPTNeoXForCausalLM"},
};

#define KINDS_N ((int)(sizeof(kind_list) / sizeof(kind_list[0])))

/* kind_of — returns the first row of an architecture. */
static const struct kind *kind_of(enum hf_arch arch)
{
    const struct kind *kind = kind_list;
    while (kind->arch != arch)
        kind++;
    return kind;
}

static enum status find_kind(const cJSON *root, const struct kind **out)
{
    const char *type;
    TRY(json_get_string(root, "model_type", &type));
    for (int i = 0; i < KINDS_N; i++)
        if (strcmp(type, kind_list[i].type) == 0) {
            *out = &kind_list[i];
            return ST_OK;
        }
    return FAIL(ST_BAD_DATA,
                "\"model_type\" is \"%.40s\", expected gpt2, llama, mistral, qwen2, qwen3 or "
                "gpt_neox; use such a model",
                type);
}

static enum status read_dims(const cJSON *root, const struct kind *kind, struct hf_config *out)
{
    TRY(read_dim(root, "num_hidden_layers", 0, &out->layers));
    TRY(read_dim(root, "num_attention_heads", 0, &out->heads));
    TRY(read_dim(root, "hidden_size", 0, &out->embed));
    TRY(read_dim(root, "intermediate_size", 0, &out->ffn));
    TRY(read_dim(root, "vocab_size", 0, &out->vocab));
    TRY(read_dim(root, "max_position_embeddings", kind->context, &out->context));
    /* Missing: the class's default; null: equal to heads. */
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "num_key_value_heads");
    out->kv_heads = item || kind->kv_heads == 0 ? out->heads : kind->kv_heads;
    if (kind->arch != HF_ARCH_NEOX)
        TRY(read_dim(root, "num_key_value_heads", out->kv_heads, &out->kv_heads));
    if (out->heads % out->kv_heads != 0)
        return FAIL(ST_BAD_DATA,
                    "\"num_attention_heads\" %" PRId64
                    " is not divisible by \"num_key_value_heads\" %" PRId64,
                    out->heads, out->kv_heads);
    bool is_given = !is_unset(cJSON_GetObjectItemCaseSensitive(root, "head_dim"));
    if (kind->arch == HF_ARCH_NEOX || (!is_given && kind->head_dim == 0)) {
        TRY(check_heads(out, "hidden_size", "num_attention_heads"));
        out->head_dim = out->embed / out->heads;
        return ST_OK;
    }
    return read_dim(root, "head_dim", kind->head_dim, &out->head_dim);
}

/* has_window_layers — returns true if some layers of a Qwen with use_sliding_window see only the
 * window. */
static bool has_window_layers(const cJSON *root, const struct hf_config *config)
{
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(root, "layer_types"),
                *first = cJSON_GetObjectItemCaseSensitive(root, "max_window_layers");
    for (const cJSON *item = is_unset(types) ? NULL : types->child; item; item = item->next)
        if (cJSON_IsString(item) && strcmp(item->valuestring, "full_attention") != 0)
            return true;
    double from = cJSON_IsNumber(first) ? first->valuedouble : WINDOW_LAYERS_USUAL;
    return is_unset(types) && (double)config->layers > from;
}

/* check_window — refuses attention in a window, which is not computed; a window as long as the
 * context changes nothing. Mistral has one unless its file has null; Llama has none. */
static enum status check_window(const cJSON *root, const struct kind *kind,
                                const struct hf_config *config)
{
    bool is_used = strcmp(kind->type, "mistral") == 0;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "sliding_window");
    if (kind->arch == HF_ARCH_QWEN2 || kind->arch == HF_ARCH_QWEN3) {
        TRY(read_bool(root, "use_sliding_window", false, &is_used));
        is_used = is_used && has_window_layers(root, config);
    }
    if (!is_used || cJSON_IsNull(item))
        return ST_OK;
    int64_t window = WINDOW_USUAL;
    if (item)
        TRY(json_get_i64(root, "sliding_window", 1, INT32_MAX, &window));
    if (window >= config->context)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "\"sliding_window\" %" PRId64 " is shorter than the context of %" PRId64
                ", which is not supported; lower \"max_position_embeddings\" to it if shorter "
                "texts are enough",
                window, config->context);
}

/* read_activation — reads the activation; for GPT-NeoX the exact GELU, or GELU by tanh under any of
 * its names. */
static enum status read_activation(const cJSON *root, struct hf_config *out)
{
    static const char *const by_tanh[] = {"gelu_fast", "gelu_new", "gelu_pytorch_tanh"};
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "hidden_act");
    if (out->arch != HF_ARCH_NEOX)
        return check_text(root, "hidden_act", "silu", "swish");
    for (size_t i = 0; cJSON_IsString(item) && i < sizeof(by_tanh) / sizeof(by_tanh[0]); i++)
        out->gelu_tanh = out->gelu_tanh || strcmp(item->valuestring, by_tanh[i]) == 0;
    return out->gelu_tanh ? ST_OK : check_text(root, "hidden_act", "gelu", "gelu");
}

static enum status read_rotary(const cJSON *root, const struct kind *kind, struct hf_config *out)
{
    bool is_neox = out->arch == HF_ARCH_NEOX;
    TRY(read_dims(root, kind, out));
    TRY(read_activation(root, out));
    const char *key = is_neox ? "layer_norm_eps" : "rms_norm_eps";
    out->norm_eps = is_neox ? NEOX_EPS_USUAL : EPS_USUAL;
    if (!is_unset(cJSON_GetObjectItemCaseSensitive(root, key)))
        TRY(json_get_f64(root, key, &out->norm_eps));
    if (!(out->norm_eps > 0 && out->norm_eps < 1))
        return FAIL(ST_BAD_DATA, "\"%s\" is %g, expected a number between 0 and 1", key,
                    out->norm_eps);
    TRY(read_bool(root, "tie_word_embeddings", false, &out->is_tied));
    if (is_neox)
        TRY(read_bool(root, "use_parallel_residual", true, &out->parallel_residual));
    /* The biases of the architecture; other combinations are not computed. */
    out->qkv_bias = is_neox || out->arch == HF_ARCH_QWEN2;
    out->out_bias = is_neox;
    if (out->arch != HF_ARCH_QWEN2)
        TRY(check_flag(root, "attention_bias", is_neox));
    if (!is_neox)
        TRY(check_flag(root, "mlp_bias", false));
    TRY(check_window(root, kind, out));
    return hf_rope_read(root, out);
}

/* ---- all ---- */

/* check_token — checks that a token's number is in the vocabulary. *out -1: there is no number.
 * Transformers writes GPT-2's own 50256 into the files of smaller models, where it means none. */
static enum status check_token(const cJSON *item, const char *key, const struct hf_config *config,
                               int64_t *out)
{
    *out = -1;
    if (is_unset(item))
        return ST_OK;
    if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble))
        return FAIL(ST_BAD_DATA, "\"%s\" is not the number of a token; correct it", key);
    if (item->valuedouble >= 0 && item->valuedouble < (double)config->vocab)
        *out = (int64_t)item->valuedouble;
    else if (config->arch != HF_ARCH_GPT2 || item->valuedouble != GPT2_TEXT_END)
        return FAIL(ST_BAD_DATA,
                    "\"%s\" is %s, outside the vocabulary (\"vocab_size\" %" PRId64
                    ": 0 to %" PRId64 "); correct it, or leave it out",
                    key, text_f64(item->valuedouble).text, config->vocab, config->vocab - 1);
    return ST_OK;
}

static bool has_eos(const struct hf_config *config, int64_t token)
{
    for (int i = 0; i < config->eos_n; i++)
        if (config->eos[i] == token)
            return true;
    return false;
}

static enum status add_checked(const cJSON *item, struct hf_config *out)
{
    int64_t token;
    TRY(check_token(item, "eos_token_id", out, &token));
    if (token >= 0 && !has_eos(out, token)) {
        if (out->eos_n == HF_EOS_MAX)
            out->has_more_eos = true;
        else
            out->eos[out->eos_n++] = token;
    }
    return ST_OK;
}

/* read_eos — reads a number or a list. */
static enum status read_eos(const cJSON *root, struct hf_config *out)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(root, "eos_token_id");
    out->eos_n = 0;
    out->has_more_eos = false;
    if (!cJSON_IsArray(value))
        return add_checked(value, out);
    for (const cJSON *item = value->child; item; item = item->next)
        TRY(add_checked(item, out));
    return ST_OK;
}

enum status hf_config_parse_generation(const char *bytes, size_t n, const char *what,
                                       struct hf_config *out)
{
    cJSON *root = NULL;
    struct hf_config found = *out;
    TRY(json_parse(bytes, n, what, &root));
    enum status st = read_eos(root, &found);
    cJSON_Delete(root);
    if (st != ST_OK)
        return FAIL(st, "%s: %s", what, status_message());
    if (found.eos_n > 0)
        *out = found;
    return ST_OK;
}

static enum status read_fields(const cJSON *root, struct hf_config *out)
{
    const struct kind *kind = kind_list;
    if (!cJSON_IsObject(root))
        return FAIL(ST_BAD_DATA, "it is not a JSON object");
    TRY(find_kind(root, &kind));
    out->arch = kind->arch;
    /* Refuses quantized weights. */
    if (!is_unset(cJSON_GetObjectItemCaseSensitive(root, "quantization_config")))
        return FAIL(ST_BAD_DATA,
                    "\"quantization_config\" says that the weights are quantized; use the "
                    "model with F32, F16 or BF16 weights");
    TRY(kind->arch == HF_ARCH_GPT2 ? read_gpt2(root, out) : read_rotary(root, kind, out));
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "architectures");
    if (!is_unset(list)) {
        if (!cJSON_IsArray(list))
            return FAIL(ST_BAD_DATA, "\"architectures\" is not an array");
        for (const cJSON *item = list->child; item; item = item->next)
            if (cJSON_IsString(item) && text_ends(item->valuestring, "ForQuestionAnswering"))
                out->is_qa = true;
        if (out->is_qa && kind->arch != HF_ARCH_GPT2)
            return FAIL(ST_BAD_DATA,
                        "\"architectures\" names a question-answering head on a %s, which is not "
                        "supported; use its language model, or a GPT-2",
                        kind->type);
    }
    TRY(check_token(cJSON_GetObjectItemCaseSensitive(root, "bos_token_id"), "bos_token_id", out,
                    &out->bos));
    return read_eos(root, out);
}

enum status hf_config_parse(const char *bytes, size_t n, const char *what, struct hf_config *out)
{
    cJSON *root = NULL;
    struct hf_config found = {.is_qa = false};
    TRY(json_parse(bytes, n, what, &root));
    enum status st = read_fields(root, &found);
    cJSON_Delete(root);
    if (st != ST_OK)
        return FAIL(st, "%s: %s", what, status_message());
    *out = found;
    return ST_OK;
}

const char *hf_config_class(const struct hf_config *config)
{
    return config->is_qa ? "GPT2ForQuestionAnswering" : kind_of(config->arch)->model_class;
}

/* ---- writing ---- */

/* add_share — adds a number that reads back as a float: "0.0", not "0". */
static void add_share(struct text *out, const char *key, double value)
{
    text_add(out, "  ");
    hf_rope_add_number(out, key, value);
    text_add(out, ",\n");
}

/* add_marks — adds the tokens that begin and end a text, each with `before` in front. Unknown
 * tokens are left out, or null with has_null. */
static void add_marks(const struct hf_config *config, bool has_null, const char *before,
                      const char *behind, struct text *out)
{
    if (config->bos >= 0)
        text_add(out, "%s  \"bos_token_id\": %" PRId64 "%s", before, config->bos, behind);
    else if (has_null)
        text_add(out, "%s  \"bos_token_id\": null%s", before, behind);
    if (config->eos_n == 0 && !has_null)
        return;
    text_add(out, "%s  \"eos_token_id\": %s", before, config->eos_n > 1 ? "[" : "");
    for (int i = 0; i < config->eos_n; i++)
        text_add(out, "%s%" PRId64, i > 0 ? ", " : "", config->eos[i]);
    text_add(out, "%s%s", config->eos_n > 1 ? "]" : config->eos_n == 0 ? "null" : "", behind);
}

static void add_dim(struct text *out, const char *key, int64_t value)
{
    text_add(out, "  \"%s\": %" PRId64 ",\n", key, value);
}

static void add_flag(struct text *out, const char *key, bool value)
{
    text_add(out, "  \"%s\": %s,\n", key, value ? "true" : "false");
}

/* write_family — writes the keys that differ between the architectures with rotary positions. */
static void write_family(const struct hf_config *config, double dropout, struct text *out)
{
    if (config->arch == HF_ARCH_NEOX) {
        text_add(out, "  \"attention_bias\": true,\n  \"hidden_act\": \"%s\",\n",
                 config->gelu_tanh ? "gelu_fast" : "gelu");
        add_share(out, "hidden_dropout", dropout);
        add_share(out, "layer_norm_eps", config->norm_eps);
        add_flag(out, "use_parallel_residual", config->parallel_residual);
        return;
    }
    text_add(out, "  \"hidden_act\": \"silu\",\n");
    add_dim(out, "head_dim", config->head_dim);
    add_dim(out, "num_key_value_heads", config->kv_heads);
    add_share(out, "rms_norm_eps", config->norm_eps);
    if (config->arch != HF_ARCH_QWEN2)
        add_flag(out, "attention_bias", false);
    if (config->arch == HF_ARCH_LLAMA)
        add_flag(out, "mlp_bias", false);
    else
        add_flag(out, "use_sliding_window", false);
}

void hf_config_write(const struct hf_config *config, double dropout, struct text *out)
{
    /* The beginning of all documents. */
    text_add(out, "{\n  \"architectures\": [\n    \"%s\"\n  ],\n  \"model_type\": \"%s\",\n",
             hf_config_class(config), kind_of(config->arch)->type);
    /* without a number, transformers uses 50256 for GPT-2, which lies beyond a small vocabulary */
    add_marks(config, config->arch == HF_ARCH_GPT2, "", ",\n", out);
    if (config->arch == HF_ARCH_GPT2) {
        text_add(out,
                 "  \"activation_function\": \"gelu_new\",\n  \"add_cross_attention\": false,\n");
        add_share(out, "attn_pdrop", dropout);
        add_share(out, "embd_pdrop", dropout);
        text_add(out, "  \"initializer_range\": 0.02,\n  \"layer_norm_epsilon\": 1e-05,\n");
        add_dim(out, "n_ctx", config->context);
        add_dim(out, "n_embd", config->embed);
        add_dim(out, "n_head", config->heads);
        text_add(out, "  \"n_inner\": null,\n");
        add_dim(out, "n_layer", config->layers);
        add_dim(out, "n_positions", config->context);
        text_add(out, "  \"pad_token_id\": null,\n  \"reorder_and_upcast_attn\": false,\n");
        add_share(out, "resid_pdrop", dropout);
        text_add(out,
                 "  \"scale_attn_by_inverse_layer_idx\": false,\n  \"scale_attn_weights\": true,\n"
                 "  \"summary_activation\": null,\n  \"summary_first_dropout\": 0.1,\n"
                 "  \"summary_proj_to_labels\": true,\n  \"summary_type\": \"cls_index\",\n"
                 "  \"summary_use_proj\": true,\n");
    } else {
        add_share(out, "attention_dropout", dropout);
        add_dim(out, "hidden_size", config->embed);
        text_add(out, "  \"initializer_range\": 0.02,\n");
        add_dim(out, "intermediate_size", config->ffn);
        add_dim(out, "max_position_embeddings", config->context);
        add_dim(out, "num_attention_heads", config->heads);
        add_dim(out, "num_hidden_layers", config->layers);
        text_add(out, "  \"pad_token_id\": null,\n");
        write_family(config, dropout, out);
        hf_rope_write(config, out);
    }
    add_flag(out, "tie_word_embeddings", config->is_tied);
    text_add(out, "  \"torch_dtype\": \"float32\",\n");
    add_flag(out, "use_cache", true);
    text_add(out, "  \"vocab_size\": %" PRId64 "\n}\n", config->vocab);
}

void hf_config_write_generation(const struct hf_config *config, struct text *out)
{
    text_add(out, "{\n  \"_from_model_config\": true");
    add_marks(config, false, ",\n", "", out);
    text_add(out, "\n}\n");
}

#ifdef FUZZ
#include "base/assert.h"

/* Any bytes are refused, or are a model that can be written and read back. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct hf_config config, again;
    struct text text = {.data = NULL};
    if (hf_config_parse((const char *)bytes, n, "fuzz", &config) != ST_OK)
        return 0;
    ASSERT(config.layers >= 1 && config.heads >= 1 && config.kv_heads >= 1 &&
           config.heads % config.kv_heads == 0 && config.head_dim >= 1 && config.embed <= DIM_MAX &&
           config.ffn >= 1 && config.norm_eps > 0);
    ASSERT((config.arch == HF_ARCH_GPT2) == (config.rope.theta == 0));
    hf_config_write(&config, 0.1, &text);
    ASSERTF(hf_config_parse(text.data, text.len, "written", &again) == ST_OK, "%s", text.data);
    ASSERT(again.arch == config.arch && again.layers == config.layers &&
           again.heads == config.heads && again.kv_heads == config.kv_heads &&
           again.head_dim == config.head_dim && again.embed == config.embed &&
           again.ffn == config.ffn && again.context == config.context &&
           again.vocab == config.vocab && again.is_qa == config.is_qa &&
           again.is_tied == config.is_tied && again.norm_eps == config.norm_eps &&
           again.parallel_residual == config.parallel_residual &&
           again.gelu_tanh == config.gelu_tanh && again.bos == config.bos &&
           again.eos_n == config.eos_n &&
           memcmp(again.eos, config.eos, sizeof(again.eos[0]) * (size_t)again.eos_n) == 0);
    ASSERT(memcmp(&again.rope.theta, &config.rope.theta,
                  sizeof(again.rope) - offsetof(struct hf_rope, theta)) == 0 &&
           again.rope.kind == config.rope.kind);
    text_free(&text);
    return 0;
}
#endif

/* hf_config — see hf_config.h. Every field is checked against what our model computes: a file whose
 * numbers mean something else must be refused, never loaded. It must not know our model's code,
 * only its names. */
#include "format/hf_config.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"

#define DIM_MAX (1 << 24) /* far above any model; products of two stay in range */
#define EPS 1e-5
#define END_OF_TEXT 50256 /* GPT-2's end-of-text token, if the vocabulary has it */

/* is_unset — a key that is missing or null stands for transformers' default. */
static bool is_unset(const cJSON *item) { return !item || cJSON_IsNull(item); }

/* check_flag — a switch of transformers for which our model has one position; unset stands for that
 * position. */
static enum status check_flag(const cJSON *root, const char *key, bool want)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    if (is_unset(item) || (cJSON_IsBool(item) && (bool)cJSON_IsTrue(item) == want))
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "\"%s\" is not %s, which this GPT-2 does not compute; use another model", key,
                want ? "true" : "false");
}

static enum status check_kind(const cJSON *root)
{
    const char *type;
    TRY(json_get_string(root, "model_type", &type));
    if (strcmp(type, "gpt2") != 0)
        return FAIL(ST_BAD_DATA,
                    "\"model_type\" is \"%.40s\", only \"gpt2\" can be read; use a GPT-2 model",
                    type);
    const cJSON *act = cJSON_GetObjectItemCaseSensitive(root, "activation_function");
    if (!is_unset(act) &&
        (!cJSON_IsString(act) || (strcmp(act->valuestring, "gelu_new") != 0 &&
                                  strcmp(act->valuestring, "gelu_pytorch_tanh") != 0)))
        return FAIL(ST_BAD_DATA,
                    "\"activation_function\" is \"%.40s\", expected \"gelu_new\" (GELU by tanh); "
                    "use another model",
                    cJSON_IsString(act) ? act->valuestring : "not a string");
    const cJSON *eps = cJSON_GetObjectItemCaseSensitive(root, "layer_norm_epsilon");
    if (!is_unset(eps) && !(cJSON_IsNumber(eps) && eps->valuedouble == EPS))
        return FAIL(ST_BAD_DATA, "\"layer_norm_epsilon\" is %g, expected %g; use another model",
                    cJSON_IsNumber(eps) ? eps->valuedouble : 0.0, EPS);
    TRY(check_flag(root, "scale_attn_weights", true));
    TRY(check_flag(root, "scale_attn_by_inverse_layer_idx", false));
    TRY(check_flag(root, "add_cross_attention", false));
    TRY(check_flag(root, "tie_word_embeddings", true));
    return ST_OK;
}

static enum status read_dims(const cJSON *root, struct hf_config *out)
{
    TRY(json_get_i64(root, "n_layer", 1, DIM_MAX, &out->layers));
    TRY(json_get_i64(root, "n_head", 1, DIM_MAX, &out->heads));
    TRY(json_get_i64(root, "n_embd", 1, DIM_MAX, &out->embed));
    TRY(json_get_i64(root, "n_positions", 1, DIM_MAX, &out->context));
    TRY(json_get_i64(root, "vocab_size", 1, DIM_MAX, &out->vocab));
    if (out->embed % out->heads != 0)
        return FAIL(ST_BAD_DATA, "\"n_embd\" %" PRId64 " is not divisible by \"n_head\" %" PRId64,
                    out->embed, out->heads);
    if (!is_unset(cJSON_GetObjectItemCaseSensitive(root, "n_inner"))) {
        int64_t inner;
        TRY(json_get_i64(root, "n_inner", 1, (int64_t)DIM_MAX * 4, &inner));
        if (inner != 4 * out->embed)
            return FAIL(ST_BAD_DATA,
                        "\"n_inner\" is %" PRId64 ", expected null or 4 × n_embd = %" PRId64
                        "; use another model",
                        inner, 4 * out->embed);
    }
    return ST_OK;
}

static enum status read_task(const cJSON *root, struct hf_config *out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "architectures");
    if (is_unset(list))
        return ST_OK;
    if (!cJSON_IsArray(list))
        return FAIL(ST_BAD_DATA, "\"architectures\" is not an array");
    for (const cJSON *item = list->child; item; item = item->next)
        if (cJSON_IsString(item) && strcmp(item->valuestring, "GPT2ForQuestionAnswering") == 0)
            out->is_qa = true;
    return ST_OK;
}

static enum status read_fields(const cJSON *root, struct hf_config *out)
{
    if (!cJSON_IsObject(root))
        return FAIL(ST_BAD_DATA, "it is not a JSON object");
    TRY(check_kind(root));
    TRY(read_dims(root, out));
    TRY(read_task(root, out));
    return ST_OK;
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

/* add_share — a number that reads back as a float: "0.0", not "0". */
static void add_share(struct text *out, const char *key, double value)
{
    char digits[40];
    text_format(digits, sizeof(digits), "%.15g", value);
    text_add(out, "  \"%s\": %s%s,\n", key, digits, strpbrk(digits, ".e") ? "" : ".0");
}

/* add_mark — the token that begins and ends a text; in another vocabulary it is unknown. */
static void add_mark(struct text *out, const char *key, int64_t vocab)
{
    if (vocab > END_OF_TEXT)
        text_add(out, "  \"%s\": %d,\n", key, END_OF_TEXT);
    else
        text_add(out, "  \"%s\": null,\n", key);
}

void hf_config_write(const struct hf_config *config, double dropout, struct text *out)
{
    text_add(out,
             "{\n  \"activation_function\": \"gelu_new\",\n  \"add_cross_attention\": false,\n  "
             "\"architectures\": [\n    \"%s\"\n  ],\n",
             hf_config_class(config));
    add_share(out, "attn_pdrop", dropout);
    add_mark(out, "bos_token_id", config->vocab);
    add_share(out, "embd_pdrop", dropout);
    add_mark(out, "eos_token_id", config->vocab);
    text_add(out,
             "  \"initializer_range\": 0.02,\n  \"layer_norm_epsilon\": 1e-05,\n  \"model_type\": "
             "\"gpt2\",\n"
             "  \"n_ctx\": %" PRId64 ",\n  \"n_embd\": %" PRId64 ",\n  \"n_head\": %" PRId64
             ",\n  \"n_inner\": null,\n  \"n_layer\": %" PRId64 ",\n  \"n_positions\": %" PRId64
             ",\n  \"pad_token_id\": null,\n  \"reorder_and_upcast_attn\": false,\n",
             config->context, config->embed, config->heads, config->layers, config->context);
    add_share(out, "resid_pdrop", dropout);
    text_add(out,
             "  \"scale_attn_by_inverse_layer_idx\": false,\n  \"scale_attn_weights\": true,\n"
             "  \"summary_activation\": null,\n  \"summary_first_dropout\": 0.1,\n"
             "  \"summary_proj_to_labels\": true,\n  \"summary_type\": \"cls_index\",\n"
             "  \"summary_use_proj\": true,\n  \"tie_word_embeddings\": true,\n"
             "  \"torch_dtype\": \"float32\",\n  \"use_cache\": true,\n  \"vocab_size\": %" PRId64
             "\n}\n",
             config->vocab);
}

void hf_config_write_generation(const struct hf_config *config, struct text *out)
{
    text_add(out, "{\n  \"_from_model_config\": true");
    if (config->vocab > END_OF_TEXT)
        text_add(out, ",\n  \"bos_token_id\": %d,\n  \"eos_token_id\": %d", END_OF_TEXT,
                 END_OF_TEXT);
    text_add(out, "\n}\n");
}

const char *hf_config_class(const struct hf_config *config)
{
    return config->is_qa ? "GPT2ForQuestionAnswering" : "GPT2LMHeadModel";
}

#ifdef FUZZ
#include "base/assert.h"

/* Any bytes are refused, or give dimensions in range that read back from what is written. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct hf_config config, again;
    struct text text = {.data = NULL};
    if (hf_config_parse((const char *)bytes, n, "fuzz", &config) != ST_OK)
        return 0;
    ASSERT(config.layers >= 1 && config.heads >= 1 && config.embed % config.heads == 0 &&
           config.embed <= DIM_MAX);
    hf_config_write(&config, 0.1, &text);
    ASSERT(hf_config_parse(text.data, text.len, "written", &again) == ST_OK);
    ASSERT(again.layers == config.layers && again.heads == config.heads &&
           again.embed == config.embed && again.context == config.context &&
           again.vocab == config.vocab && again.is_qa == config.is_qa);
    text_free(&text);
    return 0;
}
#endif

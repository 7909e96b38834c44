/* hf — see the header. What the configuration says is checked against what our model computes, field by
 * field: a file whose numbers would mean something else must be refused, never loaded. Must not know our
 * model's code, only its names. */
#include "format/hf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

#define CONFIG "config.json"
#define WEIGHTS "model.safetensors"
#define PREFIX "transformer."
#define CONFIG_BYTES_MAX (1 << 20)
#define DIM_MAX (1 << 24) /* far above any model; keeps products of two in range */
#define EPS 1e-5

struct hf_model {
    char path[FILE_PATH_MAX]; /* of the weights */
    struct file_map map;
    struct safetensors tensors;
};

bool hf_is_folder(const char *path)
{
    char config[FILE_PATH_MAX];
    return file_join(config, sizeof(config), path, CONFIG) == ST_OK && file_bytes(config) >= 0;
}

/* is_unset — a key that is missing or null stands for transformers' default. */
static bool is_unset(const cJSON *item) { return !item || cJSON_IsNull(item); }

/* check_flag — a switch of transformers that our model has in one position only; unset stands for that
 * position. */
static enum status check_flag(const cJSON *root, const char *key, bool want)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    if (is_unset(item) || (cJSON_IsBool(item) && (bool)cJSON_IsTrue(item) == want))
        return ST_OK;
    return FAIL(ST_BAD_DATA, "\"%s\" is not %s, which this GPT-2 does not compute; use another model", key,
                want ? "true" : "false");
}

static enum status check_kind(const cJSON *root)
{
    const char *type;
    TRY(json_get_string(root, "model_type", &type));
    if (strcmp(type, "gpt2") != 0)
        return FAIL(ST_BAD_DATA, "\"model_type\" is \"%.40s\", only \"gpt2\" can be read; use a GPT-2 model",
                    type);
    const cJSON *act = cJSON_GetObjectItemCaseSensitive(root, "activation_function");
    if (!is_unset(act) && (!cJSON_IsString(act) || (strcmp(act->valuestring, "gelu_new") != 0 &&
                                                    strcmp(act->valuestring, "gelu_pytorch_tanh") != 0)))
        return FAIL(ST_BAD_DATA,
                    "\"activation_function\" is \"%.40s\", expected \"gelu_new\" (GELU by tanh); use another "
                    "model",
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
        return FAIL(ST_BAD_DATA, "\"n_embd\" %" PRId64 " is not divisible by \"n_head\" %" PRId64, out->embed,
                    out->heads);
    if (!is_unset(cJSON_GetObjectItemCaseSensitive(root, "n_inner"))) {
        int64_t inner;
        TRY(json_get_i64(root, "n_inner", 1, (int64_t)DIM_MAX * 4, &inner));
        if (inner != 4 * out->embed)
            return FAIL(ST_BAD_DATA,
                        "\"n_inner\" is %" PRId64 ", expected null or 4 × n_embd = %" PRId64 "; use another "
                                                                                             "model",
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

/* parse_config — a pure function of the bytes; `what` names them in failures. */
static enum status parse_config(const char *bytes, size_t n, const char *what, struct hf_config *out)
{
    cJSON *root = NULL;
    struct hf_config found = {.is_qa = false};
    TRY(json_parse(bytes, n, what, &root));
    enum status st = read_fields(root, &found);
    cJSON_Delete(root);
    if (st != ST_OK) {
        struct status_saved why;
        status_keep(&why);
        return FAIL(st, "%s: %s", what, why.message);
    }
    *out = found;
    return ST_OK;
}

enum status hf_read_config(const char *dir, struct hf_config *out)
{
    char path[FILE_PATH_MAX], *bytes = NULL;
    size_t n = 0;
    TRY(file_join(path, sizeof(path), dir, CONFIG));
    TRY(file_read(path, CONFIG_BYTES_MAX, &bytes, &n));
    enum status st = parse_config(bytes, n, path, out);
    free(bytes);
    return st;
}

/* explain_missing — other ways in which the weights may be there. */
static enum status explain_missing(const char *dir)
{
    static const char *const how = "convert it: AutoModel.from_pretrained(DIR).save_pretrained(OUT, "
                                   "safe_serialization=True)";
    static const char *const other[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                                        "flax_model.msgpack"};
    char path[FILE_PATH_MAX];
    TRY(file_join(path, sizeof(path), dir, WEIGHTS ".index.json"));
    if (file_exists(path))
        return FAIL(ST_BAD_DATA,
                    "%s holds weights in several files (" WEIGHTS ".index.json), only one " WEIGHTS " can be "
                                                                                                    "read; "
                                                                                                    "save "
                    "it with a larger max_shard_size",
                    dir);
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        TRY(file_join(path, sizeof(path), dir, other[i]));
        if (file_exists(path))
            return FAIL(ST_BAD_DATA, "%s holds %s, but no " WEIGHTS "; %s", dir, other[i], how);
    }
    return FAIL(ST_NO_INPUT, "there is no " WEIGHTS " in %s; check the path", dir);
}

static const struct safetensors_entry *find(const struct hf_model *hf, const char *name)
{
    char prefixed[SAFETENSORS_NAME_MAX];
    const struct safetensors_entry *entry = safetensors_find(&hf->tensors, name);
    if (!entry && text_format(prefixed, sizeof(prefixed), PREFIX "%s", name))
        entry = safetensors_find(&hf->tensors, prefixed);
    return entry;
}

/* check_tied — an output layer of its own is not what our model computes; a copy of the embedding is
 * harmless. */
static enum status check_tied(const struct hf_model *hf)
{
    const struct safetensors_entry *head = safetensors_find(&hf->tensors, "lm_head.weight"),
                                   *wte = find(hf, "wte.weight");
    if (!head || !wte)
        return ST_OK;
    if (head->dtype == wte->dtype && head->bytes == wte->bytes &&
        memcmp(head->data, wte->data, wte->bytes) == 0)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: lm_head.weight differs from wte.weight; only models with a tied output layer can be "
                "read",
                hf->path);
}

/* is_block_name — "h.<number>.<one of GPT-2's>". */
static bool is_block_name(const char *name)
{
    static const char *const known[] = {
        "ln_1.weight",        "ln_1.bias",        "attn.c_attn.weight", "attn.c_attn.bias",
        "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",        "ln_2.bias",
        "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias",
        "attn.bias",          "attn.masked_bias", /* the causal mask, kept by older versions */
    };
    size_t digits = text_starts(name, "h.") ? strspn(name + 2, "0123456789") : 0;
    if (digits == 0 || name[2 + digits] != '.')
        return false;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name + 3 + digits, known[i]) == 0)
            return true;
    return false;
}

/* warn_unused — tensors that GPT-2 does not have: somebody should look, training can go on. */
static void warn_unused(const struct hf_model *hf)
{
    static const char *const known[] = {"wte.weight",     "wpe.weight",        "ln_f.weight",    "ln_f.bias",
                                        "lm_head.weight", "qa_outputs.weight", "qa_outputs.bias"};
    const char *first = NULL;
    int unused_n = 0;
    for (int i = 0; i < hf->tensors.entries_n; i++) {
        const char *name = hf->tensors.entry[i].name;
        if (text_starts(name, PREFIX))
            name += strlen(PREFIX);
        bool is_known = is_block_name(name);
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
            is_known = is_known || strcmp(name, known[k]) == 0;
        if (!is_known && unused_n++ == 0)
            first = hf->tensors.entry[i].name;
    }
    if (unused_n > 0)
        LOG_WARN("%s: %d tensors are none of GPT-2's and are not used, the first is %s", hf->path, unused_n,
                 first);
}

static enum status open_weights(struct hf_model *hf, const char *dir)
{
    TRY(file_join(hf->path, sizeof(hf->path), dir, WEIGHTS));
    if (!file_exists(hf->path))
        return explain_missing(dir);
    TRY(file_map_open(hf->path, &hf->map));
    TRY(safetensors_parse(hf->map.data, hf->map.bytes, hf->path, &hf->tensors));
    TRY(check_tied(hf));
    warn_unused(hf);
    return ST_OK;
}

enum status hf_open(const char *dir, struct hf_model **out)
{
    struct hf_model *hf = calloc(1, sizeof(*hf));
    if (!hf)
        return FAIL(ST_RETRY, "out of memory: model folder %s", dir);
    enum status st = open_weights(hf, dir);
    if (st != ST_OK) {
        hf_close(hf);
        return st;
    }
    *out = hf;
    return ST_OK;
}

void hf_close(struct hf_model *hf)
{
    if (!hf)
        return;
    safetensors_free(&hf->tensors);
    file_map_close(&hf->map);
    free(hf);
}

bool hf_has(const struct hf_model *hf, const char *name) { return find(hf, name) != NULL; }

enum status hf_tensor(const struct hf_model *hf, const char *name, int dims_n, const int64_t *dim,
                      const struct safetensors_entry **out)
{
    const struct safetensors_entry *entry = find(hf, name);
    if (!entry)
        return FAIL(ST_BAD_DATA,
                    "%s: there is no tensor %s, with or without \"" PREFIX "\" before it; is it a whole "
                                                                           "GPT-2?",
                    hf->path, name);
    TRY(safetensors_check(entry, hf->path, dims_n, dim));
    *out = entry;
    return ST_OK;
}

#ifdef FUZZ
#include "base/must.h"

/* Any bytes are either refused or give dimensions in range. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct hf_config config;
    if (parse_config((const char *)bytes, n, "fuzz", &config) == ST_OK)
        ASSERT(config.layers >= 1 && config.heads >= 1 && config.embed % config.heads == 0 &&
               config.embed <= DIM_MAX);
    return 0;
}
#endif

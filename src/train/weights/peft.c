/* peft — see peft.h. */
#include "train/weights/peft.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "format/hf_names.h"

#define CONFIG_BYTES_MAX (1 << 20)
#define RANK_MAX 65536
#define PREFIX "base_model.model."

struct peft {
    struct peft_config config;
    char path[FILE_PATH_MAX]; /* path of the weights, for messages */
    struct file_map map;
    struct safetensors tensors;
    const struct hf_names *names;
};

bool peft_is_folder(const char *path)
{
    char config[FILE_PATH_MAX];
    return file_join(config, sizeof config, path, PEFT_CONFIG) == ST_OK && file_bytes(config) >= 0;
}

/* ---- the config ---- */

/* Returns true for a value that changes nothing: missing, null, false, or an empty list or
 * object. */
static bool is_nothing(const cJSON *item)
{
    return !item || cJSON_IsNull(item) || cJSON_IsFalse(item) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child);
}

static enum status check_kind(const cJSON *root, const char *what)
{
    static const char *const refused[] = {"use_dora",
                                          "use_rslora",
                                          "use_qalora",
                                          "use_bdlora",
                                          "lora_bias",
                                          "modules_to_save",
                                          "rank_pattern",
                                          "alpha_pattern",
                                          "layer_replication",
                                          "target_parameters",
                                          "trainable_token_indices",
                                          "alora_invocation_tokens",
                                          "arrow_config",
                                          "monteclora_config",
                                          "velora_config"};
    const char *kind = json_text(root, "peft_type"), *bias = json_text(root, "bias");
    if (strcmp(kind, "LORA") != 0)
        return FAIL(ST_BAD_DATA, "%s: \"peft_type\" is \"%.32s\", and only LORA is read", what,
                    kind);
    if (bias[0] && strcmp(bias, "none") != 0)
        return FAIL(ST_BAD_DATA,
                    "%s: \"bias\" is \"%.32s\", and no biases are trained here; use an "
                    "adapter with \"none\"",
                    what, bias);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!is_nothing(cJSON_GetObjectItemCaseSensitive(root, refused[i])))
            return FAIL(ST_BAD_DATA,
                        "%s: \"%s\" is set, which is not supported; merge the adapter in PEFT "
                        "(merge_and_unload), and use the merged model",
                        what, refused[i]);
    return ST_OK;
}

static enum status parse_config(const char *bytes, size_t n, const char *what,
                                struct peft_config *out)
{
    cJSON *root = NULL;
    struct peft_config config;
    TRY(json_parse(bytes, n, what, &root));
    enum status st = check_kind(root, what);
    if (st == ST_OK)
        st = json_get_i64(root, "r", 1, RANK_MAX, &config.rank);
    if (st == ST_OK)
        st = json_get_f64(root, "lora_alpha", &config.alpha);
    cJSON_Delete(root);
    if (st == ST_BAD_DATA && !text_starts(status_message(), what)) {
        char why[256];
        text_copy(why, sizeof why, status_message());
        return FAIL(ST_BAD_DATA, "%s: %s", what, why);
    }
    TRY(st);
    *out = config;
    return ST_OK;
}

static enum status read_config(const char *dir, struct peft_config *out)
{
    char path[FILE_PATH_MAX], *bytes = NULL;
    size_t n = 0;
    TRY(file_join(path, sizeof path, dir, PEFT_CONFIG));
    TRY(file_read(path, CONFIG_BYTES_MAX, &bytes, &n));
    const enum status st = parse_config(bytes, n, path, out);
    free(bytes);
    return st;
}

/* read_base — writes the name of the folder's model, as its config records it; "": unknown. */
static void read_base(const char *dir, char *out, size_t cap)
{
    char path[FILE_PATH_MAX], *bytes = NULL;
    cJSON *root = NULL;
    size_t n = 0;
    out[0] = 0;
    if (file_join(path, sizeof path, dir, PEFT_CONFIG) != ST_OK ||
        file_read(path, CONFIG_BYTES_MAX, &bytes, &n) != ST_OK ||
        json_parse(bytes, n, path, &root) != ST_OK)
        status_clear();
    else
        text_copy(out, cap, json_text(root, "base_model_name_or_path"));
    cJSON_Delete(root);
    free(bytes);
}

enum status peft_refuse(const char *path)
{
    char base[128], model[192] = "";
    read_base(path, base, sizeof base);
    if (base[0])
        text_format(model, sizeof model, " (base_model_name_or_path: %s)", base);
    return FAIL(ST_BAD_SETTING,
                "%s is an adapter of PEFT, not a model or a checkpoint; set MODEL to its model%s "
                "and ADAPTER=%s, which train, chat, generate and eval accept, or merge them in "
                "PEFT (merge_and_unload)",
                path, model, path);
}

/* ---- the weights ---- */

bool peft_name(enum hf_arch arch, const char *name, char *out, size_t cap)
{
    char full[SAFETENSORS_NAME_MAX];
    return hf_names_full(hf_names_of(arch), name, full, sizeof full) &&
           text_format(out, cap, PREFIX "%s", full);
}

/* our_name — returns the part of a name in the file that is ours; NULL: another prefix. */
static const char *our_name(const struct peft *peft, const char *name)
{
    const char *prefix = peft->names->prefix;
    if (!text_starts(name, PREFIX))
        return NULL;
    name += strlen(PREFIX);
    return text_starts(name, prefix) ? name + strlen(prefix) : name;
}

static const struct safetensors_entry *find_entry(const struct peft *peft, const char *name)
{
    for (int i = 0; i < peft->tensors.entries_n; i++) {
        const struct safetensors_entry *entry = &peft->tensors.entry[i];
        const char *ours = our_name(peft, entry->name);
        if (ours && strcmp(ours, name) == 0)
            return entry;
    }
    return NULL;
}

enum status peft_open(const char *dir, enum hf_arch arch, struct peft **out)
{
    struct peft *peft = memory_new(1, sizeof *peft);
    peft->names = hf_names_of(arch);
    enum status st = read_config(dir, &peft->config);
    TRY_OR(st, failed);
    TRY_OR(file_join(peft->path, sizeof peft->path, dir, PEFT_WEIGHTS), failed);
    if (!file_exists(peft->path)) {
        st = FAIL(ST_NO_INPUT, "there is no " PEFT_WEIGHTS " in %s; check the path", dir);
        goto failed;
    }
    TRY_OR(file_map_open(peft->path, &peft->map), failed);
    TRY_OR(safetensors_parse(peft->map.data, peft->map.bytes, peft->path, &peft->tensors), failed);
    *out = peft;
    return ST_OK;
failed:
    peft_close(peft);
    return st;
}

void peft_close(struct peft *peft)
{
    if (!peft)
        return;
    safetensors_free(&peft->tensors);
    file_map_close(&peft->map);
    free(peft);
}

const struct peft_config *peft_config(const struct peft *peft) { return &peft->config; }

enum status peft_tensor(const struct peft *peft, const char *name, int dims_n, const int64_t *dim,
                        const struct safetensors_entry **out)
{
    const struct safetensors_entry *entry = find_entry(peft, name);
    if (!entry)
        return FAIL(ST_BAD_DATA, "%s: there is no tensor " PREFIX "%s%s; is it of another model?",
                    peft->path, peft->names->prefix, name);
    TRY(safetensors_check(entry, peft->path, dims_n, dim));
    *out = entry;
    return ST_OK;
}

int peft_tensors(const struct peft *peft)
{
    int others_n = 0;
    while (safetensors_other(&peft->tensors, others_n))
        others_n++;
    return peft->tensors.entries_n + others_n;
}

const char *peft_stray(const struct peft *peft, bool (*is_known)(void *arg, const char *name),
                       void *arg)
{
    for (int i = 0; i < peft->tensors.entries_n; i++) {
        const char *name = peft->tensors.entry[i].name, *ours = our_name(peft, name);
        if (!ours || !is_known(arg, ours))
            return name;
    }
    return safetensors_other(&peft->tensors, 0);
}

/* ---- writing ---- */

void peft_write_config(const struct peft_config *config, enum hf_arch arch, const char *base,
                       const char *modules, struct text *out)
{
    text_add(out, "{\n  \"base_model_name_or_path\": ");
    json_quote_text(out, base);
    text_add(out,
             ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n  \"inference_mode\": true,\n"
             "  \"lora_alpha\": %s,\n  \"lora_dropout\": 0.0,\n  \"peft_type\": \"LORA\",\n"
             "  \"r\": %lld,\n  \"target_modules\": [%s],\n  \"task_type\": \"CAUSAL_LM\",\n"
             "  \"use_dora\": false,\n  \"use_rslora\": false\n}\n",
             arch == HF_ARCH_GPT2 ? "true" : "false", text_f64(config->alpha).text,
             (long long)config->rank, modules);
}

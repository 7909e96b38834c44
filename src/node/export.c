/* export — `convoy export`: a checkpoint → a Hugging Face folder that the model's class in
 * transformers loads.
 *
 * The checkpoint's tensors are written as they lie, under transformers' names. The tokenizer's
 * files are those that came with the model, or the built-in ones for a GPT-2 with its vocabulary.
 * Must not know how files are written. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/assert.h"
#include "base/text.h"
#include "data/tokenizer_gpt2_write.h"
#include "format/hf_config.h"
#include "format/hf_names.h"
#include "format/hf_save.h"
#include "node/command.h"
#include "node/memory_check.h"
#include "node/tokenizer_files.h"
#include "node/tokenizer_source.h"
#include "train/weights.h"

#define FILES_MAX (2 + TOKENIZER_FILES_MAX)
#define END_OF_TEXT 50256 /* GPT-2's end-of-text token, if the vocabulary has it */
#define DROPOUT_USUAL 0.1 /* GPT-2's own, for a model that was imported and not trained here */

/* One folder to be made. */
struct export
{
    struct ckpt *ckpt;
    struct model_dims dims;
    struct param_table table;
    struct safetensors_source *source;
    char(*name)[PARAM_NAME_MAX + 16]; /* of the tensors, with prefix */
    struct text text[FILES_MAX];
    struct hf_save_file file[FILES_MAX];
    int files_n;
    struct tokenizer_file tokenizer[TOKENIZER_FILES_MAX];
    int tokenizer_n;
};

static struct hf_rope rope_of(const struct model_rope *r)
{
    return (struct hf_rope){.kind = (enum hf_rope_kind)r->kind,
                            .theta = r->theta,
                            .fraction = r->fraction,
                            .factor = r->factor,
                            .low_freq_factor = r->low_freq_factor,
                            .high_freq_factor = r->high_freq_factor,
                            .original_context = r->original_context,
                            .beta_fast = r->beta_fast,
                            .beta_slow = r->beta_slow,
                            .attention_factor = r->attention_factor};
}

/* config_of — the model as a config.json says it; the order of architectures is the same. */
static struct hf_config config_of(const struct model_dims *dims)
{
    const struct model_parts *parts = &dims->parts;
    const bool is_gpt2 = dims->arch == MODEL_ARCH_GPT2;
    const struct model_marks *marks = &dims->marks;
    const int64_t mark = is_gpt2 && dims->vocab > END_OF_TEXT ? END_OF_TEXT : -1;
    return (struct hf_config){.arch = (enum hf_arch)dims->arch,
                              .layers = dims->layers,
                              .heads = dims->heads,
                              .embed = dims->embed,
                              .context = dims->context,
                              .vocab = dims->vocab,
                              .is_qa = dims->task == MODEL_TASK_QA,
                              .kv_heads = model_kv_heads(dims),
                              .head_dim = model_head_dim(dims),
                              .ffn = model_ffn(dims),
                              .norm_eps = model_norm_eps(dims),
                              .is_tied = !parts->is_untied,
                              .qkv_bias = parts->bias != MODEL_BIAS_NONE,
                              .out_bias = parts->bias == MODEL_BIAS_ALL,
                              .gelu_tanh = parts->mlp == MODEL_MLP_GELU_TANH,
                              .parallel_residual = parts->is_parallel,
                              .rope = rope_of(&parts->rope),
                              .bos = !is_gpt2 && marks->has_bos ? marks->bos : mark,
                              .eos = !is_gpt2 && marks->has_eos ? marks->eos : mark};
}

/* list_sources — every parameter of the checkpoint, finite, under transformers' name; the
 * heads' stand outside "transformer". */
static enum status list_sources(struct export *ex)
{
    const struct hf_names *names = hf_names_of(config_of(&ex->dims).arch);
    size_t n = (size_t)ex->table.params_n;
    ex->source = calloc(n, sizeof *ex->source);
    ex->name = calloc(n, sizeof *ex->name);
    if (!ex->source || !ex->name)
        return FAIL(ST_RETRY, "out of memory: the list of %zu tensors to write", n);
    for (size_t i = 0; i < n; i++) {
        const struct param *p = &ex->table.param[i];
        const struct safetensors_entry *entry;
        TRY(ckpt_tensor(ex->ckpt, "model", p->name, p->dims_n, p->dim, &entry));
        TRY(weights_check_finite(ckpt_path(ex->ckpt), entry));
        bool fits = hf_names_full(names, p->name, ex->name[i], sizeof ex->name[i]);
        ASSERTF(fits, "%s", p->name);
        ex->source[i] = (struct safetensors_source){.name = ex->name[i],
                                                    .dtype = entry->dtype,
                                                    .dims_n = p->dims_n,
                                                    .dim = {p->dim[0], p->dim[1]},
                                                    .data = entry->data};
    }
    return ST_OK;
}

/* next_file — one more file, for the caller to fill. */
static struct text *next_file(struct export *ex, const char *name)
{
    ASSERTF(ex->files_n < FILES_MAX, "%s", name);
    ex->file[ex->files_n].name = name;
    ex->text[ex->files_n].limit = TOKENIZER_GPT2_WRITE_BYTES_MAX;
    return &ex->text[ex->files_n++];
}

/* settings_of — of the run; NULL: they cannot be read. The caller deletes them. */
static cJSON *settings_of(const struct ckpt *ckpt)
{
    const char *json = ckpt_meta(ckpt)->settings_json;
    cJSON *settings = NULL;
    if (json_parse(json, strlen(json), "settings of the checkpoint", &settings) != ST_OK)
        status_clear();
    return settings;
}

/* dropout_of — what the run trained with. */
static double dropout_of(const struct export *ex)
{
    cJSON *settings = settings_of(ex->ckpt);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(settings, "DROPOUT");
    double dropout = ex->dims.arch == MODEL_ARCH_GPT2 ? DROPOUT_USUAL : 0;
    if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1)
        dropout = item->valuedouble;
    cJSON_Delete(settings);
    return dropout;
}

static void write_config(struct export *ex)
{
    const struct hf_config config = config_of(&ex->dims);
    hf_config_write(&config, dropout_of(ex), next_file(ex, "config.json"));
    if (!config.is_qa)
        hf_config_write_generation(&config, next_file(ex, "generation_config.json"));
}

/* write_gpt2_tokenizer — the built-in one, for a model that has its vocabulary. */
static enum status write_gpt2_tokenizer(struct export *ex)
{
    struct tokenizer *gpt2;
    if (ex->dims.arch != MODEL_ARCH_GPT2 || ex->dims.vocab < TOKENIZER_GPT2_VOCAB) {
        LOG_INFO("no tokenizer files: the model is not GPT-2 with its vocabulary of %d, and none "
                 "lie beside the checkpoints or in MODEL",
                 TOKENIZER_GPT2_VOCAB);
        return ST_OK;
    }
    TRY(tokenizer_gpt2_open(&gpt2));
    tokenizer_gpt2_write_vocab(gpt2, next_file(ex, "vocab.json"));
    tokenizer_gpt2_write_merges(next_file(ex, "merges.txt"));
    tokenizer_gpt2_write_tokenizer_json(gpt2, next_file(ex, "tokenizer.json"));
    tokenizer_gpt2_write_settings(ex->dims.context, next_file(ex, "tokenizer_config.json"));
    tokenizer_gpt2_write_specials(next_file(ex, "special_tokens_map.json"));
    tokenizer_close(gpt2);
    return ST_OK;
}

/* kept_dir — where the tokenizer's files are kept: beside the checkpoint, in its parent. */
static enum status kept_dir(const struct ckpt *ckpt, char *out, size_t cap, char *parent,
                            size_t parent_cap)
{
    text_copy(parent, parent_cap, ckpt_path(ckpt));
    for (size_t n = strlen(parent); n > 1 && parent[n - 1] == '/'; n--)
        parent[n - 1] = 0;
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = 0;
    if (!slash)
        text_copy(parent, parent_cap, ".");
    return file_join(out, cap, parent, TOKENIZER_FILES_DIR);
}

/* is_of_run — whether the kept tokenizer is the one that the settings name. */
static bool is_of_run(const struct export *ex, const char *parent)
{
    char path[FILE_PATH_MAX];
    struct text identity = {0};
    cJSON *settings = settings_of(ex->ckpt);
    const char *was = json_text(settings, "TOKENIZER");
    if (tokenizer_source_kept(parent, path, &identity) != ST_OK) {
        LOG_WARN("the tokenizer in %s is not read: %s", path, status_message());
        status_clear();
        text_free(&identity);
        text_add(&identity, "?");
    }
    bool is_read = identity.len != 1;
    bool is_same =
        !is_read || (was[0] ? identity.len > 0 && strstr(identity.data, was) : identity.len == 0);
    text_free(&identity);
    cJSON_Delete(settings);
    return is_same;
}

/* write_tokenizer — the files that came with the model, unchanged; else the built-in one. */
static enum status write_tokenizer(struct export *ex)
{
    char dir[FILE_PATH_MAX], parent[FILE_PATH_MAX];
    TRY(kept_dir(ex->ckpt, dir, sizeof dir, parent, sizeof parent));
    if (!is_of_run(ex, parent)) {
        LOG_WARN("no tokenizer files: the run used another tokenizer than the one in %s", dir);
        return ST_OK;
    }
    TRY(tokenizer_files_read(dir, ex->tokenizer, &ex->tokenizer_n));
    if (ex->tokenizer_n == 0)
        return write_gpt2_tokenizer(ex);
    LOG_INFO("tokenizer files of %s%s", dir,
             strcmp(ex->tokenizer[ex->tokenizer_n - 1].name, TOKENIZER_FILES_GGUF) == 0
                 ? ": it came in a GGUF file, for which Hugging Face's programs need the source "
                   "model's tokenizer.json; none is written"
                 : "");
    for (int i = 0; i < ex->tokenizer_n; i++) {
        const struct tokenizer_file *file = &ex->tokenizer[i];
        if (strcmp(file->name, TOKENIZER_FILES_GGUF) == 0)
            continue; /* of no use to Hugging Face's programs */
        struct text *text = next_file(ex, file->name);
        text->limit = file->bytes + 64;
        text_add_bytes(text, file->data, file->bytes);
    }
    return ST_OK;
}

static enum status check_texts(struct export *ex)
{
    for (int i = 0; i < ex->files_n; i++) {
        if (ex->text[i].overflow)
            return FAIL(ST_RETRY, "out of memory: the text of %s", ex->file[i].name);
        ex->file[i].data = ex->text[i].data;
        ex->file[i].bytes = ex->text[i].len;
    }
    return ST_OK;
}

static enum status run(struct export *ex, const char *from, const char *to)
{
    char count[32];
    struct memory_plan plan;
    TRY(hf_save_check(to)); /* before anything long */
    memory_plan_export(&plan);
    TRY(memory_check_command("export", &plan, NULL, "free some memory, or raise the limit"));
    TRY(weights_checkpoint(from, &ex->ckpt, &ex->dims));
    TRY(model_ops(&ex->dims)->describe(&ex->dims, &ex->table));
    TRY(list_sources(ex));
    write_config(ex);
    TRY(write_tokenizer(ex));
    TRY(check_texts(ex));
    TRY(hf_save(to, ex->source, ex->table.params_n, ex->file, ex->files_n, HF_SAVE_PART_BYTES));
    const struct hf_config config = config_of(&ex->dims);
    log_console("%s  %s  %s parameters  from %s", to, hf_config_class(&config),
                text_format_count(count, sizeof count, (double)ex->table.parameters),
                ckpt_path(ex->ckpt));
    return ST_OK;
}

enum status export_main(const struct conf *conf)
{
    const char *from = conf_text(conf, CONF_FROM), *to = conf_text(conf, CONF_TO);
    struct export ex = {.files_n = 0};
    if (!*from)
        return FAIL(ST_BAD_SETTING,
                    "what should be exported? set FROM to a checkpoint or a run's CHECKPOINT_DIR");
    if (!*to)
        return FAIL(
            ST_BAD_SETTING,
            "where should the Hugging Face folder go? set TO to a folder that is not there yet");
    enum status st = run(&ex, from, to);
    for (int i = 0; i < ex.files_n; i++)
        text_free(&ex.text[i]);
    tokenizer_files_free(ex.tokenizer, ex.tokenizer_n);
    free(ex.source);
    free(ex.name);
    param_table_free(&ex.table);
    ckpt_close(ex.ckpt);
    return st;
}

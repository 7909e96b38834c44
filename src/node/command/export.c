/* export — `convoy export`: converts a checkpoint to a Hugging Face folder that the model's class
 * in transformers loads.
 *
 * The checkpoint's tensors are written unchanged, in chunks, under transformers' names. The
 * tokenizer's files are the files that came with the model, or the built-in ones for a GPT-2 with
 * its vocabulary. Must not know how files are written. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/tokenizer/gpt2.h"
#include "format/hf.h"
#include "format/hf_config.h"
#include "format/hf_names.h"
#include "node/command.h"
#include "node/choose/memory_check.h"
#include "node/choose/tokenizer_files.h"
#include "node/choose/tokenizer_source.h"
#include "train/weights/weights.h"

#define FILES_MAX (2 + TOKENIZER_FILES_MAX)
#define FINITE_ELEMS 4096
#define TOKENIZER_JSON_BYTES_MAX (64 << 20)
#define END_OF_TEXT 50256 /* GPT-2's end-of-text token, if the vocabulary has it */
/* GPT-2's own value, for a model that was imported and not trained here */
#define DROPOUT_USUAL 0.1

/* One tensor of the checkpoint that is being copied. */
struct tensor_copy {
    const struct ckpt *ckpt;
    const struct safetensors_entry *entry;
    struct weights_finite finite;
};

/* One export. */
struct export
{
    struct ckpt *ckpt;
    struct model_dims dims;
    struct param_table table;
    struct tensor_copy *copy; /* source of each parameter, in the order of source and name */
    struct safetensors_source *source;
    char(*name)[PARAM_NAME_MAX + 16]; /* full names of the tensors, with prefix */
    struct text text[FILES_MAX];
    struct hf_save_file file[FILES_MAX];
    int files_n;
    struct tokenizer_file tokenizer[TOKENIZER_FILES_MAX];
    int tokenizer_n;
    char kept[FILE_PATH_MAX]; /* folder with the files of the tokenizer */
    /* tokenizer of the run, from that folder; NULL: there is none, or it cannot be read */
    struct tokenizer *opened;
    bool is_other;    /* the tokenizer in that folder is not the run's */
    bool is_built_in; /* the run's tokenizer is GPT-2's */
};

/* config_of — returns the contents of config.json for the model. Both enums list the architectures
 * in the same order. */
static struct hf_config config_of(const struct model_dims *dims)
{
    const struct model_features *features = &dims->features;
    const struct model_marks *marks = &dims->marks;
    struct hf_config config = {
        .arch = (enum hf_arch)dims->arch,
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
        .is_tied = !features->is_untied,
        .qkv_bias = features->bias != MODEL_BIAS_NONE,
        .out_bias = features->bias == MODEL_BIAS_ALL,
        .gelu_tanh = features->mlp == MODEL_MLP_GELU_TANH,
        .parallel_residual = features->is_parallel,
        .rope = (struct hf_rope){.kind = (enum hf_rope_kind)features->rope.kind,
                                 .theta = features->rope.theta,
                                 .fraction = features->rope.fraction,
                                 .factor = features->rope.factor,
                                 .low_freq_factor = features->rope.low_freq_factor,
                                 .high_freq_factor = features->rope.high_freq_factor,
                                 .original_context = features->rope.original_context,
                                 .beta_fast = features->rope.beta_fast,
                                 .beta_slow = features->rope.beta_slow,
                                 .attention_factor = features->rope.attention_factor},
        .bos = marks->has_bos ? marks->bos : -1,
        .eos_n = marks->eos_n};
    memcpy(config.eos, marks->eos, sizeof config.eos);
    return config;
}

/* read_tensor — copies the next chunk of a tensor unchanged; checks that it is finite. */
static enum status read_tensor(void *arg, int64_t first, int64_t n, void *out)
{
    struct tensor_copy *t = arg;
    float values[FINITE_ELEMS];
    const size_t width = dtype_bytes(t->entry->dtype);
    memcpy(out, t->entry->data + (size_t)first * width, (size_t)n * width);
    for (int64_t at = 0, some; at < n; at += some) {
        some = n - at < FINITE_ELEMS ? n - at : FINITE_ELEMS;
        safetensors_to_f32(t->entry, first + at, some, values);
        weights_finite_add(&t->finite, values, some);
    }
    if (first + n < t->entry->elems)
        return ST_OK;
    ckpt_release(t->ckpt, t->entry);
    return weights_finite_check(&t->finite, ckpt_path(t->ckpt), t->entry->name);
}

/* list_sources — lists every parameter of the checkpoint under transformers' name; the names of the
 * heads have no prefix "transformer". */
static enum status list_sources(struct export *ex)
{
    const struct hf_names *names = hf_names_of(config_of(&ex->dims).arch);
    size_t n = (size_t)ex->table.params_n;
    ex->source = memory_new(n, sizeof *ex->source);
    ex->name = memory_new(n, sizeof *ex->name);
    ex->copy = memory_new(n, sizeof *ex->copy);
    for (size_t i = 0; i < n; i++) {
        const struct param *p = &ex->table.param[i];
        const struct safetensors_entry *entry;
        TRY(ckpt_tensor(ex->ckpt, "model", p->name, p->dims_n, p->dim, &entry));
        ex->copy[i] = (struct tensor_copy){.ckpt = ex->ckpt, .entry = entry};
        bool fits = hf_names_full(names, p->name, ex->name[i], sizeof ex->name[i]);
        ASSERTF(fits, "%s", p->name);
        ex->source[i] = (struct safetensors_source){.name = ex->name[i],
                                                    .dtype = entry->dtype,
                                                    .dims_n = p->dims_n,
                                                    .dim = {p->dim[0], p->dim[1]},
                                                    .read = read_tensor,
                                                    .arg = &ex->copy[i]};
    }
    return ST_OK;
}

/* next_file — adds a file, which the caller fills. */
static struct text *next_file(struct export *ex, const char *name)
{
    ASSERTF(ex->files_n < FILES_MAX, "%s", name);
    ex->file[ex->files_n].name = name;
    ex->text[ex->files_n].limit = TOKENIZER_GPT2_WRITE_BYTES_MAX;
    return &ex->text[ex->files_n++];
}

/* settings_of — returns the settings of the run; NULL: they cannot be read. The caller deletes
 * them. */
static cJSON *settings_of(const struct ckpt *ckpt)
{
    const char *json = ckpt_meta(ckpt)->settings_json;
    cJSON *settings = NULL;
    if (json_parse(json, strlen(json), "settings of the checkpoint", &settings) != ST_OK)
        status_clear();
    return settings;
}

/* dropout_of — returns the dropout with which the run was trained. */
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
    /* Transformers 5 checks this only for Llama, although it reads head_dim. */
    if (ex->dims.arch == MODEL_ARCH_LLAMA && ex->dims.embed % ex->dims.heads != 0)
        LOG_WARN("transformers 5 does not load this Llama: its width of %lld is not a multiple of "
                 "its %lld heads; transformers 4 and Convoy do. For transformers 5 train with "
                 "EMBED a multiple of HEADS",
                 (long long)ex->dims.embed, (long long)ex->dims.heads);
    hf_config_write(&config, dropout_of(ex), next_file(ex, "config.json"));
    if (!config.is_qa)
        hf_config_write_generation(&config, next_file(ex, "generation_config.json"));
}

/* find_tokenizer — opens the tokenizer in the folder if it is the tokenizer that the settings name.
 * If it cannot be read, its files are used with a warning. */
static enum status find_tokenizer(struct export *ex)
{
    char parent[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct text identity = {0};
    struct tokenizer *tokenizer = NULL;
    /* The tokenizer's files are in the parent folder of the checkpoint. */
    text_copy(parent, sizeof parent, ckpt_path(ex->ckpt));
    for (size_t n = strlen(parent); n > 1 && parent[n - 1] == '/'; n--)
        parent[n - 1] = 0;
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = 0;
    if (!slash)
        text_copy(parent, sizeof parent, ".");
    TRY(file_join(ex->kept, sizeof ex->kept, parent, TOKENIZER_FILES_DIR));
    if (tokenizer_source_open_kept(parent, path, &tokenizer) != ST_OK) {
        LOG_WARN("the tokenizer in %s cannot be read: %s", path, status_message());
        status_clear();
        return ST_OK;
    }
    if (tokenizer)
        tokenizer_source_add(tokenizer, &identity);
    cJSON *settings = settings_of(ex->ckpt);
    const char *was = json_text(settings, "TOKENIZER");
    ex->is_other = was[0] ? identity.len == 0 || !strstr(identity.data, was) : identity.len > 0;
    ex->is_built_in = !was[0] && !ex->is_other;
    if (!ex->is_other)
        ex->opened = tokenizer;
    else
        tokenizer_close(tokenizer);
    cJSON_Delete(settings);
    text_free(&identity);
    return ST_OK;
}

/* write_gguf_tokenizer — writes the tokenizer in a GGUF file's keys in the format of Hugging Face's
 * programs. A tokenizer that could not be opened is not written. */
static enum status write_gguf_tokenizer(struct export *ex)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, sizeof path, ex->kept, TOKENIZER_FILES_GGUF));
    struct text *json = next_file(ex, "tokenizer.json"),
                *config = next_file(ex, "tokenizer_config.json");
    json->limit = TOKENIZER_JSON_BYTES_MAX;
    enum status st = ex->opened ? tokenizer_source_write_json(path, ex->dims.context, json, config)
                                : FAIL(ST_BAD_DATA, "its kind is not supported");
    if (st == ST_OK || st == ST_RETRY)
        return st;
    LOG_WARN("no tokenizer files: the tokenizer of %s cannot be written for Hugging Face's "
             "programs: %s; "
             "copy the source model's tokenizer.json",
             path, status_message());
    status_clear();
    for (int i = 0; i < 2; i++)
        text_free(&ex->text[--ex->files_n]);
    return ST_OK;
}

/* write_tokenizer — writes the files that came with the model, else the built-in tokenizer. */
static enum status write_tokenizer(struct export *ex)
{
    if (ex->is_other) {
        LOG_WARN("no tokenizer files: the run used another tokenizer than the one in %s", ex->kept);
        return ST_OK;
    }
    TRY(tokenizer_files_read(ex->kept, ex->tokenizer, &ex->tokenizer_n));
    if (ex->tokenizer_n == 0) {
        /* The built-in tokenizer, for a model that has its vocabulary. */
        struct tokenizer *gpt2;
        if (ex->dims.arch != MODEL_ARCH_GPT2 || ex->dims.vocab < TOKENIZER_GPT2_VOCAB) {
            LOG_INFO("no tokenizer files: the model is not GPT-2 with its vocabulary of %d, and "
                     "there are "
                     "none next to the checkpoints or in MODEL",
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
    LOG_INFO("tokenizer files of %s", ex->kept);
    if (strcmp(ex->tokenizer[0].name, TOKENIZER_FILES_GGUF) == 0)
        return write_gguf_tokenizer(ex);
    /* The files that came with the model, unchanged. */
    for (int i = 0; i < ex->tokenizer_n; i++) {
        const struct tokenizer_file *file = &ex->tokenizer[i];
        if (strcmp(file->name, TOKENIZER_FILES_GGUF) == 0)
            continue; /* not needed, because the other files are written */
        struct text *text = next_file(ex, file->name);
        text->limit = file->bytes + 64;
        text_add_bytes(text, file->data, file->bytes);
    }
    return ST_OK;
}

static enum status export_model(struct export *ex, const char *from, const char *to)
{
    char count[32];
    struct memory_plan plan;
    TRY(hf_save_check(to)); /* before any long work */
    memory_plan_convert(&plan);
    TRY(memory_check_command("export", &plan, NULL, "free some memory, or raise the limit"));
    TRY(weights_checkpoint(from, &ex->ckpt, &ex->dims));
    /* Transformers' GPT-2 has only one set of features. */
    const struct model_features *p = &ex->dims.features;
    const char *what = p->mlp != MODEL_MLP_GELU_TANH           ? "ACTIVATION=relu2"
                       : p->position != MODEL_POSITION_LEARNED ? "POSITIONS=rope"
                       : p->has_qk_norm                        ? "QK_NORM=1"
                       : p->is_untied                          ? "TIE_EMBEDDINGS=0"
                       : p->logit_cap > 0                      ? "LOGIT_CAP"
                                                               : NULL;
    if (ex->dims.arch == MODEL_ARCH_GPT2 && what) {
        return FAIL(
            ST_BAD_SETTING,
            "%s: the model was trained with %s, for which Hugging Face's GPT-2 has no field; "
            "use the checkpoint itself: generate, eval and MODEL= accept it",
            ckpt_path(ex->ckpt), what);
    }
    TRY(model_ops(&ex->dims)->describe(&ex->dims, &ex->table));
    TRY(list_sources(ex));
    TRY(find_tokenizer(ex));
    /* If the model names no begin and end tokens, they are the tokens of the run's tokenizer, else
     * of GPT-2's. */
    struct model_marks *marks = &ex->dims.marks;
    uint32_t begin = TOKENIZER_NONE, end = TOKENIZER_NONE;
    if (!marks->has_bos && marks->eos_n <= 0) {
        if (ex->opened)
            begin = tokenizer_begin(ex->opened), end = tokenizer_end(ex->opened);
        else if (ex->is_built_in && ex->dims.arch == MODEL_ARCH_GPT2)
            begin = end = END_OF_TEXT;
        marks->has_bos = begin < ex->dims.vocab;
        marks->bos = marks->has_bos ? begin : 0;
        marks->eos_n = end < ex->dims.vocab;
        marks->eos[0] = end;
    }
    write_config(ex);
    TRY(write_tokenizer(ex));
    for (int i = 0; i < ex->files_n; i++) {
        if (ex->text[i].overflow)
            return FAIL(ST_RETRY, "out of memory: the text of %s", ex->file[i].name);
        ex->file[i].data = ex->text[i].data;
        ex->file[i].bytes = ex->text[i].len;
    }
    TRY(hf_save(to, ex->source, ex->table.params_n, ex->file, ex->files_n, HF_SAVE_FILE_BYTES_MAX));
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
                    "FROM is not set; set FROM to a checkpoint or a run's CHECKPOINT_DIR");
    if (!*to)
        return FAIL(
            ST_BAD_SETTING,
            "TO is not set; set TO to the Hugging Face folder to write, which must not exist");
    enum status st = export_model(&ex, from, to);
    memory_check_log_peak();
    for (int i = 0; i < ex.files_n; i++)
        text_free(&ex.text[i]);
    tokenizer_close(ex.opened);
    tokenizer_files_free(ex.tokenizer, ex.tokenizer_n);
    free(ex.source);
    free(ex.name);
    free(ex.copy);
    param_table_free(&ex.table);
    ckpt_close(ex.ckpt);
    return st;
}

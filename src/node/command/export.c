/* export — `convoy export`: converts a checkpoint to a Hugging Face folder that the model's class
 * in transformers loads, or to a GGUF file of llama.cpp; a checkpoint of an adapter to a PEFT
 * folder, or, with MODEL, merged with its model to one of these.
 *
 * For a folder the checkpoint's tensors are written unchanged, in chunks, under transformers'
 * names; for a GGUF file they are rounded. The tokenizer's files are the files that came with the
 * model, or the built-in ones for a GPT-2 with its vocabulary. Must not know how files are
 * written. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/tokenizer/gguf.h"
#include "data/tokenizer/gpt2.h"
#include "format/gguf/model.h"
#include "format/gguf/save.h"
#include "format/gguf/vocab.h"
#include "format/hf.h"
#include "format/hf_config.h"
#include "format/hf_names.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "node/command.h"
#include "node/choose/chat_source.h"
#include "node/choose/memory_check.h"
#include "node/choose/model_source.h"
#include "node/choose/tokenizer_files.h"
#include "node/choose/tokenizer_source.h"
#include "train/weights/adapter.h"
#include "train/weights/weights.h"

#define FILES_MAX (2 + TOKENIZER_FILES_MAX)
#define CHAT_FILE "chat_template.jinja"
#define FINITE_ELEMS 4096
#define F16_BEYOND 65520.0f /* it rounds to infinity, as all numbers beyond it */
#define TOKENIZER_JSON_BYTES_MAX (64 << 20)
#define END_OF_TEXT 50256 /* GPT-2's end-of-text token, if the vocabulary has it */
/* GPT-2's own value, for a model that was imported and not trained here */
#define DROPOUT_USUAL 0.1

/* One parameter that is being copied. */
struct tensor_copy {
    const struct export *ex;
    const struct param *param;
    struct load_entry entry;
    struct weights_finite finite;
};

/* One export. */
struct export
{
    struct ckpt *ckpt;
    struct model_dims dims; /* the adapter or the model that is written */
    struct param_table table;
    struct load_file values; /* source of the values */
    const char *path;        /* and its path, for messages */
    /* MODEL, and the adapter of the checkpoint that is added to it; NULL: not wanted */
    struct weights *base;
    struct adapter *adapter;
    const struct load_merge *merge;
    const struct gguf_quant *quant; /* type of a GGUF file's matrices; NULL: a folder is written */
    struct tensor_copy *copy;       /* source of each parameter, in the order of source and name */
    struct safetensors_source *source; /* tensors for a folder */
    struct gguf_source *gguf_source;   /* tensors for a GGUF file */
    char(*name)[PARAM_NAME_MAX + 40];  /* full names of the tensors, with prefix */
    struct text text[FILES_MAX];
    struct hf_save_file file[FILES_MAX];
    int files_n;
    struct tokenizer_file tokenizer[TOKENIZER_FILES_MAX];
    int tokenizer_n;
    char kept[FILE_PATH_MAX];           /* folder with the files of the tokenizer */
    char tokenizer_path[FILE_PATH_MAX]; /* tokenizer in it; "": there is none */
    struct chat_source_export chat;     /* chat template of the run */
    /* tokenizer of the run, from that folder; NULL: there is none, or it cannot be read */
    struct tokenizer *opened;
    bool is_other;          /* the tokenizer in that folder is not the run's */
    bool is_built_in;       /* the run's tokenizer is GPT-2's */
    struct tokenizer *gpt2; /* the built-in one, for a GPT-2 with its vocabulary; NULL: not used */
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

/* dtype_of — returns the type in which a folder gets a parameter: the type that it has. */
static enum dtype dtype_of(const struct tensor_copy *t)
{
    return t->entry.plain ? t->entry.plain->dtype : DTYPE_F32;
}

/* read_values — reads a range of a parameter as f32, with the adapter; counts elements that are not
 * finite. */
static void read_values(void *arg, int64_t first, int64_t n, float *out)
{
    struct tensor_copy *t = arg;
    load_read(&t->entry, first, n, out);
    if (t->ex->merge)
        load_merge_add(t->ex->merge, t->param, first, n, out);
    t->finite.seen_n = first;
    weights_finite_add(&t->finite, out, n);
}

/* end_values — ends the reading of a parameter in ranges. */
static enum status end_values(void *arg)
{
    struct tensor_copy *t = arg;
    t->finite.seen_n = t->param->elems;
    load_release(&t->ex->values, &t->entry);
    return weights_finite_check(&t->finite, t->ex->path, t->param->name);
}

static void round_values(const float *values, int64_t n, enum dtype dtype, void *out)
{
    for (int64_t i = 0; i < n; i++)
        if (dtype == DTYPE_F32)
            ((float *)out)[i] = values[i];
        else
            ((uint16_t *)out)[i] =
                dtype == DTYPE_BF16 ? bf16_from_float(values[i]) : f16_from_float(values[i]);
}

/* read_tensor — copies the next chunk of a parameter, unchanged unless an adapter is added; checks
 * that it is finite. */
static enum status read_tensor(void *arg, int64_t first, int64_t n, void *out)
{
    struct tensor_copy *t = arg;
    float values[FINITE_ELEMS];
    const enum dtype dtype = dtype_of(t);
    for (int64_t at = 0, some; at < n; at += some) {
        some = n - at < FINITE_ELEMS ? n - at : FINITE_ELEMS;
        read_values(t, first + at, some, values);
        for (int64_t i = 0; dtype == DTYPE_F16 && i < some; i++)
            if (fabsf(values[i]) >= F16_BEYOND)
                return FAIL(
                    ST_BAD_DATA,
                    "%s: element %lld of %s is %g with its adapter, beyond the range of F16; "
                    "write a file whose name ends in -BF16.gguf or -F32.gguf",
                    t->ex->path, (long long)(first + at + i), t->param->name, (double)values[i]);
        round_values(values, some, dtype, (char *)out + (size_t)at * dtype_bytes(dtype));
    }
    return first + n < t->param->elems ? ST_OK : end_values(t);
}

/* find_tensors — finds every parameter. */
static enum status find_tensors(struct export *ex)
{
    ex->copy = memory_new((size_t)ex->table.params_n, sizeof *ex->copy);
    for (int i = 0; i < ex->table.params_n; i++) {
        ex->copy[i].ex = ex;
        ex->copy[i].param = &ex->table.param[i];
        TRY(load_find(&ex->values, &ex->table.param[i], &ex->copy[i].entry));
    }
    return ST_OK;
}

/* list_sources — lists every parameter under transformers' name, or PEFT's; the names of the heads
 * have no prefix "transformer". */
static void list_sources(struct export *ex)
{
    const enum hf_arch arch = config_of(&ex->dims).arch;
    size_t n = (size_t)ex->table.params_n;
    ex->source = memory_new(n, sizeof *ex->source);
    ex->name = memory_new(n, sizeof *ex->name);
    for (size_t i = 0; i < n; i++) {
        const struct param *p = &ex->table.param[i];
        bool fits =
            ex->dims.adapter.r > 0
                ? peft_name(arch, p->name, ex->name[i], sizeof ex->name[i])
                : hf_names_full(hf_names_of(arch), p->name, ex->name[i], sizeof ex->name[i]);
        ASSERTF(fits, "%s", p->name);
        ex->source[i] = (struct safetensors_source){.name = ex->name[i],
                                                    .dtype = dtype_of(&ex->copy[i]),
                                                    .dims_n = p->dims_n,
                                                    .dim = {p->dim[0], p->dim[1]},
                                                    .read = read_tensor,
                                                    .arg = &ex->copy[i]};
    }
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

/* write_adapter_config — writes the config of an adapter. Its target modules are the last words of
 * the names of block 0; of GPT-2 the last two, because both halves of its blocks have a c_proj. */
static void write_adapter_config(struct export *ex)
{
    const struct peft_config config = {.rank = ex->dims.adapter.r, .alpha = ex->dims.adapter.alpha};
    struct text modules = {.data = NULL};
    for (int i = 0; i < ex->table.params_n && ex->table.param[i].unit == 1; i++) {
        char name[PARAM_NAME_MAX];
        text_copy(name, sizeof name, ex->table.param[i].name);
        char *end = strstr(name, ".lora_A.");
        if (!end)
            continue;
        *end = 0;
        char *dot = strrchr(name, '.');
        if (dot && ex->dims.arch == MODEL_ARCH_GPT2) {
            *dot = 0;
            char *before = strrchr(name, '.');
            *dot = '.';
            dot = before;
        }
        text_add(&modules, "%s\"%s\"", modules.len > 0 ? ", " : "", dot ? dot + 1 : name);
    }
    peft_write_config(&config, config_of(&ex->dims).arch, ex->dims.name, modules.data,
                      next_file(ex, PEFT_CONFIG));
    text_free(&modules);
}

/* find_tokenizer — opens the tokenizer in the folder if it is the tokenizer that the settings name.
 * If it cannot be read, its files are used with a warning. */
static enum status find_tokenizer(struct export *ex)
{
    char parent[FILE_PATH_MAX];
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
    if (tokenizer_source_open_kept(parent, ex->tokenizer_path, &tokenizer) != ST_OK) {
        LOG_WARN("the tokenizer in %s cannot be read: %s", ex->tokenizer_path, status_message());
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
    if (!ex->opened && !ex->is_other && ex->dims.arch == MODEL_ARCH_GPT2 &&
        ex->dims.vocab >= TOKENIZER_GPT2_VOCAB)
        TRY(tokenizer_gpt2_open(&ex->gpt2));
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
    if (st == ST_OK)
        ex->chat.is_new = true;
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
        if (!ex->gpt2) {
            LOG_INFO("no tokenizer files: the model is not GPT-2 with its vocabulary of %d, and "
                     "there are "
                     "none next to the checkpoints or in MODEL",
                     TOKENIZER_GPT2_VOCAB);
            return ST_OK;
        }
        tokenizer_gpt2_write_vocab(ex->gpt2, next_file(ex, "vocab.json"));
        tokenizer_gpt2_write_merges(next_file(ex, "merges.txt"));
        tokenizer_gpt2_write_tokenizer_json(ex->gpt2, next_file(ex, "tokenizer.json"));
        tokenizer_gpt2_write_settings(ex->dims.context, next_file(ex, "tokenizer_config.json"));
        tokenizer_gpt2_write_specials(next_file(ex, "special_tokens_map.json"));
        return ST_OK;
    }
    LOG_INFO("tokenizer files of %s", ex->kept);
    if (strcmp(ex->tokenizer[0].name, TOKENIZER_FILES_GGUF) == 0)
        return write_gguf_tokenizer(ex);
    /* The files that came with the model, unchanged. */
    for (int i = 0; i < ex->tokenizer_n; i++) {
        const struct tokenizer_file *file = &ex->tokenizer[i];
        if (strcmp(file->name, TOKENIZER_FILES_GGUF) == 0 ||
            (strcmp(file->name, CHAT_FILE) == 0 && ex->chat.is_new))
            continue; /* not needed, because the other files are written */
        struct text *text = next_file(ex, file->name);
        text->limit = file->bytes + 64;
        text_add_bytes(text, file->data, file->bytes);
    }
    return ST_OK;
}

/* set_marks — if the model names no begin and end tokens, makes them the tokens of the run's
 * tokenizer, else of GPT-2's. The token that ends a turn of a conversation ends a text, too. */
static void set_marks(struct export *ex)
{
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
    const uint32_t turn_end = ex->opened || ex->gpt2 ? ex->chat.turn_end : TOKENIZER_NONE;
    bool is_new = turn_end < ex->dims.vocab && marks->eos_n < MODEL_EOS_MAX;
    for (int i = 0; i < marks->eos_n; i++)
        is_new = is_new && marks->eos[i] != turn_end;
    if (is_new)
        marks->eos[marks->eos_n++] = turn_end;
}

/* ---- Hugging Face folder ---- */

static enum status write_folder(struct export *ex, const char *to)
{
    const bool is_adapter = ex->dims.adapter.r > 0;
    list_sources(ex);
    if (is_adapter)
        write_adapter_config(ex);
    else
        write_config(ex);
    TRY(write_tokenizer(ex));
    if (ex->chat.jinja && ex->chat.is_new)
        text_add_bytes(next_file(ex, CHAT_FILE), ex->chat.jinja, strlen(ex->chat.jinja));
    for (int i = 0; i < ex->files_n; i++) {
        if (ex->text[i].overflow)
            return FAIL(ST_RETRY, "out of memory: the text of %s", ex->file[i].name);
        ex->file[i].data = ex->text[i].data;
        ex->file[i].bytes = ex->text[i].len;
    }
    return hf_save(to, is_adapter ? PEFT_WEIGHTS : NULL, ex->source, ex->table.params_n, ex->file,
                   ex->files_n, HF_SAVE_FILE_BYTES_MAX);
}

/* ---- GGUF file ---- */

#define KEY(name) "tokenizer.ggml." name
#define KEY_BOS KEY("bos_token_id")
#define KEY_EOS KEY("eos_token_id")
#define KEY_EOT KEY("eot_token_id")
#define KEY_CHAT "tokenizer.chat_template"

/* is_own_key — returns true for a key of a tokenizer that is copied: not for keys that follow from
 * the run. */
static bool is_own_key(const struct gguf_value *value)
{
    static const char *const list[] = {KEY_BOS, KEY_EOS, KEY_EOT, KEY_CHAT};
    bool is_run = false;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        is_run = is_run || (value->key_n == strlen(list[i]) &&
                            memcmp(value->key, list[i], value->key_n) == 0);
    return !is_run && value->key_n > 10 && memcmp(value->key, "tokenizer.", 10) == 0;
}

/* copy_tokenizer — adds the tokenizer's keys of a GGUF file unchanged, if they list as many tokens
 * as the model has. *done_out: they were added. */
static enum status copy_tokenizer(const struct export *ex, struct gguf_head *head, bool *done_out)
{
    struct file_map map;
    struct gguf gguf;
    const struct gguf_value *tokens = NULL;
    TRY(file_map_open(ex->tokenizer_path, &map));
    enum status st = gguf_parse(map.data, map.bytes, ex->tokenizer_path, &gguf);
    if (st == ST_OK) {
        st = gguf_get_array(&gguf, KEY("tokens"), GGUF_KIND_STRING, &tokens);
        *done_out = st == ST_OK && tokens->n == ex->dims.vocab;
        for (int i = 0; *done_out && i < gguf.values_n; i++)
            if (is_own_key(&gguf.value[i]))
                gguf_head_copy(head, &gguf.value[i]);
        gguf_free(&gguf);
    }
    file_map_close(&map);
    return st;
}

/* special_id — returns the id of a token that tokenizer_config.json names, such as "pad_token"; -1:
 * it names none. */
static int64_t special_id(struct export *ex, const struct tokenizer *tokenizer, const char *key)
{
    uint32_t id = TOKENIZER_NONE;
    for (int i = 0; i < ex->tokenizer_n; i++) {
        cJSON *config = NULL;
        if (strcmp(ex->tokenizer[i].name, "tokenizer_config.json") != 0)
            continue;
        if (json_parse(ex->tokenizer[i].data, ex->tokenizer[i].bytes, ex->tokenizer[i].name,
                       &config) != ST_OK)
            status_clear();
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);
        const char *name =
            cJSON_IsObject(item) ? json_text(item, "content") : json_text(config, key);
        if (name[0])
            id = tokenizer_find(tokenizer, name);
        cJSON_Delete(config);
    }
    return id == TOKENIZER_NONE ? -1 : (int64_t)id;
}

static void add_id(struct gguf_head *head, const char *key, int64_t id)
{
    if (id >= 0)
        gguf_head_u32(head, key, id);
}

/* add_marks — adds the tokens that begin and end a text. begin, end: of the tokenizer. The token
 * that a text begins with must be the one that add_bos_token adds. */
static void add_marks(const struct export *ex, uint32_t begin, uint32_t end, struct gguf_head *head)
{
    const struct model_marks *marks = &ex->dims.marks;
    if (begin != TOKENIZER_NONE || marks->has_bos)
        gguf_head_u32(head, KEY_BOS, begin != TOKENIZER_NONE ? (int64_t)begin : marks->bos);
    if (end != TOKENIZER_NONE || marks->eos_n > 0)
        gguf_head_u32(head, KEY_EOS, marks->eos_n > 0 ? marks->eos[0] : (int64_t)end);
    if (marks->eos_n > 1)
        gguf_head_u32(head, KEY_EOT, marks->eos[1]);
    if (marks->eos_n > 2)
        LOG_WARN("the model has %d tokens that end a text; a GGUF file names only the first two",
                 marks->eos_n);
}

static void add_strings(struct gguf_head *head, const char *key,
                        const struct tokenizer_piece *piece, size_t n)
{
    gguf_head_array(head, key, GGUF_KIND_STRING, n);
    for (size_t i = 0; i < n; i++)
        gguf_head_string(head, piece[i].text, piece[i].n);
}

/* add_lists — adds the lists of a tokenizer. */
static void add_lists(const struct tokenizer_gguf *gguf, struct gguf_head *head)
{
    gguf_head_text(head, KEY("model"), gguf->model);
    gguf_head_text(head, KEY("pre"), gguf->pre);
    add_strings(head, KEY("tokens"), gguf->piece, gguf->n);
    if (gguf->has_scores) {
        gguf_head_array(head, KEY("scores"), GGUF_KIND_F32, gguf->n);
        for (size_t i = 0; i < gguf->n; i++)
            text_add_bytes(&head->bytes, &gguf->piece[i].score, sizeof gguf->piece[i].score);
    } else
        add_strings(head, KEY("merges"), gguf->merge, gguf->merges_n);
    gguf_head_array(head, KEY("token_type"), GGUF_KIND_I32, gguf->n);
    for (size_t i = 0; i < gguf->n; i++)
        text_add_bytes(&head->bytes, &(int32_t){gguf->piece[i].type}, sizeof(int32_t));
    gguf_head_bool(head, KEY("add_bos_token"), gguf->begin >= 0);
    gguf_head_bool(head, KEY("add_eos_token"), false);
    gguf_head_bool(head, KEY("add_space_prefix"), gguf->adds_space);
}

/* make_tokenizer — adds the keys of a tokenizer that comes from other files. */
static enum status make_tokenizer(struct export *ex, const struct tokenizer *tokenizer,
                                  struct gguf_head *head)
{
    struct tokenizer_gguf_lists lists;
    TRY(tokenizer_gguf_of(tokenizer, (size_t)ex->dims.vocab, &lists));
    const struct tokenizer_gguf *gguf = &lists.gguf;
    TRY(tokenizer_files_read(ex->kept, ex->tokenizer, &ex->tokenizer_n));
    add_lists(gguf, head);
    add_id(head, KEY("unknown_token_id"),
           lists.unknown >= 0 ? lists.unknown : special_id(ex, tokenizer, "unk_token"));
    add_id(head, KEY("padding_token_id"), special_id(ex, tokenizer, "pad_token"));
    tokenizer_gguf_free(&lists);
    return ST_OK;
}

/* add_tokenizer — adds the run's tokenizer, or the key that llama.cpp reads as none. */
static enum status add_tokenizer(struct export *ex, struct gguf_head *head)
{
    const struct tokenizer *tokenizer = ex->opened ? ex->opened : ex->gpt2;
    bool done = false;
    enum status st = ST_OK;
    if (ex->opened && gguf_model_is_file(ex->tokenizer_path))
        TRY(copy_tokenizer(ex, head, &done));
    if (tokenizer && !done)
        st = make_tokenizer(ex, tokenizer, head);
    if (!tokenizer)
        st = FAIL(ST_BAD_DATA, ex->is_other ? "the run used another tokenizer than the one in its "
                                              "folder"
                                            : "the run has none that can be read");
    if (st == ST_OK) {
        add_marks(ex, tokenizer_begin(tokenizer), tokenizer_end(tokenizer), head);
        if (ex->chat.jinja)
            gguf_head_text(head, KEY_CHAT, ex->chat.jinja);
    }
    if (st != ST_BAD_DATA)
        return st;
    LOG_WARN("the file has no tokenizer: %s; llama.cpp then generates from token ids only",
             status_message());
    status_clear();
    gguf_head_text(head, KEY("model"), GGUF_VOCAB_NONE);
    add_marks(ex, TOKENIZER_NONE, TOKENIZER_NONE, head);
    return ST_OK;
}

static enum status write_gguf(struct export *ex, const char *to)
{
    const struct hf_config config = config_of(&ex->dims);
    struct gguf_head head = {.n = 0};
    int f16_n = 0;
    enum status st;
    ex->gguf_source = memory_new((size_t)ex->table.params_n, sizeof *ex->gguf_source);
    for (int i = 0; i < ex->table.params_n; i++) {
        const struct param *p = &ex->table.param[i];
        ex->gguf_source[i] = (struct gguf_source){.name = p->name,
                                                  .dims_n = p->dims_n,
                                                  .dim = {p->dim[0], p->dim[1]},
                                                  .read = read_values,
                                                  .done = end_values,
                                                  .arg = &ex->copy[i]};
    }
    TRY_OR(gguf_config_write(&config, ex->dims.name, &head), free_head);
    gguf_head_u32(&head, "general.file_type", ex->quant->file_type);
    gguf_head_u32(&head, "general.quantization_version", 2);
    TRY_OR(add_tokenizer(ex, &head), free_head);
    st = gguf_save(to, &config, ex->quant, &head, ex->gguf_source, ex->table.params_n, &f16_n);
    if (st == ST_OK && f16_n > 0)
        LOG_WARN("%d matrices are F16: their rows are no multiple of the %d elements of a block of "
                 "%s",
                 f16_n, ex->quant->block_elems, ex->quant->name);
free_head:
    text_free(&head.bytes);
    return st;
}

/* ---- the choice ---- */

/* is_ending — returns true for the end of a name that looks like the name of a format: letters and
 * digits, but not the number of a version. */
static bool is_ending(const char *end)
{
    size_t n = 0;
    while (isalnum((unsigned char)end[n]) || end[n] == '_')
        n++;
    const bool is_version =
        (end[0] == 'v' || end[0] == 'V') && n == 1 + strspn(end + 1, "0123456789");
    return isalpha((unsigned char)end[0]) && end[n] == 0 && !is_version;
}

/* is_type — returns true for a word that looks like the name of an element type: Q4_K_M, fp8. */
static bool is_type(const char *word)
{
    static const char *const list[] = {"Q", "IQ", "TQ", "F", "BF", "FP", "MXFP", "NVFP", "INT"};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strncasecmp(word, list[i], strlen(list[i])) == 0 &&
            isdigit((unsigned char)word[strlen(list[i])]))
            return true;
    return false;
}

/* choose_form — decides on the form by the ending of TO. *quant_out NULL: a Hugging Face folder. */
static enum status choose_form(const char *to, const struct gguf_quant **quant_out)
{
    const char *slash = strrchr(to, '/'), *name = slash ? slash + 1 : to;
    const char *dot = strrchr(name, '.');
    char word[64];
    *quant_out = NULL;
    if (!dot || dot == name || !is_ending(dot + 1))
        return ST_OK;
    if (strcasecmp(dot, ".gguf") != 0)
        return FAIL(ST_BAD_SETTING,
                    "TO=%s ends in %s, which is no format of export; end it in .gguf for a file of "
                    "llama.cpp (-F32.gguf, -F16.gguf, -BF16.gguf or -Q8_0.gguf for its type), or "
                    "in / for a Hugging Face folder of this name",
                    to, dot);
    /* The last word before .gguf names the type, as in published files. */
    const char *begin = dot;
    while (begin > name && begin[-1] != '-' && begin[-1] != '.')
        begin--;
    text_format(word, sizeof word, "%.*s", (int)(dot - begin), begin);
    *quant_out = gguf_quant_named(word);
    if (!*quant_out && is_type(word))
        return FAIL(ST_BAD_SETTING,
                    "TO=%s: type %s cannot be written; use -F32.gguf, -F16.gguf, -BF16.gguf or "
                    "-Q8_0.gguf, and llama-quantize for other types",
                    to, word);
    if (!*quant_out)
        *quant_out = gguf_quant_named("F16");
    return ST_OK;
}

/* check_features — refuses features of our GPT-2 that other programs' GPT-2 does not have. */
static enum status check_features(const struct export *ex)
{
    const struct model_features *p = &ex->dims.features;
    const char *what = p->mlp != MODEL_MLP_GELU_TANH           ? "ACTIVATION=relu2"
                       : p->position != MODEL_POSITION_LEARNED ? "POSITIONS=rope"
                       : p->has_qk_norm                        ? "QK_NORM=1"
                       : p->is_untied                          ? "TIE_EMBEDDINGS=0"
                       : p->logit_cap > 0                      ? "LOGIT_CAP"
                                                               : NULL;
    if (ex->dims.arch != MODEL_ARCH_GPT2 || !what)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "%s: the model was trained with %s, for which %s GPT-2 has no field; "
                "use the checkpoint itself: generate, eval and MODEL= accept it",
                ckpt_path(ex->ckpt), what, ex->quant ? "llama.cpp's" : "Hugging Face's");
}

/* ---- an adapter and its model ---- */

static enum status ignore_values(void *arg, int64_t first, int64_t n, const float *values)
{
    (void)arg, (void)first, (void)n, (void)values;
    return ST_OK;
}

/* open_base — opens MODEL, to which the adapter of the checkpoint is added, and checks that it was
 * trained on these weights. */
static enum status open_base(struct export *ex, const struct conf *conf, const char *model)
{
    const bool ignores = conf_i64(conf, CONF_IGNORE_TENSORS) != 0;
    const struct model_marks marks = ex->dims.marks;
    char sha256[MODEL_SHA256_MAX];
    struct load_target to = {.table = &ex->table, .put = ignore_values};
    char hint[512];
    if (peft_is_folder(model))
        return peft_refuse(model);
    if (!weights_are_at(model) && !weights_are_ckpt(model))
        return FAIL(ST_NO_INPUT,
                    "MODEL=%s holds no weights; set MODEL to the folder, the GGUF file or the "
                    "checkpoint with which the adapter %s was trained%s",
                    model, ckpt_path(ex->ckpt), model_source_hub_hint(model, hint, sizeof hint));
    TRY(weights_dims(model, &ex->dims));
    ex->dims.marks = marks.has_bos || marks.eos_n > 0 ? marks : ex->dims.marks;
    TRY(adapter_open(ckpt_path(ex->ckpt), &ex->dims, &ex->adapter));
    TRY(adapter_merge(ex->adapter, &ex->merge));
    TRY(model_ops(&ex->dims)->describe(&ex->dims, &ex->table));
    TRY(weights_open(model, &ex->table, ignores, &ex->base));
    ex->values = *weights_load_file(ex->base);
    ex->path = model;
    to.sum = load_sum_open();
    const enum status st = load_params(&to, &ex->values);
    load_sum_close(to.sum, sha256);
    TRY(st);
    return adapter_check(ex->adapter, sha256, model);
}

/* open_source — opens the checkpoint; if it is an adapter and MODEL is set, also the model. */
static enum status open_source(struct export *ex, const struct conf *conf, const char *from)
{
    const char *model = conf_is_set(conf, CONF_MODEL) ? conf_text(conf, CONF_MODEL) : "";
    TRY(weights_checkpoint(from, &ex->ckpt, &ex->dims));
    if (conf_text(conf, CONF_ADAPTER)[0])
        return FAIL(ST_BAD_SETTING,
                    "export does not use ADAPTER=%s; to add it to its model, set FROM to it, and "
                    "MODEL to the model",
                    conf_text(conf, CONF_ADAPTER));
    if (ex->dims.adapter.r == 0 && conf_origin(conf, CONF_MODEL) == CONF_ORIGIN_ARGUMENT)
        return FAIL(
            ST_BAD_SETTING,
            "FROM=%s is a checkpoint of a whole model, so MODEL=%s has no use; leave it out", from,
            model);
    if (ex->dims.adapter.r > 0 && model[0])
        return open_base(ex, conf, model);
    if (ex->dims.adapter.r > 0 && ex->quant)
        return FAIL(
            ST_BAD_SETTING,
            "FROM=%s is a checkpoint of an adapter, and a GGUF file holds whole models; set "
            "MODEL to its model, or TO to a folder for the adapter alone",
            from);
    ex->values = (struct load_file){.ckpt = ex->ckpt, .array = "model"};
    ex->path = ckpt_path(ex->ckpt);
    return model_describe_trained(&ex->dims, &ex->table);
}

static enum status export_model(struct export *ex, const struct conf *conf, const char *from,
                                const char *to)
{
    char count[32];
    struct memory_plan plan;
    TRY(choose_form(to, &ex->quant));
    TRY(ex->quant ? gguf_save_check(to) : hf_save_check(to)); /* before any long work */
    memory_plan_convert(&plan);
    TRY(memory_check_command("export", &plan, NULL, "free some memory, or raise the limit"));
    TRY(open_source(ex, conf, from));
    TRY(check_features(ex));
    TRY(find_tensors(ex));
    TRY(find_tokenizer(ex));
    if (ex->opened || ex->gpt2)
        TRY(chat_source_export(ckpt_meta(ex->ckpt)->settings_json,
                               ex->opened ? ex->tokenizer_path : "",
                               ex->opened ? ex->opened : ex->gpt2, &ex->chat));
    set_marks(ex);
    TRY(ex->quant ? write_gguf(ex, to) : write_folder(ex, to));
    const struct hf_config config = config_of(&ex->dims);
    log_console("%s  %s%s%s  %s parameters  from %s", conf_given(conf, CONF_TO),
                ex->dims.adapter.r > 0 ? "adapter of PEFT" : hf_config_class(&config),
                ex->quant ? "  GGUF " : "", ex->quant ? ex->quant->name : "",
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
        return FAIL(ST_BAD_SETTING, "TO is not set; set TO to the Hugging Face folder or the .gguf "
                                    "file to write, which must "
                                    "not exist");
    enum status st = export_model(&ex, conf, from, to);
    memory_check_log_peak();
    for (int i = 0; i < ex.files_n; i++)
        text_free(&ex.text[i]);
    tokenizer_close(ex.opened);
    tokenizer_close(ex.gpt2);
    tokenizer_files_free(ex.tokenizer, ex.tokenizer_n);
    free(ex.chat.jinja);
    free(ex.source);
    free(ex.gguf_source);
    free(ex.name);
    free(ex.copy);
    param_table_free(&ex.table);
    weights_close(ex.base);
    adapter_close(ex.adapter);
    ckpt_close(ex.ckpt);
    return st;
}

/* export — `convoy export`: a checkpoint → a Hugging Face folder that GPT2LMHeadModel or
 * GPT2ForQuestionAnswering loads.
 *
 * The checkpoint's tensors are written as they lie, under transformers' names; small files come
 * from format/ and data/, the tokenizer's only for a model that has GPT-2's vocabulary. Must not
 * know how files are written. */
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
#include "train/weights.h"

#define FILES_MAX 7
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

/* list_sources — every parameter of the checkpoint, finite, under transformers' name; the head's
 * stands outside "transformer". */
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

/* dropout_of — what the run trained with. */
static double dropout_of(const struct export *ex)
{
    const char *json = ckpt_meta(ex->ckpt)->settings_json;
    double dropout = ex->dims.arch == MODEL_ARCH_GPT2 ? DROPOUT_USUAL : 0;
    cJSON *settings;
    if (json_parse(json, strlen(json), "settings of the checkpoint", &settings) == ST_OK) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(settings, "DROPOUT");
        if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1)
            dropout = item->valuedouble;
        cJSON_Delete(settings);
    }
    status_clear();
    return dropout;
}

static void write_config(struct export *ex)
{
    const struct hf_config config = config_of(&ex->dims);
    hf_config_write(&config, dropout_of(ex), next_file(ex, "config.json"));
    if (!config.is_qa)
        hf_config_write_generation(&config, next_file(ex, "generation_config.json"));
}

static enum status write_tokenizer(struct export *ex)
{
    struct tokenizer *gpt2;
    if (ex->dims.arch != MODEL_ARCH_GPT2 || ex->dims.vocab < TOKENIZER_GPT2_VOCAB) {
        LOG_INFO("no tokenizer files: the model is not GPT-2 with its vocabulary of %d",
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
    free(ex.source);
    free(ex.name);
    param_table_free(&ex.table);
    ckpt_close(ex.ckpt);
    return st;
}

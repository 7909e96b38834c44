/* import — `convoy import`: a model made elsewhere → a checkpoint at step 0, from which train goes
 * on and generate writes.
 *
 * Nothing is written before the whole model is read and found good. Must not know the formats
 * (train/weights.h). */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/assert.h"
#include "base/text.h"
#include "base/version.h"
#include "model/model.h"
#include "node/command.h"
#include "node/memory_check.h"
#include "node/tokenizer_files.h"
#include "node/tokenizer_source.h"
#include "train/weights.h"

/* A model in memory. */
struct import {
    const char *from, *to;
    struct model_dims dims;
    struct param_table table;
    float *data;
    uint64_t seed;
    struct text settings; /* of the checkpoint, JSON */
};

/* check_to — a run's checkpoints would hide one of step 0. */
static enum status check_to(const char *to)
{
    enum status st = ST_OK;
    DIR *dir = opendir(to);
    if (!dir && errno == ENOENT)
        return ST_OK;
    if (!dir)
        return FAIL(ST_BAD_SETTING,
                    "TO=%s cannot be listed: %s; choose a folder that is not there yet", to,
                    strerror(errno));
    for (struct dirent *entry; st == ST_OK && (entry = readdir(dir)) != NULL;)
        if (text_starts(entry->d_name, "step-"))
            st = FAIL(ST_BAD_SETTING,
                      "TO=%s holds checkpoints already (%.40s); choose another folder", to,
                      entry->d_name);
    closedir(dir);
    return st;
}

static enum status check_from(const char *from)
{
    if (weights_are_at(from))
        return ST_OK;
    if (!file_exists(from))
        return FAIL(
            ST_NO_INPUT,
            "FROM=%s is not there; give a Hugging Face folder, a GGUF file or a model file of "
            "llm.c",
            from);
    return FAIL(ST_NO_INPUT,
                "FROM=%s is a folder without config.json; give a Hugging Face folder (config.json, "
                "model.safetensors)",
                from);
}

/* take — memory for all parameters, once the file is known to hold them; a new head for questions
 * gets its values from SEED, as a new model's would. */
static enum status take(struct import *in)
{
    struct memory_plan plan;
    TRY(memory_plan_import(&in->dims, &plan));
    TRY(model_ops(&in->dims)->describe(&in->dims, &in->table));
    TRY(weights_load(in->from, &(struct load_target){.table = &in->table}));
    TRY(memory_check_command(
        "import", &plan, NULL,
        "use a machine with more memory; what is made there may be copied here"));
    in->data = calloc((size_t)in->table.total_elems, sizeof *in->data);
    if (!in->data)
        return FAIL(memory_status(in->table.total_elems * (int64_t)sizeof *in->data),
                    "out of memory: %" PRId64 " parameters of %s", in->table.parameters, in->from);
    for (int i = 0; i < in->table.params_n; i++) {
        const struct param *p = &in->table.param[i];
        if (text_starts(p->name, "qa_outputs."))
            param_fill(&in->table, i, in->seed, 0, p->elems, in->data + p->offset);
    }
    return ST_OK;
}

/* check_finite — the one damage that shows in any weight. */
static enum status check_finite(const struct import *in)
{
    for (int i = 0; i < in->table.params_n; i++) {
        const struct param *p = &in->table.param[i];
        struct safetensors_entry entry = {
            .dtype = DTYPE_F32, .elems = p->elems, .data = (const uint8_t *)(in->data + p->offset)};
        text_copy(entry.name, sizeof entry.name, p->name);
        TRY(weights_check_finite(in->from, &entry));
    }
    return ST_OK;
}

/* keep_tokenizer — beside the checkpoint, whose settings name it. One that this program does not
 * read is kept for export. */
static enum status keep_tokenizer(struct import *in)
{
    char path[FILE_PATH_MAX];
    struct text identity = {0};
    if (file_is_dir(in->from) || gguf_model_is_file(in->from))
        TRY(tokenizer_files_keep(in->from, in->to));
    if (tokenizer_source_kept(in->to, path, &identity) != ST_OK) {
        LOG_WARN("the tokenizer in %s is not read: %s; commands need TOKENIZER", path,
                 status_message());
        status_clear();
    }
    text_add(&in->settings, "{%s}", identity.len > 0 ? identity.data + 1 : "");
    text_free(&identity);
    return in->settings.overflow ? FAIL(ST_RETRY, "out of memory: the settings") : ST_OK;
}

static enum status save(const struct import *in, char *path, size_t path_cap)
{
    struct ckpt_meta meta = {.seed = in->seed};
    struct ckpt_lock *lock;
    const size_t rows_n = (size_t)(in->table.params_n > 0 ? in->table.params_n : 0);
    struct safetensors_source *source = calloc(rows_n, sizeof *source);
    if (!source)
        return FAIL(ST_RETRY, "out of memory: the list of %d tensors to save", in->table.params_n);
    for (size_t i = 0; i < rows_n; i++) {
        const struct param *p = &in->table.param[i];
        source[i] = (struct safetensors_source){.name = p->name,
                                                .dims_n = p->dims_n,
                                                .dim = {p->dim[0], p->dim[1]},
                                                .data = in->data + p->offset};
    }
    text_copy(meta.settings_json, sizeof meta.settings_json, in->settings.data);
    load_dims_json(&in->dims, meta.model_json, sizeof meta.model_json);
    text_copy(meta.version, sizeof meta.version, version_text());
    const struct ckpt_part part = {"model", source, in->table.params_n};
    enum status st;
    TRY_OR(ckpt_lock(in->to, &lock), free_source);
    st = ckpt_save(lock, &meta, &part, 1, 0, NULL, path, path_cap);
    ckpt_lock_release(lock);
free_source:
    free(source);
    return st;
}

static enum status run(struct import *in, const struct conf *conf)
{
    char path[FILE_PATH_MAX], count[32];
    TRY(check_from(in->from));
    TRY(check_to(in->to));
    TRY(weights_dims(in->from, &in->dims));
    if (conf_is_set(conf, CONF_TASK))
        in->dims.task = (enum model_task)conf_i64(conf, CONF_TASK);
    TRY(model_check(&in->dims));
    TRY(take(in));
    const struct load_target to = {.table = &in->table, .data = {in->data, DTYPE_F32}};
    TRY(weights_load(in->from, &to));
    TRY(check_finite(in));
    TRY(keep_tokenizer(in));
    TRY(save(in, path, sizeof path));
    log_console("%s  %s  %s  %s parameters", path, in->dims.name,
                in->dims.task == MODEL_TASK_QA ? "qa" : "lm",
                text_format_count(count, sizeof count, (double)in->table.parameters));
    return ST_OK;
}

enum status import_main(const struct conf *conf)
{
    struct import in = {.from = conf_text(conf, CONF_FROM),
                        .to = conf_text(conf, CONF_TO),
                        .seed = (uint64_t)conf_i64(conf, CONF_SEED)};
    if (!*in.from)
        return FAIL(
            ST_BAD_SETTING,
            "what should be imported? set FROM to a Hugging Face folder, a GGUF file or a model "
            "file of llm.c");
    if (!*in.to)
        return FAIL(
            ST_BAD_SETTING,
            "where should the checkpoint go? set TO to a folder, later the run's CHECKPOINT_DIR");
    enum status st = run(&in, conf);
    param_table_free(&in.table);
    free(in.data);
    text_free(&in.settings);
    return st;
}

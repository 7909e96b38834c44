/* import — `convoy import`: converts a model in another program's format to a checkpoint at step 0.
 * train goes on from it, and generate can use it.
 *
 * Parameters are read, checked and written in chunks, one parameter after the other. Incomplete
 * files are removed after a failure. Must not know the formats (train/weights/weights.h). */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/version.h"
#include "data/tokenizer/gpt2.h"
#include "model/model.h"
#include "node/command.h"
#include "node/choose/config_map.h"
#include "node/choose/memory_check.h"
#include "node/choose/model_source.h"
#include "node/choose/tokenizer_files.h"
#include "node/choose/tokenizer_source.h"
#include "train/weights/peft.h"
#include "train/weights/weights.h"

/* One import. */
struct import {
    const char *from, *to;
    struct model_dims dims;
    struct param_table table;
    struct weights *weights;
    struct tensor_copy *copy; /* state of each parameter */
    const char *tokenizer;    /* TOKENIZER; "": the model's own */
    bool ignores_tensors;
    uint64_t seed;
    struct text settings; /* settings of the checkpoint, JSON */
};

/* One parameter that is being copied. */
struct tensor_copy {
    const struct import *in;
    int param_i;
    struct load_entry entry;
    struct weights_finite finite;
};

/* check_to — fails if TO holds checkpoints of a run, which would hide one of step 0. */
static enum status check_to(const char *to)
{
    enum status st = ST_OK;
    DIR *dir = opendir(to);
    if (!dir && errno == ENOENT)
        return ST_OK;
    if (!dir)
        return FAIL(ST_BAD_SETTING,
                    "TO=%s cannot be listed: %s; choose a folder that does not exist yet", to,
                    strerror(errno));
    for (struct dirent *entry; st == ST_OK && (entry = readdir(dir)) != NULL;)
        if (text_starts(entry->d_name, "step-"))
            st = FAIL(ST_BAD_SETTING,
                      "TO=%s holds checkpoints already (%.40s); choose another folder", to,
                      entry->d_name);
    closedir(dir);
    return st;
}

/* read_tensor — returns the next chunk of a tensor. A new head for questions gets its values from
 * SEED, like a new model. A value that is not finite is the only damage that can be seen in any
 * weight. */
static enum status read_tensor(void *arg, int64_t first, int64_t n, void *out)
{
    struct tensor_copy *t = arg;
    const struct import *in = t->in;
    const struct param *p = &in->table.param[t->param_i];
    if (!load_has(&t->entry)) {
        param_fill(&in->table, t->param_i, in->seed, first, n, out);
        return ST_OK;
    }
    load_read(&t->entry, first, n, out);
    weights_finite_add(&t->finite, out, n);
    if (first + n < p->elems)
        return ST_OK;
    load_release(weights_load_file(in->weights), &t->entry);
    return weights_finite_check(&t->finite, in->from, p->name);
}

/* list_sources — lists the parameters for the writer, which calls read_tensor. */
static enum status list_sources(struct import *in, struct safetensors_source *source)
{
    for (int i = 0; i < in->table.params_n; i++) {
        const struct param *p = &in->table.param[i];
        struct tensor_copy *t = &in->copy[i];
        *t = (struct tensor_copy){.in = in, .param_i = i};
        TRY(load_find(weights_load_file(in->weights), p, &t->entry));
        source[i] = (struct safetensors_source){.name = p->name,
                                                .dims_n = p->dims_n,
                                                .dim = {p->dim[0], p->dim[1]},
                                                .read = read_tensor,
                                                .arg = t};
    }
    return ST_OK;
}

/* keep_tokenizer — copies a tokenizer next to the checkpoint, whose settings name it: TOKENIZER,
 * else the model's own. */
static enum status keep_tokenizer(struct import *in)
{
    char path[FILE_PATH_MAX];
    struct text identity = {0};
    const bool is_own = in->tokenizer[0] == 0;
    if (is_own && (file_is_dir(in->from) || gguf_model_is_file(in->from)))
        TRY(tokenizer_files_keep(in->from, in->to));
    if (!is_own && strcmp(in->tokenizer, TOKENIZER_GPT2_NAME) != 0)
        TRY(tokenizer_files_keep(in->tokenizer, in->to));
    const enum status st = tokenizer_source_kept(in->to, path, &identity);
    if (st != ST_OK) {
        text_free(&identity);
        return FAIL(
            st,
            "the tokenizer of %s cannot be read: %s; repair it, or set TOKENIZER to another "
            "tokenizer with the same ids (gpt2 is built in), which is kept instead",
            is_own ? in->from : in->tokenizer, status_message());
    }
    text_add(&in->settings, "{%s}", identity.len > 0 ? identity.data + 1 : "");
    text_free(&identity);
    return in->settings.overflow ? FAIL(ST_RETRY, "out of memory: the settings") : ST_OK;
}

static enum status save_checkpoint(struct import *in, struct ckpt_lock *lock, char *path,
                                   size_t path_cap)
{
    struct ckpt_meta meta = {.seed = in->seed};
    TRY(load_dims_json(&in->dims, meta.model_json, sizeof meta.model_json));
    struct safetensors_source *source = memory_new((size_t)in->table.params_n, sizeof *source);
    text_copy(meta.settings_json, sizeof meta.settings_json, in->settings.data);
    text_copy(meta.version, sizeof meta.version, version_text());
    const struct ckpt_array array = {"model", source, in->table.params_n};
    enum status st;
    TRY_OR(list_sources(in, source), free_source);
    st = ckpt_save(lock, &meta, &array, 1, 0, NULL, path, path_cap);
free_source:
    free(source);
    return st;
}

/* write_locked — writes the checkpoint. Checks TO again, because another import may have ended
 * since. Files that existed before are never removed. */
static enum status write_locked(struct import *in, struct ckpt_lock *lock, char *path,
                                size_t path_cap)
{
    char tokenizer[FILE_PATH_MAX];
    TRY(check_to(in->to));
    TRY(file_join(tokenizer, sizeof tokenizer, in->to, TOKENIZER_FILES_DIR));
    bool had_tokenizer = file_exists(tokenizer);
    enum status st = keep_tokenizer(in);
    if (st == ST_OK)
        st = save_checkpoint(in, lock, path, path_cap);
    if (st != ST_OK && !had_tokenizer) {
        /* Remove the tokenizer while the lock is held: after that, it may belong to another
         * process. ckpt_save leaves no files. */
        struct status_saved why;
        status_save(&why);
        if (file_remove_tree(tokenizer) != ST_OK)
            LOG_WARN("cannot remove the tokenizer in %s: %s", in->to, status_message());
        status_restore(&why);
    }
    return st;
}

static enum status import_model(struct import *in, const struct conf *conf)
{
    char path[FILE_PATH_MAX], count[32];
    if (!weights_are_at(in->from)) {
        char hint[512];
        if (!file_exists(in->from))
            return FAIL(
                ST_NO_INPUT,
                "FROM=%s does not exist; set a Hugging Face folder, a GGUF file or a model file of "
                "llm.c%s",
                in->from, model_source_hub_hint(in->from, hint, sizeof hint));
        if (peft_is_folder(in->from))
            return peft_refuse(in->from);
        if (weights_are_ckpt(in->from))
            return FAIL(
                ST_NO_INPUT,
                "FROM=%s is a checkpoint of Convoy already; use it as MODEL or CHECKPOINT_DIR, "
                "or write it as a Hugging Face folder with `convoy export`",
                in->from);
        return FAIL(
            ST_NO_INPUT,
            "FROM=%s is a folder without config.json; set a Hugging Face folder (config.json, "
            "model.safetensors)",
            in->from);
    }
    TRY(check_to(in->to));
    TRY(weights_dims(in->from, &in->dims));
    if (conf_is_set(conf, CONF_TASK))
        in->dims.task = config_map_task(conf);
    TRY(model_check(&in->dims));
    /* Open the model only if the machine has enough memory. */
    struct memory_plan plan;
    memory_plan_convert(&plan);
    TRY(memory_check_command("import", &plan, NULL, "free some memory, or raise the limit"));
    TRY(model_ops(&in->dims)->describe(&in->dims, &in->table));
    in->copy = memory_new((size_t)in->table.params_n, sizeof *in->copy);
    TRY(weights_open(in->from, &in->table, in->ignores_tensors, &in->weights));
    size_t path_cap = sizeof path;
    struct ckpt_lock *lock;
    bool had_to = file_exists(in->to);
    enum status st = ckpt_lock(in->to, &lock);
    if (st != ST_OK)
        return FAIL(st, "TO cannot be used: %s", status_message());
    st = write_locked(in, lock, path, path_cap);
    if (st == ST_OK || had_to)
        ckpt_lock_release(lock);
    else
        ckpt_lock_discard(lock);
    TRY(st);
    log_console("%s  %s  %s  %s parameters", path, in->dims.name,
                in->dims.task == MODEL_TASK_QA ? "qa" : "lm",
                text_format_count(count, sizeof count, (double)in->table.parameters));
    return ST_OK;
}

enum status import_main(const struct conf *conf)
{
    struct import in = {.from = conf_text(conf, CONF_FROM),
                        .to = conf_text(conf, CONF_TO),
                        .tokenizer = conf_text(conf, CONF_TOKENIZER),
                        .ignores_tensors = conf_i64(conf, CONF_IGNORE_TENSORS) != 0,
                        .seed = (uint64_t)conf_i64(conf, CONF_SEED)};
    if (!*in.from)
        return FAIL(ST_BAD_SETTING,
                    "FROM is not set; set FROM to a Hugging Face folder, a GGUF file "
                    "or a model file of llm.c");
    if (!*in.to)
        return FAIL(
            ST_BAD_SETTING,
            "TO is not set; set TO to a folder for the checkpoint, later the run's CHECKPOINT_DIR");
    enum status st = import_model(&in, conf);
    memory_check_log_peak();
    weights_close(in.weights);
    param_table_free(&in.table);
    free(in.copy);
    text_free(&in.settings);
    return st;
}

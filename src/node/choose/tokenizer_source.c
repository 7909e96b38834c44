/* tokenizer_source — see tokenizer_source.h. */
#include "node/choose/tokenizer_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/tokenizer/file.h"
#include "data/tokenizer/gguf.h"
#include "data/tokenizer/gpt2.h"
#include "data/tokenizer/json_write.h"
#include "format/gguf/model.h"
#include "format/gguf/vocab.h"
#include "node/choose/tokenizer_files.h"
#include "train/weights/weights.h"

/* ---- GGUF ---- */

typedef enum status gguf_fn(const struct tokenizer_gguf *from, void *arg);

static enum status with_vocab(const struct gguf_vocab *v, const char *path, gguf_fn *fn, void *arg)
{
    struct tokenizer_piece *piece = calloc((size_t)(v->tokens_n + v->merges_n) + 1, sizeof *piece);
    if (!piece)
        return FAIL(ST_RETRY, "out of memory: %lld tokens of %s", (long long)v->tokens_n, path);
    for (int64_t i = 0; i < v->tokens_n; i++)
        piece[i] = (struct tokenizer_piece){.text = v->token[i].text,
                                            .n = v->token[i].n,
                                            .score = v->score ? v->score[i] : 0,
                                            .type = v->type ? v->type[i] : TOKENIZER_PIECE_NORMAL};
    struct tokenizer_piece *merge = piece + v->tokens_n;
    for (int64_t i = 0; i < v->merges_n; i++)
        merge[i] = (struct tokenizer_piece){.text = v->merge[i].text, .n = v->merge[i].n};
    const struct tokenizer_gguf from = {.name = path,
                                        .model = v->model,
                                        .pre = v->pre,
                                        .piece = piece,
                                        .n = (size_t)v->tokens_n,
                                        .merge = merge,
                                        .merges_n = (size_t)v->merges_n,
                                        .has_scores = v->score != NULL,
                                        .begin = v->add_bos ? v->bos : -1,
                                        .end = v->eos,
                                        .adds_space = v->add_space};
    enum status st = fn(&from, arg);
    free(piece);
    return st;
}

/* with_gguf — calls fn with the lists of the file, which are valid until fn returns. */
static enum status with_gguf(const char *path, gguf_fn *fn, void *arg)
{
    struct file_map map;
    struct gguf gguf;
    struct gguf_vocab vocab = {.tokens_n = 0};
    TRY(file_map_open(path, &map));
    enum status st = gguf_parse(map.data, map.bytes, path, &gguf);
    if (st == ST_OK) {
        st = gguf_vocab_read(&gguf, &vocab);
        if (st == ST_OK)
            st = with_vocab(&vocab, path, fn, arg);
        gguf_vocab_free(&vocab);
        gguf_free(&gguf);
    }
    file_map_close(&map);
    return st;
}

static enum status open_lists(const struct tokenizer_gguf *from, void *arg)
{
    return tokenizer_gguf_open(from, arg);
}

/* The two files that are written for one tokenizer. */
struct json_texts {
    int64_t context_tokens;
    struct text *json, *config;
};

static enum status write_lists(const struct tokenizer_gguf *from, void *arg)
{
    const struct json_texts *texts = arg;
    TRY(tokenizer_json_write(from, texts->json));
    return tokenizer_json_write_config(from, texts->context_tokens, texts->config);
}

enum status tokenizer_source_write_json(const char *path, int64_t context_tokens, struct text *json,
                                        struct text *config)
{
    struct json_texts texts = {context_tokens, json, config};
    return with_gguf(path, write_lists, &texts);
}

/* ---- the choice ---- */

static enum status open_path(const char *path, struct tokenizer **out)
{
    return gguf_model_is_file(path) ? (with_gguf(path, open_lists, out))
                                    : tokenizer_file_open(path, out);
}

/* is_in — returns true if the folder holds a tokenizer. within: a path relative to the folder,
 * below it or next to it. */
static bool is_in(const char *folder, const char *within, char *out, size_t cap)
{
    char gguf[FILE_PATH_MAX];
    if (within[0] ? file_join(out, cap, folder, within) != ST_OK : !text_copy(out, cap, folder)) {
        status_clear();
        return false;
    }
    if (tokenizer_file_is_at(out))
        return true;
    if (file_join(gguf, sizeof gguf, out, TOKENIZER_FILES_GGUF) != ST_OK) {
        status_clear();
        return false;
    }
    return gguf_model_is_file(gguf) && text_copy(out, cap, gguf);
}

/* is_kept — returns true if a folder of checkpoints has a tokenizer, or the folder that contains
 * this checkpoint. */
static bool is_kept(const char *dir, char *out, size_t cap)
{
    return is_in(dir, TOKENIZER_FILES_DIR, out, cap) ||
           (weights_are_ckpt(dir) && is_in(dir, "../" TOKENIZER_FILES_DIR, out, cap));
}

/* own_path — returns the path of the model's own tokenizer: kept with the checkpoints of its
 * adapter, in its folder, in its file, or kept with its checkpoints. As with the dimensions, a
 * preset's name is not a folder. */
static bool own_path(const struct conf *conf, char *out, size_t cap)
{
    const char *model = conf_text(conf, CONF_MODEL), *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    const char *adapter = conf_text(conf, CONF_ADAPTER);
    struct model_dims preset;
    if (adapter[0] && weights_are_ckpt(adapter) && is_kept(adapter, out, cap))
        return true;
    if (gguf_model_is_file(model))
        return text_copy(out, cap, model);
    if (file_is_dir(model) && !model_preset(model, &preset))
        dir = model;
    return dir[0] && (is_in(dir, "", out, cap) || is_kept(dir, out, cap));
}

static bool is_built_in(const struct tokenizer *tokenizer)
{
    uint64_t identity[2];
    tokenizer_identity(tokenizer, identity);
    return identity[0] == 0 && identity[1] == 0;
}

/* check_model — checks the tokenizer against the model. The built-in tokenizer is the default of
 * runs that need none: ids are then checked where they occur. */
static enum status check_model(const struct tokenizer *tokenizer, const struct model_dims *dims,
                               bool is_named)
{
    if (is_built_in(tokenizer))
        return ST_OK;
    /* A model may have fewer rows than its tokenizer has ids: it was never trained on an added
     * token. Ids are checked where they occur. */
    const bool is_larger = tokenizer_vocab(tokenizer) > dims->vocab;
    if (is_larger && is_named)
        return FAIL(ST_BAD_SETTING,
                    "TOKENIZER=%s has %u ids, but the model's vocabulary has VOCAB=%lld; leave "
                    "TOKENIZER out to use the model's own, or use a model with a larger VOCAB",
                    tokenizer_name(tokenizer), tokenizer_vocab(tokenizer), (long long)dims->vocab);
    if (is_larger)
        LOG_WARN("the model's tokenizer %s has %u ids, but its vocabulary has VOCAB=%lld: texts "
                 "with ids beyond it are refused",
                 tokenizer_name(tokenizer), tokenizer_vocab(tokenizer), (long long)dims->vocab);
    if (dims->task == MODEL_TASK_QA)
        return FAIL(ST_BAD_SETTING,
                    "TASK=qa needs GPT-2's tokenizer, because answers are found by the bytes of "
                    "its tokens, but %s%s is another; set TOKENIZER=gpt2 if the model was trained "
                    "with its ids, else use another model",
                    is_named ? "TOKENIZER=" : "the model's own ", tokenizer_name(tokenizer));
    return ST_OK;
}

/* path_of — returns the path of the tokenizer, or the name of the built-in one. */
static const char *path_of(const struct conf *conf, char *own, size_t cap)
{
    const char *named = conf_text(conf, CONF_TOKENIZER);
    return named[0] ? named : own_path(conf, own, cap) ? own : TOKENIZER_GPT2_NAME;
}

bool tokenizer_source_path(const struct conf *conf, char out[FILE_PATH_MAX])
{
    char own[FILE_PATH_MAX];
    const char *path = path_of(conf, own, sizeof own);
    return strcmp(path, TOKENIZER_GPT2_NAME) != 0 && text_copy(out, FILE_PATH_MAX, path);
}

const char *tokenizer_source_lack(const struct conf *conf, const struct model_dims *dims)
{
    char own[FILE_PATH_MAX];
    const bool has_one = dims->arch == MODEL_ARCH_GPT2 || conf_text(conf, CONF_TOKENIZER)[0] != 0 ||
                         own_path(conf, own, sizeof own);
    return has_one ? NULL : dims->name;
}

void tokenizer_source_warn(const struct conf *conf, const struct model_dims *dims, const char *what)
{
    const char *model = tokenizer_source_lack(conf, dims);
    if (model)
        LOG_WARN("%s has no tokenizer of its own: %s are in GPT-2's tokens; set TOKENIZER to the "
                 "file of the model's tokenizer, or to gpt2 if the model was trained with GPT-2's",
                 model, what);
}

enum status tokenizer_source_open(const struct conf *conf, const struct model_dims *dims,
                                  struct tokenizer **out)
{
    struct tokenizer *tokenizer;
    char own[FILE_PATH_MAX];
    const bool is_named = conf_given(conf, CONF_TOKENIZER)[0] != 0;
    TRY(open_path(path_of(conf, own, sizeof own), &tokenizer));
    const enum status st = dims ? check_model(tokenizer, dims, is_named) : ST_OK;
    if (st != ST_OK) {
        tokenizer_close(tokenizer);
        return st;
    }
    if (!is_built_in(tokenizer))
        LOG_INFO("tokenizer %s: %u ids", tokenizer_name(tokenizer), tokenizer_vocab(tokenizer));
    *out = tokenizer;
    return ST_OK;
}

/* ---- checkpoints ---- */

/* identity_text — writes the identity as 32 hexadecimal digits; "": the built-in tokenizer. */
static void identity_text(const struct tokenizer *tokenizer, char out[33])
{
    uint64_t v[2];
    tokenizer_identity(tokenizer, v);
    out[0] = 0;
    if (!is_built_in(tokenizer))
        text_format(out, 33, "%016llx%016llx", (unsigned long long)v[1], (unsigned long long)v[0]);
}

void tokenizer_source_add(const struct tokenizer *tokenizer, struct text *out)
{
    char text[33];
    identity_text(tokenizer, text);
    if (text[0])
        text_add(out, ",\"TOKENIZER\":\"%s\"", text);
}

enum status tokenizer_source_keep(const struct conf *conf, const struct tokenizer *tokenizer)
{
    const char *to = conf_text(conf, CONF_CHECKPOINT_DIR);
    char own[FILE_PATH_MAX];
    if (is_built_in(tokenizer) || !to[0])
        return ST_OK;
    if (weights_are_ckpt(to) && conf_i64(conf, CONF_RESUME) != CONF_RESUME_NEVER)
        return ST_OK; /* a resumed run has the same tokenizer, or is refused */
    return tokenizer_files_keep(path_of(conf, own, sizeof own), to);
}

enum status tokenizer_source_open_kept(const char *dir, char path[FILE_PATH_MAX],
                                       struct tokenizer **out)
{
    *out = NULL;
    if (is_kept(dir, path, FILE_PATH_MAX))
        return open_path(path, out);
    path[0] = 0;
    return ST_OK;
}

enum status tokenizer_source_kept(const char *dir, char path[FILE_PATH_MAX], struct text *settings)
{
    struct tokenizer *tokenizer;
    TRY(tokenizer_source_open_kept(dir, path, &tokenizer));
    if (tokenizer)
        tokenizer_source_add(tokenizer, settings);
    tokenizer_close(tokenizer);
    return ST_OK;
}

enum status tokenizer_source_check(const struct tokenizer *tokenizer, const char *settings_json)
{
    cJSON *settings;
    char here[33];
    identity_text(tokenizer, here);
    TRY(json_parse(settings_json, strlen(settings_json), "the checkpoint's settings", &settings));
    const char *was = json_text(settings, "TOKENIZER");
    const bool is_other = was[0] && strcmp(was, here) != 0, is_unknown = !was[0] && here[0];
    cJSON_Delete(settings);
    if (is_unknown)
        LOG_WARN("the checkpoint names no tokenizer: it was trained with GPT-2's, or on token ids; "
                 "check that TOKENIZER=%s made these ids",
                 tokenizer_name(tokenizer));
    if (is_other)
        return FAIL(ST_BAD_SETTING,
                    "the checkpoint was trained with another tokenizer than TOKENIZER=%s; set "
                    "TOKENIZER to the folder or file that its run used",
                    tokenizer_name(tokenizer));
    return ST_OK;
}

/* source_sync — see source_sync.h. Read source_sync first, at the foot. */
#include "node/worker/source_sync.h"

#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "data/tokenizer/gpt2.h"
#include "file_share/file_list.h"
#include "format/gguf/model.h"
#include "node/choose/sources.h"
#include "node/choose/tokenizer_files.h"
#include "node/choose/tokenizer_source.h"
#include "node/worker/file_sync.h"
#include "remote/remote.h"
#include "train/weights/outline.h"
#include "train/weights/weights.h"

#define PAUSE_MS 20

/* ---- node 0: the lists ---- */

/* add_file — adds a file that keeps its name to a list. */
static enum status add_file(struct file_list *list, const char *name, const char *path,
                            const void *bytes, size_t n)
{
    struct file_list_entry file = {.bytes = (int64_t)n,
                                   .sum = XXH3_64bits(bytes, n),
                                   /* file_list_add copies it */
                                   .path = (char *)(uintptr_t)path};
    if (n == 0)
        return ST_OK;
    if (!text_copy(file.name, sizeof file.name, name))
        return FAIL(ST_BAD_DATA, "%s has a name that is too long", path);
    list->state = FILE_LIST_STATE_READY;
    return file_list_add(list, &file);
}

/* add_made — writes a file for other nodes into CACHE_DIR, and adds it to the list. */
static enum status add_made(const struct conf *conf, struct file_list *list, const char *name,
                            const void *bytes, size_t n)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    if (!text_format(dir, sizeof dir, "%s/for-other-nodes/%016llx", conf_text(conf, CONF_CACHE_DIR),
                     (unsigned long long)XXH3_64bits(bytes, n)))
        return FAIL(ST_BAD_SETTING, "the path CACHE_DIR=%.80s… is too long; set a shorter one",
                    conf_text(conf, CONF_CACHE_DIR));
    TRY(file_make_dirs(dir));
    TRY(file_join(path, sizeof path, dir, name));
    TRY(file_replace(path, bytes, n));
    return add_file(list, name, path, bytes, n);
}

static enum status list_model(const struct conf *conf, struct file_list *list)
{
    struct outline outline;
    struct model_dims preset;
    struct text text = {.data = NULL};
    if (model_preset(conf_text(conf, CONF_MODEL), &preset))
        return ST_OK;
    TRY(outline_of_model(conf_text(conf, CONF_MODEL), &outline));
    enum status st = outline_write(&outline, &text);
    if (st == ST_OK)
        st = add_made(conf, list, OUTLINE_FILE, text.data, text.len);
    text_free(&text);
    return st;
}

static enum status list_adapter(const struct conf *conf, struct file_list *list)
{
    struct outline outline;
    struct model_dims base;
    struct text text = {.data = NULL};
    if (!conf_text(conf, CONF_ADAPTER)[0])
        return ST_OK;
    TRY(weights_dims(conf_text(conf, CONF_MODEL), &base));
    TRY(outline_of_adapter(conf_text(conf, CONF_ADAPTER), &base, &outline));
    if (sources_adapter_is_resumed(conf))
        outline.sum = 0; /* it is no longer the adapter of the setting */
    enum status st = outline_write(&outline, &text);
    if (st == ST_OK)
        st = add_made(conf, list, OUTLINE_FILE, text.data, text.len);
    text_free(&text);
    return st;
}

/* list_tokenizer — lists the files of the tokenizer that this run uses. The keys of a GGUF file,
 * and a file that is not in a folder of its own, get the names under which a folder is read. */
static enum status list_tokenizer(const struct conf *conf, struct file_list *list)
{
    struct tokenizer_file file[TOKENIZER_FILES_MAX] = {{.data = NULL}};
    char from[FILE_PATH_MAX], path[FILE_PATH_MAX];
    int n = 0;
    if (!tokenizer_source_path(conf, from))
        return ST_OK;
    TRY(tokenizer_files_open(from, file, &n));
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && i < n; i++) {
        if (!file_is_dir(from)) {
            st = add_made(conf, list, file[i].name, file[i].data, file[i].bytes);
            continue;
        }
        st = file_join(path, sizeof path, from, file[i].name);
        if (st == ST_OK)
            st = add_file(list, file[i].name, path, file[i].data, file[i].bytes);
    }
    tokenizer_files_free(file, n);
    return st;
}

/* publish_lists — publishes the lists. A failure is a problem only of nodes that need the files: if
 * this node does, it fails when it reads them. */
static void publish_lists(const struct source_sync_config *config)
{
    static const struct {
        enum file_list_kind kind;
        enum status (*list)(const struct conf *conf, struct file_list *list);
    } rows[] = {{FILE_LIST_KIND_MODEL, list_model},
                {FILE_LIST_KIND_ADAPTER, list_adapter},
                {FILE_LIST_KIND_TOKENIZER, list_tokenizer}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct file_list list = {.state = FILE_LIST_STATE_NONE};
        if (rows[i].list(config->conf, &list) != ST_OK) {
            file_sync_set_unfit(&list, status_message());
            status_clear();
        }
        file_sync_publish_list(config->board, rows[i].kind, &list);
        file_list_free(&list);
    }
}

/* ---- node 0: the paths ---- */

static char blob[BOARD_BLOB_SMALL_MAX];

/* find_sources — finds the sources. A worker that is started again uses the same ones. */
static enum status find_sources(const struct source_sync_config *config)
{
    struct text text = {.limit = BOARD_BLOB_SMALL_MAX};
    size_t n;
    if (board_blob_copy(config->board, BOARD_BLOB_SOURCES, blob, &n) &&
        sources_read(config->conf, blob, n))
        return ST_OK;
    TRY(sources_find(config->conf, config->progress, config->progress_arg));
    sources_write(config->conf, &text);
    const bool is_whole = !text.overflow;
    if (is_whole)
        board_blob_publish(config->board, BOARD_BLOB_SOURCES, text.data, text.len);
    text_free(&text);
    return is_whole ? ST_OK : FAIL(ST_RETRY, "out of memory: the paths of MODEL and ADAPTER");
}

/* await_sources — waits until the first worker of the node has found them. */
static enum status await_sources(const struct source_sync_config *config)
{
    size_t n;
    while (!board_blob_copy(config->board, BOARD_BLOB_SOURCES, blob, &n) ||
           !sources_read(config->conf, blob, n)) {
        if (!config->progress(config->progress_arg, 0, 0))
            return FAIL(ST_RETRY, "stopped while MODEL was fetched");
        clock_sleep_ms(PAUSE_MS);
    }
    return ST_OK;
}

/* ---- the other nodes ---- */

static enum status fetch_files(const struct source_sync_config *config, enum file_list_kind kind,
                               struct text *out, enum file_list_state *state_out)
{
    const struct file_sync_config sync = {.conf = config->conf,
                                          .board = config->board,
                                          .kind = kind,
                                          .progress = config->progress,
                                          .progress_arg = config->progress_arg};
    return file_sync_fetch_files(&sync, out, state_out);
}

/* has_own — returns true after a failure that concerns only the copy: the node has the files
 * itself, and goes on with them, unchecked. */
static bool has_own(enum status st, bool is_here, const char *setting)
{
    if (!is_here || (st != ST_STORE && st != ST_NO_INPUT && st != ST_BAD_SETTING))
        return false;
    LOG_WARN("%s is not compared with node 0's: %s", setting, status_message());
    status_clear();
    return true;
}

static enum status check_outline(const struct conf *conf, enum conf_key key, const char *folder)
{
    const char *path = conf_text(conf, key);
    const int node_id = (int)conf_i64(conf, CONF_NODE_ID);
    struct outline own, theirs;
    struct model_dims base;
    char how[512];
    TRY(outline_read(folder, &theirs));
    if (key == CONF_ADAPTER) {
        TRY(weights_dims(conf_text(conf, CONF_MODEL), &base));
        TRY(outline_of_adapter(path, &base, &own));
    } else {
        TRY(outline_of_model(path, &own));
    }
    if (outline_is_same(&theirs, 0, &own, node_id, how, sizeof how))
        return ST_OK;
    return FAIL(ST_DISAGREE, "%s differs: %s; give every node the same files, or only node 0",
                conf_row_name(key), how);
}

/* fetch_outline — gets the outline of node 0's model or adapter. */
static enum status fetch_outline(const struct source_sync_config *config, enum conf_key key,
                                 enum file_list_kind kind)
{
    struct conf *conf = config->conf;
    const char *name = conf_row_name(key), *given = conf_given(conf, key);
    const bool is_here = sources_is_local(conf, key);
    enum file_list_state state;
    struct text folder = {.data = NULL};
    enum status st = fetch_files(config, kind, &folder, &state);
    if (has_own(st, is_here, name)) {
        st = ST_OK;
    } else if (st == ST_NO_INPUT) {
        st = FAIL(ST_NO_INPUT, "%s=%.400s is not on this node, and %s", name, given,
                  status_message());
    } else if (st == ST_OK && state == FILE_LIST_STATE_NONE && !is_here) {
        st = FAIL(ST_NO_INPUT,
                  "%s=%.400s is not on this node, and node 0 has no files of %s to send; check the "
                  "path, or set it there",
                  name, given, name);
    } else if (st == ST_OK && state == FILE_LIST_STATE_READY && is_here) {
        st = check_outline(conf, key, folder.data);
    } else if (st == ST_OK && state == FILE_LIST_STATE_READY) {
        conf_set_found(conf, key, folder.data, "");
        if (config->worker_i == 0)
            LOG_INFO("%s=%s: node 0 reads it, and sends the weights", name, given);
    }
    text_free(&folder);
    return st;
}

/* fetch_tokenizer — gets the tokenizer of node 0, if this node names none that it has. The tokens
 * that a node makes from its own text are compared with node 0's (generations.h). */
static enum status fetch_tokenizer(const struct source_sync_config *config)
{
    struct conf *conf = config->conf;
    const char *given = conf_given(conf, CONF_TOKENIZER);
    char own[FILE_PATH_MAX], gguf[FILE_PATH_MAX];
    enum file_list_state state;
    struct text folder = {.data = NULL};
    if (given[0] && !remote_is_name(given) &&
        (strcmp(given, TOKENIZER_GPT2_NAME) == 0 || file_exists(given)))
        return ST_OK;
    enum status st = fetch_files(config, FILE_LIST_KIND_TOKENIZER, &folder, &state);
    if (has_own(st, !given[0] && tokenizer_source_path(conf, own), "TOKENIZER"))
        return ST_OK;
    if (st == ST_OK && state == FILE_LIST_STATE_NONE && given[0])
        st = FAIL(
            ST_NO_INPUT,
            "TOKENIZER=%.400s is not on this node, and node 0 uses GPT-2's; check the path, or "
            "set it there",
            given);
    if (st == ST_OK && state == FILE_LIST_STATE_READY) {
        st = file_join(gguf, sizeof gguf, folder.data, TOKENIZER_FILES_GGUF);
        if (st == ST_OK)
            conf_set_found(conf, CONF_TOKENIZER, file_exists(gguf) ? gguf : folder.data, "");
    }
    text_free(&folder);
    return st;
}

static enum status fetch_sources(const struct source_sync_config *config)
{
    struct model_dims preset;
    if (!model_preset(conf_given(config->conf, CONF_MODEL), &preset))
        TRY(fetch_outline(config, CONF_MODEL, FILE_LIST_KIND_MODEL));
    if (conf_given(config->conf, CONF_ADAPTER)[0])
        TRY(fetch_outline(config, CONF_ADAPTER, FILE_LIST_KIND_ADAPTER));
    return fetch_tokenizer(config);
}

enum status source_sync(const struct source_sync_config *config)
{
    if (conf_i64(config->conf, CONF_NODE_ID) > 0)
        return fetch_sources(config);
    if (config->worker_i > 0)
        return await_sources(config);
    TRY(find_sources(config));
    if (conf_i64(config->conf, CONF_N_NODES) > 1)
        publish_lists(config);
    return ST_OK;
}

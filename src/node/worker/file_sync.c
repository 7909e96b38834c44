/* file_sync — see file_sync.h. */
#include "node/worker/file_sync.h"

#include <string.h>

#include "base/log.h"
#include "base/assert.h"
#include "file_share/file_client.h"

/* ---- node 0 ---- */

static enum status list_files(const struct feed *feed, struct file_list *list)
{
    struct feed_file from;
    for (int64_t i = 0; feed_file(feed, i, &from); i++) {
        struct file_list_entry file = {.item = from.item,
                                       .bytes = from.bytes,
                                       .skip = from.skip,
                                       .sum = from.sum,
                                       .is_pair = from.is_pair,
                                       .sums_ends = from.sums_ends,
                                       /* file_list_add copies it */
                                       .path = (char *)(uintptr_t)from.path};
        text_copy(file.suffix, sizeof file.suffix, from.suffix);
        TRY(file_list_add(list, &file));
        list->weights[from.item] = from.weight;
    }
    list->state = list->files_n > 0 ? FILE_LIST_STATE_READY : FILE_LIST_STATE_NONE;
    return ST_OK;
}

void file_sync_set_unfit(struct file_list *list, const char *why)
{
    file_list_free(list);
    list->state = FILE_LIST_STATE_UNFIT;
    text_copy(list->why, sizeof list->why, why);
}

enum board_blob file_sync_blob(enum file_list_kind kind)
{
    static const enum board_blob blobs[FILE_LIST_KINDS_N] = {
        [FILE_LIST_KIND_DATA] = BOARD_BLOB_DATA,
        [FILE_LIST_KIND_VAL_DATA] = BOARD_BLOB_VAL_DATA,
        [FILE_LIST_KIND_MODEL] = BOARD_BLOB_MODEL,
        [FILE_LIST_KIND_ADAPTER] = BOARD_BLOB_ADAPTER,
        [FILE_LIST_KIND_TOKENIZER] = BOARD_BLOB_TOKENIZER};
    return blobs[kind];
}

void file_sync_publish_list(struct board *board, enum file_list_kind kind, struct file_list *list)
{
    const size_t limit = board_blob_max(board, file_sync_blob(kind));
    struct text out = {.limit = limit};
    file_list_write(&out, list, true);
    if (out.overflow) {
        text_free(&out);
        out = (struct text){.limit = limit};
        file_sync_set_unfit(list, "it has too many files to list");
        file_list_write(&out, list, true);
    }
    if (!out.overflow)
        board_blob_publish(board, file_sync_blob(kind), out.data, out.len);
    text_free(&out);
}

void file_sync_publish(struct board *board, bool is_validation, const struct feed *feed)
{
    struct file_list list = {.state = FILE_LIST_STATE_NONE};
    if (feed && list_files(feed, &list) != ST_OK) {
        file_sync_set_unfit(&list, status_message());
        status_clear();
    }
    file_sync_publish_list(board, is_validation ? FILE_LIST_KIND_VAL_DATA : FILE_LIST_KIND_DATA,
                           &list);
    file_list_free(&list);
}

/* ---- the other nodes ---- */

_Static_assert(FILE_LIST_JSON_MAX <= BOARD_BLOB_MAX, "a list of files fits a blob");

enum status file_sync_fetch_files(const struct file_sync_config *config, struct text *out,
                                  enum file_list_state *state_out)
{
    const struct conf *conf = config->conf;
    struct psk psk;
    static char blob[BOARD_BLOB_MAX];
    size_t n;
    if (!board_blob_copy(config->board, BOARD_BLOB_JOB_KEY, blob, &n) || n != sizeof psk)
        return FAIL(ST_BUG, "the supervisor has published no key for node 0's files");
    memcpy(&psk, blob, sizeof psk);
    explicit_bzero(blob, sizeof psk);
    const struct file_client_config from = {.psk = &psk,
                                            .host = conf_text(conf, CONF_MASTER_ADDR),
                                            .port = (int)conf_i64(conf, CONF_MASTER_PORT),
                                            .node_id = (int)conf_i64(conf, CONF_NODE_ID),
                                            .kind = config->kind,
                                            .cache_dir = conf_text(conf, CONF_CACHE_DIR),
                                            .progress = config->progress,
                                            .progress_arg = config->progress_arg};
    assert_note("copying %s from node 0", file_list_setting(config->kind));
    enum status st = file_client_fetch(&from, out, state_out);
    psk_wipe(&psk);
    return st;
}

enum status file_sync_fetch(const struct file_sync_config *config, struct text *out)
{
    const bool is_validation = config->kind == FILE_LIST_KIND_VAL_DATA;
    const char *name = file_list_setting(config->kind);
    const char *data = conf_text(config->conf, is_validation ? CONF_VAL_DATA : CONF_DATA);
    enum file_list_state state;
    if (data[0] && feed_is_here(data))
        return ST_OK;
    if (data[0])
        LOG_DEBUG("%s=%s is not on this node: copying the data of node 0", name, data);
    enum status st = file_sync_fetch_files(config, out, &state);
    if (st == ST_NO_INPUT && data[0])
        return FAIL(ST_NO_INPUT, "%s=%.400s is not on this node, and %s", name, data,
                    status_message());
    TRY(st);
    if (data[0] && state == FILE_LIST_STATE_NONE)
        return FAIL(ST_NO_INPUT,
                    "%s=%.400s is not on this node, and node 0 has no file of %s to send; check "
                    "the path, or set it there",
                    name, data, name);
    if (state == FILE_LIST_STATE_NONE)
        text_add(out, FEED_SYNTHETIC);
    return ST_OK;
}

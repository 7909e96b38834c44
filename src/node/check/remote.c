/* check_remote — see check/remote.h. */
#include "node/check/remote.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "node/bucket/bucket.h"
#include "node/choose/config_map.h"
#include "remote/remote.h"

#define OBJECT_BYTES ((size_t)8 << 20)
#define OBJECT_NAME ".check"

/* One check of a bucket. */
struct probe {
    const struct check_remote_config *config;
    struct bucket_address address;
    struct s3 *s3;
    char key[S3_KEY_MAX];
    char *bytes;
    struct check_rows *rows;
};

/* add_row — adds a row for an operation: its time, or the reason why it failed. */
static void add_row(const struct probe *p, const char *name, enum status st, double value,
                    const char *unit)
{
    const char *bucket = conf_given(p->config->conf, CONF_CHECKPOINT_DIR);
    struct check_row row =
        st == ST_OK ? check_row_found(CHECK_STAGE_STATIC, CHECK_POINT_CHECKPOINT, p->config->node,
                                      name, CHECK_VERDICT_PASS, "%s answers", bucket)
                    : check_row_found(CHECK_STAGE_STATIC, CHECK_POINT_CHECKPOINT, p->config->node,
                                      name, CHECK_VERDICT_FAIL, "%s", status_message());
    text_copy(row.subject, sizeof row.subject, p->address.s3.bucket);
    if (st == ST_OK) {
        row.value = value;
        text_copy(row.unit, sizeof row.unit, unit);
    } else {
        text_copy(row.remedy, sizeof row.remedy,
                  "env | grep ^AWS_ # check keys, region, endpoint and permissions; or set "
                  "CHECKPOINT_DIR to a folder");
        status_clear();
    }
    check_row_add(p->rows, &row);
}

/* read_back — reads the object, and compares it with its bytes. */
static enum status read_back(const struct probe *p)
{
    struct text text = {.limit = OBJECT_BYTES + 1};
    bool is_found = false;
    enum status st = s3_read(p->s3, p->key, OBJECT_BYTES, &text, &is_found);
    if (st == ST_OK &&
        (!is_found || text.len != OBJECT_BYTES || memcmp(text.data, p->bytes, OBJECT_BYTES) != 0))
        st = FAIL(ST_BAD_DATA, "the object that was written to %s is not the object that is read",
                  p->address.s3.bucket);
    text_free(&text);
    return st;
}

/* try_operations — lists, writes, reads and removes; the first failure ends it. */
static void try_operations(const struct probe *p)
{
    struct s3_list list = {.n = 0};
    const double megabytes = (double)OBJECT_BYTES / 1e6;
    int64_t begin_ns = clock_ns();
    enum status st = s3_list(p->s3, p->key, &list);
    s3_list_free(&list);
    add_row(p, "bucket list", st, (double)(clock_ns() - begin_ns) / 1e6, "ms");
    if (st != ST_OK)
        return;
    begin_ns = clock_ns();
    st = s3_write(p->s3, p->key, p->bytes, OBJECT_BYTES);
    add_row(p, "bucket write", st, megabytes / ((double)(clock_ns() - begin_ns) / 1e9), "MB/s");
    if (st != ST_OK)
        return;
    begin_ns = clock_ns();
    st = read_back(p);
    add_row(p, "bucket read", st, megabytes / ((double)(clock_ns() - begin_ns) / 1e9), "MB/s");
    begin_ns = clock_ns();
    st = s3_delete(p->s3, p->key);
    add_row(p, "bucket delete", st, (double)(clock_ns() - begin_ns) / 1e6, "ms");
}

/* check_bucket — adds the rows of the bucket, if CHECKPOINT_DIR is the name of one. */
static void check_bucket(const struct check_remote_config *config, struct check_rows *rows)
{
    struct probe p = {.config = config, .rows = rows};
    const char *name = conf_given(config->conf, CONF_CHECKPOINT_DIR);
    if (!s3_address_is(name))
        return;
    enum status st = bucket_address_parse(name, &p.address);
    if (st == ST_OK && !text_format(p.key, sizeof p.key, "%s%s" OBJECT_NAME, p.address.s3.key,
                                    p.address.s3.key[0] ? "/" : ""))
        st = FAIL(ST_BAD_SETTING, "the prefix of CHECKPOINT_DIR is too long; use a shorter one");
    const struct s3_config s3 = {.bucket = p.address.s3.bucket,
                                 .allows_local = conf_i64(config->conf, CONF_ALLOW_LOCAL_URLS) != 0,
                                 .progress = config->progress,
                                 .progress_arg = config->progress_arg};
    if (st == ST_OK)
        st = s3_open(&s3, &p.s3);
    if (st != ST_OK) {
        add_row(&p, "bucket list", st, 0, "");
        return;
    }
    p.bytes = memory_new(1, OBJECT_BYTES);
    for (size_t i = 0; i < OBJECT_BYTES; i++)
        p.bytes[i] = (char)(i * 2654435761u >> 13);
    try_operations(&p);
    free(p.bytes);
    s3_close(p.s3);
}

/* check_hub — adds the row of a setting, if it has a name on the hub: the time until the hub has
 * sent the commit, or why it did not. */
static void check_hub(const struct check_remote_config *config, enum conf_key key,
                      struct check_rows *rows)
{
    const char *value = conf_given(config->conf, key), *setting = conf_row_name(key);
    if (strstr(value, "hf://") == NULL)
        return;
    const struct remote_config remote = {.setting = setting,
                                         .cache_dir = conf_text(config->conf, CONF_CACHE_DIR),
                                         .allows_local =
                                             conf_i64(config->conf, CONF_ALLOW_LOCAL_URLS) != 0,
                                         .progress = config->progress,
                                         .progress_arg = config->progress_arg};
    struct text pinned = {.data = NULL};
    cJSON *used = cJSON_CreateObject();
    const int64_t begin_ns = clock_ns();
    enum status st = config_map_cache(config->conf);
    if (st == ST_OK)
        st = remote_pin(&remote, value, NULL, used, &pinned);
    const enum check_verdict verdict = st == ST_OK ? CHECK_VERDICT_PASS : CHECK_VERDICT_FAIL;
    struct check_row row =
        check_row_found(CHECK_STAGE_STATIC, CHECK_POINT_HOST, config->node, "hub", verdict, "%s",
                        st == ST_OK ? pinned.data : status_message());
    text_copy(row.subject, sizeof row.subject, setting);
    if (st == ST_OK) {
        row.value = (double)(clock_ns() - begin_ns) / 1e6;
        text_copy(row.unit, sizeof row.unit, "ms");
    } else {
        text_copy(row.remedy, sizeof row.remedy,
                  "env | grep ^HF_ # check HF_TOKEN and HF_ENDPOINT; or name a local folder");
        status_clear();
    }
    check_row_add(rows, &row);
    cJSON_Delete(used);
    text_free(&pinned);
}

void check_remote(const struct check_remote_config *config, struct check_rows *rows)
{
    static const enum conf_key keys[] = {CONF_MODEL, CONF_TOKENIZER, CONF_ADAPTER, CONF_DATA,
                                         CONF_VAL_DATA};
    check_bucket(config, rows);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        check_hub(config, keys[i], rows);
}

/* bucket — see bucket.h: the handle, listings, and the owner of a prefix. */
#include "node/bucket/bucket_inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arc4random.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define OWNER_NAME "owner.json"
#define TRY_NAME ".try" /* the object with which permissions are tried */
#define OWNER_BYTES_MAX 4096
#define LOG_EVERY_MS 10000

/* ---- the handle ---- */

/* on_progress — counts the bytes of a transfer, and returns false to stop it. */
static bool on_progress(void *arg, int64_t done, int64_t total)
{
    struct bucket *bucket = arg;
    char have[32], of[32];
    const struct bucket_config *c = &bucket->config;
    if (c->bytes_done != NULL && bucket->is_sending)
        *c->bytes_done = bucket->bytes_before + done;
    if (c->logs_progress && total > 0 && bucket->is_receiving &&
        clock_ms() - bucket->logged_ms >= LOG_EVERY_MS) {
        bucket->logged_ms = clock_ms();
        LOG_INFO("%s: %s of a file of %s are here", bucket->name,
                 text_format_bytes(have, sizeof have, (double)done),
                 text_format_bytes(of, sizeof of, (double)total));
    }
    return c->progress == NULL || c->progress(c->arg, done, total);
}

enum status bucket_open(const struct bucket_config *config, struct bucket **out)
{
    uint8_t random[16];
    struct bucket *bucket = memory_new(1, sizeof *bucket);
    bucket->config = *config;
    bucket->address = *config->address;
    bucket->config.address = &bucket->address;
    bucket->logged_ms = clock_ms();
    text_format(bucket->name, sizeof bucket->name, "s3://%s%s%s", bucket->address.s3.bucket,
                bucket->address.s3.key[0] ? "/" : "", bucket->address.s3.key);
    arc4random_buf(random, sizeof random);
    text_hex(random, sizeof random, bucket->owner);
    const struct s3_config s3 = {.bucket = bucket->address.s3.bucket,
                                 .allows_local = config->allows_local,
                                 .progress = on_progress,
                                 .progress_arg = bucket,
                                 .on_retry = config->on_retry,
                                 .on_retry_arg = config->arg};
    const enum status st = s3_open(&s3, &bucket->s3);
    if (st != ST_OK) {
        bucket_close(bucket);
        return st;
    }
    *out = bucket;
    return ST_OK;
}

void bucket_close(struct bucket *bucket)
{
    if (bucket == NULL)
        return;
    s3_close(bucket->s3);
    free(bucket);
}

const char *bucket_name(const struct bucket *bucket) { return bucket->name; }

enum status bucket_key(const struct bucket *bucket, const char *name, char out[S3_KEY_MAX])
{
    const char *prefix = bucket->address.s3.key;
    if (strlen(prefix) + 1 + strlen(name) >= S3_KEY_MAX)
        return FAIL(ST_BAD_SETTING,
                    "the prefix of %.256s… is too long for the names of its checkpoints; use a "
                    "shorter one",
                    bucket->name);
    text_format(out, S3_KEY_MAX, "%s%s%s", prefix, prefix[0] ? "/" : "", name);
    return ST_OK;
}

enum status bucket_list(struct bucket *bucket, struct bucket_listing *out)
{
    char prefix[S3_KEY_MAX];
    struct s3_list objects = {.n = 0};
    TRY(bucket_key(bucket, "", prefix));
    TRY(s3_list(bucket->s3, prefix, &objects));
    bucket_group(&objects, prefix, out);
    return ST_OK;
}

enum status bucket_try_write(struct bucket *bucket)
{
    char key[S3_KEY_MAX];
    static const char text[] = "Convoy tries here whether it may write.\n";
    TRY(bucket_key(bucket, TRY_NAME, key));
    TRY(s3_write(bucket->s3, key, text, sizeof text - 1));
    if (s3_delete(bucket->s3, key) != ST_OK) {
        LOG_WARN("%s: objects can be written but not removed, so old checkpoints stay "
                 "(CHECKPOINT_KEEP): %s",
                 bucket->name, status_message());
        status_clear();
    }
    return ST_OK;
}

/* ---- the owner ---- */

/* write_owner — makes this handle the owner. */
static enum status write_owner(struct bucket *bucket, const char *key)
{
    char host[256] = "", quoted[6 * sizeof host + 3], text[OWNER_BYTES_MAX];
    (void)gethostname(host, sizeof host - 1);
    json_quote(quoted, sizeof quoted, host);
    text_format(text, sizeof text,
                "{\"owner\":\"%s\",\"host\":%s,\"pid\":%ld,\"since_ms\":%" PRId64 "}\n",
                bucket->owner, quoted, (long)getpid(), clock_wall_ms());
    TRY(s3_write(bucket->s3, key, text, strlen(text)));
    bucket->is_owner = true;
    return ST_OK;
}

/* check_owner — compares the owner's object with this handle. Anything but another owner's object
 * is no proof of another run. */
static enum status check_owner(const struct bucket *bucket, const struct text *text)
{
    cJSON *root = NULL;
    char host[256];
    enum status st = ST_OK;
    if (text->len == 0 || json_parse(text->data, text->len, OWNER_NAME, &root) != ST_OK) {
        status_clear();
        return ST_OK;
    }
    const char *owner = json_text(root, "owner");
    const double pid = json_number(root, "pid");
    text_printable(host, sizeof host, json_text(root, "host"));
    if (owner[0] && strcmp(owner, bucket->owner) != 0)
        st = FAIL(ST_DISAGREE,
                  "another run (on host %s, process %.0f) uploads to %s now, so this one must not; "
                  "give each run a CHECKPOINT_DIR of its own",
                  host, pid, bucket->name);
    cJSON_Delete(root);
    return st;
}

enum status bucket_own(struct bucket *bucket)
{
    char key[S3_KEY_MAX];
    struct text text = {.limit = OWNER_BYTES_MAX + 1};
    bool is_found;
    TRY(bucket_key(bucket, OWNER_NAME, key));
    if (!bucket->is_owner)
        return write_owner(bucket, key);
    enum status st = s3_read(bucket->s3, key, OWNER_BYTES_MAX, &text, &is_found);
    if (st == ST_OK)
        st = check_owner(bucket, &text);
    text_free(&text);
    return st;
}

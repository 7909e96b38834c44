/* bucket — see bucket.h. Read bucket_fetch first, at the end. */
#include "remote/bucket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/memory.h"
#include "remote/parallel.h"
#include "remote/remote_path.h"
#include "remote/s3.h"

enum { THREADS = 4 }; /* objects that are downloaded at the same time */

struct bucket {
    const struct remote_config *config;
    const char *name;          /* as the user wrote it */
    struct s3_address address; /* the key without '/' at its end */
    struct s3 *s3;
    struct s3_list list;                                /* the objects that are wanted */
    char objects[FILE_PATH_MAX], folder[FILE_PATH_MAX]; /* in CACHE_DIR */
    int64_t *missing; /* numbers of the objects that are not in the cache */
    int64_t total_bytes;
    _Atomic int64_t done_bytes; /* complete objects */
    struct parallel parallel;   /* the downloads */
    struct fetcher {
        struct bucket *bucket;
        struct s3 *s3; /* NULL: not open yet */
        _Atomic int64_t moved_bytes;
    } fetcher[THREADS];
};

/* ---- the objects ---- */

static enum status no_object(const struct bucket *b)
{
    return FAIL(ST_NO_INPUT,
                "%s=%.400s: the bucket has no such object, no match, and none below %.200s/; check "
                "the name",
                b->config->setting, b->name, b->address.key);
}

/* add_found — wants an object if it exists. */
static enum status add_found(struct bucket *b, const char *key, bool *found_out)
{
    struct s3_object *item = b->list.item + b->list.n;
    struct s3_object object;
    TRY(s3_head(b->s3, key, &object, found_out));
    if (*found_out) {
        *item = object;
        item->key = memory_text(key); /* the list owns its keys */
        b->list.n++;
    }
    return ST_OK;
}

/* find_one — wants the object of that key, and the other file of Megatron's pair. */
static enum status find_one(struct bucket *b)
{
    char other[S3_KEY_MAX];
    const char *key = b->address.key;
    const size_t n = strlen(key);
    bool is_found;
    b->list.item = memory_new(2, sizeof *b->list.item);
    TRY(add_found(b, key, &is_found));
    if (!is_found || (!text_ends(key, ".idx") && !text_ends(key, ".bin")))
        return ST_OK;
    text_format(other, S3_KEY_MAX, "%.*s%s", (int)n - 4, key,
                text_ends(key, ".idx") ? ".bin" : ".idx");
    return add_found(b, other, &is_found);
}

/* check_key — refuses a key that is no path of a file below a folder. */
static enum status check_key(const struct bucket *b, const char *key)
{
    char shown[256];
    if (remote_path_is_safe(key))
        return ST_OK;
    return FAIL(
        ST_BAD_DATA,
        "%s=s3://%s: the key \"%s\" cannot be a file below a folder (\"..\", an empty "
        "component, a control, or over 255 bytes between two /); rename the object, or name "
        "others",
        b->config->setting, b->address.bucket, text_printable(shown, sizeof shown, key));
}

/* check_folders — refuses a list in which a key is also the folder of another key. */
static enum status check_folders(const struct bucket *b)
{
    char shown[2][200];
    const char *file, *below;
    const char **keys = memory_new((size_t)b->list.n + 1, sizeof *keys);
    for (int64_t i = 0; i < b->list.n; i++)
        keys[i] = b->list.item[i].key;
    const bool is_bad = remote_path_find_clash(keys, b->list.n, &file, &below);
    free(keys);
    return is_bad ? FAIL(ST_BAD_DATA,
                         "%s=s3://%s: the keys \"%s\" and \"%s\" cannot both be files, "
                         "because no folder can hold them; rename an object, or name others",
                         b->config->setting, b->address.bucket,
                         text_printable(shown[0], sizeof shown[0], file),
                         text_printable(shown[1], sizeof shown[1], below))
                  : ST_OK;
}

/* find_all — selects the objects below the key, or the matches of a glob. */
static enum status find_all(struct bucket *b)
{
    char prefix[S3_KEY_MAX + 1];
    const char *key = b->address.key;
    const bool is_glob = remote_path_is_glob(key);
    int64_t n = 0;
    if (is_glob)
        text_format(prefix, sizeof prefix, "%.*s", (int)strcspn(key, "*?["), key);
    else
        text_format(prefix, sizeof prefix, "%s%s", key, key[0] != '\0' ? "/" : "");
    const size_t prefix_n = strlen(prefix);
    TRY(s3_list(b->s3, prefix, &b->list));
    for (int64_t i = 0; i < b->list.n; i++) {
        struct s3_object object = b->list.item[i];
        b->list.item[i].key = NULL;
        /* A key that ends with '/' marks a folder. */
        const bool is_meant = !text_ends(object.key, "/") &&
                              (!is_glob || remote_path_matches(key, object.key)),
                   is_safe = remote_path_is_safe(object.key);
        if (is_meant && !(is_safe && remote_path_is_hidden(object.key + (is_glob ? 0 : prefix_n))))
            b->list.item[n++] = object;
        else
            free((char *)(uintptr_t)object.key);
    }
    b->list.n = n;
    for (int64_t i = 0; i < n; i++)
        TRY(check_key(b, b->list.item[i].key));
    return check_folders(b);
}

/* ---- the files ---- */

static enum status report_objects(void *arg)
{
    const struct bucket *b = arg;
    int64_t done = b->done_bytes;
    for (int i = 0; i < THREADS; i++)
        done += b->fetcher[i].moved_bytes;
    if (b->config->progress == NULL ||
        b->config->progress(b->config->progress_arg, done,
                            b->total_bytes > done ? b->total_bytes : done))
        return ST_OK;
    return FAIL(ST_RETRY,
                "stopped while downloading %.400s, after %lld bytes; the next start resumes there",
                b->name, (long long)done);
}

/* on_progress — keeps the bytes of a thread's object. */
static bool on_progress(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    struct fetcher *fetcher = arg;
    (void)bytes_total;
    fetcher->moved_bytes = bytes_done;
    return !fetcher->bucket->parallel.is_stopped;
}

static enum status open_s3(struct bucket *b, struct fetcher *fetcher, struct s3 **out)
{
    const struct s3_config config = {.bucket = b->address.bucket,
                                     .allows_local = b->config->allows_local,
                                     .progress = fetcher != NULL ? on_progress : NULL,
                                     .progress_arg = fetcher,
                                     .retry_ms = b->config->retry_ms};
    return s3_open(&config, out);
}

/* name_object — writes the path of an object in the cache. */
static enum status name_object(const struct bucket *b, const struct s3_object *object,
                               char out[FILE_PATH_MAX])
{
    char word[40];
    struct text facts = {0};
    text_add(&facts, "%s\n%s\n%lld", object->key, object->etag, (long long)object->bytes);
    const XXH128_hash_t hash = XXH3_128bits(facts.data, facts.len);
    text_free(&facts);
    text_format(word, sizeof word, "%016llx%016llx", (unsigned long long)hash.high64,
                (unsigned long long)hash.low64);
    return file_join(out, FILE_PATH_MAX, b->objects, word);
}

/* name_folders — names the folder of the list, by all that decides its content. */
static enum status name_folders(struct bucket *b)
{
    const char *cache_dir = b->config->cache_dir;
    char path[FILE_PATH_MAX], store[S3_STORE_MAX];
    TRY(s3_store_name(store));
    XXH3_state_t *hash = file_hash_new();
    XXH3_128bits_reset(hash);
    for (int64_t i = 0; i < b->list.n; i++) {
        const struct s3_object *object = b->list.item + i;
        XXH3_128bits_update(hash, object->key, strlen(object->key) + 1);
        XXH3_128bits_update(hash, object->etag, strlen(object->etag) + 1);
        XXH3_128bits_update(hash, &object->bytes, sizeof object->bytes);
    }
    const XXH128_hash_t sum = XXH3_128bits_digest(hash);
    XXH3_freeState(hash);
    if (!text_format(path, sizeof path, "%s/s3/%s/%s/", cache_dir, store, b->address.bucket) ||
        !text_format(b->objects, sizeof b->objects, "%sobjects", path) ||
        !text_format(b->folder, sizeof b->folder, "%sfolders/%016llx%016llx", path,
                     (unsigned long long)sum.high64, (unsigned long long)sum.low64))
        return FAIL(ST_BAD_SETTING, "the path CACHE_DIR=%.80s… is too long; set a shorter one",
                    cache_dir);
    return file_make_dirs(b->objects);
}

/* check_room — lists the missing objects, and fails before the first byte if CACHE_DIR cannot hold
 * them. */
static enum status check_room(struct bucket *b)
{
    int64_t missing_bytes = 0;
    char path[FILE_PATH_MAX], missing[32], room[32];
    b->missing = memory_new((size_t)b->list.n, sizeof *b->missing);
    for (int64_t i = 0; i < b->list.n; i++) {
        TRY(name_object(b, b->list.item + i, path));
        b->total_bytes += b->list.item[i].bytes;
        if (file_exists(path))
            continue;
        missing_bytes += b->list.item[i].bytes;
        b->missing[b->parallel.tasks_n++] = i;
    }
    b->done_bytes = b->total_bytes - missing_bytes;
    const int64_t space = file_space_bytes(b->objects);
    if (space < 0 || missing_bytes <= space)
        return ST_OK;
    return FAIL(ST_STORE,
                "%s=%.400s: %s more to fetch, but CACHE_DIR=%s has room for %s; make room or set "
                "another CACHE_DIR",
                b->config->setting, b->name,
                text_format_bytes(missing, sizeof missing, (double)missing_bytes),
                b->config->cache_dir, text_format_bytes(room, sizeof room, (double)space));
}

/* link_file — gives an object its name in the folder. */
static enum status link_file(const struct bucket *b, const char *object_path, const char *key)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, sizeof path, b->folder, key));
    char *slash = strrchr(path, '/');
    *slash = '\0';
    TRY(file_make_dirs(path));
    *slash = '/';
    if (link(object_path, path) == 0 || errno == EEXIST)
        return ST_OK;
    /* A file system without hard links. */
    char *real = realpath(object_path, NULL);
    const bool is_linked = real != NULL && (symlink(real, path) == 0 || errno == EEXIST);
    free(real);
    return is_linked ? ST_OK
                     : FAIL(ST_STORE, "cannot make %s: %s; check CACHE_DIR", path, strerror(errno));
}

/* fetch_missing — downloads one object. */
static enum status fetch_missing(void *arg, int thread_i, int64_t i)
{
    struct bucket *b = arg;
    struct fetcher *fetcher = &b->fetcher[thread_i];
    const struct s3_object *object = b->list.item + b->missing[i];
    char path[FILE_PATH_MAX];
    TRY(name_object(b, object, path));
    fetcher->bucket = b;
    if (fetcher->s3 == NULL)
        TRY(open_s3(b, fetcher, &fetcher->s3));
    TRY(object->bytes > 0 ? s3_download(fetcher->s3, object, path) : file_replace(path, "", 0));
    fetcher->moved_bytes = 0;
    b->done_bytes += object->bytes;
    return ST_OK;
}

static enum status fetch_objects(struct bucket *b)
{
    char path[FILE_PATH_MAX], size[32];
    b->parallel.threads_n = THREADS;
    b->parallel.run = fetch_missing;
    b->parallel.report = report_objects;
    b->parallel.arg = b;
    if (b->parallel.tasks_n > 0)
        TRY(parallel_run(&b->parallel));
    TRY(report_objects(b));
    for (int64_t i = 0; i < b->list.n; i++) {
        TRY(name_object(b, b->list.item + i, path));
        TRY(link_file(b, path, b->list.item[i].key));
    }
    LOG_INFO("%.400s: %lld object%s, %s; %lld of them fetched now", b->name, (long long)b->list.n,
             b->list.n == 1 ? "" : "s",
             text_format_bytes(size, sizeof size, (double)b->total_bytes),
             (long long)b->parallel.tasks_n);
    return ST_OK;
}

/* ---- one name ---- */

static enum status fetch_name(struct bucket *b, char path_out[FILE_PATH_MAX])
{
    char *key = b->address.key;
    TRY(s3_address_parse(b->name, &b->address));
    const size_t n = strlen(key);
    const bool is_folder = n == 0 || key[n - 1] == '/', is_glob = remote_path_is_glob(key);
    if (n > 0 && is_folder)
        key[n - 1] = '\0';
    if (key[0] != '\0')
        TRY(check_key(b, key));
    if (b->config->cache_dir == NULL || b->config->cache_dir[0] == '\0')
        return FAIL(ST_BAD_SETTING, "no folder to keep %.400s in; set CACHE_DIR", b->name);
    TRY(open_s3(b, NULL, &b->s3));
    if (!is_folder && !is_glob)
        TRY(find_one(b));
    if (b->list.n == 0) {
        s3_list_free(&b->list);
        TRY(find_all(b));
    }
    if (b->list.n == 0)
        return no_object(b);
    TRY(name_folders(b));
    TRY(check_room(b));
    TRY(fetch_objects(b));
    if (is_glob)
        return remote_path_local_glob(b->folder, key, path_out);
    if (key[0] != '\0')
        return file_join(path_out, FILE_PATH_MAX, b->folder, key);
    text_copy(path_out, FILE_PATH_MAX, b->folder);
    return ST_OK;
}

enum status bucket_fetch(const struct remote_config *config, const char *name,
                         char path_out[FILE_PATH_MAX])
{
    struct bucket *b = memory_new(1, sizeof *b);
    b->config = config;
    b->name = name;
    const enum status st = fetch_name(b, path_out);
    s3_list_free(&b->list);
    s3_close(b->s3);
    for (int i = 0; i < THREADS; i++)
        s3_close(b->fetcher[i].s3);
    free(b->missing);
    free(b);
    return st;
}

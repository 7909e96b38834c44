/* bucket_export — see bucket_export.h. */
#include "node/bucket/bucket_export.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "node/bucket/bucket_inside.h"

#define EXPORTS_DIR "exports"
#define LAST_NAME "config.json" /* readers of a Hugging Face folder begin with it */

/* check_target — fails if there is an object at TO or below it, or if it cannot be written. */
static enum status check_target(struct bucket *bucket)
{
    struct s3_list objects;
    const char *key = bucket->address.s3.key;
    const size_t n = strlen(key);
    if (n == 0 || bucket->address.step >= 0)
        return FAIL(
            ST_BAD_SETTING,
            "TO=%s is no place for an export; set a prefix such as s3://bucket/my-model, or "
            "a name that ends in .gguf",
            bucket->name);
    TRY(s3_list(bucket->s3, key, &objects));
    bool is_there = false;
    for (int64_t i = 0; i < objects.n; i++)
        is_there = is_there || objects.item[i].key[n] == 0 || objects.item[i].key[n] == '/';
    s3_list_free(&objects);
    if (is_there)
        return FAIL(ST_BAD_SETTING, "TO=%s exists already; set TO to another name, or remove it",
                    bucket->name);
    return bucket_try_write(bucket);
}

static enum status send_file(struct bucket *bucket, const char *dir, const char *name)
{
    char path[FILE_PATH_MAX], key[S3_KEY_MAX];
    TRY(file_join(path, sizeof path, dir, name));
    TRY(bucket_key(bucket, name, key));
    return s3_upload(bucket->s3, path, key);
}

/* send_folder — uploads the files of the folder, config.json last. */
static enum status send_folder(struct bucket *bucket, const char *dir)
{
    char last[FILE_PATH_MAX];
    enum status st = ST_OK;
    DIR *listing = opendir(dir);
    if (listing == NULL)
        return file_read_fail(dir, "list");
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(listing)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, LAST_NAME) != 0)
            st = send_file(bucket, dir, entry->d_name);
    closedir(listing);
    TRY(st);
    TRY(file_join(last, sizeof last, dir, LAST_NAME));
    return file_exists(last) ? send_file(bucket, dir, LAST_NAME) : ST_OK;
}

/* export_locally — runs the command with a local path as TO, and uploads the result. */
static enum status export_locally(struct conf *conf, struct bucket *bucket, const char *folder,
                                  enum status (*run)(const struct conf *conf))
{
    char path[FILE_PATH_MAX];
    const int64_t begin_ms = clock_ms();
    const char *key = bucket->address.s3.key, *slash = strrchr(key, '/');
    TRY(file_join(path, sizeof path, folder, slash != NULL ? slash + 1 : key));
    TRY(file_make_dirs(folder));
    conf_set_found(conf, CONF_TO, path, "");
    TRY(run(conf));
    TRY(file_is_dir(path) ? send_folder(bucket, path) : s3_upload(bucket->s3, path, key));
    char span[32];
    LOG_INFO("uploaded to %s in %s", bucket->name,
             text_format_ms(span, sizeof span, (double)(clock_ms() - begin_ms)));
    return ST_OK;
}

enum status bucket_export(struct conf *conf, enum status (*run)(const struct conf *conf))
{
    struct bucket_address address;
    struct bucket *bucket;
    char root[FILE_PATH_MAX], folder[FILE_PATH_MAX], name[64];
    if (!s3_address_is(conf_text(conf, CONF_TO)))
        return run(conf);
    TRY(bucket_address_parse(conf_text(conf, CONF_TO), &address));
    text_format(name, sizeof name, "%ld-%lld", (long)getpid(), (long long)clock_wall_ms());
    TRY(file_join(root, sizeof root, conf_text(conf, CONF_CACHE_DIR), EXPORTS_DIR));
    TRY(file_join(folder, sizeof folder, root, name));
    const struct bucket_config config = {
        .address = &address, .allows_local = conf_i64(conf, CONF_ALLOW_LOCAL_URLS) != 0};
    TRY(bucket_open(&config, &bucket));
    enum status st = check_target(bucket);
    if (st == ST_OK) {
        struct status_saved why;
        st = export_locally(conf, bucket, folder, run);
        status_save(&why);
        if (file_remove_tree(folder) != ST_OK)
            LOG_WARN("%s", status_message());
        status_restore(&why);
    }
    bucket_close(bucket);
    return st;
}

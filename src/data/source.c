/* source.c — DATA into a list of files. Must not know tokens: of the content it looks only at the first
 * bytes. */
#include "data/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "data/shard.h"

#define SOURCE_DEPTH_MAX 64

static enum status no_input(const char *path, int error)
{
    const char *remedy = error == EACCES ? "give this user permission to read it" : "check DATA";
    return FAIL(ST_NO_INPUT, "cannot read %s: %s; %s", path, strerror(error), remedy);
}

static enum status list_add(struct source_list *list, const char *path, const struct stat *info)
{
    if (list->n == list->cap) {
        const int64_t cap = list->cap > 0 ? 2 * list->cap : 64;
        struct source *item = realloc(list->item, (size_t)cap * sizeof *item);
        if (item == NULL)
            return FAIL(ST_RETRY, "out of memory: a list of %lld files of DATA", (long long)cap);
        list->item = item;
        list->cap = cap;
    }
    struct source *source = list->item + list->n;
    *source = (struct source){.path = strdup(path),
                              .bytes = info->st_size,
                              .device = info->st_dev,
                              .inode = info->st_ino,
                              .modified_ns = info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec,
                              .changed_ns = info->st_ctim.tv_sec * 1000000000 + info->st_ctim.tv_nsec};
    if (source->path == NULL)
        return FAIL(ST_RETRY, "out of memory: the name of %s", path);
    list->n++;
    return ST_OK;
}

void source_free(struct source_list *list)
{
    for (int64_t i = 0; i < list->n; i++)
        free(list->item[i].path);
    free(list->item);
    *list = (struct source_list){0};
}

/* --- finding --- */

static enum status walk(struct source_list *list, const char *dir, int depth);

/* One name in a folder, or a match of a glob: links that lead nowhere or to a folder, and what is neither
 * file nor folder, are passed over. */
static enum status walk_entry(struct source_list *list, const char *path, int depth)
{
    struct stat link, info;
    if (lstat(path, &link) != 0 || stat(path, &info) != 0) {
        LOG_WARN("skipping %s: %s", path, strerror(errno));
        return ST_OK;
    }
    if (S_ISREG(info.st_mode))
        return list_add(list, path, &info);
    if (S_ISDIR(link.st_mode))
        return walk(list, path, depth + 1);
    return ST_OK;
}

static enum status walk(struct source_list *list, const char *dir, int depth)
{
    enum status st = ST_OK;
    if (depth > SOURCE_DEPTH_MAX)
        return FAIL(ST_NO_INPUT, "%.200s… lies over %d folders deep; give a folder nearer to the files as DATA",
                    dir, SOURCE_DEPTH_MAX);
    DIR *handle = opendir(dir);
    if (handle == NULL)
        return no_input(dir, errno);
    for (struct dirent *entry; st == ST_OK && (entry = readdir(handle)) != NULL;) {
        char path[FILE_PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        st = file_join(path, sizeof path, dir, entry->d_name);
        if (st == ST_OK)
            st = walk_entry(list, path, depth);
    }
    closedir(handle);
    return st;
}

static enum status add_named(struct source_list *list, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return no_input(path, errno);
    if (S_ISDIR(info.st_mode))
        return walk(list, path, 0);
    if (!S_ISREG(info.st_mode))
        return FAIL(ST_NO_INPUT, "%s is not a regular file (a device, pipe or socket); copy it to a file first",
                    path);
    return list_add(list, path, &info);
}

static enum status add_glob(struct source_list *list, const char *pattern)
{
    enum status st = ST_OK;
    glob_t found = {0};
    const int result = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    if (result == GLOB_NOMATCH)
        st = FAIL(ST_NO_INPUT, "no file matches DATA=%s; check the pattern (quote it, so that the shell "
                  "leaves it alone)", pattern);
    else if (result != 0)
        st = FAIL(ST_NO_INPUT, "cannot look for DATA=%s: %s; check that its folders can be read", pattern,
                  result == GLOB_NOSPACE ? "out of memory" : strerror(errno));
    for (size_t i = 0; st == ST_OK && i < found.gl_pathc; i++)
        st = walk_entry(list, found.gl_pathv[i], 0);
    globfree(&found);
    return st;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct source *)a)->path, ((const struct source *)b)->path);
}

static int by_file(const void *a, const void *b)
{
    const struct source *x = *(struct source *const *)a, *y = *(struct source *const *)b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    return (x > y) - (x < y);
}

/* Of the names of one file the first stays. The list is sorted by path and stays so. */
static enum status drop_twins(struct source_list *list)
{
    struct source **order = malloc((size_t)(list->n + 1) * sizeof *order);
    if (order == NULL)
        return FAIL(ST_RETRY, "out of memory: a list of %lld files of DATA", (long long)list->n);
    for (int64_t i = 0; i < list->n; i++)
        order[i] = list->item + i;
    qsort(order, (size_t)list->n, sizeof *order, by_file);
    for (int64_t i = 1; i < list->n; i++)
        if (order[i]->device == order[i - 1]->device && order[i]->inode == order[i - 1]->inode) {
            struct source *twin = order[i];
            free(twin->path);
            twin->path = NULL;
        }
    free(order);
    int64_t n = 0;
    for (int64_t i = 0; i < list->n; i++)
        if (list->item[i].path != NULL)
            list->item[n++] = list->item[i];
    list->n = n;
    return ST_OK;
}

/* --- what a file is --- */

static const struct {
    const char *magic;
    size_t bytes;
    const char *what;
} packed[] = {
    {"\x1f\x8b", 2, "compressed by gzip"},
    {"PK\x03\x04", 4, "a zip archive"},
    {"\x28\xb5\x2f\xfd", 4, "compressed by zstd"},
    {"\xfd" "7zXZ", 5, "compressed by xz"},
    {"BZh", 3, "compressed by bzip2"},
    {"PAR1", 4, "a Parquet file"},
    {"ARROW1", 6, "an Arrow file"},
    {"%PDF-", 5, "a PDF document"},
    {"MMIDIDX", 7, "a Megatron index"},
    {"\x93NUMPY", 6, "a NumPy array"},
};

static bool ends(const char *path, const char *suffix)
{
    const size_t n = strlen(path), k = strlen(suffix);
    return n >= k && strcasecmp(path + n - k, suffix) == 0;
}

static enum status kind_of(struct source *source, const uint8_t *head, size_t n)
{
    static const char *const unread[] = {".json", ".jsonl", ".ndjson", ".idx"};
    uint32_t word = 0;
    memcpy(&word, head, n < 4 ? n : 4);
    if (word == SHARD_MAGIC || ends(source->path, ".bin")) {
        source->kind = SOURCE_KIND_TOKENS;
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof unread / sizeof unread[0]; i++)
        if (ends(source->path, unread[i]))
            return FAIL(ST_BAD_SETTING, "%s: %s files are not read as DATA so far; give plain text or llm.c "
                        "token files (.bin)",
                        source->path, unread[i]);
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        if (n >= packed[i].bytes && memcmp(head, packed[i].magic, packed[i].bytes) == 0)
            return FAIL(ST_BAD_DATA, "%s is %s, not plain text; unpack or convert it first",
                        source->path, packed[i].what);
    source->kind = SOURCE_KIND_TEXT;
    return ST_OK;
}

static enum status look_inside(struct source *source)
{
    uint8_t head[16];
    const int fd = open(source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof head);
    const int error = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return no_input(source->path, error);
    return kind_of(source, head, (size_t)n);
}

static enum status drop_empty(struct source_list *list, const char *data)
{
    int64_t n = 0, dropped = 0;
    for (int64_t i = 0; i < list->n; i++) {
        if (list->item[i].bytes > 0) {
            list->item[n++] = list->item[i];
            continue;
        }
        if (dropped++ == 0 && list->n > 1)
            LOG_WARN("skipping %s: it is empty", list->item[i].path);
        free(list->item[i].path);
    }
    if (dropped > 1 && n > 0)
        LOG_WARN("skipped %lld empty files of %s", (long long)dropped, data);
    list->n = n;
    if (n == 0 && dropped > 0)
        return FAIL(ST_BAD_DATA, "%s is empty (%lld file%s of 0 bytes); check DATA",
                    data, (long long)dropped, dropped > 1 ? "s" : "");
    if (n == 0)
        return FAIL(ST_NO_INPUT, "no files found in %s (hidden ones are not read); check DATA", data);
    return ST_OK;
}

static enum status find(const char *data, struct source_list *list)
{
    struct stat info;
    const bool is_there = stat(data, &info) == 0;
    if (!is_there && strstr(data, "://") != NULL)
        return FAIL(ST_BAD_SETTING, "DATA=%s is an address, and data is not fetched so far; download it and "
                    "give the file", data);
    if (!is_there && errno == ENOENT && strpbrk(data, "*?[") != NULL)
        TRY(add_glob(list, data));
    else
        TRY(add_named(list, data));
    if (list->n > 1) {
        qsort(list->item, (size_t)list->n, sizeof *list->item, by_path);
        TRY(drop_twins(list));
    }
    TRY(drop_empty(list, data));
    for (int64_t i = 0; i < list->n; i++)
        TRY(look_inside(list->item + i));
    return ST_OK;
}

enum status source_find(const char *data, struct source_list *out)
{
    struct source_list list = {0};
    const enum status st = find(data, &list);
    if (st != ST_OK) {
        source_free(&list);
        return status_trace_at(__FILE__, __LINE__, st);
    }
    *out = list;
    return ST_OK;
}

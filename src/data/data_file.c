/* data_file — see data_file.h. Of the content it reads only samples, to determine the kind. */
#include "data/data_file.h"

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
#include "base/memory.h"
#include "base/text.h"
#include "data/megatron.h"
#include "data/shard.h"
#include "data/sniff.h"
#include "data/stream.h"
#include "remote/remote.h"

#define DATA_FILE_DEPTH_MAX 64

static enum status no_input(const char *path, int error)
{
    errno = error;
    return file_read_fail(path, "read");
}

static void list_add(struct data_file_list *list, const char *path, const struct stat *info)
{
    list->item = memory_grow(list->item, (size_t)list->n, &list->cap, sizeof *list->item);
    list->item[list->n++] =
        (struct data_file){.path = memory_text(path),
                           .bytes = info->st_size,
                           .device = info->st_dev,
                           .inode = info->st_ino,
                           .modified_ns = info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec,
                           .changed_ns = info->st_ctim.tv_sec * 1000000000 + info->st_ctim.tv_nsec};
}

static void data_file_drop(struct data_file *file)
{
    if (file->pair != NULL)
        free(file->pair->path);
    free(file->pair);
    free(file->path);
    *file = (struct data_file){0};
}

void data_file_free(struct data_file_list *list)
{
    for (int64_t i = 0; i < list->n; i++)
        data_file_drop(list->item + i);
    free(list->item);
    *list = (struct data_file_list){0};
}

int64_t data_file_bytes(const struct data_file *file)
{
    return file->bytes + (file->pair != NULL ? file->pair->bytes : 0);
}

/* list_close_up — removes entries without a path. */
static void list_close_up(struct data_file_list *list)
{
    int64_t n = 0;
    for (int64_t i = 0; i < list->n; i++)
        if (list->item[i].path != NULL)
            list->item[n++] = list->item[i];
    list->n = n;
}

/* ---- finding ---- */

static enum status walk_dir(struct data_file_list *list, const char *dir, int depth);

/* walk_entry — adds one name in a folder, or one match of a glob. Links to nothing or to a folder
 * are skipped, and everything that is neither file nor folder. */
static enum status walk_entry(struct data_file_list *list, const char *path, int depth)
{
    struct stat link, info;
    if (lstat(path, &link) != 0 || stat(path, &info) != 0) {
        if (errno != ENOENT && errno != ELOOP && errno != ENOTDIR)
            /* it exists: an item of DATA must not be missing silently */
            return no_input(path, errno);
        LOG_WARN("skipping %s: %s", path, strerror(errno));
        return ST_OK;
    }
    if (S_ISREG(info.st_mode))
        list_add(list, path, &info);
    else if (S_ISDIR(link.st_mode))
        return walk_dir(list, path, depth + 1);
    return ST_OK;
}

/* next_entry — reads the next entry; NULL at the end, or with *st set if reading the folder
 * fails. */
static struct dirent *next_entry(DIR *handle, const char *dir, enum status *st)
{
    errno = 0;
    struct dirent *entry = readdir(handle);
    if (entry == NULL && errno != 0)
        *st = no_input(dir, errno);
    return entry;
}

static enum status walk_dir(struct data_file_list *list, const char *dir, int depth)
{
    enum status st = ST_OK;
    if (depth > DATA_FILE_DEPTH_MAX)
        return FAIL(ST_NO_INPUT,
                    "%.200s… lies over %d folders deep; set DATA to a folder nearer to the files",
                    dir, DATA_FILE_DEPTH_MAX);
    DIR *handle = opendir(dir);
    if (handle == NULL)
        return no_input(dir, errno);
    for (struct dirent *entry; st == ST_OK && (entry = next_entry(handle, dir, &st)) != NULL;) {
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

static enum status add_named(struct data_file_list *list, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return no_input(path, errno);
    if (S_ISDIR(info.st_mode))
        return walk_dir(list, path, 0);
    if (!S_ISREG(info.st_mode))
        return FAIL(ST_NO_INPUT,
                    "%s is not a regular file (a device, pipe or socket); copy it to a file first",
                    path);
    list_add(list, path, &info);
    return ST_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct data_file *)a)->path, ((const struct data_file *)b)->path);
}

static int by_file(const void *a, const void *b)
{
    const struct data_file *x = *(struct data_file *const *)a, *y = *(struct data_file *const *)b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    return (x > y) - (x < y);
}

/* drop_twins — keeps the first name of each file. The list is sorted by path and stays so. */
static void drop_twins(struct data_file_list *list)
{
    struct data_file **order = memory_new((size_t)list->n, sizeof *order);
    for (int64_t i = 0; i < list->n; i++)
        order[i] = list->item + i;
    qsort(order, (size_t)list->n, sizeof *order, by_file);
    for (int64_t i = 1; i < list->n; i++)
        if (order[i]->device == order[i - 1]->device && order[i]->inode == order[i - 1]->inode) {
            data_file_drop(order[i]);
            order[i]->device = order[i - 1]->device; /* for further names of the same file */
            order[i]->inode = order[i - 1]->inode;
        }
    free(order);
    list_close_up(list);
}

/* ---- kinds ---- */

/* One byte in this many may be no text; with more such bytes a file is refused, or logged. */
#define DATA_FILE_BAD_REFUSED 10
#define DATA_FILE_BAD_WARNED 1000
#define DATA_FILE_SAMPLES 16 /* samples of each text, evenly spread */
#define DATA_FILE_SAMPLE_BYTES (1 << 14)
#define DATA_FILE_SAMPLED_MAX 256 /* texts that are sampled; of further ones only the beginnings */
#define DATA_FILE_FRAMES_MAX 64   /* skippable frames before the first zstd frame */

static bool has_suffix(const char *path, const char *suffix)
{
    const size_t n = strlen(path), k = strlen(suffix);
    return n >= k && strcasecmp(path + n - k, suffix) == 0;
}

/* other_name — turns "x.idx" or "x.bin" into the other of the two. */
static enum status other_name(const char *path, const char *suffix, char out[FILE_PATH_MAX])
{
    if (!text_format(out, FILE_PATH_MAX, "%.*s%s", (int)strlen(path) - 4, path, suffix))
        return FAIL(ST_BAD_SETTING, "the path %.80s… is too long", path);
    return ST_OK;
}

static enum status make_pair(struct data_file *idx, const char *bin_path)
{
    struct data_file_list one = {0};
    struct stat info;
    if (stat(bin_path, &info) != 0)
        return FAIL(ST_NO_INPUT,
                    "cannot read %s: %s; the Megatron index %s needs this file next to it",
                    bin_path, strerror(errno), idx->path);
    if (!S_ISREG(info.st_mode) || info.st_size == 0)
        return FAIL(ST_BAD_DATA, "%s is %s; the Megatron index %s needs it", bin_path,
                    S_ISREG(info.st_mode) ? "empty" : "not a regular file", idx->path);
    list_add(&one, bin_path, &info);
    idx->pair = one.item;
    idx->kind = idx->pair->kind = DATA_FILE_KIND_MEGATRON;
    return ST_OK;
}

/* bin_or_pair — classifies a .bin that is not an llm.c file: with an index next to it, it is
 * Megatron's, and the index is listed for both. */
static enum status bin_or_pair(struct data_file *file)
{
    char idx_path[FILE_PATH_MAX];
    struct data_file_list one = {0};
    struct stat info;
    file->kind = DATA_FILE_KIND_TOKENS;
    if (!has_suffix(file->path, ".bin"))
        return ST_OK;
    TRY(other_name(file->path, ".idx", idx_path));
    if (stat(idx_path, &info) != 0 || !S_ISREG(info.st_mode))
        return ST_OK;
    list_add(&one, idx_path, &info);
    const enum status st = make_pair(one.item, file->path);
    if (st == ST_OK) {
        data_file_drop(file);
        *file = one.item[0];
        free(one.item);
    } else
        data_file_free(&one);
    return st;
}

/* is_packed — returns true if it begins with a zstd frame, perhaps after frames that zstd skips
 * (pzstd writes one). lz4 files have such frames too. */
static bool is_packed(int fd, const uint8_t *head, size_t n)
{
    uint8_t next[SNIFF_FRAME_BYTES];
    int64_t at = 0, bytes;
    ssize_t got = (ssize_t)(n < sizeof next ? n : sizeof next);
    memcpy(next, head, (size_t)got);
    for (int i = 0; i < DATA_FILE_FRAMES_MAX && got > 0; i++) {
        if (sniff_zstd(next, (size_t)got))
            return true;
        if (!sniff_skippable(next, (size_t)got, &bytes))
            return false;
        at += bytes;
        got = pread(fd, next, sizeof next, (off_t)at);
    }
    return false;
}

static enum status kind_of(struct data_file *file, int fd, const uint8_t *head, size_t n)
{
    char bin_path[FILE_PATH_MAX];
    uint32_t word = 0;
    memcpy(&word, head, n < 4 ? n : 4);
    file->kind = DATA_FILE_KIND_TEXT;
    if (file_is_lfs_pointer(head, n))
        return FILE_LFS_FAIL(file->path);
    if (word == SHARD_MAGIC) {
        file->kind = DATA_FILE_KIND_TOKENS;
        return ST_OK;
    }
    if (has_suffix(file->path, ".bin"))
        return bin_or_pair(file);
    if (has_suffix(file->path, ".idx")) {
        TRY(other_name(file->path, ".bin", bin_path));
        return make_pair(file, bin_path);
    }
    if (n >= sizeof MEGATRON_MAGIC - 1 &&
        memcmp(head, MEGATRON_MAGIC, sizeof MEGATRON_MAGIC - 1) == 0)
        return FAIL(ST_BAD_DATA,
                    "%s is a Megatron index; its name must end in .idx, with the .bin next to it",
                    file->path);
    if (is_packed(fd, head, n)) {
        /* Finds the kind by the name without ".zst". */
        char name[FILE_PATH_MAX];
        text_copy(name, sizeof name, file->path);
        if (has_suffix(name, ".zst"))
            name[strlen(name) - 4] = '\0';
        else if (has_suffix(name, ".zstd"))
            name[strlen(name) - 5] = '\0';
        file->is_packed = true;
        file->kind = has_suffix(name, ".jsonl") || has_suffix(name, ".ndjson")
                         ? DATA_FILE_KIND_JSONL
                         : DATA_FILE_KIND_TEXT;
        if (has_suffix(name, ".json") || has_suffix(name, ".bin") || has_suffix(name, ".idx") ||
            has_suffix(name, ".tar"))
            return FAIL(
                ST_BAD_DATA,
                "%s: only text and JSON lines are read from zstd files; unpack it first (unzstd)",
                file->path);
        return ST_OK;
    }
    const struct sniff_kind *other = sniff_magic(head, n);
    if (other != NULL)
        return FAIL(ST_BAD_DATA, "%s is %s, not plain text; %s", file->path, other->what,
                    other->remedy);
    if (has_suffix(file->path, ".zst") || has_suffix(file->path, ".zstd"))
        return FAIL(ST_BAD_DATA,
                    "%s is not zstd data, although its name ends in .zst or .zstd; copy or make it "
                    "again, or rename it",
                    file->path);
    if (has_suffix(file->path, ".jsonl") || has_suffix(file->path, ".ndjson"))
        file->kind = DATA_FILE_KIND_JSONL;
    if (has_suffix(file->path, ".json"))
        file->kind = DATA_FILE_KIND_SQUAD;
    return ST_OK;
}

/* warn_table — warns of a table, which is learnt like any text, with header and separators. Warns
 * of the first one only, and counts the others in *tables_n. */
static void warn_table(const struct data_file *file, int64_t *tables_n)
{
    static const char *const names[] = {".csv", ".tsv", ".tab", ".psv"};
    char name[FILE_PATH_MAX];
    text_copy(name, sizeof name, file->path);
    if (file->is_packed && strrchr(name, '.') != NULL)
        *strrchr(name, '.') = '\0';
    for (size_t i = 0; file->kind == DATA_FILE_KIND_TEXT && i < sizeof names / sizeof *names; i++)
        if (has_suffix(name, names[i]) && (*tables_n)++ == 0)
            LOG_WARN("%s is a table by its name (%s) and is learnt as it is, with its header and "
                     "separators; if that is not intended: %s",
                     file->path, names[i], SNIFF_EXPORT);
}

/* count_plain — counts the beginning of a plain file, and samples evenly spread. */
static enum status count_plain(const struct data_file *file, int fd, bool is_thorough,
                               struct sniff_count *count)
{
    static _Thread_local uint8_t sample[DATA_FILE_SAMPLE_BYTES];
    const int64_t all = (file->bytes + DATA_FILE_SAMPLE_BYTES - 1) / DATA_FILE_SAMPLE_BYTES;
    const int64_t samples = !is_thorough ? 1 : all < DATA_FILE_SAMPLES ? all : DATA_FILE_SAMPLES;
    for (int64_t i = 0; i < samples; i++) {
        const int64_t at = samples > 1 ? (all - 1) * i / (samples - 1) * DATA_FILE_SAMPLE_BYTES : 0;
        const ssize_t n =
            pread(fd, sample, is_thorough ? sizeof sample : SNIFF_HEAD_BYTES, (off_t)at);
        if (n < 0)
            return no_input(file->path, errno);
        sniff_add(count, sample, (size_t)n);
    }
    return ST_OK;
}

/* count_packed — counts the beginning of the uncompressed text. */
static enum status count_packed(const struct data_file *file, struct sniff_count *count)
{
    static _Thread_local uint8_t sample[DATA_FILE_SAMPLE_BYTES];
    struct stream *stream;
    size_t n = 0;
    TRY(stream_open(file, NULL, NULL, &stream));
    const enum status st = stream_read(stream, sample, sizeof sample, &n);
    stream_close(stream);
    if (st == ST_OK)
        sniff_add(count, sample, n);
    return st;
}

/* check_text — checks that text is UTF-8. A few other bytes are trained on as they are; many are
 * refused. */
static enum status check_text(const struct data_file *file, int fd, bool is_thorough)
{
    struct sniff_count count = {0};
    if (file->kind != DATA_FILE_KIND_TEXT)
        return ST_OK;
    TRY(file->is_packed ? count_packed(file, &count) : count_plain(file, fd, is_thorough, &count));
    const int64_t bad = sniff_bad(&count);
    if (bad * DATA_FILE_BAD_WARNED <= count.bytes)
        return ST_OK;
    const struct sniff_kind guess = sniff_guess(&count);
    const double percent = 100.0 * (double)bad / (double)count.bytes;
    if (bad * DATA_FILE_BAD_REFUSED > count.bytes)
        return FAIL(ST_BAD_DATA,
                    "%s is not text in UTF-8: of %lld bytes that were checked, %.0f %% are invalid "
                    "or control characters; it looks %s; %s",
                    file->path, (long long)count.bytes, percent, guess.what, guess.remedy);
    LOG_WARN("%s: of %lld bytes that were checked, %.1f %% are invalid UTF-8 or control "
             "characters; it looks %s and is learnt byte by byte; if that is not intended: %s",
             file->path, (long long)count.bytes, percent, guess.what, guess.remedy);
    return ST_OK;
}

/* Looks into all files. Both files of a Megatron pair lead to the same index: it is listed once. */
static enum status look_inside_all(struct data_file_list *list)
{
    bool any = false;
    int64_t tables_n = 0;
    for (int64_t i = 0; i < list->n; i++) {
        struct data_file *file = list->item + i;
        bool is_thorough = list->n <= DATA_FILE_SAMPLED_MAX;
        uint8_t head[SNIFF_HEAD_BYTES];
        const int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        const ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof head);
        const int error = errno;
        enum status st = n < 0 ? no_input(file->path, error) : kind_of(file, fd, head, (size_t)n);
        if (st == ST_OK)
            st = check_text(file, fd, is_thorough);
        if (fd >= 0)
            close(fd);
        TRY(st);
        warn_table(list->item + i, &tables_n);
        any |= list->item[i].pair != NULL;
    }
    if (tables_n > 1)
        LOG_WARN("DATA has %lld more tables", (long long)(tables_n - 1));
    if (any)
        qsort(list->item, (size_t)list->n, sizeof *list->item, by_path);
    for (int64_t i = 0; any && i + 1 < list->n; i++)
        if (strcmp(list->item[i].path, list->item[i + 1].path) == 0)
            data_file_drop(list->item + i);
    list_close_up(list);
    return ST_OK;
}

/* Finds a file or the files of a folder or a glob, which are downloaded first if the name is
 * remote. */
static enum status find_files(const char *data, const struct data_file_config *config,
                              struct data_file_list *list)
{
    struct stat info;
    bool is_there = stat(data, &info) == 0;
    char local[FILE_PATH_MAX], revision[REMOTE_REVISION_MAX];
    if (!is_there && strstr(data, "://") != NULL) {
        const struct remote_config remote = {.setting = "DATA",
                                             .cache_dir = config->cache_dir,
                                             .allows_local = config->allows_local_urls,
                                             .progress = config->progress,
                                             .progress_arg = config->progress_arg};
        TRY(remote_fetch(&remote, REMOTE_KIND_DATA, data, local, revision));
        data = local;
        is_there = stat(data, &info) == 0;
    }
    if (!is_there && errno == ENOENT && strpbrk(data, "*?[") != NULL) {
        enum status st = ST_OK;
        glob_t found = {0};
        const int result = glob(data, GLOB_NOSORT | GLOB_ERR, NULL, &found);
        if (result == GLOB_NOMATCH)
            st = FAIL(ST_NO_INPUT,
                      "no file matches DATA=%s; check the pattern (quote it, so that the shell "
                      "does not expand it)",
                      data);
        else if (result != 0)
            st = FAIL(result == GLOB_NOSPACE ? ST_RETRY : ST_NO_INPUT,
                      "cannot look for DATA=%s: %s; check that its folders can be read", data,
                      result == GLOB_NOSPACE ? "out of memory" : strerror(errno));
        for (size_t i = 0; st == ST_OK && i < found.gl_pathc; i++)
            st = walk_entry(list, found.gl_pathv[i], 0);
        globfree(&found);
        TRY(st);
    } else
        TRY(add_named(list, data));
    if (list->n > 1) {
        qsort(list->item, (size_t)list->n, sizeof *list->item, by_path);
        drop_twins(list);
    }
    /* Leaves out empty files, also if DATA names them. */
    int64_t dropped = 0;
    if (list->n == 0)
        return FAIL(ST_NO_INPUT, "no files found in %s (hidden ones are not read); check the path",
                    data);
    for (int64_t i = 0; i < list->n; i++) {
        if (list->item[i].bytes > 0)
            continue;
        if (dropped++ == 0)
            LOG_WARN("skipping %s: it is empty", list->item[i].path);
        data_file_drop(list->item + i);
    }
    list_close_up(list);
    if (dropped > 1)
        LOG_WARN("skipped %lld empty files of %s", (long long)dropped, data);
    return look_inside_all(list);
}

/* Finds the files of "a,b": a, then b; but an existing file with commas in its name is that
 * file. */
static enum status find_all(const char *data, const struct data_file_config *config,
                            struct data_file_list *list)
{
    struct stat info;
    char item[FILE_PATH_MAX];
    const bool is_one = strchr(data, ',') == NULL || stat(data, &info) == 0;
    for (const char *at = data, *stop;; at = stop + 1) {
        struct data_file_list one = {0};
        stop = is_one ? at + strlen(at) : strchrnul(at, ',');
        if (stop == at || stop - at >= FILE_PATH_MAX)
            return FAIL(ST_BAD_SETTING, "%.200s: a name between two commas is %s; check the path",
                        data, stop == at ? "empty" : "too long");
        text_format(item, sizeof item, "%.*s", (int)(stop - at), at);
        enum status st = find_files(item, config, &one);
        if (st == ST_OK) {
            list->cap = (size_t)(list->n + one.n);
            list->item = memory_resize(list->item, list->cap, sizeof *list->item);
            memcpy(list->item + list->n, one.item, (size_t)one.n * sizeof *list->item);
            list->n += one.n;
            free(one.item);
            one = (struct data_file_list){0};
        }
        data_file_free(&one);
        TRY(st);
        if (*stop == '\0')
            break;
    }
    return list->n > 0 ? ST_OK
                       : FAIL(ST_BAD_DATA,
                              "%s is empty: it holds files of 0 bytes only; check the path", data);
}

static bool is_here(const char *data)
{
    struct stat info;
    glob_t found = {0};
    if (stat(data, &info) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return true;
    if (strstr(data, "://") != NULL)
        return !remote_is_name(data); /* data_file_find refuses other schemes */
    const int result =
        strpbrk(data, "*?[") != NULL ? glob(data, GLOB_NOSORT, NULL, &found) : GLOB_NOMATCH;
    globfree(&found);
    return result != GLOB_NOMATCH;
}

bool data_file_is_here(const char *data)
{
    struct stat info;
    char item[FILE_PATH_MAX];
    if (strchr(data, ',') == NULL || stat(data, &info) == 0)
        return is_here(data);
    for (const char *at = data, *stop;; at = stop + 1) {
        stop = strchrnul(at, ',');
        /* data_file_find refuses an invalid name */
        if (stop > at && text_format(item, sizeof item, "%.*s", (int)(stop - at), at) &&
            !is_here(item))
            return false;
        if (*stop == '\0')
            return true;
    }
}

enum status data_file_find(const struct data_file_config *config, struct data_file_list *out)
{
    struct data_file_list list = {0};
    const enum status st = find_all(config->data, config, &list);
    if (st != ST_OK) {
        data_file_free(&list);
        return status_trace_at(__FILE__, __LINE__, st);
    }
    *out = list;
    return ST_OK;
}

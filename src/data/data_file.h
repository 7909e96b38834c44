/* data_file — the files of DATA, their order, and the kind of each.
 *
 * DATA is one of these, or several separated by commas:
 *   - a file;
 *   - a folder: regular files in it and below. Hidden names are skipped; links to files are
 *     followed, links to folders are not;
 *   - a glob, whose matches count as if they were in one folder;
 *   - a remote name (remote/remote.h): an http(s) address, or hf:// or s3:// with a file, a folder
 *     or a glob.
 *
 * Within each the order is the order of the bytes of the paths. A file that one folder or glob
 * reaches by several names counts once. It must not know tokens. */
#ifndef CONVOY_DATA_DATA_FILE_H
#define CONVOY_DATA_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct data_file_config {
    const char *data;
    const char *cache_dir;  /* where downloads are kept */
    bool allows_local_urls; /* also addresses of this machine and of private networks */
    /* called while downloading; NULL allowed; returns false to stop: then ST_RETRY */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

enum data_file_kind {
    DATA_FILE_KIND_TEXT,
    DATA_FILE_KIND_TOKENS,
    DATA_FILE_KIND_JSONL,
    DATA_FILE_KIND_MEGATRON,
    DATA_FILE_KIND_SQUAD
};

struct data_file {
    char *path;
    enum data_file_kind kind; /* by its magic number, else by its name */
    bool is_packed;           /* compressed by zstd: text or JSON lines */
    int64_t bytes;
    uint64_t device, inode;
    int64_t modified_ns, changed_ns; /* wall time */
    struct data_file *pair;          /* Megatron: path is the .idx, this the .bin; else NULL */
};

struct data_file_list {
    struct data_file *item;
    int64_t n;
    size_t cap;
};

/* data_file_find — finds at least one file, none of them empty; downloads addresses first. Fails
 * ST_NO_INPUT: missing, not readable, not a regular file, nothing found; ST_BAD_DATA: empty, or of
 * a format that is not read. */
enum status data_file_find(const struct data_file_config *config, struct data_file_list *out);
/* data_file_is_here — returns true if all files of `data` are on this machine. Files that cannot be
 * read count as present; remote names do not, also if their files are in the cache: node 0 fetches
 * them for all nodes. */
bool data_file_is_here(const char *data);
void data_file_free(struct data_file_list *list); /* accepts a zeroed list; may be called twice */
int64_t data_file_bytes(const struct data_file *file); /* with its pair */

#endif

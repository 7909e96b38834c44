/* data_file — which files DATA names, in which order, and what each of them is.
 *
 * DATA is a file, a folder (regular files in it and below; hidden names are skipped; links to files
 * are followed, links to folders are not), a glob, whose matches count as if they were in one
 * folder, an http(s) address (fetch.h), or several of these with commas between. Within one of them
 * the order is that of the bytes of the paths. A file that is reached by several names of one
 * folder or glob counts once. Must not know tokens. */
#ifndef CONVOY_DATA_DATA_FILE_H
#define CONVOY_DATA_DATA_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct data_file_config {
    const char *data;
    const char *cache_dir;  /* where downloads are kept */
    bool allows_local_urls; /* addresses of this machine and of private networks too */
    /* while downloading; NULL allowed; false: stop, fails ST_RETRY */
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
    enum data_file_kind kind; /* by content first: the magic word; then by name */
    bool is_packed;           /* by zstd: a text or JSON lines */
    int64_t bytes;
    uint64_t device, inode;
    int64_t modified_ns, changed_ns; /* wall time */
    struct data_file *pair;          /* Megatron: path is the .idx, this is the .bin; else NULL */
};

struct data_file_list {
    struct data_file *item;
    int64_t n, cap;
};

/* data_file_find — at least one file, none of them empty. Fails ST_NO_INPUT: missing, not readable,
 * not a regular file, nothing found; ST_BAD_DATA: empty, or packed in a way that is not read. */
enum status data_file_find(const struct data_file_config *config, struct data_file_list *out);
/* data_file_is_here — false when something that data names is not on this machine; addresses count
 * as here, and so does what is there but cannot be read. */
bool data_file_is_here(const char *data);
void data_file_free(struct data_file_list *list);      /* accepts a zeroed one, twice */
int64_t data_file_bytes(const struct data_file *file); /* of all that will be read for it */

#endif

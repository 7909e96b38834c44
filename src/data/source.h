/* source — which files DATA names, in which order, and what each of them is.
 *
 * DATA is a file, a folder (regular files in it and below; hidden names are skipped; links to files
 * are followed, links to folders are not), a glob, whose matches count as if they were in one
 * folder, an http(s) address (fetch.h), or several of these with commas between. Within one of them
 * the order is that of the bytes of the paths. A file that is reached by several names of one
 * folder or glob counts once. Must not know tokens. */
#ifndef CONVOY_DATA_SOURCE_H
#define CONVOY_DATA_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct source_config {
    const char *data;
    const char *cache_dir;  /* where downloads are kept */
    bool allows_local_urls; /* addresses of this machine and of private networks too */
    /* while downloading; NULL allowed; false: stop, fails ST_RETRY */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

enum source_kind {
    SOURCE_KIND_TEXT,
    SOURCE_KIND_TOKENS,
    SOURCE_KIND_JSONL,
    SOURCE_KIND_MEGATRON,
    SOURCE_KIND_SQUAD
};

struct source {
    char *path;
    enum source_kind kind; /* by content first: the magic word; then by name */
    bool is_packed;        /* by zstd: a text or JSON lines */
    int64_t bytes;
    uint64_t device, inode;
    int64_t modified_ns, changed_ns; /* wall time */
    struct source *pair;             /* Megatron: path is the .idx, this is the .bin; else NULL */
};

struct source_list {
    struct source *item;
    int64_t n, cap;
};

/* source_find — at least one file, none of them empty. Fails ST_NO_INPUT: missing, not readable,
 * not a regular file, nothing found; ST_BAD_DATA: empty, or packed in a way that is not read. */
enum status source_find(const struct source_config *config, struct source_list *out);
/* source_is_here — false when something that data names is not on this machine; addresses count as
 * here, and so does what is there but cannot be read. */
bool source_is_here(const char *data);
void source_free(struct source_list *list);        /* accepts a zeroed one, twice */
int64_t source_bytes(const struct source *source); /* of all that will be read for it */

#endif

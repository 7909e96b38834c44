/* source — which files DATA names, in which order, and what each of them is.
 *
 * DATA is a file, a folder (regular files in it and below; hidden names are skipped; links to files are
 * followed, links to folders are not) or a glob, whose matches count as if they were in one folder. The order
 * is that of the bytes of the paths. A file that is reached by several names counts once. Must not know
 * tokens. */
#ifndef CONVOY_DATA_SOURCE_H
#define CONVOY_DATA_SOURCE_H

#include <stdint.h>

#include "base/status.h"

enum source_kind { SOURCE_KIND_TEXT, SOURCE_KIND_TOKENS };

struct source {
    char *path;
    enum source_kind kind; /* by content first: the magic word; then by name */
    int64_t bytes;
    uint64_t device, inode;
    int64_t modified_ns, changed_ns; /* wall time */
};

struct source_list {
    struct source *item;
    int64_t n, cap;
};

/* source_find — at least one file, none of them empty. Fails ST_NO_INPUT: missing, not readable, not a
 * regular file, nothing found; ST_BAD_DATA: empty or compressed; ST_BAD_SETTING: a kind of data that is not
 * read (JSON, Megatron's index, an address). */
enum status source_find(const char *data, struct source_list *out);
void source_free(struct source_list *list); /* accepts a zeroed one, twice */

#endif

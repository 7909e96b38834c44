/* file_list — the files of a setting of node 0, for nodes that have none: in items, each file with
 * its size and checksum. As a struct and as JSON; the reader is a pure function of (bytes, size).
 *
 * Files of data are numbered, because they are read in order. Files that are found by their names,
 * such as config.json, keep these.
 *
 * A list has a name, a hash of its whole content. Lists of the same content have the same name on
 * every node, so files that are kept under a name need not be fetched again. Must not know the
 * contents of the files. */
#ifndef CONVOY_FILE_SHARE_FILE_LIST_H
#define CONVOY_FILE_SHARE_FILE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

#define FILE_LIST_NODES_MAX 4096 /* as CLUSTER_NODES_MAX */
#define FILE_LIST_ITEMS_MAX 64
#define FILE_LIST_FILES_MAX 16384
#define FILE_LIST_JSON_MAX ((size_t)1 << 20)
#define FILE_LIST_FILE_BYTES_MAX ((int64_t)1 << 48)
#define FILE_LIST_NAME_MAX 33                   /* 32 hexadecimal digits and the closing 0 */
#define FILE_LIST_SUFFIX_MAX 8                  /* ".bin" */
#define FILE_LIST_FILE_NAME_MAX 64              /* "tokenizer.json" */
#define FILE_LIST_NAMED_MAX 64                  /* most files that keep their names */
#define FILE_LIST_CHUNK_BYTES ((size_t)1 << 20) /* most bytes of a file that one request returns */

enum file_list_state {
    FILE_LIST_STATE_WAIT,  /* node 0 is still reading its own files */
    FILE_LIST_STATE_NONE,  /* node 0 uses none */
    FILE_LIST_STATE_UNFIT, /* node 0 has files, but cannot share them; the reason is in why */
    FILE_LIST_STATE_READY,
    FILE_LIST_STATES_N
};

struct file_list_entry {
    int item;
    int64_t bytes, skip;                /* bytes; the checksum leaves out the first `skip` */
    uint64_t sum;                       /* XXH3-64, or file_sum_ends if sums_ends */
    char suffix[FILE_LIST_SUFFIX_MAX];  /* suffix of a file without a name */
    char name[FILE_LIST_FILE_NAME_MAX]; /* "": the file is numbered */
    char *path;                         /* path on node 0; NULL elsewhere */
    bool is_pair;                       /* has the name of the file before, with another suffix */
    bool sums_ends;                     /* node 0 has not read the whole file */
};

struct file_list {
    enum file_list_state state;
    char why[1024];
    int items_n;
    double weights[FILE_LIST_ITEMS_MAX]; /* 0: none */
    int files_n;
    struct file_list_entry *files; /* files in order, item after item; every item has one */
};

/* file_list_add — copies the file. ST_RETRY: no memory; ST_BAD_DATA: not valid in a list. */
enum status file_list_add(struct file_list *list, const struct file_list_entry *file);
void file_list_free(struct file_list *list); /* accepts a zeroed struct, twice */
/* file_list_bytes — returns the bytes of all files together. */
int64_t file_list_bytes(const struct file_list *list);
/* file_list_name — writes the name of the list: 32 hexadecimal digits of a hash over weights and
 * files, without paths. */
void file_list_name(const struct file_list *list, char out[FILE_LIST_NAME_MAX]);

/* file_list_write — appends the JSON. is_with_paths: only between processes of one node. */
void file_list_write(struct text *out, const struct file_list *list, bool is_with_paths);
/* file_list_read — accepts bytes of any content. ST_BAD_DATA: with a reason, and nothing to
 * free. */
enum status file_list_read(const char *bytes, size_t n, struct file_list *out);

/* The setting with the files. */
enum file_list_kind {
    FILE_LIST_KIND_DATA,
    FILE_LIST_KIND_VAL_DATA,
    FILE_LIST_KIND_MODEL,
    FILE_LIST_KIND_ADAPTER,
    FILE_LIST_KIND_TOKENIZER,
    FILE_LIST_KINDS_N
};
/* file_list_setting — returns the name of the setting, such as "MODEL". */
const char *file_list_setting(enum file_list_kind kind);

/* One request of a node: the list of a kind, or a chunk of file `file_i` of the list with this
 * name, from byte `first` on. */
struct file_list_request {
    enum file_list_kind kind;
    int node_id;
    bool is_for_list; /* the fields below are not used */
    char name[FILE_LIST_NAME_MAX];
    int file_i;
    int64_t first;
};
/* file_list_write_request — appends the request as JSON. */
void file_list_write_request(struct text *out, const struct file_list_request *request);
/* file_list_read_request — reads a request; accepts bytes of any content. ST_BAD_DATA: with a
 * reason. */
enum status file_list_read_request(const char *bytes, size_t n, struct file_list_request *out);

#endif

/* bill — what node 0 has to give to nodes without data of their own: a list of files, in parts,
 * each with its size and checksum. As a struct, and as JSON; the reader is a pure function of
 * (bytes, size). A bill has a name, the same wherever the content is: what is kept under it need
 * not be carried again. Must not know what is in the files. */
#ifndef CONVOY_DATASET_SHARE_FILE_LIST_H
#define CONVOY_DATASET_SHARE_FILE_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

#define FILE_LIST_PARTS_MAX 64
#define FILE_LIST_FILES_MAX 16384
#define FILE_LIST_JSON_MAX ((size_t)1 << 20)
#define FILE_LIST_FILE_BYTES_MAX ((int64_t)1 << 40)
#define FILE_LIST_NAME_MAX 33                   /* 32 hexadecimal digits and the closing 0 */
#define FILE_LIST_SUFFIX_MAX 8                  /* ".bin" */
#define FILE_LIST_CHUNK_BYTES ((size_t)1 << 20) /* of a file, at a time */

enum file_list_state {
    FILE_LIST_STATE_WAIT,  /* node 0 does not know yet: it is still reading its own */
    FILE_LIST_STATE_NONE,  /* it uses none */
    FILE_LIST_STATE_UNFIT, /* it has data, but cannot hand them out: why */
    FILE_LIST_STATE_READY,
    FILE_LIST_STATES_N
};

struct file_list_entry {
    int part;
    int64_t bytes, skip; /* the checksum leaves out the first `skip` */
    uint64_t sum;        /* XXH3-64 */
    char suffix[FILE_LIST_SUFFIX_MAX];
    char *path; /* on node 0, which alone knows it; else NULL */
};

struct file_list {
    enum file_list_state state;
    char why[256];
    int parts_n;
    double weights[FILE_LIST_PARTS_MAX]; /* 0: none */
    int files_n;
    struct file_list_entry *files; /* in order, part after part; every part has one */
};

/* file_list_add — a copy of the file. ST_RETRY: no memory; ST_BAD_DATA: what a bill cannot hold. */
enum status file_list_add(struct file_list *list, const struct file_list_entry *file);
void file_list_free(struct file_list *list); /* accepts a zeroed one, twice */
int64_t file_list_bytes(const struct file_list *list);
void file_list_name(const struct file_list *list, char out[FILE_LIST_NAME_MAX]);

/* file_list_weight — as few digits as read back the same: "0.7". Returns out. */
const char *file_list_weight(double weight, char out[32]);

/* file_list_write — appends; with paths only between processes of one node. */
void file_list_write(struct text *out, const struct file_list *list, bool is_with_paths);
/* file_list_read — bytes of any content: ST_BAD_DATA with a sentence, and nothing to free. */
enum status file_list_read(const char *bytes, size_t n, struct file_list *out);

/* the setting that names the data */
enum file_list_kind { FILE_LIST_KIND_DATA, FILE_LIST_KIND_VAL_DATA, FILE_LIST_KINDS_N };

/* What a node asks for: piece of file `file_i` of the bill with this name, from `first` on. */
struct file_list_request {
    enum file_list_kind kind;
    int node_id;
    bool is_for_list; /* the bill itself: the rest is not said */
    char name[FILE_LIST_NAME_MAX];
    int file_i;
    int64_t first;
};
void file_list_write_request(struct text *out, const struct file_list_request *request);
enum status file_list_read_request(const char *bytes, size_t n, struct file_list_request *out);

#endif

/* bill — what node 0 has to give to nodes without data of their own: a list of files, in parts,
 * each with its size and checksum. As a struct, and as JSON; the reader is a pure function of
 * (bytes, size). A bill has a name, the same wherever the content is: what is kept under it need
 * not be carried again. Must not know what is in the files. */
#ifndef CONVOY_MEET_BILL_H
#define CONVOY_MEET_BILL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

#define BILL_PARTS_MAX 64
#define BILL_FILES_MAX 16384
#define BILL_JSON_MAX ((size_t)1 << 20)
#define BILL_FILE_BYTES_MAX ((int64_t)1 << 40)
#define BILL_NAME_MAX 33                   /* 32 hexadecimal digits and the closing 0 */
#define BILL_SUFFIX_MAX 8                  /* ".bin" */
#define BILL_CHUNK_BYTES ((size_t)1 << 20) /* of a file, at a time */

enum bill_state {
    BILL_STATE_WAIT,  /* node 0 does not know yet: it is still reading its own */
    BILL_STATE_NONE,  /* it uses none */
    BILL_STATE_UNFIT, /* it has data, but cannot hand them out: why */
    BILL_STATE_READY,
    BILL_STATES_N
};

struct bill_file {
    int part;
    int64_t bytes, skip; /* the checksum leaves out the first `skip` */
    uint64_t sum;        /* XXH3-64 */
    char suffix[BILL_SUFFIX_MAX];
    char *path; /* on node 0, which alone knows it; else NULL */
};

struct bill {
    enum bill_state state;
    char why[256];
    int parts_n;
    double weights[BILL_PARTS_MAX]; /* 0: none */
    int files_n;
    struct bill_file *files; /* in order, part after part; every part has one */
};

/* bill_add — a copy of the file. ST_RETRY: no memory; ST_BAD_DATA: what a bill cannot hold. */
enum status bill_add(struct bill *bill, const struct bill_file *file);
void bill_free(struct bill *bill); /* accepts a zeroed one, twice */
int64_t bill_bytes(const struct bill *bill);
void bill_name(const struct bill *bill, char out[BILL_NAME_MAX]);

/* bill_weight — as few digits as read back the same: "0.7". Returns out. */
const char *bill_weight(double weight, char out[32]);

/* bill_write — appends; with paths only between processes of one node. */
void bill_write(struct text *out, const struct bill *bill, bool is_with_paths);
/* bill_read — bytes of any content: ST_BAD_DATA with a sentence, and nothing to free. */
enum status bill_read(const char *bytes, size_t n, struct bill *out);

/* the setting that names the data */
enum bill_kind { BILL_KIND_DATA, BILL_KIND_VAL_DATA, BILL_KINDS_N };

/* What a node asks for: piece of file `file_i` of the bill with this name, from `first` on. */
struct bill_ask {
    enum bill_kind kind;
    int node_id;
    bool is_for_bill; /* the bill itself: the rest is not said */
    char name[BILL_NAME_MAX];
    int file_i;
    int64_t first;
};
void bill_write_ask(struct text *out, const struct bill_ask *ask);
enum status bill_read_ask(const char *bytes, size_t n, struct bill_ask *out);

#endif

/* manifest — the page of a checkpoint that tells what it is: meta, files with sizes and checksums,
 * and a checksum of itself.
 *
 * A pure function each way between struct and text. The last line holds the XXH3-64 of every byte
 * before it, so a flipped bit anywhere is noticed before a field is believed. Must not know files
 * or folders. */
#ifndef CONVOY_FORMAT_MANIFEST_H
#define CONVOY_FORMAT_MANIFEST_H

#include "base/text.h"
#include "format/ckpt.h"

#define MANIFEST_FILES_MAX 16
#define MANIFEST_NAME_MAX 64
#define MANIFEST_BYTES_MAX (64 << 10)

struct manifest_file {
    char name
        [MANIFEST_NAME_MAX]; /* "model.safetensors": letters a-z, digits and _ before the suffix */
    int64_t bytes;
    uint64_t hash; /* XXH3-64 */
};

struct manifest {
    struct ckpt_meta meta;
    struct manifest_file file[MANIFEST_FILES_MAX];
    int files_n;
};

/* manifest_normalize — the two JSON texts of meta, as they will read back: no white space, numbers
 * in one form. ST_BAD_DATA when one is not an object or does not fit. */
enum status manifest_normalize(struct ckpt_meta *meta);
/* manifest_write — the text, appended to out (freed by the caller). */
enum status manifest_write(const struct manifest *manifest, struct text *out);
/* manifest_parse — `what` names the file in failures (ST_BAD_DATA). ST_SCHEMA: its first key tells
 * of a schema that we do not read, whatever follows. */
enum status manifest_parse(const char *bytes, size_t n, const char *what, struct manifest *out);

#endif

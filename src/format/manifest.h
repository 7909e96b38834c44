/* manifest — the description of a checkpoint: meta, files with sizes and checksums, and a checksum
 * of itself.
 *
 * Pure functions between struct and text. The last line holds the XXH3-64 of every byte before it,
 * so a flipped bit is found before any field is used. It must not know files or folders. */
#ifndef CONVOY_FORMAT_MANIFEST_H
#define CONVOY_FORMAT_MANIFEST_H

#include "base/text.h"
#include "format/ckpt.h"

#define MANIFEST_FILES_MAX CKPT_ARRAYS_MAX
#define MANIFEST_NAME_MAX 64
#define MANIFEST_BYTES_MAX (64 << 10)

struct manifest_file {
    char name[MANIFEST_NAME_MAX]; /* "model.safetensors": a-z, digits and _ before the suffix */
    int64_t bytes;
    uint64_t hash; /* XXH3-64 */
};

struct manifest {
    struct ckpt_meta meta;
    struct manifest_file file[MANIFEST_FILES_MAX];
    int files_n;
};

/* manifest_normalize — rewrites the two JSON texts of meta to the form in which they are read back:
 * no white space, numbers in one form. ST_BAD_DATA: one is not an object or does not fit. */
enum status manifest_normalize(struct ckpt_meta *meta);
/* manifest_write — appends the text to out; the caller frees it. */
enum status manifest_write(const struct manifest *manifest, struct text *out);
/* manifest_parse — parses a manifest. `what` names the file in messages (ST_BAD_DATA). ST_SCHEMA:
 * its first key is a schema that this version cannot read; the rest is not checked then. */
enum status manifest_parse(const char *bytes, size_t n, const char *what, struct manifest *out);

#endif

/* sniff — recognises formats and text encodings by their bytes, for files whose names are wrong.
 *
 * Pure functions of bytes. It must not know files, tokens or settings. */
#ifndef CONVOY_DATA_SNIFF_H
#define CONVOY_DATA_SNIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* the remedy for tables */
#define SNIFF_EXPORT                                                                          \
    "write its text as JSON lines first, for example with pandas: to_json(orient='records', " \
    "lines=True)"
#define SNIFF_HEAD_BYTES 4096 /* bytes of a file's beginning; fewer are enough for a small file */

struct sniff_kind {
    const char *what;   /* "compressed by gzip" */
    const char *remedy; /* "unpack it first (gunzip)" */
};
/* sniff_magic — finds a format other than plain UTF-8 text by its first bytes; NULL: none. */
const struct sniff_kind *sniff_magic(const uint8_t *head, size_t n);
#define SNIFF_FRAME_BYTES 8 /* enough bytes for these two */
/* sniff_zstd — returns true if a zstd frame begins here. */
bool sniff_zstd(const uint8_t *head, size_t n);
/* sniff_skippable — returns true if a frame begins here that zstd skips; *bytes_out is its length
 * with the header. */
bool sniff_skippable(const uint8_t *head, size_t n, int64_t *bytes_out);

/* Counts of bytes that are not text. Zero-initialised is empty. */
struct sniff_count {
    int64_t bytes;
    int64_t invalid; /* bytes that belong to no UTF-8 character */
    /* control characters other than tab, line and form feed, return, backspace, escape; zeros
     * count */
    int64_t controls;
    int64_t zeros[2]; /* at even and at odd offsets */
};
/* sniff_add — counts a sample that begins at an even offset; a character cut by its beginning or
 * end counts as complete. */
void sniff_add(struct sniff_count *count, const uint8_t *bytes, size_t n);
int64_t sniff_bad(const struct sniff_count *count); /* bytes that are not text */
/* sniff_guess — returns the probable format of the bytes, and the remedy; for more than a few bad
 * ones. */
struct sniff_kind sniff_guess(const struct sniff_count *count);

#endif

/* sniff — what bytes are when a name cannot be believed: packed, a document, a program, or text in
 * which encoding.
 *
 * Pure functions of bytes. Must not know files, tokens or settings; data_file.c asks it about what
 * DATA names. */
#ifndef CONVOY_DATA_SNIFF_H
#define CONVOY_DATA_SNIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNIFF_HEAD_BYTES 4096 /* of a file's beginning; fewer are enough for a small file */

struct sniff_kind {
    const char *what;   /* "compressed by gzip" */
    const char *remedy; /* "unpack it first (gunzip)" */
};
/* sniff_magic — by the first bytes: something that is no plain text in UTF-8. NULL: none that is
 * known. */
const struct sniff_kind *sniff_magic(const uint8_t *head, size_t n);
#define SNIFF_FRAME_BYTES 8 /* are enough for these two */
/* sniff_zstd — a frame of zstd. sniff_skippable — one that zstd skips: *bytes_out is its length
 * with the header. */
bool sniff_zstd(const uint8_t *head, size_t n);
bool sniff_skippable(const uint8_t *head, size_t n, int64_t *bytes_out);

/* How much of some bytes is no text. Zero-initialised is empty. */
struct sniff_count {
    int64_t bytes;
    int64_t invalid; /* bytes that belong to no character of UTF-8 */
    /* but for tab, line and form feeds, return, backspace and escape; zeros too */
    int64_t controls;
    int64_t zeros[2]; /* at even and at odd places */
};
/* sniff_add — a piece of a file from an even place; a character cut by its beginning or end counts
 * as whole. */
void sniff_add(struct sniff_count *count, const uint8_t *bytes, size_t n);
int64_t sniff_bad(const struct sniff_count *count); /* bytes that are no text */
/* sniff_guess — what such bytes may be, and what to do; for more than a few bad ones. */
struct sniff_kind sniff_guess(const struct sniff_count *count);

#endif

/* jsonl — one line of JSON into the text of a document.
 *
 * A line is one JSON object whose "text" is a string; everything else in it is checked and passed
 * over. Must not know files, lines before and after, or tokens. */
#ifndef CONVOY_DATA_JSONL_H
#define CONVOY_DATA_JSONL_H

#include <stddef.h>
#include <stdint.h>

struct jsonl_text {
    uint8_t *bytes; /* within the line, decoded; any bytes that UTF-8 can hold, 0 too */
    size_t n;
    const char *fault; /* what is wrong with the line; NULL: nothing */
    size_t fault_at;   /* at which byte of it, from 0 */
};

/* jsonl_text — decodes in place: the line's bytes are spoilt. Strict JSON in UTF-8, nested at most
 * 64 deep; a \u escape that is half a surrogate pair becomes U+FFFD; a key may be escaped; two
 * "text" are refused. */
struct jsonl_text jsonl_text(uint8_t *line, size_t n);

#endif

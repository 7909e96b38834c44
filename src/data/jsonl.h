/* jsonl — extracts the text of a document from one line of JSON lines.
 *
 * A line is one JSON object with a string "text"; its other members are checked and skipped.
 * tokenizer/encode.c reads the lines and makes tokens of the texts. It must not know files, other
 * lines, or tokens. */
#ifndef CONVOY_DATA_JSONL_H
#define CONVOY_DATA_JSONL_H

#include <stddef.h>
#include <stdint.h>

struct jsonl_text {
    uint8_t *bytes; /* within the line, decoded; UTF-8, may contain 0 */
    size_t n;
    const char *fault; /* the reason why the line is refused; NULL: it is not */
    size_t fault_at;   /* offset in the line */
};

/* jsonl_text — decodes in place and overwrites the line. Strict JSON in UTF-8, nested at most 64
 * deep. Half a surrogate pair becomes U+FFFD. A key may contain escapes; a second "text" is
 * refused. */
struct jsonl_text jsonl_text(uint8_t *line, size_t n);

/* jsonl_escape — decodes the escape after the backslash at p, before end: adds 1 to 4 bytes at
 * out[*n], which may lie before p in the same array. Half a surrogate pair becomes U+FFFD. Returns
 * the end of the escape; NULL: it is no escape of JSON. */
const uint8_t *jsonl_escape(const uint8_t *p, const uint8_t *end, uint8_t *out, size_t *n);

#endif

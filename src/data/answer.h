/* answer — what the headers of a server's answer say about a file and a stretch of it. Pure. Must
 * not know sockets or files. */
#ifndef CONVOY_DATA_ANSWER_H
#define CONVOY_DATA_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWER_VALIDATOR_MAX 256

struct answer {
    int64_t length;      /* Content-Length; -1: not said */
    int64_t range_first; /* Content-Range: bytes FIRST-LAST/TOTAL; -1: not said */
    int64_t range_total; /* -1: not said, or "*" */
    char validator
        [ANSWER_VALIDATOR_MAX]; /* for If-Range: a strong ETag, else Last-Modified; "": none */
    bool is_etag;
    bool is_page; /* Content-Type: text/html or application/xhtml+xml */
};

/* answer_line — one line of headers, with its end; a status line begins a new answer. Unknown and
 * malformed lines are passed over. */
void answer_line(struct answer *answer, const char *line, size_t n);
/* answer_is_page — do the first bytes of a body begin a page of HTML? */
bool answer_is_page(const char *bytes, size_t n);

#endif

/* http_headers — what the headers of a server's answer say about a file and a stretch of it. Pure.
 * Must not know sockets or files. */
#ifndef CONVOY_NET_HTTP_HEADERS_H
#define CONVOY_NET_HTTP_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEADERS_VALIDATOR_MAX 256

struct http_headers {
    int64_t length;      /* Content-Length; -1: not said */
    int64_t range_first; /* Content-Range: bytes FIRST-LAST/TOTAL; -1: not said */
    int64_t range_total; /* -1: not said, or "*" */
    /* for If-Range: a strong ETag, else Last-Modified; "": none */
    char validator[HTTP_HEADERS_VALIDATOR_MAX];
    bool is_etag;
    bool is_html; /* Content-Type: text/html or application/xhtml+xml */
};

/* http_headers_line — one line of headers, with its end; a status line begins a new answer. Unknown
 * and malformed lines are passed over. */
void http_headers_line(struct http_headers *headers, const char *line, size_t n);
/* http_headers_is_html — do the first bytes of a body begin a page of HTML? */
bool http_headers_is_html(const char *bytes, size_t n);

#endif

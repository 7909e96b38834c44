/* http_headers — the headers of an HTTP response that matter for a download: size, range,
 * validator, media type. Pure functions; it must not know sockets or files. */
#ifndef CONVOY_NET_HTTP_HEADERS_H
#define CONVOY_NET_HTTP_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEADERS_VALIDATOR_MAX 256

struct http_headers {
    int64_t length;      /* Content-Length; -1: absent */
    int64_t range_first; /* Content-Range: bytes FIRST-LAST/TOTAL; -1: absent */
    int64_t range_total; /* -1: absent, or "*" */
    /* For If-Range: a strong ETag, else Last-Modified; "": none. */
    char validator[HTTP_HEADERS_VALIDATOR_MAX];
    bool is_etag;
    bool is_html; /* Content-Type: text/html or application/xhtml+xml */
};

/* http_headers_line — reads one header line with its line ending. A status line resets
 * everything: a new response begins. Unknown and malformed lines are ignored. */
void http_headers_line(struct http_headers *headers, const char *line, size_t n);
/* http_headers_is_html — returns true if the first bytes of a body look like HTML. */
bool http_headers_is_html(const char *bytes, size_t n);

#endif

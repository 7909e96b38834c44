/* http_headers — the headers of an HTTP response that matter for a download: size, range,
 * validator, media type. Pure functions; it must not know sockets or files. */
#ifndef CONVOY_NET_HTTP_HEADERS_H
#define CONVOY_NET_HTTP_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEADERS_VALIDATOR_MAX 256
#define HTTP_HEADERS_SHORT_MAX 80

struct http_headers {
    int64_t length;      /* Content-Length; -1: absent */
    int64_t range_first; /* Content-Range: bytes FIRST-LAST/TOTAL; -1: absent */
    int64_t range_total; /* -1: absent, or "*" */
    /* For If-Range: a strong ETag, else Last-Modified; "": none. */
    char validator[HTTP_HEADERS_VALIDATOR_MAX];
    bool is_etag;
    bool is_html;                             /* Content-Type: text/html or application/xhtml+xml */
    char retry_after[HTTP_HEADERS_SHORT_MAX]; /* Retry-After: seconds, or a date; "": absent */
    /* RateLimit: "resolvers";r=0;t=SECONDS, until the limit is reset; "": absent (draft 9 of
     * draft-ietf-httpapi-ratelimit-headers) */
    char rate_limit[HTTP_HEADERS_SHORT_MAX];
    /* Headers of the Hugging Face hub; "": absent. */
    char linked_etag[HTTP_HEADERS_SHORT_MAX]; /* X-Linked-Etag, of a file that it redirects to */
    char error_code[HTTP_HEADERS_SHORT_MAX];  /* X-Error-Code: "GatedRepo", … */
};

/* http_headers_line — reads one header line with its line ending. A status line resets
 * everything: a new response begins. Unknown and malformed lines are ignored. */
void http_headers_line(struct http_headers *headers, const char *line, size_t n);
/* http_headers_is_html — returns true if the first bytes of a body look like HTML. */
bool http_headers_is_html(const char *bytes, size_t n);

#endif

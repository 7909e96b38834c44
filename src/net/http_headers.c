/* http_headers — see http_headers.h. Source: RFC 9110. */
#include "net/http_headers.h"

#include <string.h>
#include <strings.h>

static bool read_number(const char **at, const char *end, int64_t *out)
{
    int64_t v = 0;
    const char *from = *at;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, **at - '0', &v))
            return false;
    if (*at == from)
        return false;
    *out = v;
    return true;
}

static void read_range(struct http_headers *headers, const char *at, const char *end)
{
    int64_t first, last, total = -1;
    headers->range_first = headers->range_total = -1;
    if (end - at < 6 || strncasecmp(at, "bytes ", 6) != 0)
        return;
    at += 6;
    if (!read_number(&at, end, &first) || at == end || *at++ != '-' ||
        !read_number(&at, end, &last) || at == end || *at++ != '/' || last < first)
        return;
    if (at < end && *at != '*' && (!read_number(&at, end, &total) || total <= last))
        return;
    headers->range_first = first;
    headers->range_total = total;
}

/* Reads a validator. It is sent back unchanged, so only visible characters and spaces are
 * accepted. */
static void read_validator(struct http_headers *headers, const char *at, const char *end,
                           bool is_etag)
{
    const size_t n = (size_t)(end - at);
    if ((headers->is_etag && !is_etag) || n == 0 || n >= sizeof headers->validator ||
        (is_etag && *at != '"'))
        return;
    for (const char *c = at; c < end; c++)
        if (*c < ' ' || *c > '~')
            return;
    memcpy(headers->validator, at, n);
    headers->validator[n] = '\0';
    headers->is_etag = is_etag;
}

static bool has_prefix(const char *at, size_t n, const char *with)
{
    return n >= strlen(with) && strncasecmp(at, with, strlen(with)) == 0;
}

/* Returns true for a media type of HTML, perhaps with parameters. */
static bool is_html(const char *at, const char *end)
{
    static const char *const types[] = {"text/html", "application/xhtml+xml"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = strlen(types[i]);
        if (has_prefix(at, (size_t)(end - at), types[i]) &&
            (at + n == end || strchr("; \t", at[n]) != NULL))
            return true;
    }
    return false;
}

bool http_headers_is_html(const char *bytes, size_t n)
{
    size_t at = has_prefix(bytes, n, "\xef\xbb\xbf") ? 3 : 0;
    while (at < n &&
           (bytes[at] == ' ' || bytes[at] == '\t' || bytes[at] == '\r' || bytes[at] == '\n'))
        at++;
    return has_prefix(bytes + at, n - at, "<!doctype html") ||
           has_prefix(bytes + at, n - at, "<html");
}

/* Copies a short value of visible characters and spaces; others count as absent. */
static void read_short(const char *at, const char *end, char out[HTTP_HEADERS_SHORT_MAX])
{
    const size_t n = (size_t)(end - at);
    out[0] = '\0';
    for (const char *c = at; c < end; c++)
        if (*c < ' ' || *c > '~')
            return;
    if (n >= HTTP_HEADERS_SHORT_MAX)
        return;
    memcpy(out, at, n);
    out[n] = '\0';
}

void http_headers_line(struct http_headers *headers, const char *line, size_t n)
{
    const char *end = line + n, *colon = memchr(line, ':', n);
    if (n >= 5 && memcmp(line, "HTTP/", 5) == 0)
        *headers = (struct http_headers){.length = -1, .range_first = -1, .range_total = -1};
    if (colon == NULL)
        return;
    const size_t name = (size_t)(colon - line);
    const char *at = colon + 1;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (name == 14 && strncasecmp(line, "Content-Length", name) == 0 &&
        (!read_number(&at, end, &headers->length) || at != end))
        headers->length = -1;
    if (name == 13 && strncasecmp(line, "Content-Range", name) == 0)
        read_range(headers, at, end);
    if (name == 12 && strncasecmp(line, "Content-Type", name) == 0)
        headers->is_html = is_html(at, end);
    if (name == 4 && strncasecmp(line, "ETag", name) == 0)
        read_validator(headers, at, end, true);
    if (name == 13 && strncasecmp(line, "Last-Modified", name) == 0)
        read_validator(headers, at, end, false);
    if (name == 11 && strncasecmp(line, "Retry-After", name) == 0)
        read_short(at, end, headers->retry_after);
    if (name == 9 && strncasecmp(line, "RateLimit", name) == 0)
        read_short(at, end, headers->rate_limit);
    if (name == 13 && strncasecmp(line, "X-Linked-Etag", name) == 0)
        read_short(at, end, headers->linked_etag);
    if (name == 12 && strncasecmp(line, "X-Error-Code", name) == 0)
        read_short(at, end, headers->error_code);
}

#ifdef FUZZ
#include "base/assert.h"

/* Reads headers as a server might send them. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_headers headers = {.length = -1, .range_first = -1, .range_total = -1};
    const char *at = (const char *)data, *end = at + size;
    ASSERT(!http_headers_is_html(at, size) || memchr(at, '<', size) != NULL);
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop != NULL ? stop + 1 : end;
        http_headers_line(&headers, at, (size_t)(stop - at));
        at = stop;
        ASSERT(headers.length >= -1 && headers.range_first >= -1 && headers.range_total >= -1);
        ASSERT(headers.range_total < 0 || headers.range_first < headers.range_total);
        ASSERT(strlen(headers.validator) < sizeof headers.validator &&
               strpbrk(headers.validator, "\r\n") == NULL);
    }
    return 0;
}
#endif

/* fetch — see fetch.h. Read fetch_file first, at the end.
 *
 * Until the file is complete, two others are next to it: NAME.part (the bytes so far; locked by the
 * process that fetches) and NAME.same (the total length and the validator for If-Range). */
#include "remote/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <curl/curl.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rand.h"
#include "base/text.h"
#include "net/curl_client.h"
#include "net/http_headers.h"

enum {
    FETCH_NAME_MAX = 100,
    FETCH_REDIRECTS_MAX = 5,
    FETCH_RETRY_MS = 1000,
    FETCH_HEX = 64,
    FETCH_TOKEN_MAX = 512
};

struct fetch {
    struct fetch_config config; /* defaults filled in */
    char url[FILE_PATH_MAX];    /* without its fragment */
    char sum[FETCH_HEX + 1];    /* expected checksum; "": none */
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], same[FILE_PATH_MAX];
    struct curl_client_partial partial; /* its total: -1 if it is unknown */
    int64_t most;                       /* largest number of bytes that the partial file had */
    /* The state of one transfer: */
    CURL *curl;
    char error[CURL_ERROR_SIZE];
    struct http_headers headers;
    int64_t retry_after_ms;          /* the wait that the server requests; 0: none */
    bool is_begun;                   /* the response is accepted */
    int64_t most_bytes;              /* accepted from this response */
    int64_t window_ms, window_bytes; /* begin of the window of the least rate; bytes since then */
    enum status st;                  /* the error of a callback */
    bool is_slow, is_stopped;
    struct curl_client_guard guard;
};

/* ---- the partial file ---- */

/* Reads the validator of the bytes in the partial file, and the total length: -1 if it was unknown.
 * Returns false if there is none; the bytes cannot be resumed then. */
static bool validator_read(const struct fetch *f, char out[HTTP_HEADERS_VALIDATOR_MAX],
                           int64_t *total_out)
{
    char *line;
    size_t n;
    if (!file_exists(f->same))
        return false;
    if (file_read(f->same, HTTP_HEADERS_VALIDATOR_MAX + 31, &line, &n) != ST_OK) {
        status_clear();
        return false;
    }
    char *space = strchr(line, ' ');
    bool is_good = space != NULL && strlen(line) == n;
    for (size_t i = 0; i < n; i++)
        is_good &= line[i] >= ' ' && line[i] <= '~';
    if (is_good) {
        *space = '\0';
        is_good = text_parse_i64(line, -1, INT64_MAX, total_out) == TEXT_OK && space[1] != '\0' &&
                  text_copy(out, HTTP_HEADERS_VALIDATOR_MAX, space + 1);
    }
    free(line);
    return is_good;
}

/* copy_sum — sets the expected checksum, in lower case. */
static void copy_sum(struct fetch *f, const char hex[FETCH_HEX])
{
    for (int i = 0; i < FETCH_HEX; i++)
        f->sum[i] = hex[i] >= 'A' && hex[i] <= 'F' ? (char)(hex[i] + 32) : hex[i];
    f->sum[FETCH_HEX] = '\0';
}

/* ---- one transfer ---- */

/* refuse_page — refuses HTML: it is a log-in, a list of files, or a page about the file, unless the
 * address ends like an HTML file. */
static enum status refuse_page(const struct fetch *f, bool is_html)
{
    if (!is_html || text_ends(f->path, ".html") || text_ends(f->path, ".htm"))
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s answered with a page of HTML, not with data; use the address of the file "
                "itself (on GitHub \"raw\", on Hugging Face \"resolve\" in place of \"blob\"), one "
                "that needs no log-in",
                f->url);
}

/* Checks that a partial response continues the bytes in the partial file: from their end on, of the
 * same version (validator) and the same total length. Otherwise the partial file is emptied, and
 * the next transfer requests the whole file. */
static enum status check_rest(struct fetch *f)
{
    char validator[HTTP_HEADERS_VALIDATOR_MAX] = "";
    const int64_t have = f->partial.have;
    int64_t total = -1;
    const bool is_known = validator_read(f, validator, &total);
    const bool is_same = is_known && strcmp(validator, f->headers.validator) == 0 &&
                         (total < 0 || f->headers.range_total == total);
    if (is_same && f->headers.range_first == have)
        return ST_OK;
    TRY(curl_client_partial_restart(&f->partial));
    if (is_same)
        return FAIL(ST_RETRY,
                    "%s: bytes from %lld on were requested, but the server sent bytes from %lld on",
                    f->url, (long long)have, (long long)f->headers.range_first);
    return FAIL(ST_RETRY,
                "%s sent the rest of another file than the %lld bytes that are here: version %s "
                "of %lld bytes instead of %s of %lld bytes; fetching all of it again",
                f->url, (long long)have,
                f->headers.validator[0] != '\0' ? f->headers.validator : "(none)",
                (long long)f->headers.range_total, validator, (long long)total);
}

/* body_begin — checks, at the first bytes, that the response is the file, from our position on. */
static enum status body_begin(struct fetch *f)
{
    const long code = curl_client_http_code(f->curl);
    if (code != 200 && (code != 206 || f->partial.have == 0))
        return FAIL(ST_NO_INPUT, "%s answered HTTP %ld instead of a file; check the address",
                    f->url, code);
    if (code == 206)
        TRY(check_rest(f));
    TRY(refuse_page(f, f->headers.is_html));
    if (code == 200 && f->partial.have > 0)
        TRY(curl_client_partial_restart(&f->partial));
    f->partial.total = code == 200 ? f->headers.length : f->headers.range_total;
    /* Computes the number of bytes that the response may have. */
    const int64_t space = file_space_bytes(f->dir);
    if (f->partial.total > f->config.bytes_max)
        return FAIL(ST_BAD_DATA, "%s has %lld bytes, over the limit of %lld for a download", f->url,
                    (long long)f->partial.total, (long long)f->config.bytes_max);
    TRY(curl_client_partial_room(&f->partial, f->partial.total - f->partial.have));
    f->most_bytes = f->partial.total >= 0 ? f->partial.total : f->config.unknown_max;
    if (f->partial.total < 0 && space >= 0 && space / 2 < f->most_bytes - f->partial.have)
        f->most_bytes = f->partial.have + space / 2;
    if (code == 200) {
        /* Keeps the total length and the validator of the bytes in the partial file, as one
         * line. */
        char line[HTTP_HEADERS_VALIDATOR_MAX + 32];
        text_format(line, sizeof line, "%lld %s", (long long)f->partial.total,
                    f->headers.validator);
        unlink(f->same); /* without it a resume is not possible: no harm */
        if (f->headers.validator[0] != '\0' && file_replace(f->same, line, strlen(line)) != ST_OK)
            status_clear();
    }
    f->is_begun = true;
    return ST_OK;
}

static enum status body_add(struct fetch *f, const char *bytes, size_t n)
{
    if (!f->is_begun) {
        TRY(body_begin(f));
        TRY(refuse_page(f, f->partial.have == 0 && http_headers_is_html(bytes, n)));
        /* Refuses a Git LFS pointer, which is kept in the place of a file. */
        if (f->partial.have == 0 && file_is_lfs_pointer(bytes, n))
            return FAIL(ST_BAD_DATA,
                        "%s answered with a Git LFS pointer, not with data; use the address of the "
                        "file itself (on GitHub media.githubusercontent.com/media/…, on Hugging "
                        "Face \"resolve\" in place of \"raw\")",
                        f->url);
    }
    if ((int64_t)n > f->most_bytes - f->partial.have) {
        /* Refuses a body of another length than announced, and removes its bytes. */
        TRY(curl_client_partial_restart(&f->partial));
        if (f->partial.total >= 0)
            return FAIL(ST_BAD_DATA, "%s sent more than the %lld bytes that it announced", f->url,
                        (long long)f->partial.total);
        return FAIL(ST_BAD_DATA,
                    "%s has over %lld bytes, the limit for a download whose server does not send "
                    "its length (at most half of the room in CACHE_DIR=%s); fetch it by other "
                    "means and set %s to the file",
                    f->url, (long long)f->most_bytes, f->config.cache_dir, f->config.setting);
    }
    TRY(curl_client_partial_append(&f->partial, bytes, n));
    f->most = f->partial.have > f->most ? f->partial.have : f->most;
    f->window_bytes += (int64_t)n;
    return ST_OK;
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *arg)
{
    struct fetch *f = arg;
    (void)one; /* always 1 */
    f->st = body_add(f, bytes, n);
    return f->st == ST_OK ? n : 0; /* fewer than n: libcurl ends the transfer */
}

/* read_linked_sum — reads the SHA-256 of a large file from the hub's X-Linked-Etag. The header of
 * another kind of file is its Git hash, which has 40 digits. */
static void read_linked_sum(struct fetch *f)
{
    const char *from = f->headers.linked_etag + (f->headers.linked_etag[0] == '"');
    int n = 0;
    while (text_hex_digit(from[n]) >= 0)
        n++;
    if (n == FETCH_HEX && (from[n] == '\0' || from[n] == '"'))
        copy_sum(f, from);
    f->headers.linked_etag[0] = '\0';
}

static size_t on_header(char *line, size_t one, size_t n, void *arg)
{
    struct fetch *f = arg;
    (void)one;
    http_headers_line(&f->headers, line, n);
    if (f->config.hub != NULL && f->headers.linked_etag[0] != '\0')
        read_linked_sum(f);
    return n;
}

/* Returns true if `bytes` in `ms` are fewer than the least rate. */
static bool is_below_rate(const struct fetch *f, int64_t bytes, int64_t ms)
{
    return (double)bytes * 1e3 < (double)f->config.rate_min * (double)ms;
}

/* on_progress — is called about once a second, more often while bytes arrive. */
static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct fetch *f = arg;
    (void)a, (void)b, (void)c, (void)d;
    if (f->st != ST_OK)
        return 1; /* on_bytes has failed; libcurl calls once more */
    f->st = curl_client_partial_report(&f->partial);
    f->is_stopped = f->st != ST_OK;
    /* Compares each window of time with the least rate, and begins the next one. */
    const int64_t now_ms = clock_ms(), ms = now_ms - f->window_ms;
    if (ms >= f->config.slow_ms) {
        f->is_slow = is_below_rate(f, f->window_bytes, ms);
        f->window_ms = now_ms;
        f->window_bytes = 0;
    }
    return f->st != ST_OK || f->is_slow;
}

static enum status prepare_curl(struct fetch *f)
{
    const struct curl_client_config config = {.server = f->url,
                                              .url = f->url,
                                              .uses_proxy = f->config.allows_local,
                                              .connect_ms = FETCH_CONNECT_MS,
                                              .error = f->error};
    CURL *curl;
    const bool is_tls = strncasecmp(f->url, "https:", 6) == 0;
    TRY(curl_client_open(&config, &curl));
    f->curl = curl;
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, is_tls ? "https" : "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)FETCH_REDIRECTS_MAX);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "convoy");
    curl_client_guard_set(curl, &f->guard);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, f);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, f);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    return ST_OK;
}

/* add_header — adds a header to the request. The caller frees the list after the transfer. */
static enum status add_header(const struct fetch *f, const char *line, struct curl_slist **headers)
{
    struct curl_slist *list = curl_slist_append(*headers, line);
    if (list == NULL)
        return FAIL(ST_RETRY, "out of memory: cannot prepare a request to %s", f->url);
    *headers = list;
    curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, list);
    return ST_OK;
}

/* request_rest — requests only the missing bytes, if a validator can show that the file is the
 * same. */
static enum status request_rest(struct fetch *f, struct curl_slist **headers)
{
    char validator[HTTP_HEADERS_VALIDATOR_MAX], line[HTTP_HEADERS_VALIDATOR_MAX + 16], range[32];
    int64_t total;
    if (f->partial.have > 0 && !validator_read(f, validator, &total))
        TRY(curl_client_partial_restart(&f->partial));
    if (f->partial.have > 0 && f->partial.have == total) {
        /* All bytes are here, but the last process ended before it had checked them. No byte is
         * after them, so the last one is requested again. */
        if (ftruncate(f->partial.fd, total - 1) != 0)
            return FAIL(ST_STORE, "cannot shorten %s: %s; check CACHE_DIR", f->partial.path,
                        strerror(errno));
        f->partial.have = total - 1;
    }
    if (f->partial.have == 0)
        return ST_OK;
    text_format(range, sizeof range, "%lld-", (long long)f->partial.have);
    text_format(line, sizeof line, "If-Range: %s", validator);
    curl_easy_setopt(f->curl, CURLOPT_RANGE, range);
    return add_header(f, line, headers);
}

/* send_token — libcurl sends a header "Authorization" of its user to the host, port and scheme of
 * the first request only, and leaves it out after a redirect to another one. */
static enum status send_token(struct fetch *f, struct curl_slist **headers)
{
    char line[FETCH_TOKEN_MAX + 32];
    if (f->config.hub == NULL || f->config.hub->token[0] == '\0')
        return ST_OK;
    if (!text_format(line, sizeof line, "Authorization: Bearer %s", f->config.hub->token))
        return FAIL(ST_BAD_SETTING, "the token for %s has over %d bytes", f->url, FETCH_TOKEN_MAX);
    const enum status st = add_header(f, line, headers);
    explicit_bzero(line, sizeof line);
    return st;
}

/* read_retry_after — reads the wait that a busy server requests: seconds, or a date (RFC 9110,
 * 10.2.3); else the seconds until it resets its limit. */
static enum status read_retry_after(struct fetch *f, long code)
{
    char text[HTTP_HEADERS_SHORT_MAX];
    const char *reset = strstr(f->headers.rate_limit, ";t=");
    int64_t seconds = 0;
    text_copy(text, sizeof text, f->headers.retry_after);
    if (text[0] == '\0' && reset != NULL)
        text_format(text, sizeof text, "%.*s", (int)strspn(reset + 3, "0123456789"), reset + 3);
    if (text[0] == '\0')
        return ST_OK;
    if (text_parse_i64(text, 0, INT64_MAX / 1000, &seconds) != TEXT_OK) {
        const time_t date = curl_getdate(text, NULL);
        seconds = date > 0 ? (int64_t)date - clock_wall_ms() / 1000 : 0;
    }
    f->retry_after_ms = seconds > 0 ? seconds * 1000 : 0;
    if (f->retry_after_ms > FETCH_WAIT_MAX_MS)
        return FAIL(ST_RETRY,
                    "%s answered HTTP %ld and requests a wait of %lld s; start again after that",
                    f->url, code, (long long)seconds);
    return ST_OK;
}

/* classify_failure — returns the status of a failed transfer. *again: a retry may succeed. */
static enum status classify_failure(struct fetch *f, CURLcode result, bool *again)
{
    const long code = curl_client_http_code(f->curl);
    const char *said = curl_client_error(f->error, result);
    *again = false;
    if (f->st != ST_OK) {
        *again = f->st == ST_RETRY && !f->is_stopped; /* another range than requested */
        return f->st;
    }
    if (f->guard.refused[0] != '\0' && result == CURLE_COULDNT_CONNECT)
        return FAIL(ST_BAD_SETTING,
                    "%s leads to %s, an address of this machine or of a private network; set "
                    "ALLOW_LOCAL_URLS=1 if that is meant",
                    f->url, f->guard.refused);
    if (result == CURLE_UNSUPPORTED_PROTOCOL && code >= 300 && code < 400)
        return FAIL(ST_NO_INPUT,
                    "%s redirects away from http(s) (from https only https is followed): %s",
                    f->url, said);
    if (result == CURLE_TOO_MANY_REDIRECTS)
        return FAIL(ST_NO_INPUT, "%s redirects over %d times; check the address", f->url,
                    FETCH_REDIRECTS_MAX);
    if (curl_client_is_final(f->error, result))
        return FAIL(ST_NO_INPUT, "cannot fetch %s: %s; check the address", f->url, said);
    if (result == CURLE_HTTP_RETURNED_ERROR && f->config.hub != NULL)
        TRY(f->config.hub->refuse(f->config.hub->refuse_arg, code, f->headers.error_code));
    if (result == CURLE_HTTP_RETURNED_ERROR && code == 416) {
        *again = true;
        TRY(curl_client_partial_restart(&f->partial));
    } else if (result == CURLE_HTTP_RETURNED_ERROR &&
               (code < 500 ? code != 408 && code != 425 && code != 429
                           : code == 501 || code == 505))
        return FAIL(ST_NO_INPUT, "%s answered HTTP %ld; check the address", f->url, code);
    if (result == CURLE_HTTP_RETURNED_ERROR && (code == 429 || code == 503))
        TRY(read_retry_after(f, code));
    *again = true;
    char slow[96];
    text_format(slow, sizeof slow, "fewer than %lld bytes/s arrived within %.0f s",
                (long long)f->config.rate_min, (double)f->config.slow_ms / 1e3);
    return FAIL(ST_RETRY,
                "cannot fetch %s: %s, after %lld bytes; start again later, and it resumes there",
                f->url, f->is_slow ? slow : said, (long long)f->partial.have);
}

static enum status attempt_transfer(struct fetch *f, bool *again)
{
    struct curl_slist *headers = NULL;
    *again = false;
    TRY(prepare_curl(f));
    f->headers = (struct http_headers){.length = -1, .range_first = -1, .range_total = -1};
    f->retry_after_ms = 0;
    f->is_begun = f->is_slow = f->is_stopped = false;
    f->guard = (struct curl_client_guard){.allows_local = f->config.allows_local};
    f->partial.total = -1;
    f->window_ms = clock_ms();
    f->window_bytes = 0;
    f->st = ST_OK;
    enum status st = send_token(f, &headers);
    if (st == ST_OK)
        st = request_rest(f, &headers);
    if (st == ST_OK) {
        const CURLcode result = curl_easy_perform(f->curl);
        if (result != CURLE_OK)
            st = classify_failure(f, result, again);
        else if (!f->is_begun)
            st = body_begin(f); /* no byte arrived: an empty file, or no file */
        if (st == ST_OK && f->partial.total >= 0 && f->partial.have < f->partial.total) {
            *again = true;
            st = FAIL(ST_RETRY,
                      "%s is cut off: %lld bytes arrived, expected %lld; start again later, and it "
                      "resumes there",
                      f->url, (long long)f->partial.have, (long long)f->partial.total);
        }
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(f->curl);
    return st;
}

/* ---- retries ---- */

/* wait_ms — returns the wait before the next try: longer after each one, at least as long as the
 * server requests, plus up to a half of it or 30 s, so that jobs do not return together. */
static int64_t wait_ms(const struct fetch *f, int tries)
{
    enum { JITTER_MAX_MS = 30000 };
    const int64_t backoff_ms = f->config.retry_ms * tries,
                  least_ms = f->retry_after_ms > backoff_ms ? f->retry_after_ms : backoff_ms,
                  most_ms = least_ms / 2 < JITTER_MAX_MS ? least_ms / 2 : JITTER_MAX_MS;
    return least_ms + (int64_t)rand_below((uint64_t)getpid(), RAND_STREAM(TEST, 0),
                                          (uint64_t)clock_ns(), (uint64_t)most_ms + 1);
}

static enum status transfer_all(struct fetch *f)
{
    int64_t waited_ms = 0; /* the wait before this transfer */
    for (int tries = 0;;) {
        bool again;
        const int64_t most = f->most, began_ms = clock_ms();
        const enum status st = attempt_transfer(f, &again);
        if (st == ST_OK)
            return ST_OK;
        if (!again)
            return status_trace_at(__FILE__, __LINE__, st);
        const bool moves =
            f->most > most && !is_below_rate(f, f->most - most, waited_ms + clock_ms() - began_ms);
        tries = moves ? 1 : tries + 1;
        if (tries >= FETCH_TRIES)
            return status_trace_at(__FILE__, __LINE__, st);
        waited_ms = wait_ms(f, tries);
        LOG_WARN("%s; trying again in %.1f s", status_message(), (double)waited_ms / 1e3);
        status_clear();
        TRY(curl_client_partial_wait(&f->partial, waited_ms));
    }
}

/* ---- the checksum ---- */

static int add_bytes(void *sum, const void *bytes, size_t n)
{
    return EVP_DigestUpdate(sum, bytes, n);
}

static enum status check_sum(struct fetch *f, const char *path)
{
    char got[FETCH_HEX + 1];
    if (f->sum[0] == '\0')
        return ST_OK;
    struct file_map map;
    unsigned char digest[FETCH_HEX / 2];
    TRY(file_map_open(path, &map));
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    bool is_good = sum != NULL && EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1;
    const enum status st =
        is_good ? curl_client_partial_hash(&f->partial, &map, 0, add_bytes, sum) : ST_OK;
    file_map_close(&map);
    is_good = is_good && EVP_DigestFinal_ex(sum, digest, NULL) == 1;
    EVP_MD_CTX_free(sum);
    TRY(st);
    if (!is_good)
        return FAIL(ST_RETRY, "%s: OpenSSL cannot compute its SHA-256", path);
    text_hex(digest, FETCH_HEX / 2, got);
    if (strcmp(got, f->sum) != 0)
        return FAIL(ST_BAD_DATA,
                    "%s: the file fetched has sha256 %s, expected %s; it changed, or was damaged "
                    "on the way",
                    f->url, got, f->sum);
    return ST_OK;
}

/* ---- names, lock ---- */

/* read_fragment — copies HEX of "sha256=HEX" to f->sum. */
static enum status read_fragment(struct fetch *f, const char *fragment)
{
    bool is_good = text_starts(fragment, "sha256=") && strlen(fragment) == 7 + FETCH_HEX;
    const char *hex = is_good ? fragment + 7 : "";
    for (int i = 0; is_good && i < FETCH_HEX; i++)
        is_good = text_hex_digit(hex[i]) >= 0;
    if (is_good)
        copy_sum(f, hex);
    else
        return FAIL(ST_BAD_SETTING,
                    "%s: after # only sha256= and %d hexadecimal digits are accepted", f->url,
                    FETCH_HEX);
    return ST_OK;
}

static enum status name_paths(struct fetch *f, const char *url_path)
{
    char name[FETCH_NAME_MAX + 1], key[48];
    const XXH128_hash_t hash = XXH3_128bits(f->url, strlen(f->url));
    /* The last component of the path, in characters that are safe in a file name. Its suffix shows
     * the kind of file. */
    const char *slash = strrchr(url_path, '/'), *from = slash != NULL ? slash + 1 : url_path;
    const size_t n = strlen(from);
    if (n > FETCH_NAME_MAX)
        from += n - FETCH_NAME_MAX; /* the end has the suffix */
    text_copy(name, FETCH_NAME_MAX + 1, from[0] != '\0' ? from : "file");
    for (char *c = name; *c != '\0'; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              strchr("._-", *c) != NULL))
            *c = '_';
    if (name[0] == '.')
        name[0] = '_';
    text_format(key, sizeof key, "downloads/%016llx%016llx", (unsigned long long)hash.high64,
                (unsigned long long)hash.low64);
    if (f->config.cache_dir == NULL || f->config.cache_dir[0] == '\0')
        return FAIL(ST_BAD_SETTING, "no folder to keep %s in; set CACHE_DIR", f->url);
    if (f->config.hub != NULL) {
        const char *file = key + strlen("downloads/");
        text_copy(f->path, sizeof f->path, f->config.hub->path);
        text_copy(f->dir, sizeof f->dir, f->config.hub->partial_dir);
        if (!text_format(f->partial.path, sizeof f->partial.path, "%s/%s.part", f->dir, file) ||
            !text_format(f->same, sizeof f->same, "%s/%s.same", f->dir, file))
            return FAIL(ST_BAD_SETTING, "the path %.80s… is too long; set a shorter CACHE_DIR",
                        f->dir);
        return ST_OK;
    }
    TRY(file_join(f->dir, sizeof f->dir, f->config.cache_dir, key));
    TRY(file_join(f->path, sizeof f->path, f->dir, name));
    if (!text_format(f->partial.path, sizeof f->partial.path, "%s.part", f->path) ||
        !text_format(f->same, sizeof f->same, "%s.same", f->path))
        return FAIL(ST_BAD_SETTING, "the path %.80s… is too long; set a shorter CACHE_DIR",
                    f->path);
    return file_make_dirs(f->dir);
}

static enum status read_url(struct fetch *f, const char *url)
{
    char *fragment = NULL, *user = NULL, *path = NULL, *clean = NULL;
    CURLU *handle = curl_url();
    if (handle == NULL)
        return FAIL(ST_RETRY, "out of memory: cannot read the address %.200s", url);
    enum status st = ST_OK;
    const CURLUcode result = curl_url_set(handle, CURLUPART_URL, url, 0);
    text_copy(f->url, sizeof f->url, url);
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
        st = FAIL(ST_BAD_SETTING, "%s=%.200s: only http:// and https:// addresses are fetched",
                  f->config.setting, url);
    else if (result != CURLUE_OK)
        st = FAIL(ST_BAD_SETTING, "%s=%.200s is not an address: %s", f->config.setting, url,
                  curl_url_strerror(result));
    else if (curl_url_get(handle, CURLUPART_USER, &user, 0) != CURLUE_NO_USER)
        st = FAIL(ST_BAD_SETTING,
                  "an address in %s has a user name or password, which would appear in logs; leave "
                  "it out",
                  f->config.setting);
    if (st == ST_OK && curl_url_get(handle, CURLUPART_FRAGMENT, &fragment, 0) == CURLUE_OK)
        st = read_fragment(f, fragment);
    curl_url_set(handle, CURLUPART_FRAGMENT, NULL, 0);
    if (st == ST_OK && (curl_url_get(handle, CURLUPART_PATH, &path, 0) != CURLUE_OK ||
                        curl_url_get(handle, CURLUPART_URL, &clean, 0) != CURLUE_OK ||
                        !text_copy(f->url, sizeof f->url, clean)))
        st = FAIL(ST_BAD_SETTING, "the address %.80s… is too long", f->url);
    if (st == ST_OK)
        st = name_paths(f, path);
    curl_free(fragment);
    curl_free(user);
    curl_free(path);
    curl_free(clean);
    curl_url_cleanup(handle);
    return st;
}

/* is_kept — returns true if the file is there and need not be requested again. */
static bool is_kept(const struct fetch *f)
{
    return (f->config.hub == NULL || !f->config.hub->is_fresh) && file_exists(f->path);
}

/* use_kept — uses a file fetched before, if its checksum is right. */
static enum status use_kept(struct fetch *f, bool *is_good)
{
    *is_good = is_kept(f);
    if (!*is_good || f->config.hub != NULL) /* the path of a hub's file has its commit */
        return ST_OK;
    const enum status st = check_sum(f, f->path);
    if (st == ST_BAD_DATA) {
        LOG_WARN("%s; it is fetched again", status_message());
        status_clear();
        *is_good = false;
        return curl_client_partial_remove(f->path);
    }
    if (st == ST_OK)
        LOG_INFO("%s was fetched before; remove %s to fetch it again", f->url, f->path);
    return st;
}

static enum status fetch_url(struct fetch *f)
{
    bool is_done;
    TRY(use_kept(f, &is_done));
    if (is_done)
        return ST_OK;
    const bool is_fresh = f->config.hub != NULL && f->config.hub->is_fresh;
    TRY(curl_client_partial_lock(&f->partial, is_fresh ? NULL : f->path, &is_done));
    f->most = f->partial.have;
    if (is_done)
        return check_sum(f, f->path);
    assert_note("fetching %.80s", f->url);
    TRY(transfer_all(f));
    if (f->partial.have == 0 && f->config.hub == NULL)
        return FAIL(ST_BAD_DATA, "%s is empty; check the address", f->url);
    if (f->partial.total < 0 && f->config.hub == NULL)
        LOG_WARN("%s: the server did not send the size of the file; %lld bytes arrived, and a "
                 "cut would not be noticed",
                 f->url, (long long)f->partial.have);
    const enum status st = check_sum(f, f->partial.path);
    if (st == ST_BAD_DATA) {
        unlink(f->partial.path);
        unlink(f->same);
    }
    TRY(st);
    TRY(curl_client_partial_commit(&f->partial, f->path));
    unlink(f->same);
    if (f->config.hub == NULL || !f->config.hub->is_fresh)
        LOG_INFO("fetched %s: %lld bytes, kept in %s", f->url, (long long)f->partial.have, f->path);
    return ST_OK;
}

enum status fetch_file(const struct fetch_config *config, const char *url,
                       char path_out[FILE_PATH_MAX])
{
    struct fetch *f = memory_new(1, sizeof *f);
    f->config = *config;
    f->config.setting = config->setting != NULL ? config->setting : "DATA";
    f->config.bytes_max = config->bytes_max > 0 ? config->bytes_max : FETCH_BYTES_MAX;
    f->config.unknown_max = config->unknown_max > 0 ? config->unknown_max : FETCH_UNKNOWN_MAX;
    if (f->config.unknown_max > f->config.bytes_max)
        f->config.unknown_max = f->config.bytes_max;
    f->config.slow_ms = config->slow_ms > 0 ? config->slow_ms : FETCH_SLOW_MS;
    f->config.rate_min = config->rate_min > 0 ? config->rate_min : FETCH_RATE_MIN;
    f->config.retry_ms = config->retry_ms > 0 ? config->retry_ms : FETCH_RETRY_MS;
    f->partial = (struct curl_client_partial){.what = f->url,
                                              .cache_dir = config->cache_dir,
                                              .progress = config->progress,
                                              .progress_arg = config->progress_arg,
                                              .fd = -1};
    enum status st = read_url(f, url);
    if (st == ST_OK)
        st = fetch_url(f);
    curl_client_partial_close(&f->partial);
    if (st == ST_OK)
        text_copy(path_out, FILE_PATH_MAX, f->path);
    free(f);
    return st;
}

/* s3_request — see s3_request.h. Read s3_request_send, at the end, first. */
#include "remote/s3_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "remote/s3_error.h"

enum {
    REQUEST_TRIES = 8, /* in a row without progress */
    REQUEST_CONNECT_MS = 30000,
    REQUEST_RATE_MIN = 4096, /* bytes/s */
    REQUEST_WAIT_MAX_MS = 20000,
    REQUEST_RETRY_AFTER_MAX_MS = 300000,
    REQUEST_ANSWER_MAX = 65536,        /* bytes of an error */
    REQUEST_BUFFER = 512 << 10,        /* bytes that libcurl reads or writes in one piece */
    REQUEST_UPLOAD_BUFFER = 256 << 10, /* the same for bodies of requests */
    REQUEST_HASH_BYTES = 128 << 10,
    REQUEST_EXPECT_BYTES = 1 << 20, /* a larger object waits for the store's consent */
};

/* One try. */
struct attempt {
    struct s3_connection *c;
    struct s3_request *r;
    int64_t sent;       /* bytes of the body */
    int64_t counted;    /* bytes added to r->moved that do not last if the try fails */
    bool is_begun;      /* the body of a success has begun */
    bool is_stopped;    /* goes_on was false */
    enum status st;     /* the error of a callback */
    struct text answer; /* the body of an error */
};

const char *s3_request_name(const struct s3 *s3, const char *key, char *out, size_t cap)
{
    char name[S3_NAME_MAX];
    text_format(name, sizeof name, "s3://%s/%s", s3->bucket, key != NULL ? key : "");
    return text_printable(out, cap, name);
}

void s3_request_close(struct s3_connection *connection)
{
    if (connection->easy != NULL)
        curl_easy_cleanup(connection->easy);
    connection->easy = NULL;
}

/* Fails for a request that its user stopped. */
static enum status fail_stopped(const struct s3_connection *c, const struct s3_request *r)
{
    char name[256];
    return FAIL(ST_RETRY, "stopped: cannot %s %s", r->verb,
                s3_request_name(c->s3, r->key, name, sizeof name));
}

static bool goes_on(const struct s3_connection *c)
{
    return c->goes_on == NULL || c->goes_on(c->arg);
}

/* ---- the body of the request ---- */

/* Reads bytes of a file that is sent; the file must not become shorter. */
static enum status read_body(const struct s3_request *r, void *out, size_t n, int64_t offset)
{
    for (size_t at = 0; at < n;) {
        const ssize_t got =
            pread(r->body_fd, (char *)out + at, n - at, (off_t)(offset + (int64_t)at));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return FAIL(ST_STORE, "cannot read the file that is uploaded: %s", strerror(errno));
        if (got == 0)
            return FAIL(ST_BAD_DATA, "a file became shorter while it was uploaded");
        at += (size_t)got;
    }
    return ST_OK;
}

/* Computes the SHA-256 of a part of a file. */
static enum status hash_file(const struct s3_connection *c, const struct s3_request *r,
                             char out[AWS_SIGN_SHA256_MAX])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    char *buffer = malloc(REQUEST_HASH_BYTES);
    bool is_good = sum != NULL && buffer != NULL && EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1;
    enum status st = ST_OK;
    for (int64_t at = 0; is_good && st == ST_OK && at < r->body_bytes;) {
        const int64_t left = r->body_bytes - at;
        const size_t n = left < REQUEST_HASH_BYTES ? (size_t)left : REQUEST_HASH_BYTES;
        st = read_body(r, buffer, n, r->body_offset + at);
        is_good = EVP_DigestUpdate(sum, buffer, n) == 1;
        if (st == ST_OK && !goes_on(c))
            st = fail_stopped(c, r);
        at += (int64_t)n;
    }
    is_good = is_good && EVP_DigestFinal_ex(sum, digest, NULL) == 1;
    if (st == ST_OK && !is_good)
        st = FAIL(ST_RETRY, "OpenSSL cannot compute a SHA-256; out of memory?");
    if (st == ST_OK)
        text_hex(digest, (AWS_SIGN_SHA256_MAX - 1) / 2, out);
    free(buffer);
    EVP_MD_CTX_free(sum);
    return st;
}

static size_t on_read(char *out, size_t one, size_t n, void *arg)
{
    struct attempt *a = arg;
    const struct s3_request *r = a->r;
    const int64_t left = r->body_bytes - a->sent;
    n *= one;
    n = (int64_t)n < left ? n : (size_t)left;
    if (r->body != NULL)
        memcpy(out, (const char *)r->body + a->sent, n);
    else if (n > 0) {
        a->st = read_body(r, out, n, r->body_offset + a->sent);
        if (a->st != ST_OK)
            return CURL_READFUNC_ABORT;
    }
    a->sent += (int64_t)n;
    if (r->moved != NULL) {
        *r->moved += (int64_t)n;
        a->counted += (int64_t)n;
    }
    return n;
}

/* libcurl sends the body again on another connection if the kept one was closed. */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct attempt *a = arg;
    if (origin != SEEK_SET || offset < 0 || offset > a->r->body_bytes)
        return CURL_SEEKFUNC_CANTSEEK;
    if (a->r->moved != NULL) {
        *a->r->moved -= a->counted;
        a->counted = 0;
    }
    a->sent = offset;
    return CURL_SEEKFUNC_OK;
}

/* ---- the body of the response ---- */

/* Checks that a response has the range and the version of the object that were requested. */
static enum status begin_body(struct attempt *a)
{
    const struct s3_request *r = a->r;
    char name[256];
    s3_request_name(a->c->s3, r->key, name, sizeof name);
    a->is_begun = true;
    if (r->n == 0)
        return ST_OK;
    if (r->etag != NULL && r->headers.is_etag && strcmp(r->headers.validator, r->etag) != 0)
        return FAIL(ST_BAD_DATA,
                    "%s changed while it was downloaded: its ETag is %s, expected %s; start again "
                    "when it is no longer written",
                    name, r->headers.validator, r->etag);
    if (r->code == 206 && r->headers.range_first == r->first + r->have)
        return ST_OK;
    if (r->code == 200 && r->first + r->have == 0 && r->headers.length == r->n)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: the store sent HTTP %ld and bytes from %lld on, expected bytes from %lld on; "
                "it does not support ranges",
                name, r->code, (long long)r->headers.range_first, (long long)(r->first + r->have));
}

/* Stores bytes of the body of a success. */
static enum status store_body(struct attempt *a, const char *bytes, size_t n)
{
    struct s3_request *r = a->r;
    if (!a->is_begun)
        TRY(begin_body(a));
    if (r->text != NULL) {
        text_add_bytes(r->text, bytes, n);
        char name[256];
        return !r->text->overflow
                   ? ST_OK
                   : FAIL(ST_BAD_DATA, "%s has more than %zu bytes, the limit for it",
                          s3_request_name(a->c->s3, r->key, name, sizeof name), r->text->limit);
    }
    if ((int64_t)n > r->n - r->have)
        return FAIL(ST_BAD_DATA, "%s: the store sent more bytes than were requested", r->out_path);
    TRY(file_write_at(r->out_fd, r->out_path, bytes, n, r->first + r->have));
    r->have += (int64_t)n;
    if (r->moved != NULL)
        *r->moved += (int64_t)n;
    return ST_OK;
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *arg)
{
    struct attempt *a = arg;
    (void)one; /* always 1 */
    a->r->code = curl_client_http_code(a->c->easy);
    if (a->r->code >= 200 && a->r->code < 300)
        a->st = store_body(a, bytes, n);
    else
        text_add_bytes(&a->answer, bytes, n); /* bytes beyond the limit are dropped */
    return a->st == ST_OK ? n : 0;
}

static size_t on_header(char *line, size_t one, size_t n, void *arg)
{
    struct attempt *a = arg;
    (void)one;
    http_headers_line(&a->r->headers, line, n);
    return n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct attempt *attempt = arg;
    (void)a, (void)b, (void)c, (void)d;
    if (!goes_on(attempt->c))
        attempt->is_stopped = true;
    return attempt->is_stopped || attempt->st != ST_OK;
}

/* ---- one try ---- */

/* Opens the handle of a connection, with the options that all its requests have. */
static enum status open_connection(struct s3_connection *c)
{
    const struct s3_config *s3 = &c->s3->config;
    const struct curl_client_config config = {.server = c->s3->base,
                                              .uses_proxy = s3->allows_local,
                                              .connect_ms = REQUEST_CONNECT_MS,
                                              .error = c->error};
    if (c->easy != NULL)
        return ST_OK;
    TRY(curl_client_open(&config, &c->easy));
    c->guard = (struct curl_client_guard){.allows_local = s3->allows_local};
    curl_easy_setopt(c->easy, CURLOPT_USERAGENT, "convoy");
    curl_easy_setopt(c->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c->easy, CURLOPT_PATH_AS_IS, 1L); /* a key may have "/../" */
    curl_easy_setopt(c->easy, CURLOPT_BUFFERSIZE, (long)REQUEST_BUFFER);
    curl_easy_setopt(c->easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)REQUEST_UPLOAD_BUFFER);
    curl_easy_setopt(c->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c->easy, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(c->easy, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(c->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c->easy, CURLOPT_NOPROGRESS, 0L);
    if (c->s3->ca_file != NULL)
        curl_easy_setopt(c->easy, CURLOPT_CAINFO, c->s3->ca_file);
    return ST_OK;
}

/* Appends "name: value" to the headers. */
static bool add_header(struct curl_slist **headers, const char *name, const char *value)
{
    struct text line = {0};
    text_add(&line, "%s: %s", name, value);
    struct curl_slist *more = line.overflow ? NULL : curl_slist_append(*headers, line.data);
    if (line.data != NULL)
        explicit_bzero(line.data, line.cap);
    text_free(&line);
    if (more == NULL)
        return false;
    *headers = more;
    return true;
}

/* Frees headers, which may have a session token. */
static void free_headers(struct curl_slist *headers)
{
    for (struct curl_slist *at = headers; at != NULL; at = at->next)
        explicit_bzero(at->data, strlen(at->data));
    curl_slist_free_all(headers);
}

/* Signs the request, and writes its headers. */
static enum status write_headers(const struct attempt *a, const char *path,
                                 struct curl_slist **headers)
{
    const struct s3_request *r = a->r;
    char sha256[AWS_SIGN_SHA256_MAX], time[AWS_SIGN_TIME_MAX], range[64];
    if (r->has_body && r->body == NULL)
        TRY(hash_file(a->c, r, sha256));
    else
        TRY(aws_sign_sha256(r->has_body ? r->body : "", r->has_body ? (size_t)r->body_bytes : 0,
                            sha256));
    aws_sign_time(clock_wall_ms(), time);
    struct aws_sign_request sign = {.method = r->method,
                                    .path = path,
                                    .query = r->query != NULL ? r->query : "",
                                    .header = {{"host", a->c->s3->host},
                                               {"x-amz-content-sha256", sha256},
                                               {"x-amz-date", time}},
                                    .headers_n = 3,
                                    .payload_sha256 = sha256,
                                    .time = time,
                                    .region = a->c->s3->region,
                                    .service = "s3"};
    if (r->n > 0) {
        text_format(range, sizeof range, "bytes=%lld-%lld", (long long)(r->first + r->have),
                    (long long)(r->first + r->n - 1));
        sign.header[sign.headers_n++] = (struct aws_sign_header){"range", range};
    }
    if (r->etag != NULL)
        sign.header[sign.headers_n++] = (struct aws_sign_header){"if-match", r->etag};
    struct text authorization = {0}, token = {0};
    enum status st = aws_credentials_sign(a->c->s3->credentials, &sign, &authorization, &token,
                                          a->c->goes_on, a->c->arg);
    if (st == ST_OK) {
        bool is_good = true;
        for (int i = 0; i < sign.headers_n; i++)
            is_good = is_good && add_header(headers, sign.header[i].name, sign.header[i].value);
        if (authorization.len > 0)
            is_good = is_good && add_header(headers, "Authorization", authorization.data);
        if (r->query != NULL || !r->has_body || r->body_bytes <= REQUEST_EXPECT_BYTES)
            is_good = is_good && add_header(headers, "Expect", "");
        if (!is_good)
            st = FAIL(ST_RETRY, "out of memory: cannot prepare a request to %s", a->c->s3->base);
    }
    if (token.data != NULL)
        explicit_bzero(token.data, token.cap);
    text_free(&token);
    text_free(&authorization);
    return st;
}

/* Sets the options of this request. */
static void set_options(struct attempt *a, const char *url, struct curl_slist *headers)
{
    CURL *easy = a->c->easy;
    const struct s3_request *r = a->r;
    const bool is_head = strcmp(r->method, "HEAD") == 0;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L); /* resets the two below */
    if (is_head)
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (r->has_body)
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST,
                     is_head || strcmp(r->method, "GET") == 0 ? NULL : r->method);
    curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE,
                     (curl_off_t)(r->has_body ? r->body_bytes : -1));
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, a);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, a);
    curl_easy_setopt(easy, CURLOPT_READDATA, a);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, a);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, a);
    const long slow_s = (long)((a->c->s3->config.slow_ms + 999) / 1000);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)r->total_ms);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, (long)(r->total_ms > 0 ? 0 : REQUEST_RATE_MIN));
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, r->total_ms > 0 ? 0 : slow_s);
    curl_client_guard_set(easy, &a->c->guard);
}

/* Classifies a request that got no complete response. */
static enum status fail_transfer(const struct attempt *a, CURLcode result, bool *again)
{
    const struct s3_connection *c = a->c;
    char name[256];
    s3_request_name(c->s3, a->r->key, name, sizeof name);
    *again = false;
    if (a->is_stopped)
        return fail_stopped(c, a->r);
    if (a->st != ST_OK)
        return a->st;
    if (c->guard.refused[0] != '\0' && result == CURLE_COULDNT_CONNECT)
        return FAIL(ST_BAD_SETTING,
                    "cannot %s %s: %s leads to %s, an address of this machine or of a private "
                    "network; set ALLOW_LOCAL_URLS=1 if that is meant",
                    a->r->verb, name, c->s3->base, c->guard.refused);
    const char *said = curl_client_error(c->error, result);
    if (curl_client_is_final(c->error, result))
        return FAIL(ST_BAD_SETTING, "cannot %s %s at %s: %s; check AWS_ENDPOINT_URL and AWS_REGION",
                    a->r->verb, name, c->s3->base, said);
    *again = true;
    return FAIL(ST_RETRY, "cannot %s %s at %s: %s; start again later", a->r->verb, name,
                c->s3->base, said);
}

/* Classifies a response that is no success. */
static enum status fail_response(struct attempt *a, bool *again, bool *is_expired)
{
    const struct s3 *s3 = a->c->s3;
    struct s3_request *r = a->r;
    struct s3_error error;
    struct curl_header *region;
    char name[256], source[300];
    const bool has_region = curl_easy_header(a->c->easy, "x-amz-bucket-region", 0, CURLH_HEADER, -1,
                                             &region) == CURLHE_OK;
    s3_error_read(&error, r->code, a->answer.data != NULL ? a->answer.data : "", a->answer.len,
                  has_region ? region->value : NULL);
    *again = s3_error_passes(&error);
    *is_expired = s3_error_is_expired(&error);
    if (!*again && strcmp(r->method, "HEAD") == 0)
        return ST_OK;
    if (r->accepts_missing && s3_error_is_missing(&error)) {
        r->code = 404;
        return ST_OK;
    }
    const struct s3_error_request request = {
        .verb = r->verb,
        .name = s3_request_name(s3, r->key, name, sizeof name),
        .bucket = s3->bucket,
        .region = s3->region,
        .method = r->method,
        .is_list = r->key == NULL,
        .credentials = aws_credentials_source(s3->credentials, source, sizeof source)};
    return s3_error_fail(&error, &request);
}

/* Checks the end of a success: a 200 may have an error as its body, and a range may be cut. */
static enum status finish_success(struct attempt *a, bool *again, bool *is_expired)
{
    struct s3_request *r = a->r;
    char name[256];
    if (!a->is_begun && strcmp(r->method, "HEAD") != 0)
        TRY(begin_body(a));
    if (r->n > 0 && r->text == NULL && r->have < r->n) {
        *again = true;
        return FAIL(ST_RETRY, "%s is cut off: %lld bytes arrived, expected %lld",
                    s3_request_name(a->c->s3, r->key, name, sizeof name), (long long)r->have,
                    (long long)r->n);
    }
    if (strcmp(r->method, "POST") == 0 && r->text != NULL && r->text->len > 0 &&
        strstr(r->text->data, "<Error>") != NULL) {
        text_add_bytes(&a->answer, r->text->data, r->text->len);
        r->code = 500; /* S3 sends this when the status line was already sent */
        return fail_response(a, again, is_expired);
    }
    return ST_OK;
}

/* Sends the request once. *again: another try may succeed; *after_ms: the wait that the store
 * asked for. */
static enum status try_once(struct s3_connection *c, struct s3_request *r, bool *again,
                            bool *is_expired, int64_t *after_ms)
{
    struct attempt a = {.c = c, .r = r, .answer.limit = REQUEST_ANSWER_MAX};
    struct curl_slist *headers = NULL;
    struct text path = {0}, url = {0};
    const size_t text_len = r->text != NULL ? r->text->len : 0;
    *again = *is_expired = false;
    *after_ms = 0;
    TRY(open_connection(c));
    text_add(&path, "%s/", c->s3->path);
    aws_sign_encode(&path, r->key != NULL ? r->key : "", true);
    text_add(&url, "%s%s%s%s", c->s3->base, path.data, r->query != NULL ? "?" : "",
             r->query != NULL ? r->query : "");
    r->code = 0;
    r->headers = (struct http_headers){.length = -1, .range_first = -1, .range_total = -1};
    enum status st = write_headers(&a, path.data, &headers);
    if (st == ST_OK) {
        set_options(&a, url.data, headers);
        const CURLcode result = curl_easy_perform(c->easy);
        r->code = curl_client_http_code(c->easy);
        /* a store may close the connection after an error, before it has read the whole body */
        if (result != CURLE_OK && (r->code < 300 || a.is_stopped || a.answer.len == 0))
            st = fail_transfer(&a, result, again);
        else if (r->code < 200 || r->code >= 300)
            st = fail_response(&a, again, is_expired);
        else
            st = finish_success(&a, again, is_expired);
        curl_off_t seconds = 0;
        if (*again && curl_easy_getinfo(c->easy, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK)
            *after_ms = seconds < 86400 ? (int64_t)seconds * 1000 : 86400 * 1000;
    }
    if (st != ST_OK && r->moved != NULL)
        *r->moved -= a.counted;
    if (st != ST_OK && r->text != NULL && r->text->data != NULL) {
        r->text->len = text_len;
        r->text->data[text_len] = '\0';
    }
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, NULL);
    free_headers(headers);
    text_free(&path);
    text_free(&url);
    text_free(&a.answer);
    return st;
}

/* ---- retries ---- */

/* Waits before another try: exponential back-off with jitter, or longer if the store asked for
 * it. */
static enum status wait_for_retry(const struct s3_connection *c, const struct s3_request *r,
                                  int tries, int64_t after_ms)
{
    int64_t ms = c->s3->config.retry_ms << (tries - 1 < 16 ? tries - 1 : 16);
    uint32_t random = 0;
    ms = ms < REQUEST_WAIT_MAX_MS ? ms : REQUEST_WAIT_MAX_MS;
    (void)RAND_bytes((unsigned char *)&random, sizeof random);
    ms = ms / 2 + (int64_t)random * (ms - ms / 2) / UINT32_MAX;
    for (int64_t end = clock_ms() + (ms > after_ms ? ms : after_ms); clock_ms() < end;) {
        if (!goes_on(c))
            return fail_stopped(c, r);
        const int64_t left = end - clock_ms();
        clock_sleep_ms(left < 50 ? left : 50);
    }
    return ST_OK;
}

enum status s3_request_send(struct s3_connection *c, struct s3_request *r)
{
    int64_t waited_ms = 0;
    bool is_renewed = false;
    for (int tries = 0;;) {
        bool again, is_expired;
        int64_t after_ms;
        const int64_t have = r->have, began_ms = clock_ms();
        const enum status st = try_once(c, r, &again, &is_expired, &after_ms);
        if (is_expired && !is_renewed && aws_credentials_expire(c->s3->credentials)) {
            is_renewed = true; /* newer credentials, once */
            status_clear();
            continue;
        }
        if (st == ST_OK)
            return ST_OK;
        if (!again)
            return status_trace_at(__FILE__, __LINE__, st);
        const int64_t took_ms = waited_ms + clock_ms() - began_ms;
        const bool moves = r->have > have && (r->have - have) * 1000 >= REQUEST_RATE_MIN * took_ms;
        tries = moves ? 1 : tries + 1;
        if (tries >= (r->tries > 0 ? r->tries : REQUEST_TRIES))
            return status_trace_at(__FILE__, __LINE__, st);
        if (after_ms > REQUEST_RETRY_AFTER_MAX_MS)
            return FAIL(ST_RETRY, "%s (and wants no request for %lld s)", status_message(),
                        (long long)(after_ms / 1000));
        c->s3->config.on_retry(c->s3->config.on_retry_arg, status_message());
        status_clear();
        const int64_t wait_ms = clock_ms();
        TRY(wait_for_retry(c, r, tries, after_ms));
        waited_ms = clock_ms() - wait_ms;
    }
}

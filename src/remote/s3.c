/* s3 — see s3.h. The transfers of files are in s3_download.c and s3_upload.c. */
#include "remote/s3.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "remote/s3_page.h"
#include "remote/s3_request.h"

enum {
    S3_PAGE_BYTES_MAX = 16 << 20, /* bytes of one page of a list */
    S3_ANSWER_MAX = 65536,
    S3_REPORT_MS = 200,
    S3_RETRY_MS = 500,
    S3_SLOW_MS = 60000,
};
#define S3_PART_BYTES ((int64_t)64 << 20)

/* ---- names ---- */

bool s3_address_is(const char *name) { return text_starts(name, "s3://"); }

/* Returns true for a name that S3 allows for a bucket. */
static bool is_bucket(const char *name, size_t n)
{
    if (n < 3 || n >= S3_BUCKET_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        const char c = name[i];
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        /* a dot or a hyphen is neither first nor last, and no two dots are neighbours */
        if (!is_plain &&
            ((c != '.' && c != '-') || i == 0 || i == n - 1 || (c == '.' && name[i - 1] == '.')))
            return false;
    }
    return true;
}

enum status s3_address_parse(const char *name, struct s3_address *out)
{
    char printable[256];
    const char *bucket = name + 5, *slash;
    if (!s3_address_is(name))
        return FAIL(ST_BAD_SETTING, "%s is no name such as s3://bucket/key",
                    text_printable(printable, sizeof printable, name));
    slash = strchr(bucket, '/');
    const size_t n = slash != NULL ? (size_t)(slash - bucket) : strlen(bucket);
    const char *key = slash != NULL ? slash + 1 : "";
    if (!is_bucket(bucket, n))
        return FAIL(ST_BAD_SETTING,
                    "%s: a bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens; "
                    "expected s3://bucket/key",
                    text_printable(printable, sizeof printable, name));
    if (strlen(key) >= S3_KEY_MAX || !text_is_printable(key))
        return FAIL(ST_BAD_SETTING,
                    "%s: the key is longer than %d bytes, or has bytes that are no printable UTF-8",
                    text_printable(printable, sizeof printable, name), S3_KEY_MAX - 1);
    memcpy(out->bucket, bucket, n);
    out->bucket[n] = '\0';
    memcpy(out->key, key, strlen(key) + 1);
    return ST_OK;
}

/* ---- the endpoint ---- */

/* Sets scheme, host, path and the store's name from the variables' endpoint. */
static enum status set_endpoint(struct s3 *s3, const char *variable, const char *url)
{
    char *scheme = NULL, *host = NULL, *port = NULL, *path = NULL, *other = NULL;
    CURLU *handle = curl_url();
    if (handle == NULL)
        return FAIL(ST_RETRY, "out of memory: cannot read %s", variable);
    bool is_good = curl_url_set(handle, CURLUPART_URL, url, 0) == CURLUE_OK &&
                   curl_url_get(handle, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                   (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
                   curl_url_get(handle, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                   curl_url_get(handle, CURLUPART_PATH, &path, 0) == CURLUE_OK;
    static const CURLUPart others[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY,
                                       CURLUPART_FRAGMENT};
    for (size_t i = 0; is_good && i < sizeof others / sizeof *others; i++) {
        is_good = curl_url_get(handle, others[i], &other, 0) != CURLUE_OK;
        curl_free(other);
        other = NULL;
    }
    if (is_good) {
        const bool has_port =
            curl_url_get(handle, CURLUPART_PORT, &other, CURLU_NO_DEFAULT_PORT) == CURLUE_OK;
        size_t n = strlen(path);
        while (n > 0 && path[n - 1] == '/')
            path[--n] = '\0';
        is_good = curl_url_get(handle, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                  text_format(s3->store, sizeof s3->store, "%s:%s%s", host, port, path) &&
                  text_format(s3->host, sizeof s3->host, "%s%s%s", host, has_port ? ":" : "",
                              has_port ? port : "") &&
                  text_format(s3->base, sizeof s3->base, "%s://%s", scheme, s3->host) &&
                  text_format(s3->path, sizeof s3->path, "%s/%s", path, s3->bucket);
        for (char *c = s3->store; *c != '\0'; c++)
            *c = *c == '/' ? ':' : *c;
    }
    curl_free(other);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(path);
    curl_url_cleanup(handle);
    if (!is_good)
        return FAIL(ST_BAD_SETTING,
                    "%s is not an address such as https://host:9000, without user name and query",
                    variable);
    return ST_OK;
}

/* Sets scheme, host, path and name of Amazon's own stores. */
static void set_amazon(struct s3 *s3)
{
    const char *end = text_starts(s3->region, "cn-") ? ".cn" : "";
    /* a certificate for *.s3… does not fit a bucket with dots */
    const bool is_path = strchr(s3->bucket, '.') != NULL;
    text_copy(s3->store, sizeof s3->store, "aws");
    text_format(s3->host, sizeof s3->host, "%s%ss3.%s.amazonaws.com%s", is_path ? "" : s3->bucket,
                is_path ? "" : ".", s3->region, end);
    text_format(s3->base, sizeof s3->base, "https://%s", s3->host);
    text_format(s3->path, sizeof s3->path, "%s%s", is_path ? "/" : "", is_path ? s3->bucket : "");
}

/* Sets the store that the environment names. */
static enum status set_store(struct s3 *s3)
{
    extern char **environ;
    static const char *const variables[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *url = text_variable(environ, variables[i]);
        if (url != NULL && url[0] != '\0')
            return set_endpoint(s3, variables[i], url);
    }
    set_amazon(s3);
    return ST_OK;
}

enum status s3_store_name(char out[S3_STORE_MAX])
{
    struct s3 *s3 = memory_new(1, sizeof *s3);
    const enum status st = set_store(s3);
    text_copy(out, S3_STORE_MAX, s3->store);
    free(s3);
    return st;
}

/* ---- open and close ---- */

/* Reports the progress, at most five times a second. */
static bool report_progress(void *arg)
{
    struct s3 *s3 = arg;
    const int64_t now_ms = clock_ms();
    if (s3->config.progress == NULL || now_ms - s3->reported_ms < S3_REPORT_MS)
        return true;
    s3->reported_ms = now_ms;
    if (s3->moved != NULL)
        s3->done = *s3->moved;
    return s3->config.progress(s3->config.progress_arg, s3->done, s3->total);
}

/* Logs the message of a failed try. */
static void log_retry(void *arg, const char *message)
{
    (void)arg;
    LOG_WARN("%s; trying again", message);
}

enum status s3_open(const struct s3_config *config, struct s3 **out)
{
    extern char **environ;
    struct s3 *s3 = memory_new(1, sizeof *s3);
    s3->config = *config;
    if (s3->config.part_bytes <= 0)
        s3->config.part_bytes = S3_PART_BYTES;
    if (s3->config.retry_ms <= 0)
        s3->config.retry_ms = S3_RETRY_MS;
    if (s3->config.slow_ms <= 0)
        s3->config.slow_ms = S3_SLOW_MS;
    if (s3->config.on_retry == NULL)
        s3->config.on_retry = log_retry;
    s3->connection = (struct s3_connection){.s3 = s3, .goes_on = report_progress, .arg = s3};
    text_copy(s3->bucket, sizeof s3->bucket, config->bucket);
    s3->config.bucket = s3->bucket;
    const struct aws_credentials_config credentials = {.environment = environ,
                                                       .allows_local = config->allows_local};
    enum status st = aws_credentials_open(&credentials, &s3->credentials);
    if (st == ST_OK) {
        text_copy(s3->region, sizeof s3->region, aws_credentials_region(s3->credentials));
        st = set_store(s3);
        s3->ca_file = text_variable(environ, "AWS_CA_BUNDLE");
    }
    if (st == ST_OK)
        *out = s3;
    else
        s3_close(s3);
    return st;
}

void s3_close(struct s3 *s3)
{
    if (s3 == NULL)
        return;
    s3_request_close(&s3->connection);
    aws_credentials_close(s3->credentials);
    free(s3);
}

/* ---- lists ---- */

/* Requests the page after page->token ("": the first one), and adds its objects. */
static enum status list_page(struct s3 *s3, const char *prefix, struct s3_list *list,
                             struct s3_page *page)
{
    struct text query = {0}, answer = {.limit = S3_PAGE_BYTES_MAX};
    char name[256];
    if (page->token[0] != '\0') {
        text_add(&query, "continuation-token=");
        aws_sign_encode(&query, page->token, false);
        text_add(&query, "&");
    }
    text_add(&query, "encoding-type=url&list-type=2&prefix=");
    aws_sign_encode(&query, prefix, false);
    struct s3_request request = {
        .verb = "list", .method = "GET", .query = query.data, .text = &answer, .out_fd = -1};
    enum status st = s3_request_send(&s3->connection, &request);
    if (st == ST_OK)
        st = s3_page_read(answer.data != NULL ? answer.data : "", answer.len, prefix,
                          s3_request_name(s3, prefix, name, sizeof name), list, page);
    text_free(&query);
    text_free(&answer);
    return st;
}

static int compare_objects(const void *a, const void *b)
{
    return strcmp(((const struct s3_object *)a)->key, ((const struct s3_object *)b)->key);
}

enum status s3_list(struct s3 *s3, const char *prefix, struct s3_list *out)
{
    struct s3_page *page = memory_new(1, sizeof *page);
    *out = (struct s3_list){0};
    enum status st;
    do
        st = list_page(s3, prefix, out, page);
    while (st == ST_OK && page->is_truncated);
    free(page);
    if (st != ST_OK)
        s3_list_free(out);
    else if (out->n > 0)
        qsort(out->item, (size_t)out->n, sizeof *out->item, compare_objects);
    return st;
}

void s3_list_free(struct s3_list *list)
{
    for (int64_t i = 0; i < list->n; i++)
        free((char *)list->item[i].key);
    free(list->item);
    *list = (struct s3_list){0};
}

/* ---- small requests ---- */

enum status s3_head(struct s3 *s3, const char *key, struct s3_object *out, bool *found_out)
{
    struct text answer = {.limit = S3_ANSWER_MAX};
    char name[256];
    struct s3_request head = {.verb = "read",
                              .method = "HEAD",
                              .key = key,
                              .text = &answer,
                              .out_fd = -1},
                      read = {.verb = "read",
                              .method = "GET",
                              .key = key,
                              .n = 1,
                              .accepts_missing = true,
                              .text = &answer,
                              .out_fd = -1};
    struct s3_request *r = &head;
    enum status st = s3_request_send(&s3->connection, &head);
    if (st == ST_OK && head.code != 200) { /* the error of a GET has a body, which explains it */
        r = &read;
        st = s3_request_send(&s3->connection, &read);
    }
    text_free(&answer);
    TRY(st);
    *found_out = r->code != 404;
    if (!*found_out)
        return ST_OK;
    *out = (struct s3_object){.key = key,
                              .bytes = r->code == 206 ? r->headers.range_total : r->headers.length};
    if (out->bytes < 0 || !r->headers.is_etag ||
        !text_copy(out->etag, sizeof out->etag, r->headers.validator))
        return FAIL(ST_BAD_DATA, "%s: the store sent no length or no ETag; check AWS_ENDPOINT_URL",
                    s3_request_name(s3, key, name, sizeof name));
    return ST_OK;
}

enum status s3_read(struct s3 *s3, const char *key, size_t most, struct text *out, bool *found_out)
{
    struct text text = {.limit = most};
    struct s3_request request = {.verb = "read",
                                 .method = "GET",
                                 .key = key,
                                 .accepts_missing = true,
                                 .text = &text,
                                 .out_fd = -1};
    const enum status st = s3_request_send(&s3->connection, &request);
    text_free(out);
    *found_out = st == ST_OK && request.code != 404;
    if (*found_out)
        *out = text;
    else
        text_free(&text);
    return st;
}

enum status s3_write(struct s3 *s3, const char *key, const void *bytes, size_t n)
{
    struct text answer = {.limit = S3_ANSWER_MAX};
    struct s3_request request = {.verb = "write",
                                 .method = "PUT",
                                 .key = key,
                                 .has_body = true,
                                 .body = n > 0 ? bytes : "",
                                 .body_bytes = (int64_t)n,
                                 .text = &answer,
                                 .out_fd = -1};
    const enum status st = s3_request_send(&s3->connection, &request);
    text_free(&answer);
    return st;
}

enum status s3_delete(struct s3 *s3, const char *key)
{
    struct text answer = {.limit = S3_ANSWER_MAX};
    struct s3_request request = {.verb = "delete",
                                 .method = "DELETE",
                                 .key = key,
                                 .accepts_missing = true,
                                 .text = &answer,
                                 .out_fd = -1};
    const enum status st = s3_request_send(&s3->connection, &request);
    text_free(&answer);
    return st;
}

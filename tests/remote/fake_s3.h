/* fake_s3 — a small S3 server for tests: objects in memory, a thread for each connection, faults on
 * request. It checks the signature of every request from the bytes that arrived, by itself.
 *
 * Path style only. Buckets: bucket; public (anonymous reads); readonly (no writes); elsewhere
 * (another region). Keys: AKIDFAKE with "fake/secret+key" and, if a token is sent, "fake-token".
 *
 *   GET  /_state                         "object KEY BYTES SENT GETS" for each object; "uploads N";
 *                                        "requests N"; "forged N"
 *   GET  /_object/BUCKET/KEY             an object without a signature; PUT sets one
 *   PUT  /_fault?kind=K&n=N&method=M&key=PART&at=BYTES   the next N requests with this method and
 *                                        PART in their path fail so; DELETE ends all faults
 *   PUT  /latest/api/token, GET /latest/meta-data/…, GET /container, POST /   credentials
 *
 * Kinds: 503, retry-after (503 and Retry-After: at), 403, 500, cut (after at bytes of the body),
 * slow (at bytes, then 20 bytes/s), change (the object changes before the answer), swap (another
 * ETag in the answer, If-Match ignored), whole (Range ignored), skew, nobucket, expired, key, sum
 * (the body counts as damaged), error200, page (HTML), garbage,
 * redirect, full. */
#ifndef CONVOY_TESTS_REMOTE_FAKE_S3_H
#define CONVOY_TESTS_REMOTE_FAKE_S3_H

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

enum { FAKE_HEAD_MAX = 65536, FAKE_OBJECTS = 4096, FAKE_FAULTS = 64, FAKE_UPLOADS = 64 };

struct fake_blob { /* bytes of an object, which may be replaced while they are sent */
    char *bytes;
    int users_n;
};
struct fake_object {
    char path[1200];        /* "bucket/key" */
    struct fake_blob *blob; /* NULL: the object was deleted */
    size_t n;
    char etag[64];
    long long sent, gets;
};
struct fake_part {
    char *bytes;
    size_t n;
    char md5[33];
};
struct fake_upload {
    bool is_open;
    char path[1200];
    struct fake_part part[1000];
};
struct fake_fault {
    char kind[16], method[8], key[200];
    int n;
    long long at;
};
struct fake_request {
    int fd;
    char head[FAKE_HEAD_MAX];
    char *method, *target, *query; /* target: the raw path */
    char path[1200];               /* decoded, without the first '/' */
    char *line[100], *value[100];  /* names in lower case, trimmed values */
    int lines_n;
    char *body;
    size_t body_n;
    char sha256[65], md5[33]; /* of the body */
    struct fake_fault fault;
    bool is_open; /* the connection stays */
};
static struct fake_object fake_object[FAKE_OBJECTS];
static int fake_objects_n, fake_page_n = 3, fake_port;
static struct fake_upload *fake_upload[FAKE_UPLOADS];
static struct fake_fault fake_fault[FAKE_FAULTS];
static long long fake_requests_n, fake_forged_n, fake_credentials_n, fake_expires_s = 3600;
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- bytes ---- */

static bool fake_send(int fd, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

static void fake_hex(const unsigned char *in, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", in[i]);
}

static void fake_digest(const EVP_MD *kind, const void *bytes, size_t n, char *out)
{
    unsigned char digest[64];
    unsigned int size = 0;
    EVP_Digest(bytes, n, digest, &size, kind, NULL);
    fake_hex(digest, size, out);
}

/* Decodes %XX; '+' stays, as in S3's paths. */
static void fake_decode(const char *in, char *out, size_t cap)
{
    size_t n = 0;
    for (; *in != 0 && n + 1 < cap; in++) {
        unsigned int c;
        if (*in == '%' && sscanf(in + 1, "%2x", &c) == 1) {
            out[n++] = (char)c;
            in += 2;
        } else
            out[n++] = *in;
    }
    out[n] = 0;
}

static void fake_encode(const char *in, char *out, size_t cap, const char *plain)
{
    size_t n = 0;
    for (; *in != 0 && n + 4 < cap; in++)
        if (isalnum((unsigned char)*in) || strchr(plain, *in) != NULL)
            out[n++] = *in;
        else
            n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned char)*in);
    out[n] = 0;
}

/* Copies the decoded value of a name in the query; false: it is not there. */
static bool fake_query(const char *query, const char *name, char *out, size_t cap)
{
    const size_t n = strlen(name);
    out[0] = 0;
    for (const char *at = query; *at != 0; at += strcspn(at, "&"), at += *at == '&') {
        const size_t word = strcspn(at, "=&");
        if (word != n || memcmp(at, name, n) != 0)
            continue;
        char raw[4096] = {0};
        const char *value = at + n + (at[n] == '=');
        const size_t length = strcspn(value, "&");
        memcpy(raw, value, length < sizeof raw ? length : sizeof raw - 1);
        fake_decode(raw, out, cap);
        return true;
    }
    return false;
}

static const char *fake_header(const struct fake_request *r, const char *name)
{
    for (int i = 0; i < r->lines_n; i++)
        if (strcmp(r->line[i], name) == 0)
            return r->value[i];
    return NULL;
}

/* ---- answers ---- */

static void fake_answer(struct fake_request *r, int code, const char *headers, const char *body)
{
    char head[4096];
    const size_t n = strlen(body);
    int k = snprintf(head, sizeof head,
                     "HTTP/1.1 %d x\r\nContent-Length: %zu\r\nx-amz-request-id: 1\r\n%s%s\r\n",
                     code, n, headers, r->is_open ? "" : "Connection: close\r\n");
    fake_send(r->fd, head, (size_t)k);
    if (strcmp(r->method, "HEAD") != 0)
        fake_send(r->fd, body, n);
}

static void fake_error(struct fake_request *r, int code, const char *name, const char *headers)
{
    char body[1024];
    snprintf(
        body, sizeof body,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>of the fake "
        "&lt;server&gt;</Message><RequestId>1</RequestId></Error>",
        name);
    fake_answer(r, code, headers, body);
}

/* ---- signatures ---- */

static void fake_hmac(const void *key, size_t n, const char *text, unsigned char out[32])
{
    unsigned char mac[32];
    HMAC(EVP_sha256(), key, (int)n, (const unsigned char *)text, strlen(text), mac, NULL);
    memcpy(out, mac, 32);
}

static int fake_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends the query's parameters in order of their names. */
static void fake_add_query(const char *query, char *out, size_t cap)
{
    char copy[16384], *parameter[64], *state, *at;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", query);
    for (at = strtok_r(copy, "&", &state); at != NULL && n < 64; at = strtok_r(NULL, "&", &state))
        parameter[n++] = at;
    qsort(parameter, (size_t)n, sizeof *parameter, fake_compare);
    for (int i = 0; i < n; i++) {
        const size_t used = strlen(out);
        snprintf(out + used, cap - used, "%s%s%s", i > 0 ? "&" : "", parameter[i],
                 strchr(parameter[i], '=') != NULL ? "" : "=");
    }
}

/* Returns the code of the error of a request's signature, or NULL. */
static const char *fake_check(const struct fake_request *r)
{
    static char text[3 * FAKE_HEAD_MAX]; /* under the lock */
    char scope[200] = "", names[1000] = "", signature[100] = "", hash[65], day[9], path[4096];
    const char *authorization = fake_header(r, "authorization"),
               *date = fake_header(r, "x-amz-date"),
               *payload = fake_header(r, "x-amz-content-sha256"),
               *token = fake_header(r, "x-amz-security-token");
    if (authorization == NULL)
        return strncmp(r->path, "public", 6) == 0 &&
                       (strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0)
                   ? NULL
                   : "AccessDenied";
    if (date == NULL || payload == NULL ||
        sscanf(authorization,
               "AWS4-HMAC-SHA256 Credential=%199[^,],SignedHeaders=%999[^,],Signature=%99s", scope,
               names, signature) != 3)
        return "AuthorizationHeaderMalformed";
    if (strncmp(scope, "AKIDFAKE/", 9) != 0)
        return "InvalidAccessKeyId";
    if (token != NULL && strcmp(token, "fake-token") != 0)
        return "InvalidToken";
    /* the path as S3 encodes it */
    fake_encode(r->path, path, sizeof path, "-._~/");
    snprintf(text, sizeof text, "%s\n/%s\n", r->method, path);
    fake_add_query(r->query, text, sizeof text);
    strcat(text, "\n");
    char copy[1000], *state;
    bool has_host = false, has_date = false, has_payload = false, has_token = false;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name = strtok_r(copy, ";", &state); name != NULL;
         name = strtok_r(NULL, ";", &state)) {
        const char *value = fake_header(r, name);
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s:%s\n", name, value != NULL ? value : "");
        has_host |= strcmp(name, "host") == 0;
        has_date |= strcmp(name, "x-amz-date") == 0;
        has_payload |= strcmp(name, "x-amz-content-sha256") == 0;
        has_token |= strcmp(name, "x-amz-security-token") == 0;
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), "\n%s\n%s", names, payload);
    fake_digest(EVP_sha256(), text, strlen(text), hash);
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, scope + 9, hash);
    unsigned char key[32];
    snprintf(day, sizeof day, "%.8s", date);
    static const char secret[] = "AWS4fake/secret+key";
    fake_hmac(secret, sizeof secret - 1, day, key);
    fake_hmac(key, 32, "us-east-1", key);
    fake_hmac(key, 32, "s3", key);
    fake_hmac(key, 32, "aws4_request", key);
    fake_hmac(key, 32, text, key);
    fake_hex(key, 32, hash);
    if (strcmp(hash, signature) != 0 || !has_host || !has_date || !has_payload ||
        (token != NULL && !has_token))
        return "SignatureDoesNotMatch";
    struct tm tm = {0};
    if (strptime(date, "%Y%m%dT%H%M%SZ", &tm) == NULL ||
        llabs((long long)(timegm(&tm) - time(NULL))) > 900)
        return "RequestTimeTooSkewed";
    if (strcmp(payload, "UNSIGNED-PAYLOAD") != 0 && strcmp(payload, r->sha256) != 0)
        return "XAmzContentSHA256Mismatch";
    return NULL;
}

/* ---- objects ---- */

static void fake_drop(struct fake_blob *blob)
{
    if (blob == NULL || --blob->users_n > 0)
        return;
    free(blob->bytes);
    free(blob);
}

static struct fake_object *fake_find(const char *path)
{
    for (int i = 0; i < fake_objects_n; i++)
        if (fake_object[i].blob != NULL && strcmp(fake_object[i].path, path) == 0)
            return &fake_object[i];
    return NULL;
}

static struct fake_object *fake_put(const char *path, char *bytes, size_t n, const char *etag)
{
    struct fake_object *object = fake_find(path);
    for (int i = 0; object == NULL && i < fake_objects_n; i++)
        if (fake_object[i].blob == NULL)
            object = &fake_object[i];
    if (object == NULL && fake_objects_n < FAKE_OBJECTS)
        object = &fake_object[fake_objects_n++];
    if (object == NULL)
        abort();
    fake_drop(object->blob);
    struct fake_blob *blob = malloc(sizeof *blob);
    *blob = (struct fake_blob){.bytes = bytes, .users_n = 1};
    char md5[33] = "";
    if (etag == NULL)
        fake_digest(EVP_md5(), bytes, n, md5);
    *object = (struct fake_object){.blob = blob, .n = n};
    snprintf(object->path, sizeof object->path, "%s", path);
    snprintf(object->etag, sizeof object->etag, "\"%s\"", etag != NULL ? etag : md5);
    return object;
}

static int fake_compare_objects(const void *a, const void *b)
{
    return strcmp((*(struct fake_object *const *)a)->path, (*(struct fake_object *const *)b)->path);
}

/* A page of ListObjectsV2; the token is the last key of the page before, reversed. */
static void fake_list(struct fake_request *r)
{
    static struct fake_object *sorted[FAKE_OBJECTS]; /* under the lock */
    static char body[1 << 20];
    char prefix[1200], token[2400], start[1200], bucket[100], encoding[8], page[16];
    int n = 0, k = 0, most = fake_page_n;
    snprintf(bucket, sizeof bucket, "%.*s/", (int)strcspn(r->path, "/"), r->path);
    fake_query(r->query, "prefix", prefix, sizeof prefix);
    fake_query(r->query, "continuation-token", token, sizeof token);
    if (fake_query(r->query, "max-keys", page, sizeof page) && atoi(page) < most)
        most = atoi(page);
    const bool is_url = fake_query(r->query, "encoding-type", encoding, sizeof encoding);
    for (size_t i = 0; i <= strlen(token); i++)
        start[i] = i == strlen(token) ? 0 : token[strlen(token) - 1 - i];
    for (int i = 0; i < fake_objects_n; i++)
        if (fake_object[i].blob != NULL &&
            strncmp(fake_object[i].path, bucket, strlen(bucket)) == 0 &&
            strncmp(fake_object[i].path + strlen(bucket), prefix, strlen(prefix)) == 0 &&
            (start[0] == 0 || strcmp(fake_object[i].path + strlen(bucket), start) > 0))
            sorted[n++] = &fake_object[i];
    qsort(sorted, (size_t)n, sizeof *sorted, fake_compare_objects);
    size_t used =
        (size_t)snprintf(body, sizeof body,
                         "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
                         "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>x</Name>"
                         "<Prefix/><KeyCount>%d</KeyCount><IsTruncated>%s</IsTruncated>%s",
                         n < most ? n : most, n > most ? "true" : "false",
                         is_url ? "<EncodingType>url</EncodingType>" : "");
    for (; k < n && k < most; k++) {
        char key[4096];
        fake_encode(sorted[k]->path + strlen(bucket), key, sizeof key, "-._~/");
        used += (size_t)snprintf(body + used, sizeof body - used,
                                 "<Contents><Key>%s</Key><LastModified>2026-01-01T00:00:00.000Z"
                                 "</LastModified><ETag>&quot;%.*s&quot;</ETag><Size>%zu</Size>"
                                 "</Contents>",
                                 key, (int)strlen(sorted[k]->etag) - 2, sorted[k]->etag + 1,
                                 sorted[k]->n);
    }
    if (n > most) {
        const char *last = sorted[most - 1]->path + strlen(bucket);
        used += (size_t)snprintf(body + used, sizeof body - used, "<NextContinuationToken>");
        for (size_t i = strlen(last); i > 0; i--) {
            used += (size_t)snprintf(body + used, sizeof body - used,
                                     strchr("&<>+\"", last[i - 1]) != NULL ? "&#x%02x;" : "%c",
                                     last[i - 1]);
        }
        used += (size_t)snprintf(body + used, sizeof body - used, "</NextContinuationToken>");
    }
    snprintf(body + used, sizeof body - used, "</ListBucketResult>");
    char *copy = strdup(body);
    pthread_mutex_unlock(&fake_lock);
    fake_answer(r, 200, "Content-Type: application/xml\r\n", copy);
    pthread_mutex_lock(&fake_lock);
    free(copy);
}

/* Sends a body in pieces, with the faults cut and slow. Called without the lock. */
static size_t fake_send_body(struct fake_request *r, const char *bytes, size_t n)
{
    size_t at = 0;
    const bool is_cut = strcmp(r->fault.kind, "cut") == 0,
               is_slow = strcmp(r->fault.kind, "slow") == 0;
    while (at < n) {
        size_t k = n - at < 262144 ? n - at : 262144;
        if (is_slow && at >= (size_t)r->fault.at) {
            usleep(50000);
            k = 1;
        } else if ((is_cut || is_slow) && at + k > (size_t)r->fault.at)
            k = (size_t)r->fault.at - at;
        if ((is_cut && at >= (size_t)r->fault.at) || (k > 0 && !fake_send(r->fd, bytes + at, k)))
            break;
        at += k;
    }
    r->is_open &= at == n;
    return at;
}

static void fake_get(struct fake_request *r)
{
    struct fake_object *object = fake_find(r->path);
    const char *range = fake_header(r, "range"), *match = fake_header(r, "if-match");
    char head[1000], etag[64];
    size_t first = 0, last;
    if (object == NULL) {
        fake_error(r, 404, "NoSuchKey", "");
        return;
    }
    if (strcmp(r->fault.kind, "change") == 0) {
        char *other = malloc(object->n + 1);
        for (size_t i = 0; i < object->n; i++)
            other[i] = (char)(object->blob->bytes[i] ^ 1);
        object = fake_put(r->path, other, object->n, NULL);
    }
    snprintf(etag, sizeof etag, "%s", object->etag);
    if (strcmp(r->fault.kind, "swap") == 0)
        snprintf(etag, sizeof etag, "\"swapped\"");
    else if (match != NULL && strcmp(match, etag) != 0) {
        fake_error(r, 412, "PreconditionFailed", "");
        return;
    }
    last = object->n - 1;
    const bool is_range = range != NULL && strcmp(r->fault.kind, "whole") != 0 &&
                          sscanf(range, "bytes=%zu-%zu", &first, &last) == 2;
    if (is_range && first >= object->n) {
        fake_error(r, 416, "InvalidRange", "");
        return;
    }
    if (last >= object->n)
        last = object->n - 1;
    const size_t n = object->n == 0 ? 0 : last + 1 - first;
    int k = snprintf(head, sizeof head,
                     "HTTP/1.1 %d x\r\nContent-Length: %zu\r\nETag: %s\r\nContent-Type: "
                     "binary/octet-stream\r\n",
                     is_range ? 206 : 200, n, etag);
    if (is_range)
        k += snprintf(head + k, sizeof head - (size_t)k, "Content-Range: bytes %zu-%zu/%zu\r\n",
                      first, last, object->n);
    k += snprintf(head + k, sizeof head - (size_t)k, "\r\n");
    object->gets++;
    const bool is_head = strcmp(r->method, "HEAD") == 0;
    struct fake_blob *blob = object->blob;
    blob->users_n++;
    pthread_mutex_unlock(&fake_lock);
    fake_send(r->fd, head, (size_t)k);
    const size_t sent = is_head ? 0 : fake_send_body(r, blob->bytes + first, n);
    pthread_mutex_lock(&fake_lock);
    fake_drop(blob);
    object->sent += (long long)sent;
}

static struct fake_upload *fake_upload_of(const struct fake_request *r)
{
    char id[64];
    if (!fake_query(r->query, "uploadId", id, sizeof id))
        return NULL;
    for (int i = 0; i < FAKE_UPLOADS; i++) {
        char own[64];
        snprintf(own, sizeof own, "id/%d+=", i);
        if (fake_upload[i] != NULL && fake_upload[i]->is_open && strcmp(own, id) == 0 &&
            strcmp(fake_upload[i]->path, r->path) == 0)
            return fake_upload[i];
    }
    return NULL;
}

static void fake_end_upload(struct fake_upload *upload)
{
    for (int i = 0; i < 1000; i++)
        free(upload->part[i].bytes);
    memset(upload, 0, sizeof *upload);
}

/* The unfinished uploads whose key begins with a prefix. */
static void fake_list_uploads(struct fake_request *r)
{
    static char body[1 << 16]; /* under the lock */
    char prefix[1200];
    const size_t bucket = strcspn(r->path, "/") + 1;
    size_t used = (size_t)snprintf(body, sizeof body, "<ListMultipartUploadsResult>");
    fake_query(r->query, "prefix", prefix, sizeof prefix);
    for (int i = 0; i < FAKE_UPLOADS && used < sizeof body - 4096; i++)
        if (fake_upload[i] != NULL && fake_upload[i]->is_open &&
            strncmp(fake_upload[i]->path + bucket, prefix, strlen(prefix)) == 0)
            used += (size_t)snprintf(body + used, sizeof body - used,
                                     "<Upload><Key>%s</Key><UploadId>id/%d+=</UploadId></Upload>",
                                     fake_upload[i]->path + bucket, i);
    snprintf(body + used, sizeof body - used, "</ListMultipartUploadsResult>");
    fake_answer(r, 200, "", body);
}

static void fake_begin_upload(struct fake_request *r)
{
    char body[300];
    for (int i = 0; i < FAKE_UPLOADS; i++) {
        if (fake_upload[i] == NULL)
            fake_upload[i] = calloc(1, sizeof **fake_upload);
        if (fake_upload[i]->is_open)
            continue;
        fake_upload[i]->is_open = true;
        snprintf(fake_upload[i]->path, sizeof fake_upload[i]->path, "%s", r->path);
        snprintf(body, sizeof body,
                 "<InitiateMultipartUploadResult><UploadId>id/%d+=</UploadId>"
                 "</InitiateMultipartUploadResult>",
                 i);
        fake_answer(r, 200, "", body);
        return;
    }
    fake_error(r, 503, "SlowDown", "");
}

/* Joins the parts that the body lists, by their ETags. */
static void fake_complete(struct fake_request *r, struct fake_upload *upload)
{
    size_t n = 0;
    char *all = NULL, etag[64], md5[33];
    int parts = 0;
    if (strcmp(r->fault.kind, "error200") == 0) {
        fake_error(r, 200, "InternalError", "");
        return;
    }
    for (const char *at = r->body; (at = strstr(at, "<PartNumber>")) != NULL;) {
        int number = 0;
        at += 12;
        if (sscanf(at, "%d</PartNumber><ETag>&#34;%32[0-9a-f]&#34;</ETag>", &number, etag) != 2 ||
            number != parts + 1 || upload->part[number].bytes == NULL ||
            strcmp(upload->part[number].md5, etag) != 0) {
            free(all);
            fake_error(r, 400, "InvalidPart", "");
            return;
        }
        struct fake_part *part = &upload->part[number];
        all = realloc(all, n + part->n + 1);
        memcpy(all + n, part->bytes, part->n);
        n += part->n;
        parts++;
    }
    if (all == NULL) {
        fake_error(r, 400, "MalformedXML", "");
        return;
    }
    fake_digest(EVP_md5(), r->body, r->body_n, md5); /* of the list of the parts' MD5s */
    snprintf(etag, sizeof etag, "%s-%d", md5, parts);
    fake_put(r->path, all, n, etag);
    fake_end_upload(upload);
    fake_answer(r, 200, "", "<CompleteMultipartUploadResult/>");
}

static void fake_write(struct fake_request *r)
{
    char number[16], header[100], query[8];
    struct fake_upload *upload = fake_upload_of(r);
    char *bytes = r->body;
    if (fake_query(r->query, "uploadId", query, sizeof query) && upload == NULL) {
        fake_error(r, 404, "NoSuchUpload", "");
        return;
    }
    r->body = NULL;
    if (upload != NULL) {
        fake_query(r->query, "partNumber", number, sizeof number);
        struct fake_part *part = &upload->part[atoi(number) % 1000];
        free(part->bytes);
        *part = (struct fake_part){.bytes = bytes, .n = r->body_n};
        memcpy(part->md5, r->md5, sizeof part->md5);
        snprintf(header, sizeof header, "ETag: \"%s\"\r\n", part->md5);
    } else {
        fake_put(r->path, bytes, r->body_n, r->body_n > 0 ? r->md5 : NULL);
        snprintf(header, sizeof header, "ETag: %s\r\n", fake_find(r->path)->etag);
    }
    fake_answer(r, 200, header, "");
}

static void fake_delete(struct fake_request *r)
{
    struct fake_object *object = fake_find(r->path);
    struct fake_upload *upload = fake_upload_of(r);
    if (upload != NULL)
        fake_end_upload(upload);
    else if (object != NULL) {
        fake_drop(object->blob);
        object->blob = NULL;
    }
    fake_answer(r, 204, "", "");
}

/* ---- control, and sources of credentials ---- */

static void fake_state(struct fake_request *r)
{
    static char body[1 << 20]; /* under the lock */
    size_t used = 0;
    int open = 0;
    for (int i = 0; i < fake_objects_n; i++)
        if (fake_object[i].blob != NULL && used < sizeof body - 3000)
            used += (size_t)snprintf(body + used, sizeof body - used, "object %s %zu %lld %lld\n",
                                     fake_object[i].path, fake_object[i].n, fake_object[i].sent,
                                     fake_object[i].gets);
    for (int i = 0; i < FAKE_UPLOADS; i++)
        open += fake_upload[i] != NULL && fake_upload[i]->is_open;
    snprintf(body + used, sizeof body - used,
             "uploads %d\nrequests %lld\nforged %lld\ncredentials %lld\n", open, fake_requests_n,
             fake_forged_n, fake_credentials_n);
    fake_answer(r, 200, "", body);
}

static void fake_set_fault(struct fake_request *r)
{
    char number[32];
    if (strcmp(r->method, "DELETE") == 0)
        memset(fake_fault, 0, sizeof fake_fault);
    for (int i = 0; i < FAKE_FAULTS && strcmp(r->method, "PUT") == 0; i++) {
        struct fake_fault *fault = &fake_fault[i];
        if (fault->n > 0)
            continue;
        fake_query(r->query, "kind", fault->kind, sizeof fault->kind);
        fake_query(r->query, "method", fault->method, sizeof fault->method);
        fake_query(r->query, "key", fault->key, sizeof fault->key);
        fault->at = fake_query(r->query, "at", number, sizeof number) ? atoll(number) : 0;
        fault->n = fake_query(r->query, "n", number, sizeof number) ? atoi(number) : 1;
        break;
    }
    if (fake_query(r->query, "expires", number, sizeof number))
        fake_expires_s = atoll(number);
    fake_answer(r, 200, "", "");
}

/* Credentials of STS, a container or an instance, with the time of their end. */
static void fake_credentials(struct fake_request *r)
{
    char body[1024], end[32];
    const time_t at = time(NULL) + fake_expires_s;
    struct tm tm;
    const bool is_sts = strcmp(r->method, "POST") == 0;
    strftime(end, sizeof end, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
    fake_credentials_n++;
    const char *authorization = fake_header(r, "authorization"),
               *metadata = fake_header(r, "x-aws-ec2-metadata-token");
    if (is_sts && (strstr(r->body, "Action=AssumeRoleWithWebIdentity&") == NULL ||
                   strstr(r->body, "WebIdentityToken=web.token%2B1") == NULL ||
                   strstr(r->body, "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Ffake") == NULL)) {
        fake_answer(r, 403, "",
                    "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized"
                    "</Message></Error></ErrorResponse>");
        return;
    }
    if ((strcmp(r->path, "container") == 0 &&
         (authorization == NULL || strcmp(authorization, "Bearer fake") != 0)) ||
        (strncmp(r->path, "latest/", 7) == 0 &&
         (metadata == NULL || strcmp(metadata, "metadata-token") != 0))) {
        fake_answer(r, 401, "", "no token");
        return;
    }
    if (is_sts)
        snprintf(body, sizeof body,
                 "<AssumeRoleWithWebIdentityResponse xmlns=\"x\"><AssumeRoleWithWebIdentityResult>"
                 "<Credentials><AccessKeyId>AKIDFAKE</AccessKeyId><SecretAccessKey>fake/secret+key"
                 "</SecretAccessKey><SessionToken>fake-token</SessionToken><Expiration>%s"
                 "</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
                 "</AssumeRoleWithWebIdentityResponse>",
                 end);
    else
        snprintf(body, sizeof body,
                 "{\"Code\":\"Success\",\"AccessKeyId\":\"AKIDFAKE\",\"SecretAccessKey\":"
                 "\"fake/secret+key\",\"Token\":\"fake-token\",\"Expiration\":\"%s\"}",
                 end);
    fake_answer(r, 200, "", body);
}

/* Serves what is not of a bucket; false: it is of one. */
static bool fake_serve_other(struct fake_request *r)
{
    if (strcmp(r->path, "_state") == 0)
        fake_state(r);
    else if (strcmp(r->path, "_fault") == 0)
        fake_set_fault(r);
    else if (strncmp(r->path, "_object/", 8) == 0) {
        memmove(r->path, r->path + 8, strlen(r->path + 8) + 1);
        if (strcmp(r->method, "PUT") == 0)
            fake_write(r);
        else
            fake_get(r);
    } else if (strcmp(r->path, "latest/api/token") == 0)
        fake_answer(r, strcmp(r->method, "PUT") == 0 ? 200 : 405, "", "metadata-token");
    else if (strcmp(r->path, "latest/meta-data/iam/security-credentials/") == 0)
        fake_answer(r, fake_header(r, "x-aws-ec2-metadata-token") != NULL ? 200 : 401, "",
                    "role\n");
    else if (strcmp(r->path, "latest/meta-data/iam/security-credentials/role") == 0 ||
             strcmp(r->path, "container") == 0 ||
             (strcmp(r->method, "POST") == 0 && r->path[0] == 0))
        fake_credentials(r);
    else
        return false;
    return true;
}

/* ---- requests ---- */

/* Picks a fault for this request. */
static void fake_pick(struct fake_request *r)
{
    for (int i = 0; i < FAKE_FAULTS && r->path[0] != '_'; i++) {
        struct fake_fault *fault = &fake_fault[i];
        if (fault->n <= 0 || (fault->method[0] != 0 && strcmp(fault->method, r->method) != 0) ||
            strstr(r->path, fault->key) == NULL)
            continue;
        fault->n--;
        r->fault = *fault;
        return;
    }
}

/* Answers with a fault that is an error; false: the fault is of another kind, or there is none. */
static bool fake_fail(struct fake_request *r)
{
    static const struct {
        const char *kind;
        int code;
        const char *name, *headers;
    } rows[] = {{"503", 503, "SlowDown", ""},
                {"500", 500, "InternalError", ""},
                {"403", 403, "AccessDenied", ""},
                {"skew", 403, "RequestTimeTooSkewed", ""},
                {"nobucket", 404, "NoSuchBucket", ""},
                {"expired", 400, "ExpiredToken", ""},
                {"key", 403, "InvalidAccessKeyId", ""},
                {"full", 507, "QuotaExceeded", ""},
                {"redirect", 307, "TemporaryRedirect", "Location: http://127.0.0.1:1/stolen\r\n"}};
    char after[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].kind, r->fault.kind) == 0) {
            fake_error(r, rows[i].code, rows[i].name, rows[i].headers);
            return true;
        }
    if (strcmp(r->fault.kind, "retry-after") == 0) {
        snprintf(after, sizeof after, "Retry-After: %lld\r\n", r->fault.at);
        fake_error(r, 503, "SlowDown", after);
    } else if (strcmp(r->fault.kind, "page") == 0)
        fake_answer(r, 200, "Content-Type: text/html\r\n", "<html><body>log in</body></html>");
    else if (strcmp(r->fault.kind, "garbage") == 0) {
        fake_send(r->fd, "\x01\x02 no HTTP\r\n\r\n", 14);
        r->is_open = false;
    } else
        return false;
    return true;
}

static void fake_serve(struct fake_request *r)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(r->path, "/"), r->path);
    const bool is_bucket = strchr(r->path, '/') == NULL || r->path[strlen(name) + 1] == 0,
               is_write = strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0;
    fake_requests_n++;
    fake_pick(r);
    if (strcmp(r->fault.kind, "sum") == 0 && r->body_n > 0) {
        r->body[0] ^= 1;
        fake_digest(EVP_sha256(), r->body, r->body_n, r->sha256);
    }
    if (fake_fail(r) || fake_serve_other(r))
        return;
    const char *forged = fake_check(r);
    if (forged != NULL) {
        fake_forged_n += strcmp(forged, "SignatureDoesNotMatch") == 0;
        fake_error(r, strcmp(forged, "XAmzContentSHA256Mismatch") == 0 ? 400 : 403, forged, "");
    } else if (strcmp(name, "elsewhere") == 0)
        fake_error(r, 301, "PermanentRedirect", "x-amz-bucket-region: eu-west-1\r\n");
    else if (strcmp(name, "bucket") != 0 && strcmp(name, "public") != 0 &&
             strcmp(name, "readonly") != 0)
        fake_error(r, 404, "NoSuchBucket", "");
    else if (is_write && strcmp(name, "readonly") == 0)
        fake_error(r, 403, "AccessDenied", "");
    else if (is_bucket && strstr(r->query, "uploads") != NULL)
        fake_list_uploads(r);
    else if (is_bucket && strcmp(r->method, "GET") == 0)
        fake_list(r);
    else if (!is_write)
        fake_get(r);
    else if (strcmp(r->method, "PUT") == 0)
        fake_write(r);
    else if (strcmp(r->method, "DELETE") == 0)
        fake_delete(r);
    else if (strncmp(r->query, "uploads", 7) == 0)
        fake_begin_upload(r);
    else if (fake_upload_of(r) != NULL)
        fake_complete(r, fake_upload_of(r));
    else
        fake_error(r, 404, "NoSuchUpload", "");
}

/* Splits the head into its words and lines. */
static bool fake_parse(struct fake_request *r)
{
    char *state, *line = strtok_r(r->head, "\r\n", &state), *rest;
    r->lines_n = 0;
    r->method = line != NULL ? strtok_r(line, " ", &rest) : NULL;
    r->target = r->method != NULL ? strtok_r(NULL, " ", &rest) : NULL;
    if (r->target == NULL || r->target[0] != '/')
        return false;
    char *question = strchr(r->target, '?');
    r->query = question != NULL ? question + 1 : "";
    if (question != NULL)
        *question = 0;
    fake_decode(r->target + 1, r->path, sizeof r->path);
    while ((line = strtok_r(NULL, "\r\n", &state)) != NULL && r->lines_n < 100) {
        char *colon = strchr(line, ':');
        if (colon == NULL)
            return false;
        *colon++ = 0;
        colon += strspn(colon, " ");
        for (char *c = line; *c != 0; c++)
            *c = (char)tolower((unsigned char)*c);
        r->line[r->lines_n] = line;
        r->value[r->lines_n++] = colon;
    }
    return true;
}

/* Reads a request; false: the connection ended. */
static bool fake_read(struct fake_request *r)
{
    size_t n = 0;
    ssize_t k = 0;
    const char *end = NULL;
    while (end == NULL && n + 1 < sizeof r->head &&
           (k = recv(r->fd, r->head + n, sizeof r->head - 1 - n, 0)) > 0) {
        n += (size_t)k;
        r->head[n] = 0;
        end = strstr(r->head, "\r\n\r\n");
    }
    if (end == NULL)
        return false;
    size_t have = n - (size_t)(end + 4 - r->head);
    char *early = malloc(have + 1);
    memcpy(early, end + 4, have);
    r->head[n - have] = 0;
    r->is_open = fake_parse(r);
    const char *length = r->is_open ? fake_header(r, "content-length") : NULL,
               *expect = r->is_open ? fake_header(r, "expect") : NULL;
    r->body_n = length != NULL ? (size_t)atoll(length) : 0;
    r->body = malloc(r->body_n + 1);
    have = have < r->body_n ? have : r->body_n;
    memcpy(r->body, early, have);
    free(early);
    memset(&r->fault, 0, sizeof r->fault);
    if (expect != NULL)
        fake_send(r->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    size_t cut = SIZE_MAX;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < FAKE_FAULTS && r->is_open && r->body_n > 0; i++)
        if (fake_fault[i].n > 0 && strcmp(fake_fault[i].kind, "cut") == 0 &&
            strcmp(fake_fault[i].method, r->method) == 0 &&
            strstr(r->path, fake_fault[i].key) != NULL) {
            cut = (size_t)fake_fault[i].at;
            fake_fault[i].n--;
            break;
        }
    pthread_mutex_unlock(&fake_lock);
    while (r->is_open && have < r->body_n && have < cut) {
        k = recv(r->fd, r->body + have, r->body_n - have, 0);
        if (k <= 0)
            r->is_open = false;
        else
            have += (size_t)k;
    }
    r->body[have] = 0;
    r->is_open &= have < cut || r->body_n <= cut;
    if (r->is_open)
        fake_digest(EVP_sha256(), r->body, r->body_n, r->sha256);
    if (r->is_open && r->body_n > 0)
        fake_digest(EVP_md5(), r->body, r->body_n, r->md5);
    return r->is_open;
}

static void *fake_connection(void *arg)
{
    struct fake_request *r = malloc(sizeof *r);
    const int one = 1;
    r->fd = (int)(intptr_t)arg;
    setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    do {
        r->body = NULL;
        if (!fake_read(r)) {
            free(r->body);
            break;
        }
        pthread_mutex_lock(&fake_lock);
        fake_serve(r);
        pthread_mutex_unlock(&fake_lock);
        free(r->body);
    } while (r->is_open);
    close(r->fd);
    free(r);
    return NULL;
}

/* fake_s3_serve — listens on a free port of 127.0.0.1, calls on_port, and serves until the process
 * ends. */
static void fake_s3_serve(int port, void (*on_port)(int port))
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t n = sizeof at;
    const int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, 128) != 0 || getsockname(listener, (struct sockaddr *)&at, &n) != 0) {
        perror("fake_s3");
        _exit(1);
    }
    signal(SIGPIPE, SIG_IGN);
    fake_port = ntohs(at.sin_port);
    on_port(fake_port);
    for (;;) {
        const int fd = accept(listener, NULL, NULL);
        pthread_t thread;
        if (fd < 0)
            continue;
        if (pthread_create(&thread, NULL, fake_connection, (void *)(intptr_t)fd) == 0)
            pthread_detach(thread);
        else
            close(fd);
    }
}

/* fake_s3_control — sends a request without a signature to the server at a port; returns the
 * answer's body, valid until the next call. */
static inline const char *fake_s3_control(int port, const char *method, const char *target,
                                          const void *body, size_t n)
{
    static char answer[1 << 16];
    char head[4096];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t used = 0;
    ssize_t k;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    k = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nContent-Length: %zu\r\n\r\n", method, target,
                 n);
    assert_true(fake_send(fd, head, (size_t)k) && fake_send(fd, body, n));
    shutdown(fd, SHUT_WR);
    while (used + 1 < sizeof answer && (k = read(fd, answer + used, sizeof answer - 1 - used)) > 0)
        used += (size_t)k;
    close(fd);
    answer[used] = 0;
    const char *end = strstr(answer, "\r\n\r\n");
    assert_non_null(end);
    return end + 4;
}

#endif

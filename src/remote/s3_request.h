/* s3_request — one request to the bucket of a struct s3: signs it, sends it, checks the response,
 * tries again after failures that may pass, and explains the other ones. Only the files s3*.c use
 * it. It must not know the operations made of requests. */
#ifndef CONVOY_REMOTE_S3_REQUEST_H
#define CONVOY_REMOTE_S3_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/status.h"
#include "base/text.h"
#include "net/curl_client.h"
#include "net/http_headers.h"
#include "remote/aws_credentials.h"
#include "remote/s3.h"

/* One connection that is kept between requests, for one thread. */
struct s3_connection {
    struct s3 *s3;
    CURL *easy; /* NULL: not open yet */
    char error[CURL_ERROR_SIZE];
    struct curl_client_guard guard;
    bool (*goes_on)(void *arg); /* called often while a request waits; returns false to stop */
    void *arg;
};

struct s3 {
    struct s3_config config; /* defaults filled in */
    char bucket[S3_BUCKET_MAX], region[AWS_SIGN_REGION_MAX];
    char base[AWS_CREDENTIALS_URL_MAX]; /* scheme and host of all URLs */
    char host[AWS_CREDENTIALS_URL_MAX]; /* value of the header Host */
    char path[AWS_CREDENTIALS_URL_MAX]; /* before the key, encoded: "", "/bucket" */
    char store[S3_STORE_MAX];           /* s3_store_name */
    const char *ca_file;                /* AWS_CA_BUNDLE; NULL: the system's */
    struct aws_credentials *credentials;
    struct s3_connection connection; /* for the thread that owns the handle */
    int64_t reported_ms;             /* when progress was called last */
    _Atomic int64_t *moved;          /* bytes of the transfer in progress; NULL: none */
    int64_t done, total;             /* bytes of the last or current transfer */
};

struct s3_request {
    const char *verb;     /* in messages: "read", "write", "list" */
    const char *method;   /* "GET" … */
    const char *key;      /* NULL: the bucket itself */
    const char *query;    /* encoded and sorted; NULL: none */
    const char *etag;     /* condition If-Match; NULL: none */
    int64_t first, n;     /* range of bytes; n = 0: the whole object */
    int64_t total_ms;     /* limit of a try; 0: only the least rate */
    int tries;            /* in a row without progress; 0: the default */
    bool accepts_missing; /* NoSuchKey is no failure: code is 404 */
    /* The body: of memory, or of a file. */
    bool has_body;
    const void *body; /* NULL: body_fd's bytes from body_offset on */
    int body_fd;
    int64_t body_offset, body_bytes;
    /* The response's body: appended to a text, or written to a file from `first` on. */
    struct text *text; /* NULL: to out_fd */
    int out_fd;
    const char *out_path;   /* for messages */
    _Atomic int64_t *moved; /* counts bytes sent or received; NULL: none */
    /* Results. */
    int64_t have; /* bytes of the range that were received */
    long code;    /* status code of the last response */
    struct http_headers headers;
};

/* s3_request_send — sends the request until it succeeds or has failed for good; blocks. HEAD: any
 * response that a retry would meet again is a success, because its error has no body. Errors:
 * s3.h. */
enum status s3_request_send(struct s3_connection *connection, struct s3_request *request);
/* s3_request_name — writes "s3://bucket/key" for messages, cut if it is long. Returns out. */
const char *s3_request_name(const struct s3 *s3, const char *key, char *out, size_t cap);
/* s3_request_close — closes a connection. Accepts one that is not open. */
void s3_request_close(struct s3_connection *connection);

#endif

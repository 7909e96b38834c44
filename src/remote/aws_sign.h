/* aws_sign — Amazon's signature version 4 of HTTP requests (HMAC-SHA-256), as pure functions.
 * Source: "Create a signed AWS API request", and "Authenticating Requests: Using the Authorization
 * Header" for S3, both by AWS.
 *
 * libcurl has CURLOPT_AWS_SIGV4, but releases before 8 sign some paths and queries wrongly. It must
 * not know the services. */
#ifndef CONVOY_REMOTE_AWS_SIGN_H
#define CONVOY_REMOTE_AWS_SIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

#define AWS_SIGN_TIME_MAX 17    /* "20130524T000000Z" */
#define AWS_SIGN_SHA256_MAX 65  /* 64 hexadecimal digits */
#define AWS_SIGN_HEADERS_MAX 16 /* most headers of one request */
#define AWS_SIGN_REGION_MAX 64

struct aws_sign_header {
    const char *name; /* lower case */
    const char *value;
};

struct aws_sign_request {
    const char *method;
    const char *path;  /* as sent, encoded: "/", "/bucket/a%20b" */
    const char *query; /* as sent: encoded "name=value", sorted, joined by '&'; or "" */
    /* all of them are signed: host, x-amz-date and further ones, in any order */
    struct aws_sign_header header[AWS_SIGN_HEADERS_MAX];
    int headers_n;
    const char *payload_sha256; /* the body's SHA-256; or "UNSIGNED-PAYLOAD" */
    const char *time;           /* the value of x-amz-date */
    const char *region, *service;
    const char *access_key, *secret_key;
};

/* aws_sign — appends the value of the header Authorization. ST_RETRY: out of memory. */
enum status aws_sign(const struct aws_sign_request *request, struct text *authorization);
/* aws_sign_canonical — for tests: appends the canonical request, the text that is signed. */
void aws_sign_canonical(const struct aws_sign_request *request, struct text *out);
/* aws_sign_encode — appends s with every byte but letters, digits and "-._~" as %XX. A slash stays
 * in a path (keeps_slash). */
void aws_sign_encode(struct text *out, const char *s, bool keeps_slash);
/* aws_sign_time — writes wall time in the form of x-amz-date. */
void aws_sign_time(int64_t wall_ms, char out[AWS_SIGN_TIME_MAX]);
/* aws_sign_sha256 — writes the SHA-256 of n bytes in hexadecimal digits. ST_RETRY: no memory. */
enum status aws_sign_sha256(const void *bytes, size_t n, char out[AWS_SIGN_SHA256_MAX]);

#endif

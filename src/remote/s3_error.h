/* s3_error — the errors of S3: which of them pass, and sentences with a remedy for the other ones.
 * Pure functions; it must not know connections. */
#ifndef CONVOY_REMOTE_S3_ERROR_H
#define CONVOY_REMOTE_S3_ERROR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* A response that is no success. Texts are printable. */
struct s3_error {
    long http;
    char code[64];     /* "AccessDenied"; "": the response has none */
    char message[256]; /* the store's sentence */
    char region[64];   /* the bucket's region, if the store sent it */
};

/* s3_error_read — reads the error from a response's body; region: the header x-amz-bucket-region,
 * or NULL. */
void s3_error_read(struct s3_error *error, long http, const char *body, size_t n,
                   const char *region);
/* s3_error_passes — returns true if a retry may succeed. */
bool s3_error_passes(const struct s3_error *error);
/* s3_error_is_missing — returns true if the object does not exist, but its bucket does. */
bool s3_error_is_missing(const struct s3_error *error);
/* s3_error_is_expired — returns true if newer credentials may succeed. */
bool s3_error_is_expired(const struct s3_error *error);

/* The request, for the sentence. */
struct s3_error_request {
    const char *verb, *name; /* "read", "s3://bucket/key" */
    const char *bucket, *region;
    const char *method;      /* "GET" */
    bool is_list;            /* the request is ListObjectsV2 */
    const char *credentials; /* their source; "none": anonymous */
};
/* s3_error_fail — fails with the sentence and the status for it. */
enum status s3_error_fail(const struct s3_error *error, const struct s3_error_request *request);

#endif

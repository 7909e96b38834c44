/* s3 — objects of one bucket in Amazon S3 or a compatible store: list, head, read, write, delete,
 * and files to and from the local disk, in parallel.
 *
 *   - Region, endpoint and credentials are the variables and files of the AWS command line
 *     (aws_credentials.h). AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL sets another store; its requests
 *     have the bucket in the path. Amazon's have it in the host, unless its name has dots.
 *   - Without credentials, requests are anonymous, which public buckets allow for reading.
 *   - Requests are signed here (aws_sign.h), with the SHA-256 of their body: the store refuses a
 *     body that was damaged on the way.
 *   - Connections go to public addresses only, unless local ones are allowed (ALLOW_LOCAL_URLS),
 *     also to an endpoint that the environment sets. Redirects are never followed: the error has
 *     the right region.
 *   - 429, 500, 502, 503, 504 and lost connections are retried with exponential back-off and
 *     jitter; Retry-After is obeyed. Refusals that a retry would meet again fail immediately.
 *
 * Errors of all functions:
 *   - ST_BAD_SETTING: wrong or expired credentials, no permission, no such bucket, another region,
 *     a clock that is wrong, a bad endpoint or a local one. The message has the remedy.
 *   - ST_NO_INPUT: the object, or a local file to upload, does not exist.
 *   - ST_BAD_DATA: the object changed during a download, or the store's answer is malformed.
 *   - ST_STORE: the local disk refused a write or has no room, or the store is full.
 *   - ST_RETRY: no answer after the last try, or `progress` stopped the transfer.
 *
 * A handle is for one thread at a time; several handles may be used in parallel. No message has a
 * key, a token or a signature. It must not know the meaning of the objects. */
#ifndef CONVOY_REMOTE_S3_H
#define CONVOY_REMOTE_S3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

#define S3_BUCKET_MAX 64 /* bytes with the closing 0; a name has 3 to 63 */
#define S3_KEY_MAX 1025
#define S3_ETAG_MAX 80
#define S3_NAME_MAX (5 + S3_BUCKET_MAX + S3_KEY_MAX) /* "s3://bucket/key" */
#define S3_LIST_MAX 1000000                          /* most objects of one list */

/* s3://bucket/key. The key may be "", a prefix that ends with /, or a pattern: the caller's
 * matter. */
struct s3_address {
    char bucket[S3_BUCKET_MAX];
    char key[S3_KEY_MAX];
};
/* s3_address_is — returns true if the name begins with s3://. */
bool s3_address_is(const char *name);
/* s3_address_parse — reads s3://bucket/key. ST_BAD_SETTING: it is none, the bucket's name breaks
 * the rules of S3, or the key is too long or has controls. */
enum status s3_address_parse(const char *name, struct s3_address *out);

#define S3_STORE_MAX 256
/* s3_store_name — writes the name of the store that the environment sets, for a folder of its
 * objects: "aws" for Amazon's, else the endpoint's "host:port", with ":" and its path if it has
 * one. Stores with buckets of equal names have different names. ST_BAD_SETTING: a bad endpoint. */
enum status s3_store_name(char out[S3_STORE_MAX]);

struct s3_config {
    const char *bucket;
    bool allows_local; /* ALLOW_LOCAL_URLS */
    /* NULL allowed; called about five times a second by the thread that called s3_…; returns false
     * to stop: then ST_RETRY. The bytes are of the current or last transfer of a file; small
     * requests report them again while they wait. */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
    /* Called after each failed try that is repeated, with its message, by any thread of a transfer;
     * NULL: the message is logged. */
    void (*on_retry)(void *arg, const char *message);
    void *on_retry_arg;
    /* For tests; 0: the defaults. */
    int64_t part_bytes;  /* upload: of a part; files up to this size are one PUT (64 MiB) */
    int64_t range_bytes; /* download: of a range (8 to 64 MiB, by the object's size) */
    int64_t retry_ms;    /* the first wait before another try, doubled for each further one (500) */
    int64_t slow_ms;     /* a transfer below 4096 bytes/s for this time is broken off (60000) */
};
struct s3;

/* s3_open — reads region, endpoint and the way to the credentials from the environment, without a
 * request. Copies the bucket's name; the rest of the config is borrowed until s3_close. */
enum status s3_open(const struct s3_config *config, struct s3 **out);
/* s3_close — frees the handle and wipes its credentials. Accepts NULL. */
void s3_close(struct s3 *s3);

struct s3_object {
    const char *key; /* from s3_head: its argument; in a list: memory of the list */
    int64_t bytes;
    char etag[S3_ETAG_MAX]; /* with its quotes; "": the list of the store has none */
};
struct s3_list {
    struct s3_object *item; /* sorted by key, bytewise */
    int64_t n;
    int64_t cap;
};
/* s3_list — lists all objects whose key begins with prefix (""; all), page by page. Free the list
 * with s3_list_free. ST_BAD_DATA: more than S3_LIST_MAX objects. */
enum status s3_list(struct s3 *s3, const char *prefix, struct s3_list *out);
/* s3_list_free — frees a list and empties it. Accepts a zeroed one. */
void s3_list_free(struct s3_list *list);
/* s3_head — finds size and ETag of an object. *found_out false: there is no such object; a bucket
 * that does not exist, or may not be read, is an error. */
enum status s3_head(struct s3 *s3, const char *key, struct s3_object *out, bool *found_out);
/* s3_read — reads a small object whole into a text, which replaces *out. ST_BAD_DATA: it has more
 * than `most` bytes. *found_out false: there is no such object, and the text is empty. */
enum status s3_read(struct s3 *s3, const char *key, size_t most, struct text *out, bool *found_out);
/* s3_write — writes a small object whole, or replaces it. */
enum status s3_write(struct s3 *s3, const char *key, const void *bytes, size_t n);
/* s3_delete — removes an object; succeeds if there is none. */
enum status s3_delete(struct s3 *s3, const char *key);

/* s3_download — downloads an object to path, with up to 8 connections, and blocks until the file is
 * complete there, by rename. The object is from s3_head or s3_list: its ETag is the condition of
 * every request. A file of the same size at path counts as complete, so a path should contain the
 * ETag or another version; a file of another size is replaced. Next to it are PATH.part, locked by
 * the process that downloads, and PATH.ranges, with which the next call resumes. The folder
 * exists. */
enum status s3_download(struct s3 *s3, const struct s3_object *object, const char *path);
/* s3_upload — uploads a file as one object, and blocks until the store has it: one PUT, or a
 * multipart upload with up to 4 connections, which is aborted on a failure. An object appears whole
 * or not at all. Unfinished multipart uploads of the same key, which a killed process left, are
 * aborted first, so two processes must not upload to one key. Parts are sent from the file, which
 * must not change: ST_BAD_DATA. */
enum status s3_upload(struct s3 *s3, const char *path, const char *key);

#endif

/* s3_upload — see s3.h. A file of one part is one PUT; a larger one is a multipart upload, which
 * the store completes from the ETags of its parts. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "remote/aws_xml.h"
#include "remote/s3_parallel.h"

enum {
    UPLOAD_PARTS_MAX = 10000,
    UPLOAD_THREADS = 4,
    UPLOAD_ID_MAX = 1024,
    UPLOAD_ANSWER_MAX = 65536,
    UPLOAD_ABORT_MS = 20000,
    UPLOAD_LIST_MAX = 4 << 20, /* bytes of a list of unfinished uploads */
    UPLOAD_UNFINISHED_MAX = 16,
    UPLOAD_COMPLETE_MS = 600000, /* the store assembles the parts before it answers */
};
#define UPLOAD_OBJECT_MAX ((int64_t)5 << 40)

struct upload {
    const char *path, *key;
    int fd;
    struct stat before; /* the file, when it was opened */
    int64_t part_bytes, parts_n;
    struct text id; /* encoded for a query */
    char (*etag)[S3_ETAG_MAX];
    struct s3_parallel parallel;
};

/* Fails if the file changed since it was opened. */
static enum status check_unchanged(const struct upload *u)
{
    struct stat now;
    if (fstat(u->fd, &now) == 0 && now.st_size == u->before.st_size &&
        now.st_mtim.tv_sec == u->before.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == u->before.st_mtim.tv_nsec)
        return ST_OK;
    return FAIL(ST_BAD_DATA, "%s changed while it was uploaded; upload it when it is complete",
                u->path);
}

/* Uploads a part of the file; with one part the whole. */
static enum status run_part(void *arg, struct s3_connection *connection, int64_t i)
{
    struct upload *u = arg;
    struct text query = {0};
    const int64_t left = u->before.st_size - i * u->part_bytes;
    struct s3_request request = {.verb = "upload to",
                                 .method = "PUT",
                                 .key = u->key,
                                 .has_body = true,
                                 .body_fd = u->fd,
                                 .body_offset = i * u->part_bytes,
                                 .body_bytes = left < u->part_bytes ? left : u->part_bytes,
                                 .out_fd = -1,
                                 .moved = &u->parallel.moved};
    struct text answer = {.limit = UPLOAD_ANSWER_MAX};
    request.text = &answer;
    if (u->id.len > 0) {
        text_add(&query, "partNumber=%lld&uploadId=%s", (long long)(i + 1), u->id.data);
        request.query = query.data;
    }
    enum status st = s3_request_send(connection, &request);
    text_free(&query);
    text_free(&answer);
    if (st == ST_OK && u->id.len > 0) {
        if (!request.headers.is_etag)
            return FAIL(ST_BAD_DATA, "%s: the store sent no ETag for a part of a multipart upload",
                        u->path);
        text_copy(u->etag[i], S3_ETAG_MAX, request.headers.validator);
    }
    return st;
}

/* Begins a multipart upload. */
static enum status begin_upload(struct s3 *s3, struct upload *u)
{
    char id[UPLOAD_ID_MAX];
    struct text answer = {.limit = UPLOAD_ANSWER_MAX};
    struct s3_request request = {.verb = "upload to",
                                 .method = "POST",
                                 .key = u->key,
                                 .query = "uploads=",
                                 .has_body = true,
                                 .body = "",
                                 .text = &answer,
                                 .out_fd = -1};
    enum status st = s3_request_send(&s3->connection, &request);
    if (st == ST_OK && (!aws_xml_get(answer.data != NULL ? answer.data : "", answer.len,
                                     "InitiateMultipartUploadResult/UploadId", id, sizeof id) ||
                        id[0] == '\0'))
        st = FAIL(ST_BAD_DATA, "%s: the store sent no UploadId for a multipart upload", u->path);
    if (st == ST_OK)
        aws_sign_encode(&u->id, id, false);
    text_free(&answer);
    return st;
}

/* Completes a multipart upload: the object appears. */
static enum status complete_upload(struct s3 *s3, struct upload *u)
{
    struct text body = {.limit = (size_t)UPLOAD_PARTS_MAX * 256},
                answer = {.limit = UPLOAD_ANSWER_MAX}, query = {0};
    text_add(&query, "uploadId=%s", u->id.data);
    text_add(&body, "<CompleteMultipartUpload>");
    for (int64_t i = 0; i < u->parts_n; i++) {
        text_add(&body, "<Part><PartNumber>%lld</PartNumber><ETag>", (long long)(i + 1));
        for (const char *c = u->etag[i]; *c != '\0'; c++)
            if (strchr("\"&<>", *c) != NULL)
                text_add(&body, "&#%d;", *c);
            else
                text_add_bytes(&body, c, 1);
        text_add(&body, "</ETag></Part>");
    }
    text_add(&body, "</CompleteMultipartUpload>");
    struct s3_request request = {.verb = "upload to",
                                 .method = "POST",
                                 .key = u->key,
                                 .query = query.data,
                                 .total_ms = UPLOAD_COMPLETE_MS,
                                 .has_body = true,
                                 .body = body.data,
                                 .body_bytes = (int64_t)body.len,
                                 .text = &answer,
                                 .out_fd = -1};
    const enum status st = s3_request_send(&s3->connection, &request);
    text_free(&query);
    text_free(&body);
    text_free(&answer);
    return st;
}

/* Returns true always: an abort is sent also if the user stopped the upload. */
static bool always_go_on(void *arg)
{
    (void)arg;
    return true;
}

/* Aborts a multipart upload, so that the store frees its parts. */
static enum status send_abort(struct s3_connection *connection, const char *key, const char *id)
{
    struct text query = {0}, answer = {.limit = UPLOAD_ANSWER_MAX};
    text_add(&query, "uploadId=%s", id);
    struct s3_request request = {.verb = "abort the upload to",
                                 .method = "DELETE",
                                 .key = key,
                                 .query = query.data,
                                 .total_ms = UPLOAD_ABORT_MS,
                                 .tries = 2,
                                 .text = &answer,
                                 .out_fd = -1};
    const enum status st = s3_request_send(connection, &request);
    text_free(&query);
    text_free(&answer);
    return st;
}

/* Aborts the upload that failed. Its failure stays the message. */
static void abort_upload(struct s3 *s3, const struct upload *u)
{
    struct status_saved failure;
    struct s3_connection connection = {.s3 = s3, .goes_on = always_go_on};
    status_save(&failure);
    if (send_abort(&connection, u->key, u->id.data) != ST_OK)
        LOG_WARN("%s; its parts stay in the bucket until a lifecycle rule removes them",
                 status_message());
    s3_request_close(&connection);
    status_restore(&failure);
}

/* The unfinished uploads of one key, from a list of all that begin with it. */
struct unfinished {
    const char *key;
    bool is_key; /* the current one is of this key */
    char id[UPLOAD_UNFINISHED_MAX][UPLOAD_ID_MAX];
    int n;
};

static bool read_unfinished(void *arg, const char *path, const char *text)
{
    struct unfinished *u = arg;
    if (strcmp(path, "ListMultipartUploadsResult/Upload/Key") == 0) {
        u->is_key = strcmp(text, u->key) == 0;
    } else if (strcmp(path, "ListMultipartUploadsResult/Upload/UploadId") == 0 &&
               u->n < UPLOAD_UNFINISHED_MAX && strlen(text) < UPLOAD_ID_MAX) {
        memcpy(u->id[u->n], text, strlen(text) + 1);
    } else if (strcmp(path, "ListMultipartUploadsResult/Upload") == 0 &&
               u->n < UPLOAD_UNFINISHED_MAX) {
        u->n += u->is_key && u->id[u->n][0] != '\0';
        u->is_key = false;
    }
    return true;
}

/* Aborts the uploads of this key that killed processes left: the store would keep their parts, and
 * charge for them. A store or a user that may not list them is no failure. */
static void abort_unfinished(struct s3 *s3, const char *key)
{
    struct unfinished *found = memory_new(1, sizeof *found);
    struct text query = {0}, answer = {.limit = UPLOAD_LIST_MAX};
    text_add(&query, "prefix=");
    aws_sign_encode(&query, key, false);
    text_add(&query, "&uploads=");
    struct s3_request request = {.verb = "list the uploads of",
                                 .method = "GET",
                                 .query = query.data,
                                 .tries = 2,
                                 .text = &answer,
                                 .out_fd = -1};
    found->key = key;
    enum status st = s3_request_send(&s3->connection, &request);
    if (st == ST_OK)
        aws_xml_walk(answer.data != NULL ? answer.data : "", answer.len, read_unfinished, found);
    for (int i = 0; i < found->n && st == ST_OK; i++) {
        struct text id = {0};
        aws_sign_encode(&id, found->id[i], false);
        st = send_abort(&s3->connection, key, id.data);
        text_free(&id);
    }
    if (st != ST_OK) {
        LOG_DEBUG("%s", status_message());
        status_clear();
    }
    text_free(&query);
    text_free(&answer);
    free(found);
}

/* Uploads the open file. */
static enum status upload_file(struct s3 *s3, struct upload *u)
{
    u->part_bytes = s3->config.part_bytes;
    const int64_t bytes = u->before.st_size, least = bytes / UPLOAD_PARTS_MAX + 1;
    if (bytes > UPLOAD_OBJECT_MAX)
        return FAIL(ST_BAD_SETTING, "%s has %lld bytes, more than the 5 TiB of an S3 object",
                    u->path, (long long)bytes);
    u->part_bytes = u->part_bytes < least ? (least + 0xfffff) & ~(int64_t)0xfffff : u->part_bytes;
    u->parts_n = bytes > 0 ? (bytes + u->part_bytes - 1) / u->part_bytes : 1;
    u->etag = memory_new((size_t)u->parts_n, sizeof *u->etag);
    u->parallel = (struct s3_parallel){.s3 = s3,
                                       .parts_n = u->parts_n,
                                       .threads_n = UPLOAD_THREADS,
                                       .run = run_part,
                                       .arg = u,
                                       .total = bytes};
    if (u->parts_n > 1) {
        abort_unfinished(s3, u->key);
        TRY(begin_upload(s3, u));
    }
    enum status st = s3_parallel_run(&u->parallel);
    if (st == ST_OK)
        st = check_unchanged(u);
    if (u->parts_n > 1) {
        if (st == ST_OK)
            st = complete_upload(s3, u);
        if (st != ST_OK)
            abort_upload(s3, u);
    }
    return st;
}

enum status s3_upload(struct s3 *s3, const char *path, const char *key)
{
    struct upload u = {.path = path, .key = key};
    u.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (u.fd < 0)
        return file_read_fail(path, "open");
    enum status st = ST_OK;
    if (fstat(u.fd, &u.before) != 0 || !S_ISREG(u.before.st_mode))
        st = FAIL(ST_NO_INPUT, "cannot upload %s: it is not a regular file", path);
    if (st == ST_OK)
        st = upload_file(s3, &u);
    close(u.fd);
    text_free(&u.id);
    free(u.etag);
    return st;
}

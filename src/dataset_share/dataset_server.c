/* offer — see offer.h. Must not know who asks.
 *
 * A piece is read when it is asked for, on the supervisor's loop: a mebibyte, which takes a
 * millisecond at most from the page cache, where the worker that made the bill has just read it
 * all. What has been read and not yet sent is bounded, so that a thousand nodes that come at once
 * do not take a thousand buffers. */
#include "dataset_share/dataset_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/buffer.h>

#define CHUNKS_MAX 64 /* on their way at a time */

/* Outlives the offer while pieces of it are on their way. */
struct in_flight {
    int chunks_n;
    bool is_closed;
};

struct dataset_server {
    struct file_list lists[FILE_LIST_KINDS_N];
    char names[FILE_LIST_KINDS_N][FILE_LIST_NAME_MAX];
    struct in_flight *in_flight;
};

enum status dataset_server_open(struct dataset_server **out)
{
    struct dataset_server *server = calloc(1, sizeof(*server));
    if (server != NULL)
        server->in_flight = calloc(1, sizeof(*server->in_flight));
    if (server == NULL || server->in_flight == NULL) {
        free(server);
        return FAIL(ST_RETRY, "out of memory: the list of data for other nodes");
    }
    *out = server;
    return ST_OK;
}

void dataset_server_close(struct dataset_server *server)
{
    if (server == NULL)
        return;
    for (int kind = 0; kind < FILE_LIST_KINDS_N; kind++)
        file_list_free(&server->lists[kind]);
    server->in_flight->is_closed = true;
    if (server->in_flight->chunks_n == 0)
        free(server->in_flight);
    free(server);
}

enum status dataset_server_set(struct dataset_server *server, enum file_list_kind kind,
                               const char *bytes, size_t n)
{
    struct file_list list;
    enum status st = file_list_read(bytes, n, &list);
    if (st != ST_OK && server->lists[kind].state != FILE_LIST_STATE_WAIT)
        return st;
    if (st != ST_OK) { /* who waits for the first one would wait for ever */
        list.state = FILE_LIST_STATE_UNFIT;
        text_copy(list.why, sizeof(list.why), status_message());
    }
    file_list_free(&server->lists[kind]);
    server->lists[kind] = list;
    file_list_name(&list, server->names[kind]);
    return st;
}

void dataset_server_list(const struct dataset_server *server, enum file_list_kind kind,
                         struct text *out)
{
    file_list_write(out, &server->lists[kind], false);
}

/* ---- pieces ---- */

static void on_sent(const void *bytes, size_t n, void *arg)
{
    struct in_flight *in_flight = arg;
    (void)n;
    free((void *)(uintptr_t)bytes);
    in_flight->chunks_n--;
    if (in_flight->is_closed && in_flight->chunks_n == 0)
        free(in_flight);
}

/* What is short now may be there again in a moment: then whoever asks is to ask again. */
static enum status cannot_read(const struct file_list_entry *file, int error)
{
    bool is_short = error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
    return FAIL(
        is_short ? ST_RETRY : ST_NO_INPUT, "cannot read %s: %s%s", file->path, strerror(error),
        error == EMFILE || error == ENFILE ? "; raise the limit of open files (ulimit -n)" : "");
}

static enum status is_as_listed(const struct file_list_entry *file, int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return cannot_read(file, errno);
    if (!S_ISREG(info.st_mode))
        return FAIL(ST_NO_INPUT, "%s is no longer a file; start the job again", file->path);
    if (info.st_size != file->bytes)
        return FAIL(ST_NO_INPUT,
                    "%s has changed since the job began: it had %lld bytes and has %lld now; start "
                    "the job again",
                    file->path, (long long)file->bytes, (long long)info.st_size);
    return ST_OK;
}

static enum status read_all(const struct file_list_entry *file, int fd, int64_t first, char *out,
                            size_t n)
{
    size_t got = 0;
    while (got < n) {
        ssize_t more = pread(fd, out + got, n - got, first + (int64_t)got);
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0)
            return cannot_read(file, errno);
        if (more == 0)
            return FAIL(ST_NO_INPUT,
                        "%s became shorter while it was read: it ends after %lld of %lld bytes; "
                        "start the job again",
                        file->path, (long long)first + (long long)got, (long long)file->bytes);
        got += (size_t)more;
    }
    return ST_OK;
}

/* All of n bytes, or ST_NO_INPUT: node 0's file is another one than its worker saw. ST_RETRY: not
 * now. */
static enum status read_chunk(const struct file_list_entry *file, int64_t first, void *out,
                              size_t n)
{
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return cannot_read(file, errno);
    enum status st = is_as_listed(file, fd);
    if (st == ST_OK)
        st = read_all(file, fd, first, out, n);
    close(fd);
    return st;
}

int dataset_server_chunk(struct dataset_server *server, const struct file_list_request *request,
                         struct evbuffer *out)
{
    const struct file_list *list = &server->lists[request->kind];
    if (request->is_for_list || list->state != FILE_LIST_STATE_READY ||
        strcmp(request->name, server->names[request->kind]) != 0 ||
        request->file_i >= list->files_n || request->first >= list->files[request->file_i].bytes)
        return 410;
    const struct file_list_entry *file = &list->files[request->file_i];
    int64_t left = file->bytes - request->first;
    size_t n = left < (int64_t)FILE_LIST_CHUNK_BYTES ? (size_t)left : FILE_LIST_CHUNK_BYTES;
    if (file->path == NULL)
        return 410;
    void *bytes = server->in_flight->chunks_n < CHUNKS_MAX ? malloc(n) : NULL;
    if (bytes == NULL)
        return 503;
    enum status st = read_chunk(file, request->first, bytes, n);
    if (st != ST_OK) {
        free(bytes);
        return st == ST_RETRY ? 503 : 500;
    }
    server->in_flight->chunks_n++;
    if (evbuffer_add_reference(out, bytes, n, on_sent, server->in_flight) != 0) {
        on_sent(bytes, n, server->in_flight);
        return 503;
    }
    return 200;
}

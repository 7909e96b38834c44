/* file_server — see file_server.h. Must not know how the connection is secured.
 *
 * A chunk is read when it is requested, on the supervisor's loop. That is one mebibyte, and needs a
 * millisecond at most from the page cache, because the worker that made the list has just read
 * every file. Chunks that are read and not yet sent are counted and bounded, so that a thousand
 * nodes do not need a thousand buffers at the same time. */
#include "file_share/file_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/buffer.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "net/https_server.h"

#define WARN_MS 1000
#define LOG_AGAIN_MS 60000
#define CHUNKS_MAX 64 /* most chunks that are read and not yet sent */

/* The chunks that are read and not yet sent. Outlives the server while there are any. */
struct in_flight {
    int chunks_n;
    bool is_closed;
};

struct file_server {
    struct file_list lists[FILE_LIST_KINDS_N];
    char names[FILE_LIST_KINDS_N][FILE_LIST_NAME_MAX];
    struct in_flight *in_flight;
    int64_t warned_ms; /* clock_ms of the last warning; 0: never */
    /* time of each node's last chunk of each kind; 0: none */
    int64_t request_ms[FILE_LIST_KINDS_N][FILE_LIST_NODES_MAX];
};

struct file_server *file_server_open(void)
{
    struct file_server *server = memory_new(1, sizeof *server);
    server->in_flight = memory_new(1, sizeof *server->in_flight);
    return server;
}

void file_server_close(struct file_server *server)
{
    if (!server)
        return;
    for (int kind = 0; kind < FILE_LIST_KINDS_N; kind++)
        file_list_free(&server->lists[kind]);
    server->in_flight->is_closed = true;
    if (server->in_flight->chunks_n == 0)
        free(server->in_flight);
    free(server);
}

enum status file_server_set(struct file_server *server, enum file_list_kind kind, const char *bytes,
                            size_t n)
{
    struct file_list list;
    enum status st = file_list_read(bytes, n, &list);
    if (st != ST_OK && server->lists[kind].state != FILE_LIST_STATE_WAIT)
        return st;
    if (st != ST_OK) { /* nodes that wait for the first list would wait without end */
        list.state = FILE_LIST_STATE_UNFIT;
        text_copy(list.why, sizeof list.why, status_message());
    }
    file_list_free(&server->lists[kind]);
    server->lists[kind] = list;
    file_list_name(&list, server->names[kind]);
    return st;
}

/* ---- chunks ---- */

static void on_sent(const void *bytes, size_t n, void *arg)
{
    struct in_flight *in_flight = arg;
    (void)n;
    free((void *)(uintptr_t)bytes);
    in_flight->chunks_n--;
    if (in_flight->is_closed && in_flight->chunks_n == 0)
        free(in_flight);
}

/* Fails because a file cannot be read. A shortage may be over in a moment (ST_RETRY): the node
 * tries again. */
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

/* Reads n bytes. ST_NO_INPUT: the file differs from the listed one. ST_RETRY: not now. */
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

static int answer_chunk(struct file_server *server, const struct file_list_request *request,
                        struct evbuffer *out)
{
    const struct file_list *list = &server->lists[request->kind];
    if (list->state != FILE_LIST_STATE_READY ||
        strcmp(request->name, server->names[request->kind]) != 0 ||
        request->file_i >= list->files_n || request->first >= list->files[request->file_i].bytes)
        return 410;
    const struct file_list_entry *file = &list->files[request->file_i];
    int64_t left = file->bytes - request->first;
    size_t n = left < (int64_t)FILE_LIST_CHUNK_BYTES ? (size_t)left : FILE_LIST_CHUNK_BYTES;
    if (!file->path)
        return 410;
    void *bytes = server->in_flight->chunks_n < CHUNKS_MAX ? malloc(n) : NULL;
    if (!bytes)
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

static int answer_list(const struct file_server *server, enum file_list_kind kind,
                       struct evbuffer *out)
{
    struct text json = {.limit = FILE_LIST_JSON_MAX};
    file_list_write(&json, &server->lists[kind], false);
    bool is_whole = !json.overflow && evbuffer_add(out, json.data, json.len) == 0;
    text_free(&json);
    return is_whole ? 200 : 503;
}

int file_server_answer(struct file_server *server, const struct file_list_request *wanted,
                       struct evbuffer *out)
{
    return wanted->is_for_list ? answer_list(server, wanted->kind, out)
                               : answer_chunk(server, wanted, out);
}

/* ---- requests ---- */

/* Warns at most once a second, because a sender may try again immediately. */
static void warn_ratelimited(struct file_server *server, const char *what, const char *sender)
{
    int64_t now_ms = clock_ms();
    if (server->warned_ms == 0 || now_ms - server->warned_ms >= WARN_MS)
        LOG_WARN("%s %s: %s", what, sender, status_message());
    server->warned_ms = now_ms;
    status_clear();
}

void file_server_on_request(struct file_server *server, struct https_server_request *request,
                            const char *path, const char *bytes, size_t n)
{
    struct file_list_request wanted;
    char peer[64];
    if (strcmp(path, "/v1/data") != 0) {
        https_server_respond(request, 404, NULL);
        return;
    }
    https_server_peer(request, peer, sizeof peer);
    if (file_list_read_request(bytes, n, &wanted) == ST_OK) {
        struct evbuffer *body = evbuffer_new();
        status_clear();
        int code = body ? file_server_answer(server, &wanted, body) : 503;
        if (status_message()[0] != 0)
            warn_ratelimited(server, "cannot send files to", peer);
        if (code == 200 && !wanted.is_for_list) {
            /* Logs that a node fetches data, which explains the load of the network. Once, and
             * again if the node comes back after LOG_AGAIN_MS. */
            int node_id = wanted.node_id;
            int64_t now_ms = clock_ms(), *last_ms = &server->request_ms[wanted.kind][node_id];
            if (*last_ms == 0 || now_ms - *last_ms >= LOG_AGAIN_MS)
                LOG_INFO("node %d (%s) fetches this node's %s", node_id, peer,
                         file_list_setting(wanted.kind));
            *last_ms = now_ms;
        }
        if (code == 200 && !wanted.is_for_list)
            https_server_respond_bytes(request, body);
        else
            https_server_respond(request, code, code == 200 ? body : NULL);
        if (body)
            evbuffer_free(body);
        return;
    }
    warn_ratelimited(server, "unreadable request from", peer);
    https_server_respond(request, 400, NULL);
}

#ifdef FUZZ
#include "base/assert.h"

/* Answers a request of any content, with a list of one file that does not exist. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char list[] =
        "{\"state\":\"ready\",\"why\":\"\",\"weights\":[0],\"files\":[{\"part\":0,"
        "\"bytes\":9,\"skip\":0,\"sum\":\"0000000000000001\","
        "\"suffix\":\".bin\",\"path\":\"/none\"}]}";
    static struct file_server *server;
    struct file_list_request wanted;
    if (!server) {
        server = file_server_open();
        ASSERT(file_server_set(server, FILE_LIST_KIND_DATA, list, sizeof list - 1) == ST_OK);
    }
    if (file_list_read_request((const char *)bytes, n, &wanted) != ST_OK)
        return 0;
    struct evbuffer *out = evbuffer_new();
    int code = file_server_answer(server, &wanted, out);
    ASSERT(code == 200 ? wanted.is_for_list : evbuffer_get_length(out) == 0);
    evbuffer_free(out);
    return 0;
}
#endif

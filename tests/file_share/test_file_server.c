/* file_server: which HTTP code a request for a chunk gets. A shortage that may pass is 503: the
 * sender tries again. A file that has changed is 500, with both sizes. An unreadable list ends the
 * wait for one. Also https_server: the limit of open files fits the connections of all nodes and
 * their workers. */
#include "harness.h"

#include <sys/resource.h>

#include <event2/buffer.h>
#include <event2/event.h>

#include "cluster/nodes.h"
#include "file_share/file_server.h"
#include "net/https_server.h"

#define SIZE (FILE_LIST_CHUNK_BYTES + 100)

static char path[600];
static uint8_t bytes[SIZE];

static struct file_server *serve_file(const char *file)
{
    struct file_list list = {.state = FILE_LIST_STATE_READY};
    struct text out = {.limit = FILE_LIST_JSON_MAX};
    struct file_server *server;
    server = file_server_open();
    assert_int_equal(
        file_list_add(&list, &(struct file_list_entry){.bytes = SIZE,
                                                       .suffix = ".bin",
                                                       .path = (char *)(uintptr_t)file}),
        ST_OK);
    file_list_write(&out, &list, true);
    assert_int_equal(file_server_set(server, 0, out.data, out.len), ST_OK);
    text_free(&out);
    file_list_free(&list);
    return server;
}

static struct file_list seen(struct file_server *server)
{
    struct file_list_request wanted = {.is_for_list = true};
    struct evbuffer *out = evbuffer_new();
    struct file_list list;
    assert_int_equal(file_server_answer(server, &wanted, out), 200);
    assert_int_equal(
        file_list_read((const char *)evbuffer_pullup(out, -1), evbuffer_get_length(out), &list),
        ST_OK);
    evbuffer_free(out);
    return list;
}

static int request(struct file_server *server, int64_t first, size_t *got)
{
    struct file_list list = seen(server);
    struct file_list_request question = {.first = first};
    struct evbuffer *out = evbuffer_new();
    file_list_name(&list, question.name);
    file_list_free(&list);
    status_clear();
    int code = file_server_answer(server, &question, out);
    *got = evbuffer_get_length(out);
    evbuffer_free(out);
    return code;
}

TEST(chunks_come_from_a_file_that_is_as_listed)
{
    size_t got;
    struct file_server *server = serve_file(path);
    assert_int_equal(request(server, 0, &got), 200);
    assert_int_equal(got, FILE_LIST_CHUNK_BYTES);
    assert_int_equal(request(server, FILE_LIST_CHUNK_BYTES, &got), 200);
    assert_int_equal(got, 100);
    assert_int_equal(request(server, SIZE, &got), 410);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(request(server, 0, &got), 500);
    assert_non_null(strstr(status_message(), "it had 1048676 bytes and has 1000 now"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(request(server, 0, &got), 500);
    assert_non_null(strstr(status_message(), "No such file"));
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(request(server, 0, &got), 500);
    assert_non_null(strstr(status_message(), "no longer a file"));
    assert_int_equal(rmdir(path), 0);
    file_server_close(server);
    assert_int_equal(file_replace(path, bytes, SIZE), ST_OK);
}

TEST(too_many_open_files_is_try_again)
{
    size_t got;
    struct rlimit limit, none;
    struct file_server *server = serve_file(path);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 3; /* all lower descriptors are in use */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int code = request(server, 0, &got);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(code, 503);
    assert_non_null(strstr(status_message(), "Too many open files"));
    assert_int_equal(request(server, 0, &got), 200);
    file_server_close(server);
}

TEST(an_unreadable_list_ends_the_wait)
{
    static const char bad[] = "{\"state\":\"ready\",\"why\":\"\",\"files\":[";
    struct file_server *server;
    server = file_server_open();
    struct file_list list = seen(server);
    assert_int_equal(list.state, FILE_LIST_STATE_WAIT);
    assert_int_equal(file_server_set(server, 0, bad, sizeof(bad) - 1), ST_BAD_DATA);
    list = seen(server);
    assert_int_equal(list.state, FILE_LIST_STATE_UNFIT);
    assert_non_null(strstr(list.why, "node 0's list of files"));
    file_server_close(server);
    server = serve_file(path); /* a good list stays */
    assert_int_equal(file_server_set(server, 0, bad, sizeof(bad) - 1), ST_BAD_DATA);
    list = seen(server);
    assert_int_equal(list.state, FILE_LIST_STATE_READY);
    file_list_free(&list);
    file_server_close(server);
    status_clear();
}

static void ignore_request(void *arg, struct https_server_request *request, const char *where,
                           const char *data, size_t n)
{
    (void)arg, (void)request, (void)where, (void)data, (void)n;
}
static void ignore_disconnect(void *arg, const void *tag) { (void)arg, (void)tag; }

/* Heartbeat, urgent news and world of each node, and a connection of each worker that fetches
 * data. */
TEST(the_file_limit_fits_all_connections)
{
    enum { NODES = 16, WORKERS = 64 };
    struct rlimit before, after, low;
    struct psk psk = {.is_none = true};
    struct https_server *server;
    struct https_server_config config = {.addr = "127.0.0.1",
                                         .port = free_port(),
                                         .nodes_n = NODES,
                                         .workers_n = WORKERS,
                                         .body_bytes_max = 4096,
                                         .psk = &psk,
                                         .on_request = ignore_request,
                                         .on_disconnect = ignore_disconnect};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 4096)
        HARNESS_SKIP("this machine allows %llu open files", (unsigned long long)before.rlim_max);
    low = before;
    low.rlim_cur = 256;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    config.loop = event_base_new();
    assert_int_equal(https_server_open(&config, &server), ST_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
    https_server_close(server);
    event_base_free(config.loop);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(after.rlim_cur >= NODES * (3 + WORKERS));
}

static int prepare(void **state)
{
    text_format(path, sizeof(path), "%s/data.bin", harness_tmpdir());
    return file_replace(path, bytes, SIZE) == ST_OK ? 0 : -1;
}

NODES_MAIN(prepare)

/* offer, at node 0: which answer a question for a piece gets. What may be had in a moment is 503,
 * so that who asks asks again; a file that is another one by now is 500, with both sizes. A list
 * that nobody can read ends the waiting. And the door: as many open files as nodes and their
 * workers have connections. */
#include "harness.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <event2/buffer.h>
#include <event2/event.h>

#include "base/file.h"
#include "cluster/nodes.h"
#include "dataset_share/dataset_server.h"
#include "net/https_server.h"

#define SIZE (FILE_LIST_CHUNK_BYTES + 100)

static char path[600];
static uint8_t bytes[SIZE];

static struct dataset_server *offer_of(const char *file)
{
    struct file_list list = {.state = FILE_LIST_STATE_READY};
    struct text out = {.limit = FILE_LIST_JSON_MAX};
    struct dataset_server *dataset;
    assert_int_equal(dataset_server_open(&dataset), ST_OK);
    assert_int_equal(
        file_list_add(&list, &(struct file_list_entry){.bytes = SIZE,
                                                       .suffix = ".bin",
                                                       .path = (char *)(uintptr_t)file}),
        ST_OK);
    file_list_write(&out, &list, true);
    assert_int_equal(dataset_server_set(dataset, 0, out.data, out.len), ST_OK);
    text_free(&out);
    file_list_free(&list);
    return dataset;
}

static struct file_list seen(const struct dataset_server *dataset)
{
    struct text out = {.limit = FILE_LIST_JSON_MAX};
    struct file_list list;
    dataset_server_list(dataset, 0, &out);
    assert_int_equal(file_list_read(out.data, out.len, &list), ST_OK);
    text_free(&out);
    return list;
}

static int request(struct dataset_server *dataset, int64_t first, size_t *got)
{
    struct file_list list = seen(dataset);
    struct file_list_request question = {.first = first};
    struct evbuffer *out = evbuffer_new();
    file_list_name(&list, question.name);
    file_list_free(&list);
    status_clear();
    int code = dataset_server_chunk(dataset, &question, out);
    *got = evbuffer_get_length(out);
    evbuffer_free(out);
    return code;
}

static void pieces_come_from_a_file_that_is_as_listed(void **state)
{
    (void)state;
    size_t got;
    struct dataset_server *dataset = offer_of(path);
    assert_int_equal(request(dataset, 0, &got), 200);
    assert_int_equal(got, FILE_LIST_CHUNK_BYTES);
    assert_int_equal(request(dataset, FILE_LIST_CHUNK_BYTES, &got), 200);
    assert_int_equal(got, 100);
    assert_int_equal(request(dataset, SIZE, &got), 410);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(request(dataset, 0, &got), 500);
    assert_non_null(strstr(status_message(), "it had 1048676 bytes and has 1000 now"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(request(dataset, 0, &got), 500);
    assert_non_null(strstr(status_message(), "No such file"));
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(request(dataset, 0, &got), 500);
    assert_non_null(strstr(status_message(), "no longer a file"));
    assert_int_equal(rmdir(path), 0);
    dataset_server_close(dataset);
    assert_int_equal(file_replace(path, bytes, SIZE), ST_OK);
}

static void short_of_files_is_for_now_only(void **state)
{
    (void)state;
    size_t got;
    struct rlimit limit, none;
    struct dataset_server *dataset = offer_of(path);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 3; /* all numbers below are taken */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int code = request(dataset, 0, &got);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(code, 503);
    assert_non_null(strstr(status_message(), "Too many open files"));
    assert_int_equal(request(dataset, 0, &got), 200);
    dataset_server_close(dataset);
}

static void a_list_that_cannot_be_read_ends_the_waiting(void **state)
{
    (void)state;
    static const char bad[] = "{\"state\":\"ready\",\"why\":\"\",\"files\":[";
    struct dataset_server *dataset;
    assert_int_equal(dataset_server_open(&dataset), ST_OK);
    struct file_list list = seen(dataset);
    assert_int_equal(list.state, FILE_LIST_STATE_WAIT);
    assert_int_equal(dataset_server_set(dataset, 0, bad, sizeof(bad) - 1), ST_BAD_DATA);
    list = seen(dataset);
    assert_int_equal(list.state, FILE_LIST_STATE_UNFIT);
    assert_non_null(strstr(list.why, "node 0's list of files"));
    dataset_server_close(dataset);
    dataset = offer_of(path); /* one that stands is left */
    assert_int_equal(dataset_server_set(dataset, 0, bad, sizeof(bad) - 1), ST_BAD_DATA);
    list = seen(dataset);
    assert_int_equal(list.state, FILE_LIST_STATE_READY);
    file_list_free(&list);
    dataset_server_close(dataset);
    status_clear();
}

static void unasked(void *arg, struct https_server_request *request, const char *where,
                    const char *data, size_t n)
{
    (void)arg, (void)request, (void)where, (void)data, (void)n;
}
static void ungone(void *arg, const void *tag) { (void)arg, (void)tag; }

/* Beat, news, world of a node, and a connection of each of its workers that takes data. */
static void files_for_all_connections_are_allowed(void **state)
{
    (void)state;
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
                                         .on_request = unasked,
                                         .on_disconnect = ungone};
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
    (void)state;
    text_format(path, sizeof(path), "%s/data.bin", harness_tmpdir());
    return file_replace(path, bytes, SIZE) == ST_OK ? 0 : -1;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_come_from_a_file_that_is_as_listed),
    cmocka_unit_test(short_of_files_is_for_now_only),
    cmocka_unit_test(a_list_that_cannot_be_read_ends_the_waiting),
    cmocka_unit_test(files_for_all_connections_are_allowed),
};

NODES_MAIN(tests, prepare)

/* The files of node 0, fetched by file_client_fetch in this process. Node 0 is a whole cluster
 * and a file_server in a process of its own. What arrives is complete and right, or is refused
 * with a reason; what has arrived is not fetched again. Also a node 0 that sends wrong data. */
#include "harness.h"

#include <sys/socket.h>

#include <arpa/inet.h>
#include <event2/event.h>
#include <xxhash.h>

#include "cluster/cluster.h"
#include "cluster/nodes.h"
#include "file_share/file_client.h"
#include "file_share/file_server.h"

#define TOKEN "a secret of tests"
#define SIZE_A ((size_t)3 * FILE_LIST_CHUNK_BYTES + 4321) /* four chunks */
#define SIZE_B ((size_t)10)

static char path_a[600], path_b[600], cache[600];
static uint8_t bytes_a[SIZE_A], bytes_b[SIZE_B] = "{\"a\": 1}\n";

/* ---- node 0 ---- */

static void nothing(void *arg, const struct cluster_world *world) { (void)arg, (void)world; }
static void no_abort(void *arg, int64_t generation, const char *why)
{
    (void)arg, (void)generation, (void)why;
}
static void no_stop(void *arg, int request) { (void)arg, (void)request; }
static void no_end(void *arg, enum status st) { (void)arg, (void)st; }

static void make_list(struct file_list *list)
{
    *list = (struct file_list){.state = FILE_LIST_STATE_READY, .weights = {0.25, 0.75}};
    file_list_add(list, &(struct file_list_entry){0, (int64_t)SIZE_A, 1024,
                                                  XXH3_64bits(bytes_a + 1024, SIZE_A - 1024),
                                                  ".bin", "", path_a, false, false});
    file_list_add(list,
                  &(struct file_list_entry){1, (int64_t)SIZE_B, 0, XXH3_64bits(bytes_b, SIZE_B),
                                            ".json", "", path_b, false, false});
}

static enum file_list_kind kind = FILE_LIST_KIND_DATA; /* of the list and of the requests */

struct source {
    struct cluster *cluster;
    struct file_server *server;
    const struct file_list *list;
};
static void on_request(void *arg, struct https_server_request *request, const char *path,
                       const char *bytes, size_t n)
{
    struct source *source = arg;
    file_server_on_request(source->server, request, path, bytes, n);
}
static void set_list(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct source *source = arg;
    struct text out = {.limit = FILE_LIST_JSON_MAX};
    file_list_write(&out, source->list, true);
    (void)file_server_set(source->server, kind, out.data, out.len);
    text_free(&out);
}

/* Node 0 of two; its list of files is there after 300 ms. */
static pid_t serve(int port, const struct file_list *list)
{
    pid_t pid = fork();
    if (pid != 0) {
        harness_wait_ms(200);
        return pid;
    }
    struct source source = {.list = list};
    struct timeval in = {0, 300000};
    struct event_base *loop = event_base_new();
    struct psk psk;
    if (psk_derive(TOKEN, &psk) != ST_OK)
        _exit(1);
    struct cluster_config config = {.nodes_n = 2,
                                    .workers_n = 1,
                                    .master_addr = "127.0.0.1",
                                    .master_port = port,
                                    .psk = &psk,
                                    .agree_json = agree,
                                    .join_timeout_ms = 600000,
                                    .peer_timeout_ms = 6000,
                                    .max_restarts = 3,
                                    .loop = loop,
                                    .on_world = nothing,
                                    .on_abort = no_abort,
                                    .on_stop = no_stop,
                                    .on_end = no_end,
                                    .on_request = on_request,
                                    .arg = &source};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    source.server = file_server_open();
    if (cluster_open(&config, &source.cluster) != ST_OK)
        _exit(1);
    struct event *timer = evtimer_new(loop, set_list, &source);
    event_add(timer, &in);
    event_base_dispatch(loop);
    _exit(0);
}

static void end_server(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- the other node ---- */

/* Bytes: had, complete before the fetch began; came, that arrived after that. */
static int64_t stop_at = -1, had, came;
static bool progress(void *arg, int64_t done, int64_t total)
{
    static int64_t before;
    (void)arg, (void)total;
    if (had > 0 && done > before)
        came += done - before;
    if (had == 0)
        had = done;
    before = done;
    return stop_at < 0 || done < stop_at;
}

static enum status bring(int port, const char *token, struct text *out, enum file_list_state *state)
{
    struct psk psk;
    assert_int_equal(psk_derive(token, &psk), ST_OK);
    struct file_client_config config = {.psk = &psk,
                                        .host = "127.0.0.1",
                                        .port = port,
                                        .node_id = 1,
                                        .kind = kind,
                                        .cache_dir = cache,
                                        .progress = progress};
    had = came = 0;
    text_free(out);
    return file_client_fetch(&config, out, state);
}

static void assert_file(const char *path, const uint8_t *bytes, size_t n)
{
    char *data;
    size_t got;
    assert_int_equal(file_read(path, (size_t)64 << 20, &data, &got), ST_OK);
    assert_int_equal(got, n);
    assert_memory_equal(data, bytes, n);
    free(data);
}

static void kept_paths(const struct file_list *list, char a[700], char b[700], char partial[700])
{
    char name[FILE_LIST_NAME_MAX];
    file_list_name(list, name);
    text_format(a, 700, "%s/from-node-0/%s/0/00000.bin", cache, name);
    text_format(b, 700, "%s/from-node-0/%s/1/00001.json", cache, name);
    text_format(partial, 700, "%s/from-node-0/%s/part-00000", cache, name);
}

TEST(data_arrive_complete_and_once)
{
    struct file_list list;
    struct text out = {0};
    enum file_list_state got;
    char a[700], b[700], partial[700], expected[2048];
    int port = free_port();
    make_list(&list);
    kept_paths(&list, a, b, partial);
    pid_t zero = serve(port, &list);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_OK);
    assert_int_equal(got, FILE_LIST_STATE_READY);
    char name[FILE_LIST_NAME_MAX];
    file_list_name(&list, name);
    text_format(expected, sizeof(expected), "%s/from-node-0/%s/0:0.25,%s/from-node-0/%s/1:0.75",
                cache, name, cache, name);
    assert_string_equal(out.data, expected);
    assert_file(a, bytes_a, SIZE_A);
    assert_file(b, bytes_b, SIZE_B);
    assert_false(file_exists(partial));
    /* Again: nothing is fetched; no chunk of node 0's files is requested. */
    struct stat before, after;
    stat(a, &before);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_OK);
    stat(a, &after);
    assert_int_equal(before.st_ino, after.st_ino);
    /* damaged here: found, and fetched again */
    int fd = open(a, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 5000), 1);
    close(fd);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_OK);
    assert_file(a, bytes_a, SIZE_A);
    end_server(zero);
    text_free(&out);
    file_list_free(&list);
}

TEST(a_fetch_continues_after_a_break)
{
    struct file_list list;
    struct text out = {0};
    enum file_list_state got;
    char a[700], b[700], partial[700];
    int port = free_port();
    make_list(&list);
    kept_paths(&list, a, b, partial);
    unlink(a);
    pid_t zero = serve(port, &list);
    stop_at = (int64_t)(SIZE_B + 2 * FILE_LIST_CHUNK_BYTES); /* file b is complete */
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_RETRY);
    stop_at = -1;
    assert_false(file_exists(a));
    int64_t have = file_bytes(partial);
    assert_in_range(have, FILE_LIST_CHUNK_BYTES, SIZE_A - 1);
    end_server(zero);
    zero = serve(port, &list); /* node 0 starts again, too */
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_OK);
    assert_int_equal(had, SIZE_B + (size_t)have);
    assert_in_range(came, 1, SIZE_A - (size_t)have);
    assert_file(a, bytes_a, SIZE_A);
    /* What arrived before the break was damaged on the disk: fetched again from the start. */
    unlink(a);
    int fd = open(partial, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, path_a, 64), 64);
    assert_int_equal(ftruncate(fd, 2000000), 0);
    close(fd);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_OK);
    assert_file(a, bytes_a, SIZE_A);
    end_server(zero);
    text_free(&out);
    file_list_free(&list);
}

TEST(refusals_have_a_reason)
{
    struct file_list list;
    struct text out = {0};
    enum file_list_state got;
    int port = free_port();
    make_list(&list);
    pid_t zero = serve(port, &list);
    assert_int_equal(bring(port, "another secret of tests", &out, &got), ST_NOT_ADMITTED);
    end_server(zero);
    list.files[1].sum++; /* not the sum of the file on node 0 */
    zero = serve(port, &list);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "a wrong checksum"));
    end_server(zero);
    list.files[1].sum--;
    list.files[1].bytes++; /* not the size of the file on node 0 */
    zero = serve(port, &list);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_NO_INPUT);
    end_server(zero);
    file_list_free(&list);
    list.state = FILE_LIST_STATE_UNFIT;
    text_copy(list.why, sizeof(list.why), "a reason");
    zero = serve(port, &list);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_NO_INPUT);
    assert_non_null(strstr(status_message(), "a reason"));
    end_server(zero);
    list.state = FILE_LIST_STATE_NONE;
    zero = serve(port, &list);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_OK);
    assert_int_equal(got, FILE_LIST_STATE_NONE);
    assert_int_equal(out.len, 0);
    end_server(zero);
    status_clear();
}

TEST(too_little_space_is_refused_first)
{
    struct file_list list = {.state = FILE_LIST_STATE_READY};
    struct text out = {0};
    enum file_list_state got;
    int port = free_port();
    file_list_add(&list, &(struct file_list_entry){0, FILE_LIST_FILE_BYTES_MAX, 0, 1, ".bin", "",
                                                   path_a, false, false});
    pid_t zero = serve(port, &list);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_STORE);
    assert_non_null(strstr(status_message(), "CACHE_DIR"));
    end_server(zero);
    file_list_free(&list);
    status_clear();
}

/* ---- files that keep their names ---- */

static void add_named(struct file_list *list, const char *name, char *path, const uint8_t *bytes,
                      size_t n)
{
    struct file_list_entry file = {.bytes = (int64_t)n, .sum = XXH3_64bits(bytes, n), .path = path};
    text_copy(file.name, sizeof(file.name), name);
    assert_int_equal(file_list_add(list, &file), ST_OK);
}

/* A folder of node 0 arrives as a folder with the same names, under its own kind only. A damaged
 * file that is kept is fetched again, and only this file. */
TEST(named_files_keep_their_names)
{
    struct file_list list = {.state = FILE_LIST_STATE_READY};
    struct text out = {0};
    enum file_list_state got;
    int port = free_port();
    char path[800], name[FILE_LIST_NAME_MAX], dir[700];
    add_named(&list, "config.json", path_b, bytes_b, SIZE_B);
    add_named(&list, "tokenizer-1_a.model", path_a, bytes_a, SIZE_A);
    file_list_name(&list, name);
    text_format(dir, sizeof(dir), "%s/from-node-0/%s/0", cache, name);
    kind = FILE_LIST_KIND_MODEL;
    pid_t zero = serve(port, &list);
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_OK);
    assert_int_equal(got, FILE_LIST_STATE_READY);
    assert_string_equal(out.data, dir);
    text_format(path, sizeof(path), "%s/config.json", dir);
    assert_file(path, bytes_b, SIZE_B);
    text_format(path, sizeof(path), "%s/tokenizer-1_a.model", dir);
    assert_file(path, bytes_a, SIZE_A);
    bytes_a[77] ^= 1;
    assert_int_equal(file_replace(path, bytes_a, SIZE_A), ST_OK);
    bytes_a[77] ^= 1;
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_OK);
    assert_int_equal(came, SIZE_A);
    assert_file(path, bytes_a, SIZE_A);
    kind = FILE_LIST_KIND_TOKENIZER; /* it has no list: the client waits, until it is stopped */
    stop_at = 0;
    assert_int_equal(bring(port, TOKEN, &out, &got), ST_RETRY);
    stop_at = -1;
    kind = FILE_LIST_KIND_DATA;
    end_server(zero);
    file_list_free(&list);
    text_free(&out);
    status_clear();
}

/* ---- a node 0 that sends wrong data (with JOB_TOKEN=none, for a simple fake) ---- */

static pid_t send_wrong(int port, const char *first, const char *then, size_t then_n)
{
    pid_t pid = fork();
    if (pid != 0) {
        harness_wait_ms(100);
        return pid;
    }
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    char request[4096], head[128];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, (struct sockaddr *)&name, sizeof(name)) != 0 || listen(listener, 8) != 0)
        _exit(1);
    for (int i = 0;; i++) {
        int fd = accept(listener, NULL, NULL);
        const char *body = i == 0 ? first : then;
        size_t n = i == 0 ? strlen(first) : then_n;
        if (read(fd, request, sizeof(request)) <= 0)
            continue;
        text_format(head, sizeof(head),
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", n);
        if (write(fd, head, strlen(head)) < 0 || write(fd, body, n) < 0)
            continue;
        shutdown(fd, SHUT_RDWR);
        close(fd);
    }
}

TEST(wrong_data_are_refused)
{
    static char much[2 * FILE_LIST_CHUNK_BYTES];
    static const char list[] =
        "{\"state\":\"ready\",\"why\":\"\",\"weights\":[0],\"files\":[{\"part\":0,\"bytes\":100,"
        "\"skip\":0,\"sum\":\"0000000000000001\",\"suffix\":\".bin\"}]}";
    const struct {
        const char *first;
        size_t then_n;
    } rows[] = {{"{", 0},    {"{\"state\":\"ready\"}", 0}, {list, 0}, {list, 101},
                {list, 100}, {list, sizeof(much)}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct text out = {0};
        enum file_list_state got;
        int port = free_port();
        pid_t zero = send_wrong(port, rows[i].first, much, rows[i].then_n);
        assert_int_equal(bring(port, "none", &out, &got), ST_BAD_DATA);
        end_server(zero);
        text_free(&out);
    }
    status_clear();
}

static int prepare(void **state)
{
    text_format(path_a, sizeof(path_a), "%s/a.bin", harness_tmpdir());
    text_format(path_b, sizeof(path_b), "%s/b.json", harness_tmpdir());
    text_format(cache, sizeof(cache), "%s/cache", harness_tmpdir());
    for (size_t i = 0; i < SIZE_A; i++)
        bytes_a[i] = (uint8_t)(i * 2654435761u >> 13);
    return file_replace(path_a, bytes_a, SIZE_A) == ST_OK &&
                   file_replace(path_b, bytes_b, SIZE_B) == ST_OK
               ? 0
               : -1;
}

NODES_MAIN(prepare)

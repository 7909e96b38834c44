/* status_client — answers that are healthy, unhealthy, unreachable, garbage, too long or
 * empty, from a server of a few lines. */
#include "harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "serve/status_client.h"

#define OK_HEAD "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"

static int server_port;
static char shown[65536];
static char request_line[256];

/* A child that answers one request with these bytes, then `repeat` times 64 KiB more; keeps the
 * request's first line. */
static pid_t serve_once(const char *answer, int repeat)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(name);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &n), 0);
    server_port = ntohs(name.sin_port);
    char path[600];
    text_format(path, sizeof(path), "%s/request", harness_tmpdir());
    pid_t child = fork();
    if (child == 0) {
        static char request[4096], filler[65536];
        signal(SIGPIPE, SIG_IGN);
        alarm((unsigned)(harness_patience_ms(20000) / 1000));
        int fd = accept(listener, NULL, NULL);
        ssize_t got = read(fd, request, sizeof(request) - 1);
        int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        bool kept = got > 0 && write(out, request, strcspn(request, "\r")) >= 0;
        memset(filler, ' ', sizeof(filler));
        bool sent = write(fd, answer, strlen(answer)) >= 0;
        for (int i = 0; i < repeat && sent; i++)
            sent = write(fd, filler, sizeof(filler)) > 0;
        if (repeat < 0)
            sleep((unsigned)(harness_patience_ms(15000) / 1000));
        close(fd);
        _exit(kept ? 0 : 1);
    }
    close(listener);
    return child;
}

/* status_client_main with stdout caught in `shown`. */
static enum status probe(const char *url, int port, bool as_json, bool has_colour)
{
    char path[600];
    text_format(path, sizeof(path), "%s/shown", harness_tmpdir());
    fflush(stdout);
    int kept = dup(STDOUT_FILENO), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(fd, STDOUT_FILENO);
    enum status st = status_client_main(url, port, "", as_json, has_colour);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    ssize_t n = pread(fd, shown, sizeof(shown) - 1, 0);
    shown[n > 0 ? n : 0] = 0;
    close(fd);
    return st;
}

static enum status fetch_once(const char *answer, bool as_json, bool has_colour)
{
    pid_t child = serve_once(answer, 0);
    enum status st = probe("", server_port, as_json, has_colour);
    waitpid(child, NULL, 0);
    char path[600], *data;
    size_t bytes;
    text_format(path, sizeof(path), "%s/request", harness_tmpdir());
    if (file_read(path, 200, &data, &bytes) == ST_OK) {
        text_copy(request_line, sizeof(request_line), data);
        free(data);
    }
    return st;
}

static const char good[] =
    OK_HEAD "{\"schema\":1,\"version\":\"0.1.0\",\"phase\":\"training\",\"node_id\":0,\"n_nodes\":"
            "1,\"backend\":\"self\",\"device\":\"cpu\",\"model\":{\"name\":\"gpt2-mini\","
            "\"layers\":6,\"heads\":6,\"embed\":384,\"context\":1024,\"vocab\":50257,"
            "\"parameters\":30000000,\"task\":\"lm\",\"adapter\":{\"rank\":16,\"alpha\":32,"
            "\"targets\":\"all\\u001b\",\"trained\":1200000,\"frozen\":28800000}},\"step\":120,"
            "\"steps\":5000,\"epoch\":0,"
            "\"loss\":3.2145,\"val_loss\":null,\"lr\":0.0003,\"grad_norm\":1.02,\"tokens\":1000000,"
            "\"tokens_per_second\":14100,\"step_ms\":{\"last\":182,\"p50\":180,\"p95\":200},"
            "\"mfu\":0.412,\"eta_seconds\":840,\"uptime_seconds\":45,\"progress_age_seconds\":0.2,"
            "\"restarts\":0,\"checkpoint\":{\"step\":100,\"path\":\"/c\\u001b[2J/"
            "x\",\"age_seconds\":61},\"ranks\":[{\"rank\":0,\"node\":0,\"device\":\"cpu\","
            "\"state\":\"training\",\"step\":120,\"memory_bytes\":2147483648}],\"error\":null}\n";

TEST(healthy)
{
    assert_int_equal(fetch_once(good, false, false), ST_OK);
    assert_string_equal(request_line, "GET /status HTTP/1.1");
    static const char *const words[] = {"training  node 0 of 1  cpu",
                                        "gpt2-mini (lm)  6 layers, 6 heads, 384 wide",
                                        "adapter     LoRA rank 16, alpha 32, targets all",
                                        "  1.20M train, 28.8M frozen\n",
                                        "120 / 5000  (2.4%)",
                                        "loss        3.2145  validation -  lr 3.0e-04",
                                        "14.1k tok/s",
                                        "p50 180 ms, p95 200 ms",
                                        "mfu 41.2%",
                                        "eta 14m",
                                        "step 100, 1m ago",
                                        "rank 0",
                                        "2.0 GiB"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(shown, words[i]) == NULL)
            print_message("# missing %s in %s\n", words[i], shown);
        assert_non_null(strstr(shown, words[i]));
    }
    assert_null(strchr(shown, '\033')); /* neither colours nor the node's escapes */
    assert_int_equal(fetch_once(good, false, true), ST_OK);
    assert_true(text_starts(shown, "\033[32mtraining\033[0m"));
    assert_null(strstr(shown, "[2J\033"));
    assert_int_equal(fetch_once(good, true, true), ST_OK);
    assert_string_equal(shown, strstr(good, "{"));
}

/* What a rank did in the last step, and how checkpoints go. */
TEST(ranks_and_checkpoints)
{
    assert_int_equal(
        fetch_once(OK_HEAD
                   "{\"schema\":1,\"phase\":\"training\",\"checkpoint\":{\"step\":10,\"path\":\"/"
                   "c\",\"age_seconds\":5,\"save_seconds\":1.5,\"stall_seconds\":0.25,\"failures\":"
                   "2,\"skipped\":3,\"error\":\"disk "
                   "full\"},\"ranks\":[{\"rank\":1,\"state\":\"training\",\"compute_ms\":5,\"wait_"
                   "ms\":2.5,\"comm_ms\":1.25}]}",
                   false, false),
        ST_OK);
    assert_non_null(strstr(shown, "checkpoint  step 10, 5s ago  /c\n"
                                  "            written in 1.50 s, training waited 0.25 s\n"
                                  "            2 failed, 3 skipped  disk full\n"));
    assert_non_null(strstr(shown, "compute 5.0 ms, wait 2.5 ms, communication 1.2 ms\n"));
}

TEST(a_note_on_the_device)
{
    assert_int_equal(fetch_once(OK_HEAD "{\"schema\":1,\"phase\":\"training\",\"device_note\":"
                                        "\"auto uses the CPU: why\"}",
                                false, false),
                     ST_OK);
    assert_non_null(strstr(shown, "\nwarning     auto uses the CPU: why\n"));
    assert_int_equal(fetch_once(good, false, false), ST_OK);
    assert_null(strstr(shown, "warning"));
}

/* A rank's place is shown where workers share a model. */
TEST(places)
{
    static const char head[] = OK_HEAD "{\"schema\":1,\"phase\":\"training\",\"mesh\":{\"data\":2,"
                                       "\"tensor\":",
                      rest[] =
                          "},\"ranks\":[{\"rank\":2,\"state\":\"training\",\"mesh\":{\"tensor\":"
                          "0,\"context\":0,\"data\":1,\"pipeline\":0}}]}";
    char answer[1024];
    text_format(answer, sizeof answer, "%s2,\"context\":1,\"pipeline\":1%s", head, rest);
    assert_int_equal(fetch_once(answer, false, false), ST_OK);
    assert_non_null(strstr(shown, "rank 2      training (data 1, tensor 0)  step"));
    text_format(answer, sizeof answer, "%s1%s", head, rest);
    assert_int_equal(fetch_once(answer, false, false), ST_OK);
    assert_non_null(strstr(shown, "rank 2      training  step"));
}

TEST(unhealthy)
{
    assert_int_equal(fetch_once(OK_HEAD "{\"schema\":1,\"phase\":\"failed\",\"error\":{\"code\":74,"
                                        "\"message\":\"disk full\",\"node\":0}}",
                                false, true),
                     ST_UNHEALTHY);
    assert_non_null(strstr(status_message(), "error 74: disk full"));
    assert_true(text_starts(shown, "\033[31mfailed"));
    assert_int_equal(
        fetch_once(OK_HEAD "{\"schema\":1,\"phase\":\"failed\",\"error\":null}", true, false),
        ST_UNHEALTHY);
    assert_true(text_starts(shown, "{\"schema\"")); /* raw, also when unhealthy */
    assert_int_equal(fetch_once(OK_HEAD "{\"schema\":1,\"phase\":\"training\",\"progress_age_"
                                        "seconds\":99,\"ranks\":[{\"rank\":3,\"state\":\"hung\"}]}",
                                false, false),
                     ST_UNHEALTHY);
    assert_non_null(strstr(status_message(), "rank 3 is hung; no progress for 99 s"));
}

TEST(strange_answers)
{
    static const struct {
        const char *answer, *reason;
    } cases[] = {
        {"SSH-2.0-OpenSSH\r\n", "no answer"},
        {"", "no answer"},
        {OK_HEAD, "JSON"},
        {OK_HEAD "<html>", "JSON"},
        {OK_HEAD "{\"schema\":1,\"phase\":\"tra", "JSON"},
        {OK_HEAD "[1,2]", "not a convoy node's status"},
        {OK_HEAD "{\"schema\":\"1\",\"phase\":5}", "not a convoy node's status"},
        {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP 404"},
        {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
         "HTTP 302"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"schema\":1", "no answer"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(fetch_once(cases[i].answer, false, false), ST_UNHEALTHY);
        if (strstr(status_message(), cases[i].reason) == NULL)
            print_message("# %s: %s\n", cases[i].reason, status_message());
        assert_non_null(strstr(status_message(), cases[i].reason));
        assert_string_equal(shown, "");
    }
    /* Everything of a wrong kind: shown as far as it goes, without falling over. */
    assert_int_equal(
        fetch_once(OK_HEAD
                   "{\"schema\":1,\"phase\":\"x\",\"model\":[],\"step\":\"a\",\"steps\":{},\"step_"
                   "ms\":7,\"ranks\":{\"a\":1},\"checkpoint\":\"no\",\"uptime_seconds\":1e300,"
                   "\"eta_seconds\":-1e300,\"tokens\":1e308,\"node_id\":1e308}",
                   false, false),
        ST_OK);
}

TEST(oversized)
{
    /* 6.25 MiB of white space behind it */
    pid_t child = serve_once(OK_HEAD "{\"schema\":1,\"phase\":\"training\"}", 100);
    assert_int_equal(probe("", server_port, false, false), ST_UNHEALTHY);
    assert_non_null(strstr(status_message(), "more than 4194304 bytes"));
    waitpid(child, NULL, 0);
}

TEST(silent)
{
    pid_t child = serve_once(OK_HEAD, -1);
    int64_t start = clock_ms();
    assert_int_equal(probe("", server_port, false, false), ST_UNHEALTHY);
    assert_in_range(clock_ms() - start, 4500, harness_patience_ms(7000));
    assert_non_null(strstr(status_message(), "no answer"));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

TEST(addresses)
{
    char url[128];
    pid_t child = serve_once(good, 0);
    text_format(url, sizeof(url), "127.0.0.1:%d", server_port);
    assert_int_equal(probe(url, 1, false, false), ST_OK);
    waitpid(child, NULL, 0);
    child = serve_once(good, 0);
    text_format(url, sizeof(url), "http://127.0.0.1:%d/x/status", server_port);
    assert_int_equal(probe(url, 1, false, false), ST_OK);
    waitpid(child, NULL, 0);
    assert_int_equal(probe(url, 1, false, false), ST_UNHEALTHY); /* nobody listens any more */
    assert_non_null(strstr(status_message(), "is the node running"));
    static const char *const bad[] = {
        "ftp://127.0.0.1/", "file:///etc/passwd", "http://", "::", "http://a b/", "gopher://x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(probe(bad[i], 1, false, false), ST_UNHEALTHY);
    assert_int_equal(probe("", 0, false, false), ST_UNHEALTHY);
    assert_non_null(strstr(status_message(), "STATUS_PORT=0"));
}

HARNESS_RUN_ALL()

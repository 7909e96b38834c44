/* fetch — downloads from a server that cuts off, stalls, changes the file, or redirects in
 * circles and to files. They are resumed, checked and kept; local addresses are refused. */
#include "harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "remote/fetch.h"

/* What the server has done, in memory shared with it. */
static struct tally {
    int requests; /* all */
    int times;    /* of the path under test */
    char range[64], if_range[64];
} * tally;
static pid_t server;
static int port;
static char body[200000], cache[FILE_PATH_MAX];

static void say(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) < 0)
        return; /* whoever asked has gone */
}

/* Head and body[first, end) of a file of `total` bytes. An etag that begins with "S", of a weekday,
 * is a Last-Modified. */
static void answer(int fd, int code, const char *etag, size_t first, size_t end, size_t total)
{
    char head[512];
    int n =
        snprintf(head, sizeof head, "HTTP/1.1 %d x\r\nConnection: close\r\nContent-Length: %zu\r\n",
                 code, total - first);
    if (etag != NULL)
        n += snprintf(head + n, sizeof head - (size_t)n, "%s: %s\r\n",
                      *etag == 'S' ? "Last-Modified" : "ETag", etag);
    if (code == 206)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Range: bytes %zu-%zu/%zu\r\n",
                      first, total - 1, total);
    say(fd, head);
    say(fd, "\r\n");
    for (ssize_t k; first < end; first += (size_t)k)
        if ((k = write(fd, body + first, end - first)) <= 0)
            return;
}

static void redirect(int fd, const char *to)
{
    say(fd, "HTTP/1.1 302 x\r\nConnection: close\r\nContent-Length: 0\r\nLocation: ");
    say(fd, to);
    say(fd, "\r\n\r\n");
}

static void chunks(int fd, bool is_endless, bool is_cut)
{
    say(fd, "HTTP/1.1 200 x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 4 || is_endless; i++) {
        say(fd, "3e8\r\n");
        if (write(fd, body, 1000) != 1000)
            return;
        say(fd, "\r\n");
    }
    if (!is_cut)
        say(fd, "0\r\n\r\n");
}

static size_t asked_from(void)
{
    const char *equals = strchr(tally->range, '=');
    return equals != NULL ? (size_t)atol(equals + 1) : 0;
}

static void serve_cut(int fd, const char *path)
{
    const size_t all = sizeof body, from = asked_from();
    const bool again = tally->times > 1;
    /* half, and nothing to compare: from the beginning */
    if (strcmp(path, "/cut.txt") == 0) /* half, then the rest */
        answer(fd, again && from > 0 ? 206 : 200, "\"one\"", again ? from : 0,
               again ? all : all / 2, all);
    else if (strncmp(path, "/pieces", 7) == 0) /* 30,000 bytes a request */
        answer(fd, from > 0 ? 206 : 200, "\"p\"", from, from + 30000 < all ? from + 30000 : all,
               all);
    else if (strcmp(path, "/changed.txt") == 0) /* half; then it is another file */
        answer(fd, 200, again ? "\"two\"" : "\"one\"", 0, again ? 1000 : all / 2,
               again ? 1000 : all);
    else if (strcmp(path, "/nameless.txt") == 0)
        answer(fd, 200, NULL, 0, again ? all : all / 2, all);
    else if (strcmp(path, "/weak.txt") == 0)
        answer(fd, 200, "W/\"x\"", 0, again ? all : all / 2, all);
    else if (strcmp(path, "/never.txt") == 0)
        answer(fd, 200, NULL, 0, 10, all);
    else if (strcmp(path, "/other-range.txt") == 0) /* the wrong stretch once, then all */
        answer(fd, tally->times == 2 ? 206 : 200, "\"r\"", tally->times == 2 ? 7 : 0,
               tally->times == 1 ? 5000 : all, all);
    else if (strcmp(path, "/past.txt") == 0)
        tally->times == 2
            ? say(fd, "HTTP/1.1 416 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            : answer(fd, 200, "\"r\"", 0, tally->times == 1 ? 5000 : all, all);
    else
        say(fd, "HTTP/1.1 404 x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno\n");
}

/* Half of a file; then a rest that belongs to another one; then all of it. */
static void serve_other(int fd, const char *path)
{
    static const char sunday[] = "Sun, 01 Nov 2026 00:00:00 GMT",
                      saturday[] = "Sat, 31 Oct 2026 00:00:00 GMT";
    const size_t all = sizeof body, from = asked_from();
    const bool is_date = strstr(path, "date") != NULL;
    if (from == 0)
        answer(fd, 200, is_date ? sunday : "\"one\"", 0, tally->times == 1 ? all / 2 : all, all);
    else if (strcmp(path, "/other/etag.txt") == 0)
        answer(fd, 206, "\"two\"", from, all, all);
    else if (strcmp(path, "/other/date.txt") == 0)
        answer(fd, 206, saturday, from, all, all);
    else if (strcmp(path, "/other/no-etag.txt") == 0)
        answer(fd, 206, NULL, from, all, all);
    else if (strcmp(path, "/other/weak.txt") == 0)
        answer(fd, 206, "W/\"one\"", from, all, all);
    else if (strcmp(path, "/other/longer.txt") == 0)
        answer(fd, 206, "\"one\"", from, all, all + 1);
    else
        answer(fd, 206, is_date ? sunday : "\"one\"", from, all, all);
}

/* A byte now and then, or one for each request. */
static void serve_slow(int fd, const char *path)
{
    if (strcmp(path, "/slow/drops.txt") == 0) {
        answer(fd, asked_from() > 0 ? 206 : 200, "\"d\"", asked_from(), asked_from() + 1,
               sizeof body);
        return;
    }
    answer(fd, 200, NULL, 0, 0, sizeof body);
    for (int i = 0; i < 300 && write(fd, "x", 1) == 1; i++)
        usleep(20000);
}

static void serve_path(int fd, const char *path)
{
    char url[64];
    if (text_starts(path, "/other/")) {
        serve_other(fd, path);
        return;
    }
    if (text_starts(path, "/slow/")) {
        serve_slow(fd, path);
        return;
    }
    if (strcmp(path, "/whole.txt") == 0)
        answer(fd, 200, "\"one\"", 0, sizeof body, sizeof body);
    else if (strcmp(path, "/moved") == 0)
        redirect(fd, "/whole.txt");
    else if (strcmp(path, "/loop") == 0)
        redirect(fd, "/loop");
    else if (strcmp(path, "/to-file") == 0)
        redirect(fd, "file:///etc/passwd");
    else if (strcmp(path, "/to-ftp") == 0) {
        snprintf(url, sizeof url, "ftp://127.0.0.1:%d/x", port);
        redirect(fd, url);
    } else if (strncmp(path, "/later", 6) == 0 && tally->times == 1) {
        char date[64], head[256];
        const time_t then = time(NULL) + 2;
        strftime(date, sizeof date, "Retry-After: %a, %d %b %Y %H:%M:%S GMT", gmtime(&then));
        snprintf(head, sizeof head,
                 "HTTP/1.1 429 x\r\nConnection: close\r\nContent-Length: 0\r\n%s\r\n\r\n",
                 strcmp(path, "/later/date.txt") == 0    ? date
                 : strcmp(path, "/later/long.txt") == 0  ? "Retry-After: 601"
                 : strcmp(path, "/later/odd.txt") == 0   ? "Retry-After: -7 soon"
                 : strcmp(path, "/later/limit.txt") == 0 ? "RateLimit: \"resolvers\";r=0;t=1"
                                                         : "Retry-After: 1");
        say(fd, head);
    } else if (strncmp(path, "/later", 6) == 0)
        answer(fd, 200, NULL, 0, 100, 100);
    else if (strcmp(path, "/busy.txt") == 0 && tally->times < 3)
        say(fd, "HTTP/1.1 503 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    else if (strcmp(path, "/busy.txt") == 0)
        answer(fd, 200, NULL, 0, 100, 100);
    else if (strcmp(path, "/stall.txt") == 0 && tally->times == 1) {
        answer(fd, 200, "\"s\"", 0, 100, sizeof body);
        sleep(1);
    } else if (strcmp(path, "/stall.txt") == 0)
        answer(fd, 206, "\"s\"", asked_from(), sizeof body, sizeof body);
    else if (strcmp(path, "/empty.txt") == 0)
        answer(fd, 200, NULL, 0, 0, 0);
    else if (strcmp(path, "/huge.txt") == 0)
        answer(fd, 200, NULL, 0, 10, (size_t)1 << 50);
    else if (strcmp(path, "/no-room.txt") == 0)
        answer(fd, 200, NULL, 0, 10, ((size_t)1 << 40) - 1);
    else if (strcmp(path, "/chunks.txt") == 0)
        chunks(fd, false, false);
    else if (strcmp(path, "/cut-chunks.txt") == 0)
        chunks(fd, false, true);
    else if (strcmp(path, "/endless.txt") == 0)
        chunks(fd, true, true);
    else if (strcmp(path, "/no-content") == 0)
        say(fd, "HTTP/1.1 204 x\r\nConnection: close\r\n\r\n");
    else if (strcmp(path, "/old.txt") == 0)
        say(fd, "HTTP/1.0 200 x\r\n\r\nold text");
    else if (strcmp(path, "/unbuilt.txt") == 0)
        say(fd, "HTTP/1.1 501 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    else if (strcmp(path, "/login.jsonl") == 0)
        say(fd, "HTTP/1.1 200 x\r\nConnection: close\r\nContent-Type: Text/HTML; "
                "charset=utf-8\r\n\r\nPlease log in");
    else if (strcmp(path, "/blob.bin") == 0)
        say(fd,
            "HTTP/1.1 200 x\r\nConnection: close\r\n\r\n\r\n<!DOCTYPE HTML><html><body>not here");
    else if (strcmp(path, "/pointer.bin") == 0)
        say(fd, "HTTP/1.1 200 x\r\nConnection: close\r\n\r\nversion https://git-lfs.github.com/"
                "spec/v1\noid sha256:0\nsize 1\n");
    else if (strcmp(path, "/page.html") == 0)
        say(fd, "HTTP/1.1 200 x\r\nConnection: close\r\nContent-Type: "
                "text/html\r\n\r\n<html>wanted</html>");
    else if (strcmp(path, "/nonsense") == 0)
        say(fd, "\x01\x02 what?\r\n\r\n");
    else
        serve_cut(fd, path);
}

static void header_of(const char *request, const char *name, char out[64])
{
    const char *at = strcasestr(request, name);
    out[0] = '\0';
    if (at != NULL)
        snprintf(out, 64, "%.*s", (int)strcspn(at + strlen(name), "\r"), at + strlen(name));
}

static void serve(int listener)
{
    static char last[128];
    for (;;) {
        char request[4096] = "", path[128] = "";
        const int fd = accept(listener, NULL, NULL);
        size_t n = 0;
        for (ssize_t k; n < sizeof request - 1 && strstr(request, "\r\n\r\n") == NULL;
             n += (size_t)k)
            if ((k = read(fd, request + n, sizeof request - 1 - n)) <= 0)
                break;
        sscanf(request, "GET %127s", path);
        header_of(request, "\r\nRange: ", tally->range);
        header_of(request, "\r\nIf-Range: ", tally->if_range);
        tally->requests++;
        tally->times = strcmp(path, last) == 0 ? tally->times + 1 : 1;
        strcpy(last, path);
        serve_path(fd, path);
        close(fd);
    }
}

static int start(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)("abcdefg hijk\n"[(i * 7 + i / 1000) % 13]);
    text_format(cache, sizeof cache, "%s/cache", harness_tmpdir());
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, n) != 0 ||
        listen(listener, 64) != 0 || getsockname(listener, (struct sockaddr *)&at, &n) != 0)
        return -1;
    port = ntohs(at.sin_port);
    server = fork();
    if (server == 0) {
        signal(SIGPIPE, SIG_IGN);
        serve(listener);
    }
    close(listener);
    return 0;
}

static int end(void **state)
{
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}

static char path[FILE_PATH_MAX];

static struct fetch_config local(void)
{
    return (struct fetch_config){.cache_dir = cache, .allows_local = true, .retry_ms = 1};
}

static enum status get_with(const struct fetch_config *config, const char *what)
{
    char url[300];
    text_format(url, sizeof url, "http://127.0.0.1:%d%s", port, what);
    tally->requests = 0;
    path[0] = '\0';
    return fetch_file(config, url, path);
}
static enum status get(const char *what)
{
    const struct fetch_config config = local();
    return get_with(&config, what);
}

static void expect(const char *what, size_t n, int requests)
{
    char *text;
    size_t got;
    if (get(what) != ST_OK)
        fail_msg("%s: %s", what, status_message());
    assert_int_equal(file_read(path, 1 << 20, &text, &got), ST_OK);
    assert_int_equal(got, n);
    assert_memory_equal(text, body, n);
    free(text);
    assert_int_equal(tally->requests, requests);
    assert_int_equal(get(what), ST_OK); /* kept */
    assert_int_equal(tally->requests, 0);
}

static void refuse(const char *what, enum status want, const char *word)
{
    const enum status st = get(what);
    if (st != want || strstr(status_message(), word) == NULL)
        fail_msg("%s: %s \"%s\", expected %s with \"%s\"", what, status_name(st), status_message(),
                 status_name(want), word);
    assert_string_equal(path, "");
}

TEST(test_whole)
{
    expect("/whole.txt", sizeof body, 1);
    assert_true(text_ends(path, "/whole.txt"));
    expect("/moved", sizeof body, 2);
}

TEST(test_chunks)
{
    assert_int_equal(get("/chunks.txt"), ST_OK);
    assert_int_equal(file_bytes(path), 4000);
    assert_int_equal(get("/old.txt"), ST_OK); /* its length is not said: taken, with a warning */
    assert_int_equal(file_bytes(path), 8);
}

TEST(test_resumed)
{
    expect("/cut.txt", sizeof body, 2);
    assert_string_equal(tally->range, "bytes=100000-");
    assert_string_equal(tally->if_range, "\"one\"");
    expect("/pieces.txt", sizeof body, 7);
    expect("/changed.txt", 1000, 2);
    expect("/nameless.txt", sizeof body, 2);
    assert_string_equal(tally->range, "");
    expect("/weak.txt", sizeof body, 2);
    assert_string_equal(tally->range, "");
    expect("/other-range.txt", sizeof body, 3);
    expect("/past.txt", sizeof body, 3);
}

TEST(test_stalled)
{
    struct fetch_config config = local();
    config.slow_ms = 500;
    const int64_t began = clock_ms();
    assert_int_equal(get_with(&config, "/stall.txt"), ST_OK);
    assert_int_equal(file_bytes(path), sizeof body);
    assert_int_equal(tally->requests, 2);
    assert_string_equal(tally->range, "bytes=100-");
    assert_true(clock_ms() - began < harness_patience_ms(8000));
}

/* The rest of another version, or of another length, is not put behind the first half. */
TEST(test_other_version)
{
    static const char *const paths[] = {"/other/etag.txt", "/other/date.txt", "/other/no-etag.txt",
                                        "/other/weak.txt", "/other/longer.txt"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        expect(paths[i], sizeof body, 3);
    expect("/other/same.txt", sizeof body, 2);
    expect("/other/same-date.txt", sizeof body, 2);
}

/* A trickle is not progress, be it within a transfer or over many. */
TEST(test_trickle)
{
    struct fetch_config config = local();
    config.slow_ms = 200;
    assert_int_equal(get_with(&config, "/slow/trickle.txt"), ST_RETRY);
    assert_non_null(strstr(status_message(), "fewer than 4096 bytes/s arrived within"));
    assert_int_equal(tally->requests, FETCH_TRIES);
    config.rate_min = 1 << 20;
    assert_int_equal(get_with(&config, "/slow/drops.txt"), ST_RETRY);
    assert_int_equal(tally->requests, FETCH_TRIES);
}

/* A process that was stopped left a partial file: the next goes on from there. */
static int64_t stop_at;
static bool stop(void *arg, int64_t done, int64_t total)
{
    return (void)arg, (void)total, done < stop_at;
}

TEST(test_stopped_and_resumed)
{
    struct fetch_config config = local();
    config.progress = stop;
    stop_at = 50000;
    assert_int_equal(get_with(&config, "/pieces-2.txt"), ST_RETRY);
    assert_non_null(strstr(status_message(), "stopped while downloading"));
    assert_string_equal(path, "");
    assert_int_equal(get("/pieces-2.txt"), ST_OK);
    assert_true(asked_from() > 50000 && tally->requests < 6);
    assert_int_equal(file_bytes(path), sizeof body);
    stop_at = 0;
    assert_int_equal(
        get_with(
            &config,
            "/whole.txt#sha256=0000000000000000000000000000000000000000000000000000000000000000"),
        ST_RETRY);
    assert_non_null(strstr(status_message(), "stopped while downloading"));
}

/* A page in place of data; only where a page was named it is data. */
TEST(test_pages)
{
    refuse("/login.jsonl", ST_BAD_DATA, "a page of HTML");
    assert_int_equal(tally->requests, 1);
    refuse("/blob.bin", ST_BAD_DATA, "a page of HTML");
    assert_int_equal(tally->requests, 1);
    assert_int_equal(get("/page.html"), ST_OK);
    refuse("/pointer.bin", ST_BAD_DATA, "Git LFS pointer");
}

/* What the same request would meet again is not tried again. */
TEST(test_final)
{
    refuse("/unbuilt.txt", ST_NO_INPUT, "HTTP 501");
    assert_int_equal(tally->requests, 1);
}

TEST(test_refusals)
{
    refuse("/missing", ST_NO_INPUT, "HTTP 404");
    assert_int_equal(tally->requests, 1);
    refuse("/loop", ST_NO_INPUT, "redirects over 5 times");
    refuse("/to-file", ST_NO_INPUT, "redirects away from http");
    refuse("/to-ftp", ST_NO_INPUT, "redirects away from http");
    refuse("/empty.txt", ST_BAD_DATA, "empty");
    refuse("/huge.txt", ST_BAD_DATA, "limit");
    refuse("/no-room.txt", ST_STORE, "has room for");
    refuse("/no-content", ST_NO_INPUT, "HTTP 204");
    refuse("/never.txt", ST_RETRY, "cannot fetch");
    assert_int_equal(tally->requests, FETCH_TRIES);
    refuse("/cut-chunks.txt", ST_RETRY, "cannot fetch");
    refuse("/nonsense", ST_NO_INPUT, "does not answer in HTTP");
    struct fetch_config config = local();
    config.unknown_max = 50000;
    assert_int_equal(get_with(&config, "/endless.txt"), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "over 50000 bytes"));
    assert_int_equal(get("/busy.txt"), ST_OK);
    assert_int_equal(tally->requests, 3);
}

/* A process that ended between the last byte and the checksum: only one byte is requested again. */
TEST(test_complete)
{
    char part[FILE_PATH_MAX + 8], *bytes;
    size_t n;
    assert_int_equal(get("/pieces/complete.txt"), ST_OK);
    assert_int_equal(file_read(path, 1 << 20, &bytes, &n), ST_OK);
    text_format(part, sizeof part, "%s.part", path);
    assert_int_equal(rename(path, part), 0);
    text_format(part, sizeof part, "%s.same", path);
    assert_int_equal(file_replace(part, "200000 \"p\"", 10), ST_OK);
    free(bytes);
    assert_int_equal(get("/pieces/complete.txt"), ST_OK);
    assert_string_equal(tally->range, "bytes=199999-");
    assert_int_equal(tally->requests, 1);
    assert_int_equal(file_read(path, 1 << 20, &bytes, &n), ST_OK);
    assert_int_equal(n, sizeof body);
    assert_memory_equal(bytes, body, n);
    free(bytes);
}

/* 429 with Retry-After: seconds, a date, an unreadable value, and a wait that is too long. */
TEST(test_retry_after)
{
    int64_t began_ms = clock_ms();
    assert_int_equal(get("/later/odd.txt"), ST_OK);
    assert_int_equal(tally->times, 2);
    began_ms = clock_ms();
    assert_int_equal(get("/later/seconds.txt"), ST_OK);
    assert_true(clock_ms() - began_ms >= 1000);
    assert_int_equal(tally->times, 2);
    began_ms = clock_ms();
    assert_int_equal(get("/later/limit.txt"), ST_OK);
    assert_true(clock_ms() - began_ms >= 1000);
    began_ms = clock_ms();
    assert_int_equal(get("/later/date.txt"), ST_OK);
    assert_true(clock_ms() - began_ms >= 900); /* a date has whole seconds */
    assert_int_equal(get("/later/long.txt"), ST_RETRY);
    assert_int_equal(tally->times, 1);
    harness_assert_message("requests a wait of 601 s");
}

TEST(test_checksum)
{
    char url[200], command[FILE_PATH_MAX + 100], sum[65] = "";
    assert_int_equal(get("/whole.txt"), ST_OK);
    text_format(command, sizeof command, "sha256sum '%s'", path);
    FILE *pipe = popen(command, "r");
    assert_non_null(fgets(sum, sizeof sum, pipe));
    pclose(pipe);
    text_format(url, sizeof url, "/whole.txt#sha256=%s", sum);
    assert_int_equal(get(url), ST_OK);
    assert_int_equal(tally->requests, 0);
    text_format(command, sizeof command,
                "printf x | dd of='%s' bs=1 seek=5 conv=notrunc 2>/dev/null", path);
    assert_int_equal(system(command), 0);
    assert_int_equal(get(url), ST_OK); /* rotten: fetched again */
    assert_int_equal(tally->requests, 1);
    strchr(url, '=')[1] ^= 1;
    refuse(url, ST_BAD_DATA, "sha256");
    refuse("/whole.txt#sha256=12", ST_BAD_SETTING, "64 hexadecimal");
    refuse("/whole.txt#part", ST_BAD_SETTING, "64 hexadecimal");
}

static void closed(const char *url, enum status want, const char *word)
{
    const struct fetch_config config = {.cache_dir = cache, .retry_ms = 1};
    tally->requests = 0;
    const enum status st = fetch_file(&config, url, path);
    if (st != want || strstr(status_message(), word) == NULL)
        fail_msg("%s: %s \"%s\", expected %s with \"%s\"", url, status_name(st), status_message(),
                 status_name(want), word);
    assert_int_equal(tally->requests, 0);
}

/* However an address of this machine is written, nothing is sent there. */
TEST(test_closed_addresses)
{
    static const char *const hosts[] = {
        "127.0.0.1",  "localhost",          "127.1", "2130706433",      "0x7f000001", "0",
        "0177.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "169.254.169.254", "10.0.0.1",   "[fe80::1]",
        "[::]"};
    char url[100];
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        text_format(url, sizeof url, "http://%s:%d/whole.txt", hosts[i], port);
        closed(url, ST_BAD_SETTING, "ALLOW_LOCAL_URLS");
    }
    closed("ftp://example.org/x", ST_BAD_SETTING, "https://");
    closed("file:///etc/passwd", ST_BAD_SETTING, "https://");
    closed("http://user:secret@example.org/x", ST_BAD_SETTING, "password");
    assert_null(strstr(status_message(), "secret"));
    closed("http://exa mple/x", ST_BAD_SETTING, "not an address");
    closed("http://", ST_BAD_SETTING, "not an address");
}

/* An environment's proxy would connect for us; it is not asked. */
TEST(test_no_proxy)
{
    char proxy[64];
    text_format(proxy, sizeof proxy, "http://127.0.0.1:%d", port);
    setenv("http_proxy", proxy, 1);
    closed("http://10.1.2.3/whole.txt", ST_BAD_SETTING, "10.1.2.3");
    unsetenv("http_proxy");
}

HARNESS_RUN_ALL_WITH(start, end)

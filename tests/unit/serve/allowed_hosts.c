/* allowed_hosts — the names by which a node may be addressed; and request headers that two
 * parsers could read differently. */
#include "harness.h"

#include <sys/queue.h>

#include <event2/http.h>
#include <event2/keyvalq_struct.h>

#include "net/http_request.h"
#include "serve/allowed_hosts.h"

TEST(addresses_are_no_names)
{
    static struct allowed_hosts hosts;
    static const char *const fine[] = {"127.0.0.1",      "10.2.3.4:8080",    "[::1]",
                                       "localhost:80",   "gpu-box:8080",     "A_b",
                                       "[fd00::1]:8080", "255.255.255.255:1"};
    static const char *const bad[] = {"",
                                      ":",
                                      ":80",
                                      "[::1",
                                      "[]",
                                      "[::1]x",
                                      "[::1]:x",
                                      "127.1",
                                      "0x7f.1",
                                      "10.2.3.4:123456",
                                      "user@10.2.3.4",
                                      "a b",
                                      "a/b",
                                      "127.0.0.1.evil.example"};
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
        assert_true(allowed_hosts_has(&hosts, fine[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(allowed_hosts_has(&hosts, bad[i]));
}

TEST(names_of_a_list)
{
    static struct allowed_hosts hosts;
    assert_true(allowed_hosts_add(&hosts, "Train.Example.org, convoy-0.convoy\t*.lab.example"));
    assert_true(allowed_hosts_has(&hosts, "train.example.org") &&
                allowed_hosts_has(&hosts, "TRAIN.example.org.:8080"));
    assert_true(allowed_hosts_has(&hosts, "convoy-0.convoy:80") &&
                allowed_hosts_has(&hosts, "a.lab.example") &&
                allowed_hosts_has(&hosts, "b.a.lab.example"));
    assert_false(allowed_hosts_has(&hosts, "lab.example") ||
                 allowed_hosts_has(&hosts, "evil-lab.example") ||
                 allowed_hosts_has(&hosts, "example.org"));
    assert_false(allowed_hosts_has(&hosts, "train.example.org.evil.example") ||
                 allowed_hosts_has(&hosts, "xtrain.example.org"));
    assert_true(allowed_hosts_add(&hosts, "*"));
    assert_true(allowed_hosts_has(&hosts, "evil.example"));
    static struct allowed_hosts full;
    static char list[2 * ALLOWED_HOSTS_NAMES_MAX];
    memset(list, 'a', sizeof(list) - 1);
    assert_false(allowed_hosts_add(&full, list));
    assert_true(allowed_hosts_add(&full, ""));
}

TEST(own_names)
{
    static struct allowed_hosts hosts;
    char name[256] = "", path[600], value[600];
    assert_int_equal(gethostname(name, sizeof(name) - 1), 0);
    snprintf(path, sizeof(path), "%s/hosts", harness_tmpdir());
    FILE *file = fopen(path, "w");
    fprintf(file,
            "# a comment with %s\n127.0.0.1 localhost\n10.0.0.7\t%s.fleet.example %s # "
            "mine\n10.0.0.8 other.example other\n",
            name, name, name);
    fclose(file);
    allowed_hosts_add_own(&hosts, path);
    snprintf(value, sizeof(value), "%s.fleet.example:8080", name);
    assert_true(allowed_hosts_has(&hosts, "localhost:8080") && allowed_hosts_has(&hosts, name) &&
                allowed_hosts_has(&hosts, value));
    assert_false(allowed_hosts_has(&hosts, "other.example") ||
                 allowed_hosts_has(&hosts, "10.0.0.7.fleet.example") ||
                 allowed_hosts_has(&hosts, "evil.example"));
    allowed_hosts_add_own(&hosts, "/none");
}

static const char *fault(int minor, const char *const pairs[], int n)
{
    struct evkeyvalq headers;
    TAILQ_INIT(&headers);
    for (int i = 0; i < n; i += 2)
        assert_int_equal(evhttp_add_header(&headers, pairs[i], pairs[i + 1]), 0);
    const char *why = http_request_fault(&headers, minor);
    evhttp_clear_headers(&headers);
    return why;
}
#define FAULT(minor, ...)                            \
    fault(minor, (const char *const[]){__VA_ARGS__}, \
          (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

TEST(heads)
{
    assert_null(FAULT(1, "Host", "x"));
    assert_null(FAULT(0, "Accept", "x")); /* HTTP/1.0 had no Host */
    assert_null(FAULT(1, "Host", "x", "Content-Length", "0"));
    assert_null(FAULT(1, "Host", "x", "transfer-encoding", "Chunked"));
    assert_string_equal(FAULT(1, "Accept", "x"), "no Host");
    assert_string_equal(FAULT(1, "Host", "x", "host", "x"), "more than one Host");
    assert_string_equal(FAULT(0, "Host", "x", "Host", "y"), "more than one Host");
    assert_string_equal(FAULT(1, "Host", "x", "Content-Length", "5", "content-length", "5"),
                        "more than one Content-Length");
    assert_non_null(FAULT(1, "Host", "x", "Content-Length", "5, 5"));
    assert_non_null(FAULT(1, "Host", "x", "Content-Length", "+5"));
    assert_non_null(FAULT(1, "Host", "x", "Content-Length", ""));
    assert_non_null(FAULT(1, "Host", "x", "Transfer-Encoding ", "chunked"));
    assert_non_null(FAULT(1, "Host", "x", "Transfer-Encoding", "chunked, identity"));
    assert_non_null(FAULT(1, "Host", "x", "Transfer-Encoding", "chunked", "Content-Length", "5"));
    assert_non_null(
        FAULT(1, "Host", "x", "Transfer-Encoding", "chunked", "Transfer-Encoding", "chunked"));
    assert_non_null(FAULT(1, "Host", "x", "X\tY", "z"));
}

HARNESS_RUN_ALL()

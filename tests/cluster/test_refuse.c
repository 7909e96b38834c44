/* What the cluster refuses: nodes with other settings, wrong tokens, second processes of a node,
 * late nodes. Each refusal must come within 3 s, on both sides, with the key, the values and the
 * node. Also: node 0 listens only on the address that it was given. */
#include "cluster/nodes.h"
#include "net/listener.h"

#define LIMIT_MS 3000

static void start_with(struct node *node, int id, int nodes_n, int port, const char *token,
                       const char *json, const char *workers)
{
    char n_text[8], port_text[8];
    text_format(n_text, sizeof(n_text), "%d", nodes_n);
    text_format(port_text, sizeof(port_text), "%d", port);
    start_words(node, id,
                (const char *[]){n_text, "127.0.0.1", port_text, token, json, "60000", workers}, 7);
}

static void ends(struct node *node, int code, const char *word, const char *other)
{
    char line[2048], want[16];
    text_format(want, sizeof(want), "end %d ", code);
    expect(node, want, LIMIT_MS, line, sizeof(line));
    if (strstr(line, word) == NULL || strstr(line, other) == NULL)
        fail_msg("\"%s\" and \"%s\" are not in: %s", word, other, line);
    assert_int_equal(exit_of(node), code);
}

TEST(every_difference_is_named_on_both_sides)
{
    static const char *keys[] = {"version",   "data",       "model", "SEED",
                                 "PRECISION", "BATCH_SIZE", "SHARD", "device",
                                 "COMPRESS",  "libcurl",    "LR"};
    int kinds_n = 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++, kinds_n++) {
        struct node nodes[2];
        char mine[256], theirs[256], want[64];
        int port = free_port();
        text_format(mine, sizeof(mine), "{\"same\":\"1\",\"%s\":\"one\"}", keys[i]);
        text_format(theirs, sizeof(theirs), "{\"same\":\"1\",\"%s\":\"two\"}", keys[i]);
        text_format(want, sizeof(want), "%s is one on node 0 and two on node 1", keys[i]);
        start_with(&nodes[0], 0, 2, port, "tok", mine, "1");
        start_with(&nodes[1], 1, 2, port, "tok", theirs, "1");
        ends(&nodes[0], 76, want, "(host ");
        ends(&nodes[1], 76, want, "(host ");
    }
    struct node nodes[2];
    int port = free_port();
    start_with(&nodes[0], 0, 2, port, "tok", "{\"a\":\"1\"}", "1");
    start_with(&nodes[1], 1, 2, port, "tok", "{}", "1");
    ends(&nodes[0], 76, "a is 1 on node 0 and (not known) on node 1", "");
    ends(&nodes[1], 76, "a is 1 on node 0", "");
    port = free_port();
    start_with(&nodes[0], 0, 2, port, "tok", "{}", "1");
    start_with(&nodes[1], 1, 3, port, "tok", "{}", "1");
    ends(&nodes[0], 76, "N_NODES is 2 on node 0 and 3 on node 1", "");
    ends(&nodes[1], 76, "N_NODES is 2 on node 0 and 3 on node 1", "");
    char line[2048];
    port = free_port(); /* it is among the settings, too: named once */
    start_with(&nodes[0], 0, 2, port, "tok", "{\"N_NODES\":\"2\"}", "1");
    start_with(&nodes[1], 1, 3, port, "tok", "{\"N_NODES\":\"3\"}", "1");
    expect(&nodes[0], "end 76 ", LIMIT_MS, line, sizeof(line));
    assert_non_null(strstr(line, "N_NODES is 2 on node 0 and 3 on node 1 (host "));
    ends(&nodes[1], 76, "N_NODES is 2 on node 0 and 3 on node 1 (host ", "");
    assert_int_equal(exit_of(&nodes[0]), 76);
    port = free_port();
    start_with(&nodes[0], 0, 2, port, "tok", "{}", "1");
    start_with(&nodes[1], 1, 2, port, "tok", "{}", "2");
    ends(&nodes[0], 76, "N_GPU_EACH_NODE is 1 on node 0 and 2 on node 1", "");
    ends(&nodes[1], 76, "N_GPU_EACH_NODE is 1 on node 0 and 2 on node 1", "");
    print_message("# %d kinds of difference: 76 on both sides within 3 s\n", kinds_n + 3);
}

TEST(a_wrong_token_is_refused_at_once)
{
    struct node zero, wrong, right;
    static const char *tokens[][2] = {{"tok", "other"}, {"tok", "none"}, {"none", "tok"}};
    for (int i = 0; i < 3; i++) {
        int port = free_port();
        start_with(&zero, 0, 2, port, tokens[i][0], "{}", "1");
        start_with(&wrong, 1, 2, port, tokens[i][1], "{}", "1");
        ends(&wrong, 77, "JOB_TOKEN", "not admitted by node 0 at 127.0.0.1");
        start_with(&right, 1, 2, port, tokens[i][0], "{}", "1"); /* node 0 is not harmed */
        expect(&zero, "world 1", LIMIT_MS, NULL, 0);
        end_node(&zero);
        end_node(&right);
    }
}

/* Another program on MASTER_PORT, in a process of its own: it answers every connection with these
 * bytes. */
static pid_t begin_stranger(int *port_out, const char *answer)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    char hello[4096];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, 8) == 0 &&
                getsockname(fd, (struct sockaddr *)&at, &n) == 0);
    *port_out = ntohs(at.sin_port);
    pid_t pid = fork();
    assert_true(pid >= 0);
    while (pid == 0) {
        int one = accept(fd, NULL, NULL);
        if (one < 0 || read(one, hello, sizeof(hello)) < 0 ||
            write(one, answer, strlen(answer)) < 0)
            _exit(1);
        shutdown(one, SHUT_WR);
        while (read(one, hello, sizeof(hello)) > 0)
            continue;
        close(one);
    }
    close(fd);
    return pid;
}

TEST(another_program_is_named)
{
    static const struct {
        const char *answer, *first, *second;
    } rows[] = {
        {"HTTP/1.1 404 Not Found\r\nServer: other/1.0\r\n\r\n",
         "it answers without TLS (HTTP/1.1 404 Not Found, Server: other/1.0), so it is a web "
         "server",
         "MASTER_ADDR and MASTER_PORT lead to node 0"},
        {"HTTP/1.0 400 Bad Request\r\n\r\n", "(HTTP/1.0 400 Bad Request), so it is a web server",
         "or a node 0 with JOB_TOKEN=none"},
        {"<html>\033[31m", "(<html>?[31m), so it is a web server", ""},
        {"SSH-2.0-OpenSSH_9\r\n", "(SSH-2.0-OpenSSH_9), so it is another program", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct node node;
        int port;
        pid_t stranger = begin_stranger(&port, rows[i].answer);
        start_with(&node, 1, 2, port, "tok", "{}", "1");
        ends(&node, 77, rows[i].first, rows[i].second);
        kill(stranger, SIGKILL);
        waitpid(stranger, NULL, 0);
    }
}

TEST(a_second_node_is_refused)
{
    struct node nodes[2], second;
    char pid[32];
    int port = free_port();
    start_with(&nodes[0], 0, 2, port, "tok", "{}", "1");
    start_with(&nodes[1], 1, 2, port, "tok", "{}", "1");
    expect(&nodes[0], "world 1", LIMIT_MS, NULL, 0);
    start_with(&second, 1, 2, port, "tok", "{}", "1");
    text_format(pid, sizeof(pid), "pid %d", nodes[1].pid);
    ends(&second, 76, "NODE_ID 1 is held by host", pid);
    /* A node with other settings does not harm a running job either. */
    start_with(&second, 1, 2, port, "tok", "{\"SEED\":\"2\"}", "1");
    ends(&second, 76, "SEED", "");
    command(&nodes[1], "lost");
    /* Only now: the holder was not disturbed before. */
    expect(&nodes[0], "abort 1 node 1", LIMIT_MS, NULL, 0);
    expect(&nodes[0], "world 2", LIMIT_MS, NULL, 0);
    end_node(&nodes[0]);
    end_node(&nodes[1]);
}

TEST(missing_nodes_are_named)
{
    struct node zero, one, lonely;
    char port[8], other[8];
    text_format(port, sizeof(port), "%d", free_port());
    text_format(other, sizeof(other), "%d", free_port());
    start_words(&zero, 0, (const char *[]){"6", "127.0.0.1", port, "tok", "{}", "1500"}, 6);
    start_words(&one, 3, (const char *[]){"6", "127.0.0.1", port, "tok", "{}", "9000"}, 6);
    start_words(&lonely, 1,
                (const char *[]){"2", "no-such-host.invalid", other, "tok", "{}", "1500"}, 6);
    ends(&zero, 75, "nodes 1-2, 4-5 did not join within 1s", "(4 of 6)");
    ends(&one, 75, "nodes 1-2, 4-5 did not join", "");
    char where[80];
    text_format(where, sizeof(where),
                "node 0 at no-such-host.invalid:%s could not be reached for 1s: ", other);
    ends(&lonely, 75, where, "the name does not resolve");
}

/* The local addresses that listen on a port, from /proc: "0100007F" is 127.0.0.1. */
static int listeners(int port, const char *file, char *out, size_t cap)
{
    char line[512], want[16];
    FILE *f = fopen(file, "r");
    int n = 0;
    text_format(want, sizeof(want), ":%04X ", port);
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        char *at = strstr(line, want), *state = strstr(line, " 0A ");
        if (at == NULL || state == NULL || at > strstr(line, ":") + 44)
            continue;
        *at = 0;
        text_copy(out, cap, strrchr(line, ' ') + 1);
        n++;
    }
    if (f != NULL)
        fclose(f);
    return n;
}

TEST(it_listens_on_the_given_address_only)
{
    static const struct {
        const char *addr, *dial, *v4, *v6;
    } rows[] = {
        {"127.0.0.1", "127.0.0.1", "0100007F", NULL},
        {"127.0.0.2", "127.0.0.2", "0200007F", NULL},
        {"localhost", "localhost", NULL, NULL}, /* the first address of the name */
        {"::1", "::1", NULL, "00000000000000000000000001000000"},
        /* not an address of this machine: all, with a warning */
        {"198.51.100.7", "127.0.0.1", NULL, "00000000000000000000000000000000"},
    };
    int fd = -1; /* A name that does not resolve: no listener. */
    assert_int_equal(listener_resolve("no such host"), ST_RETRY);
    assert_int_equal(listener_open("no such host", free_port(), &fd), ST_BAD_SETTING);
    assert_int_equal(fd, -1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct node nodes[2];
        char port_text[8], v4[64] = "", v6[64] = "";
        int port = free_port();
        text_format(port_text, sizeof(port_text), "%d", port);
        start_words(&nodes[0], 0, (const char *[]){"2", rows[i].addr, port_text, "tok", "{}"}, 5);
        start_words(&nodes[1], 1, (const char *[]){"2", rows[i].dial, port_text, "tok", "{}"}, 5);
        expect(&nodes[0], "world 1", 5000, NULL, 0);
        int n = listeners(port, "/proc/net/tcp", v4, sizeof(v4)) +
                listeners(port, "/proc/net/tcp6", v6, sizeof(v6));
        assert_int_equal(n, 1);
        if (rows[i].v4 != NULL)
            assert_string_equal(v4, rows[i].v4);
        if (rows[i].v6 != NULL)
            assert_string_equal(v6, rows[i].v6);
        end_node(&nodes[0]);
        end_node(&nodes[1]);
    }
}

NODES_MAIN(NULL)

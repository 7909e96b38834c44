/* nodes — starts nodes (node_main.h) as processes of a test, commands them and reads their
 * lines. */
#ifndef CONVOY_TESTS_NODES_H
#define CONVOY_TESTS_NODES_H

#include "harness.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include "cluster/node_main.h"
#include "free_port.h"

struct node {
    pid_t pid;
    int in, out;
    size_t n;
    char buffer[16384];
};

/* The network namespace of node i; "": the test's own. */
static char nodes_netns[8][64];
static const char *agree = "{\"SEED\":\"1\",\"BATCH_SIZE\":\"8\"}";

/* words: N ADDR PORT TOKEN AGREE [JOIN_MS [WORKERS [MAX_RESTARTS]]] */
static inline void start_words(struct node *node, int id, const char *words[], int words_n)
{
    int in[2], out[2];
    char id_text[8];
    char *argv[16] = {(char *)(uintptr_t) "/proc/self/exe", (char *)(uintptr_t) "node", id_text};
    text_format(id_text, sizeof(id_text), "%d", id);
    for (int i = 0; i < words_n; i++)
        argv[3 + i] = (char *)(uintptr_t)words[i];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    node->n = 0;
    node->pid = fork();
    if (node->pid == 0) {
        if (nodes_netns[id][0] != 0 &&
            setns(open(nodes_netns[id], O_RDONLY | O_CLOEXEC), CLONE_NEWNET) != 0)
            _exit(98);
        dup2(in[0], 0);
        dup2(out[1], 1);
        execv(argv[0], argv);
        _exit(99);
    }
    close(in[0]);
    close(out[1]);
    node->in = in[1];
    node->out = out[0];
}

static inline void start(struct node *node, int id, int nodes_n, int port)
{
    char n_text[8], port_text[8];
    text_format(n_text, sizeof(n_text), "%d", nodes_n);
    text_format(port_text, sizeof(port_text), "%d", port);
    start_words(node, id,
                (const char *[]){n_text, "127.0.0.1", port_text, "a secret of tests", agree}, 5);
}

static inline void command(const struct node *node, const char *word)
{
    assert_true(write(node->in, word, strlen(word)) > 0);
}

static inline void end_node(struct node *node)
{
    kill(node->pid, SIGKILL);
    waitpid(node->pid, NULL, 0);
    close(node->in);
    close(node->out);
}

/* Waits for the next line that contains this text, copies it to out and returns the time in ms.
 * Fails after limit_ms (on a quiet machine). Drops the lines before it. */
static inline int64_t expect(struct node *node, const char *text, int64_t limit_ms, char *out,
                             size_t cap)
{
    int64_t start_ms = clock_ms();
    limit_ms = harness_patience_ms(limit_ms);
    for (;;) {
        char *end;
        while ((end = memchr(node->buffer, '\n', node->n)) != NULL) {
            char line[2048];
            size_t length = (size_t)(end - node->buffer);
            text_format(line, sizeof(line), "%.*s", (int)length, node->buffer);
            memmove(node->buffer, end + 1, node->n -= length + 1);
            if (strstr(line, text) != NULL) {
                if (out != NULL)
                    text_copy(out, cap, line);
                return clock_ms() - start_ms;
            }
            print_message("# passed over: %s\n", line);
        }
        struct pollfd wait = {.fd = node->out, .events = POLLIN};
        int64_t left_ms = limit_ms - (clock_ms() - start_ms);
        if (left_ms <= 0 || poll(&wait, 1, (int)left_ms) <= 0)
            fail_msg("no \"%s\" within %lld ms", text, (long long)limit_ms);
        ssize_t got = read(node->out, node->buffer + node->n, sizeof(node->buffer) - node->n);
        if (got <= 0)
            fail_msg("the node ended without \"%s\"", text);
        node->n += (size_t)got;
    }
}

static inline int exit_of(struct node *node)
{
    int status;
    waitpid(node->pid, &status, 0);
    close(node->in);
    close(node->out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline void start_all(struct node *nodes, int n, int port)
{
    for (int i = n - 1; i >= 0; i--) /* node 0 last */
        start(&nodes[i], i, n, port);
    for (int i = 0; i < n; i++)
        expect(&nodes[i], "world 1 ", 5000, NULL, 0);
}

/* NODES_MAIN — defines main for tests that start themselves as nodes. set_up: of the group, or
 * NULL. */
#define NODES_MAIN(set_up)                              \
    int main(int argc, char **argv)                     \
    {                                                   \
        if (argc > 1)                                   \
            return node_main(argc, argv);               \
        signal(SIGPIPE, SIG_IGN);                       \
        harness_quiet();                                \
        return harness_run_all(__FILE__, set_up, NULL); \
    }

#endif

/* rehearse_nodes — see rehearse/nodes.h. */
#include "node/rehearse/nodes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/program.h"
#include "base/text.h"
#include "node/process/process.h"

#define LINE_MAX_BYTES 16384
#define EXEC_FAILED 127
#define WORKERS_MAX 64

struct node {
    pid_t pid;   /* 0: does not run */
    int log_fd;  /* -1: none, or its end was read */
    bool is_cut; /* the line being read is too long, and is passed over */
    size_t n;
    char line[LINE_MAX_BYTES];
};

struct rehearse_nodes {
    struct rehearse_nodes_config config;
    struct node node[REHEARSE_NODES_MAX];
};

struct rehearse_nodes *rehearse_nodes_open(const struct rehearse_nodes_config *config)
{
    struct rehearse_nodes *nodes = memory_new(1, sizeof *nodes);
    nodes->config = *config;
    for (int i = 0; i < REHEARSE_NODES_MAX; i++)
        nodes->node[i].log_fd = -1;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* workers of a killed node become ours to wait for */
    return nodes;
}

/* ---- start ---- */

/* words_of — the arguments of node i: the command, what the user gave, what is added. Freed by the
 * caller; id holds the last one. */
static char **words_of(const struct rehearse_nodes_config *c, char id[32], int i)
{
    static char command[] = "train";
    int n = 0;
    char **words = memory_new((size_t)(c->args_n + c->words_n) + 4, sizeof *words);
    words[n++] = (char *)program_name();
    words[n++] = command;
    for (int k = 0; k < c->args_n; k++)
        words[n++] = c->args[k];
    for (int k = 0; k < c->words_n; k++)
        words[n++] = (char *)c->words[k];
    text_format(id, 32, "NODE_ID=%d", i);
    words[n] = id;
    return words;
}

/* become_node — the child's side of fork. */
static _Noreturn void become_node(char *const *words, int log_fd, pid_t parent, int namespace_fd)
{
    static const int reset[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGCHLD};
    for (size_t i = 0; i < sizeof reset / sizeof *reset; i++)
        signal(reset[i], SIG_DFL);
    setpgid(0, 0);
    process_bind_to(parent);
    if (namespace_fd >= 0 && setns(namespace_fd, CLONE_NEWNET) != 0)
        _exit(EXEC_FAILED);
    dup2(open("/dev/null", O_RDWR), STDIN_FILENO);
    dup2(STDIN_FILENO, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    process_exec_self(words);
    _exit(EXEC_FAILED);
}

static enum status start_words(struct node *node, char *const *words, int namespace_fd)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return FAIL(ST_RETRY, "cannot open a pipe: %s; raise the limit (ulimit -n)",
                    strerror(errno));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid == 0)
        become_node(words, ends[1], parent, namespace_fd);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return FAIL(ST_RETRY, "cannot start a node: %s; raise the limit of processes (ulimit -u)",
                    strerror(errno));
    }
    setpgid(pid, pid); /* as the child does: whichever is first */
    if (node->log_fd >= 0)
        close(node->log_fd);
    node->pid = pid, node->log_fd = ends[0], node->n = 0, node->is_cut = false;
    return ST_OK;
}

enum status rehearse_nodes_start(struct rehearse_nodes *nodes, int node)
{
    char id[32];
    char **words = words_of(&nodes->config, id, node);
    const int *namespaces = nodes->config.namespaces;
    enum status st =
        start_words(&nodes->node[node], words, namespaces != NULL ? namespaces[node] : -1);
    free(words);
    return st;
}

/* ---- signals ---- */

void rehearse_nodes_signal(struct rehearse_nodes *nodes, int node, int signal_n)
{
    if (nodes->node[node].pid > 0)
        kill(-nodes->node[node].pid, signal_n);
}

void rehearse_nodes_signal_first(struct rehearse_nodes *nodes, int node, int signal_n)
{
    if (nodes->node[node].pid > 0)
        kill(nodes->node[node].pid, signal_n);
}

void rehearse_nodes_kill(struct rehearse_nodes *nodes, int node)
{
    pid_t pid = nodes->node[node].pid;
    if (pid <= 0)
        return;
    kill(-pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    nodes->node[node].pid = 0;
}

/* parent_of — from /proc/PID/stat, whose second member may hold anything; 0: no such process. */
static int64_t parent_of(const char *pid)
{
    char path[64], text[512];
    int64_t parent = 0;
    text_format(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    char *end = strrchr(text, ')');
    if (end == NULL || strlen(end) < 5)
        return 0;
    end[4 + strcspn(end + 4, " ")] = 0; /* behind ") S " */
    return text_parse_i64(end + 4, 0, INT32_MAX, &parent) == TEXT_OK ? parent : 0;
}

/* children_of — in the order in which /proc lists them. */
static int children_of(pid_t pid, pid_t *out, int max)
{
    int n = 0;
    int64_t child;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir != NULL && n < max && (entry = readdir(dir)) != NULL;)
        if (text_parse_i64(entry->d_name, 1, INT32_MAX, &child) == TEXT_OK &&
            parent_of(entry->d_name) == pid)
            out[n++] = (pid_t)child;
    if (dir != NULL)
        closedir(dir);
    return n;
}

bool rehearse_nodes_kill_worker(struct rehearse_nodes *nodes, int node, uint64_t choice)
{
    pid_t workers[WORKERS_MAX];
    int n = children_of(nodes->node[node].pid, workers, WORKERS_MAX);
    return n > 0 && kill(workers[choice % (uint64_t)n], SIGKILL) == 0;
}

/* ---- full disks ---- */

/* limit_files — false: refused, and not because the process has ended. */
static bool limit_files(pid_t pid, bool is_limited)
{
    struct rlimit limit;
    if (prlimit(pid, RLIMIT_FSIZE, NULL, &limit) != 0)
        return errno == ESRCH;
    limit.rlim_cur = is_limited ? 0 : limit.rlim_max;
    return prlimit(pid, RLIMIT_FSIZE, &limit, NULL) == 0 || errno == ESRCH;
}

bool rehearse_nodes_limit_files(struct rehearse_nodes *nodes, bool is_limited)
{
    bool is_done = true;
    pid_t workers[WORKERS_MAX];
    for (int i = 0; i < nodes->config.nodes_n; i++) {
        pid_t pid = nodes->node[i].pid;
        if (pid <= 0)
            continue;
        is_done = limit_files(pid, is_limited) && is_done;
        for (int n = children_of(pid, workers, WORKERS_MAX); n > 0; n--)
            is_done = limit_files(workers[n - 1], is_limited) && is_done;
    }
    return is_done;
}

/* ---- lines and ends ---- */

static void read_log(struct rehearse_nodes *nodes, int i)
{
    char bytes[LINE_MAX_BYTES];
    struct node *node = &nodes->node[i];
    ssize_t n = read(node->log_fd, bytes, sizeof bytes);
    if (n == 0) {
        close(node->log_fd);
        node->log_fd = -1;
    }
    for (ssize_t k = 0; k < n; k++) {
        if (bytes[k] == '\n') {
            node->line[node->n] = 0;
            if (!node->is_cut)
                nodes->config.on_line(nodes->config.arg, i, node->line, node->n);
            node->n = 0, node->is_cut = false;
        } else if (node->n < sizeof node->line - 1)
            node->line[node->n++] = bytes[k];
        else
            node->is_cut = true;
    }
}

static bool has_bytes(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&one, 1, 0) > 0;
}

void rehearse_nodes_poll(struct rehearse_nodes *nodes, int wait_ms)
{
    struct pollfd fds[REHEARSE_NODES_MAX];
    int wait_status;
    for (int i = 0; i < nodes->config.nodes_n; i++)
        fds[i] = (struct pollfd){.fd = nodes->node[i].log_fd, .events = POLLIN};
    int n = poll(fds, (nfds_t)nodes->config.nodes_n, wait_ms);
    for (int i = 0; n > 0 && i < nodes->config.nodes_n; i++)
        if (fds[i].revents != 0)
            read_log(nodes, i);
    for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
        int code =
            WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
        for (int i = 0; i < nodes->config.nodes_n; i++) {
            if (nodes->node[i].pid != pid)
                continue;
            while (has_bytes(nodes->node[i].log_fd))
                read_log(nodes, i); /* its last lines */
            nodes->node[i].pid = 0;
            nodes->config.on_end(nodes->config.arg, i, code);
        }
    }
}

int rehearse_nodes_running(const struct rehearse_nodes *nodes)
{
    int n = 0;
    for (int i = 0; i < nodes->config.nodes_n; i++)
        n += nodes->node[i].pid > 0;
    return n;
}

void rehearse_nodes_close(struct rehearse_nodes *nodes)
{
    if (nodes == NULL)
        return;
    for (int i = 0; i < nodes->config.nodes_n; i++) {
        rehearse_nodes_kill(nodes, i);
        if (nodes->node[i].log_fd >= 0)
            close(nodes->node[i].log_fd);
    }
    /* Workers whose node was killed end by themselves. */
    pid_t orphans[WORKERS_MAX];
    for (int n, i = 0; (n = children_of(getpid(), orphans, WORKERS_MAX)) > 1 && i < 1000; i++)
        for (poll(NULL, 0, 5); n > 0; n--)
            waitpid(orphans[n - 1], NULL, WNOHANG);
    free(nodes);
}

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

#include "base/clock.h"
#include "base/memory.h"
#include "base/program.h"
#include "base/text.h"
#include "node/process/process.h"

#define EXEC_FAILED 127
#define WORKERS_MAX 64

struct node {
    pid_t pid;           /* 0: it does not run */
    struct board *board; /* NULL: not found yet */
};

struct rehearse_nodes {
    struct rehearse_nodes_config config;
    struct node node[REHEARSE_NODES_MAX];
};

struct rehearse_nodes *rehearse_nodes_open(const struct rehearse_nodes_config *config)
{
    struct rehearse_nodes *nodes = memory_new(1, sizeof *nodes);
    nodes->config = *config;
    /* this process becomes the parent of a killed node's workers, and waits for them */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return nodes;
}

/* ---- start ---- */

/* words_of — returns the arguments of node i: the command, the user's words, the added settings.
 * The caller frees the array; id holds the last argument. */
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

/* set_gpus — gives a node its GPUs. NCCL, or RCCL, sees another host in each node, so it uses
 * the network between nodes, as between machines. */
static void set_gpus(const struct rehearse_nodes_config *c, int node)
{
    char host[32];
    text_format(host, sizeof host, "convoy-node%d", node);
    setenv(c->visible, c->gpus[node], 1);
    setenv("NCCL_HOSTID", host, 1);
}

/* become_node — runs in the child after fork. The node writes to this process's log. */
static _Noreturn void become_node(char *const *words, pid_t parent, int namespace_fd)
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
    process_exec_self(words);
    _exit(EXEC_FAILED);
}

enum status rehearse_nodes_start(struct rehearse_nodes *nodes, int node)
{
    char id[32];
    char **words = words_of(&nodes->config, id, node);
    const int *namespaces = nodes->config.namespaces;
    pid_t parent = getpid();
    board_close(nodes->node[node].board); /* board of its last process */
    nodes->node[node].board = NULL;
    pid_t pid = fork();
    if (pid == 0 && nodes->config.gpus != NULL)
        set_gpus(&nodes->config, node);
    if (pid == 0)
        become_node(words, parent, namespaces != NULL ? namespaces[node] : -1);
    free(words);
    if (pid < 0)
        return FAIL(ST_RETRY, "cannot start a node: %s; raise the limit of processes (ulimit -u)",
                    strerror(errno));
    setpgid(pid, pid); /* the child calls this too; it must be done before either goes on */
    nodes->node[node].pid = pid;
    return ST_OK;
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

/* parent_of — returns the parent of a process from /proc/PID/stat; the second field of that file
 * may contain any characters. 0: there is no such process. */
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
    end[4 + strcspn(end + 4, " ")] = 0; /* the number after ") S " */
    return text_parse_i64(end + 4, 0, INT32_MAX, &parent) == TEXT_OK ? parent : 0;
}

/* children_of — returns the children of a process in the order of /proc. */
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

/* limit_files — limits the size of files for a process. Returns false if the system refuses it, but
 * not if the process has ended. */
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

/* ---- boards and ends ---- */

struct board *rehearse_nodes_board(struct rehearse_nodes *nodes, int node)
{
    struct node *n = &nodes->node[node];
    if (n->board == NULL && n->pid > 0)
        n->board = board_of_process(n->pid, node);
    return n->board;
}

void rehearse_nodes_poll(struct rehearse_nodes *nodes, int wait_ms)
{
    int wait_status;
    clock_sleep_ms(wait_ms);
    for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
        int code =
            WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
        for (int i = 0; i < nodes->config.nodes_n; i++) {
            if (nodes->node[i].pid != pid)
                continue;
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
        board_close(nodes->node[i].board);
    }
    /* Workers of a killed node end by themselves; wait for them. */
    pid_t orphans[WORKERS_MAX];
    for (int n, i = 0; (n = children_of(getpid(), orphans, WORKERS_MAX)) > 1 && i < 1000; i++)
        for (poll(NULL, 0, 5); n > 0; n--)
            waitpid(orphans[n - 1], NULL, WNOHANG);
    free(nodes);
}

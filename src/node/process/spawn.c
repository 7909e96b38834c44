/* spawn — see spawn.h. */
#include "node/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/board.h"
#include "base/memory.h"
#include "base/program.h"
#include "base/text.h"
#include "node/process/process.h"

#define EXEC_FAILED 127
#define PRIORITY_STEPS 10 /* steps of nice */

static int raised_by; /* steps of nice by which this process was raised */

#define PASSED_FIRST BOARD_FD
#define PASSED_LAST BOARD_PEER_COPY_FD

/* lift_fd — moves a descriptor out of the range of numbers that passed descriptors get. */
static int lift_fd(int fd, int as)
{
    return fd >= PASSED_FIRST && fd <= PASSED_LAST && fd != as ? fcntl(fd, F_DUPFD, PASSED_LAST + 1)
                                                               : fd;
}

/* exec_worker — runs in the child after fork: only async-signal-safe calls until exec. */
static _Noreturn void exec_worker(const struct spawn_config *config, char *const *argv,
                                  pid_t parent)
{
    sigset_t none;
    /* Handlers of the event loop must not run here, because they write to the parent's pipe.
     * Signals have been blocked since before fork. They are ignored from here on, also after exec,
     * and unblocked after that. */
    process_ignore_stops();
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    process_bind_to(parent);
    if (raised_by > 0)
        setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + raised_by);
    const int as[] = {BOARD_FD, BOARD_SHM_FD, BOARD_PEER_COPY_FD};
    const int given[] = {config->board_fd, config->shm_fd, config->peer_copy_fd};
    const int n = sizeof as / sizeof *as;
    int fd[sizeof as / sizeof *as];
    for (int i = 0; i < n; i++)
        fd[i] = lift_fd(given[i], as[i]);
    /* Each descriptor gets number as[i] and stays open after exec. */
    for (int i = 0; i < n; i++)
        if (given[i] < 0)
            close(as[i]);
        else if (fd[i] == as[i] ? fcntl(fd[i], F_SETFD, 0) < 0 : dup2(fd[i], as[i]) < 0)
            _exit(EXEC_FAILED);
    close_range(PASSED_LAST + 1, ~0u, 0);
    process_exec_self(argv);
    static const char text[] = "convoy: cannot execute itself as a worker\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(EXEC_FAILED);
}

int spawn_raise_priority(void)
{
    int before = getpriority(PRIO_PROCESS, 0);
    for (int by = PRIORITY_STEPS; by > 0 && raised_by == 0; by--)
        if (setpriority(PRIO_PROCESS, 0, before - by) == 0)
            raised_by = before - getpriority(PRIO_PROCESS, 0);
    return raised_by;
}

enum status spawn_worker(const struct spawn_config *config, pid_t *pid_out)
{
    static char command[] = "worker";
    char number[16];
    char **argv = memory_new((size_t)config->args_n + 4, sizeof *argv);
    argv[0] = (char *)program_name();
    argv[1] = command;
    argv[2] = number;
    text_format(number, sizeof number, "%d", config->worker_i);
    for (int i = 0; i < config->args_n; i++)
        argv[i + 3] = config->args[i];
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        exec_worker(config, argv, parent);
    int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(argv);
    if (pid < 0)
        return FAIL(
            ST_RETRY,
            "cannot start a worker: %s; raise the limits of processes (ulimit -u) or memory",
            strerror(error));
    *pid_out = pid;
    return ST_OK;
}

static enum status create_memory(const char *name, const char *purpose, const char *remedy,
                                 int *fd_out)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0)
        return FAIL(errno == EMFILE ? ST_BAD_SETTING : ST_RETRY,
                    "cannot create memory for %s: %s; raise the limit of open files (ulimit -n)%s",
                    purpose, strerror(errno), remedy);
    *fd_out = fd;
    return ST_OK;
}

enum status spawn_shm_fd(int workers_n, int *fd_out)
{
    *fd_out = -1;
    return workers_n > 1 ? create_memory("convoy-share", "the workers to share", "", fd_out)
                         : ST_OK;
}

enum status spawn_peer_copy_fd(int *fd_out)
{
    return create_memory("convoy-peer-copy", "copies of the state", ", or set PEER_COPIES=0",
                         fd_out);
}

bool spawn_reap(pid_t *pid_out, int *wait_status_out)
{
    pid_t pid;
    do {
        pid = waitpid(-1, wait_status_out, WNOHANG);
    } while (pid < 0 && errno == EINTR);
    *pid_out = pid;
    return pid > 0;
}

char spawn_state(pid_t pid)
{
    char path[64], text[512];
    text_format(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *end = strrchr(text, ')'); /* end of the name, which may contain any character */
    return end && end[1] == ' ' ? end[2] : 0;
}

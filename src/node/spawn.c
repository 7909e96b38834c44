/* spawn — see spawn.h. */
#include "node/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/board.h"
#include "base/text.h"

#define EXEC_FAILED 127

/* become — the child's side of fork: only async-signal-safe calls until exec. */
static _Noreturn void become(char *const *argv, int board_fd, pid_t parent)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGUSR1, SIGPIPE};
    sigset_t none;
    /* Handlers of the event loop must not run here (they write to the parent's own pipe): signals have been
     * blocked since before fork, are ignored now, which outlives exec, and are let through after that. */
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXEC_FAILED); /* the parent died before the line above could bind us to it */
    if (board_fd == BOARD_FD)
        fcntl(board_fd, F_SETFD, 0);
    else if (dup2(board_fd, BOARD_FD) < 0)
        _exit(EXEC_FAILED);
    close_range(BOARD_FD + 1, ~0u, 0);
    execv("/proc/self/exe", argv);
    execv((const char *)getauxval(AT_EXECFN), argv); /* without /proc */
    static const char text[] = "convoy: cannot execute itself as a worker\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(EXEC_FAILED);
    _exit(EXEC_FAILED);
}

enum status spawn_worker(int words_n, char *const *words, int board_fd, pid_t *pid_out)
{
    static char program[] = "convoy", command[] = "worker";
    char **argv = calloc((size_t)words_n + 3, sizeof *argv);
    if (!argv)
        return FAIL(ST_RETRY, "out of memory: the worker's arguments");
    argv[0] = program;
    argv[1] = command;
    for (int i = 0; i < words_n; i++)
        argv[i + 2] = words[i];
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(argv, board_fd, parent);
    int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(argv);
    if (pid < 0)
        return FAIL(ST_RETRY,
                    "cannot start a worker: %s; raise the limits of processes (ulimit -u) or memory",
                    strerror(error));
    *pid_out = pid;
    return ST_OK;
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
    const char *end = strrchr(text, ')'); /* of the name, which may hold anything */
    return end && end[1] == ' ' ? end[2] : 0;
}

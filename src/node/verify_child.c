/* verify_child — see verify_child.h.
 *
 * The child has a process group of its own, so that Ctrl-C at a terminal reaches this process only,
 * which then ends all of the group. This process adopts the workers that outlive their supervisor:
 * when the group is gone, no process writes below the temporary folder. */
#include "node/verify_child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/program.h"
#include "base/text.h"
#include "conf/conf.h"

#define EXEC_FAILED 127

static bool is_setting(const char *variable)
{
    for (int key = 0; key < CONF_N; key++) {
        const char *name = conf_row_name((enum conf_key)key);
        const size_t n = strlen(name);
        if (strncmp(variable, name, n) == 0 && variable[n] == '=')
            return true;
    }
    return false;
}

enum status verify_child_environment(char **environment, char ***out)
{
    size_t n = 0;
    while (environment[n])
        n++;
    char **kept = calloc(n + 1, sizeof *kept);
    if (!kept)
        return FAIL(ST_RETRY, "out of memory: %zu variables", n);
    size_t kept_n = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_setting(environment[i]))
            kept[kept_n++] = environment[i];
    *out = kept;
    return ST_OK;
}

/* ---- signals ---- */

static void fill(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGCHLD);
}

void verify_child_hold(sigset_t *before)
{
    sigset_t held;
    fill(&held);
    signal(SIGINT, SIG_DFL); /* a shell's background job ignores it, and `train` does not either */
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &held, before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void verify_child_release(const sigset_t *before) { sigprocmask(SIG_SETMASK, before, NULL); }

static enum status stopped_by(int signal_n)
{
    return FAIL(signal_n == SIGINT ? ST_INTERRUPTED : ST_TERMINATED,
                "stopped by SIG%s; nothing was changed, and nothing is left behind",
                sigabbrev_np(signal_n));
}

enum status verify_child_check(void)
{
    const struct timespec now = {.tv_sec = 0};
    sigset_t set;
    fill(&set);
    sigdelset(&set, SIGCHLD);
    const int signal_n = sigtimedwait(&set, NULL, &now);
    return signal_n > 0 ? stopped_by(signal_n) : ST_OK;
}

/* ---- the process ---- */

/* exec_child — only async-signal-safe calls until exec. */
static _Noreturn void exec_child(char **argv, char **environment, const sigset_t *mask,
                                 pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = open("/dev/null", O_RDWR);
    if (getppid() != parent || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(null, STDOUT_FILENO) < 0)
        _exit(EXEC_FAILED);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execve("/proc/self/exe", argv, environment);
    execve((const char *)getauxval(AT_EXECFN), argv, environment); /* without /proc */
    _exit(EXEC_FAILED);
}

static enum status start(char **argv, char **environment, const sigset_t *before, pid_t *out)
{
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        exec_child(argv, environment, before, parent);
    if (pid < 0)
        return FAIL(ST_RETRY,
                    "cannot start `train`: %s; raise the limits of processes (ulimit -u) or memory",
                    strerror(errno));
    setpgid(pid, pid); /* in both, whichever comes first */
    *out = pid;
    return ST_OK;
}

/* end_group — all of it is gone when this returns. */
static void end_group(pid_t pid)
{
    kill(-pid, SIGKILL);
    while (waitpid(-pid, NULL, 0) > 0 || errno == EINTR)
        ;
}

static enum status exit_status(int wait_status)
{
    const int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
    if (code == 0)
        return ST_OK;
    if (code < 0 || code == EXEC_FAILED)
        return FAIL(ST_RETRY, "`train`, which repeats the steps, could not be started or was "
                              "killed; try again");
    enum status st = status_from_exit(code);
    return FAIL(st, "the steps could not be repeated: `train` ended with %d; the cause is above%s",
                code, st == ST_STORE ? "; set TMPDIR to a folder with space" : "");
}

/* wait_for — the end of the child, or a signal that ends it. */
static enum status wait_for(pid_t pid)
{
    sigset_t set;
    int wait_status, signal_n;
    fill(&set);
    for (;;) {
        pid_t got = waitpid(pid, &wait_status, WNOHANG);
        if (got == pid) {
            end_group(pid);
            return exit_status(wait_status);
        }
        signal_n = sigwaitinfo(&set, NULL);
        if (signal_n <= 0 || signal_n == SIGCHLD)
            continue;
        end_group(pid);
        return stopped_by(signal_n);
    }
}

enum status verify_child_run(char *const *args, int args_n, char **environment,
                             const sigset_t *before)
{
    static char command[] = "train";
    pid_t pid = 0;
    char **argv = calloc((size_t)args_n + 3, sizeof *argv);
    if (!argv)
        return FAIL(ST_RETRY, "out of memory: the arguments of `train`");
    argv[0] = (char *)program_name();
    argv[1] = command;
    memcpy(argv + 2, args, (size_t)args_n * sizeof *args);
    enum status st = start(argv, environment, before, &pid);
    free(argv);
    return st == ST_OK ? wait_for(pid) : st;
}

/* process — see process.h.
 *
 * Core dumps are disabled by RLIMIT_CORE=1, not by PR_SET_DUMPABLE=0. A process that is not
 * dumpable owns nothing under /proc/self. As user 65532 of a container it could not read its own
 * limits and maps, the workers of a node could not read each other's memory (UCX's CMA), and strace
 * and debuggers could not attach.
 *
 * No core fits into a limit of one byte. The limit also prevents a core through a pipe in
 * core_pattern, which other limits do not prevent (core(5); fs/coredump.c of Linux). Secrets are
 * left out of cores nevertheless (base/secure.h), because a debugger may write one. */
#include "node/process/process.h"

#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXEC_FAILED 127
/* files of a worker, its data, a checkpoint and the page: about 20 were measured */
#define FILES_LEAST 32

#define STACK_BYTES ((rlim_t)8 << 20) /* the usual limit; GPU libraries rely on it */
/* The largest stack frame has 260 KiB (comm/core/sum_cpu.c); all others have at most 60 KiB
 * (FRAME_BYTES in the Makefile). */
#define STACK_BYTES_LEAST ((rlim_t)1 << 20)

const int process_stop_signals[PROCESS_STOP_SIGNALS_N] = {SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF,
                                                          SIGXCPU, SIGPWR,  SIGIO,     SIGSTKFLT};

/* raise_stack — raises the limit and the default for new threads. The kernel lets the first
 * thread's stack grow up to the present limit; the C library read the size of other threads' stacks
 * from the limit at the start. */
static enum status raise_stack(void)
{
    struct rlimit limit;
    pthread_attr_t threads;
    if (pthread_attr_init(&threads) == 0) {
        if (pthread_attr_setstacksize(&threads, STACK_BYTES) == 0)
            (void)pthread_setattr_default_np(&threads);
        pthread_attr_destroy(&threads);
    }
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES)
        return ST_OK;
    const rlim_t most = limit.rlim_max < STACK_BYTES ? limit.rlim_max : STACK_BYTES;
    limit.rlim_cur = STACK_BYTES;
    if (limit.rlim_max < STACK_BYTES)
        limit.rlim_max = STACK_BYTES; /* root may raise it */
    if (setrlimit(RLIMIT_STACK, &limit) == 0)
        return ST_OK;
    limit.rlim_cur = limit.rlim_max = most;
    if (setrlimit(RLIMIT_STACK, &limit) == 0 && most >= STACK_BYTES_LEAST)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "the stack may grow to %llu KiB, and at least %llu KiB are needed; raise the limit "
                "(ulimit -s 8192)",
                (unsigned long long)most >> 10, (unsigned long long)STACK_BYTES_LEAST >> 10);
}

enum status process_begin(bool may_use_gpu)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    /* Disable core dumps. With a limit of 0, a core through a pipe cannot be prevented; such a core
     * has no secrets. */
    if (getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_max != 0) {
        limit.rlim_cur = 1;
        (void)setrlimit(RLIMIT_CORE, &limit);
    }
    if (!(may_use_gpu && access("/usr/bin/nvidia-modprobe", X_OK) == 0 &&
          access("/dev/nvidia-uvm", F_OK) != 0))
        (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    TRY(raise_stack());
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return ST_OK;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        limit.rlim_cur = before;
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < FILES_LEAST)
        return FAIL(ST_BAD_SETTING,
                    "only %llu files may be open at a time, at least %d are needed; raise the "
                    "limit (ulimit -n)",
                    (unsigned long long)limit.rlim_cur, FILES_LEAST);
    return ST_OK;
}

void process_bind_to(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        /* the parent ended before the line above could bind this process to it */
        _exit(EXEC_FAILED);
}

void process_ignore_stops(void)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    for (int i = 0; i < PROCESS_STOP_SIGNALS_N; i++)
        signal(process_stop_signals[i], SIG_IGN);
}

void process_exec_self(char *const *argv)
{
    execv("/proc/self/exe", argv);
    execv((const char *)getauxval(AT_EXECFN), argv); /* works without /proc */
}

static volatile sig_atomic_t noted_signal;

static void note_signal(int signal_n) { noted_signal = signal_n; }

void process_note_signals(bool handles_hangup)
{
    struct sigaction action = {.sa_handler = note_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (handles_hangup && !process_ignores(SIGHUP))
        sigaction(SIGHUP, &action, NULL);
}

int process_noted(void) { return noted_signal; }

enum status process_fail_noted(const char *unmade, const char *verb)
{
    return FAIL(noted_signal == SIGINT ? ST_INTERRUPTED : ST_TERMINATED,
                "stopped by a signal; %s was %s", unmade, verb);
}

bool process_ignores(int signal_n)
{
    struct sigaction action;
    return sigaction(signal_n, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool process_has_default(int signal_n)
{
    struct sigaction action;
    return sigaction(signal_n, NULL, &action) == 0 && action.sa_handler == SIG_DFL;
}

/* crash — see crash.h. Uses only functions that may be called in a signal handler, plus
 * backtrace(), whose library is loaded beforehand. */
#include "node/process/crash.h"

#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/mapped_file.h"
#include "base/assert.h"
#include "base/text.h"
#include "node/process/exit_policy.h"

#define FRAMES_MAX 48
#define STACK_BYTES (64 * 1024)

static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CRASH_IS_OURS 0
#else
#define CRASH_IS_OURS 1
#endif

/* The handler has a stack of its own, because the normal stack itself may be broken. It has room
 * for the frame that the system puts on it and for backtrace(). That frame has 11 KiB if a thread
 * may use AMX tiles; the system refuses tiles if the stack is smaller than that. */
static char crash_stack[STACK_BYTES] __attribute__((aligned(16)));

static struct {
    void (*fn)(void *arg, enum status st, const char *sentence);
    void *arg;
} on_file;

void crash_on_mapped_file(void (*fn)(void *arg, enum status st, const char *sentence), void *arg)
{
    on_file.arg = arg;
    on_file.fn = fn;
}

/* end_for_file — ends the process if a page of a mapped file could not be read; returns if the
 * address is in no mapped file. */
static void end_for_file(const siginfo_t *info)
{
    char sentence[1300], line[1400];
    enum status st = mapped_file_fault(info->si_addr, sentence, sizeof sentence);
    if (st == ST_OK)
        return;
    if (on_file.fn)
        on_file.fn(on_file.arg, st, sentence);
    else {
        text_format(line, sizeof line, "convoy: error: %s\n", sentence);
        (void)!write(STDERR_FILENO, line, strlen(line)); /* on failure, the exit code remains */
    }
    _exit(status_exit_code(st));
}

static void report(int signal_n, siginfo_t *info, void *context)
{
    (void)context;
    if (signal_n == SIGBUS && info->si_code == BUS_ADRERR)
        end_for_file(info);
    char name[32], line[160];
    void *frames[FRAMES_MAX];
    text_format(line, sizeof line, "convoy: crash: %s at address %p in process %ld",
                exit_policy_signal_name(name, sizeof name, signal_n), info->si_addr,
                (long)getpid());
    assert_crash(line);
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), STDERR_FILENO);
    raise(signal_n); /* SA_RESETHAND put the default action back */
}

void crash_install(void)
{
    if (!CRASH_IS_OURS)
        return;
    void *frame;
    (void)backtrace(&frame, 1);
    stack_t stack = {.ss_sp = crash_stack, .ss_size = sizeof crash_stack};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_sigaction = report,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof fatal_signals / sizeof *fatal_signals; i++)
        sigaction(fatal_signals[i], &action, NULL);
}

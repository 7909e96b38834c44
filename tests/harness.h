/* harness — what every test program shares: headers of C, POSIX and src/base, TAP output for prove,
 * and a temporary folder that is removed at the end. */
#ifndef CONVOY_TESTS_HARNESS_H
#define CONVOY_TESTS_HARNESS_H

/* cmocka passes each test a state, which few of them use. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

static char harness_tmpdir_path[512];
static pid_t harness_tmpdir_owner;

static inline int harness_remove_one(const char *path, const struct stat *info, int kind,
                                     struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static inline void harness_tmpdir_remove(void)
{
    if (harness_tmpdir_path[0] != 0 && getpid() == harness_tmpdir_owner) /* not in a forked child */
        nftw(harness_tmpdir_path, harness_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* harness_tmpdir — an empty folder under $TMPDIR or /tmp, made at the first call and removed when
 * the program ends. */
static inline const char *harness_tmpdir(void)
{
    if (harness_tmpdir_path[0] != 0)
        return harness_tmpdir_path;
    const char *base = getenv("TMPDIR");
    snprintf(harness_tmpdir_path, sizeof(harness_tmpdir_path), "%s/convoy-test-XXXXXX",
             base != NULL && base[0] != 0 ? base : "/tmp");
    if (mkdtemp(harness_tmpdir_path) == NULL) {
        perror("harness: cannot make a folder for the test");
        exit(99);
    }
    harness_tmpdir_owner = getpid();
    atexit(harness_tmpdir_remove);
    return harness_tmpdir_path;
}

/* harness_files — one line about the regular files below a folder, sorted by name: each in the
 * format of find -printf ("%P:%s": name and bytes), with a space between two. Valid until the next
 * call. */
static inline const char *harness_files(const char *dir, const char *format)
{
    static char out[4096];
    char command[1024];
    snprintf(command, sizeof command,
             "cd '%s' && find . -type f -printf '%s\\n' | LC_ALL=C sort | tr '\\n' ' '", dir,
             format);
    FILE *list = popen(command, "r");
    const size_t n = list != NULL ? fread(out, 1, sizeof out - 1, list) : 0;
    out[n > 0 ? n - 1 : 0] = '\0';
    if (list != NULL)
        pclose(list);
    return out;
}

/* What all processors have done since the machine began, in 1/100 s; stolen: a virtual machine
 * wanted to run, and its host let others. */
struct harness_ticks {
    long long busy, stolen;
};

static inline struct harness_ticks harness_ticks(void)
{
    long long user, nice, kernel, irq, softirq, stolen;
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL)
        return (struct harness_ticks){0, 0};
    int n = fscanf(file, "cpu %lld %lld %lld %*d %*d %lld %lld %lld", &user, &nice, &kernel, &irq,
                   &softirq, &stolen);
    fclose(file);
    if (n != 6)
        return (struct harness_ticks){0, 0};
    return (struct harness_ticks){user + nice + kernel + irq + softirq + stolen, stolen};
}

static struct harness_ticks harness_first_ticks;
__attribute__((constructor)) static void harness_note_ticks(void)
{
    harness_first_ticks = harness_ticks();
}

/* harness_own — which share of the time that processes wanted since this program began was not
 * stolen: 0.1 to 1. */
static inline double harness_own(void)
{
    const struct harness_ticks now = harness_ticks();
    const double busy = (double)(now.busy - harness_first_ticks.busy),
                 stolen = (double)(now.stolen - harness_first_ticks.stolen);
    if (busy < 100 || stolen <= 0)
        return 1;
    return stolen > 0.9 * busy ? 0.1 : 1 - stolen / busy;
}

/* harness_slow — how many processes compete for each processor of the machine, at least 1, and more
 * where a virtual machine's host takes processors away. The highest value that this program has
 * seen, so that a limit and the check of that limit agree. */
static inline double harness_slow(void)
{
    static _Atomic double most = 1;
    double minute = 0;
    int now = 0;
    cpu_set_t set;
    FILE *file = fopen("/proc/loadavg", "r");
    if (file == NULL || sched_getaffinity(0, sizeof set, &set) != 0)
        return most;
    if (fscanf(file, "%lf %*s %*s %d", &minute, &now) != 2)
        now = 0;
    fclose(file);
    const double wanted = (now > minute ? now : minute) / CPU_COUNT(&set),
                 slow = (wanted > 1 ? wanted : 1) / harness_own();
    if (slow > most)
        most = slow;
    return most;
}

/* harness_patience_ms — a time limit that is `ms` on a quiet machine and longer on a busy one. For
 * limits that only end a hang, or that fail a test which took too long. */
static inline int64_t harness_patience_ms(int64_t ms)
{
    return (int64_t)((double)ms * harness_slow());
}

/* harness_wait_ms — sleep for as long as other processes need for what takes them `ms` on a quiet
 * machine. */
static inline void harness_wait_ms(int64_t ms)
{
    usleep((useconds_t)(1000 * harness_patience_ms(ms)));
}

/* harness_number — the number that a variable of the environment holds, or `otherwise`. */
static inline int harness_number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

/* harness_child_output — everything that a child writes to the pipe until it ends, as text; returns
 * its wait status. Closes the pipe. */
static inline int harness_child_output(pid_t pid, const int pipe_fd[2], char *out, size_t cap)
{
    int wait_status = 0;
    size_t used = 0;
    ssize_t n;
    close(pipe_fd[1]);
    while (used + 1 < cap && (n = read(pipe_fd[0], out + used, cap - 1 - used)) > 0)
        used += (size_t)n;
    out[used] = 0;
    close(pipe_fd[0]);
    waitpid(pid, &wait_status, 0);
    return wait_status;
}

/* harness_output_of — runs call(arg) in a child whose stderr, and with has_stdout its stdout, is
 * text in `out`; returns the child's wait status. */
static inline int harness_output_of(void (*call)(void *arg), void *arg, bool has_stdout, char *out,
                                    size_t cap)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        if (has_stdout)
            dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        call(arg);
        _exit(0);
    }
    return harness_child_output(child, ends, out, cap);
}

/* harness_assert_message — the message of the last status holds `words`. */
static inline void harness_assert_message(const char *words)
{
    if (!strstr(status_message(), words))
        fail_msg("expected \"%s\" in: %s", words, status_message());
}

/* harness_resident_kib — the memory of this process that is resident, in KiB. */
static inline long harness_resident_kib(void)
{
    long pages = 0, ignored;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_true(file != NULL);
    assert_int_equal(fscanf(file, "%ld %ld", &ignored, &pages), 2);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* harness_entries — how many files and folders are in a folder. */
static inline int harness_entries(const char *path)
{
    int n = -2; /* . and .. */
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* HARNESS_SKIP — leave a test that cannot run here, with the reason. (cmocka's own skip() prints
 * "not ok", which prove counts as a failure.) */
#define HARNESS_SKIP(...)                         \
    do {                                          \
        print_message("# skipped: " __VA_ARGS__); \
        print_message("\n");                      \
        return;                                   \
    } while (0)

/* harness_quiet — hide the program's own warnings, which many tests provoke. HARNESS_LOUD, defined
 * before this header or set in the environment, shows them. */
static inline void harness_quiet(void)
{
#ifndef HARNESS_LOUD
    if (getenv("HARNESS_LOUD") == NULL)
        log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
#endif
}

/* harness_log_of — the log lines from LOG_LEVEL_INFO on while call(arg) runs; valid until the next
 * call. */
static inline const char *harness_log_of(void (*call)(void *arg), void *arg)
{
    static char text[8192];
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    assert_true(file != NULL && saved >= 0);
    dup2(fileno(file), STDERR_FILENO);
    log_init(&(struct log_config){.level = LOG_LEVEL_INFO, .node_id = -1, .rank = -1});
    call(arg);
    harness_quiet();
    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t n = pread(fileno(file), text, sizeof text - 1, 0);
    fclose(file);
    text[n > 0 ? n : 0] = 0;
    return text;
}

/* harness_loopback — for a test's own main, before the tests: UCX over the loopback device, TAP, no
 * warnings. */
static inline void harness_loopback(void)
{
    setenv("UCX_TLS", "tcp,self", 0);
    setenv("UCX_NET_DEVICES", "lo", 0);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
}

/* The secret of a generation in tests over TCP; all ranks of a test use it. */
#define HARNESS_SECRET ((const uint8_t *)"sixteen bytes of")

/* harness_group — the tests of one file. A folder of unit tests is one program (harness_groups.c),
 * which runs each of its files in a process of its own. */
struct harness_group {
    const char *file;
    int (*run)(void); /* returns how many tests failed */
    struct harness_group *next;
};
extern struct harness_group *harness_groups;

#ifdef HARNESS_GROUP
#define HARNESS_ENTRY                                                                  \
    static struct harness_group harness_this = {.file = __FILE__, .run = harness_run}; \
    __attribute__((constructor)) static void harness_join(void)                        \
    {                                                                                  \
        harness_this.next = harness_groups;                                            \
        harness_groups = &harness_this;                                                \
    }
#else
#define HARNESS_ENTRY \
    int main(void) { return harness_run(); }
#endif

/* The tests of a file in the order of their definitions. */
#define HARNESS_TESTS_MAX 128
static struct CMUnitTest harness_tests[HARNESS_TESTS_MAX];
static int harness_order[HARNESS_TESTS_MAX], harness_tests_n;

/* Adds a test, called before main: the compiler may call constructors in another order. */
static inline void harness_add(int order, struct CMUnitTest test)
{
    int at = harness_tests_n++;
    if (at == HARNESS_TESTS_MAX)
        abort();
    for (; at > 0 && harness_order[at - 1] > order; at--) {
        harness_order[at] = harness_order[at - 1];
        harness_tests[at] = harness_tests[at - 1];
    }
    harness_order[at] = order;
    harness_tests[at] = test;
}

/* TEST — defines a test, which the program runs: there is no list of tests; _WITH: with functions
 * before and after it, or NULL. */
#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_WITH(name, set_up, tear_down)                                                   \
    static void name(void **state);                                                          \
    __attribute__((constructor)) static void name##_joins(void)                              \
    {                                                                                        \
        harness_add(__COUNTER__, (struct CMUnitTest){#name, name, set_up, tear_down, NULL}); \
    }                                                                                        \
    static void name(void **state)

/* Runs every TEST of the file; returns how many failed. */
static inline int harness_run_all(const char *file, int (*set_up)(void **state),
                                  int (*tear_down)(void **state))
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests(file, harness_tests, (size_t)harness_tests_n, set_up, tear_down);
}

/* HARNESS_RUN_ALL — the end of a file with TESTs; _WITH: with functions before the first and after
 * the last test, or NULL. */
#define HARNESS_RUN_ALL() HARNESS_RUN_ALL_WITH(NULL, NULL)
#define HARNESS_RUN_ALL_WITH(set_up, tear_down)              \
    static int harness_run(void)                             \
    {                                                        \
        harness_quiet();                                     \
        return harness_run_all(__FILE__, set_up, tear_down); \
    }                                                        \
    HARNESS_ENTRY

/* HARNESS_MAIN — the end of a file that lists its tests, because it takes some of a suite. */
#define HARNESS_MAIN(tests, set_up, tear_down)                                  \
    static int harness_run(void)                                                \
    {                                                                           \
        cmocka_set_message_output(CM_OUTPUT_TAP);                               \
        harness_quiet();                                                        \
        return cmocka_run_group_tests_name(__FILE__, tests, set_up, tear_down); \
    }                                                                           \
    HARNESS_ENTRY

#endif

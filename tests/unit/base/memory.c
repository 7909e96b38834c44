/* memory — resident memory follows what is touched and is read at most once a second; what is
 * free, and whether a refused request can ever be met; small memory that is missing ends the
 * process with 75. */
#include "harness.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "base/memory.h"

#define TOUCHED ((size_t)64 << 20)

TEST(test_follows)
{
    struct memory memory = {0};
    int64_t before = memory_resident(&memory, 1000);
    assert_true(before > 100000);
    char *data = mmap(NULL, TOUCHED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(data != MAP_FAILED);
    memset(data, 1, TOUCHED);
    assert_int_equal(memory_resident(&memory, 1500), before);
    assert_true(memory_resident(&memory, 2000) - before > (int64_t)TOUCHED / 2);
    munmap(data, TOUCHED);
}

TEST(test_rows)
{
    static const char text[] = "MemTotal:  99 kB\nMemFree:  3 kB\nMemAvailable:   1234 kB\n";
    assert_int_equal(memory_row(text, "MemAvailable"), 1234 * 1024);
    assert_int_equal(memory_row(text, "MemTotal"), 99 * 1024);
    assert_int_equal(memory_row("MemTotal:  99 kB\n", "MemAvailable"), -1);
    assert_int_equal(memory_row("MemAvailable: x\n", "MemAvailable"), -1);
    assert_int_equal(
        memory_row("MemAvailable: 99999999999999999999999999999999999999 kB\n", "MemAvailable"),
        -1);
    assert_int_equal(memory_row("", "MemAvailable"), -1);
    assert_true(memory_free() > 1 << 20);
}

static void write_file(const char *path, const char *text)
{
    assert_int_equal(file_replace(path, text, strlen(text)), ST_OK);
}

/* The machine, then a control group with less: free memory and the limit are two numbers. */
TEST(test_room)
{
    const char *dir = harness_tmpdir();
    char info[560], group[560], inside[560], path[600];
    struct memory_limits available;
    text_format(info, sizeof info, "%s/meminfo", dir);
    text_format(group, sizeof group, "%s/cgroup", dir);
    text_format(inside, sizeof inside, "%s/pod", dir);
    write_file(info, "MemTotal: 2000 kB\nMemFree: 1 kB\nMemAvailable: 1500 kB\n");
    write_file(group, "0::/pod\n");
    memory_limits_in(info, group, dir, &available);
    assert_int_equal(available.free_bytes, 1500 * 1024);
    assert_int_equal(available.total_bytes, 2000 * 1024);
    assert_false(available.is_group);
    assert_int_equal(file_make_dirs(inside), ST_OK);
    text_format(path, sizeof path, "%s/memory.max", inside);
    write_file(path, "1024000\n");
    text_format(path, sizeof path, "%s/memory.current", inside);
    write_file(path, "24000\n");
    memory_limits_in(info, group, dir, &available);
    assert_int_equal(available.free_bytes, 1000000);
    assert_int_equal(available.total_bytes, 1024000);
    assert_true(available.is_group);
    memory_limits_in("/none", "/none", "/none", &available);
    assert_int_equal(available.free_bytes, -1);
    assert_int_equal(available.total_bytes, -1);
}

/* A request over the machine's memory is refused for good; one within it may succeed later. A limit
 * of this process is for good. */
TEST(test_refusals)
{
    struct rlimit before, less;
    struct memory_limits available;
    memory_limits(&available);
    assert_true(available.total_bytes > 0 && available.free_bytes <= available.total_bytes);
    assert_int_equal(memory_status(available.total_bytes + 1), ST_BAD_SETTING);
    assert_int_equal(memory_status(1 << 20), ST_RETRY);
    if (getrlimit(RLIMIT_AS, &before) != 0 || before.rlim_cur != RLIM_INFINITY)
        HARNESS_SKIP("RLIMIT_AS is set here, or cannot be told");
    less = before;
    less.rlim_cur = (rlim_t)1 << 45; /* beyond what a sanitizer reserves */
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    memory_limits(&available);
    assert_true(available.process_bytes > 0 && available.process_bytes < (int64_t)less.rlim_cur);
    assert_int_equal(memory_status(available.process_bytes + (1 << 20)), ST_BAD_SETTING);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
}

/* ended — runs allocate in a process with little memory left; returns its exit code. */
static int ended(void (*allocate)(void))
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {(rlim_t)1 << 28, (rlim_t)1 << 28};
        if (setrlimit(RLIMIT_AS, &limit) != 0)
            _exit(99);
        allocate();
        _exit(0);
    }
    int how = 0;
    assert_true(child > 0 && waitpid(child, &how, 0) == child && WIFEXITED(how));
    return WEXITSTATUS(how);
}

static void new_small(void)
{
    int *some = memory_new(1000, sizeof *some);
    some = memory_resize(some, 2000, sizeof *some);
    char *text = memory_text("a text");
    if (some[999] != 0 || strcmp(text, "a text") != 0)
        _exit(98);
    free(text);
    free(some);
    free(memory_new(0, 0));
}
static void new_large(void) { free(memory_new((size_t)1 << 20, (size_t)1 << 20)); }
static void new_overflow(void) { free(memory_new(SIZE_MAX / 2, 16)); }
static void resize_large(void) { free(memory_resize(memory_new(1, 1), (size_t)1 << 40, 1)); }

TEST(test_missing)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    HARNESS_SKIP("a sanitizer reserves more than the limit");
#endif
    assert_int_equal(ended(new_small), 0);
    assert_int_equal(ended(new_large), 75);
    assert_int_equal(ended(new_overflow), 75);
    assert_int_equal(ended(resize_large), 75);
}

HARNESS_RUN_ALL()

/* secure — secrets lie in pages of their own: locked, left out of core dumps, zero in a forked
 * process, wiped. */
#include "harness.h"

#include "base/secure.h"

/* flags_of — the VmFlags line of the mapping that holds an address; "" without /proc/self/smaps. */
static void flags_of(const void *data, char *out, size_t cap)
{
    char line[512];
    bool is_inside = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    out[0] = 0;
    while (file && fgets(line, sizeof line, file)) {
        unsigned long first, end;
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
            is_inside =
                (unsigned long)(uintptr_t)data >= first && (unsigned long)(uintptr_t)data < end;
        if (is_inside && strncmp(line, "VmFlags:", 8) == 0)
            text_copy(out, cap, line);
    }
    if (file)
        fclose(file);
}

TEST(test_pages)
{
    char flags[512];
    char *secret = secure_strdup("0123456789abcdef");
    assert_non_null(secret);
    assert_string_equal(secret, "0123456789abcdef");
    flags_of(secret, flags, sizeof flags);
    if (flags[0] && (!strstr(flags, " dd") || !strstr(flags, " wf")))
        fail_msg("%s", flags);
    int ended = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(secret[0] == 0 ? 0 : 1);
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_int_equal(ended, 0);
    secure_free(secret);
}

TEST(test_sizes)
{
    for (size_t n = 1; n < 100000; n = n * 3 + 1) {
        char *data = secure_alloc(n);
        assert_non_null(data);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(data[i], 0);
        memset(data, 7, n);
        secure_free(data);
    }
    secure_free(NULL);
}

HARNESS_RUN_ALL()

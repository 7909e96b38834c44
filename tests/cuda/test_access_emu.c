/* Instrumented kernels: each planted mistake is reported, its correct twin is not; conflicts of
 * banks, sectors and bytes are counted as worked out by hand; a launch beyond a limit fails. */
#include "kernel_test.h"

#include "tests/cuda/access_kernels.h"
#include "tests/emu/emu_access.h"
#include "tests/emu/emu_control.h"

#define WORDS 512
static int *out, *in, *scratch;

static void begin(void)
{
    emu_seed(0);
    emu_access_begin();
    emu_access_tensor("out", out, ACCESS_WORDS * sizeof *out, EMU_ACCESS_OUT);
    emu_access_tensor("in", in, ACCESS_WORDS * sizeof *in, EMU_ACCESS_IN);
    emu_access_tensor("scratch", scratch, ACCESS_WORDS * sizeof *in, EMU_ACCESS_OUT);
}

/* The report that has the word, among all: what comes too early may also be unset. */
static const char *report_with(const char *word)
{
    int i = 0;
    while (emu_access_report(i) && !strstr(emu_access_report(i), word))
        i++;
    return emu_access_report(i);
}

/* What is reported of a launch, with and without the mistake. */
static void reports(enum access_mistake mistake, const char *want)
{
    begin();
    int rc = access_kernels_mistake(out, in, scratch, mistake, false);
    emu_access_end();
    if (rc != 0 || emu_error() || emu_access_report(0))
        fail_msg("correct twin of mistake %d: %d, %s", mistake, rc, emu_access_report(0));
    begin();
    access_kernels_mistake(out, in, scratch, mistake, true);
    emu_access_end();
    emu_error();
    const char *got = report_with(want);
    if (!got)
        fail_msg("mistake %d: no report of \"%s\", the first is %s", mistake, want,
                 emu_access_report(0));
    if (!strstr(got, "mistake_kernel") || !strstr(got, "access_kernels.cu"))
        fail_msg("no kernel or file in: %s", got);
    print_message("# %s\n", got);
}

TEST(mistakes_are_reported)
{
    static const char *const want[ACCESS_MISTAKES] = {
        [ACCESS_RACE_BLOCK] = "race",
        [ACCESS_RACE_WARP] = "race",
        [ACCESS_RACE_AFTER] = "race",
        [ACCESS_RACE_GLOBAL] = "block",
        [ACCESS_RACE_READ] = "block",
        [ACCESS_RACE_ATOMIC] = "atomic",
        [ACCESS_RACE_COPY] = "access to a copy under way",
        [ACCESS_RACE_COPY_OVER] = "race",
        [ACCESS_UNSET_SHARED] = "unset memory",
        [ACCESS_UNSET_SCRATCH] = "unset memory",
        [ACCESS_BESIDE] = "beside all tensors",
    };
    for (int i = 0; i < ACCESS_MISTAKES; i++)
        reports((enum access_mistake)i, want[i]);
}

/* The same report under every order of threads, although the result is right under some. */
TEST(reports_do_not_depend_on_the_order)
{
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int i = 0; i <= ACCESS_RACE_COPY_OVER; i++) {
            begin();
            emu_seed(seed);
            access_kernels_mistake(out, in, scratch, (enum access_mistake)i, true);
            emu_access_end();
            emu_error();
            if (!emu_access_report(0))
                fail_msg("mistake %d is not reported under seed %llu", i, (unsigned long long)seed);
        }
}

static struct emu_access_counts shape(enum access_shape shape, bool is_shared)
{
    struct emu_access_counts counts;
    begin();
    emu_access_tensor("wide out", out + ACCESS_WORDS, (WORDS - ACCESS_WORDS) * sizeof *out,
                      EMU_ACCESS_OUT);
    emu_access_tensor("wide in", in + ACCESS_WORDS, (WORDS - ACCESS_WORDS) * sizeof *in,
                      EMU_ACCESS_IN);
    assert_int_equal(access_kernels_shape(out, in, shape, is_shared), 0);
    emu_access_end();
    if (emu_access_report(0))
        fail_msg("%s", emu_access_report(0));
    assert_true(emu_access_kernel(0, &counts));
    assert_false(emu_access_kernel(1, &counts));
    assert_int_equal(counts.launches, 1);
    return counts;
}

/* 16 conflict-free stores fill the shared memory first. */
TEST(conflicts_are_counted)
{
    static const struct {
        enum access_shape shape;
        unsigned transactions, least;
    } cases[] = {{ACCESS_ROWS, 1, 1},       {ACCESS_BROADCAST, 1, 1},      {ACCESS_EIGHT_WAY, 8, 1},
                 {ACCESS_WIDE, 4, 4},       {ACCESS_WIDE_STRIDE, 8, 4},    {ACCESS_HALVES, 1, 1},
                 {ACCESS_MATRIX, 8 * 4, 4}, {ACCESS_MATRIX_SWIZZLED, 4, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct emu_access_counts c = shape(cases[i].shape, true);
        if (c.transactions != 16 + cases[i].transactions ||
            c.transactions_least != 16 + cases[i].least)
            fail_msg("shape %d: %llu transactions, least %llu", cases[i].shape,
                     (unsigned long long)c.transactions, (unsigned long long)c.transactions_least);
    }
    struct emu_access_counts c = shape(ACCESS_COPIES, true);
    assert_true(c.transactions == 4 && c.transactions_least == 4);
    assert_true(c.sectors == 16 && c.sectors_least == 16);
}

/* Stores are in rows; sectors of the loads and of the stores. */
TEST(sectors_are_counted)
{
    static const struct {
        enum access_shape shape;
        unsigned loads, loads_least, stores;
    } cases[] = {{ACCESS_ROWS, 4, 4, 4},           {ACCESS_BROADCAST, 1, 1, 4},
                 {ACCESS_EIGHT_WAY, 32, 4, 4},     {ACCESS_WIDE, 16, 16, 16},
                 {ACCESS_WIDE_STRIDE, 32, 16, 16}, {ACCESS_HALVES, 2, 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct emu_access_counts c = shape(cases[i].shape, false);
        struct emu_access_moved moved = emu_access_bytes();
        unsigned all = cases[i].loads + cases[i].stores;
        if (c.sectors != all || c.sectors_least != cases[i].loads_least + cases[i].stores ||
            moved.read != 32 * cases[i].loads || moved.written != 32 * cases[i].stores)
            fail_msg("shape %d: %llu sectors, least %llu, %llu bytes read", cases[i].shape,
                     (unsigned long long)c.sectors, (unsigned long long)c.sectors_least,
                     (unsigned long long)moved.read);
    }
}

TEST(limits_hold)
{
    static const char *const want[ACCESS_LIMITS] = {"cudaFuncSetAttribute", "parameters", "grid",
                                                    "block of 1056 threads"};
    for (int i = 0; i < ACCESS_LIMITS; i++) {
        int rc = access_kernels_limit((enum access_limit)i, false);
        const char *error = emu_error();
        if (rc != 0 || error)
            fail_msg("limit %d, at the limit: %s", i, error);
        rc = access_kernels_limit((enum access_limit)i, true);
        error = emu_error();
        if (rc == 0 || !error || !strstr(error, want[i]))
            fail_msg("limit %d: returned %d, %s", i, rc, error ? error : "no error");
    }
}

/* A table of its own: limit_kernel may have so many registers, and static shared memory. */
static void table_of(const char *registers, const char *static_bytes)
{
    char path[] = "/tmp/convoy-access-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    dprintf(fd,
            "object\tkernel\tarch\tregisters\tstack\tspill\tstatic\tdynamic\n"
            "limits\tlimit_kernel\tsm_80\t%s\t0\t0\t%s\t0\n",
            registers, static_bytes);
    close(fd);
    assert_int_equal(emu_limits_table(path), 1);
    unlink(path);
}

TEST(registers_and_static_memory_hold)
{
    assert_true(emu_limits_table(NULL) > 100); /* the checked-in table is found */
    table_of("64", "0");
    assert_int_equal(access_kernels_limit(ACCESS_LIMIT_THREADS, false), 0);
    table_of("65", "0");
    assert_int_not_equal(access_kernels_limit(ACCESS_LIMIT_THREADS, false), 0);
    assert_non_null(strstr(emu_error(), "1024 threads of 65 registers"));
    table_of("32", "1024");
    emu_shared_max(48 << 10);
    assert_int_not_equal(access_kernels_limit(ACCESS_LIMIT_SHARED, false), 0);
    assert_non_null(strstr(emu_error(), "1024 static"));
    emu_shared_max(0);
    emu_limits_table(NULL);
}

static int allocate_memory(void **state)
{
    out = aligned_alloc(256, WORDS * sizeof *out);
    in = aligned_alloc(256, WORDS * sizeof *in);
    scratch = aligned_alloc(256, WORDS * sizeof *scratch);
    if (!out || !in || !scratch)
        return -1;
    for (int i = 0; i < WORDS; i++)
        in[i] = i;
    return 0;
}

static int free_memory(void **state)
{
    free(out);
    free(in);
    free(scratch);
    return 0;
}

HARNESS_RUN_ALL_WITH(allocate_memory, free_memory)

/* rehearse_flip — a bit in the memory of a process (this one) changes, one and no other, in a
 * parameter of ordinary size; what log lines say is read; a worker that has ended is left alone. */
#include "harness.h"

#include "node/rehearse/flip.h"
#include "train/feature/sentinel_line.h"

#define ELEMS 500
static float parameters[ELEMS], before[ELEMS];
static struct rehearse_flips flips;

/* fill — two of three are too small or too large for an update to keep what changes in them. */
static void fill(void)
{
    for (int i = 0; i < ELEMS; i++)
        parameters[i] = i % 3 == 0 ? 0.02f + (float)i / ELEMS : i % 3 == 1 ? 1e-9f : 1e9f;
    memcpy(before, parameters, sizeof before);
}

static void note(int node, int rank, long long pid)
{
    char line[256];
    snprintf(line, sizeof line,
             SENTINEL_LINE_OTHERS "2; " SENTINEL_LINE_ELEMS "%d; " SENTINEL_LINE_ADDRESS
                                  "%llu; " SENTINEL_LINE_PROCESS "%lld",
             ELEMS, (unsigned long long)(uintptr_t)parameters, pid);
    rehearse_flip_note(&flips, node, rank, line);
}

/* changed — the bits that differ; *elem_out: in which element the last one is. */
static int changed(int *elem_out)
{
    int n = 0;
    for (int i = 0; i < ELEMS; i++) {
        uint32_t was, is;
        memcpy(&was, &before[i], 4);
        memcpy(&is, &parameters[i], 4);
        n += __builtin_popcount(was ^ is);
        *elem_out = was != is ? i : *elem_out;
    }
    return n;
}

static void test_one_bit(void **state)
{
    char what[160];
    bool is_hit[32] = {false};
    memset(&flips, 0, sizeof flips);
    note(0, 0, getpid());
    note(1, 1, getpid());
    for (uint64_t choice = 0; choice < 200; choice++) {
        int elem = -1, bit = -1;
        fill();
        assert_int_equal(rehearse_flip(&flips, 1, choice << 32 | choice, what, sizeof what), 1);
        assert_int_equal(changed(&elem), 1);
        assert_int_equal(elem % 3, 0);
        assert_int_equal(sscanf(what, "bit %d of ", &bit), 1);
        is_hit[bit] = true;
    }
    for (int bit = 14; bit < 32; bit++)
        if (!is_hit[bit])
            fail_msg("bit %d never changed", bit);
}

static void test_unknown(void **state)
{
    char what[160];
    int elem;
    memset(&flips, 0, sizeof flips);
    fill();
    assert_int_equal(rehearse_flip(&flips, 0, 3, what, sizeof what), -1);
    note(0, 0, getpid());
    assert_int_equal(rehearse_flip(&flips, 1, 3, what, sizeof what), -1);
    rehearse_flip_forget(&flips, 0);
    assert_int_equal(rehearse_flip(&flips, 0, 3, what, sizeof what), -1);
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    note(0, 0, gone);
    assert_int_equal(rehearse_flip(&flips, 0, 3, what, sizeof what), -1);
    assert_int_equal(changed(&elem), 0);
}

static void test_refused(void **state)
{
    char why[200];
    memset(&flips, 0, sizeof flips);
    assert_non_null(strstr(rehearse_flip_refused(&flips, why, sizeof why), "DEVICE=cpu"));
    note(0, 0, getpid());
    assert_string_equal(rehearse_flip_refused(&flips, why, sizeof why), "");
    flips.rank[0].address = 8;
    assert_non_null(strstr(rehearse_flip_refused(&flips, why, sizeof why), "ptrace_scope"));
}

static void test_named(void **state)
{
    assert_int_equal(rehearse_flip_named("worker rank 7 (pid 5) ended with exit code 80: after "
                                         "step 8 the parameters of rank 12 differ from those of "
                                         "most of 16 workers: memory"),
                     12);
    assert_int_equal(rehearse_flip_named("worker rank 3 (pid 5) ended with exit code 80: the first "
                                         "moments of rank 5 changed by themselves after the update "
                                         "of step 8, within a to b: memory"),
                     5);
    assert_int_equal(rehearse_flip_named("worker rank 7 was killed by SIGKILL"), -1);
    assert_int_equal(rehearse_flip_named("the parameters of 2 workers differ (rank 0 is one)"), -1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_one_bit),
    cmocka_unit_test(test_unknown),
    cmocka_unit_test(test_refused),
    cmocka_unit_test(test_named),
};
HARNESS_MAIN(tests)

/* rehearse_flip — a bit in the memory of a process (this one) changes, one and no other, in a
 * parameter of ordinary size; a worker that has ended is left alone. */
#include "harness.h"

#include "node/rehearse/nodes.h"

#define ELEMS 500
static float parameters[ELEMS], before[ELEMS];

/* fill — two of three are too small or too large for an update to keep what changes in them. */
static void fill(void)
{
    for (int i = 0; i < ELEMS; i++)
        parameters[i] = i % 3 == 0 ? 0.02f + (float)i / ELEMS : i % 3 == 1 ? 1e-9f : 1e9f;
    memcpy(before, parameters, sizeof before);
}

static struct rehearse_replica replica(int rank, int64_t pid)
{
    return (struct rehearse_replica){rank, pid, ELEMS, (uint64_t)(uintptr_t)parameters, false};
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

TEST(test_one_bit)
{
    char what[160];
    bool is_hit[32] = {false};
    const struct rehearse_replica workers[] = {replica(4, getpid()), replica(5, getpid())};
    for (uint64_t choice = 0; choice < 200; choice++) {
        int elem = -1, bit = -1;
        fill();
        assert_int_equal(rehearse_flip(workers, 2, choice << 32 | choice, what, sizeof what),
                         4 + (int)choice % 2);
        assert_int_equal(changed(&elem), 1);
        assert_int_equal(elem % 3, 0);
        assert_int_equal(sscanf(what, "bit %d of ", &bit), 1);
        is_hit[bit] = true;
    }
    for (int bit = 14; bit < 32; bit++)
        if (!is_hit[bit])
            fail_msg("bit %d never changed", bit);
}

TEST(test_unknown)
{
    char what[160];
    int elem;
    fill();
    assert_int_equal(rehearse_flip(NULL, 0, 3, what, sizeof what), -1);
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    const struct rehearse_replica ended = replica(0, gone);
    assert_int_equal(rehearse_flip(&ended, 1, 3, what, sizeof what), -1);
    assert_int_equal(changed(&elem), 0);
}

TEST(test_refused)
{
    char why[200];
    struct rehearse_replica first = {.elems = 0};
    assert_non_null(
        strstr(rehearse_flip_refused(&first, why, sizeof why), "an optimizer that has moments"));
    first = replica(0, getpid());
    assert_string_equal(rehearse_flip_refused(&first, why, sizeof why), "");
    first.address = 8;
    assert_non_null(strstr(rehearse_flip_refused(&first, why, sizeof why), "ptrace_scope"));
    /* an address of a GPU is not read from here */
    first.is_on_device = true;
    assert_string_equal(rehearse_flip_refused(&first, why, sizeof why), "");
}

HARNESS_RUN_ALL()

/* test_peer_copy — a rank ends in the middle of a step, and nodes lose their memory. The job goes
 * on from the copies in the others', at most one finished step back, and ends with the bits of a
 * run that was never disturbed. If a rank and its keeper are gone, no state is found. */
#include "mesh/copies.h"
#include "train/step/slice.h"

#define STEPS 6

/* heal_twice — the second loss comes before the first copy after the first one is complete. */
static void heal_twice(const struct job *like, int nodes, int locals, int unit, int second)
{
    char what[128];
    text_format(what, sizeof what, "shard %d, %d x %d, unit %d, then rank %d",
                (int)like->trial.config.store.shard, nodes, locals, unit, second);
    struct trial calm = copies_calm(like, nodes, locals);
    copies_begin(nodes * locals);
    copies_lose(like, nodes, locals, 3, unit, nodes * locals - 1, false);
    struct job again = *like;
    again.leave_after = 0;
    copies_lose(&again, nodes, locals, -1, unit, second, true);
    copies_finish(like, nodes, locals, 3, &calm, what);
    copies_end(nodes * locals);
}

static const int shapes[][2] = {{2, 1}, {3, 1}, {4, 1}, {2, 2}};
#define SHAPES (sizeof shapes / sizeof *shapes)
static const int units[] = {4, 3, 0}; /* the last: before the copy begins; then in it; its end */

TEST(test_heal)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        const struct job like = copies_job_of((enum layout_shard)shard);
        for (size_t i = 0; i < SHAPES; i++)
            for (int u = 0; u < 3; u++)
                copies_heal(&like, shapes[i][0], shapes[i][1], units[u],
                            ((int)i + u + shard) % (shapes[i][0] + 1) - 1);
    }
}

TEST(test_heal_twice)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        const struct job like = copies_job_of((enum layout_shard)shard);
        for (size_t i = 0; i < SHAPES; i++)
            for (int u = 0; u < 3; u++)
                for (int rank = 0; rank < 2; rank++)
                    heal_twice(&like, shapes[i][0], shapes[i][1], units[u], rank);
    }
}

TEST(test_resize)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int u = 0; u < 3; u++) {
            const struct job like = copies_job_of((enum layout_shard)shard);
            copies_resize(like, 3, 2, 1, units[u]);
            copies_resize(like, 2, 3, 1, units[u]);
            copies_resize(like, 2, 1, 1, units[u]);
            copies_resize(like, 2, 1, 2, units[u]);
        }
}

/* after — what is found once memory was lost or changed after a whole run; the newest copy of a run
 * of STEPS steps is of the state after STEPS - 1. */
static int64_t after(enum layout_shard shard, int nodes, void (*change)(struct job *))
{
    struct job job = copies_job_of(shard);
    job.trial.reads_state = false;
    copies_begin(nodes);
    copies_run(&job, nodes, 1);
    copies_ended_well(nodes, "first");
    change(&job);
    copies_run(&job, nodes, 1);
    copies_ended_well(nodes, "second");
    copies_end(nodes);
    return copies_job[0].found_step;
}

static void lose_nothing(struct job *job) { (void)job; }
static void lose_pair(struct job *job)
{
    (void)job, copies_lose_node(2, 1), copies_lose_node(3, 1);
}
static void lose_two(struct job *job) { (void)job, copies_lose_node(1, 1), copies_lose_node(2, 1); }
static void lose_all(struct job *job)
{
    (void)job;
    for (int node = 0; node < 4; node++)
        copies_lose_node(node, 1);
}
static void change_settings(struct job *job) { job->fingerprint++; }
static void save_next(struct job *job) { job->saved_step = STEPS; }
static void save_later(struct job *job) { job->saved_step = STEPS + 1; }

TEST(test_what_is_found)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += LAYOUT_SHARD_FULL) {
        const enum layout_shard s = (enum layout_shard)shard;
        assert_int_equal(after(s, 4, lose_nothing), STEPS - 1);
        assert_int_equal(after(s, 4, lose_two), STEPS - 1);
        assert_int_equal(after(s, 4, lose_pair), -1);
        assert_int_equal(after(s, 4, lose_all), -1);
        assert_int_equal(after(s, 4, change_settings), -1);
        /* A checkpoint is preferred if it is newer by two steps. */
        assert_int_equal(after(s, 4, save_next), STEPS - 1);
        assert_int_equal(after(s, 4, save_later), -1);
    }
}

/* flip_bit — of the newest copy of a slice that a rank's memory holds. */
static void flip_bit(int rank, int kind, int64_t byte, int bit)
{
    char *at = NULL;
    const int64_t bytes = lseek(copies_fd[rank], 0, SEEK_END),
                  head = peer_copy_memory_bytes((const int64_t[PEER_COPY_KINDS]){0, 0}),
                  stride = (bytes - head) / PEER_COPY_SLOTS;
    at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, copies_fd[rank], 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    for (int buffer = 0; buffer < PEER_COPY_BUFFERS; buffer++)
        if (buffer == (STEPS - 1) % 2)
            at[head + (kind * PEER_COPY_BUFFERS + buffer) * stride + byte] ^= (char)(1 << bit);
    munmap(at, (size_t)bytes);
}
/* flip — of rank 1's own slice; and of that which its keeper has. */
static void flip(int rank, int kind) { flip_bit(rank, kind, 77, 4); }
static void flip_own(struct job *job) { (void)job, flip(1, PEER_COPY_OWN); }
static void flip_both(struct job *job)
{
    (void)job, flip(1, PEER_COPY_OWN), flip(0, PEER_COPY_KEPT);
}

/* A damaged copy is replaced by the keeper's; where that is damaged, too, by the step before. */
TEST(test_damaged)
{
    assert_int_equal(after(LAYOUT_SHARD_FULL, 2, flip_own), STEPS - 1);
    assert_int_equal(after(LAYOUT_SHARD_FULL, 2, flip_both), STEPS - 2);
    assert_int_equal(after(LAYOUT_SHARD_NONE, 2, flip_both), STEPS - 2);
}

/* flip_anywhere — one bit of the newest copy of a slice. Where that is the keeper's, the owner's
 * node is lost as well, else nothing would read it. Returns the step that is to be found. */
static int flip_anywhere(const struct job *job, int ranks, unsigned seed)
{
    int64_t elems;
    const int rank = rand_r(&seed) % ranks, kind = rand_r(&seed) % 2;
    assert_int_equal(step_slice_elems_of(&job->trial.config, ranks, rank, false, &elems), ST_OK);
    const int64_t byte = (int64_t)((unsigned)rand_r(&seed) % (unsigned)(elems * 4));
    flip_bit(rank, kind, byte, rand_r(&seed) % 8);
    if (kind == PEER_COPY_OWN)
        return STEPS - 1;
    copies_lose_node(rank ^ 1, 1);
    return STEPS - 2;
}

static void flip_and_resume(const struct job *like, int nodes, unsigned seed)
{
    struct trial calm = copies_calm(like, nodes, 1);
    copies_begin(nodes);
    copies_run(like, nodes, 1);
    copies_ended_well(nodes, "before the flip");
    trial_free(&copies_job[0].trial);
    const int step = flip_anywhere(&copies_job[0], nodes, seed);
    copies_finish(like, nodes, 1, step, &calm, "a bit of a copy changed");
    assert_int_equal(copies_job[0].found_step, step);
    copies_end(nodes);
}

/* test_flips — FLIPS=n flips of one bit of one copy (default 6): never taken; the state is that of
 * a calm run. */
TEST(test_flips)
{
    const int flips = harness_number("FLIPS", 6);
    for (int i = 0; i < flips; i++) {
        const struct job like = copies_job_of(i % 2 ? LAYOUT_SHARD_FULL : LAYOUT_SHARD_NONE);
        flip_and_resume(&like, 2 + i / 2 % 2 * 2, (unsigned)i + 1);
    }
    print_message("# %d flips found\n", flips);
}

HARNESS_RUN_ALL()

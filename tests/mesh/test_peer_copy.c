/* test_peer_copy — a rank ends in the middle of a step, and nodes lose their memory. The job goes
 * on from the copies in the others', at most one finished step back, and ends with the bits of a
 * run that was never disturbed. If a rank and its keeper are gone, no state is found. */
#include "mesh/trial.h"

#include <sys/mman.h>
#include <unistd.h>

#include "train/peer_copy.h"
#include "train/peer_copy_memory.h"

#define STEPS 6

struct job {
    struct trial trial; /* first: trial_take and trial_steps read it */
    int fd;
    uint64_t fingerprint;
    int leave_step, leave_unit, leave_rank; /* a rank ends there, before its copy goes on */
    bool leaves_first;                      /* in the first step that it makes */
    bool wants_found;
    int ranks_min;      /* of all runs on these memories; 0: as many as now */
    int64_t found_step; /* -1: none */
    struct checkpoint_progress progress;
    struct peer_copy *copy;
    struct step *step;
    struct ranks_one *one;
};

static int fds[RANKS_MAX];

static enum status unit_done(void *arg, int unit)
{
    struct job *job = arg;
    if (job->progress.step == job->leave_step && unit == job->leave_unit &&
        job->one->rank == job->leave_rank)
        return FAIL(ST_RETRY, "this rank ends");
    return peer_copy_unit_done(job->copy, job->step, &job->progress, unit);
}

static void stepped(const struct ranks_one *one, int step)
{
    struct job *job = one->arg;
    (void)step;
    job->progress.step++;
    job->progress.samples += 6;
}

/* open_copies — and what they find, as trainer_begin does. */
static enum status open_copies(struct job *job)
{
    struct step_config *c = &job->trial.config;
    struct peer_copy_config config = {
        .comm = job->one->comm, .fd = job->fd, .fingerprint = job->fingerprint};
    bool is_found;
    TRY(step_slice_elems_of(c, job->one->ranks, &config.slice_elems));
    TRY(step_slice_elems_of(c, job->ranks_min > 0 ? job->ranks_min : job->one->ranks,
                            &config.slot_elems));
    config.ranks_max = RANKS_MAX;
    TRY(peer_copy_open(&config, &job->copy));
    if (!job->copy)
        return FAIL(ST_BUG, "no copies");
    TRY(peer_copy_find(job->copy, &is_found, &job->progress));
    job->found_step = is_found ? job->progress.step : -1;
    if (job->leaves_first)
        job->leave_step = (int)job->progress.step;
    c->is_loaded = is_found;
    c->unit_done = unit_done;
    c->unit_done_arg = job;
    TRY(step_open(c, &job->step));
    return is_found ? peer_copy_restore(job->copy, job->step) : ST_OK;
}

static enum status train(struct job *job)
{
    struct trial *t = &job->trial;
    struct batch batch = {0};
    TRY(open_copies(job));
    t->elems = step_whole_table(job->step)->parameters;
    TRY(batch_init(&batch, FEED_TASK_LM, t->config.global_samples / job->one->ranks,
                   t->config.seq_tokens));
    t->first_step = (int)job->progress.step;
    t->steps = STEPS - t->first_step;
    enum status st = trial_steps(job->one, t, job->step, &batch);
    batch_free(&batch);
    return st == ST_OK ? trial_take(job->one, t, job->step) : st;
}

static enum status rank_main(struct ranks_one *one)
{
    struct job *job = one->arg;
    job->one = one;
    job->fd = fds[one->rank];
    job->trial.config.dev = one->dev;
    job->trial.config.comm = one->comm;
    job->trial.stepped = stepped;
    enum status st = train(job);
    struct status_saved saved;
    status_save(&saved);
    peer_copy_close(job->copy);
    step_close(job->step);
    status_restore(&saved);
    return st;
}

static struct job all[RANKS_MAX];
static struct ranks_one one[RANKS_MAX];

static void run(const struct job *like, int nodes, int locals)
{
    for (int rank = 0; rank < nodes * locals; rank++)
        all[rank] = *like;
    ranks_try(nodes, locals, RANKS_TIMEOUT_MS, rank_main, all, sizeof *all, one);
}

static void all_ended_well(int ranks, const char *what)
{
    for (int rank = 0; rank < ranks; rank++)
        if (one[rank].st != ST_OK)
            fail_msg("%s: rank %d: %s: %s", what, rank, status_name(one[rank].st),
                     one[rank].message);
}

static struct job job_of(enum layout_shard shard)
{
    struct job job = {.trial = trial_of(MODEL_TASK_LM, 6 * 4, 11),
                      .fingerprint = 5,
                      .leave_step = -1,
                      .found_step = -1};
    job.trial.config.store.shard = shard;
    job.trial.config.dropout = 0.1f;
    job.trial.config.global_samples = 24;
    job.trial.config.batch_samples = 2;
    return job;
}

static void begin(int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        fds[rank] = memfd_create("test", MFD_CLOEXEC);
}
static void lose_node(int node, int locals)
{
    for (int local = 0; local < locals; local++)
        assert_int_equal(ftruncate(fds[node * locals + local], 0), 0);
}
static void end(int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        close(fds[rank]);
}

/* lose — a rank ends at a unit of a step, and its node may lose its memory. */
static void lose(const struct job *like, int nodes, int locals, int step, int unit, int rank,
                 bool with_memory)
{
    struct job job = *like;
    job.leave_step = step;
    job.leave_unit = unit;
    job.leave_rank = rank;
    run(&job, nodes, locals);
    assert_int_equal(one[rank].st, ST_RETRY);
    if (with_memory)
        lose_node(rank / locals, locals);
}

static struct trial calm_run(const struct job *like, int nodes, int locals)
{
    begin(nodes * locals);
    run(like, nodes, locals);
    all_ended_well(nodes * locals, "calm");
    end(nodes * locals);
    return all[0].trial;
}

/* finish — all ranks go on from step `from` or the one before, to the bits of the calm run. */
static void finish(const struct job *like, int nodes, int locals, int from, struct trial *calm,
                   const char *what)
{
    const int ranks = nodes * locals;
    run(like, nodes, locals);
    all_ended_well(ranks, what);
    for (int rank = 0; rank < ranks; rank++)
        if (all[rank].found_step < from - 1 || all[rank].found_step > from ||
            all[rank].found_step != all[0].found_step)
            fail_msg("%s: rank %d goes on from step %lld", what, rank,
                     (long long)all[rank].found_step);
    for (int part = 0; part < TRIAL_PARTS; part++)
        if (memcmp(all[0].trial.state[part], calm->state[part],
                   (size_t)calm->elems * sizeof(float)))
            fail_msg("%s: part %d differs", what, part);
    trial_free(calm);
    trial_free(&all[0].trial);
}

/* heal — a rank ends at a unit of a step; node `lost` has no memory then (-1: all have). */
static void heal(const struct job *like, int nodes, int locals, int unit, int lost)
{
    char what[128];
    text_format(what, sizeof what, "shard %d, %d x %d, unit %d, node %d lost",
                (int)like->trial.config.store.shard, nodes, locals, unit, lost);
    struct trial calm = calm_run(like, nodes, locals);
    begin(nodes * locals);
    lose(like, nodes, locals, 3, unit, lost >= 0 ? lost * locals : nodes * locals - 1, lost >= 0);
    finish(like, nodes, locals, 3, &calm, what);
    end(nodes * locals);
}

/* heal_twice — the second loss comes before the first copy after the first one is complete. */
static void heal_twice(const struct job *like, int nodes, int locals, int unit, int second)
{
    char what[128];
    text_format(what, sizeof what, "shard %d, %d x %d, unit %d, then rank %d",
                (int)like->trial.config.store.shard, nodes, locals, unit, second);
    struct trial calm = calm_run(like, nodes, locals);
    begin(nodes * locals);
    lose(like, nodes, locals, 3, unit, nodes * locals - 1, false);
    struct job again = *like;
    again.leaves_first = true;
    lose(&again, nodes, locals, -1, unit, second, true);
    finish(like, nodes, locals, 3, &calm, what);
    end(nodes * locals);
}

static const int shapes[][2] = {{2, 1}, {3, 1}, {4, 1}, {2, 2}};
#define SHAPES (sizeof shapes / sizeof *shapes)
static const int units[] = {4, 3, 0}; /* the last: before the copy begins; then in it; its end */

static void test_heal(void **state)
{
    (void)state;
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        const struct job like = job_of((enum layout_shard)shard);
        for (size_t i = 0; i < SHAPES; i++)
            for (int u = 0; u < 3; u++)
                heal(&like, shapes[i][0], shapes[i][1], units[u],
                     ((int)i + u + shard) % (shapes[i][0] + 1) - 1);
    }
}

static void test_heal_twice(void **state)
{
    (void)state;
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        const struct job like = job_of((enum layout_shard)shard);
        for (size_t i = 0; i < SHAPES; i++)
            for (int u = 0; u < 3; u++)
                for (int rank = 0; rank < 2; rank++)
                    heal_twice(&like, shapes[i][0], shapes[i][1], units[u], rank);
    }
}

/* resize — a rank ends at a unit of a step; then fewer nodes go on, or more, until a rank ends
 * again; then as many as at first. */
static void resize(enum layout_shard shard, int before, int then, int locals, int unit)
{
    struct job like = job_of(shard);
    const int most = (before > then ? before : then) * locals;
    char what[128];
    text_format(what, sizeof what, "shard %d, %d nodes, then %d, x %d, unit %d", (int)shard, before,
                then, locals, unit);
    like.trial.config.shards = 12;
    like.ranks_min = (before < then ? before : then) * locals;
    struct trial calm = calm_run(&like, before, locals);
    begin(most);
    lose(&like, before, locals, 2, unit, 0, false);
    if (then < before)
        lose_node(then, locals);
    struct job again = like;
    again.leave_step = 4;
    again.leave_unit = unit;
    again.leave_rank = then * locals - 1;
    run(&again, then, locals);
    assert_int_equal(one[again.leave_rank].st, ST_RETRY);
    assert_in_range(all[0].found_step, 1, 2);
    finish(&like, before, locals, 4, &calm, what);
    end(most);
}

static void test_resize(void **state)
{
    (void)state;
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int u = 0; u < 3; u++) {
            const enum layout_shard s = (enum layout_shard)shard;
            resize(s, 3, 2, 1, units[u]);
            resize(s, 2, 3, 1, units[u]);
            resize(s, 2, 1, 1, units[u]);
            resize(s, 2, 1, 2, units[u]);
        }
}

/* after — what is found once memory was lost or changed after a whole run; the newest copy of a run
 * of STEPS steps is of the state after STEPS - 1. */
static int64_t after(enum layout_shard shard, int nodes, void (*change)(struct job *))
{
    struct job job = job_of(shard);
    job.trial.takes_state = false;
    begin(nodes);
    run(&job, nodes, 1);
    all_ended_well(nodes, "first");
    change(&job);
    run(&job, nodes, 1);
    all_ended_well(nodes, "second");
    end(nodes);
    return all[0].found_step;
}

static void lose_nothing(struct job *job) { (void)job; }
static void lose_pair(struct job *job) { (void)job, lose_node(2, 1), lose_node(3, 1); }
static void lose_two(struct job *job) { (void)job, lose_node(1, 1), lose_node(2, 1); }
static void lose_all(struct job *job)
{
    (void)job;
    for (int node = 0; node < 4; node++)
        lose_node(node, 1);
}
static void change_settings(struct job *job) { job->fingerprint++; }

static void test_what_is_found(void **state)
{
    (void)state;
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += LAYOUT_SHARD_FULL) {
        const enum layout_shard s = (enum layout_shard)shard;
        assert_int_equal(after(s, 4, lose_nothing), STEPS - 1);
        assert_int_equal(after(s, 4, lose_two), STEPS - 1);
        assert_int_equal(after(s, 4, lose_pair), -1);
        assert_int_equal(after(s, 4, lose_all), -1);
        assert_int_equal(after(s, 4, change_settings), -1);
    }
}

/* flip_bit — of the newest copy of a slice that a rank's memory holds. */
static void flip_bit(int rank, int holding, int64_t byte, int bit)
{
    char *at = NULL;
    const int64_t bytes = lseek(fds[rank], 0, SEEK_END), head = peer_copy_memory_bytes(0),
                  stride = (bytes - head) / PEER_COPY_SLOTS;
    at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[rank], 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    for (int buffer = 0; buffer < PEER_COPY_BUFFERS; buffer++)
        if (buffer == (STEPS - 1) % 2)
            at[head + (holding * PEER_COPY_BUFFERS + buffer) * stride + byte] ^= (char)(1 << bit);
    munmap(at, (size_t)bytes);
}
/* flip — of rank 1's own slice; and of that which its keeper has. */
static void flip(int rank, int holding) { flip_bit(rank, holding, 77, 4); }
static void flip_own(struct job *job) { (void)job, flip(1, PEER_COPY_OWN); }
static void flip_both(struct job *job)
{
    (void)job, flip(1, PEER_COPY_OWN), flip(0, PEER_COPY_KEPT);
}

/* A damaged copy is replaced by the keeper's; where that is damaged, too, by the step before. */
static void test_damaged(void **state)
{
    (void)state;
    assert_int_equal(after(LAYOUT_SHARD_FULL, 2, flip_own), STEPS - 1);
    assert_int_equal(after(LAYOUT_SHARD_FULL, 2, flip_both), STEPS - 2);
    assert_int_equal(after(LAYOUT_SHARD_NONE, 2, flip_both), STEPS - 2);
}

/* flip_anywhere — one bit of the newest copy of a slice. Where that is the keeper's, the owner's
 * node is lost as well, else nothing would read it. Returns the step that is to be found. */
static int flip_anywhere(const struct job *job, int ranks, unsigned seed)
{
    int64_t elems;
    assert_int_equal(step_slice_elems_of(&job->trial.config, ranks, &elems), ST_OK);
    const int rank = rand_r(&seed) % ranks, holding = rand_r(&seed) % 2;
    const int64_t byte = (int64_t)((unsigned)rand_r(&seed) % (unsigned)(elems * 4));
    flip_bit(rank, holding, byte, rand_r(&seed) % 8);
    if (holding == PEER_COPY_OWN)
        return STEPS - 1;
    lose_node(rank ^ 1, 1);
    return STEPS - 2;
}

static void flip_and_resume(const struct job *like, int nodes, unsigned seed)
{
    struct trial calm = calm_run(like, nodes, 1);
    begin(nodes);
    run(like, nodes, 1);
    all_ended_well(nodes, "before the flip");
    trial_free(&all[0].trial);
    const int step = flip_anywhere(&all[0], nodes, seed);
    finish(like, nodes, 1, step, &calm, "a bit of a copy changed");
    assert_int_equal(all[0].found_step, step);
    end(nodes);
}

/* test_flips — FLIPS=n flips of one bit of one copy (default 6): never taken; the state is that of
 * a calm run. */
static void test_flips(void **state)
{
    (void)state;
    const char *asked = getenv("FLIPS");
    const int flips = asked != NULL ? atoi(asked) : 6;
    for (int i = 0; i < flips; i++) {
        const struct job like = job_of(i % 2 ? LAYOUT_SHARD_FULL : LAYOUT_SHARD_NONE);
        flip_and_resume(&like, 2 + i / 2 % 2 * 2, (unsigned)i + 1);
    }
    print_message("# %d flips found\n", flips);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_heal),    cmocka_unit_test(test_heal_twice),
    cmocka_unit_test(test_resize),  cmocka_unit_test(test_what_is_found),
    cmocka_unit_test(test_damaged), cmocka_unit_test(test_flips)};
HARNESS_MAIN(tests)

/* copies — for tests: ranks that train with copies of their state in peers' memory, end in the
 * middle of a step, and lose memory. */
#ifndef CONVOY_TESTS_COPIES_H
#define CONVOY_TESTS_COPIES_H

#include "mesh/trial.h"

#include <sys/mman.h>

#include "train/peer_copy/inside.h"
#include "train/feature/step_update_sums.h"

/* leave_unit: the last unit of the rank; unit 0, after its copy has gone on */
enum { COPIES_LAST_UNIT = 99, COPIES_AFTER_UNIT_0 = -1 };

struct job {
    struct trial trial; /* first: trial_read and trial_steps read it */
    int fd;
    uint64_t fingerprint;
    int leave_step, leave_unit, leave_rank; /* a rank ends there, before its copy goes on */
    int leave_after; /* leave_step is so many steps after the first one; -1: it is as given */
    int last_step;   /* the run is over after it, or after the step that is found */
    bool wants_found;
    /* called when a step begins and after it, with the number of steps done; may be NULL */
    void (*begin_step)(struct step *step, int64_t steps);
    void (*end_step)(struct step *step, int64_t steps);
    int every;                /* steps from one copy to the next; 0: as chosen */
    int64_t saved_step;       /* of the newest checkpoint; 0: none */
    int ranks_min;            /* of all runs on these memories; 0: as many as now */
    int64_t found_step;       /* -1: none */
    bool travels;             /* peer_copy_exchange_travels */
    int flip_step, flip_rank; /* a bit of this rank's parameters changes after so many steps */
    bool is_changed;          /* this rank has found that */
    struct checkpoint_progress progress;
    struct peer_copy *copy;
    struct step *step;
    struct ranks_one *one;
};

/* The interval of a rank at the end of a run, and the time by which a copy delays a step. */
static struct copies_chosen {
    int every;
    double ms;
} copies_chosen[RANKS_MAX];
static int copies_fd[RANKS_MAX];   /* of each rank of the largest world */
static int copies_node[RANKS_MAX]; /* of a node of a world: which node of the largest it is */

/* copies_leaves — at a unit; is_after: when its copy has gone on. */
static inline bool copies_leaves(const struct job *job, int unit, bool is_after)
{
    int at = job->leave_unit;
    if (at == COPIES_LAST_UNIT)
        at = step_own_table(job->step)->units_n - 1;
    return job->progress.step == job->leave_step && job->one->rank == job->leave_rank &&
           (is_after ? unit == 0 && at == COPIES_AFTER_UNIT_0 : unit == at);
}

static inline enum status copies_unit_done(void *arg, int unit)
{
    struct job *job = arg;
    if (copies_leaves(job, unit, false))
        return FAIL(ST_RETRY, "this rank ends");
    TRY(peer_copy_unit_done(job->copy, job->step, &job->progress, unit));
    return copies_leaves(job, unit, true) ? FAIL(ST_RETRY, "this rank ends") : ST_OK;
}

static inline enum status copies_begin_step(void *arg, struct step_now *now)
{
    const struct job *job = arg;
    (void)now;
    if (job->begin_step)
        job->begin_step(job->step, job->progress.step);
    return ST_OK;
}

static const struct step_feature copies_feature = {
    .name = "copies", .phase[STEP_PHASE_BEGIN] = copies_begin_step, .unit_done = copies_unit_done};

/* copies_flip — a bit of what this rank updates, in its last bucket that is not empty. */
static inline void copies_flip(const struct store *store)
{
    int bucket = store_layout(store)->buckets_n - 1;
    while (store_local_shard(store, bucket).elems == 0)
        bucket--;
    *(uint32_t *)store_local_shard(store, bucket).p.data ^= UINT32_C(1) << 12;
}

static inline void copies_stepped(const struct ranks_one *one, int step)
{
    struct job *job = one->arg;
    (void)step;
    job->progress.step++;
    job->progress.samples += 6;
    if (job->end_step)
        job->end_step(job->step, job->progress.step);
    job->progress.scale = step_loss_scale(job->step);
    if (job->progress.step == job->flip_step && one->rank == job->flip_rank &&
        dev_sync(step_stream(job->step)) == ST_OK)
        copies_flip(step_core(job->step)->store);
}

/* copies_open — and what they find, as trainer_begin does. */
static inline enum status copies_open(struct job *job)
{
    struct step_config *c = &job->trial.config;
    struct peer_copy_config config = {.comm = comm_host(job->one->comm),
                                      .step_comm = job->one->comm,
                                      .dev = job->one->dev,
                                      .every = job->every,
                                      .fd = job->fd,
                                      .fingerprint = job->fingerprint};
    bool is_found;
    TRY(peer_copy_world(c, comm_place(job->one->comm), &config.world));
    TRY(peer_copy_sizes(c, comm_place(job->one->comm), job->ranks_min, RANKS_MAX,
                        dev_is_discrete(job->one->dev), &config.sizes));
    config.ranks_max = RANKS_MAX;
    TRY(peer_copy_open(&config, &job->copy));
    if (!job->copy)
        return FAIL(ST_BUG, "no copies");
    TRY(peer_copy_find(job->copy, job->saved_step, &is_found, &job->progress));
    job->found_step = is_found ? job->progress.step : -1;
    if (job->leave_after >= 0)
        job->leave_step = (int)job->progress.step + job->leave_after;
    c->feature = &copies_feature;
    c->feature_arg = job;
    c->is_loaded = is_found;
    TRY(step_open(c, &job->step));
    TRY(is_found ? peer_copy_restore(job->copy, job->step) : ST_OK);
    if (is_found)
        step_loss_scale_set(job->step, job->progress.scale);
    job->travels = peer_copy_exchange_travels(job->copy, job->step);
    return ST_OK;
}

static inline enum status copies_train(struct job *job)
{
    struct trial *t = &job->trial;
    struct batch batch = {0};
    int64_t first;
    TRY(copies_open(job));
    t->elems = step_whole_table(job->step)->parameters;
    TRY(batch_init(&batch, FEED_TASK_LM,
                   trial_samples(t, job->one, t->config.global_samples, &first),
                   t->config.seq_tokens));
    t->first_step = (int)job->progress.step;
    t->steps = job->last_step > t->first_step ? job->last_step - t->first_step : 0;
    enum status st = trial_steps(job->one, t, job->step, &batch);
    batch_free(&batch);
    return st == ST_OK ? trial_read(job->one, t, job->step) : st;
}

/* Marks copies that may hold memory which changed by itself, as trainer_copy_end does. */
static inline void copies_end_step(struct job *job, enum status st)
{
    if (st == ST_PEER)
        (void)step_update_sums_verify_own(job->step);
    const struct step_changed changed = step_update_sums_changed(job->step);
    job->is_changed = st == ST_FAULT || (changed.ranks_n > 0 && changed.rank == job->one->rank);
    if (changed.ranks_n > 0)
        peer_copy_suspect(job->copy, job->step, changed.steps, job->is_changed);
}

static inline enum status copies_rank(struct ranks_one *one)
{
    struct job *job = one->arg;
    job->one = one;
    const int locals = comm_place(one->comm)->locals;
    const int at = copies_node[one->rank / locals] * locals + one->rank % locals;
    job->fd = copies_fd[at];
    job->trial.config.dev = one->dev;
    job->trial.config.comm = one->comm;
    job->trial.stepped = copies_stepped;
    enum status st = copies_train(job);
    struct status_saved saved;
    status_save(&saved);
    if (job->step)
        copies_end_step(job, st);
    if (job->copy) {
        struct peer_copy_stats stats;
        peer_copy_stats(job->copy, &stats);
        copies_chosen[one->rank] =
            (struct copies_chosen){.every = job->copy->interval.every, .ms = stats.ms};
    }
    peer_copy_close(job->copy);
    step_close(job->step);
    status_restore(&saved);
    return st;
}

static struct job copies_job[RANKS_MAX];
static struct ranks_one copies_one[RANKS_MAX];

static inline void copies_run(const struct job *like, int nodes, int locals)
{
    for (int rank = 0; rank < nodes * locals; rank++)
        copies_job[rank] = *like;
    ranks_try(nodes, locals, RANKS_TIMEOUT_MS, copies_rank, copies_job, sizeof *copies_job,
              copies_one);
}

static inline void copies_ended_well(int ranks, const char *what)
{
    for (int rank = 0; rank < ranks; rank++)
        if (copies_one[rank].st != ST_OK)
            fail_msg("%s: rank %d: %s: %s", what, rank, status_name(copies_one[rank].st),
                     copies_one[rank].message);
}

static inline struct job copies_job_of(enum layout_shard shard)
{
    struct job job = {.trial = trial_of(MODEL_TASK_LM, 6 * 4, 11),
                      .fingerprint = 5,
                      .leave_step = -1,
                      .leave_after = -1,
                      .flip_step = -1,
                      .last_step = 6,
                      .found_step = -1};
    job.trial.config.store.shard = shard;
    job.trial.config.dropout = 0.1f;
    job.trial.config.global_samples = 24;
    job.trial.config.batch_samples = 2;
    return job;
}

static inline void copies_begin(int ranks)
{
    for (int node = 0; node < RANKS_MAX; node++)
        copies_node[node] = node;
    for (int rank = 0; rank < ranks; rank++)
        copies_fd[rank] = memfd_create("test", MFD_CLOEXEC);
}
static inline void copies_lose_node(int node, int locals)
{
    for (int local = 0; local < locals; local++)
        assert_int_equal(ftruncate(copies_fd[node * locals + local], 0), 0);
}
static inline void copies_end(int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        close(copies_fd[rank]);
}

/* copies_keeper — of the copies of a node, in a world of so many; -1: there is no other. */
static inline int copies_keeper(int node, int nodes)
{
    struct peer_copy_world world = {.nodes = nodes, .locals = 1};
    return mesh_make(nodes, 1, 1, 1, &world.mesh) == ST_OK ? peer_copy_choice_keeper(&world, node)
                                                           : -1;
}

/* ---- histories ---- */

/* copies_lose — a rank ends at a unit of a step, and its node may lose its memory. */
static inline void copies_lose(const struct job *like, int nodes, int locals, int step, int unit,
                               int rank, bool with_memory)
{
    struct job job = *like;
    job.leave_step = step;
    job.leave_unit = unit;
    job.leave_rank = rank;
    copies_run(&job, nodes, locals);
    assert_int_equal(copies_one[rank].st, ST_RETRY);
    if (with_memory)
        copies_lose_node(rank / locals, locals);
}

static inline struct trial copies_calm(const struct job *like, int nodes, int locals)
{
    copies_begin(nodes * locals);
    copies_run(like, nodes, locals);
    copies_ended_well(nodes * locals, "calm");
    copies_end(nodes * locals);
    return copies_job[0].trial;
}

/* copies_finish — all go on from step `from` or the one before, to the bits of the calm run. */
static inline void copies_finish(const struct job *like, int nodes, int locals, int from,
                                 struct trial *calm, const char *what)
{
    const int ranks = nodes * locals;
    copies_run(like, nodes, locals);
    copies_ended_well(ranks, what);
    for (int rank = 0; rank < ranks; rank++)
        if (copies_job[rank].found_step < from - 1 || copies_job[rank].found_step > from ||
            copies_job[rank].found_step != copies_job[0].found_step)
            fail_msg("%s: rank %d goes on from step %lld", what, rank,
                     (long long)copies_job[rank].found_step);
    trial_same_state(&copies_job[0].trial, calm, what);
    trial_free(calm);
    trial_free(&copies_job[0].trial);
}

/* copies_heal — a rank ends at a unit of step 3; node `lost` loses its memory (-1: none does). */
static inline void copies_heal(const struct job *like, int nodes, int locals, int unit, int lost)
{
    char what[128];
    text_format(what, sizeof what, "shard %d, %d x %d, unit %d, node %d lost",
                (int)like->trial.config.store.shard, nodes, locals, unit, lost);
    struct trial calm = copies_calm(like, nodes, locals);
    copies_begin(nodes * locals);
    copies_lose(like, nodes, locals, 3, unit, lost >= 0 ? lost * locals : nodes * locals - 1,
                lost >= 0);
    copies_finish(like, nodes, locals, 3, &calm, what);
    copies_end(nodes * locals);
}

/* copies_resize — a rank ends at a unit of a step; then fewer nodes go on, or more, until a rank
 * ends again; then as many as at first. */
static inline void copies_resize(struct job like, int before, int then, int locals, int unit)
{
    const int most = (before > then ? before : then) * locals;
    char what[128];
    text_format(what, sizeof what, "shard %d, %d nodes, then %d, x %d, unit %d",
                (int)like.trial.config.store.shard, before, then, locals, unit);
    like.trial.config.shards = 12;
    like.ranks_min = (before < then ? before : then) * locals;
    struct trial calm = copies_calm(&like, before, locals);
    copies_begin(most);
    copies_lose(&like, before, locals, 2, unit, 0, false);
    if (then < before)
        copies_lose_node(then, locals);
    struct job again = like;
    again.leave_step = 4;
    again.leave_unit = unit;
    again.leave_rank = then * locals - 1;
    copies_run(&again, then, locals);
    assert_int_equal(copies_one[again.leave_rank].st, ST_RETRY);
    assert_in_range(copies_job[0].found_step, 1, 2);
    copies_finish(&like, before, locals, 4, &calm, what);
    copies_end(most);
}

#endif

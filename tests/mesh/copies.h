/* copies — for tests: ranks that train with copies of their state in peers' memory, end in the
 * middle of a step, and lose memory. */
#ifndef CONVOY_TESTS_COPIES_H
#define CONVOY_TESTS_COPIES_H

#include "mesh/trial.h"

#include <sys/mman.h>
#include <unistd.h>

#include "train/peer_copy_memory.h"
#include "train/peer_copy_resident.h"

struct job {
    struct trial trial; /* first: trial_take and trial_steps read it */
    int fd;
    uint64_t fingerprint;
    int leave_step, leave_unit, leave_rank; /* a rank ends there, before its copy goes on */
    int leave_after; /* leave_step is so many steps after the first one; -1: it is as given */
    int last_step;   /* the run is over after it */
    bool wants_found;
    int ranks_min;      /* of all runs on these memories; 0: as many as now */
    int64_t found_step; /* -1: none */
    struct checkpoint_progress progress;
    struct peer_copy_resident *resident;
    bool has_state; /* the step has the state after progress */
    struct peer_copy *copy;
    struct step *step;
    struct ranks_one *one;
};

static int copies_fd[RANKS_MAX];                             /* of each rank of the largest world */
static struct peer_copy_resident copies_resident[RANKS_MAX]; /* as copies_fd */
static int copies_residents_n;     /* of the last world: ranks that had the state; 0: from copies */
static bool copies_reside = true;  /* false: nothing stays in a rank's own memory */
static int copies_node[RANKS_MAX]; /* of a node of a world: which node of the largest it is */

static inline enum status copies_unit_done(void *arg, int unit)
{
    struct job *job = arg;
    if (job->progress.step == job->leave_step && unit == job->leave_unit &&
        job->one->rank == job->leave_rank)
        return FAIL(ST_RETRY, "this rank ends");
    return peer_copy_unit_done(job->copy, job->step, &job->progress, unit);
}

static inline void copies_stepped(const struct ranks_one *one, int step)
{
    struct job *job = one->arg;
    (void)step;
    job->progress.step++;
    job->progress.samples += 6;
}

/* copies_begin_step — with what resides, and as trainer_copy does. */
static inline enum status copies_begin_step(struct job *job, bool is_found)
{
    struct step_config *c = &job->trial.config;
    c->is_loaded = is_found;
    c->resident = peer_copy_resident_memory(job->copy);
    TRY(step_open(c, &job->step));
    TRY(peer_copy_resident_settle(job->copy, job->step, job->one->dev));
    job->has_state = peer_copy_resident_is_found(job->copy);
    return ST_OK;
}

/* copies_open — and what they find, as trainer_begin does. */
static inline enum status copies_open(struct job *job)
{
    struct step_config *c = &job->trial.config;
    struct peer_copy_config config = {
        .comm = job->one->comm, .fd = job->fd, .fingerprint = job->fingerprint};
    bool is_found;
    config.resident = job->resident;
    TRY(step_slice_elems_of(c, job->one->ranks, &config.slice_elems));
    TRY(step_slice_elems_of(c, job->ranks_min > 0 ? job->ranks_min : job->one->ranks,
                            &config.slot_elems));
    config.ranks_max = RANKS_MAX;
    TRY(peer_copy_open(&config, &job->copy));
    if (!job->copy)
        return FAIL(ST_BUG, "no copies");
    TRY(peer_copy_find(job->copy, job->one->dev, &is_found, &job->progress));
    job->found_step = is_found ? job->progress.step : -1;
    if (job->leave_after >= 0)
        job->leave_step = (int)job->progress.step + job->leave_after;
    c->unit_done = copies_unit_done;
    c->unit_done_arg = job;
    if (job->one->rank == 0)
        copies_residents_n = peer_copy_resident_count(job->copy);
    TRY(copies_begin_step(job, is_found));
    TRY(is_found ? peer_copy_restore(job->copy, job->step) : ST_OK);
    job->has_state = true;
    return ST_OK;
}

static inline enum status copies_train(struct job *job)
{
    struct trial *t = &job->trial;
    struct batch batch = {0};
    TRY(copies_open(job));
    t->elems = step_whole_table(job->step)->parameters;
    TRY(batch_init(&batch, FEED_TASK_LM, t->config.global_samples / job->one->ranks,
                   t->config.seq_tokens));
    t->first_step = (int)job->progress.step;
    t->steps = job->last_step - t->first_step;
    enum status st = trial_steps(job->one, t, job->step, &batch);
    batch_free(&batch);
    return st == ST_OK ? trial_take(job->one, t, job->step) : st;
}

static inline enum status copies_rank(struct ranks_one *one)
{
    struct job *job = one->arg;
    job->one = one;
    const int locals = comm_place(one->comm)->locals;
    const int at = copies_node[one->rank / locals] * locals + one->rank % locals;
    job->fd = copies_fd[at];
    job->resident = &copies_resident[at];
    job->trial.config.dev = one->dev;
    job->trial.config.comm = one->comm;
    job->trial.stepped = copies_stepped;
    enum status st = copies_train(job);
    struct status_saved saved;
    status_save(&saved);
    if (st == ST_PEER && job->has_state && copies_reside)
        peer_copy_resident_take(job->copy, job->step, &job->progress);
    if (st == ST_RETRY) /* the process has ended */
        peer_copy_resident_free(job->resident, one->dev);
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
/* copies_free_resident — memory of the CPU needs no device to be freed by. */
static inline void copies_free_resident(int rank)
{
    struct dev *dev = NULL;
    if (copies_resident[rank].memory.parts_n == 0)
        return;
    assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &dev), ST_OK);
    peer_copy_resident_free(&copies_resident[rank], dev);
    dev_close(dev);
}
static inline void copies_lose_node(int node, int locals)
{
    for (int local = 0; local < locals; local++) {
        assert_int_equal(ftruncate(copies_fd[node * locals + local], 0), 0);
        copies_free_resident(node * locals + local);
    }
}
static inline void copies_end(int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        close(copies_fd[rank]);
        copies_free_resident(rank);
    }
}

#endif

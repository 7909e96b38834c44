/* check — runs the stages of a check one after the other, collects the rows of each on rank 0 and
 * judges them there; see check.h. */
#include "check/check.h"

#include <stdlib.h>

#include "base/clock.h"
#include "check/check_judge.h"
#include "measure/measure_ranks.h"

#define SOAK_SHORT_MS 4000 /* approximate milliseconds of a soak of 0 ms */

struct run {
    const struct check_config *config;
    struct check_config inner;  /* config of the stages; on_progress gets their progress */
    struct check_rows own, all; /* rows of this rank; on rank 0: rows of all ranks, not judged */
    enum check_stage stage;
    double done, share; /* shares of the whole check: before this stage; of this stage */
};

/* One stage: its function, and its share of the budget with one rank, with one node and with
 * several nodes. A stage that needs other ranks handles the case of one rank itself. */
struct stage {
    enum check_stage stage;
    enum status (*run)(const struct check_config *config, int64_t budget_ms,
                       struct check_rows *rows);
    double alone, inside, across;
};
static enum status static_stage(const struct check_config *config, int64_t budget_ms,
                                struct check_rows *rows)
{
    if (!config->found) {
        check_static_run(config, budget_ms, rows);
        return ST_OK;
    }
    for (int i = 0; i < config->found->n; i++)
        check_row_add(rows, &config->found->row[i]);
    return ST_OK;
}

static const struct stage stages[] = {
    {CHECK_STAGE_AGREEMENT, check_agree_run, 0.01, 0.01, 0.01},
    {CHECK_STAGE_STATIC, static_stage, 0.04, 0.04, 0.04},
    {CHECK_STAGE_NODE, check_node_run, 0.90, 0.50, 0.30},
    {CHECK_STAGE_PAIRS, check_pairs_run, 0.02, 0.05, 0.35},
    {CHECK_STAGE_GROUPS, check_groups_run, 0.03, 0.40, 0.30},
};
#define STAGES_N (sizeof stages / sizeof *stages)

static double share_of(const struct stage *stage, const struct comm_place *place)
{
    return place->ranks == 1 ? stage->alone : place->nodes == 1 ? stage->inside : stage->across;
}

static enum status tell_progress(const struct check_config *config, enum check_stage stage,
                                 double done)
{
    return config->progress ? config->progress(config->arg, stage, done) : ST_OK;
}

/* on_progress — converts the progress of a stage to the progress of the whole check. */
static enum status on_progress(void *arg, enum check_stage stage, double done)
{
    const struct run *run = arg;
    done = done < 0 ? 0 : done < 1 ? done : 1;
    return tell_progress(run->config, stage, run->done + run->share * done);
}

/* ---- rows of all ranks ---- */

/* collect_rows — sends the rows that every rank has added in a stage to rank 0. */
static enum status collect_rows(struct run *run, const struct check_rows *added)
{
    struct text bytes = {.limit = CHECK_ROW_BYTES_MAX};
    struct measure_shared all = {0};
    enum status st = check_row_pack_all(added, &bytes);
    if (st == ST_OK)
        st = measure_ranks_share(run->config->comm, bytes.data, bytes.len, &all);
    for (int r = 0; r < run->config->place.ranks && st == ST_OK; r++)
        if (run->config->place.rank == 0 && all.n[r] > 0)
            st = check_row_unpack(all.all + r * all.stride, (size_t)all.n[r], &run->all);
    for (int i = 0; i < added->n && st == ST_OK; i++)
        check_row_add(&run->own, &added->row[i]);
    measure_ranks_share_free(&all);
    text_free(&bytes);
    return st;
}

/* judge_rows — on rank 0, returns the rows of all ranks so far, judged. out must be empty. */
static void judge_rows(const struct run *run, struct check_rows *out)
{
    for (int i = 0; i < run->all.n; i++)
        check_row_add(out, &run->all.row[i]);
    check_judge(out);
}

static enum status end_stage(struct run *run, enum check_stage stage, struct check_rows *added,
                             enum status st)
{
    if (st == ST_OK)
        st = collect_rows(run, added);
    check_row_free(added);
    const struct check_config *config = run->config;
    if (st == ST_OK && config->stage_ended) {
        /* The results so far, for a caller that may have to end early. */
        struct check_rows rows = {0};
        if (config->place.rank == 0)
            judge_rows(run, &rows);
        config->stage_ended(config->arg, stage, config->place.rank == 0 ? &rows : &run->own);
        check_row_free(&rows);
    }
    run->done += run->share;
    return st;
}

/* ---- stages ---- */

static bool has_soak(const struct check_config *config)
{
    return config->soak && (config->soak_ms > 0 || config->depth > CHECK_DEPTH_QUICK);
}

/* total_ms — returns the approximate duration of the whole check. */
static int64_t total_ms(const struct check_config *config)
{
    int64_t soak_ms = config->soak_ms > 0 ? config->soak_ms : SOAK_SHORT_MS;
    return config->budget_ms + (has_soak(config) ? soak_ms : 0);
}

static enum status run_soak(struct run *run)
{
    const struct check_config *config = run->config;
    struct check_rows added = {0};
    run->share = 1 - run->done;
    if (!has_soak(config))
        return ST_OK;
    TRY(tell_progress(config, CHECK_STAGE_SOAK, run->done));
    enum status st = config->soak(config->arg, &run->inner, config->soak_ms, &added);
    return end_stage(run, CHECK_STAGE_SOAK, &added, st);
}

/* ---- the end: points without a row, verdicts, distribution to all ranks ---- */

static const char *why_skipped(enum check_point point, const struct check_config *config)
{
    switch (point) {
    case CHECK_POINT_GRES:
        return "no Slurm job asked for GPUs here";
    case CHECK_POINT_SCHEDULING:
    case CHECK_POINT_QOS:
        return "only the scheduler controls it: compare a job of high priority with a job of low "
               "priority";
    case CHECK_POINT_DISTRIBUTION:
    case CHECK_POINT_CHECKPOINT:
    case CHECK_POINT_ONE_DEVICE:
    case CHECK_POINT_ONE_NODE:
    case CHECK_POINT_MANY_NODES:
    case CHECK_POINT_PARTITIONING:
        return has_soak(config)
                   ? "training ended before this check"
                   : "it needs training, which a quick check leaves out: set CHECK=standard";
    default:
        return config->place.ranks == 1 ? "there is one worker" : "this check was too short for it";
    }
}

/* judge_all — rank 0's work at the end. Returns the judged rows, also as bytes. */
static enum status judge_all(struct run *run, struct check_rows *out, struct text *bytes)
{
    /* Each of the eighteen points gets at least one row. */
    bool has[CHECK_POINT_N] = {false};
    for (int i = 0; i < run->all.n; i++)
        has[run->all.row[i].point] = true;
    for (int point = 0; point < CHECK_POINT_HOST; point++) {
        enum check_point p = (enum check_point)point;
        if (has[point])
            continue;
        struct check_row row =
            check_row_found(CHECK_STAGE_AGREEMENT, p, -1, check_row_point(p), CHECK_VERDICT_SKIPPED,
                            "%s", why_skipped(p, run->config));
        check_row_add(&run->all, &row);
    }
    judge_rows(run, out);
    if (run->config->compare)
        TRY(run->config->compare(run->config->arg, out));
    return check_row_pack_all(out, bytes);
}

/* broadcast_rows — sends the judged rows to every rank. */
static enum status broadcast_rows(struct run *run, struct check_rows *out)
{
    struct text bytes = {.limit = CHECK_ROW_BYTES_MAX};
    bool is_first = run->config->place.rank == 0;
    enum status st = is_first ? judge_all(run, out, &bytes) : ST_OK;
    if (st == ST_OK)
        st = measure_ranks_broadcast(run->config->comm, &bytes);
    if (st == ST_OK && !is_first)
        st = check_row_unpack(bytes.data, bytes.len, out);
    text_free(&bytes);
    return st;
}

static enum status run_all(struct run *run, struct check_rows *out)
{
    for (size_t i = 0; i < STAGES_N; i++) {
        const struct check_config *config = run->config;
        struct check_rows added = {0};
        run->share = share_of(&stages[i], &config->place) * (double)config->budget_ms /
                     (double)total_ms(config);
        TRY(tell_progress(config, stages[i].stage, run->done));
        enum status st = stages[i].run(
            &run->inner,
            (int64_t)((double)config->budget_ms * share_of(&stages[i], &config->place)), &added);
        TRY(end_stage(run, stages[i].stage, &added, st));
    }
    TRY(run_soak(run));
    return broadcast_rows(run, out);
}

enum status check_run(const struct check_config *config, struct check_rows *out)
{
    struct run run = {.config = config, .inner = *config};
    run.inner.progress = on_progress;
    run.inner.arg = &run;
    run.inner.stage_ended = NULL;
    enum status st = run_all(&run, out);
    check_row_free(&run.own);
    check_row_free(&run.all);
    return st;
}

/* trainer_sentinel — SENTINEL_EVERY: compares replicas before what is wrong spreads, or is kept in
 * a checkpoint (trainer_inside.h). */
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/sentinel_line.h"
#include "train/trainer_inside.h"

/* The wrong rank's message should reach node 0 first: it tells what to do. */
#define OTHERS_WAIT_MS 300

static const char *const parts[STEP_PARTS_MAX] = {"parameters", "first moments", "second moments"};

/* fail — the message of the rank that differs tells what to do with its node. */
static enum status fail(const struct trainer *t, const struct step_sentinel *found)
{
    const long long step = t->progress.step;
    const char *part = parts[found->part];
    if (found->rank < 0)
        return FAIL(ST_PEER,
                    "after step %lld the %s of %d workers differ (rank %d is one of them), and no "
                    "majority says which is wrong; memory or a processor is suspect: run `convoy "
                    "check` on all nodes",
                    step, part, found->replicas_n, found->first);
    if (found->rank != t->consensus.rank)
        clock_sleep_ms(OTHERS_WAIT_MS);
    if (found->rank != t->consensus.rank)
        return FAIL(ST_PEER,
                    "after step %lld the %s" SENTINEL_LINE_OF_RANK "%d" SENTINEL_LINE_DIFFER
                    "%d workers",
                    step, part, found->rank, found->replicas_n);
    return FAIL(ST_FAULT,
                "after step %lld the %s" SENTINEL_LINE_OF_RANK "%d" SENTINEL_LINE_DIFFER
                "%d workers: memory "
                "or a processor of this node is suspect; run `convoy check` there, and replace the "
                "node if this comes back",
                step, part, found->rank, found->replicas_n);
}

static bool is_on(const struct trainer *t)
{
    return t->config->sentinel_every > 0 && step_sentinel_compares(t->step);
}

static bool is_due(const struct trainer *t, bool before_save)
{
    const int64_t step = t->progress.step;
    return is_on(t) && t->step_compared != step &&
           (before_save || step % t->config->sentinel_every == 0);
}

static enum status compare(struct trainer *t)
{
    struct step_sentinel found;
    TRY(step_sentinel(t->step, &found));
    step_run_forget_sent(t->step);
    t->step_compared = t->progress.step;
    if (found.is_same)
        return ST_OK;
    /* copies of the steps since have gradients in them that the wrong rank made */
    peer_copy_clear(t->peer_copy);
    return fail(t, &found);
}

void trainer_sentinel_begin(const struct trainer *t)
{
    struct step_replica replica;
    if (t->config->sentinel_every == 0 || !step_sentinel_replica(t->step, &replica))
        return;
    LOG_DEBUG(SENTINEL_LINE_OTHERS "%d; " SENTINEL_LINE_ELEMS "%lld; " SENTINEL_LINE_ADDRESS
                                   "%llu; " SENTINEL_LINE_PROCESS "%lld",
              replica.others_n, (long long)replica.elems,
              (unsigned long long)(uintptr_t)replica.parameters, (long long)getpid());
}

/* The sums of the updates name a rank where two replicas have no majority, so they come first. */
enum status trainer_sentinel(struct trainer *t, bool before_save)
{
    if (before_save || is_due(t, false))
        TRY(trainer_update_sums(t));
    return is_due(t, before_save) ? compare(t) : ST_OK;
}

/* An exponent that flips makes numbers of all ranks infinite at once, or a spike. */
enum status trainer_sentinel_explain(struct trainer *t, enum status st)
{
    struct status_saved saved;
    if ((st != ST_NOT_FINITE && st != ST_SPIKE) || !is_on(t))
        return st;
    status_save(&saved);
    enum status found = compare(t);
    if (found != ST_OK)
        return found;
    status_restore(&saved);
    return st;
}

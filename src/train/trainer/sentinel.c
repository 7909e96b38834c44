/* trainer_sentinel — SENTINEL_EVERY: compares replicas before a wrong state spreads, or is kept in
 * a checkpoint, and virtual shards of the batch before an update (trainer/inside.h). */
#include "base/clock.h"
#include "base/log.h"
#include "train/feature/step_sentinel.h"
#include "train/feature/step_shard_check.h"
#include "train/feature/step_update_sums.h"
#include "train/trainer/inside.h"

/* The faulty rank's message should reach node 0 first: it contains the advice. */
#define OTHERS_WAIT_MS 300

/* ---- memory that changed by itself between two updates ---- */

static enum status end_with(const struct trainer *t, enum status st)
{
    if (st == ST_PEER && step_update_sums_changed(t->step).ranks_n > 0)
        clock_sleep_ms(OTHERS_WAIT_MS);
    return st;
}

/* verify_sums — Before a checkpoint is saved: fails on all ranks if the state of one changed, with
 * ST_FAULT there. */
static enum status verify_sums(struct trainer *t)
{
    enum status st = step_update_sums_verify(t->step);
    step_run_forget_sent(t->step);
    return end_with(t, st);
}

/* A generation that ends for another reason before the next update has not been checked: copies
 * that were made since then would bring the change back, to all ranks. Other ranks have no
 * information about it, so the node must stay: its memory has the mark that rules those copies
 * out. */
void trainer_sentinel_sums_end(struct trainer *t, enum status st)
{
    struct status_saved saved;
    if (status_group(st) != STATUS_GROUP_RETRY || !t->peer_copy || !t->step)
        return;
    status_save(&saved);
    if (step_update_sums_verify_own(t->step) != ST_OK)
        LOG_WARN("%s", status_message());
    status_restore(&saved);
}

/* ---- replicas, and virtual shards ---- */

static bool is_on(const struct trainer *t)
{
    return t->config->step.sentinel_every > 0 && step_sentinel_compares(t->step);
}

/* is_at — Returns true after each SENTINEL_EVERY-th step. */
static bool is_at(const struct trainer *t)
{
    return t->config->step.sentinel_every > 0 &&
           t->progress.step % t->config->step.sentinel_every == 0;
}

static bool is_due(const struct trainer *t, bool before_save)
{
    return is_on(t) && t->step_compared != t->progress.step && (before_save || is_at(t));
}

/* note_difference — Counts and publishes a difference immediately, because this generation ends. */
static void note_difference(struct trainer *t)
{
    t->numbers.differences++;
    trainer_publish(t, BOARD_PHASE_TRAINING);
}

static enum status compare_replicas(struct trainer *t)
{
    struct step_sentinel found;
    TRY(step_sentinel(t->step, &found));
    step_run_forget_sent(t->step);
    t->step_compared = t->progress.step;
    t->numbers.comparisons++;
    if (found.is_same)
        return ST_OK;
    note_difference(t);
    if (found.rank < 0)
        TRY(verify_sums(t)); /* a change since they were verified */
    /* copies of later steps contain gradients of the faulty rank */
    peer_copy_clear(t->peer_copy);
    /* Only the message of the faulty rank advises what to do with its node. */
    const long long step = t->progress.step;
    const char *array = step_array_names[found.array];
    if (found.rank < 0)
        return FAIL(ST_PEER,
                    "after step %lld the %s of %d workers differ (rank %d is one of them), and no "
                    "majority shows which is wrong; memory or a processor is suspect: run `convoy "
                    "check` on all nodes",
                    step, array, found.replicas_n, found.first);
    if (found.rank != t->consensus.rank)
        clock_sleep_ms(OTHERS_WAIT_MS);
    if (found.rank != t->consensus.rank)
        return FAIL(ST_PEER,
                    "after step %lld the %s of rank %d differ from those of most of %d workers",
                    step, array, found.rank, found.replicas_n);
    char suspect[STEP_CHECKSUMS_SUSPECT];
    return FAIL(ST_FAULT,
                "after step %lld the %s of rank %d differ from those of most of %d workers: memory "
                "or a processor of %s is suspect; run `convoy check` there, and replace it if this "
                "comes back",
                step, array, found.rank, found.replicas_n,
                step_checksums_suspect(step_core(t->step), suspect, sizeof suspect));
}

void trainer_sentinel_begin(struct trainer *t)
{
    struct step_replica replica;
    if (t->config->step.sentinel_every > 0 && t->numbers.comparisons < 0)
        t->numbers.comparisons = t->numbers.differences = 0;
    if (t->config->step.sentinel_every == 0 || !step_sentinel_replica(t->step, &replica))
        return;
    t->numbers.replica_elems = replica.elems;
    t->numbers.replica_is_on_device = dev_is_discrete(t->config->step.dev);
    t->numbers.replica_address = (uint64_t)(uintptr_t)replica.parameters;
    LOG_DEBUG("%lld parameters at address %llu of process %d are compared",
              (long long)replica.elems, (unsigned long long)t->numbers.replica_address,
              t->numbers.pid);
}

/* A parameter in the memory of a device. */
struct place {
    struct stream *stream;
    float *parameters;
    enum status st;
};

static bool read_elem(void *arg, int64_t elem, float *out)
{
    struct place *p = arg;
    p->st = dev_copy(p->stream, out, p->parameters + elem, sizeof *out);
    p->st = p->st == ST_OK ? dev_sync(p->stream) : p->st;
    return p->st == ST_OK;
}

/* is_between_saves — Returns true if a bit that is inverted now cannot reach a checkpoint: a change
 * in rank 0 after the comparison before a checkpoint, and before the copy that is written, would be
 * stored in it (decision 061). */
static bool is_between_saves(const struct trainer *t)
{
    const int64_t every = t->config->checkpoint_every;
    return every < 3 || (t->progress.step % every >= 1 && t->progress.step % every <= every - 2);
}

enum status trainer_sentinel_obey(struct trainer *t)
{
    struct board *board = t->config->board;
    const int worker_i = t->config->worker_i;
    const uint64_t choice = board_flip_ordered(board, worker_i);
    struct step_replica replica;
    if (choice == 0 || !is_between_saves(t) || !step_sentinel_replica(t->step, &replica))
        return ST_OK;
    TRY(step_drain(t->step));
    struct place place = {step_stream(t->step), replica.parameters, ST_OK};
    struct board_flip done = {.choice = choice, .step = t->progress.step};
    if (bit_flip_choose(choice, replica.elems, read_elem, &place, &done.flip)) {
        TRY(dev_copy(place.stream, place.parameters + done.flip.elem, &done.flip.after,
                     sizeof done.flip.after));
        TRY(dev_sync(place.stream));
    } else {
        TRY(place.st);
        done.flip.elem = -1;
    }
    done.at_ms = clock_ms();
    board_flip_done(board, worker_i, &done);
    return ST_OK;
}

/* A step before a checkpoint compares, too, so that no wrong result is saved. */
void trainer_sentinel_ask(const struct trainer *t)
{
    const int64_t every = t->config->step.sentinel_every, save_every = t->config->checkpoint_every,
                  step = t->progress.step + 1;
    if (every > 0 && (step % every == 0 || (save_every > 0 && step % save_every == 0)))
        step_shard_check_ask(t->step, 1 + step / every);
}

/* Inverts a bit in the first block, which every stage has; the same bit as FAULT=flip. */
void trainer_sentinel_flip(const struct trainer *t)
{
    const struct step_shard_flip flip = {.passes = STEP_SHARD_PASS_OWN, .unit = 1, .bit = 29};
    step_shard_check_flip(t->step, &flip);
}

/* is_wrong_result — Returns true if a step has failed because of a wrong result. If results of
 * earlier steps may be wrong, too, copies of the state in memory are cleared, so the job continues
 * from the checkpoint. */
static bool is_wrong_result(struct trainer *t, enum status st)
{
    const enum step_shard_found found = step_shard_check_found(t->step);
    if (found == STEP_SHARD_FOUND_NONE)
        return false;
    t->numbers.comparisons++;
    note_difference(t);
    t->is_state_right = found == STEP_SHARD_FOUND_ONCE;
    /* The sums of updates show which copies are older than a change. */
    if (!t->is_state_right && step_update_sums_changed(t->step).ranks_n == 0)
        peer_copy_clear(t->peer_copy);
    if (st != ST_FAULT)
        clock_sleep_ms(OTHERS_WAIT_MS);
    return true;
}

/* The sums of the updates identify a rank even if two replicas have no majority, so they come
 * first. Updates do not read frozen parameters, so these are verified also if no rank has the same
 * state. */
enum status trainer_sentinel(struct trainer *t, bool before_save)
{
    const bool has_frozen = step_frozen_table(t->step)->params_n > 0;
    if (before_save || is_due(t, false) || (has_frozen && is_at(t)))
        TRY(verify_sums(t));
    return is_due(t, before_save) ? compare_replicas(t) : ST_OK;
}

/* If an exponent flips, numbers of all ranks become infinite at once, or a spike: then the state is
 * checked. It is also checked if two groups differ without a majority: the parameters of one may
 * have changed before the update that would have found it. */
enum status trainer_sentinel_explain(struct trainer *t, enum status st)
{
    struct status_saved saved;
    const bool is_unknown = step_shard_check_found(t->step) == STEP_SHARD_FOUND_UNKNOWN;
    if (st != ST_NOT_FINITE && st != ST_SPIKE && !is_unknown) {
        (void)is_wrong_result(t, end_with(t, st));
        return st;
    }
    status_save(&saved);
    enum status found = verify_sums(t);
    const bool is_wrong = is_wrong_result(t, found != ST_OK ? found : st);
    if (found == ST_OK && !is_wrong && is_on(t))
        found = compare_replicas(t);
    if (found != ST_OK)
        return found;
    status_restore(&saved);
    return st;
}

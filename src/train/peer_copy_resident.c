/* peer_copy_resident — a state that stays in the memory of ranks which were not lost: what they
 * offer, and how the others get it; see peer_copy_resident.h.
 *
 * A rank that has the state gives it to one that lacks it, whole. So a rank that was started again
 * receives as many bytes as the state has, and the others nothing, where an all-gather of slices
 * would bring nearly all of it to each of them. */
#include "base/assert.h"
#include "train/peer_copy_inside.h"
#include "train/sentinel_line.h"

void peer_copy_resident_free(struct peer_copy_resident *resident, struct dev *dev)
{
    if (!resident)
        return;
    store_resident_free(&resident->memory, dev);
    resident->stamp = (struct peer_copy_stamp){0};
}

/* For another number of ranks it would have to be copied into memory beside it. New memory costs
 * more than the slices that copies bring. */
void peer_copy_resident_offer(const struct peer_copy *copy, struct peer_copy_stamp *out)
{
    const struct peer_copy_resident *resident = copy->config.resident;
    *out = (struct peer_copy_stamp){0};
    if (resident && store_resident_holds(&resident->memory) &&
        resident->fingerprint == copy->config.fingerprint &&
        resident->stamp.ranks == copy->place.ranks)
        *out = resident->stamp;
}

bool peer_copy_resident_is_found(const struct peer_copy *copy)
{
    return peer_copy_choice_resides(&copy->offers[copy->place.rank], &copy->choice);
}

int peer_copy_resident_count(const struct peer_copy *copy) { return copy->choice.residents_n; }

void peer_copy_resident_release(struct peer_copy *copy, struct dev *dev)
{
    if (!peer_copy_resident_is_found(copy))
        peer_copy_resident_free(copy->config.resident, dev);
}

struct store_resident *peer_copy_resident_memory(const struct peer_copy *copy)
{
    return peer_copy_resident_is_found(copy) ? &copy->config.resident->memory : NULL;
}

/* check — the bits of the step's state are those that the last update has left. */
static enum status check(const struct peer_copy *copy, struct step *step,
                         const struct peer_copy_resident *resident)
{
    uint32_t now[STEP_PARTS_MAX];
    if (!resident->has_sums || !step_update_sums_now(step, now))
        return ST_OK;
    for (int part = 0; part < step_parts(step); part++)
        if (now[part] != resident->sums[part])
            return FAIL(ST_FAULT,
                        "parameters or moments" SENTINEL_LINE_OF_RANK "%d" SENTINEL_LINE_CHANGED
                        "after the update of step %lld, while it waited for other ranks: memory or "
                        "a processor of this node is suspect; run `convoy check` there, and "
                        "replace the node if this comes back",
                        copy->place.rank, (long long)resident->stamp.step);
    return ST_OK;
}

enum status peer_copy_resident_settle(struct peer_copy *copy, struct step *step, struct dev *dev)
{
    struct peer_copy_resident *resident = copy->config.resident;
    if (!peer_copy_resident_is_found(copy))
        return ST_OK;
    enum status st = check(copy, step, resident);
    peer_copy_resident_free(resident, dev);
    return st;
}

void peer_copy_resident_take(struct peer_copy *copy, struct step *step,
                             const struct checkpoint_progress *progress)
{
    struct peer_copy_resident *to = copy ? copy->config.resident : NULL;
    if (!to || copy->is_state_bad || to->memory.parts_n > 0)
        return;
    to->has_sums = step_update_sums_written(step, to->sums);
    if (!step_resident_take(step, &to->memory))
        return;
    to->fingerprint = copy->config.fingerprint;
    to->stamp = (struct peer_copy_stamp){.history = copy->history,
                                         .step = progress->step,
                                         .rank = copy->place.rank,
                                         .is_complete = true,
                                         .ranks = copy->place.ranks,
                                         .progress = *progress};
}

/* ---- to the ranks that lack it ---- */

/* pass_part — one part of the state, from one rank to another; this is one of them. */
static enum status pass_part(struct peer_copy *copy, struct step *step, int part, int from, int to)
{
    int64_t elems;
    char *data = step_resident_whole(step, part, &elems).data;
    const int64_t bytes = elems * (int64_t)sizeof(float);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < PEER_COPY_MESSAGE_BYTES ? bytes - at : PEER_COPY_MESSAGE_BYTES;
        struct tensor piece = peer_copy_bytes_at(data + at);
        TRY(copy->place.rank == from ? comm_send(copy->config.comm, piece, n, to)
                                     : comm_recv(copy->config.comm, piece, n, from));
        peer_copy_memory_sum_add(&copy->memory, data + at, n);
        peer_copy_beat(copy);
    }
    return ST_OK;
}

/* pass_sum — both ranks have read the same bytes. */
static enum status pass_sum(struct peer_copy *copy, int from, int to)
{
    uint64_t sum = peer_copy_memory_sum_end(&copy->memory), theirs = sum;
    if (copy->place.rank == from)
        return comm_send(copy->config.comm, peer_copy_bytes_at(&sum), sizeof sum, to);
    TRY(comm_recv(copy->config.comm, peer_copy_bytes_at(&theirs), sizeof theirs, from));
    return theirs == sum ? ST_OK
                         : FAIL(ST_PEER, "the state of step %lld arrived damaged from rank %d",
                                (long long)copy->choice.step, from);
}

static enum status pass_state(struct peer_copy *copy, struct step *step, int from, int to)
{
    if (copy->place.rank != from && copy->place.rank != to)
        return ST_OK;
    peer_copy_memory_sum_begin(&copy->memory,
                               &(struct peer_copy_stamp){.history = copy->choice.history,
                                                         .step = copy->choice.step,
                                                         .progress = copy->choice.progress});
    for (int part = 0; part < step_parts(step); part++)
        TRY(pass_part(copy, step, part, from, to));
    return pass_sum(copy, from, to);
}

static bool has_state(const struct peer_copy *copy, int rank)
{
    return peer_copy_choice_resides(&copy->offers[rank], &copy->choice);
}

/* next_giver — the next rank after `rank`, in a ring, that has the state. */
static int next_giver(const struct peer_copy *copy, int rank)
{
    do {
        rank = (rank + 1) % copy->place.ranks;
    } while (!has_state(copy, rank));
    return rank;
}

/* Then each rank's slice is copied as after a step: a second loss is as the first. */
enum status peer_copy_resident_pass(struct peer_copy *copy, struct step *step)
{
    const int last_unit = step_own_table(step)->units_n - 1;
    int giver = -1;
    ASSERT(step_slice_has_all(step));
    for (int rank = 0; rank < copy->place.ranks; rank++) {
        if (has_state(copy, rank))
            continue;
        giver = next_giver(copy, giver);
        TRY(pass_state(copy, step, giver, rank));
    }
    return peer_copy_unit_done(copy, step, &copy->choice.progress, last_unit);
}

/* peer_copy_restore — sends slices to the ranks that need them, and makes them their state; see
 * peer_copy.h. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/peer_copy/inside.h"
#include "train/step/slice.h"

#define MESSAGE_BYTES ((int64_t)4 << 20) /* size of one message of a slice */
#define MESSAGE_ELEMS (MESSAGE_BYTES / (int64_t)sizeof(float))

static struct peer_copy_label label_of(const struct peer_copy *copy, int slot)
{
    struct peer_copy_offer offer;
    peer_copy_memory_offer(&copy->memory, &offer);
    return (struct peer_copy_label){offer.slot[slot],
                                    peer_copy_memory_checksum_of(&copy->memory, slot)};
}

static enum status send_slice(struct peer_copy *copy, int slot, int to)
{
    struct peer_copy_label label = label_of(copy, slot);
    char *data = peer_copy_memory_data(&copy->memory, slot);
    TRY(comm_send(copy->config.comm, peer_copy_bytes_at(&label), sizeof label, to));
    for (int64_t at = 0, n; at < label.stamp.bytes; at += n) {
        n = label.stamp.bytes - at;
        n = n < MESSAGE_BYTES ? n : MESSAGE_BYTES;
        TRY(comm_send(copy->config.comm, peer_copy_bytes_at(data + at), n, to));
        peer_copy_beat(copy);
    }
    return ST_OK;
}

static enum status fail_damaged(const struct peer_copy_label *label, int rank)
{
    return FAIL(ST_PEER, "the copy of rank %d's part of step %lld arrived damaged", rank,
                (long long)label->stamp.step);
}

enum status peer_copy_restore_accept(struct peer_copy *copy, int slot,
                                     const struct peer_copy_label *label, int rank)
{
    const void *data = peer_copy_memory_data(&copy->memory, slot);
    if (label->stamp.bytes != copy->slice_bytes[slot / PEER_COPY_BUFFERS] ||
        label->stamp.rank != rank ||
        peer_copy_memory_checksum(data, &label->stamp) != label->checksum)
        return fail_damaged(label, rank);
    peer_copy_memory_commit(&copy->memory, slot, &label->stamp, label->checksum);
    return ST_OK;
}

/* receive_slice — Receives the slice of a rank into the oldest slot of a kind of copy. */
static enum status receive_slice(struct peer_copy *copy, int kind, int rank, int from,
                                 int *slot_out)
{
    struct peer_copy_label label;
    const int slot = peer_copy_memory_oldest(&copy->memory, kind);
    peer_copy_memory_begin(&copy->memory, slot);
    /* A slice of at most a slot's size, as send_slice sends it. */
    TRY(comm_recv(copy->config.comm, peer_copy_bytes_at(&label), sizeof *&label, from));
    const int64_t bytes = label.stamp.bytes, room = peer_copy_memory_room(&copy->memory, slot);
    char *data = peer_copy_memory_data(&copy->memory, slot);
    if (bytes < 0 || bytes > room)
        return FAIL(ST_PEER, "rank %d sent a slice of %lld bytes, over %lld", from,
                    (long long)bytes, (long long)room);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < MESSAGE_BYTES ? bytes - at : MESSAGE_BYTES;
        TRY(comm_recv(copy->config.comm, peer_copy_bytes_at(data + at), n, from));
        peer_copy_beat(copy);
    }
    *slot_out = slot;
    return peer_copy_restore_accept(copy, slot, &label, rank);
}

/* replicate_slices — Sends every keeper the slice that it lacks. After that the state is on two
 * nodes again, and a second loss can be survived like the first. own_slot: slot of this rank's
 * slice. */
static enum status replicate_slices(struct peer_copy *copy, int own_slot)
{
    for (int rank = 0; rank < copy->place.ranks; rank++) {
        const int keeper = peer_copy_choice_keeper(&copy->config.world, rank);
        int slot = keeper < 0 ? 0
                              : peer_copy_choice_slot(&copy->offers[keeper], PEER_COPY_KEPT, rank,
                                                      copy->choice.ranks, copy->choice.history,
                                                      copy->choice.step);
        if (slot >= 0)
            continue;
        if (rank == copy->place.rank)
            TRY(send_slice(copy, own_slot, keeper));
        if (keeper == copy->place.rank)
            TRY(receive_slice(copy, PEER_COPY_KEPT, rank, rank, &slot));
    }
    return ST_OK;
}

/* ---- another number of ranks ---- */

/* share_label — Broadcasts the description of a slice's slot. bytes: expected size of the
 * slice. */
static enum status share_label(struct peer_copy *copy, int rank, int64_t bytes,
                               struct peer_copy_label *out)
{
    const struct peer_copy_chosen *chosen = &copy->chosen[rank];
    *out = (struct peer_copy_label){0};
    if (chosen->rank == copy->place.rank)
        *out = label_of(copy, chosen->slot);
    if (copy->place.ranks > 1)
        TRY(comm_broadcast(copy->config.comm, peer_copy_bytes_at(out), sizeof *out, chosen->rank));
    if (out->stamp.rank == rank && out->stamp.bytes == bytes)
        return ST_OK;
    return FAIL(ST_PEER,
                "rank %d sent rank %d's part with %lld bytes instead of rank %d's with %lld",
                chosen->rank, out->stamp.rank, (long long)out->stamp.bytes, rank, (long long)bytes);
}

/* pass_slice — The keeper sends a slice to all ranks, whose state it becomes; the other ranks
 * receive it in `buffer`. Damage is found only at the end: then the state is lost, and the
 * generation fails. */
static enum status pass_slice(struct peer_copy *copy, const struct state *slice, float *buffer)
{
    const struct peer_copy_chosen *chosen = &copy->chosen[slice->rank];
    const bool holds = chosen->rank == copy->place.rank;
    const int64_t each = state_describe(slice, 0, 0).elems,
                  elems = each * state_count(slice, false);
    struct peer_copy_label label;
    TRY(share_label(copy, slice->rank, elems * (int64_t)sizeof *buffer, &label));
    peer_copy_memory_sum_begin(&copy->memory, &label.stamp);
    for (int64_t at = 0, n; at < elems; at += n) {
        const int64_t left = each - at % each; /* elements left in the array */
        float *data =
            holds ? (float *)peer_copy_memory_data(&copy->memory, chosen->slot) + at : buffer;
        n = left < MESSAGE_ELEMS ? left : MESSAGE_ELEMS;
        if (copy->place.ranks > 1)
            TRY(comm_broadcast(copy->config.comm, peer_copy_bytes_at(data),
                               n * (int64_t)sizeof *data, chosen->rank));
        peer_copy_memory_sum_add(&copy->memory, data, n * (int64_t)sizeof *data);
        peer_copy_beat(copy);
        TRY(state_write(slice, (int)(at / each), at % each, n, data));
    }
    return peer_copy_memory_sum_end(&copy->memory) == label.checksum
               ? ST_OK
               : fail_damaged(&label, slice->rank);
}

/* restore_slice — All ranks write their own slices, array by array. */
static enum status restore_slice(struct peer_copy *copy, const struct step *step, int slot)
{
    const struct state slice = step_slice(step, copy->place.rank);
    const float *values = peer_copy_memory_data(&copy->memory, slot);
    for (int array = 0; array < state_count(&slice, false); array++) {
        const int64_t elems = state_describe(&slice, array, 0).elems;
        TRY(state_write(&slice, array, 0, elems, values));
        values += elems;
    }
    return ST_OK;
}

static enum status restore_state(struct peer_copy *copy, struct step *step)
{
    if (copy->choice.ranks != copy->place.ranks) {
        /* The slices of the previous ranks become, one after the other, the state of the present
         * ranks. */
        float *buffer = memory_new(MESSAGE_ELEMS, sizeof *buffer);
        enum status st = ST_OK;
        for (int rank = 0; rank < copy->choice.ranks && st == ST_OK; rank++) {
            const struct state slice = step_slice_other(step, copy->choice.ranks, rank);
            st = pass_slice(copy, &slice, buffer);
        }
        free(buffer);
        return st;
    }
    /* Every rank that lacks its slice receives it from its keeper. */
    int slot = copy->chosen[copy->place.rank].slot;
    for (int rank = 0; rank < copy->place.ranks; rank++) {
        const struct peer_copy_chosen *chosen = &copy->chosen[rank];
        if (chosen->rank == rank)
            continue;
        if (chosen->rank == copy->place.rank)
            TRY(send_slice(copy, chosen->slot, rank));
        if (rank == copy->place.rank)
            TRY(receive_slice(copy, PEER_COPY_OWN, rank, chosen->rank, &slot));
    }
    TRY(replicate_slices(copy, slot));
    return restore_slice(copy, step, slot);
}

enum status peer_copy_restore(struct peer_copy *copy, struct step *step)
{
    const int64_t begin_ms = clock_ms();
    ASSERT(copy->choice.is_found);
    const struct state slice = step_slice(step, copy->place.rank);
    const int64_t planned = copy->config.sizes.slice_elems[PEER_COPY_OWN],
                  elems = state_describe(&slice, 0, 0).elems * state_count(&slice, false);
    ASSERTF(elems == planned, "elems %lld, planned %lld", (long long)elems, (long long)planned);
    TRY(restore_state(copy, step));
    if (copy->place.rank == 0)
        LOG_INFO("state of step %lld restored from memory in %.2f s", (long long)copy->choice.step,
                 (double)(clock_ms() - begin_ms) / 1000);
    return ST_OK;
}

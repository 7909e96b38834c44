/* peer_copy_restore — brings slices to the ranks that need them, and makes them their state; see
 * peer_copy.h. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/peer_copy_inside.h"

#define MESSAGE_BYTES ((int64_t)4 << 20)

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

/* is_it — a slice that was received is what was sent, and rank's. */
static bool is_it(const void *data, const struct peer_copy_label *label, int rank)
{
    return label->stamp.rank == rank &&
           peer_copy_memory_checksum(data, &label->stamp) == label->checksum;
}

static enum status fail_damaged(const struct peer_copy_label *label, int rank)
{
    return FAIL(ST_PEER, "the copy of rank %d's part of step %lld arrived damaged", rank,
                (long long)label->stamp.step);
}

enum status peer_copy_restore_accept(struct peer_copy *copy, int slot,
                                     const struct peer_copy_label *label, int rank)
{
    if (label->stamp.bytes != copy->slice_bytes ||
        !is_it(peer_copy_memory_data(&copy->memory, slot), label, rank))
        return fail_damaged(label, rank);
    peer_copy_memory_commit(&copy->memory, slot, &label->stamp, label->checksum);
    return ST_OK;
}

/* receive — a slice of at most a slot's size, as send_slice sends it. */
static enum status receive(struct peer_copy *copy, char *data, int from,
                           struct peer_copy_label *label)
{
    TRY(comm_recv(copy->config.comm, peer_copy_bytes_at(label), sizeof *label, from));
    const int64_t bytes = label->stamp.bytes;
    if (bytes < 0 || bytes > copy->memory.slot_bytes)
        return FAIL(ST_PEER, "rank %d sent a slice of %lld bytes, over %lld", from,
                    (long long)bytes, (long long)copy->memory.slot_bytes);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < MESSAGE_BYTES ? bytes - at : MESSAGE_BYTES;
        TRY(comm_recv(copy->config.comm, peer_copy_bytes_at(data + at), n, from));
        peer_copy_beat(copy);
    }
    return ST_OK;
}

/* receive_slice — of a rank, into the oldest slot of a holding. */
static enum status receive_slice(struct peer_copy *copy, int holding, int rank, int from,
                                 int *slot_out)
{
    struct peer_copy_label label;
    const int slot = peer_copy_memory_oldest(&copy->memory, holding);
    peer_copy_memory_begin(&copy->memory, slot);
    TRY(receive(copy, peer_copy_memory_data(&copy->memory, slot), from, &label));
    *slot_out = slot;
    return peer_copy_restore_accept(copy, slot, &label, rank);
}

/* deliver — every rank that lacks its slice gets it from its holder. slot_out: this rank's. */
static enum status deliver(struct peer_copy *copy, int *slot_out)
{
    *slot_out = copy->holders[copy->place.rank].slot;
    for (int rank = 0; rank < copy->place.ranks; rank++) {
        const struct peer_copy_holder *holder = &copy->holders[rank];
        if (holder->rank == rank)
            continue;
        if (holder->rank == copy->place.rank)
            TRY(send_slice(copy, holder->slot, rank));
        if (rank == copy->place.rank)
            TRY(receive_slice(copy, PEER_COPY_OWN, rank, holder->rank, slot_out));
    }
    return ST_OK;
}

/* replicate — every keeper that lacks a slice gets it. From here on the state is on two nodes
 * again, and a second loss is as the first. own_slot: of this rank's slice. */
static enum status replicate(struct peer_copy *copy, int own_slot)
{
    for (int rank = 0; rank < copy->place.ranks; rank++) {
        const int keeper = peer_copy_choice_keeper(rank, copy->place.nodes, copy->place.locals);
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

/* bring — the slice of `rank` comes to rank 0, which gets where it lies there: in its memory, or in
 * buffer. */
static enum status bring(struct peer_copy *copy, int rank, char *buffer, const void **data_out)
{
    const struct peer_copy_holder *holder = &copy->holders[rank];
    struct peer_copy_label label;
    *data_out = buffer;
    if (copy->place.rank == 0 && holder->rank == 0)
        *data_out = peer_copy_memory_data(&copy->memory, holder->slot);
    else if (copy->place.rank == holder->rank)
        return send_slice(copy, holder->slot, 0);
    if (copy->place.rank != 0 || holder->rank == 0)
        return ST_OK;
    TRY(receive(copy, buffer, holder->rank, &label));
    return is_it(buffer, &label, rank) ? ST_OK : fail_damaged(&label, rank);
}

/* write_slice — on all ranks; data: on rank 0. */
static enum status write_slice(const struct peer_copy *copy, struct step *step, int rank,
                               const void *data)
{
    if (copy->place.rank != 0)
        return step_state_serve(step);
    enum status st = step_slice_write(step, copy->choice.ranks, rank, data);
    return copy->place.ranks > 1 ? step_state_end(step, st) : st;
}

/* resize — the slices of the ranks before become the state of other ranks. */
static enum status resize(struct peer_copy *copy, struct step *step)
{
    char *buffer = copy->place.rank == 0 ? malloc((size_t)copy->memory.slot_bytes) : NULL;
    enum status st = ST_OK;
    if (copy->place.rank == 0 && !buffer)
        return FAIL(ST_RETRY, "out of memory: a slice of %lld bytes",
                    (long long)copy->memory.slot_bytes);
    for (int rank = 0; rank < copy->choice.ranks && st == ST_OK; rank++) {
        const void *data;
        st = bring(copy, rank, buffer, &data);
        if (st == ST_OK)
            st = write_slice(copy, step, rank, data);
        peer_copy_beat(copy);
    }
    free(buffer);
    return st;
}

static enum status restore(struct peer_copy *copy, struct step *step)
{
    int slot;
    if (copy->choice.ranks != copy->place.ranks)
        return resize(copy, step);
    TRY(deliver(copy, &slot));
    TRY(replicate(copy, slot));
    return step_slice_set(step, peer_copy_memory_data(&copy->memory, slot));
}

enum status peer_copy_restore(struct peer_copy *copy, struct step *step)
{
    const int64_t begin_ms = clock_ms();
    ASSERT(copy->choice.is_found);
    ASSERTF(step_slice_elems(step) == copy->config.slice_elems, "elems %lld, planned %lld",
            (long long)step_slice_elems(step), (long long)copy->config.slice_elems);
    TRY(restore(copy, step));
    if (copy->place.rank == 0)
        LOG_INFO("state of step %lld restored from memory in %.2f s", (long long)copy->choice.step,
                 (double)(clock_ms() - begin_ms) / 1000);
    return ST_OK;
}

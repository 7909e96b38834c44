/* peer_copy_exchange — copies this rank's slice to its own memory and to its keeper's; see
 * peer_copy/inside.h.
 *
 * If a rank holds all of a part's state, it makes its copy for another rank of that part from its
 * own memory. Other slices are sent in jobs of the comm's queue (comm_job_begin), and no cycle of
 * ranks may wait for each other in their queues:
 * - If sender and receiver are of one stage, one piece is sent with each unit of the backward pass,
 *   after the reduction of its gradient: these ranks queue the same calls in the same order, and
 *   the reductions need that already.
 * - If any rank's keeper may be of another stage, all pieces are sent at the end of the step's
 *   passes. Stages queue their messages in orders of their own. After the last of these messages,
 *   and before the next call of all ranks, the sums of the norm, the queues contain only the
 *   pieces.
 * - In a pair, a ring or a longer cycle, one rank sends first (exchange_bytes). */
#include "train/peer_copy/inside.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/step/slice.h"
#include "comm/core/part.h"

/* write_slice — Writes a slice from this rank's memory to a slot, run by run. */
static void write_slice(struct peer_copy_memory *memory, int slot, const struct state *slice)
{
    struct state_part run;
    for (int part = 0; part < state_count(slice, false); part++)
        for (int64_t at = 0; at < (run = state_describe(slice, part, at)).elems;
             at += run.here_elems) {
            ASSERTF(run.here_elems > 0, "element %lld of part %d", (long long)at, part);
            peer_copy_memory_write(memory, slot, run.here,
                                   run.here_elems * (int64_t)sizeof *run.here);
        }
}

/* copy_slice — Copies a slice from this rank's memory to a slot: its own slice or source's. */
static void copy_slice(struct peer_copy *copy, const struct step *step, int rank,
                       const struct checkpoint_progress *progress, int slot,
                       struct peer_copy_label *out)
{
    const struct state slice = step_slice(step, rank);
    *out = (struct peer_copy_label){.stamp = {.history = copy->history,
                                              .step = progress->step,
                                              .rank = rank,
                                              .ranks = copy->place.ranks,
                                              .bytes = copy->slice_bytes[slot / PEER_COPY_BUFFERS],
                                              .progress = *progress}};
    peer_copy_memory_write_begin(&copy->memory, slot, &out->stamp);
    write_slice(&copy->memory, slot, &slice);
    peer_copy_memory_write_end(&copy->memory, slot, &out->stamp);
    out->checksum = peer_copy_memory_checksum_of(&copy->memory, slot);
}

static enum status send_to_keeper(struct peer_copy *copy, void *mine, int64_t bytes)
{
    return copy->sends && bytes > 0
               ? comm_send(copy->config.comm, peer_copy_bytes_at(mine), bytes, copy->keeper)
               : ST_OK;
}

/* exchange_bytes — Sends bytes to this rank's keeper, and receives bytes from its source. */
static enum status exchange_bytes(struct peer_copy *copy, void *mine, int64_t mine_bytes,
                                  void *theirs, int64_t theirs_bytes)
{
    const bool sends_first = copy->place.rank < copy->keeper && copy->place.rank < copy->source;
    if (sends_first)
        TRY(send_to_keeper(copy, mine, mine_bytes));
    if (copy->receives && theirs_bytes > 0)
        TRY(comm_recv(copy->config.comm, peer_copy_bytes_at(theirs), theirs_bytes, copy->source));
    return sends_first ? ST_OK : send_to_keeper(copy, mine, mine_bytes);
}

/* accept_kept — Commits the copy that was received. A damaged one stays incomplete: the older one
 * counts. */
static void accept_kept(struct peer_copy *copy)
{
    if (peer_copy_restore_accept(copy, copy->kept_slot, &copy->kept, copy->source) == ST_OK)
        return;
    LOG_WARN("%s; the older one is kept", status_message());
    status_clear();
}

/* move_piece — A job: moves one piece. Pieces of a slice are as even as multiples of PART_ALIGN
 * bytes allow. */
static enum status move_piece(void *arg)
{
    const struct peer_copy_piece *piece = arg;
    struct peer_copy *copy = piece->copy;
    const int64_t begin_ns = clock_ns();
    const int n = copy->pieces_n;
    char *mine = peer_copy_memory_data(&copy->memory, copy->own_slot),
         *theirs = peer_copy_memory_data(&copy->memory, copy->kept_slot);
    const struct part_extent to = part_extent(copy->slice_bytes[PEER_COPY_OWN], n, piece->i),
                             from = part_extent(copy->slice_bytes[PEER_COPY_KEPT], n, piece->i);
    if (piece->i == 0)
        TRY(exchange_bytes(copy, &copy->own, sizeof copy->own, &copy->kept, sizeof copy->kept));
    TRY(exchange_bytes(copy, mine + to.first, to.elems, theirs + from.first, from.elems));
    if (piece->i == n - 1 && copy->receives)
        accept_kept(copy);
    atomic_fetch_add_explicit(&copy->moved_ns, clock_ns() - begin_ns, memory_order_relaxed);
    return ST_OK;
}

/* is_sent — Returns true if the slice of a rank must be sent to its keeper. That is not so if both
 * ranks are of one part and each holds all of it. */
static bool is_sent(const struct peer_copy *copy, const struct step *step, int rank, int keeper)
{
    return rank >= 0 && keeper >= 0 &&
           !(step_slice_has_all(step) &&
             peer_copy_choice_is_same_part(&copy->config.world, rank, keeper));
}

bool peer_copy_exchange_travels(const struct peer_copy *copy, const struct step *step)
{
    return copy->source >= 0 &&
           !(step_slice_has_all(step) && peer_copy_choice_is_within(&copy->config.world));
}

void peer_copy_exchange_begin(struct peer_copy *copy, const struct step *step,
                              const struct checkpoint_progress *progress, int pieces_n)
{
    ASSERTF(copy->begun_n == 0, "%d pieces are in progress", copy->begun_n);
    atomic_store_explicit(&copy->moved_ns, 0, memory_order_relaxed);
    copy->sends = is_sent(copy, step, copy->place.rank, copy->keeper);
    copy->receives = is_sent(copy, step, copy->source, copy->place.rank);
    /* This rank's own slice and, if it has it, the slice that it keeps. */
    copy->own_slot = peer_copy_memory_oldest(&copy->memory, PEER_COPY_OWN);
    copy->kept_slot = peer_copy_memory_oldest(&copy->memory, PEER_COPY_KEPT);
    copy_slice(copy, step, copy->place.rank, progress, copy->own_slot, &copy->own);
    if (copy->receives)
        peer_copy_memory_begin(&copy->memory, copy->kept_slot);
    else if (copy->source >= 0)
        copy_slice(copy, step, copy->source, progress, copy->kept_slot, &copy->kept);
    int n = copy->sends || copy->receives ? pieces_n : 0;
    if (copy->pieces_n != n) {
        free(copy->pieces);
        copy->pieces = memory_new((size_t)n, sizeof *copy->pieces);
        copy->pieces_n = n;
    }
}

enum status peer_copy_exchange_piece(struct peer_copy *copy)
{
    if (copy->begun_n == copy->pieces_n)
        return ST_OK;
    struct peer_copy_piece *piece = &copy->pieces[copy->begun_n];
    *piece = (struct peer_copy_piece){.copy = copy, .i = copy->begun_n};
    TRY(comm_job_begin(copy->config.comm, move_piece, piece, &piece->ticket));
    piece->is_begun = true;
    copy->begun_n++;
    return ST_OK;
}

enum status peer_copy_exchange_finish(struct peer_copy *copy)
{
    enum status st = ST_OK;
    for (int i = 0; i < copy->begun_n; i++) {
        enum status one =
            copy->pieces[i].is_begun ? comm_wait(copy->config.comm, copy->pieces[i].ticket) : ST_OK;
        copy->pieces[i].is_begun = false;
        st = st == ST_OK ? one : st;
    }
    copy->begun_n = 0;
    return st;
}

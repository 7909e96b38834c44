/* peer_copy_exchange — copies this rank's slice to its own memory and to its keeper's; see
 * peer_copy/inside.h.
 *
 * If a rank holds all state of a model shard, it makes its copy for another rank of that shard from
 * its own memory. Other slices are sent in jobs of the comm's queue (comm_job_begin), and no cycle
 * of ranks may wait for each other in their queues:
 * - If sender and receiver are of one stage, one chunk is sent with each unit of the backward pass,
 *   after the reduction of its gradient: these ranks queue the same calls in the same order, and
 *   the reductions need that already.
 * - If any rank's keeper may be of another stage, all chunks are sent at the end of the step's
 *   passes. Stages queue their messages in orders of their own. After the last of these messages,
 *   and before the next call of all ranks, the sums of the norm, the queues contain only the
 *   chunks.
 * - If the queue has nothing but copies (comm_host), all chunks begin at the first unit.
 * - In a pair, a ring or a longer cycle, one rank sends first (exchange_bytes).
 *
 * A rank overwrites its older copy only when the newer ones of all ranks are complete. The sums of
 * the norm ensure it if they follow the chunks in one queue; else the last job waits for all
 * ranks. */
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
    struct state_array run;
    for (int array = 0; array < state_count(slice, false); array++)
        for (int64_t at = 0; at < (run = state_describe(slice, array, at)).elems;
             at += run.here_elems) {
            ASSERTF(run.here_elems > 0, "element %lld of array %d", (long long)at, array);
            peer_copy_memory_write(memory, slot, run.here,
                                   run.here_elems * (int64_t)sizeof *run.here);
        }
}

/* copy_slice — Copies a slice from this rank's memory to a slot: its own slice or kept_rank's. */
static enum status copy_slice(struct peer_copy *copy, const struct step *step, int rank,
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
    if (copy->stream)
        return peer_copy_device_read(copy, &slice, slot);
    peer_copy_memory_write_begin(&copy->memory, slot, &out->stamp);
    write_slice(&copy->memory, slot, &slice);
    peer_copy_memory_write_end(&copy->memory, slot, &out->stamp);
    out->checksum = peer_copy_memory_checksum_of(&copy->memory, slot);
    return ST_OK;
}

static enum status send_to_keeper(struct peer_copy *copy, void *mine, int64_t bytes)
{
    return copy->sends && bytes > 0
               ? comm_send(copy->config.comm, peer_copy_bytes_at(mine), bytes, copy->keeper)
               : ST_OK;
}

/* exchange_bytes — Sends bytes to this rank's keeper, and receives bytes from kept_rank. */
static enum status exchange_bytes(struct peer_copy *copy, void *mine, int64_t mine_bytes,
                                  void *theirs, int64_t theirs_bytes)
{
    const bool sends_first = copy->place.rank < copy->keeper && copy->place.rank < copy->kept_rank;
    if (sends_first)
        TRY(send_to_keeper(copy, mine, mine_bytes));
    if (copy->receives && theirs_bytes > 0)
        TRY(comm_recv(copy->config.comm, peer_copy_bytes_at(theirs), theirs_bytes,
                      copy->kept_rank));
    return sends_first ? ST_OK : send_to_keeper(copy, mine, mine_bytes);
}

/* accept_kept — Commits the copy that was received. A damaged one stays incomplete: the older one
 * counts. */
static void accept_kept(struct peer_copy *copy)
{
    if (peer_copy_restore_accept(copy, copy->kept_slot, &copy->kept, copy->kept_rank) == ST_OK)
        return;
    LOG_WARN("%s; the older one is kept", status_message());
    status_clear();
}

/* move_chunk — A job: moves one chunk. Chunks of a slice are as even as multiples of PART_ALIGN
 * bytes allow. */
static enum status move_chunk(void *arg)
{
    const struct peer_copy_chunk *chunk = arg;
    struct peer_copy *copy = chunk->copy;
    const bool is_read = copy->stream && chunk->i == 0; /* begun when the copy was */
    if (is_read)
        TRY(peer_copy_device_await(copy));
    const int64_t begin_ns = clock_ns();
    const int n = copy->chunks_n;
    char *mine = peer_copy_memory_data(&copy->memory, copy->own_slot),
         *theirs = peer_copy_memory_data(&copy->memory, copy->kept_slot);
    const struct part_extent to = part_extent(copy->slice_bytes[PEER_COPY_OWN], n, chunk->i),
                             from = part_extent(copy->slice_bytes[PEER_COPY_KEPT], n, chunk->i);
    if (is_read)
        peer_copy_device_commit(copy);
    if (chunk->i == 0)
        TRY(exchange_bytes(copy, &copy->own, sizeof copy->own, &copy->kept, sizeof copy->kept));
    TRY(exchange_bytes(copy, mine + to.first, to.elems, theirs + from.first, from.elems));
    if (chunk->i == n - 1 && copy->receives)
        accept_kept(copy);
    const int64_t end_ns = clock_ns();
    atomic_fetch_add_explicit(&copy->moved_ns, end_ns - begin_ns, memory_order_relaxed);
    if (chunk->i < n - 1)
        return ST_OK;
    atomic_store_explicit(&copy->travel_ns, end_ns - copy->begin_ns, memory_order_relaxed);
    if (peer_copy_has_own_queue(copy))
        TRY(comm_barrier(copy->config.comm));
    atomic_store_explicit(&copy->complete_step, copy->own.stamp.step, memory_order_relaxed);
    return ST_OK;
}

/* is_sent — Returns true if the slice of a rank must be sent to its keeper. That is not so if both
 * ranks have one model shard and each holds all of it. */
static bool is_sent(const struct peer_copy *copy, const struct step *step, int rank, int keeper)
{
    return rank >= 0 && keeper >= 0 &&
           !(step_slice_has_all(step) &&
             peer_copy_choice_is_same_shard(&copy->config.world, rank, keeper));
}

bool peer_copy_exchange_travels(const struct peer_copy *copy, const struct step *step)
{
    return copy->kept_rank >= 0 &&
           !(step_slice_has_all(step) && peer_copy_choice_is_within(&copy->config.world));
}

enum status peer_copy_exchange_begin(struct peer_copy *copy, const struct step *step,
                                     const struct checkpoint_progress *progress, int chunks_n)
{
    ASSERTF(copy->begun_n == 0, "%d chunks are in progress", copy->begun_n);
    atomic_store_explicit(&copy->moved_ns, 0, memory_order_relaxed);
    copy->sends = is_sent(copy, step, copy->place.rank, copy->keeper);
    copy->receives = is_sent(copy, step, copy->kept_rank, copy->place.rank);
    /* This rank's own slice and, if it has it, the slice that it keeps. */
    copy->own_slot = peer_copy_memory_oldest(&copy->memory, PEER_COPY_OWN);
    copy->kept_slot = peer_copy_memory_oldest(&copy->memory, PEER_COPY_KEPT);
    if (copy->stream)
        TRY(peer_copy_device_begin(copy, step));
    TRY(copy_slice(copy, step, copy->place.rank, progress, copy->own_slot, &copy->own));
    if (copy->receives)
        peer_copy_memory_begin(&copy->memory, copy->kept_slot);
    else if (copy->kept_rank >= 0)
        TRY(copy_slice(copy, step, copy->kept_rank, progress, copy->kept_slot, &copy->kept));
    if (copy->stream)
        TRY(peer_copy_device_end(copy));
    /* Without messages, a job still commits the slices that a GPU sends. */
    const int n = copy->sends || copy->receives ? chunks_n : copy->stream != NULL;
    if (copy->chunks_n != n) {
        free(copy->chunks);
        copy->chunks = memory_new((size_t)n, sizeof *copy->chunks);
        copy->chunks_n = n;
    }
    if (n == 0)
        atomic_store_explicit(&copy->complete_step, progress->step, memory_order_relaxed);
    return ST_OK;
}

enum status peer_copy_exchange_chunk(struct peer_copy *copy)
{
    if (copy->begun_n == copy->chunks_n)
        return ST_OK;
    struct peer_copy_chunk *chunk = &copy->chunks[copy->begun_n];
    *chunk = (struct peer_copy_chunk){.copy = copy, .i = copy->begun_n};
    TRY(comm_job_begin(copy->config.comm, move_chunk, chunk, &chunk->ticket));
    chunk->is_begun = true;
    copy->begun_n++;
    return ST_OK;
}

enum status peer_copy_exchange_finish(struct peer_copy *copy)
{
    enum status st = ST_OK;
    for (int i = 0; i < copy->begun_n; i++) {
        enum status one =
            copy->chunks[i].is_begun ? comm_wait(copy->config.comm, copy->chunks[i].ticket) : ST_OK;
        copy->chunks[i].is_begun = false;
        st = st == ST_OK ? one : st;
    }
    copy->begun_n = 0;
    return st;
}

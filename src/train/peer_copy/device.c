/* peer_copy_device — slices leave the memory of a GPU for the page-locked memory of copies; see
 * peer_copy/inside.h.
 *
 * A stream of its own reads them while the step goes on:
 *   1. It starts after the work that the step's stream has when the copy begins. That work contains
 *      the whole update of the previous step.
 *   2. The step's stream waits for it at the end of the passes, before the update of this step
 *      writes the same memory. So no copy is torn, whether the host or the device decides.
 *   3. A job waits for the event after the reads, computes the checksums and commits the slots.
 *
 * If a collective of the step has failed, NCCL has ended it on the stream, and the state that was
 * read may be wrong. The step's comm has recorded the failure by then, so the job checks it after
 * the event and leaves the slots incomplete. */
#include "train/peer_copy/inside.h"

#include "base/assert.h"
#include "base/clock.h"
#include "train/step/slice.h"

#define POLL_US 200

enum status peer_copy_device_open(struct peer_copy *copy)
{
    TRY(dev_pin_mapping(copy->config.dev, copy->memory.head, (size_t)copy->memory.bytes));
    copy->is_pinned = true;
    return dev_stream_open(copy->config.dev, &copy->stream);
}

void peer_copy_device_close(struct peer_copy *copy)
{
    dev_stream_close(copy->stream);
    dev_event_free(copy->are_read);
    if (copy->is_pinned)
        dev_unpin(copy->config.dev, copy->memory.head);
    copy->stream = NULL;
    copy->are_read = NULL;
    copy->is_pinned = false;
}

enum status peer_copy_device_begin(struct peer_copy *copy, const struct step *step)
{
    return dev_stream_wait_stream(copy->stream, step_stream(step));
}

enum status peer_copy_device_read(struct peer_copy *copy, const struct state *slice, int slot)
{
    char *to = peer_copy_memory_data(&copy->memory, slot);
    struct state_array run;
    peer_copy_memory_begin(&copy->memory, slot);
    for (int array = 0; array < state_count(slice, false); array++)
        for (int64_t at = 0; at < (run = state_describe(slice, array, at)).elems;
             at += run.here_elems) {
            ASSERTF(run.here_elems > 0, "element %lld of array %d", (long long)at, array);
            const int64_t bytes = run.here_elems * (int64_t)sizeof *run.here;
            TRY(dev_copy(copy->stream, to, run.here, (size_t)bytes));
            to += bytes;
        }
    return ST_OK;
}

enum status peer_copy_device_end(struct peer_copy *copy)
{
    return dev_event_record(copy->stream, &copy->are_read);
}

enum status peer_copy_device_wait(struct peer_copy *copy, const struct step *step)
{
    return dev_stream_wait(step_stream(step), copy->are_read);
}

/* commit_slot — Computes the checksum of a slot that was read, and commits it. */
static void commit_slot(struct peer_copy *copy, int slot, struct peer_copy_label *label)
{
    label->checksum =
        peer_copy_memory_checksum(peer_copy_memory_data(&copy->memory, slot), &label->stamp);
    peer_copy_memory_commit(&copy->memory, slot, &label->stamp, label->checksum);
}

enum status peer_copy_device_await(struct peer_copy *copy)
{
    TRY(dev_make_current(copy->config.dev));
    for (bool is_read = false; !is_read;) {
        TRY(dev_event_query(copy->are_read, &is_read));
        if (!is_read)
            clock_sleep_us(POLL_US);
    }
    return comm_check(copy->config.step_comm);
}

void peer_copy_device_commit(struct peer_copy *copy)
{
    commit_slot(copy, copy->own_slot, &copy->own);
    if (copy->kept_rank >= 0 && !copy->receives)
        commit_slot(copy, copy->kept_slot, &copy->kept);
}

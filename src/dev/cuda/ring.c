/* dev_cuda_ring — copies between pageable host memory and the GPU through a ring of pinned slots.
 * So the host need not wait for the device, and a source may be reused immediately. Must not know
 * the meaning of the data. */
#include "dev/cuda/internal.h"

#include <string.h>

#include "base/assert.h"

#define RING_ALIGN ((size_t)64) /* alignment of a copy's first byte in its slot */

enum status dev_cuda_ring_open(struct pinned_ring *ring)
{
    void *pinned = NULL;
    size_t bytes = RING_SLOTS * RING_SLOT_BYTES + sizeof *ring->reached;
    TRY(dev_cuda_error_pin(dev_runtime->HostAlloc(&pinned, bytes, GPU_HOST_DEFAULT), bytes));
    ring->pinned = pinned;
    ring->reached = (uint64_t *)(void *)(ring->pinned + RING_SLOTS * RING_SLOT_BYTES);
    *ring->reached = 0;
    for (int i = 0; i < RING_SLOTS; i++)
        CUDA_CHECK(dev_runtime->EventCreateWithFlags(&ring->slot[i].done, GPU_EVENT_NO_TIMING));
    return ST_OK;
}

void dev_cuda_ring_close(struct pinned_ring *ring)
{
    for (int i = 0; i < RING_SLOTS; i++)
        if (ring->slot[i].done)
            (void)dev_runtime->EventDestroy(ring->slot[i].done);
    if (ring->pinned)
        (void)dev_runtime->FreeHost(ring->pinned);
    *ring = (struct pinned_ring){0};
}

static char *slot_data(const struct pinned_ring *ring, int i)
{
    return ring->pinned + (size_t)i * RING_SLOT_BYTES;
}

/* Waits for one slot, and copies its data to their destination. */
static enum status finish_slot(struct pinned_ring *ring, int i)
{
    struct ring_slot *slot = &ring->slot[i];
    if (!slot->is_busy)
        return ST_OK;
    slot->is_busy = false;
    /* The host waits only if it must: most slots are done long before they are used again. */
    gpu_event event = slot->done;
    gpu_error error = dev_runtime->EventQuery(event);
    if (error == GPU_ERROR_NOT_READY) {
        /* not an error, but the next launch would report it as its own */
        (void)dev_runtime->GetLastError();
        error = dev_runtime->EventSynchronize(event);
    }
    TRY(error == GPU_SUCCESS ? ST_OK : dev_cuda_error_fail(error, "waiting for a copy"));
    if (slot->dst)
        memcpy(slot->dst, slot_data(ring, i), slot->bytes);
    slot->dst = NULL;
    return ST_OK;
}

enum status dev_cuda_ring_drain(struct pinned_ring *ring)
{
    for (int i = 0; i < RING_SLOTS; i++)
        TRY(finish_slot(ring, (ring->next + i) % RING_SLOTS)); /* the oldest first */
    return ST_OK;
}

/* Finds an idle slot; *out: its number. */
static enum status acquire_slot(struct pinned_ring *ring, int *out)
{
    *out = ring->next;
    ring->next = (ring->next + 1) % RING_SLOTS;
    return finish_slot(ring, *out);
}

static enum status send_off(struct pinned_ring *ring, int i, gpu_stream stream, char *dst,
                            size_t bytes)
{
    ring->slot[i].dst = dst;
    ring->slot[i].bytes = bytes;
    ring->slot[i].is_busy = true;
    CUDA_CHECK(dev_runtime->EventRecord(ring->slot[i].done, stream));
    return ST_OK;
}

/* Finishes the slots that still hold bytes for [at, at + bytes) of the host, before these are
 * read. */
static enum status finish_overlapping(struct pinned_ring *ring, const char *at, size_t bytes)
{
    for (int k = 0; k < RING_SLOTS; k++) {
        int i = (ring->next + k) % RING_SLOTS;
        const struct ring_slot *slot = &ring->slot[i];
        if (slot->is_busy && slot->dst && slot->dst < at + bytes && at < slot->dst + slot->bytes)
            TRY(finish_slot(ring, i));
    }
    return ST_OK;
}

/* Finds space for n bytes to the device: after the data of the newest slot, so that many small
 * copies do not use up the ring; else a new slot. *at_out: the offset in the slot. */
static enum status find_space(struct pinned_ring *ring, size_t n, int *out, size_t *at_out)
{
    int newest = (ring->next + RING_SLOTS - 1) % RING_SLOTS;
    const struct ring_slot *slot = &ring->slot[newest];
    size_t used = (slot->bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
    *out = newest;
    *at_out = used;
    if (slot->is_busy && !slot->dst && used + n <= RING_SLOT_BYTES)
        return ST_OK;
    *at_out = 0;
    return acquire_slot(ring, out);
}

enum status dev_cuda_ring_in(struct pinned_ring *ring, gpu_stream stream, void *dst,
                             const void *src, size_t bytes)
{
    TRY(finish_overlapping(ring, src, bytes));
    for (size_t done = 0; done < bytes; done += RING_SLOT_BYTES) {
        int i;
        size_t at, n = bytes - done < RING_SLOT_BYTES ? bytes - done : RING_SLOT_BYTES;
        TRY(find_space(ring, n, &i, &at));
        char *from = slot_data(ring, i) + at;
        memcpy(from, (const char *)src + done, n);
        CUDA_CHECK(dev_runtime->MemcpyAsync((char *)dst + done, from, n, GPU_TO_DEVICE, stream));
        TRY(send_off(ring, i, stream, NULL, at + n));
    }
    return ST_OK;
}

enum status dev_cuda_ring_out(struct pinned_ring *ring, gpu_stream stream, void *dst,
                              const void *src, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += RING_SLOT_BYTES) {
        int i;
        size_t n = bytes - at < RING_SLOT_BYTES ? bytes - at : RING_SLOT_BYTES;
        TRY(acquire_slot(ring, &i));
        CUDA_CHECK(dev_runtime->MemcpyAsync(slot_data(ring, i), (const char *)src + at, n,
                                            GPU_TO_HOST, stream));
        TRY(send_off(ring, i, stream, (char *)dst + at, n));
    }
    return ST_OK;
}

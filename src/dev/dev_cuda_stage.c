/* dev_cuda_stage — copies between ordinary host memory and the GPU, through pinned slots that are
 * used in turn, so that the host neither waits for the device nor has to keep what it gave. Must
 * not know what is copied. */
#include "dev/dev_cuda_inside.h"

#ifdef CONVOY_CUDA
#include <string.h>

#include "base/must.h"

#define STAGE_ALIGN ((size_t)64) /* of a copy's first byte in its slot */

enum status dev_cuda_stage_open(struct stage *stage)
{
    void *pinned = NULL;
    size_t bytes = STAGE_SLOTS * STAGE_BYTES + sizeof *stage->noted;
    TRY(dev_cuda_error_pin(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault), bytes));
    stage->pinned = pinned;
    stage->noted = (uint64_t *)(void *)(stage->pinned + STAGE_SLOTS * STAGE_BYTES);
    *stage->noted = 0;
    CUDA_CHECK(cudaEventCreateWithFlags(&stage->note, cudaEventDisableTiming));
    for (int i = 0; i < STAGE_SLOTS; i++)
        CUDA_CHECK(cudaEventCreateWithFlags(&stage->slot[i].done, cudaEventDisableTiming));
    return ST_OK;
}

void dev_cuda_stage_close(struct stage *stage)
{
    for (int i = 0; i < STAGE_SLOTS; i++)
        if (stage->slot[i].done)
            (void)cudaEventDestroy(stage->slot[i].done);
    if (stage->note)
        (void)cudaEventDestroy(stage->note);
    if (stage->pinned)
        (void)cudaFreeHost(stage->pinned);
    *stage = (struct stage){0};
}

static char *slot_data(const struct stage *stage, int i)
{
    return stage->pinned + (size_t)i * STAGE_BYTES;
}

/* The host waits only where it must: a slot that comes round is most often done long ago. */
static enum status wait_for(cudaEvent_t event)
{
    cudaError_t error = cudaEventQuery(event);
    if (error == cudaErrorNotReady) {
        /* an answer, which the next launch would take for its own error */
        (void)cudaGetLastError();
        error = cudaEventSynchronize(event);
    }
    return error == cudaSuccess ? ST_OK : dev_cuda_error_fail(error, "waiting for a copy");
}

/* finish — wait for one slot, and hand over what it brings. */
static enum status finish(struct stage *stage, int i)
{
    struct stage_slot *slot = &stage->slot[i];
    if (!slot->is_busy)
        return ST_OK;
    slot->is_busy = false;
    TRY(wait_for(slot->done));
    if (slot->dst)
        memcpy(slot->dst, slot_data(stage, i), slot->bytes);
    slot->dst = NULL;
    return ST_OK;
}

enum status dev_cuda_stage_drain(struct stage *stage)
{
    for (int i = 0; i < STAGE_SLOTS; i++)
        TRY(finish(stage, (stage->next + i) % STAGE_SLOTS)); /* the oldest first */
    return ST_OK;
}

/* A slot, idle; its number goes to *out. */
static enum status take(struct stage *stage, int *out)
{
    *out = stage->next;
    stage->next = (stage->next + 1) % STAGE_SLOTS;
    return finish(stage, *out);
}

static enum status send_off(struct stage *stage, int i, cudaStream_t stream, char *dst,
                            size_t bytes)
{
    stage->slot[i].dst = dst;
    stage->slot[i].bytes = bytes;
    stage->slot[i].is_busy = true;
    CUDA_CHECK(cudaEventRecord(stage->slot[i].done, stream));
    return ST_OK;
}

/* settle — bytes that are still on their way into [at, at + bytes) of the host must arrive before
 * that is read. */
static enum status settle(struct stage *stage, const char *at, size_t bytes)
{
    for (int k = 0; k < STAGE_SLOTS; k++) {
        int i = (stage->next + k) % STAGE_SLOTS;
        const struct stage_slot *slot = &stage->slot[i];
        if (slot->is_busy && slot->dst && slot->dst < at + bytes && at < slot->dst + slot->bytes)
            TRY(finish(stage, i));
    }
    return ST_OK;
}

/* Room for n bytes to the device: behind those in the newest slot, so that many small copies do not
 * come round to a slot that is not done; else a slot of their own. `at_out`: from the slot's
 * start. */
static enum status take_in(struct stage *stage, size_t n, int *out, size_t *at_out)
{
    int newest = (stage->next + STAGE_SLOTS - 1) % STAGE_SLOTS;
    const struct stage_slot *slot = &stage->slot[newest];
    size_t used = (slot->bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
    *out = newest;
    *at_out = used;
    if (slot->is_busy && !slot->dst && used + n <= STAGE_BYTES)
        return ST_OK;
    *at_out = 0;
    return take(stage, out);
}

enum status dev_cuda_stage_in(struct stage *stage, cudaStream_t stream, void *dst, const void *src,
                              size_t bytes)
{
    TRY(settle(stage, src, bytes));
    for (size_t done = 0; done < bytes; done += STAGE_BYTES) {
        int i;
        size_t at, n = bytes - done < STAGE_BYTES ? bytes - done : STAGE_BYTES;
        TRY(take_in(stage, n, &i, &at));
        char *from = slot_data(stage, i) + at;
        memcpy(from, (const char *)src + done, n);
        CUDA_CHECK(cudaMemcpyAsync((char *)dst + done, from, n, cudaMemcpyHostToDevice, stream));
        TRY(send_off(stage, i, stream, NULL, at + n));
    }
    return ST_OK;
}

enum status dev_cuda_stage_out(struct stage *stage, cudaStream_t stream, void *dst, const void *src,
                               size_t bytes)
{
    for (size_t at = 0; at < bytes; at += STAGE_BYTES) {
        int i;
        size_t n = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
        TRY(take(stage, &i));
        CUDA_CHECK(cudaMemcpyAsync(slot_data(stage, i), (const char *)src + at, n,
                                   cudaMemcpyDeviceToHost, stream));
        TRY(send_off(stage, i, stream, (char *)dst + at, n));
    }
    return ST_OK;
}
#endif

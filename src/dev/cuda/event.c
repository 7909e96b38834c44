/* dev_cuda_event — events of the CUDA device: recorded in a stream, awaited by other streams or by
 * the host. A stream that records work records the event too (cuda/graph.c). Must not know the
 * purpose of a wait. */
#include "dev/cuda/internal.h"

#include <stdlib.h>

#include "base/memory.h"

static enum status create_event(struct dev *dev, struct dev_event **out)
{
    struct dev_event *e = memory_new(1, sizeof *e);
    e->head.dev = dev;
    gpu_error error = dev_runtime->EventCreateWithFlags(&e->event, GPU_EVENT_NO_TIMING);
    if (error != GPU_SUCCESS) {
        free(e);
        return dev_cuda_error_fail(error, "creating an event");
    }
    *out = e;
    return ST_OK;
}

enum status dev_cuda_event_record(struct stream *s, struct dev_event **event)
{
    if (*event == NULL)
        TRY(create_event(s->head.dev, event));
    (*event)->stream = s;
    (*event)->number = 0;
    if (dev_cuda_graph_is_recording(s))
        return dev_cuda_graph_record(s, *event);
    CUDA_CHECK(dev_runtime->EventRecord((*event)->event, s->stream));
    return ST_OK;
}

/* Records an event with its number. The number comes from the block of step scalars on the device,
 * so that one graph serves every step. In a graph the record is its own node. */
enum status dev_cuda_event_do(struct stream *s, const struct cuda_event *a)
{
    if (s->cuda.scalars)
        CUDA_CHECK(dev_runtime->MemcpyAsync((void *)(uintptr_t)s->ring.reached,
                                            &s->cuda.scalars->seed, sizeof *s->ring.reached,
                                            GPU_TO_HOST, s->stream));
    CUDA_CHECK(s->is_captured
                   ? dev_runtime->EventRecordWithFlags(a->event, s->stream, GPU_EVENT_EXTERNAL)
                   : dev_runtime->EventRecord(a->event, s->stream));
    return ST_OK;
}

/* Waits for an event. The number is also missing when the list was too short for step scalars
 * (WORK_FEW). */
enum status dev_cuda_event_sync(struct dev_event *event)
{
    struct stream *s = event->stream;
    TRY(dev_cuda_graph_flush(s));
    CUDA_CHECK(dev_runtime->EventSynchronize(event->event));
    if (event->number > *s->ring.reached)
        CUDA_CHECK(dev_runtime->StreamSynchronize(s->stream));
    return ST_OK;
}

static enum status check_query(gpu_error error, const char *what, bool *out)
{
    *out = error == GPU_SUCCESS;
    if (error == GPU_ERROR_NOT_READY)
        /* not an error, but the next launch would report it as its own */
        (void)dev_runtime->GetLastError();
    return *out || error == GPU_ERROR_NOT_READY ? ST_OK : dev_cuda_error_fail(error, what);
}

enum status dev_cuda_event_query(struct dev_event *event, bool *out)
{
    return check_query(dev_runtime->EventQuery(event->event), "querying an event", out);
}

enum status dev_cuda_event_query_stream(struct stream *s, bool *out)
{
    TRY(dev_cuda_graph_flush(s));
    return check_query(dev_runtime->StreamQuery(s->stream), "querying a stream", out);
}

enum status dev_cuda_event_wait(struct stream *s, struct dev_event *event)
{
    TRY(dev_cuda_graph_flush(s));
    CUDA_CHECK(dev_runtime->StreamWaitEvent(s->stream, event->event, 0));
    return ST_OK;
}

void dev_cuda_event_free(struct dev_event *event)
{
    (void)dev_runtime->EventDestroy(event->event);
    free(event);
}

/* dev_cuda_event — events of the CUDA device: recorded in a stream, awaited by other streams or by
 * the host. A stream that records work records the event too (cuda/graph.c). Must not know the
 * purpose of a wait. */
#include "dev/cuda/internal.h"

#ifdef CONVOY_CUDA
#include <stdlib.h>

#include "base/memory.h"

static enum status create_event(struct dev *dev, struct dev_event **out)
{
    struct dev_event *e = memory_new(1, sizeof *e);
    e->head.dev = dev;
    cudaError_t error = cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming);
    if (error != cudaSuccess) {
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
    CUDA_CHECK(cudaEventRecord((*event)->event, s->stream));
    return ST_OK;
}

/* Records an event with its number. The number comes from the block of step scalars on the device,
 * so that one graph serves every step. In a graph the record is its own node. */
enum status dev_cuda_event_do(struct stream *s, const struct cuda_event *a)
{
    if (s->cuda.scalars)
        CUDA_CHECK(cudaMemcpyAsync((void *)(uintptr_t)s->ring.reached, &s->cuda.scalars->seed,
                                   sizeof *s->ring.reached, cudaMemcpyDeviceToHost, s->stream));
    CUDA_CHECK(s->is_captured
                   ? cudaEventRecordWithFlags(a->event, s->stream, cudaEventRecordExternal)
                   : cudaEventRecord(a->event, s->stream));
    return ST_OK;
}

/* Waits for an event. The number is also missing when the list was too short for step scalars
 * (WORK_FEW). */
enum status dev_cuda_event_sync(struct dev_event *event)
{
    struct stream *s = event->stream;
    TRY(dev_cuda_graph_flush(s));
    CUDA_CHECK(cudaEventSynchronize(event->event));
    if (event->number > *s->ring.reached)
        CUDA_CHECK(cudaStreamSynchronize(s->stream));
    return ST_OK;
}

static enum status check_query(cudaError_t error, const char *what, bool *out)
{
    *out = error == cudaSuccess;
    if (error == cudaErrorNotReady)
        /* not an error, but the next launch would report it as its own */
        (void)cudaGetLastError();
    return *out || error == cudaErrorNotReady ? ST_OK : dev_cuda_error_fail(error, what);
}

enum status dev_cuda_event_query(struct dev_event *event, bool *out)
{
    return check_query(cudaEventQuery(event->event), "querying an event", out);
}

enum status dev_cuda_event_query_stream(struct stream *s, bool *out)
{
    TRY(dev_cuda_graph_flush(s));
    return check_query(cudaStreamQuery(s->stream), "querying a stream", out);
}

enum status dev_cuda_event_wait(struct stream *s, struct dev_event *event)
{
    TRY(dev_cuda_graph_flush(s));
    CUDA_CHECK(cudaStreamWaitEvent(s->stream, event->event, 0));
    return ST_OK;
}

void dev_cuda_event_free(struct dev_event *event)
{
    (void)cudaEventDestroy(event->event);
    free(event);
}
#endif

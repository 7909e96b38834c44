/* dev_cuda_busy — the time that the work of a stream needs on the GPU (dev_busy_begin): pairs of
 * timed events in the stream, which are read when the device has passed them. The host never waits
 * for them. Must not know the purpose of the work. */
#include "dev/cuda/internal.h"

#include <stdlib.h>

#include "base/memory.h"

struct busy_span {
    gpu_event begin, end;
};
struct cuda_busy {
    struct busy_span *span; /* [0, n) wait to be read, in the order of the stream */
    size_t n, created, cap;
};

/* add_span — Creates the events of one more span, which is used again after it was read. */
static enum status add_span(struct cuda_busy *b)
{
    struct busy_span span;
    if (b->created == b->cap) {
        b->cap = 2 * b->cap + 16;
        b->span = memory_resize(b->span, b->cap, sizeof *b->span);
    }
    CUDA_CHECK(dev_runtime->EventCreateWithFlags(&span.begin, GPU_EVENT_DEFAULT));
    gpu_error error = dev_runtime->EventCreateWithFlags(&span.end, GPU_EVENT_DEFAULT);
    if (error != GPU_SUCCESS) {
        (void)dev_runtime->EventDestroy(span.begin);
        return dev_cuda_error_fail(error, "creating an event for BALANCE=auto");
    }
    b->span[b->created++] = span;
    return ST_OK;
}

enum status dev_cuda_busy_mark(struct stream *s, bool is_begin)
{
    if (!s->busy)
        s->busy = memory_new(1, sizeof *s->busy);
    struct cuda_busy *b = s->busy;
    if (b->n == b->created)
        TRY(add_span(b));
    TRY(dev_cuda_graph_flush(s));
    CUDA_CHECK(
        dev_runtime->EventRecord(is_begin ? b->span[b->n].begin : b->span[b->n].end, s->stream));
    b->n += !is_begin;
    return ST_OK;
}

enum status dev_cuda_busy_ms(struct stream *s, double *out)
{
    struct cuda_busy *b = s->busy;
    size_t read = 0;
    *out = 0;
    for (; b && read < b->n; read++) {
        float ms = 0;
        gpu_error error =
            dev_runtime->EventElapsedTime(&ms, b->span[read].begin, b->span[read].end);
        if (error == GPU_ERROR_NOT_READY) {
            (void)dev_runtime->GetLastError(); /* the next launch would report it as its own */
            break;
        }
        if (error != GPU_SUCCESS)
            return dev_cuda_error_fail(error, "reading the time of a stream's work");
        *out += (double)ms;
    }
    for (size_t i = 0; read > 0 && i + read < b->n; i++) {
        const struct busy_span free_one = b->span[i];
        b->span[i] = b->span[i + read];
        b->span[i + read] = free_one;
    }
    if (b)
        b->n -= read;
    return ST_OK;
}

void dev_cuda_busy_close(struct cuda_busy *b)
{
    for (size_t i = 0; b && i < b->created; i++) {
        (void)dev_runtime->EventDestroy(b->span[i].begin);
        (void)dev_runtime->EventDestroy(b->span[i].end);
    }
    if (b)
        free(b->span);
    free(b);
}

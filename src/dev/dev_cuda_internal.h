/* dev_cuda_internal — what the files of the CUDA device share. Inside room dev only, and only where
 * CUDA is built in. */
#ifndef CONVOY_DEV_DEV_CUDA_INSIDE_H
#define CONVOY_DEV_DEV_CUDA_INSIDE_H

#include "dev/dev_cuda.h"

#ifdef CONVOY_CUDA
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "dev/blas.h"
#include "kernels/cuda.h"

/* dev_cuda_error_fail — what a failure of the runtime means here: `what` was asked for. Never
 * ST_OK.
 *   memory refused → ST_RETRY · no driver, no device, none that this build has code for →
 *   ST_NO_DEVICE ·
 *   what only a reset heals (uncorrectable memory error, illegal address, …) → ST_FAULT · the rest
 *   → ST_BUG */
enum status dev_cuda_error_fail(cudaError_t error, const char *what) __attribute__((cold));
/* dev_cuda_error_pin — of taking pinned host memory: ST_RETRY with numbers when it is short.
 * dev_cuda_error_launched — of a launcher: 0, a cudaError_t, or an enum cuda_refusal, which is
 * ST_BUG. */
enum status dev_cuda_error_pin(cudaError_t error, size_t bytes);
enum status dev_cuda_error_launched(int rc, const char *op);
#define CUDA_CHECK(call)                                    \
    do {                                                    \
        cudaError_t cuda_check_ = (call);                   \
        if (cuda_check_ != cudaSuccess)                     \
            return dev_cuda_error_fail(cuda_check_, #call); \
    } while (0)

/* Pinned memory between ordinary host memory and the device, in slots that are used in turn. A slot
 * on its way to the host is emptied into `dst` when it is needed again, or at the next sync. */
#define RING_SLOTS 8
#define RING_SLOT_BYTES ((size_t)1 << 20)
struct ring_slot {
    cudaEvent_t done;
    char *dst; /* NULL: on its way to the device, or idle */
    size_t bytes;
    bool is_busy;
};
struct pinned_ring {
    char *pinned; /* RING_SLOTS · RING_SLOT_BYTES, then *noted */
    struct ring_slot slot[RING_SLOTS];
    int next;
    /* dev_note: the event that is waited for. A graph that records it also brings its number, from
     * which the host sees that it has not been told of an earlier launch's record. */
    cudaEvent_t note;
    volatile uint64_t *noted; /* the newest number that came */
    uint64_t notes;           /* the newest that was asked for */
};
enum status dev_cuda_ring_open(struct pinned_ring *ring);
/* accepts a zero one; the stream has been waited for */
void dev_cuda_ring_close(struct pinned_ring *ring);
/* dev_cuda_ring_in — src may be reused when it returns.  dev_cuda_ring_out — dst is there after
 * dev_cuda_ring_drain. */
enum status dev_cuda_ring_in(struct pinned_ring *ring, cudaStream_t stream, void *dst,
                             const void *src, size_t bytes);
enum status dev_cuda_ring_out(struct pinned_ring *ring, cudaStream_t stream, void *dst,
                              const void *src, size_t bytes);
enum status dev_cuda_ring_drain(struct pinned_ring *ring); /* waits for every slot */

/* A piece of the device's memory, or of pinned host memory. */
struct cuda_range {
    char *data;
    size_t bytes;
};

struct dev {
    struct dev_head head;
    int device_i;
    bool is_tf32;
    struct cudaDeviceProp prop;
    int driver;            /* 13000: what the driver can do */
    pthread_mutex_t mutex; /* of the tables below: the comm's thread copies, too */
    struct cuda_ranges {
        struct cuda_range *range;
        size_t n;
    } own, pinned;
    char bus[24];
};

/* What a stream may gather (dev_cuda_graph.c): operations, fills and copies within the device, and
 * what is brought to pinned memory, with its note. */
#define CUDA_WORK(name) CUDA_WORK_##name,
enum cuda_work {
    OP_LIST(CUDA_WORK) CUDA_WORK_FILL,
    CUDA_WORK_COPY,
    CUDA_WORK_READ,
    CUDA_WORK_EVENT,
    CUDA_WORK_N
};
#undef CUDA_WORK
struct cuda_fill {
    void *dst;
    size_t bytes, byte;
};
struct cuda_copy { /* of COPY and BRING */
    void *dst;
    const void *src;
    size_t bytes;
};
struct cuda_event {
    uint64_t number;
};
/* dev_cuda_do — one piece of work, checked, onto the stream. */
enum status dev_cuda_do(struct stream *s, enum cuda_work work, const void *args);

struct cuda_graphs;
/* dev_cuda_graph_open — scalars_n on the device for as many operations (dev_cuda_graph.c).
 * dev_cuda_graph_add: args are copied; padding in them is zero. dev_cuda_graph_flush: what was
 * added goes to the device. */
enum status dev_cuda_graph_open(struct stream *s);
/* accepts NULL; what was not begun is forgotten */
void dev_cuda_graph_close(struct cuda_graphs *g);
enum status dev_cuda_graph_add(struct stream *s, enum cuda_work work, void *args, size_t bytes);
/* a stream that gathers nothing: nothing to do */
enum status dev_cuda_graph_flush(struct stream *s);

struct stream {
    struct stream_head head;
    cudaStream_t stream;
    struct dev_event *mark; /* what another stream waits for */
    struct pinned_ring ring;
    struct cuda cuda;           /* scratch NULL: no operation yet */
    struct blas *blas;          /* NULL: no cuBLASLt here, products by our own kernels */
    struct cuda_graphs *graphs; /* NULL: work begins at once */
    bool is_captured;
};
#endif

#endif

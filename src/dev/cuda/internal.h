/* dev_cuda_internal — declarations that the files of the GPU device share. For src/dev only. */
#ifndef CONVOY_DEV_DEV_CUDA_INTERNAL_H
#define CONVOY_DEV_DEV_CUDA_INTERNAL_H

#include "dev/cuda/cuda.h"

#include <pthread.h>
#include <stdbool.h>

#include "dev/blas/blas.h"
#include "dev/cuda/runtime.h"
#include "kernels/cuda.h"

/* dev_cuda_error_fail — returns the status of a failed call of the runtime, with a message. what:
 * the purpose of the call. Never ST_OK.
 *   ST_RETRY      the device has not enough free memory
 *   ST_NO_DEVICE  no driver, no GPU, or none that this build has code for
 *   ST_FAULT      only a reset heals it: uncorrectable memory error, illegal address, …
 *   ST_BUG        anything else */
enum status dev_cuda_error_fail(gpu_error error, const char *what) __attribute__((cold));
/* dev_cuda_error_pin — does the same for an allocation of pinned host memory; accepts success. */
enum status dev_cuda_error_pin(gpu_error error, size_t bytes);
/* dev_cuda_error_launched — does the same for the return value of a launcher: 0, a gpu_error, or
 * an enum cuda_refusal, which is ST_BUG. */
enum status dev_cuda_error_launched(int rc, const char *op);
#define CUDA_CHECK(call)                                    \
    do {                                                    \
        gpu_error cuda_check_ = (call);                     \
        if (cuda_check_ != GPU_SUCCESS)                     \
            return dev_cuda_error_fail(cuda_check_, #call); \
    } while (0)

/* The pinned ring of a stream: page-locked bounce buffers between pageable host memory and the
 * device, used one after the other (cuda/ring.c). A slot that carries data to the host is
 * copied to `dst` when the slot is needed again, or at the next dev_sync. */
#define RING_SLOTS 8
#define RING_SLOT_BYTES ((size_t)1 << 20)
struct ring_slot {
    gpu_event done;
    char *dst; /* NULL: the data are on their way to the device, or the slot is idle */
    size_t bytes;
    bool is_busy;
};
struct pinned_ring {
    char *pinned; /* RING_SLOTS · RING_SLOT_BYTES, then *reached */
    struct ring_slot slot[RING_SLOTS];
    int next;
    /* Numbers of the events in the recorded work of this stream (struct dev_event). */
    volatile uint64_t *reached; /* the newest event that the device has passed */
    uint64_t recorded;          /* the newest event that was recorded */
};
/* dev_cuda_ring_open — allocates the pinned memory and the events of a zeroed ring; call
 * dev_cuda_ring_close also if it fails. */
enum status dev_cuda_ring_open(struct pinned_ring *ring);
/* dev_cuda_ring_close — frees the ring and zeroes it. Accepts a zeroed ring. The stream's work is
 * done. */
void dev_cuda_ring_close(struct pinned_ring *ring);
/* dev_cuda_ring_in — copies to the device; src may be reused when it returns. Blocks if all slots
 * are in use. */
enum status dev_cuda_ring_in(struct pinned_ring *ring, gpu_stream stream, void *dst,
                             const void *src, size_t bytes);
/* dev_cuda_ring_out — copies to the host; dst is valid after dev_cuda_ring_drain. Blocks if all
 * slots are in use. */
enum status dev_cuda_ring_out(struct pinned_ring *ring, gpu_stream stream, void *dst,
                              const void *src, size_t bytes);
/* dev_cuda_ring_drain — blocks until every slot is done. */
enum status dev_cuda_ring_drain(struct pinned_ring *ring);

/* One allocation: of device memory, or of pinned host memory. */
struct cuda_range {
    char *data;
    size_t bytes;
    bool is_mapping; /* the caller has mapped it (dev_pin_mapping) */
};

struct dev {
    struct dev_head head;
    int device_i;
    bool is_tf32;
    enum dev_cuda_attention attention;
    bool is_atomic; /* cuDNN's backward pass of attention is the atomic one */
    struct gpu_props prop;
    int driver;            /* 13000: CUDA version that the driver supports */
    pthread_mutex_t mutex; /* protects the tables below: several threads copy and allocate */
    struct cuda_ranges {
        struct cuda_range *range;
        size_t n;
    } own, scratch, pinned; /* memory of dev_alloc, of streams that compute, of dev_pin */
    char bus[24];
};

/* Returns false and the reason if the driver is too old for a library of this version of CUDA's
 * runtime, such as 13000. Without a driver: true. */
bool dev_cuda_driver_fits(size_t cudart_version, char *why, size_t cap);
/* dev_cuda_driver_granularity — returns granularity_bytes of struct dev_info; 0: the driver does
 * not report it. */
int64_t dev_cuda_driver_granularity(int device_i);

/* Work that a stream can record (cuda/graph.c): operations, fills and copies within the device,
 * reads into pinned memory, and records of events. */
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
struct cuda_copy { /* arguments of COPY and READ */
    void *dst;
    const void *src;
    size_t bytes;
};
struct cuda_event {
    gpu_event event;
    uint64_t number;
};
/* dev_cuda_do — submits one operation to the stream immediately. args were checked. */
enum status dev_cuda_do(struct stream *s, enum cuda_work work, const void *args);

/* An event, and the stream in which it was last recorded.
 *
 * CUDA does not document whether an event that a graph records can be reported as reached because
 * of an earlier launch of that graph. So an event that is recorded with other work has a number,
 * which the stream copies to ring.reached just before it. dev_cuda_event_sync compares: if the
 * number is missing, it waits for the whole stream. */
struct dev_event {
    struct dev_event_head head;
    gpu_event event;
    struct stream *stream;
    uint64_t number; /* its number in the recorded work; 0: it was recorded immediately */
};
/* dev_cuda_event_record — implements dev_event_record. */
enum status dev_cuda_event_record(struct stream *s, struct dev_event **event);
/* dev_cuda_event_sync — implements dev_event_sync; does not accept NULL. */
enum status dev_cuda_event_sync(struct dev_event *event);
/* dev_cuda_event_wait — implements dev_stream_wait; does not accept NULL. */
enum status dev_cuda_event_wait(struct stream *s, struct dev_event *event);
/* dev_cuda_event_query — implements dev_event_query; does not accept NULL. */
enum status dev_cuda_event_query(struct dev_event *event, bool *out);
/* dev_cuda_event_query_stream — implements dev_stream_query. */
enum status dev_cuda_event_query_stream(struct stream *s, bool *out);
/* dev_cuda_event_free — implements dev_event_free; does not accept NULL. */
void dev_cuda_event_free(struct dev_event *event);
/* dev_cuda_event_do — submits CUDA_WORK_EVENT for dev_cuda_do. */
enum status dev_cuda_event_do(struct stream *s, const struct cuda_event *a);

struct cuda_attention;
/* dev_cuda_attention_fwd — computes attention by cuDNN or by the program's kernel; args: a struct
 * attention_fwd. */
enum status dev_cuda_attention_fwd(struct stream *s, const void *args);
/* dev_cuda_attention_bwd — computes the gradients in the same way; args: a struct attention_bwd. */
enum status dev_cuda_attention_bwd(struct stream *s, const void *args);
/* dev_cuda_attention_fwd_apart — submits a call sample by sample if its dropout counts the heads of
 * a whole model (kernels/attention_sample.h). *is_done false: it does not, and nothing was
 * submitted. */
enum status dev_cuda_attention_fwd_apart(struct stream *s, const void *args, bool *is_done);
/* dev_cuda_attention_bwd_apart — does the same for the backward pass. */
enum status dev_cuda_attention_bwd_apart(struct stream *s, const void *args, bool *is_done);
/* dev_cuda_attention_close — accepts NULL. The stream's work is done. */
void dev_cuda_attention_close(struct cuda_attention *x);

struct cuda_graphs;
/* dev_cuda_graph_open — makes the stream record its work from now on; allocates device memory for
 * SCALARS_MAX struct step_scalars. */
enum status dev_cuda_graph_open(struct stream *s);
/* dev_cuda_graph_close — accepts NULL; drops work that was not flushed. */
void dev_cuda_graph_close(struct cuda_graphs *g);
/* dev_cuda_graph_add — records one operation. args are copied; their padding must be zero,
 * because lists are compared as bytes. */
enum status dev_cuda_graph_add(struct stream *s, enum cuda_work work, void *args, size_t bytes);
/* dev_cuda_graph_record — adds an event to the recorded work. At the end of a list it is recorded
 * after the list, outside of its graph; in the middle it is a node of the graph. */
enum status dev_cuda_graph_record(struct stream *s, struct dev_event *event);
/* dev_cuda_graph_flush — submits the recorded work; does nothing if s does not record. */
enum status dev_cuda_graph_flush(struct stream *s);
/* dev_cuda_graph_is_recording — returns true if s records work, and is not just submitting the
 * recorded work. */
bool dev_cuda_graph_is_recording(const struct stream *s);

/* dev_cuda_scalars_take — moves the numbers that change from step to step out of the arguments;
 * returns false if there are none. */
bool dev_cuda_scalars_take(enum cuda_work work, void *args, struct step_scalars *out);

struct cuda_times;
/* dev_cuda_times_open — measures the time of each operation of the stream from now on; the stream
 * does not record. */
void dev_cuda_times_open(struct stream *s);
/* dev_cuda_times_close — logs the table; accepts NULL. The stream's work is done. */
void dev_cuda_times_close(struct cuda_times *t);
/* dev_cuda_times_before — records the event before one operation (dev_cuda_do), and adds its cost
 * to its row of the table. */
enum status dev_cuda_times_before(struct stream *s, enum cuda_work work, const void *args);
/* dev_cuda_times_after — records the event after the operation. */
enum status dev_cuda_times_after(struct stream *s);
/* dev_cuda_times_step — ends a step; waits for the device. Without times it does nothing. */
enum status dev_cuda_times_step(struct stream *s);

struct cuda_busy;
/* dev_cuda_busy_mark — implements the begin or the end of a span of dev_busy_begin. */
enum status dev_cuda_busy_mark(struct stream *s, bool is_begin);
/* dev_cuda_busy_ms — implements dev_busy_ms. */
enum status dev_cuda_busy_ms(struct stream *s, double *out);
/* dev_cuda_busy_close — accepts NULL. The stream's work is done. */
void dev_cuda_busy_close(struct cuda_busy *b);

struct stream {
    struct stream_head head;
    gpu_stream stream;
    struct dev_event *event; /* event of dev_stream_wait_stream, when this stream is `first` */
    struct pinned_ring ring;
    struct cuda cuda;                 /* scratch NULL: no operation yet */
    struct blas *blas;                /* NULL: products by this program's kernels */
    bool is_blas_plain;               /* no epilogues */
    struct cuda_graphs *graphs;       /* NULL: work is submitted immediately */
    struct cuda_times *times;         /* NULL: no times are measured */
    struct cuda_busy *busy;           /* NULL: its work was never measured */
    struct cuda_attention *attention; /* NULL: cuDNN was not tried yet */
    bool is_captured;
};

#endif

/* dev — one compute device: its memory, its streams and events, and the operations it can run.
 *
 * A stream is a queue of work. Work of one stream runs in the order in which it was submitted. Work
 * of two streams has no order without dev_stream_wait_stream or an event.
 *
 * There are two kinds of devices:
 *   host device      (CPU)  its memory is the host's; a call returns when its work is done
 *   discrete device  (GPU)  its memory is not the host's; work runs later, while the host goes on
 * Every device fills struct dev_ops. A discrete device also fills struct dev_async_ops. The public
 * functions work on both kinds; the comment of each group states what they do on a host device.
 *
 * Threads: one thread at a time may use a stream. Several threads may use streams of their own on
 * one device. Errors: ST_RETRY when memory is short, ST_FAULT when the device has failed, ST_BUG
 * when an argument breaks the contract of an operation; the functions here assert it. Also
 * ST_BAD_SETTING (dev_alloc) and ST_NO_DEVICE (open). Must not know the meaning of tensors, models
 * or other ranks. */
#ifndef CONVOY_DEV_DEV_H
#define CONVOY_DEV_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "dev/op.h"

enum dev_kind { DEV_KIND_CPU, DEV_KIND_GPU };

struct dev;       /* begins with struct dev_head; defined by its dev_*.c */
struct stream;    /* begins with struct stream_head */
struct dev_event; /* a point in a stream's work; begins with struct dev_event_head */

struct dev_info {
    enum dev_kind kind;
    char name[64]; /* "cpu 2 threads amx" */
    /* Bytes of the device's memory: all; free now (-1: unknown; for a CPU see base/memory.h);
     * allocated by this process, with dev_alloc and as scratch of streams (-1: not counted);
     * scratch that a stream allocates at its first operation (0: none). */
    int64_t memory_bytes, free_bytes, allocated_bytes, scratch_bytes;
    /* Granularity in bytes of memory that other devices and processes can map
     * (cuMemGetAllocationGranularity). 0: unknown, or a CPU. */
    int64_t granularity_bytes;
    /* FLOP/s of dense products: of f32 tensors as the device computes them (tf32 if it was opened
     * so), and of 16-bit floats. The CPU's rate is measured when it is opened, which needs some
     * milliseconds; a GPU's is from its data sheet. 0: unknown, or the device has none. */
    double peak_flops, peak_flops_16;
    bool is_tf32;  /* products of f32 tensors round their factors to tf32 */
    int threads_n; /* threads of a CPU's pool; 1 on a GPU */
    char bus[24];  /* PCI address, "0000:3b:00.0"; "": the device is on no bus */
    /* Number of the device; the MIG instances of one PCI address have different ones. Zeros: a CPU
     */
    char uuid[16];
};

/* Functions that every device must have. Entry x implements dev_x, below. */
struct dev_ops {
    const char *name;
    void (*close)(struct dev *dev);
    void (*info)(const struct dev *dev, struct dev_info *out);
    enum status (*alloc)(struct dev *dev, size_t bytes, void **out);
    void (*free)(struct dev *dev, void *data, size_t bytes);
    enum status (*stream_open)(struct dev *dev, struct stream **out);
    void (*stream_close)(struct stream *s);
    enum status (*stream_wait_stream)(struct stream *waiting, struct stream *first);
    enum status (*copy)(struct stream *s, void *dst, const void *src, size_t bytes);
    enum status (*fill)(struct stream *s, void *dst, int byte, size_t bytes);
    enum status (*sync)(struct stream *s);
};

/* Functions that a discrete device must have as well. No entry is NULL; entry x implements
 * dev_x. */
struct dev_async_ops {
    enum status (*make_current)(struct dev *dev);
    bool (*holds)(const struct dev *dev, const void *data);
    enum status (*pin)(struct dev *dev, size_t bytes, void **out);
    enum status (*pin_mapping)(struct dev *dev, void *data, size_t bytes);
    void (*unpin)(struct dev *dev, void *data);
    void *(*stream_handle)(struct stream *s);
    enum status (*stream_query)(struct stream *s, bool *out);
    enum status (*stream_open_high)(struct dev *dev, struct stream **out);
    enum status (*adopt)(struct dev *dev, void *data, size_t bytes);
    void (*disown)(struct dev *dev, void *data);
    enum status (*event_record)(struct stream *s, struct dev_event **event);
    enum status (*stream_wait)(struct stream *s, struct dev_event *event);
    enum status (*event_sync)(struct dev_event *event);
    enum status (*event_query)(struct dev_event *event, bool *out);
    void (*event_free)(struct dev_event *event);
    enum status (*graph_begin)(struct stream *s);
    enum status (*leave_sms)(struct stream *s, int sms);
    enum status (*flush)(struct stream *s);
    enum status (*read_async)(struct stream *s, void *pinned, const void *src, size_t bytes);
    enum status (*times_begin)(struct stream *s);
    enum status (*times_step)(struct stream *s);
    enum status (*busy_mark)(struct stream *s, bool is_begin);
    enum status (*busy_ms)(struct stream *s, double *out);
};

/* The first member of each struct dev, stream and dev_event. */
struct dev_head {
    const struct dev_ops *ops;
    const struct dev_async_ops *async; /* NULL: a host device */
    const struct op_table *op;
};
struct stream_head {
    struct dev *dev;
    /* dev_busy_begin. since_ns and ms: on a host device */
    enum { DEV_BUSY_OFF, DEV_BUSY_ON, DEV_BUSY_PAUSED } busy;
    int64_t busy_since_ns;
    double busy_ms;
};
struct dev_event_head {
    struct dev *dev;
};

/* ---- every device ---- */

/* dev_cpu_open — opens the CPU with a pool of threads_n threads (0: one for each core that this
 * process may use). isa: an enum cpu_isa, the instruction set of its kernels; CPU_ISA_N: the best
 * set of this machine. ST_NO_DEVICE: the machine does not have that instruction set. */
enum status dev_cpu_open(int threads_n, int isa, struct dev **out);
/* dev_cpu_bf16 — makes products of a CPU round both factors to bf16, the nearest, and sum in fp32,
 * from now on. Tensors stay fp32; a product with a single row rounds nothing. ST_NO_DEVICE: the
 * processor, or the level that the device was opened with, has neither AMX tiles nor dot products
 * of bf16. */
enum status dev_cpu_bf16(struct dev *dev);

void dev_close(struct dev *dev); /* accepts NULL; close its streams first, free events and memory */
/* dev_info — describes the device and its memory. */
void dev_info(const struct dev *dev, struct dev_info *out);
/* dev_text_place — writes the device's number and address, "GPU-… at 0000:3b:00.0"; "" for a CPU.
 * Returns out. */
#define DEV_PLACE_TEXT 80 /* room for it */
const char *dev_text_place(const struct dev *dev, char *out, size_t cap);
/* dev_op — returns the operations of the device; valid until dev_close. */
const struct op_table *dev_op(const struct dev *dev);

/* dev_alloc — allocates memory of the device: zeroed, resident, aligned to 64 bytes. Blocks: call
 * it before training, never in a step. ST_RETRY: not free now; ST_BAD_SETTING: more than the device
 * has. */
enum status dev_alloc(struct dev *dev, size_t bytes, void **out);
/* dev_free — frees it. `bytes` as in dev_alloc; no work may still use the memory. Accepts NULL. */
void dev_free(struct dev *dev, void *data, size_t bytes);

/* dev_stream_open — opens a queue of work that the device does in order; close it before the
 * device. */
enum status dev_stream_open(struct dev *dev, struct stream **out);
/* dev_stream_close — blocks until submitted work has ended. Work that was recorded but not flushed
 * (dev_graph_begin) is dropped. Accepts NULL. */
void dev_stream_close(struct stream *s);
/* dev_stream_open_high — opens a stream of high priority: the device prefers its work to the work
 * of other streams (cudaStreamCreateWithPriority). On a host device: dev_stream_open. */
enum status dev_stream_open_high(struct dev *dev, struct stream **out);

/* dev_stream_wait_stream — lets work submitted to `waiting` from now on start after all work that
 * was submitted to `first` so far. The host does not wait. Both are streams of one device. */
enum status dev_stream_wait_stream(struct stream *waiting, struct stream *first);

/* dev_copy — copies bytes; dst and src may each lie in host or device memory. On a discrete device
 * it returns before the copy is done, except from host to host. It waits for earlier copies only
 * when its bounce buffers (8 MiB for each stream) are full, or when src is the dst of one of them.
 *   from pageable host memory  src may be reused when the call returns
 *   to pageable host memory    dst is valid after dev_sync
 *   from or to dev_pin memory  in use until dev_sync or dev_event_sync returns, or until
 *                              dev_stream_query finds the stream done */
enum status dev_copy(struct stream *s, void *dst, const void *src, size_t bytes);
/* dev_fill — sets each of the bytes to `byte`. */
enum status dev_fill(struct stream *s, void *dst, int byte, size_t bytes);

/* dev_sync — blocks the host until all work of s is done (cudaStreamSynchronize). */
enum status dev_sync(struct stream *s);

/* ---- memory, threads and state of a discrete device ----
 * On a host device dev_make_current does nothing, dev_holds returns false, dev_pin allocates
 * ordinary memory, dev_stream_query finds the stream done, and dev_stream_handle returns NULL. */

/* dev_is_discrete — returns true for a discrete device: the host cannot read its memory. NULL:
 * false. */
bool dev_is_discrete(const struct dev *dev);

/* dev_make_current — prepares the calling thread for the device. Call it in each thread that uses
 * the device, before its first use there; the thread that opened the device need not
 * (cudaSetDevice). */
enum status dev_make_current(struct dev *dev);

/* dev_holds — returns true if data points into memory of dev_alloc. */
bool dev_holds(const struct dev *dev, const void *data);

/* dev_adopt — counts memory of this device that a vendor's library has allocated as memory of
 * dev_alloc, until dev_disown. The memory is zeroed. The library frees it. For discrete devices
 * only. */
enum status dev_adopt(struct dev *dev, void *data, size_t bytes);
/* dev_disown — stops counting adopted memory. Call it before the library frees the memory. */
void dev_disown(struct dev *dev, void *data);

/* dev_pin — allocates page-locked host memory; copies reach it without a bounce buffer
 * (cudaHostAlloc). */
enum status dev_pin(struct dev *dev, size_t bytes, void **out);
/* dev_pin_mapping — page-locks host memory that the caller has mapped; from then on it counts as
 * memory of dev_pin (cudaHostRegister). Blocks. For discrete devices only. */
enum status dev_pin_mapping(struct dev *dev, void *data, size_t bytes);
/* dev_unpin — frees memory of dev_pin, after all copies from or to it. Memory of dev_pin_mapping
 * stays mapped. Accepts NULL. */
void dev_unpin(struct dev *dev, void *data);

/* dev_stream_query — sets *out to true if all work of s is done, else to false. Does not wait for
 * it (cudaStreamQuery). */
enum status dev_stream_query(struct stream *s, bool *out);

/* dev_stream_handle — returns the handle of s for the vendor's libraries (cudaStream_t); valid
 * until s is closed. Not for a stream that records work (dev_graph_begin): a library would overtake
 * that work. */
void *dev_stream_handle(struct stream *s);

/* ---- events ----
 * On a host device an event is NULL, and nothing waits. */

/* dev_event_record — sets *event to the point after all work submitted to s so far. If *event is
 * NULL, it is created first. A stream that records work records the event too: flush that stream
 * (dev_flush) before another stream waits for the event. */
enum status dev_event_record(struct stream *s, struct dev_event **event);
/* dev_event_free — frees an event, after the stream that recorded it was flushed or closed. Accepts
 * NULL. */
void dev_event_free(struct dev_event *event);

/* dev_stream_wait — lets work submitted to s from now on start after the event, as it was last
 * recorded (cudaStreamWaitEvent). The host does not wait. NULL: no wait. s may belong to another
 * thread than the event's stream. */
enum status dev_stream_wait(struct stream *s, struct dev_event *event);

/* dev_event_sync — blocks the host until the event, as it was last recorded, is reached
 * (cudaEventSynchronize). All dev_pin memory that was read or copied to before the event is valid
 * then. Call it in the thread of the event's stream, which it flushes. NULL: returns
 * immediately. */
enum status dev_event_sync(struct dev_event *event);

/* dev_event_query — sets *out to true if the event, as it was last recorded, is reached, else to
 * false. Does not wait for it (cudaEventQuery). Any thread; flushes nothing. NULL: true. */
enum status dev_event_query(struct dev_event *event, bool *out);

/* ---- recorded work ----
 * On a host device work runs immediately, and dev_read_async is dev_copy. */

/* dev_graph_begin — makes s record operations, fills and copies within the device from now on, and
 * submit them together. The same work, recorded again, is submitted as one CUDA graph
 * (cuda/graph.c). Recorded work is submitted by
 *   dev_flush
 *   a copy from or to host memory
 *   dev_sync, dev_stream_query, dev_event_sync of an event of s
 *   dev_stream_wait, and dev_stream_wait_stream with s on either side
 * An operation that fails may report that only then. Free memory that recorded work uses only after
 * dev_sync. */
enum status dev_graph_begin(struct stream *s);
/* dev_flush — submits the work that s has recorded; does not wait for it. */
enum status dev_flush(struct stream *s);

/* dev_leave_sms — makes matrix products of s leave `sms` multiprocessors to work of other streams
 * from now on, as far as the vendor's library can; 0: none. No effect on a host device. */
enum status dev_leave_sms(struct stream *s, int sms);

/* dev_read_async — copies from device memory to dev_pin memory as a part of recorded work (dev_copy
 * would flush it). `pinned` is valid when an event that was recorded later is reached. */
enum status dev_read_async(struct stream *s, void *pinned, const void *src, size_t bytes);

/* ---- times of operations ----
 * On a host device they do nothing. */

/* dev_times_begin — measures the time of each operation, fill and copy of s on the device from now
 * on, and logs a table when s is closed. Results are the same. s must not record work
 * (dev_graph_begin); it submits operations one by one. */
enum status dev_times_begin(struct stream *s);
/* dev_times_step — ends a step: times are logged per step. Blocks until the work of s is done, if
 * times are measured. */
enum status dev_times_step(struct stream *s);

/* ---- the time that a stream's own work needs ----
 * It is measured between dev_busy_begin and dev_busy_end, without the waits for other ranks, which
 * dev_busy_pause and dev_busy_resume enclose: on a discrete device by events in the stream, so that
 * the host never waits, else by the host's clock. */

/* dev_busy_begin — measures the work that is submitted to s from now on. */
enum status dev_busy_begin(struct stream *s);
/* dev_busy_end — ends the measurement of dev_busy_begin. */
enum status dev_busy_end(struct stream *s);
/* dev_busy_pause — leaves out the time until dev_busy_resume. Call it before a wait. No effect if
 * nothing is measured; so has dev_busy_resume. */
enum status dev_busy_pause(struct stream *s);
enum status dev_busy_resume(struct stream *s);
/* dev_busy_ms — returns the milliseconds that were measured since the last call. Does not wait:
 * work that is not done yet counts in a later call. */
enum status dev_busy_ms(struct stream *s, double *out);

#endif

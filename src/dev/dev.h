/* dev — where numbers live: one device's memory, copies and streams behind a table of functions.
 *
 * A stream is an order of work: operations and copies given to one stream happen in that order;
 * dev_stream_wait_stream orders two streams. On a CPU a stream does its work before the call
 * returns, which is a valid (if strict) order. Must not know tensors' meaning, models or peers. */
#ifndef CONVOY_DEV_DEV_H
#define CONVOY_DEV_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "dev/op.h"

enum dev_kind { DEV_KIND_CPU, DEV_KIND_CUDA };

struct dev;       /* begins with struct dev_head, owned by its dev_*.c */
struct stream;    /* begins with struct stream_head */
struct dev_event; /* a place in a stream's order of work */

struct dev_info {
    enum dev_kind kind;
    char name[64];        /* "cpu 2 threads amx" */
    int64_t memory_bytes; /* of the device; -1 unknown */
    int64_t free_bytes;   /* of it, now; -1 unknown: base/memory.h knows the host's */
    /* Of dense products a second, of f32 tensors as the device takes them (tf32 where it was opened
     * so), and of 16-bit floats. A CPU's best level, measured at open (a few ms); a GPU's data
     * sheet. 0: unknown, or it has none. */
    double peak_flops, peak_flops_16;
    int threads_n;
    char bus[24]; /* where it is plugged in, as PCI writes it: "0000:3b:00.0"; "": nowhere */
};

/* Every entry may block only as said. Allocation happens before training only. */
struct dev_ops {
    const char *name;
    void (*close)(struct dev *dev);
    void (*info)(const struct dev *dev, struct dev_info *out);
    /* zeroed, 64-byte aligned, touched (resident) */
    enum status (*alloc)(struct dev *dev, size_t bytes, void **out);
    void (*free)(struct dev *dev, void *data, size_t bytes);
    enum status (*stream_open)(struct dev *dev, struct stream **out);
    void (*stream_close)(struct stream *s);
    /* either side host or device */
    enum status (*copy)(struct stream *s, void *dst, const void *src, size_t bytes);
    enum status (*fill)(struct stream *s, void *dst, int byte, size_t bytes);
    /* late's next work waits for early's work so far */
    enum status (*after)(struct stream *late, struct stream *early);
    /* blocks the host until s has done all */
    enum status (*sync)(struct stream *s);
    /* A device whose memory is apart from the host's also has these; all NULL: it is not. As the
     * public calls. */
    enum status (*enter)(struct dev *dev);
    bool (*holds)(const struct dev *dev, const void *data);
    enum status (*pin)(struct dev *dev, size_t bytes, void **out);
    void (*unpin)(struct dev *dev, void *data);
    enum status (*idle)(struct stream *s, bool *out);
    void *(*handle)(struct stream *s);
    enum status (*mark)(struct stream *s, struct dev_event **mark);
    enum status (*wait)(struct stream *s, struct dev_event *mark);
    void (*unmark)(struct dev *dev, struct dev_event *mark);
    enum status (*collect)(struct stream *s); /* these two NULL: work begins at once */
    enum status (*begin)(struct stream *s);
    /* these three NULL: a copy, */
    enum status (*bring)(struct stream *s, void *pinned, const void *src, size_t bytes);
    /* nothing, */
    enum status (*note)(struct stream *s);
    enum status (*await)(struct stream *s); /* sync */
};

struct dev_head {
    const struct dev_ops *ops;
    const struct op_table *op;
};
struct stream_head {
    struct dev *dev;
};

/* dev_cpu_open — threads_n threads (0: all cores this process may use). level: CPU_ISA_N chooses
 * the best this machine has; a level it has not is ST_NO_DEVICE. */
enum status dev_cpu_open(int threads_n, int level, struct dev **out);

/* The public calls: checks, then the table. */
void dev_close(struct dev *dev); /* accepts NULL */
void dev_info(const struct dev *dev, struct dev_info *out);
const struct op_table *dev_op(const struct dev *dev);
enum status dev_alloc(struct dev *dev, size_t bytes, void **out);
void dev_free(struct dev *dev, void *data, size_t bytes);
enum status dev_stream_open(struct dev *dev, struct stream **out);
void dev_stream_close(struct stream *s); /* accepts NULL */
enum status dev_copy(struct stream *s, void *dst, const void *src, size_t bytes);
enum status dev_fill(struct stream *s, void *dst, int byte, size_t bytes);
enum status dev_stream_wait_stream(struct stream *late, struct stream *early);
enum status dev_sync(struct stream *s);

/* dev_graph_begin — from now on s gathers its operations, and begins them together: at dev_flush,
 * and before all else that it is given or asked. On a GPU the same work asked for again then goes
 * as one CUDA graph (dev_cuda_graph.c). An operation that fails may say so only then; memory that
 * gathered work uses is freed after dev_sync. Elsewhere nothing changes: work begins at once. */
enum status dev_graph_begin(struct stream *s);
enum status dev_flush(struct stream *s);

/* A look at what s has done, while it goes on. dev_read_async: to memory of dev_pin, from the
 * device: unlike dev_copy a part of gathered work, so it costs no beginning of it. dev_note: the
 * place in s's order of work that dev_await blocks the host for; the newest counts. Then all is
 * there that was brought, and copied to memory of dev_pin, before it. dev_await begins what is
 * gathered. */
enum status dev_read_async(struct stream *s, void *pinned, const void *src, size_t bytes);
enum status dev_note(struct stream *s);
enum status dev_await(struct stream *s);

/* For who moves elements between devices (comm). dev_is_discrete: the host cannot read this
 * device's memory; NULL: it can. dev_make_current: before the first use of a device in a thread
 * that did not open it. dev_holds: does `data` lie in memory of dev_alloc? dev_pin: host memory
 * that copies reach without a detour: such a copy is under way until dev_sync or dev_stream_query,
 * and what it reads or writes belongs to it so long. dev_stream_query: has s done all? Never waits.
 * dev_handle: s as the maker's own libraries know it. dev_event_record: where s is now, into *mark,
 * which is made when it is NULL; dev_stream_wait: s's next work waits for what came before the
 * mark, as it is now (NULL: for nothing); from any thread. On a device that is not apart: nothing
 * to enter, false, ordinary memory, true, NULL, no marks. */
bool dev_is_discrete(const struct dev *dev);
enum status dev_make_current(struct dev *dev);
bool dev_holds(const struct dev *dev, const void *data);
enum status dev_pin(struct dev *dev, size_t bytes, void **out);
void dev_unpin(struct dev *dev, void *data); /* accepts NULL */
enum status dev_stream_query(struct stream *s, bool *out);
void *dev_handle(struct stream *s);
enum status dev_event_record(struct stream *s, struct dev_event **mark);
enum status dev_stream_wait(struct stream *s, struct dev_event *mark);
void dev_event_free(struct dev *dev, struct dev_event *mark); /* accepts NULL */

#endif

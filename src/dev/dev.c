/* dev — the public functions: they check arguments, then call the device's table. Must not know any
 * device. */
#include "dev/dev.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/text.h"

/* Every device, stream and event begins with its head; these are the only casts. */
static const struct dev_ops *ops_of(const struct dev *dev)
{
    ASSERT(dev != NULL);
    return ((const struct dev_head *)(const void *)dev)->ops;
}

static struct dev *owner_of(struct stream *s)
{
    ASSERT(s != NULL);
    return ((struct stream_head *)(void *)s)->dev;
}

void dev_close(struct dev *dev)
{
    if (dev)
        ops_of(dev)->close(dev);
}

void dev_info(const struct dev *dev, struct dev_info *out) { ops_of(dev)->info(dev, out); }

const char *dev_text_place(const struct dev *dev, char *out, size_t cap)
{
    struct dev_info info;
    char number[40] = "";
    dev_info(dev, &info);
    out[0] = 0;
    if (!dev_is_discrete(dev))
        return out;
    for (size_t i = 0; i < sizeof info.uuid; i++) /* groups of 4, 2, 2, 2 and 6 bytes */
        text_format(number + strlen(number), sizeof number - strlen(number), "%s%02x",
                    i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)info.uuid[i]);
    text_format(out, cap, "GPU-%s%s%s", number, info.bus[0] ? " at " : "", info.bus);
    return out;
}

const struct op_table *dev_op(const struct dev *dev)
{
    ASSERT(dev != NULL);
    return ((const struct dev_head *)(const void *)dev)->op;
}

enum status dev_alloc(struct dev *dev, size_t bytes, void **out)
{
    TRY(ops_of(dev)->alloc(dev, bytes, out));
    ASSERTF((uintptr_t)*out % 64 == 0, "%p", *out);
    return ST_OK;
}

void dev_free(struct dev *dev, void *data, size_t bytes)
{
    if (data)
        ops_of(dev)->free(dev, data, bytes);
}

enum status dev_stream_open(struct dev *dev, struct stream **out)
{
    TRY(ops_of(dev)->stream_open(dev, out));
    ASSERT(owner_of(*out) == dev);
    return ST_OK;
}

void dev_stream_close(struct stream *s)
{
    if (s)
        ops_of(owner_of(s))->stream_close(s);
}

enum status dev_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    if (bytes == 0)
        return ST_OK;
    ASSERT(dst != NULL && src != NULL);
    return ops_of(owner_of(s))->copy(s, dst, src, bytes);
}

enum status dev_fill(struct stream *s, void *dst, int byte, size_t bytes)
{
    if (bytes == 0)
        return ST_OK;
    ASSERT(dst != NULL);
    return ops_of(owner_of(s))->fill(s, dst, byte, bytes);
}

enum status dev_stream_wait_stream(struct stream *waiting, struct stream *first)
{
    ASSERT(owner_of(waiting) == owner_of(first));
    return ops_of(owner_of(waiting))->stream_wait_stream(waiting, first);
}

enum status dev_sync(struct stream *s) { return ops_of(owner_of(s))->sync(s); }

/* ---- functions of discrete devices only; on a host device, the answers that dev.h states ---- */

static const struct dev_async_ops *async_of(const struct dev *dev)
{
    ASSERT(dev != NULL);
    return ((const struct dev_head *)(const void *)dev)->async;
}

static const struct dev_async_ops *async_of_stream(struct stream *s)
{
    return async_of(owner_of(s));
}

bool dev_is_discrete(const struct dev *dev) { return dev && async_of(dev); }

enum status dev_make_current(struct dev *dev)
{
    return dev_is_discrete(dev) ? async_of(dev)->make_current(dev) : ST_OK;
}

bool dev_holds(const struct dev *dev, const void *data)
{
    return dev_is_discrete(dev) && async_of(dev)->holds(dev, data);
}

enum status dev_stream_open_high(struct dev *dev, struct stream **out)
{
    return dev_is_discrete(dev) ? async_of(dev)->stream_open_high(dev, out)
                                : dev_stream_open(dev, out);
}

enum status dev_adopt(struct dev *dev, void *data, size_t bytes)
{
    ASSERT(dev_is_discrete(dev) && data != NULL && bytes > 0);
    return async_of(dev)->adopt(dev, data, bytes);
}

void dev_disown(struct dev *dev, void *data) { async_of(dev)->disown(dev, data); }

enum status dev_pin(struct dev *dev, size_t bytes, void **out)
{
    if (dev_is_discrete(dev))
        return async_of(dev)->pin(dev, bytes, out);
    *out = malloc(bytes ? bytes : 1);
    return *out ? ST_OK
                : FAIL(memory_status((int64_t)bytes), "out of memory: %zu bytes of host memory",
                       bytes);
}

enum status dev_pin_mapping(struct dev *dev, void *data, size_t bytes)
{
    ASSERT(dev_is_discrete(dev) && data != NULL && bytes > 0);
    return async_of(dev)->pin_mapping(dev, data, bytes);
}

void dev_unpin(struct dev *dev, void *data)
{
    if (!data)
        return;
    if (dev_is_discrete(dev))
        async_of(dev)->unpin(dev, data);
    else
        free(data);
}

enum status dev_stream_query(struct stream *s, bool *out)
{
    const struct dev_async_ops *async = async_of_stream(s);
    *out = true;
    return async ? async->stream_query(s, out) : ST_OK;
}

void *dev_stream_handle(struct stream *s)
{
    const struct dev_async_ops *async = async_of_stream(s);
    return async ? async->stream_handle(s) : NULL;
}

enum status dev_event_record(struct stream *s, struct dev_event **event)
{
    const struct dev_async_ops *async = async_of_stream(s);
    return async ? async->event_record(s, event) : ST_OK;
}

static const struct dev_async_ops *async_of_event(const struct dev_event *event)
{
    return async_of(((const struct dev_event_head *)(const void *)event)->dev);
}

void dev_event_free(struct dev_event *event)
{
    if (event)
        async_of_event(event)->event_free(event);
}

enum status dev_stream_wait(struct stream *s, struct dev_event *event)
{
    return event ? async_of_stream(s)->stream_wait(s, event) : ST_OK;
}

enum status dev_event_sync(struct dev_event *event)
{
    return event ? async_of_event(event)->event_sync(event) : ST_OK;
}

enum status dev_event_query(struct dev_event *event, bool *out)
{
    *out = true;
    return event ? async_of_event(event)->event_query(event, out) : ST_OK;
}

enum status dev_graph_begin(struct stream *s)
{
    const struct dev_async_ops *async = async_of_stream(s);
    return async ? async->graph_begin(s) : ST_OK;
}

enum status dev_leave_sms(struct stream *s, int sms)
{
    const struct dev_async_ops *async = async_of_stream(s);
    return async ? async->leave_sms(s, sms) : ST_OK;
}

enum status dev_flush(struct stream *s)
{
    const struct dev_async_ops *async = async_of_stream(s);
    return async ? async->flush(s) : ST_OK;
}

enum status dev_read_async(struct stream *s, void *pinned, const void *src, size_t bytes)
{
    const struct dev_async_ops *async = async_of_stream(s);
    return async ? async->read_async(s, pinned, src, bytes) : dev_copy(s, pinned, src, bytes);
}

enum status dev_times_begin(struct stream *s)
{
    const struct dev_async_ops *async = async_of_stream(s);
    return async ? async->times_begin(s) : ST_OK;
}

enum status dev_times_step(struct stream *s)
{
    const struct dev_async_ops *async = async_of_stream(s);
    return async ? async->times_step(s) : ST_OK;
}

/* ---- the time that a stream's own work needs ---- */

static struct stream_head *head_of(struct stream *s)
{
    ASSERT(s != NULL);
    return (struct stream_head *)(void *)s;
}

/* set_busy — Changes the state of the measurement, which marks the begin or the end of a span. */
static enum status set_busy(struct stream *s, int state)
{
    struct stream_head *head = head_of(s);
    const struct dev_async_ops *async = async_of(head->dev);
    const bool is_begin = state == DEV_BUSY_ON, is_end = !is_begin && head->busy == DEV_BUSY_ON;
    head->busy = state;
    if (!is_begin && !is_end)
        return ST_OK;
    if (async)
        return async->busy_mark(s, is_begin);
    const int64_t now_ns = clock_ns();
    head->busy_ms += is_end ? (double)(now_ns - head->busy_since_ns) * 1e-6 : 0;
    head->busy_since_ns = now_ns;
    return ST_OK;
}

enum status dev_busy_begin(struct stream *s) { return set_busy(s, DEV_BUSY_ON); }
enum status dev_busy_end(struct stream *s) { return set_busy(s, DEV_BUSY_OFF); }

enum status dev_busy_pause(struct stream *s)
{
    return head_of(s)->busy == DEV_BUSY_ON ? set_busy(s, DEV_BUSY_PAUSED) : ST_OK;
}

enum status dev_busy_resume(struct stream *s)
{
    return head_of(s)->busy == DEV_BUSY_PAUSED ? set_busy(s, DEV_BUSY_ON) : ST_OK;
}

enum status dev_busy_ms(struct stream *s, double *out)
{
    struct stream_head *head = head_of(s);
    const struct dev_async_ops *async = async_of(head->dev);
    if (async)
        return async->busy_ms(s, out);
    *out = head->busy_ms;
    head->busy_ms = 0;
    return ST_OK;
}

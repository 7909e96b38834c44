/* dev — the public calls: check the border, then the device's table. Must not know any device. */
#include "dev/dev.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/assert.h"

/* Every device and stream begins with its head; these are the only casts. */
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

enum status dev_stream_wait_stream(struct stream *late, struct stream *early)
{
    ASSERT(owner_of(late) == owner_of(early));
    return ops_of(owner_of(late))->after(late, early);
}

enum status dev_sync(struct stream *s) { return ops_of(owner_of(s))->sync(s); }

enum status dev_graph_begin(struct stream *s)
{
    const struct dev_ops *ops = ops_of(owner_of(s));
    return ops->collect ? ops->collect(s) : ST_OK;
}

enum status dev_flush(struct stream *s)
{
    const struct dev_ops *ops = ops_of(owner_of(s));
    return ops->begin ? ops->begin(s) : ST_OK;
}

enum status dev_read_async(struct stream *s, void *pinned, const void *src, size_t bytes)
{
    const struct dev_ops *ops = ops_of(owner_of(s));
    return ops->bring ? ops->bring(s, pinned, src, bytes) : dev_copy(s, pinned, src, bytes);
}

enum status dev_note(struct stream *s)
{
    const struct dev_ops *ops = ops_of(owner_of(s));
    return ops->note ? ops->note(s) : ST_OK;
}

enum status dev_await(struct stream *s)
{
    const struct dev_ops *ops = ops_of(owner_of(s));
    return ops->await ? ops->await(s) : ops->sync(s);
}

bool dev_is_discrete(const struct dev *dev) { return dev && ops_of(dev)->holds; }

enum status dev_make_current(struct dev *dev)
{
    return dev_is_discrete(dev) ? ops_of(dev)->enter(dev) : ST_OK;
}

bool dev_holds(const struct dev *dev, const void *data)
{
    return dev_is_discrete(dev) && ops_of(dev)->holds(dev, data);
}

enum status dev_pin(struct dev *dev, size_t bytes, void **out)
{
    if (dev_is_discrete(dev))
        return ops_of(dev)->pin(dev, bytes, out);
    *out = malloc(bytes ? bytes : 1);
    return *out ? ST_OK
                : FAIL(memory_status((int64_t)bytes), "out of memory: %zu bytes of host memory",
                       bytes);
}

void dev_unpin(struct dev *dev, void *data)
{
    if (!data)
        return;
    if (dev_is_discrete(dev))
        ops_of(dev)->unpin(dev, data);
    else
        free(data);
}

enum status dev_stream_query(struct stream *s, bool *out)
{
    *out = true;
    return dev_is_discrete(owner_of(s)) ? ops_of(owner_of(s))->idle(s, out) : ST_OK;
}

void *dev_handle(struct stream *s)
{
    return dev_is_discrete(owner_of(s)) ? ops_of(owner_of(s))->handle(s) : NULL;
}

enum status dev_event_record(struct stream *s, struct dev_event **mark)
{
    return dev_is_discrete(owner_of(s)) ? ops_of(owner_of(s))->mark(s, mark) : ST_OK;
}

enum status dev_stream_wait(struct stream *s, struct dev_event *mark)
{
    return mark ? ops_of(owner_of(s))->wait(s, mark) : ST_OK;
}

void dev_event_free(struct dev *dev, struct dev_event *mark)
{
    if (mark)
        ops_of(dev)->unmark(dev, mark);
}

/* dev_dry — see dev_dry.h. */
#include "dev/dev_dry.h"

#define ADDRESS ((uintptr_t)1 << 44) /* offsets from it stay below the end of user space */

static struct dev_dry *dry_of(struct stream *s)
{
    return (struct dev_dry *)(void *)((struct stream_head *)(void *)s)->dev;
}

#define DRY_ENTRY(name)                                                   \
    static enum status dry_##name(struct stream *s, const struct name *a) \
    {                                                                     \
        dry_of(s)->on_op(dry_of(s)->arg, OP_KIND_##name, a);              \
        return ST_OK;                                                     \
    }
OP_LIST(DRY_ENTRY)
#undef DRY_ENTRY

static enum status dry_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    (void)s, (void)dst, (void)src, (void)bytes;
    return ST_OK;
}

static enum status dry_fill(struct stream *s, void *dst, int byte, size_t bytes)
{
    (void)s, (void)dst, (void)byte, (void)bytes;
    return ST_OK;
}

static enum status dry_sync(struct stream *s)
{
    (void)s;
    return ST_OK;
}

void dev_dry_init(struct dev_dry *out, void (*on_op)(void *arg, enum op_kind op, const void *args),
                  void *arg)
{
    static const struct dev_ops ops = {
        .name = "dry", .copy = dry_copy, .fill = dry_fill, .sync = dry_sync};
#define DRY_ROW(name) .name = dry_##name,
    static const struct op_table table = {OP_LIST(DRY_ROW)};
#undef DRY_ROW
    *out = (struct dev_dry){.head = {.ops = &ops, .op = &table}, .on_op = on_op, .arg = arg};
    out->stream.dev = dev_dry_dev(out);
}

struct dev *dev_dry_dev(struct dev_dry *dry) { return (struct dev *)(void *)dry; }
struct stream *dev_dry_stream(struct dev_dry *dry) { return (struct stream *)(void *)&dry->stream; }
void *dev_dry_address(void) { return (void *)ADDRESS; }
struct tensor dev_dry_tensor(enum dtype dtype) { return (struct tensor){(void *)ADDRESS, dtype}; }

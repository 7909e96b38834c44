/* dev_dry — a device that computes nothing and has no memory: a function is told of its operations.
 * Code that is given its table and its stream can be counted without being run.
 *
 * Fills and copies do nothing. Addresses are never read or written. Must not know what is
 * counted. */
#ifndef CONVOY_DEV_DEV_DRY_H
#define CONVOY_DEV_DEV_DRY_H

#include "dev/dev.h"
#include "dev/op_cost.h"

struct dev_dry {
    struct dev_head head;
    struct stream_head stream;
    void (*on_op)(void *arg, enum op_kind op, const void *args); /* args: as op_cost's */
    void *arg;
};

/* dev_dry_init — *out stays where it is while it is used; there is nothing to close.
 * dev_dry_dev, dev_dry_stream — it, as others take it. dev_make_current, dev_sync, dev_fill and
 * dev_copy are all that it has besides operations; it counts as a host device. */
void dev_dry_init(struct dev_dry *out, void (*on_op)(void *arg, enum op_kind op, const void *args),
                  void *arg);
struct dev *dev_dry_dev(struct dev_dry *dry);
struct stream *dev_dry_stream(struct dev_dry *dry);

/* dev_dry_address — where memory of a dry device begins: aligned, as large as wanted.
 * dev_dry_tensor — a tensor there. */
void *dev_dry_address(void);
struct tensor dev_dry_tensor(enum dtype dtype);

#endif

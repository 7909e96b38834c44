/* dev_dry — a device that computes nothing and has no memory: it calls a function for each
 * operation. Code that gets the table and the stream of this device can be counted without being
 * run.
 *
 * Fills and copies do nothing. Addresses are never read or written. Must not know the purpose of
 * the count. */
#ifndef CONVOY_DEV_DEV_DRY_H
#define CONVOY_DEV_DEV_DRY_H

#include "dev/dev.h"
#include "dev/op_cost.h"

struct dev_dry {
    struct dev_head head;
    struct stream_head stream;
    void (*on_op)(void *arg, enum op_kind op, const void *args); /* args: as for op_cost */
    void *arg;
};

/* dev_dry_init — sets up *out, which must not be moved while it is used; there is nothing to close.
 * It has dev_make_current, dev_sync, dev_fill, dev_copy and the operations, and counts as a host
 * device. */
void dev_dry_init(struct dev_dry *out, void (*on_op)(void *arg, enum op_kind op, const void *args),
                  void *arg);
/* dev_dry_dev — returns the device; valid as long as *dry. */
struct dev *dev_dry_dev(struct dev_dry *dry);
/* dev_dry_stream — returns the device's only stream; valid as long as *dry. */
struct stream *dev_dry_stream(struct dev_dry *dry);

/* dev_dry_address — returns the first address of a dry device's memory: aligned, as large as
 * wanted. */
void *dev_dry_address(void);
/* dev_dry_tensor — returns a tensor there. */
struct tensor dev_dry_tensor(enum dtype dtype);

#endif

/* op — the table of operations of a device: one function per row of kernels/op_list.h.
 *
 * Contracts are in the kernels' headers. An entry checks needs and dtypes (ST_BUG with the values
 * when not met), never allocates, and runs on its stream. NULL: this device cannot; refused at
 * start-up, never half-way. */
#ifndef CONVOY_DEV_OP_H
#define CONVOY_DEV_OP_H

#include "base/status.h"
#include "kernels/op_list.h"

struct stream;

struct op_table {
#define OP_ENTRY(name) enum status (*name)(struct stream * s, const struct name *a);
    OP_LIST(OP_ENTRY)
#undef OP_ENTRY
};

#endif

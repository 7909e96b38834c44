/* op — the operations of a device: one function for each row of kernels/op_list.h.
 *
 * The contract of an operation is in the header of its kernel. An entry checks shapes, element
 * types and addresses (ST_BUG, with the values), never allocates, and submits its work to the
 * stream. NULL: this device does not have the operation; the program refuses it at start, never in
 * a step. Must not know which device fills the table. */
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

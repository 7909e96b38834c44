/* op_cost — the least work of an operation: floating-point operations, and bytes of device memory
 * when every input is read once and every output is written once.
 *
 * Tables report times of operations as shares of this least work, and the tests compare the bytes
 * that a kernel moves with it. Must not know devices or how a kernel works. */
#ifndef CONVOY_DEV_OP_COST_H
#define CONVOY_DEV_OP_COST_H

#include "kernels/op_list.h"

/* The operations as numbers, in the order of OP_LIST. */
enum op_kind {
#define OP_KIND_ENTRY(name) OP_KIND_##name,
    OP_LIST(OP_KIND_ENTRY)
#undef OP_KIND_ENTRY
        OP_KIND_N
};

/* flops: FLOPs of products and sums of products; a multiply-add counts 2. 0: memory limits the
 * operation. bytes_read, bytes_written: distinct bytes, an i/o tensor counts in both. If the
 * contents of a tensor decide, the most is counted: all tokens and all targets differ and none is
 * ignored, no key is masked. */
struct op_cost {
    int64_t flops, bytes_read, bytes_written;
};

/* op_cost — computes the cost of operation `op` with these arguments: a struct of the operation's
 * name. For arguments that dev_check refuses, the cost has no meaning. Returns false if op is no
 * operation. Both functions are for tests and for tables of times. */
bool op_cost(enum op_kind op, const void *args, struct op_cost *out);
/* op_cost_name — returns the operation's name. */
const char *op_cost_name(enum op_kind op);

#endif

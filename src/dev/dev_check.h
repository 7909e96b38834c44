/* dev_check — checks the contract of every operation before a kernel runs: required tensors,
 * element types, bounds of sizes. A broken contract is a bug of the caller: ST_BUG, with the
 * values.
 *
 * accepts_halves: the device also accepts bf16 and f16 for most tensors; its launchers then refuse
 * types that do not go together. Otherwise a tensor is f32, unless its contract states another
 * type. Must not know devices. */
#ifndef CONVOY_DEV_DEV_CHECK_H
#define CONVOY_DEV_DEV_CHECK_H

#include "base/status.h"
#include "kernels/op_list.h"

#define DEV_CHECK_DECLARE(name) \
    enum status dev_check_##name(const struct name *a, bool accepts_halves);
OP_LIST(DEV_CHECK_DECLARE)
#undef DEV_CHECK_DECLARE

#endif

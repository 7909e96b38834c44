/* dev_check — the needs of every operation, checked before a kernel of any device runs: which
 * tensors must be there, their element types, the bounds of sizes. A need that is not met is a bug
 * of the caller (ST_BUG, with the values). Where a contract says nothing of types, tensors are f32;
 * on a device that takes_halves most may also be bf16 or f16, and its launchers refuse what does
 * not go together. */
#ifndef CONVOY_DEV_DEV_CHECK_H
#define CONVOY_DEV_DEV_CHECK_H

#include "base/status.h"
#include "kernels/op_list.h"

#define DEV_CHECK_DECLARE(name) \
    enum status dev_check_##name(const struct name *a, bool takes_halves);
OP_LIST(DEV_CHECK_DECLARE)
#undef DEV_CHECK_DECLARE

#endif

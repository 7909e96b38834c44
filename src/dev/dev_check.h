/* dev_check — the needs of every operation, checked before a kernel of any device runs: which tensors must be there,
 * their element types, the bounds of sizes. A need that is not met is a bug of the caller (ST_BUG, with the values). */
#ifndef CONVOY_DEV_DEV_CHECK_H
#define CONVOY_DEV_DEV_CHECK_H

#include "base/status.h"
#include "kernels/op_list.h"

#define DEV_CHECK_DECLARE(name) enum status dev_check_##name(const struct name *a);
OP_LIST(DEV_CHECK_DECLARE)
#undef DEV_CHECK_DECLARE

#endif

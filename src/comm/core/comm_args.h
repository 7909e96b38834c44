/* comm_args — checks the arguments of a call before a transport sees them. Each check returns
 * ST_OK, or ST_BUG with a message that begins with the call's name. Must not know what a call
 * does. */
#ifndef CONVOY_COMM_COMM_ARGS_H
#define CONVOY_COMM_COMM_ARGS_H

#include "comm/core/transport.h"

#define COMM_ARGS_ELEMS_MAX (INT64_MAX >> 16) /* so that byte counts cannot overflow */

enum status comm_args_check_elems(const char *name, enum dtype dtype, int64_t elems,
                                  const void *data);
/* comm_args_check_buffers — the two buffers of a collective: `outs` and `ins` are the elements that
 * this rank's buffers hold. */
enum status comm_args_check_buffers(enum comm_call_kind kind, struct tensor out, int64_t outs,
                                    struct tensor in, int64_t ins);
enum status comm_args_check_peer(const struct comm_place *place, const char *name, int peer,
                                 bool may_be_self);

#endif

/* comm_args — the arguments of the calls of comm.h. */
#include "comm/core/comm_args.h"

#include "base/assert.h"

enum status comm_args_check_elems(const char *name, enum dtype dtype, int64_t elems,
                                  const void *data)
{
    if (elems < 0 || elems > COMM_ARGS_ELEMS_MAX || (unsigned)dtype >= DTYPE_N)
        return FAIL(ST_BUG, "%s of %lld elements of dtype %d", name, (long long)elems, (int)dtype);
    if (elems > 0 && data == NULL)
        return FAIL(ST_BUG, "%s of %lld elements from or to nowhere", name, (long long)elems);
    return ST_OK;
}

enum status comm_args_check_buffers(enum comm_call_kind kind, struct tensor out, int64_t outs,
                                    struct tensor in, int64_t ins)
{
    const char *name = transport_call_name(kind);
    TRY(comm_args_check_elems(name, in.dtype, ins, in.data));
    TRY(comm_args_check_elems(name, out.dtype, outs, out.data));
    if (out.dtype != in.dtype)
        return FAIL(ST_BUG, "%s from dtype %d to dtype %d", name, (int)in.dtype, (int)out.dtype);
    if (kind != COMM_CALL_ALL_GATHER && kind != COMM_CALL_ALL_TO_ALL &&
        !(in.dtype == DTYPE_F32 || in.dtype == DTYPE_F64 || in.dtype == DTYPE_BF16 ||
          in.dtype == DTYPE_F16))
        return FAIL(ST_BUG, "%s of dtype %d: sums are of F32, F64, BF16 and F16", name,
                    (int)in.dtype);
    return ST_OK;
}

enum status comm_args_check_peer(const struct comm_place *place, const char *name, int peer,
                                 bool may_be_self)
{
    if (peer < 0 || peer >= place->ranks || (!may_be_self && peer == place->rank))
        return FAIL(ST_BUG, "%s of rank %d with rank %d of %d", name, place->rank, peer,
                    place->ranks);
    return ST_OK;
}

/* comm_record — which call a rank is in: written by the thread that executes the call, readable
 * from any thread without a lock. Must not know what a call does. */
#ifndef CONVOY_COMM_COMM_RECORD_H
#define CONVOY_COMM_COMM_RECORD_H

#include "comm/core/transport.h"

/* A seqlock: `version` is odd while the fields change. */
struct comm_record {
    _Atomic uint32_t version;
    atomic_int kind;
    _Atomic int64_t sequence, entered_ns, elems;
};

/* comm_record_write — kind NONE: the call has ended; at_ns: when this happened. One writer at a
 * time.
 * comm_record_read — a consistent copy; retries while the record changes. */
void comm_record_write(struct comm_record *record, const struct comm_call *call,
                       enum comm_call_kind kind, int64_t at_ns);
void comm_record_read(const struct comm_record *record, struct comm_activity *out);

#endif

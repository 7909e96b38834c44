/* comm_record — a seqlock around the call under way. */
#include "comm/core/comm_record.h"

#include "base/text.h"

void comm_record_write(struct comm_record *record, const struct comm_call *call,
                       enum comm_call_kind kind, int64_t at_ns)
{
    /* one writer: no locked instruction; each release below keeps the odd version before it */
    const uint32_t version = atomic_load_explicit(&record->version, memory_order_relaxed);
    atomic_store_explicit(&record->version, version + 1, memory_order_relaxed);
    atomic_store_explicit(&record->kind, (int)kind, memory_order_release);
    atomic_store_explicit(&record->sequence, call->recorded, memory_order_release);
    atomic_store_explicit(&record->entered_ns, at_ns, memory_order_release);
    atomic_store_explicit(&record->elems, call->elems, memory_order_release);
    atomic_store_explicit(&record->version, version + 2, memory_order_release);
}

void comm_record_read(const struct comm_record *record, struct comm_activity *out)
{
    /* atomic_load takes no pointer to const */
    struct comm_record *from = (struct comm_record *)(uintptr_t)record;
    enum comm_call_kind kind;
    uint32_t before, after;
    do {
        before = atomic_load_explicit(&from->version, memory_order_acquire);
        kind = (enum comm_call_kind)atomic_load_explicit(&from->kind, memory_order_acquire);
        out->sequence = atomic_load_explicit(&from->sequence, memory_order_acquire);
        out->entered_ms = atomic_load_explicit(&from->entered_ns, memory_order_acquire) / 1000000;
        out->elems = atomic_load_explicit(&from->elems, memory_order_acquire);
        after = atomic_load_explicit(&from->version, memory_order_acquire);
    } while (before != after || before % 2 != 0);
    text_copy(out->call, sizeof(out->call), transport_call_name(kind));
}

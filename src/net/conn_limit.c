/* conn_limit — see conn_limit.h. */
#include "net/conn_limit.h"

static bool is_here_silent(const struct conn_limit_slot *slot)
{
    return slot->is_silent && !slot->is_evicted;
}

/* Returns the first slot of the same address, found in the chain of its hash. The slots hold the
 * hash table themselves: thousands of connections must not be compared with each other. */
static int first_of(struct conn_limit_slot *slots, int n, int i)
{
    const uint64_t hash = slots[i].from * 0x9E3779B97F4A7C15u;
    struct conn_limit_slot *bucket = &slots[(hash >> 32) % (uint64_t)n];
    for (int k = bucket->chain_first; k >= 0; k = slots[k].chain_next)
        if (slots[k].from == slots[i].from)
            return k;
    slots[i].chain_next = bucket->chain_first;
    bucket->chain_first = i;
    return i;
}

/* Returns true if `one` is evicted before `other`. */
static bool is_before(const struct conn_limit_slot *slots, const struct conn_limit_slot *one,
                      const struct conn_limit_slot *other)
{
    const struct conn_limit_slot *mine = &slots[one->first], *theirs = &slots[other->first];
    if (one->is_silent != other->is_silent)
        return one->is_silent;
    if (one->is_silent && mine->overdue_n != theirs->overdue_n)
        return mine->overdue_n > theirs->overdue_n;
    if (one->is_silent && mine->silent_n != theirs->silent_n)
        return mine->silent_n > theirs->silent_n;
    return one->since_ms < other->since_ms;
}

static int find_next(const struct conn_limit_slot *slots, int n)
{
    int next = -1;
    for (int i = 0; i < n; i++)
        if (!slots[i].is_evicted && (next < 0 || is_before(slots, &slots[i], &slots[next])))
            next = i;
    return next;
}

int conn_limit_evict(struct conn_limit_slot *slots, int n, int slots_max, int per_address_max)
{
    int here = 0, out = 0;
    /* Sets `first` of all slots, and the counts of each address in its first slot. */
    for (int i = 0; i < n; i++) {
        slots[i].chain_first = -1;
        slots[i].silent_n = slots[i].overdue_n = 0;
    }
    for (int i = 0; i < n; i++) {
        slots[i].first = first_of(slots, n, i);
        struct conn_limit_slot *first = &slots[slots[i].first];
        first->silent_n += is_here_silent(&slots[i]);
        first->overdue_n += is_here_silent(&slots[i]) && !slots[i].is_new;
    }
    for (int i = 0; i < n; i++)
        here += !slots[i].is_evicted;
    for (int next; (next = find_next(slots, n)) >= 0; out++, here--) {
        struct conn_limit_slot *slot = &slots[next], *first = &slots[slot->first];
        bool is_one_too_many = slot->is_silent && first->overdue_n > per_address_max;
        if (here <= slots_max && !is_one_too_many)
            break;
        slot->is_evicted = true;
        first->silent_n -= slot->is_silent;
        first->overdue_n -= slot->is_silent && !slot->is_new;
    }
    return out;
}

int conn_limit_busiest(const struct conn_limit_slot *slots, int n, int *held_out)
{
    int most = -1;
    *held_out = 0;
    for (int i = 0; i < n; i++) {
        int held = 0;
        for (int k = i; k < n; k++)
            held += slots[k].from == slots[i].from;
        if (held > *held_out) {
            *held_out = held;
            most = i;
        }
    }
    return most;
}

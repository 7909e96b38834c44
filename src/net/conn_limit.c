/* conn_limit — see conn_limit.h. */
#include "net/conn_limit.h"

static bool is_here_silent(const struct conn_limit_slot *slot)
{
    return slot->is_silent && !slot->is_evicted;
}

static void count_address(const struct conn_limit_slot *slots, int n, struct conn_limit_slot *slot)
{
    slot->silent_n = slot->overdue_n = 0;
    for (int i = 0; i < n; i++) {
        bool is_one = is_here_silent(&slots[i]) && slots[i].from == slot->from;
        slot->silent_n += is_one;
        slot->overdue_n += is_one && !slots[i].is_new;
    }
}

/* is_before — is this one evicted before the other? */
static bool is_before(const struct conn_limit_slot *one, const struct conn_limit_slot *other)
{
    if (one->is_silent != other->is_silent)
        return one->is_silent;
    if (one->is_silent && one->overdue_n != other->overdue_n)
        return one->overdue_n > other->overdue_n;
    if (one->is_silent && one->silent_n != other->silent_n)
        return one->silent_n > other->silent_n;
    return one->since_ms < other->since_ms;
}

static int find_next(const struct conn_limit_slot *slots, int n)
{
    int next = -1;
    for (int i = 0; i < n; i++)
        if (!slots[i].is_evicted && (next < 0 || is_before(&slots[i], &slots[next])))
            next = i;
    return next;
}

static void evict(struct conn_limit_slot *slots, int n, int which)
{
    slots[which].is_evicted = true;
    for (int i = 0; slots[which].is_silent && i < n; i++) {
        bool is_one = slots[i].from == slots[which].from;
        slots[i].silent_n -= is_one;
        slots[i].overdue_n -= is_one && !slots[which].is_new;
    }
}

int conn_limit_evict(struct conn_limit_slot *slots, int n, int slots_max, int per_address_max)
{
    int here = 0, out = 0;
    for (int i = 0; i < n; i++) {
        here += !slots[i].is_evicted;
        count_address(slots, n, &slots[i]);
    }
    for (int next; (next = find_next(slots, n)) >= 0; out++, here--) {
        bool is_one_too_many = slots[next].is_silent && slots[next].overdue_n > per_address_max;
        if (here <= slots_max && !is_one_too_many)
            break;
        evict(slots, n, next);
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

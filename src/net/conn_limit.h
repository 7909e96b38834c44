/* conn_limit — which connections lose their slots when more wait at a door than have room: those
 * that have said nothing before those that have, of the address that holds the most, oldest first.
 * Pure. Must not know sockets. */
#ifndef CONVOY_NET_CONN_LIMIT_H
#define CONVOY_NET_CONN_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct conn_limit_slot {
    uint64_t from; /* the address, as a number: equal is the same */
    int64_t since_ms;
    bool is_silent; /* nothing of use has come from it */
    /* it had no time yet to say anything: the cap of its address does not count it */
    bool is_new;
    bool is_evicted; /* out: it loses its slot; in: it has lost it already */
    int silent_n;    /* conn_limit_evict's own: silent ones of this address */
    int overdue_n;   /* conn_limit_evict's own: those of them that are not new */
};

/* conn_limit_evict — marks those that go (is_evicted) until slots_max are left, and per_address_max
 * silent ones of any address that are not new. Returns how many were marked. */
int conn_limit_evict(struct conn_limit_slot *slots, int n, int slots_max, int per_address_max);

/* conn_limit_busiest — the first slot of the address that holds the most of them; -1: there is
 * none. How many it holds in *held_out. */
int conn_limit_busiest(const struct conn_limit_slot *slots, int n, int *held_out);

#endif

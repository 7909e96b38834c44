/* conn_limit — chooses the connections to evict if there are too many: silent connections before
 * others, first from the address that holds the most, then the oldest. Pure functions; it must not
 * know sockets. */
#ifndef CONVOY_NET_CONN_LIMIT_H
#define CONVOY_NET_CONN_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct conn_limit_slot {
    uint64_t from; /* its address as a number, by listener_peer_network */
    int64_t since_ms;
    bool is_silent;  /* it has sent no useful bytes */
    bool is_new;     /* too young to have sent anything: per_address_max does not count it */
    bool is_evicted; /* in: evicted before; out: evicted by this call too */
    /* internal: the first slot of this address; in that slot the counts of its silent connections,
     * and of the silent ones that are not new; a hash table of addresses in chains */
    int first, silent_n, overdue_n, chain_first, chain_next;
};

/* conn_limit_evict — sets is_evicted until at most slots_max connections are left, and at most
 * per_address_max silent ones of each address that are not new. Returns the number that were
 * set. */
int conn_limit_evict(struct conn_limit_slot *slots, int n, int slots_max, int per_address_max);

/* conn_limit_busiest — returns the first slot of the address that holds the most connections, and
 * in *held_out their number; -1: n is 0. */
int conn_limit_busiest(const struct conn_limit_slot *slots, int n, int *held_out);

#endif

/* crowd — which connections lose their places when more wait at a door than have room: those that
 * have said nothing before those that have, of the address that holds the most, oldest first. Pure.
 * Must not know sockets. */
#ifndef CONVOY_MEET_CROWD_H
#define CONVOY_MEET_CROWD_H

#include <stdbool.h>
#include <stdint.h>

struct crowd_place {
    uint64_t from; /* the address, as a number: equal is the same */
    int64_t since_ms;
    bool is_silent; /* nothing of use has come from it */
    /* it had no time yet to say anything: the cap of its address does not count it */
    bool is_new;
    bool is_out; /* out: it loses its place; in: it has lost it already */
    int beside;  /* crowd_thin's own: silent ones of this address */
    int waiting; /* crowd_thin's own: those of them that are not new */
};

/* crowd_thin — marks those that go (is_out) until places_max are left, and each_max silent ones of
 * any address that are not new. Returns how many were marked. */
int crowd_thin(struct crowd_place *places, int n, int places_max, int each_max);

/* crowd_most — the first place of the address that holds the most of them; -1: there is none. How
 * many it holds in *held_out. */
int crowd_most(const struct crowd_place *places, int n, int *held_out);

#endif

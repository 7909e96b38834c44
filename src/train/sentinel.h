/* sentinel — which replica of a state is the wrong one: a vote over checksums. Pure arithmetic. It
 * must not know states or how ranks communicate. */
#ifndef CONVOY_TRAIN_SENTINEL_H
#define CONVOY_TRAIN_SENTINEL_H

#include <stdint.h>

#define SENTINEL_SAME (-1)      /* all have one checksum */
#define SENTINEL_UNDECIDED (-2) /* no checksum has more than half of the votes */

/* sentinel_vote — of n > 0 checksums: the first that differs from the one that more than half of
 * them have, or one of the two above. */
int sentinel_vote(const uint64_t *sum, int n);

#endif

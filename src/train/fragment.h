/* fragment — parts of a model that LOCAL_STEPS exchanges at different times (Streaming DiLoCo,
 * Douillard et al. 2025), and when. Pure arithmetic. It must not know ranks, memory or messages.
 *
 * Of n fragments, block i of the model is in fragment i mod n. Each tensor of the embedding and of
 * the head is cut into n ranges, one for each fragment: so no fragment is much larger than the
 * others.
 *
 * A fragment is begun after each H/n steps, one after the other: each of them once in H steps. It
 * lands `delay` steps later, and before the next one is begun: one at most is in flight. */
#ifndef CONVOY_TRAIN_FRAGMENT_H
#define CONVOY_TRAIN_FRAGMENT_H

#include "base/status.h"
#include "model/param.h"

#define FRAGMENT_MAX 64

/* Elements [first, first + elems) of the table are [at, at + elems) of a fragment. */
struct fragment_range {
    int64_t first, elems, at;
    int fragment;
};

struct fragment_map {
    int n;
    int64_t elems[FRAGMENT_MAX];  /* of each fragment, with the table's padding */
    struct fragment_range *range; /* in the order of the table, which they cover */
    int ranges_n;
};

/* fragment_init — n from 1 to FRAGMENT_MAX. One fragment is one range. ST_RETRY: out of memory.
 * fragment_at — the range of an element of the table. */
enum status fragment_init(const struct param_table *table, int n, struct fragment_map *out);
void fragment_free(struct fragment_map *map); /* may be called twice */
const struct fragment_range *fragment_at(const struct fragment_map *map, int64_t elem);

/* steps: H, a multiple of n; delay: from 0 to H/n. */
struct fragment_schedule {
    int64_t steps;
    int n;
    int64_t delay;
};
/* fragment_begun — the fragment that is begun after so many steps; -1: none.
 * fragment_landing — the one that lands then. -1: none.
 * fragment_flying — of a delay: the one in flight after the step before: begun, and not landed;
 * -1: none. */
int fragment_begun(const struct fragment_schedule *s, int64_t step);
int fragment_landing(const struct fragment_schedule *s, int64_t step);
int fragment_flying(const struct fragment_schedule *s, int64_t step);

#endif

/* warmup — a size that grows over the first steps of a run: the samples of a step, the window of
 * attention. Pure. */
#ifndef CONVOY_TRAIN_WARMUP_H
#define CONVOY_TRAIN_WARMUP_H

#include <stdint.h>

struct warmup {
    int64_t from, steps; /* steps 0: none */
};

/* warmup_at — the size in step s, counted from 0: `from` in the first one, then on a straight line
 * towards `to`, which it has from step `steps` on; always `from` and a multiple of `unit`, rounded
 * down. from in [1, to]; unit ≥ 1. */
int64_t warmup_at(const struct warmup *warmup, int64_t to, int64_t unit, int64_t s);

#endif

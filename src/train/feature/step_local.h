/* step_local — replicas that train by themselves between outer steps (LOCAL_STEPS; DiLoCo,
 * Douillard et al. 2023).
 *
 * Neighbouring ranks, for example a node's, form a replica. The collectives of every other step
 * keep them in step. A replica trains on its share of each global batch and has moments of its own.
 * Replicas exchange their loss, norm and votes in every step, and parameters in outer steps only:
 *   - every replica subtracts its parameters from the outer ones, which all replicas share
 *   - the ranks with the same number in their replicas add up the differences (all-reduce). A
 *     difference may be rounded to bf16 for it, or quantised with error feedback
 *     (mesh/grad/compress.h)
 *   - step_local_sync_update makes new outer parameters from the mean, and each replica continues
 *     with them
 *
 * The ranks of a replica divide this work: each has a part of the outer parameters and of their
 * momentum, in host memory. All replicas compute the same bits, because an all-reduce gives the
 * same bits to all ranks.
 *
 * Each rank holds the whole model: no axis but data, and SHARD=none. It must not know files. */
#ifndef CONVOY_TRAIN_STEP_LOCAL_H
#define CONVOY_TRAIN_STEP_LOCAL_H

#include "train/step/core.h"

/* Elements of a bucket of grad/compress.h. It keeps the buffers of messages small; the last bucket
 * of a rank's part has the rest. */
#define STEP_LOCAL_BUCKET_ELEMS ((int64_t)4 << 20)

/* step_local_sync — makes an outer step if one is due after steps_done steps, or if is_last: all
 * replicas then have the outer parameters. Adds its times and number to *r. Call it after each
 * step_run of a run with LOCAL_STEPS. */
enum status step_local_sync(struct step *step, int64_t steps_done, bool is_last,
                            struct step_result *r);

/* step_local_part — returns the part of the table that rank `owner` of a replica has in its
 * arrays. */
struct part_extent step_local_part(const struct step_core *s, int owner);

/* The outer update of LOCAL_STEPS: pure arithmetic on host memory. With x the outer parameters, and
 * y the parameters of a replica after its own steps:
 *   d = mean over the replicas of (x - y)     the outer gradient
 *   v = momentum · v + d
 *   x = x - lr · (d + momentum · v)
 * The same as torch.optim.SGD(nesterov=True, dampening=0). With lr 1 and momentum 0, x becomes the
 * mean of the y, within rounding. */
struct step_local_rule {
    double lr, momentum; /* lr above 0; momentum in [0, 1) */
};

/* All functions below work on `elems` elements, f32. They are outside step_local_sync.c for
 * tests. */

/* step_local_sync_gradient — for tests: computes y ← x - y. */
void step_local_sync_gradient(const float *x, float *y, int64_t elems);
/* step_local_sync_round — rounds d to bf16, for messages. */
void step_local_sync_round(const float *d, uint16_t *half, int64_t elems);
/* step_local_sync_widen — converts bf16 to d, which is exact. */
void step_local_sync_widen(const uint16_t *half, float *d, int64_t elems);
/* step_local_sync_mean — for tests: divides a sum over `replicas` replicas, which makes it d. */
void step_local_sync_mean(int replicas, float *sum, int64_t elems);
/* step_local_sync_update — updates x and v. */
void step_local_sync_update(const struct step_local_rule *rule, float *x, float *v, const float *d,
                            int64_t elems);

#endif

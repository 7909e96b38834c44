/* step_local — replicas that train by themselves between outer steps (LOCAL_STEPS; DiLoCo,
 * Douillard et al. 2023).
 *
 * Neighbouring ranks, those of a node, form a replica. They are in step by the collectives of every
 * other step. A replica trains on its share of each global batch and has moments of its own.
 * Replicas exchange their loss, norm and votes in every step, and parameters in outer steps only:
 *   - every replica subtracts its parameters from the outer ones, which all replicas share
 *   - the ranks with the same number in their replicas add up the differences (all-reduce), which
 *     may be rounded to bf16 on the way, or quantised with error feedback (mesh/grad/compress.h)
 *   - step_local_sync_update makes new outer parameters of the mean, and each replica takes them
 *
 * The ranks of a replica divide this: each has a part of the outer parameters and of their
 * momentum, in host memory. All replicas compute the same bits, for an all-reduce gives all ranks
 * the same.
 *
 * Each rank holds the whole model: no axis but data, and SHARD=none. It must not know files. */
#ifndef CONVOY_TRAIN_STEP_LOCAL_H
#define CONVOY_TRAIN_STEP_LOCAL_H

#include <stdint.h>

#include "comm/core/part.h"
#include "train/step/memory.h"

struct step_core; /* train/step/core.h */

/* Elements of a bucket of grad/compress.h, which keeps the buffers of messages small; the last
 * bucket of a rank's part has the rest. */
#define STEP_LOCAL_BUCKET_ELEMS ((int64_t)4 << 20)

struct step_local {
    bool is_on;
    int replica, replicas;  /* not is_on: 0 of 1 */
    int rank, ranks;        /* in the replica */
    struct comm *world;     /* of all ranks; borrowed */
    struct comm *inside;    /* of the replica; NULL: one rank, or one replica */
    struct comm *across;    /* the ranks with this number in all replicas; NULL: one replica */
    struct part_extent own; /* this rank's part of the table */
    void *memory;
    int64_t memory_bytes;           /* without that of `compress` */
    struct grad_compress *compress; /* of differences on their way; NULL: none quantises them */
    int64_t compress_bytes;
    uint16_t *sent; /* COMPRESS=bf16: own.elems differences as they travel; else NULL */
    float *outer, *momentum, *work; /* own.elems each */
    bool is_apart;                  /* replicas have parameters of their own, not the outer ones */
    float *chunk;                   /* what a rank sends the others of its replica; NULL: alone */
};

/* step_local_sync — Makes an outer step if one is due after so many updates, or if is_last: all
 * replicas then have the outer parameters. Adds its times and number to *r. Call it after each
 * step_run of a run with LOCAL_STEPS. */
enum status step_local_sync(struct step *step, int64_t steps_done, bool is_last,
                            struct step_result *r);

/* With LOCAL_STEPS a replica has the parts of a state (step.h), and all of them have more: numbers
 * from 0 on, for step_read and step_write.
 * step_local_is_apart — whether replicas have parameters of their own now, not the outer ones.
 * step_local_state_parts — how many a checkpoint needs; _most: at most; _of: this, without a step.
 *   Without LOCAL_STEPS step_parts.
 * step_local_state_part — what a number is. */
enum step_local_kind {
    STEP_LOCAL_REPLICA,  /* a part of a replica's own state */
    STEP_LOCAL_OUTER,    /* parameters of the last outer step; written, all replicas start there */
    STEP_LOCAL_MOMENTUM, /* of the outer step */
    STEP_LOCAL_RESIDUAL, /* error feedback of what a replica sends */
    STEP_LOCAL_RESIDUAL_SUM /* error feedback of the sums */
};
struct step_local_part {
    enum step_local_kind kind;
    int replica, part; /* REPLICA; replica: RESIDUAL too */
};
bool step_local_is_apart(const struct step *step);
int step_local_replicas(const struct step *step);
int step_local_state_parts(const struct step *step, bool is_apart);
int step_local_state_parts_most(const struct step *step);
int step_local_state_parts_of(const struct step_config *config, int ranks);
struct step_local_part step_local_state_part(const struct step *step, int part);

/* step_local_place — what the config says of a rank's replica: sets s->local, and takes the config
 * and the place into the replica. All else of a step knows the replica alone. ST_BAD_SETTING: the
 * ranks or samples cannot be divided into replicas.
 * step_local_outside — the way back: the config and the place among all ranks. */
enum status step_local_place(struct step_core *s, struct step_place *place);
void step_local_outside(const struct step_core *s, struct step_config *config,
                        struct step_place *place);
/* step_local_open — after _place: s->config.comm becomes that of the replica; collective.
 * step_local_plan — when the table is known: the bytes of host memory that _take takes.
 * step_local_take — the memory. Not is_on: nothing. Collective.
 * step_local_bytes — what it has taken.
 * step_local_sync_fill — the parameters of the step are those of the outer ones.
 * step_local_close — before the config's comm is closed. */
enum status step_local_open(struct step_core *s);
int64_t step_local_plan(const struct step_core *s);
enum status step_local_take(struct step_core *s);
int64_t step_local_bytes(const struct step_core *s);
enum status step_local_sync_fill(struct step_core *s);
void step_local_close(struct step_core *s);

/* Along the data axis of all replicas: which samples are this rank's, and how many ranks there
 * are. */
int step_local_feed_rank(const struct step_core *s);
int step_local_feed_ranks(const struct step_core *s);

/* step_local_sum — adds up n numbers over all ranks of all replicas; the same bits on all. */
#define STEP_LOCAL_SUMS (2 + STEP_VOTES)
enum status step_local_sum(struct step_core *s, double *values, int n);

/* Returns the part of the table that a rank of a replica has in its arrays. */
struct part_extent step_local_part(const struct step_core *s, int owner);

/* step_local_dry_tell — of a dry step (step/dry.h): calls the listener for what replicas send each
 * other, with the share of an outer step that falls to each step. */
struct step_dry_listener;
void step_local_dry_tell(const struct step_core *s, const struct step_dry_listener *listener);

/* step_local_state — the state of all replicas, where is_on. */
struct state step_local_state(struct step_core *s);

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

/* All of `elems` elements, f32; outside step_local_sync.c for tests:
 * step_local_sync_gradient — y becomes x - y.
 * step_local_sync_round — Rounds d to bf16, as it travels; step_local_sync_widen is the way back.
 * step_local_sync_mean — a sum over so many replicas becomes d.
 * step_local_sync_update — updates x and v. */
void step_local_sync_gradient(const float *x, float *y, int64_t elems);
void step_local_sync_round(const float *d, uint16_t *half, int64_t elems);
void step_local_sync_widen(const uint16_t *half, float *d, int64_t elems);
void step_local_sync_mean(int replicas, float *sum, int64_t elems);
void step_local_sync_update(const struct step_local_rule *rule, float *x, float *v, const float *d,
                            int64_t elems);

#endif

/* state — the state of training as a list of arrays: parameters, moments, and additional state of
 * replicas (LOCAL_STEPS). Checkpoints, copies in peers' memory and comparisons of ranks reach the
 * state only through it. It must not know files.
 *
 * An array holds f32 numbers. A table of operations, chosen at open, hides where they lie:
 *   own      the arrays with which this rank computes, in their own memory (store/state.h)
 *   whole    the model, if each rank of the store computes all of it (state.c)
 *   shards   the model, if matrices are cut or layers divided among stages (part_map.h)
 *   replica  the state of all replicas (train/feature/step_local_state.c)
 *   slice    a rank's share of the state that the ranks of a store hold (store/state.c); the share
 *            of a rank among another number of ranks (train/step/slice.c)
 *
 * With whole, shards and replica rank 0 calls state_read and state_write for ranges, in any order,
 * and then state_end. Meanwhile all other ranks are in state_serve and send or store the elements
 * of those ranges. So only rank 0 needs the checkpoint folder, and a checkpoint depends neither on
 * the mesh nor on SHARD. With own and slice each rank reads and writes for itself.
 *
 * All calls block. */
#ifndef CONVOY_MESH_STATE_H
#define CONVOY_MESH_STATE_H

#include "mesh/mesh.h"
#include "mesh/store/store.h"

/* 4 MiB: elements of a range that are sent together, and so of buffers */
#define STATE_RANGE_ELEMS ((int64_t)1 << 20)

enum state_kind {
    STATE_REPLICA,  /* parameters or a moment; with LOCAL_STEPS of one replica */
    STATE_OUTER,    /* parameters of the last outer step; after a write all replicas start there */
    STATE_MOMENTUM, /* momentum of the outer step */
    STATE_RESIDUAL, /* error feedback of the data that a replica sends */
    STATE_RESIDUAL_SUM /* error feedback of the sums */
};

struct state_array {
    enum state_kind kind;
    int replica; /* REPLICA and RESIDUAL; else 0 */
    int moment;  /* REPLICA: 0 parameters, 1 first moment, 2 second moment; else 0 */
    int64_t elems;
    /* hidden matrices do not have this moment: it reads as zero, and writes are ignored */
    bool skips_hidden;
    /* the elements from the described one on that lie together in the memory of this rank's device;
     * NULL: the rank has none of them, or, if here_elems > 0, has them in several runs */
    float *here;
    int64_t here_elems;
    bool is_host; /* `here` is host memory */
};

/* A range that all ranks read or write together. values: the elements on rank 0; on the others a
 * buffer of n elements. room: memory that grows, for the operation itself. */
struct state_room {
    float *data;
    int64_t elems;
};
struct state_range {
    int array;
    int64_t first, n;
    float *values;
    struct state_room *room;
};

struct state;
/* The operations.
 *   count     returns the number of arrays; is_apart: including the arrays that replicas have only
 *             between two outer steps
 *   describe  describes an array, from an element on
 *   read      reads n elements to `values`; NULL: only elements that are `here` are read
 *   write     writes n elements from `values`; on ranks other than 0 it may change `values` */
struct state_ops {
    int (*count)(const struct state *s, bool is_apart);
    void (*describe)(const struct state *s, int array, int64_t first, struct state_array *out);
    enum status (*read)(const struct state *s, const struct state_range *r);
    enum status (*write)(const struct state *s, const struct state_range *r);
};

struct part_map; /* mesh/part_map.h */

/* Pointers are borrowed. */
struct state {
    const struct state_ops *ops;
    struct store *store; /* store of this rank's shard of the model */
    struct comm *world;  /* ranks whose rank 0 reads and writes; NULL: each rank for itself */
    const struct mesh *mesh;
    /* shards: shard `pipeline rank · tensor ranks + tensor rank` belongs to the ranks with these
     * coordinates */
    const struct part_map *map;
    void *arg;       /* argument of the operations */
    int rank, ranks; /* slice: its rank, and the number of ranks that share the state */
};

/* state_of_model — returns the state of the whole model, on all ranks of world. map NULL: one
 * shard. */
struct state state_of_model(struct comm *world, struct store *store, const struct mesh *mesh,
                            const struct part_map *map);

/* state_count — returns the number of arrays, as state_ops.count. Local. */
int state_count(const struct state *s, bool is_apart);
/* state_describe — describes an array from an element on, as state_ops.describe. Local. */
struct state_array state_describe(const struct state *s, int array, int64_t first);
/* state_read — copies n elements of an array from `first` on to dst, in host memory; padding is
 * zero. Rank 0 reads elements that it has `here` or in several runs without the other ranks. */
enum status state_read(const struct state *s, int array, int64_t first, int64_t n, float *dst);
/* state_write — copies n elements from src to all ranks that hold them. */
enum status state_write(const struct state *s, int array, int64_t first, int64_t n,
                        const float *src);
/* state_end — ends state_serve on the other ranks, where it returns ST_OK, or ST_PEER if st is not
 * ST_OK. Returns st. Rank 0 calls it. A job of one rank needs neither. */
enum status state_end(const struct state *s, enum status st);
/* state_serve — carries out the requests of rank 0 until it calls state_end. The other ranks call
 * it. */
enum status state_serve(const struct state *s);

#endif

/* state — the state of training as a list of parts: parameters, moments, and what replicas add
 * (LOCAL_STEPS). The one way to it, for checkpoints, copies in peers' memory and comparisons of
 * ranks. It must not know files.
 *
 * A part is an array of f32 numbers. A table of operations, chosen at open, hides where they lie:
 *   own      what this rank computes with, where it lies (store/state.h)
 *   whole    the model, of which each rank of the store computes all (state.c)
 *   parts    the model, where matrices are cut or layers divided among stages (part_map.h)
 *   replica  the state of all replicas (train/feature/step_local_state.c)
 *   slice    a rank's share of what the ranks of a store hold (store/state.c); that of a rank among
 *            another number of ranks (train/step/slice.c)
 *
 * With whole, parts and replica rank 0 calls _read and _write for ranges, in any order, and then
 * _end. Meanwhile all other ranks are in _serve and send or store the elements of those ranges. So
 * only rank 0 needs the checkpoint folder, and a checkpoint depends neither on the mesh nor on
 * SHARD. With own and slice each rank reads and writes for itself.
 *
 * All calls block. */
#ifndef CONVOY_MESH_STATE_H
#define CONVOY_MESH_STATE_H

#include "mesh/mesh.h"
#include "mesh/store/store.h"

/* 4 MiB: of a range that travels at once, and so of buffers */
#define STATE_RANGE_ELEMS ((int64_t)1 << 20)

enum state_kind {
    STATE_REPLICA,     /* parameters or a moment; with LOCAL_STEPS of one replica */
    STATE_OUTER,       /* parameters of the last outer step; written, all replicas start there */
    STATE_MOMENTUM,    /* of the outer step */
    STATE_RESIDUAL,    /* error feedback of what a replica sends */
    STATE_RESIDUAL_SUM /* error feedback of the sums */
};

struct state_part {
    enum state_kind kind;
    int replica; /* REPLICA and RESIDUAL; else 0 */
    int moment;  /* REPLICA: 0 parameters, 1 first moment, 2 second moment; else 0 */
    int64_t elems;
    bool skips_hidden; /* hidden matrices have none: it reads as zero, and writes are ignored */
    /* the elements from the described one on that lie together in the memory of this rank's device;
     * NULL: it has none of them, or, here_elems > 0, has them in pieces */
    float *here;
    int64_t here_elems;
    bool is_host; /* that is host memory */
};

/* A range that all ranks read or write together. values: of rank 0; on the others room for as many
 * elements. room: memory that grows, for the operation itself. */
struct state_room {
    float *data;
    int64_t elems;
};
struct state_range {
    int part;
    int64_t first, n;
    float *values;
    struct state_room *room;
};

struct state;
/* count     how many parts there are; is_apart: with those that replicas have between two outer
 *           steps only
 * describe  a part, from an element on
 * read      n elements to `values`; NULL: only what is `here` is read
 * write     n elements from `values`, which may change them on other ranks than 0 only */
struct state_ops {
    int (*count)(const struct state *s, bool is_apart);
    void (*describe)(const struct state *s, int part, int64_t first, struct state_part *out);
    enum status (*read)(const struct state *s, const struct state_range *r);
    enum status (*write)(const struct state *s, const struct state_range *r);
};

struct part_map; /* mesh/part_map.h */

/* Pointers are borrowed. */
struct state {
    const struct state_ops *ops;
    struct store *store; /* of this rank's part of the model */
    struct comm *world;  /* whose rank 0 reads and writes; NULL: each rank for itself */
    const struct mesh *mesh;
    const struct part_map *map; /* parts: part `pipeline rank · tensor ranks + tensor rank` is that
                                 * of the ranks with these coordinates */
    void *arg;                  /* of the operations */
    int rank, ranks;            /* slice: whose, of so many that share the state */
};

/* state_of_model — the state of the whole model, on all ranks of world; map NULL: one part. */
struct state state_of_model(struct comm *world, struct store *store, const struct mesh *mesh,
                            const struct part_map *map);

/* state_count, state_describe — local: as state_ops.
 * state_read — copies n elements of a part from `first` on to dst, in host memory; padding is zero.
 *   What rank 0 has `here` or in pieces it reads without the others.
 * state_write — copies them from src to all ranks that hold them. */
int state_count(const struct state *s, bool is_apart);
struct state_part state_describe(const struct state *s, int part, int64_t first);
enum status state_read(const struct state *s, int part, int64_t first, int64_t n, float *dst);
enum status state_write(const struct state *s, int part, int64_t first, int64_t n,
                        const float *src);
/* state_end — rank 0: ends _serve on the other ranks, where it returns ST_OK, or ST_PEER if st is
 *   not ST_OK. Returns st. A job of one rank needs neither.
 * state_serve — the other ranks, until rank 0 calls _end. */
enum status state_end(const struct state *s, enum status st);
enum status state_serve(const struct state *s);

#endif

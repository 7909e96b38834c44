/* store_inside — the struct and functions that the files of the store share; for src/mesh only. */
#ifndef CONVOY_MESH_STORE_INSIDE_H
#define CONVOY_MESH_STORE_INSIDE_H

#include "mesh/grad/tree.h"
#include "mesh/store/shard_tree.h"
#include "mesh/state.h"
#include "mesh/store/store.h"

/* The extent of an array that a rank holds. BUFFER: its local shard, and in an unsharded buffer the
 * whole buckets that a pass works on. */
enum store_extent { STORE_WHOLE, STORE_SHARD, STORE_BUFFER };

/* The data that are all-gathered. GRADS: reduced gradients, during the next forward pass; updates
 * wait for them. UPDATED: parameters, after their update. USED: parameters, before a pass reads
 * them. */
enum store_gather {
    STORE_GATHER_NONE,
    STORE_GATHER_GRADS,
    STORE_GATHER_UPDATED,
    STORE_GATHER_USED
};

/* A row of the table in store.h; masters follow from it and the dtype. */
struct store_policy {
    enum store_extent params;  /* as passes read them: WHOLE or BUFFER */
    enum store_extent grads;   /* WHOLE or BUFFER */
    enum store_extent moments; /* WHOLE or SHARD */
    enum store_gather gather;
    enum store_extent masters; /* WHOLE or SHARD */
};

/* The ranks that make a call: the ranks that share a layout (WITHIN); with HYBRID, the ranks that
 * hold the same part (ACROSS); all ranks of the store; all ranks of the world. */
enum store_group { STORE_GROUP_WITHIN, STORE_GROUP_ACROSS, STORE_GROUP_ALL, STORE_GROUP_WORLD };
enum store_call_kind {
    STORE_CALL_ALL_REDUCE,
    STORE_CALL_REDUCE_SCATTER,
    STORE_CALL_ALL_GATHER,
    STORE_CALL_ALL_TO_ALL /* only by grad_compress */
};

/* A collective of the store. elems: elements of all parts together. bucket -1: the call belongs to
 * no bucket. */
struct store_call {
    enum store_call_kind kind;
    enum store_group group;
    int bucket;
    struct tensor out, in;
    int64_t elems;
};

/* The reduction of a bucket's gradient to the sum over the ranks (store/reduce.c).
 *   begin       this rank's gradient is complete: starts the sum
 *   end         on the stream: puts the sum as f32 where the update reads it; the sum of the
 *               bucket, or only of this rank's part (is_own_only)
 *   gather      the update is deferred: starts to gather the other ranks' parts
 *   gather_end  on the stream, after that call: puts these parts where the update reads them */
struct store_reducer {
    enum status (*begin)(struct store *s, int bucket);
    enum status (*end)(struct store *s, int bucket);
    enum status (*gather)(struct store *s, int bucket);
    enum status (*gather_end)(struct store *s, int bucket);
};

/* Additional steps of the embedding's gradient in the last micro-batch; NULL: none.
 *   begin      its token ids are available
 *   head_done  the head has added to the embedding's gradient
 *   unit_done  the backward of unit 0 has added to it */
struct store_embed_steps {
    enum status (*begin)(struct store *s, const int32_t *tokens, int64_t n, bool is_first);
    enum status (*head_done)(struct store *s);
    enum status (*unit_done)(struct store *s);
};

/* The sum of the gradient norm.
 *   reset       the last micro-batch begins; NULL: nothing
 *   add         adds the squares of `own`, this rank's part of a bucket's reduced gradient
 *   begin, end  as store_grad_norm_begin and store_grad_norm_end */
struct store_norm {
    enum status (*reset)(struct store *s);
    enum status (*add)(struct store *s, int bucket, struct tensor own);
    enum status (*begin)(struct store *s);
    enum status (*end)(struct store *s, double *norm_sq_out, double *extra, int n);
};

/* The calls of a store to other ranks: on its comms (store.c), or only counted (store/dry.c).
 *   wait               the host waits for a call
 *   stream_wait        work submitted to the stream from now on runs after the call; the host waits
 *                      if the device does not execute the call
 *   wait_stream        the next call starts after the work that is on the stream now; with
 *                      compression, which copies on a stream of its own, the host waits for that
 *                      work
 *   begin              begins a call between the store's buffers
 *   reduce_compressed  sums `from` over the ranks: all of it to to_all, or, if its data is NULL,
 *                      only this rank's part to to_own
 *   gather_compressed  gathers the parts of that sum
 *   reduce_exact       sums the partial sums of all ranks along the tree of virtual shards: all of
 *                      the sum to to_all, or, if its data is NULL, this rank's part to to_own
 *   sparse_ids, sparse_rows, sparse_add  as sparse_embed_begin, sparse_embed_exchange_begin and
 *                                        sparse_embed_add */
struct store_calls {
    enum status (*wait)(struct store *s, struct comm_ticket ticket);
    enum status (*stream_wait)(struct store *s, struct comm_ticket ticket);
    enum status (*wait_stream)(struct store *s);
    enum status (*begin)(struct store *s, const struct store_call *call,
                         struct comm_ticket *ticket);
    enum status (*reduce_compressed)(struct store *s, int bucket, struct tensor from,
                                     struct tensor to_all, struct tensor to_own);
    enum status (*gather_compressed)(struct store *s, int bucket, struct tensor to_all);
    enum status (*reduce_exact)(struct store *s, int bucket, struct tensor to_all,
                                struct tensor to_own);
    enum status (*sparse_ids)(struct store *s, const int32_t *tokens, int64_t n);
    enum status (*sparse_rows)(struct store *s);
    enum status (*sparse_add)(struct store *s, struct part_extent part, struct tensor to);
};

struct store_bucket {
    const struct store_reducer *reducer;
    bool is_deferred; /* it is updated at its first use in the next forward pass */
    bool is_own_only; /* each rank gets its part of the sum: reduce-scatter; else all-reduce */
    struct comm_ticket gather, reduce;
    bool is_gathering;  /* `gather` must be waited for */
    bool is_update_due; /* the update follows `gather`, which gathers the gradient */
    bool is_behind;     /* store_update has begun, and the update of this bucket has not ended */
    bool is_current;    /* the compute copy has the masters' values, or `gather` gathers them */
    /* the update also writes the compute copy of the elements that it updates */
    bool is_copy_updated;
    bool is_reduce_begun; /* the reduction has begun in this step */
    bool is_finished;     /* it is reduced in this step, and its squares are added */
};

#define STORE_ALLOCS_MAX 12
#define STORE_EXTRAS_MAX 8

struct store {
    struct store_config c;
    enum dtype params_dtype; /* f32; of frozen parameters settings.dtype */
    struct store *frozen;    /* store of c.frozen, or NULL */
    struct layout layout;
    bool is_discrete; /* the device's memory is not the host's */
    bool is_alone;    /* one rank in c.comm */
    bool is_sparse;   /* rows of the embedding's gradient are exchanged */
    const struct store_calls *calls;
    const struct store_dry *dry; /* for a store that is only counted; else NULL */
    bool has_groups;             /* c.world has other ranks than c.comm */
    /* position in c.comm; layout has the position in the group: the same, except with HYBRID */
    int rank, ranks;
    struct comm *within; /* the comm of the ranks that share a layout */
    struct comm *across; /* HYBRID: the comm of the ranks that hold the same part; else NULL */
    struct store_policy policy;
    struct tensor params;       /* masters, of params_dtype */
    struct tensor compute_copy; /* the same as `params` if passes read the masters themselves */
    struct tensor grads;        /* gradients as passes write them */
    struct tensor grads_own;    /* grads BUFFER: reduced gradients of the local shard */
    /* COMPRESS=bf16: rounded gradients to send, laid out as grads; else NULL */
    struct tensor grads_rounded;
    struct tensor moment[2];
    /* (buckets + 2) f64 on the device: sums of squares; the sum of the losses; the sum of squares
     * that another group counts */
    struct tensor norms;
    double *slots; /* has_groups: sums of squares of the whole model, then extras; else NULL */
    double *sums;  /* norms in host memory; then sums of squares and extras */
    struct store_bucket *bucket;
    const struct store_reducer *dense; /* reducer of buckets without rows of tokens */
    const struct store_embed_steps *embed;
    const struct store_norm *norm;
    struct state own;                 /* store_state */
    int64_t writes;                   /* store_params_writes */
    int grad_in_slot[2];              /* the bucket whose gradient lies in a slot; -1: none */
    struct sparse_embed *sparse;      /* is_sparse, and not dry */
    struct comm_ticket sparse_ticket; /* ticket of the exchange of token ids, then of rows */
    struct param_table embed_table;   /* grad_table of store_sparse_embed_pass */
    struct param *embed_params;
    struct grad_compress *grad_compress; /* NULL: gradients are not quantised */
    struct shard_tree shards;            /* used if c.shards > 0 */
    int *deal;                           /* runs of all ranks: ranks + 1 numbers */
    int slots_max;                       /* most slots of a rank */
    struct tensor shard_grads;           /* slots of shards from 1 on; slot 0 is `grads` */
    struct tensor received;      /* discrete device: partial sums of all ranks (grad/tree.h) */
    bool has_tree;               /* false: the comm's own sums follow the tree of shards */
    struct grad_tree *grad_tree; /* has_tree, and not dry; else NULL */
    struct {
        struct tensor sums; /* (n) f64 on the device: sums of squares, block by block */
        double *host;       /* n sums, then extras */
        /* n: blocks of the whole model; first: first block of each parameter of the table */
        int64_t n, *first;
    } blocks; /* c.shards > 0 */
    struct {
        void *data;
        size_t bytes;
        bool is_comm;
    } memory[STORE_ALLOCS_MAX];
    int memory_n;
    struct {
        char *data;
        int64_t bytes, used;
        bool is_measuring;
    } block; /* discrete device: one allocation for all data that are sent (store/memory.c) */
    struct store_memory allocated;
    struct comm_ticket newest; /* ticket of the last call that was begun */
    bool is_under_way;         /* `newest` has not been waited for */
};

/* Memory (store/memory.c). */

/* store_memory_policy — returns the policy of a configuration on `ranks` ranks. */
struct store_policy store_memory_policy(const struct store_config *config, int ranks);
/* store_memory_plan — returns the bytes that store_memory_alloc allocates. Reads only the
 * configuration, the layout and the policy. */
struct store_memory store_memory_plan(const struct store *s);
/* store_memory_split — opens `within` and `across`: with HYBRID a comm of this rank's group, and
 * one of the ranks that hold its part. Call it before store_memory_alloc. */
enum status store_memory_split(struct store *s);
/* store_memory_alloc — allocates all memory, and opens sparse and grad_compress if they are
 * used. */
enum status store_memory_alloc(struct store *s);
/* store_memory_uses_sparse — returns true if rows of the embedding's gradient are exchanged.
 * *why_out: the reason, a clause for the log. */
bool store_memory_uses_sparse(const struct store *s, const char **why_out);
/* store_memory_compresses — returns true if gradients are quantised. */
bool store_memory_compresses(const struct store *s);
/* store_rounds_grads — returns true if gradients are sent as bf16. */
static inline bool store_rounds_grads(const struct store *s)
{
    return s->c.settings.compress == GRAD_COMPRESS_KIND_BF16 && s->c.has_grads && !s->is_alone;
}
static inline bool store_is_hybrid(const struct store *s)
{
    return s->c.settings.shard == LAYOUT_SHARD_HYBRID;
}
/* store_has_copy — returns true if the compute copy has memory of its own. */
static inline bool store_has_copy(const struct store *s)
{
    return s->policy.params == STORE_BUFFER || s->c.settings.dtype != s->params_dtype;
}

/* Life and calls (store.c). */

/* store_frozen_config — returns the config of the store of frozen parameters. */
struct store_config store_frozen_config(const struct store_config *config);
/* store_set_place — computes the layout and the policy of rank `rank` of `ranks`. */
enum status store_set_place(struct store *s, int rank, int ranks, bool is_discrete);
/* store_new_lists — allocates the lists of buckets and tensors in host memory. */
void store_new_lists(struct store *s);
/* store_track — stores the ticket of a call that was begun with status st. Returns st. */
enum status store_track(struct store *s, enum status st, struct comm_ticket ticket);
/* store_cast — converts elements to another type, on the stream. */
enum status store_cast(struct store *s, struct tensor to, struct tensor from, int64_t elems);
/* store_call_and_wait — begins a call; the stream waits for it. */
enum status store_call_and_wait(struct store *s, const struct store_call *call);

/* Gradients (store/reduce.c). */

/* store_reduce_choose — sets each bucket's reducer. Call it after memory is allocated and has_tree
 * is set. */
void store_reduce_choose(struct store *s);
/* store_reduce_finish_all — waits until all buckets are reduced, and adds their squares. */
enum status store_reduce_finish_all(struct store *s);
/* store_reduce_grad — returns the gradients of a whole bucket, as passes write them. */
struct tensor store_reduce_grad(const struct store *s, int bucket);
/* store_reduce_own — returns this rank's part of a bucket's reduced gradients. */
struct tensor store_reduce_own(const struct store *s, int bucket);

/* The norm of one group of ranks and of several groups (store/grad_norm.c), and of virtual shards
 * (store/exact.c). */
extern const struct store_norm store_norm_group, store_norm_groups, store_norm_blocks;

/* Virtual shards (store/exact.c), if c.shards > 0. */

/* store_exact_plan — computes the tree and the positions of blocks of squares. Frees nothing, also
 * if it fails. */
enum status store_exact_plan(struct store *s);
/* store_exact_open — opens the sum over the ranks. Call it after memory is allocated. */
enum status store_exact_open(struct store *s);
/* store_exact_free — frees the tree, the deal and the blocks. May be called twice. */
void store_exact_free(struct store *s);
/* store_exact_slots — returns the elements of the slots from 1 on. */
int64_t store_exact_slots(const struct store *s);
/* store_exact_received — returns the elements of `received`. */
int64_t store_exact_received(const struct store *s);
/* store_exact_reduce — implements store_calls.reduce_exact. */
enum status store_exact_reduce(struct store *s, int bucket, struct tensor to_all,
                               struct tensor to_own);

/* The state on this rank, and the state of the store's ranks (store/state.c). */
extern const struct state_ops store_state_own, store_state_whole;
/* store_state_count — implements state_ops.count for all states of a store. */
int store_state_count(const struct state *s, bool is_apart);

/* Moments (store/memory.c); array 1 and 2. */

/* store_memory_moment_elems — returns the elements of a moment on this rank. External for tests. */
int64_t store_memory_moment_elems(const struct store *s, int array);
/* store_memory_moment_at — returns the moment's elements of store_local_shard. */
struct tensor store_memory_moment_at(const struct store *s, int array, int bucket);
/* store_memory_moment_run — returns the position, in this rank's memory, of the moments of elements
 * from `first` on; -1: these elements have no such moment. *n: the number of elements wanted; it
 * becomes the number that lie together in this rank's memory, or have no moments. If moments are
 * sharded the elements belong to this rank's local shard. */
int64_t store_memory_moment_run(const struct store *s, int array, int64_t first, int64_t *n);

/* Parameters (store/params.c), of one bucket. */

/* store_params_shard — returns the masters that this rank updates. */
struct tensor store_params_shard(const struct store *s, int bucket);
/* store_params_begin_write — prepares a write to the state that is no update: runs deferred
 * updates, and for array 0 marks the compute copy as stale. */
enum status store_params_begin_write(struct store *s, int array);
/* store_params_drain — waits for the bucket's gather, and runs its deferred update. */
enum status store_params_drain(struct store *s, int bucket);
/* store_params_prefetch — starts the all-gather if the compute copy is stale and masters are
 * sharded. */
enum status store_params_prefetch(struct store *s, int bucket);
/* store_params_make_ready — prefetches and waits: passes can then read the bucket, in the stream's
 * order. */
enum status store_params_make_ready(struct store *s, int bucket);
/* store_params_after_update — marks the compute copy as stale unless the update wrote it, and
 * gathers the bucket if the policy is UPDATED. Call it when the owners have updated the masters. */
enum status store_params_after_update(struct store *s, int bucket);

#endif

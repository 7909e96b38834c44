/* store_inside — the struct and functions that the files of the store share; for src/mesh only. */
#ifndef CONVOY_MESH_STORE_INSIDE_H
#define CONVOY_MESH_STORE_INSIDE_H

#include "mesh/grad/tree.h"
#include "mesh/store/shard_tree.h"
#include "mesh/state.h"
#include "mesh/store/store.h"

/* How much of an array a rank holds. BUFFER: its local shard, and the buckets that a pass works on,
 * whole, in an unsharded buffer. */
enum store_extent { STORE_WHOLE, STORE_SHARD, STORE_BUFFER };

/* What is all-gathered. GRADS: reduced gradients, beside the next forward pass; updates wait for
 * them. UPDATED: parameters, after their update. USED: parameters, before a pass reads them. */
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

/* The ranks that make a call: those that share a layout; with HYBRID, those that hold the same
 * part; those of the store; the world's. */
enum store_group { STORE_GROUP_WITHIN, STORE_GROUP_ACROSS, STORE_GROUP_ALL, STORE_GROUP_WORLD };
enum store_call_kind {
    STORE_CALL_ALL_REDUCE,
    STORE_CALL_REDUCE_SCATTER,
    STORE_CALL_ALL_GATHER,
    STORE_CALL_ALL_TO_ALL /* by grad_compress alone */
};

/* A collective of the store; elems as comm.h counts them, but of all parts. bucket: -1: none. */
struct store_call {
    enum store_call_kind kind;
    enum store_group group;
    int bucket;
    struct tensor out, in;
    int64_t elems;
};

/* How the gradient of a bucket becomes the sum over the ranks (store/reduce.c).
 * begin       this rank's gradient is complete: starts the sum
 * end         on the stream: the sum is where the update reads it, as f32: of the bucket, or only
 *             of this rank's part (is_own_only)
 * gather      the update is deferred: starts to bring the other ranks' parts
 * gather_end  on the stream, after that call: they are where the update reads them */
struct store_reducer {
    enum status (*begin)(struct store *s, int bucket);
    enum status (*end)(struct store *s, int bucket);
    enum status (*gather)(struct store *s, int bucket);
    enum status (*gather_end)(struct store *s, int bucket);
};

/* What happens to the embedding's gradient besides its reducer, in the last micro-batch; NULL:
 * nothing.
 * begin      its token ids are there
 * head_done  the head has added to the embedding's gradient
 * unit_done  unit 0's backward has */
struct store_embed_steps {
    enum status (*begin)(struct store *s, const int32_t *tokens, int64_t n);
    enum status (*head_done)(struct store *s);
    enum status (*unit_done)(struct store *s);
};

/* How the gradient norm is added up.
 * reset       the last micro-batch begins; NULL: nothing
 * add         the squares of `own`, this rank's part of a bucket's reduced gradient
 * begin, end  as store_grad_norm_… */
struct store_norm {
    enum status (*reset)(struct store *s);
    enum status (*add)(struct store *s, int bucket, struct tensor own);
    enum status (*begin)(struct store *s);
    enum status (*end)(struct store *s, double *norm_sq_out, double *extra, int n);
};

/* What a store asks of the other ranks: of its comms (store.c), or only counted (store/dry.c).
 * wait               the host waits for a call
 * stream_wait        what the stream is given from now on runs after the call; the host waits where
 *                    the device does not execute it
 * wait_stream        the next call starts after the work that is on the stream now; the host waits
 *                    for that work with compression, which copies by a stream of its own
 * begin              a call between the store's buffers
 * reduce_compressed  the sum of `from` over the ranks: to_all, or, data NULL, this rank's part
 *                    alone, to_own
 * gather_compressed  the parts of that sum
 * sparse_ids, sparse_rows, sparse_add  as sparse_embed_begin, _exchange_begin and _add */
struct store_calls {
    enum status (*wait)(struct store *s, struct comm_ticket ticket);
    enum status (*stream_wait)(struct store *s, struct comm_ticket ticket);
    enum status (*wait_stream)(struct store *s);
    enum status (*begin)(struct store *s, const struct store_call *call,
                         struct comm_ticket *ticket);
    enum status (*reduce_compressed)(struct store *s, int bucket, struct tensor from,
                                     struct tensor to_all, struct tensor to_own);
    enum status (*gather_compressed)(struct store *s, int bucket, struct tensor to_all);
    enum status (*sparse_ids)(struct store *s, const int32_t *tokens, int64_t n);
    enum status (*sparse_rows)(struct store *s);
    enum status (*sparse_add)(struct store *s, struct part_extent part, struct tensor to);
};

struct store_bucket {
    const struct store_reducer *reducer;
    bool is_deferred; /* updated at its first use in the next forward pass */
    bool is_own_only; /* each rank gets its part of the sum: reduce-scatter; else all-reduce */
    struct comm_ticket gather, reduce;
    bool is_gathering;  /* `gather` must be waited for */
    bool is_update_due; /* the update follows `gather`, which brings the gradient */
    bool is_behind;  /* the update of all buckets has begun, and that of this one has not ended */
    bool is_current; /* the compute copy has the masters' values, or `gather` brings them */
    bool is_copy_updated; /* the update writes the compute copy of what it updates, too */
    bool is_reduce_begun; /* in this step */
    bool is_finished;     /* reduced, and its squares are added */
};

#define STORE_ALLOCS_MAX 12
#define STORE_EXTRAS_MAX 8

struct store {
    struct store_config c;
    struct layout layout;
    bool is_discrete; /* the device's memory is not the host's */
    bool is_alone;    /* one rank in c.comm */
    bool is_sparse;   /* rows of the embedding's gradient are exchanged */
    const struct store_calls *calls;
    const struct store_dry *dry; /* of a store that is only counted; else NULL */
    bool has_groups;             /* c.world has other ranks than c.comm */
    /* of c.comm; those of layout are in the group, which is all but with HYBRID */
    int rank, ranks;
    struct comm *within; /* the comm of the ranks that share a layout */
    struct comm *across; /* HYBRID: the ranks that hold the same part; else NULL */
    struct store_policy policy;
    struct tensor params;        /* masters, f32 */
    struct tensor compute_copy;  /* `params` where passes read the masters themselves */
    struct tensor grads;         /* as passes write them */
    struct tensor grads_own;     /* grads BUFFER: reduced, the local shard */
    struct tensor grads_rounded; /* bf16 of COMPRESS: what travels, laid out as grads; else NULL */
    struct tensor moment[2];
    /* (buckets + 2) f64 on the device: sums of squares; of the losses; of squares that another
     * group counts */
    struct tensor norms;
    double *slots; /* has_groups: sums of squares of the whole model, then extras; else NULL */
    double *sums;  /* norms in host memory; then sums of squares and extras */
    struct store_bucket *bucket;
    const struct store_reducer *dense; /* of buckets without rows of tokens */
    const struct store_embed_steps *embed;
    const struct store_norm *norm;
    struct state own;                 /* store_state */
    int64_t writes;                   /* store_params_writes */
    int grad_in_slot[2];              /* the bucket whose gradient lies in a slot; -1: none */
    struct sparse_embed *sparse;      /* is_sparse, and not dry */
    struct comm_ticket sparse_ticket; /* of token ids, then of rows */
    struct param_table embed_table;   /* grad_table of store_sparse_embed_pass */
    struct param *embed_params;
    struct grad_compress *grad_compress; /* NULL: gradients are not quantised */
    struct shard_tree shards;            /* c.shards > 0 */
    int *deal;                           /* the runs of all ranks: ranks + 1 */
    int slots_max;                       /* of any rank */
    struct tensor shard_grads;           /* slots of shards from 1 on; slot 0 is `grads` */
    struct grad_tree *grad_tree;         /* NULL: the comm's own sums follow the tree of shards */
    struct {
        struct tensor sums; /* (n) f64 on the device: of squares, block by block */
        double *host;       /* n, then extras */
        int64_t n, *first;  /* n: of the whole model; first: of each parameter of the table */
    } blocks;               /* c.shards > 0 */
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
    } block; /* on a device of its own: what travels, one allocation (store/memory.c) */
    struct store_memory taken;
    struct comm_ticket newest; /* of the last call that was begun */
    bool is_under_way;         /* it has not been waited for */
};

/* Memory (store/memory.c).
 * _policy: the policy of a configuration on `ranks` ranks.
 * _plan: the bytes that _take takes, from the configuration, the layout and the policy alone.
 * _split: opens `within` and `across`: with HYBRID a comm for this rank's group, and one for the
 *   holders of its part; before _take.
 * _take: takes all memory, and opens sparse and grad_compress where they are used.
 * _uses_sparse: whether rows of the embedding's gradient are exchanged, and why: a clause for the
 *   log.
 * _compresses: whether gradients are quantised.
 * store_rounds_grads: whether gradients travel as bf16.
 * store_has_copy: whether the compute copy is memory of its own. */
struct store_policy store_memory_policy(const struct store_config *config, int ranks);
struct store_memory store_memory_plan(const struct store *s);
enum status store_memory_split(struct store *s);
enum status store_memory_take(struct store *s);
bool store_memory_uses_sparse(const struct store *s, const char **why_out);
bool store_memory_compresses(const struct store *s);
static inline bool store_rounds_grads(const struct store *s)
{
    return s->c.settings.compress == GRAD_COMPRESS_KIND_BF16 && s->c.has_grads && !s->is_alone;
}
static inline bool store_is_hybrid(const struct store *s)
{
    return s->c.settings.shard == LAYOUT_SHARD_HYBRID;
}
static inline bool store_has_copy(const struct store *s)
{
    return s->policy.params == STORE_BUFFER || s->c.settings.dtype != DTYPE_F32;
}

/* Life and calls (store.c).
 * store_set_place: the layout and the policy, of rank `rank` of `ranks`.
 * store_new_lists: the lists of buckets and tensors in host memory.
 * store_track: notes the ticket of a call that was begun with status st; returns st.
 * store_cast: the same numbers as another type, on the stream.
 * store_call_and_wait: begins a call, for which the stream waits. */
enum status store_set_place(struct store *s, int rank, int ranks, bool is_discrete);
void store_new_lists(struct store *s);
enum status store_track(struct store *s, enum status st, struct comm_ticket ticket);
enum status store_cast(struct store *s, struct tensor to, struct tensor from, int64_t elems);
enum status store_call_and_wait(struct store *s, const struct store_call *call);

/* Gradients (store/reduce.c).
 * _choose: sets each bucket's reducer; call it after memory is allocated and grad_tree is set.
 * _finish_all: all buckets are reduced, and their squares added.
 * _grad, _own: the gradients of a bucket, all of it, as passes write them; reduced, this rank's
 *   part. */
void store_reduce_choose(struct store *s);
enum status store_reduce_finish_all(struct store *s);
struct tensor store_reduce_grad(const struct store *s, int bucket);
struct tensor store_reduce_own(const struct store *s, int bucket);

/* The norm: of one group of ranks, and of several (store/grad_norm.c); of virtual shards
 * (store/exact.c). */
extern const struct store_norm store_norm_group, store_norm_groups, store_norm_blocks;

/* Virtual shards (store/exact.c); c.shards > 0.
 * _plan: the tree, and where blocks of squares are; frees nothing. _free: may be called twice.
 * _open: after memory is taken: how the ranks' sums join.
 * _slots: elements of the slots from 1 on.
 * _reduce: this rank's part of a bucket's sum, to_own, or all of it, to_all. */
enum status store_exact_plan(struct store *s);
enum status store_exact_open(struct store *s);
void store_exact_free(struct store *s);
int64_t store_exact_slots(const struct store *s);
enum status store_exact_reduce(struct store *s, int bucket, struct tensor to_all,
                               struct tensor to_own, struct comm_ticket *ticket);

/* The state on this rank and that of the store's ranks (store/state.c).
 * store_state_count: state_ops.count of all states of a store. */
extern const struct state_ops store_state_own, store_state_whole;
int store_state_count(const struct state *s, bool is_apart);

/* Moments (store/memory.c); part 1 and 2.
 * _elems: of a moment on this rank; outside store/memory.c for tests.
 * _at: where those of store_local_shard begin.
 * _run: the elements from `first` on, at most *n of the table, that lie together in a part on this
 *   rank or on none: *n becomes their number; returns where, -1: they have no such moment. Where
 *   moments are sharded they are those of this rank's local shard. */
int64_t store_memory_moment_elems(const struct store *s, int part);
struct tensor store_memory_moment_at(const struct store *s, int part, int bucket);
int64_t store_memory_moment_run(const struct store *s, int part, int64_t first, int64_t *n);

/* Parameters (store/params.c), of one bucket:
 * _shard         the masters that this rank updates.
 * _begin_write   the state is written by something else than an update: nothing is deferred, and
 *                the compute copy of part 0 is stale.
 * _drain         waits for the bucket's gather, and runs its deferred update.
 * _prefetch      starts the all-gather if the compute copy is stale and masters are sharded.
 * _make_ready    prefetches and waits: passes can read the bucket, in the stream's order.
 * _after_update  the owners have updated the masters: the compute copy is stale. */
struct tensor store_params_shard(const struct store *s, int bucket);
enum status store_params_begin_write(struct store *s, int part);
enum status store_params_drain(struct store *s, int bucket);
enum status store_params_prefetch(struct store *s, int bucket);
enum status store_params_make_ready(struct store *s, int bucket);
enum status store_params_after_update(struct store *s, int bucket);

#endif

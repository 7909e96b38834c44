/* store_inside — what the files of the store share. Inside room mesh only. */
#ifndef CONVOY_MESH_STORE_INSIDE_H
#define CONVOY_MESH_STORE_INSIDE_H

#include "mesh/sparse_embed.h"
#include "mesh/store.h"

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

/* What is under way with a bucket. */
struct store_bucket {
    struct comm_ticket gather, reduce;
    bool is_gathering;  /* `gather` has to be waited for */
    bool is_update_due; /* its update waits for `gather`, which brings the gradient */
    /* a compute copy: what passes read of it is that of the masters, or on its way */
    bool is_current;
    bool is_reduce_begun; /* its reduction, in this step */
    bool is_reducing;     /* `reduce` has to be waited for */
    bool is_finished;     /* reduced, and its squares are added up */
};

#define STORE_ALLOCS_MAX 9
#define STORE_EXTRAS_MAX 8

struct store {
    struct store_config c;
    struct layout layout;
    bool is_discrete; /* the device's memory is not the host's */
    bool is_alone;    /* one rank */
    struct store_policy policy;
    struct tensor params;       /* masters, f32 */
    struct tensor compute_copy; /* `params` where passes read the masters themselves */
    struct tensor grads, grads_own;
    struct tensor moment[2]; /* whole or the local shard */
    struct tensor norms;     /* (buckets) f64, on the device */
    double *sums;            /* the same on the host, and extras */
    struct store_bucket *bucket;
    int grad_in_slot[2];              /* the bucket whose gradient lies there; -1 none */
    struct sparse_embed *sparse;      /* NULL: token rows are reduced with the rest */
    struct comm_ticket sparse_ticket; /* of their numbers, then of the rows themselves */
    struct param_table embed_table;   /* gradients while the embedding's backward runs */
    struct param *embed_params;
    struct grad_compress *grad_compress; /* NULL: not compressed */
    struct {
        void *data;
        size_t bytes;
        bool is_comm;
    } memory[STORE_ALLOCS_MAX];
    int memory_n;
    struct store_memory taken;
    struct comm_ticket newest; /* of what was begun */
    bool is_under_way;         /* it is not waited for */
};

/* Memory (store_memory.c).
 * _policy: the policy of a configuration on `ranks` ranks.
 * _plan: the bytes that _take takes, from the configuration, the layout and the policy alone.
 * _take: takes all memory, and opens sparse and grad_compress where they are used.
 * store_has_copy: whether the compute copy is memory of its own. */
struct store_policy store_memory_policy(const struct store_config *config, int ranks);
enum status store_memory_plan(const struct store *s, struct store_memory *out);
enum status store_memory_take(struct store *s);
static inline bool store_has_copy(const struct store *s)
{
    return s->policy.params == STORE_BUFFER || s->c.settings.dtype != DTYPE_F32;
}

/* store_track — what a comm call that begins something returned; its ticket is the newest.
 * store_comm_wait_stream: what is begun next comes after what the device has been given.
 * Compression copies by streams of its own: it begins when all that is done. */
enum status store_track(struct store *s, enum status st, struct comm_ticket ticket);
enum status store_comm_wait_stream(struct store *s);

/* Parameters (store_params.c). own: the masters that this rank updates of a bucket. forget: masters
 * changed, nothing of the compute copy is theirs any more. wait: nothing of the bucket is on its
 * way, no update due. begin: where it has to be gathered it is here or on its way. need: it is
 * here. updated: its owners have done so just now. */
struct tensor store_params_own(const struct store *s, int bucket);
void store_params_invalidate(struct store *s);
enum status store_params_drain(struct store *s, int bucket);
enum status store_params_prefetch(struct store *s, int bucket);
enum status store_params_ready(struct store *s, int bucket);
enum status store_params_after_update(struct store *s, int bucket);

#endif

/* store_inside — what the files of the store share. Inside room mesh only. */
#ifndef CONVOY_MESH_STORE_INSIDE_H
#define CONVOY_MESH_STORE_INSIDE_H

#include "mesh/sparse_embed.h"
#include "mesh/store.h"

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
    bool is_discrete;         /* the device's memory is not the host's */
    bool is_alone, has_parts; /* one rank; moments are in parts */
    /* gradients are gathered beside the next forward pass, and updates due until then */
    bool defers_update;
    bool params_buffered, grads_buffered; /* passes see a buffer; else all of it */
    bool params_sharded;                  /* masters: own parts only; else whole */
    bool has_compute_copy;                /* passes do not read the masters where these lie */
    struct tensor params;                 /* masters, f32 */
    /* what passes read, whole or buffer, in their dtype; without has_compute_copy: params */
    struct tensor compute_copy;
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
    int64_t wait_ns;
};

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

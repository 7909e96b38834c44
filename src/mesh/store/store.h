/* store — parameters, gradients and optimiser moments of one model that several ranks train.
 *
 * The store decides which elements a rank holds, and it runs the collectives that keep the
 * model the same on all ranks. It must not know losses, optimisers, files or what the model
 * computes.
 *
 * Words (docs/architecture.md has the glossary):
 *   unit             the embedding, one block, or what follows the last block (model/param.h); a
 *                    pass walks the units forward and back
 *   bucket           what one collective gathers or reduces: neighbouring tensors (layout.h)
 *   local shard      this rank's part of every bucket, one part after the other
 *   unsharded buffer memory for a few whole buckets, used while a pass works on them
 *   masters          the f32 parameters that the optimiser updates
 *   compute copy     the parameters that passes read: the masters themselves, or a copy of them
 *
 * What a rank holds, by SHARD (DDP, ZeRO-1, ZeRO-2 and FSDP/ZeRO-3; Rajbhandari et al. 2020):
 *
 *              parameters          gradients           moments      all-gathered
 *   none       whole               whole               whole        reduced gradients
 *   optimizer  whole               whole               local shard  parameters, after the update
 *   gradients  whole               shard and buffer    local shard  parameters, after the update
 *   full       shard and buffer    shard and buffer    local shard  parameters, before each use
 *   hybrid     as full, among the ranks of a group; every group holds the same
 *
 * - One rank alone holds everything and sends nothing, whatever SHARD is.
 * - The first four give the same bits, for they add the same numbers in the same order; NCCL adds
 *   in an order of its own. `hybrid` gives the losses of the others within rounding: the squares
 *   for the gradient norm are added in fewer parts, and the embedding's rows among the others.
 * - With `hybrid` a gradient is reduce-scattered inside the group, then all-reduced over the ranks
 *   that hold the same part. It does not exchange token rows, and is not quantised.
 * - Gradient accumulation adds gradients locally and reduces them once a step. It needs all of them
 *   at once, so with several micro-batches gradients are held whole.
 * - With COMPRESS=bf16 a gradient is rounded once on each rank before it is sent. The comm adds
 *   in its way (comm.h) and rounds the sum. Norms, updates and accumulation read that sum as fp32.
 *   Rows of the sparse embedding travel as fp32.
 * - With a 16-bit dtype the compute copy is a rounded copy of the masters. Where moments are
 *   sharded, masters are too: each rank rounds its shard, and 16-bit elements are gathered
 *   (store/params.c).
 *
 * Overlap. Calls return before their collectives are done; the comm's thread runs them.
 * - The backward pass: a bucket's gradient is reduced as soon as store_post_backward has it, while
 *   the pass goes on with the next unit.
 * - The next forward pass: what is gathered after the update arrives in the order of the units, and
 *   each bucket is waited for at its first use. So half of a reduction's bytes travel beside the
 *   backward pass, and half beside the next forward pass.
 * - With `none` the second half carries gradients, so a bucket is updated at its first use in the
 *   next forward pass. The gradient norm needs local shards only and is computed between the
 *   halves.
 *
 * The tied token embedding has two gradients.
 * - The output layer's is dense. It is reduced as soon as the head is done.
 * - The input layer's touches the rows of the micro-batch's tokens only. In host memory these rows
 *   are exchanged at the end where they are fewer bytes (sparse_embed.h).
 * - Where rows are exchanged, `none` all-reduces the dense gradient beside the backward pass and
 *   does not gather it later: the next forward pass begins with the embedding.
 * - An embedding that no head uses (param.h: grad_is_added) has the input layer's gradient alone.
 *   Where rows are exchanged, no dense gradient travels; with several micro-batches that of all but
 *   the last one travels beside the last one.
 *
 * Virtual shards: gradients are added along a tree over the shards of the batch, not over the ranks
 * (store/exact.c). Their sum, and the norm, then do not depend on how many ranks there are.
 *
 * The gradient norm: each rank adds the squares of its shard of each bucket. These sums are
 * all-reduced, by the hosts or on the devices, and then added from the last bucket to the first.
 * Where the world has several groups of ranks, each with parameters of its own (mesh_comm.h), every
 * rank adds its sums first; a tensor that several groups hold counts in one of them.
 *
 * Threads: one thread calls a store. Calls are collective, except those that only read: all ranks
 * make the same calls in the same order. A call that waits returns ST_PEER when a rank is lost. */
#ifndef CONVOY_MESH_STORE_H
#define CONVOY_MESH_STORE_H

#include "comm/core/comm.h"
#include "dev/dev.h"
#include "mesh/grad/compress.h"
#include "mesh/store/layout.h"
#include "mesh/store/sparse_embed.h"
#include "model/model.h"

/* The settings that reach the store; a step's config holds them as they are. */
struct store_settings {
    enum layout_shard shard;
    int group_ranks; /* HYBRID: ranks of a group, at least 2; they are neighbours */
    enum grad_compress_kind compress; /* form of gradients that travel */
    bool has_whole_embed;             /* the embedding's gradient never travels as rows of tokens */
    enum dtype dtype;                 /* of the compute copy */
    int64_t bucket_elems_min;         /* as layout_init */
};

/* EXACT=layout: where a rank is among the ranks that share matrices, and how many neighbouring
 * ranks of `comm` share samples. part: the tensors of the last tensor rank, of all stages: no
 * tensor of another rank has more elements. */
struct store_exact_place {
    const struct param_table *part;
    int tensor_rank, tensor_ranks, context_ranks;
};

/* Pointers are borrowed until store_close. */
struct store_config {
    struct dev *dev;
    struct stream *stream;
    struct comm *comm;  /* of the ranks that have the same parameters, of which table tells */
    struct comm *world; /* of all ranks, from which comm is split; NULL: comm has all of them */
    const struct param_table *table;
    const struct param_table *whole; /* of the whole model, of which `table` may be a part */
    struct store_settings settings;
    int shards; /* EXACT=layout: virtual shards of a step, of all ranks; 0: none */
    struct store_exact_place exact; /* where shards is not 0 */
    bool deals_shards; /* store_exact_redeal will be called: room for unequal runs of them */
    bool has_grads;    /* false: parameters only, for evaluation */
    bool accumulates;  /* a step has several micro-batches */
    int moments_n;     /* arrays of optimiser state: 0, 1 or 2 */
    /* hidden matrices have no second moment (param_rest): it reads as zero */
    bool skips_hidden_second;
    /* config.update calls _update_gather and _scatter: all ranks run it in store_update, and none
     * later by itself */
    bool updates_together;
    int64_t pass_tokens;          /* B·T of a micro-batch */
    void (*heartbeat)(void *arg); /* after each large allocation; may be NULL */
    void *heartbeat_arg;
    enum status (*update)(void *arg, int bucket); /* runs the optimiser on store_local_shard */
    void *update_arg;
};

/* Bytes on this rank, by purpose. store_plan predicts these numbers exactly. */
struct store_memory {
    int64_t params, grads, moments; /* whole, or the local shard */
    int64_t unsharded; /* unsharded buffers, token rows, a 16-bit compute copy, rounded gradients */
    int64_t residuals; /* of gradient compression (grad/compress.h) */
};

struct store;

/* ---- open and close ---- */

/* _open: takes all memory; collective. _quiesce: waits for collectives under way, also after a
 * failure; call it before other memory of the device is freed. _close: accepts NULL; quiesces. */
enum status store_open(const struct store_config *config, struct store **out);
void store_quiesce(struct store *s);
void store_close(struct store *s);
/* _plan: the memory that store_open would take on rank `rank` of comm's `ranks`; is_discrete: the
 * device's memory is not the host's. Reads neither dev, stream, comm nor the callbacks of the
 * config. */
enum status store_plan(const struct store_config *config, int rank, int ranks, bool is_discrete,
                       struct store_memory *out);
struct store_memory store_memory(const struct store *s);
int64_t store_memory_bytes(const struct store *s); /* the sum of store_memory */
const struct layout *store_layout(const struct store *s);

/* ---- passes ---- */

/* _bind: sets where a pass reads parameters and writes gradients. */
void store_bind(const struct store *s, struct pass *p);

/* _unshard: waits until a unit's parameters can be read, and starts the all-gather of the next
 * bucket. Unit 0 stays until the update, another unit until the next call for a unit that is not 0.
 * direction: +1 forward, -1 backward, 0 at the end of a walk: no next bucket. */
enum status store_unshard(struct store *s, int unit, int direction);
/* store_params_invalidate — on all ranks: the compute copy is stale: the next use of a unit gathers
 * or rounds its parameters anew. */
void store_params_invalidate(struct store *s);

/* Gradients, in the order of one step:
 * _grad_sync_begin            the last micro-batch begins: its gradients are reduced. tokens: its n
 *                             token ids, in host memory.
 * _prepare_grad               before a unit's backward, in every micro-batch: waits until its slot
 *                             of the unsharded buffer can be overwritten.
 * _embedding_grad_ready       call when the head's embedding gradient is complete, in the last
 *                             micro-batch: starts to reduce it where rows are exchanged. Fits
 *                             pass.embedding_grad_ready; the argument is the store.
 * _post_backward              after a unit's backward, in the last micro-batch: starts to reduce
 *                             its bucket.
 * _sparse_embed_pass          returns the pass for the embedding's backward in the last
 *                             micro-batch: *from; with sparse rows, a copy that writes to the row
 *                             buffer, with indices of rows as tokens (sparse_embed.h). */
enum status store_grad_sync_begin(struct store *s, const int32_t *tokens, int64_t n);
enum status store_prepare_grad(struct store *s, int unit);
enum status store_embedding_grad_ready(void *store);
enum status store_post_backward(struct store *s, int unit);
enum status store_sparse_embed_pass(struct store *s, const struct pass *from, struct pass *out);

/* ---- the gradient norm and the update ---- */

/* _grad_norm_begin: waits for all reductions, and copies this rank's sums of squares to the host.
 * _grad_norm_end: after the next dev_sync of the stream; the square of the norm, over the world.
 * extra: n numbers (at most 8, and one for each virtual shard of each context rank), each replaced
 * by its sum over the world. All ranks get the same bits. */
enum status store_grad_norm_begin(struct store *s);
enum status store_grad_norm_end(struct store *s, double *norm_sq_out, double *extra, int n);
/* On the device, in place of the two calls above: one rank, or comm_stays_on_device, and comm has
 * all ranks. The host does not wait; results are valid in the stream's order.
 * _grad_norm_device: sums _bucket_norms_sq and _loss_sum over the ranks.
 * _bucket_norms_sq: (buckets) f64: sum of squares per bucket.
 * _loss_sum: (1) f64, for the caller to write before _grad_norm_device.
 * _gather_device: all: (ranks, each) on the device, of which this rank has written its part. `each`
 * is a multiple of 16. */
enum status store_grad_norm_device(struct store *s);
struct tensor store_bucket_norms_sq(const struct store *s);
struct tensor store_loss_sum(const struct store *s);
enum status store_gather_device(struct store *s, struct tensor all, int64_t each);

/* _local_shard: what this rank updates of a bucket: elements [first, first + elems) of the table;
 * the tensors begin there. Whole buckets where moments are whole. */
struct store_local_shard {
    int64_t first, elems;
    struct tensor p, g, m, v;
};
struct store_local_shard store_local_shard(const struct store *s, int bucket);
/* store_params_update_copy — for config.update: the 16-bit compute copy of what store_local_shard
 * gives as p. With the call the caller promises to write it together with p, or neither. data NULL:
 * the store makes the copy itself. */
struct tensor store_params_update_copy(struct store *s, int bucket);
/* For config.update, where an update needs whole tensors; collective.
 * _update_gather: gathers what the update has left in g of every rank's local shard. *out: all of
 * the bucket, which the caller may change: every element of a hidden matrix and of the padding
 * behind it becomes a number of one rank and zero on the others. rank, ranks: of those that share
 * the work: all, whatever SHARD is. So each number is made by one processor, and ranks on unlike
 * ones cannot drift apart.
 * _update_scatter: adds them up. Their sum is in g of the local shard again. */
struct store_update_whole {
    struct tensor g;
    int64_t first; /* element of the table */
    int rank, ranks;
};
enum status store_update_gather(struct store *s, int bucket, struct store_update_whole *out);
enum status store_update_scatter(struct store *s, int bucket);
/* _update: calls config.update for every bucket, now or at the bucket's next use. What the callback
 * reads must not change before the next store_grad_norm_end. */
enum status store_update(struct store *s);

/* ---- other sums over the ranks ---- */

/* _all_reduce_begin: sums n values over the world, in place. The call owns them until the ticket is
 * waited for.
 * _wait: waits for a ticket. */
enum status store_all_reduce_begin(struct store *s, double *values, int n,
                                   struct comm_ticket *ticket);
enum status store_wait(struct store *s, struct comm_ticket ticket);

#endif

/* store — parameters, gradients and optimiser moments of one model that several ranks train.
 *
 * The store decides which elements a rank holds, and it runs the collectives that keep the model
 * the same on all ranks. It must not know losses, optimisers, files or the computation of the
 * model.
 *
 * Words (docs/architecture.md has the glossary):
 *   unit             the embedding, one block, or the tensors after the last block (model/param.h);
 *                    a pass walks the units forward and back
 *   bucket           neighbouring tensors that one collective gathers or reduces (layout.h)
 *   local shard      this rank's part of every bucket, one part after the other
 *   unsharded buffer memory for a few whole buckets, used while a pass works on them
 *   masters          the f32 parameters that the optimiser updates
 *   compute copy     the parameters that passes read: the masters themselves, or a copy of them
 *
 * Memory of a rank, by SHARD (DDP, ZeRO-1, ZeRO-2 and FSDP/ZeRO-3; Rajbhandari et al. 2020):
 *
 *              parameters          gradients           moments      all-gathered
 *   none       whole               whole               whole        reduced gradients
 *   optimizer  whole               whole               local shard  parameters, after the update
 *   gradients  whole               shard and buffer    local shard  parameters, after the update
 *   full       shard and buffer    shard and buffer    local shard  parameters, before each use
 *   hybrid     as full, among the ranks of a group; every group holds the same
 *
 * - A single rank holds everything and sends nothing, whatever SHARD is.
 * - The first four give the same bits, because they add the same numbers in the same order; NCCL
 *   adds in an order of its own. The losses of `hybrid` are the same within rounding: it adds the
 *   squares for the gradient norm in fewer parts, and it does not exchange the embedding's rows.
 * - With `hybrid` a gradient is reduce-scattered inside the group, then all-reduced over the ranks
 *   that hold the same part. Token rows are not exchanged, and gradients are not quantised.
 * - Gradient accumulation adds gradients locally and reduces them once per step. It adds to all
 *   gradients in every micro-batch, so with several micro-batches gradients are held whole.
 * - With COMPRESS=bf16 a gradient is rounded once on each rank before it is sent. The comm adds in
 *   its own way (comm.h) and rounds the sum. Norms, updates and accumulation read that sum as fp32.
 *   Rows of the sparse embedding are sent as fp32.
 * - With a 16-bit dtype the compute copy is a rounded copy of the masters. If moments are sharded,
 *   masters are sharded too: each rank rounds its shard, and 16-bit elements are gathered
 *   (store/params.c).
 *
 * Overlap. Calls return before their collectives are done; the comm's thread runs them.
 * - During the backward pass: store_post_backward starts the reduction of a bucket's gradient, and
 *   the pass goes on with the next unit.
 * - During the next forward pass: gradients or parameters that are gathered after the update arrive
 *   in the order of the units, and each bucket is waited for at its first use. So half of a
 *   reduction's bytes are sent during the backward pass, and half during the next forward pass.
 * - With `none` the second half carries gradients, so a bucket is updated at its first use in the
 *   next forward pass. The gradient norm needs local shards only and is computed between the
 *   halves.
 *
 * The tied token embedding has two gradients.
 * - The output layer's is dense. It is reduced as soon as the head is done.
 * - The input layer's touches only the rows of the micro-batch's tokens. In host memory these rows
 *   are exchanged at the end if they are fewer bytes (sparse_embed.h).
 * - If rows are exchanged, `none` all-reduces the dense gradient during the backward pass and does
 *   not gather it later, because the next forward pass begins with the embedding.
 * - An embedding that no head uses (param.h: grad_is_added) has only the input layer's gradient. If
 *   rows are exchanged, no dense gradient is sent. With several micro-batches the dense sum of all
 *   but the last micro-batch is reduced during the last one.
 *
 * Virtual shards: gradients are added along a tree over the shards of the batch, not over the ranks
 * (store/exact.c). Their sum and the norm then do not depend on the number of ranks.
 *
 * The gradient norm: each rank adds the squares of its shard of each bucket. These sums are
 * all-reduced, by the hosts or on the devices, and then added from the last bucket to the first. If
 * the world has several groups of ranks, each with parameters of its own (mesh_comm.h), every rank
 * adds its sums first; a tensor that several groups hold counts in one of them.
 *
 * Frozen parameters (LORA): a second table that no update changes. They are kept in the settings'
 * dtype only, without masters, whole on each rank or, with `full` and `hybrid`, in shards that are
 * gathered before each use.
 *
 * Threads: one thread calls a store. Calls that do more than read are collective: all ranks make
 * the same calls in the same order. A call that waits returns ST_PEER when a rank is lost. */
#ifndef CONVOY_MESH_STORE_H
#define CONVOY_MESH_STORE_H

#include "comm/core/comm.h"
#include "dev/dev.h"
#include "mesh/grad/compress.h"
#include "mesh/store/layout.h"
#include "mesh/store/sparse_embed.h"
#include "model/model.h"

/* The settings of the store; a step's config holds them unchanged. */
struct store_settings {
    enum layout_shard shard;
    int group_ranks; /* HYBRID: ranks of a group, at least 2; they are neighbours */
    enum grad_compress_kind compress; /* form in which gradients are sent */
    bool has_whole_embed;             /* the embedding's gradient is never sent as rows of tokens */
    enum dtype dtype;                 /* dtype of the compute copy */
    int64_t bucket_elems_min;         /* as layout_init */
};

/* EXACT=layout: this rank's position among the ranks that share matrices, and the number of
 * neighbouring ranks of `comm` that share samples. shard: the tensors of the last tensor rank, of
 * all stages: no tensor of another rank has more elements. */
struct store_exact_place {
    const struct param_table *shard;
    int tensor_rank, tensor_ranks, context_ranks;
};

/* Pointers are borrowed until store_close. */
struct store_config {
    struct dev *dev;
    struct stream *stream;
    struct comm *comm; /* comm of the ranks that have the same parameters, the tensors of `table` */
    /* comm of all ranks, from which `comm` is split; NULL: `comm` has all ranks */
    struct comm *world;
    const struct param_table *table;
    const struct param_table
        *whole; /* tensors of the whole model; `table` may be a shard of them */
    /* tensors that passes read and no update changes; NULL: none. frozen_comm: comm of all ranks
     * that have them, if it is not `comm` */
    const struct param_table *frozen;
    struct comm *frozen_comm;
    bool is_frozen; /* `table` is such a table; only for the store itself */
    struct store_settings settings;
    int shards; /* EXACT=layout: virtual shards of a step, over all ranks; 0: none */
    struct store_exact_place exact; /* used if shards is not 0 */
    /* store_exact_redeal will be called: allocate memory for unequal runs of shards */
    bool deals_shards;
    bool has_grads;   /* false: parameters only, for evaluation */
    bool accumulates; /* a step has several micro-batches */
    int moments_n;    /* arrays of optimiser state: 0, 1 or 2 */
    /* hidden matrices have no second moment (param_rest): it reads as zero */
    bool skips_hidden_second;
    /* the callback `update` calls store_update_gather and store_update_scatter; so all ranks call
     * it in store_update, and never later on their own */
    bool updates_together;
    int64_t pass_tokens;          /* B·T of a micro-batch */
    void (*heartbeat)(void *arg); /* called after each large allocation; may be NULL */
    void *heartbeat_arg;
    enum status (*update)(void *arg, int bucket); /* runs the optimiser on store_local_shard */
    void *update_arg;
};

/* Bytes on this rank, by purpose. store_plan predicts these numbers exactly. */
struct store_memory {
    int64_t params, grads, moments; /* the whole arrays, or the local shard */
    /* unsharded buffers, token rows, a 16-bit compute copy, rounded gradients, received partial
     * sums */
    int64_t unsharded;
    int64_t residuals; /* memory of gradient compression (grad/compress.h) */
    int64_t frozen;    /* frozen parameters, with their unsharded buffers */
};

struct store;

/* ---- open and close ---- */

/* store_open — allocates all memory of the store. Collective. */
enum status store_open(const struct store_config *config, struct store **out);
/* store_quiesce — waits for collectives in progress, also after a failure. Call it before other
 * memory of the device is freed. */
void store_quiesce(struct store *s);
/* store_close — quiesces the store and frees it. Accepts NULL. */
void store_close(struct store *s);
/* store_plan — computes the memory that store_open would allocate on rank `rank` of comm's `ranks`.
 * is_discrete: the device's memory is not the host's. Reads neither dev, stream, comm nor the
 * callbacks of the config. */
enum status store_plan(const struct store_config *config, int rank, int ranks, bool is_discrete,
                       struct store_memory *out);
/* store_memory — returns the bytes that store_open has allocated on this rank. */
struct store_memory store_memory(const struct store *s);
int64_t store_memory_bytes(const struct store *s); /* sum of store_memory */
/* store_frozen — returns the store of the frozen parameters, for its state (store_state): array 0
 * can be written, and with 16 bits not be read. NULL: there are none. */
struct store *store_frozen(const struct store *s);
/* store_layout — returns the buckets and this rank's part of each; valid until store_close. */
const struct layout *store_layout(const struct store *s);

/* ---- passes ---- */

/* store_bind — sets the memory in which a pass reads parameters and writes gradients. With frozen
 * parameters these are the model's, and the others are the adapter's. */
void store_bind(const struct store *s, struct pass *p);

/* store_unshard — waits until a unit's parameters can be read, and starts the all-gather of the
 * next bucket. The parameters of unit 0 can be read until the update, the parameters of another
 * unit until the next call for a unit that is not 0. direction: +1 forward, -1 backward, 0 at the
 * end of a walk: no next bucket. */
enum status store_unshard(struct store *s, int unit, int direction);
/* store_params_invalidate — marks the compute copy as stale: the next use of a unit gathers or
 * rounds its parameters again. Call it on all ranks. */
void store_params_invalidate(struct store *s);

/* Gradients. The functions are listed in the order of one step. */

/* store_grad_sync_begin — begins the last micro-batch, whose gradients are reduced. tokens: its n
 * token ids, in host memory. is_first: it is this rank's only micro-batch of the step. */
enum status store_grad_sync_begin(struct store *s, const int32_t *tokens, int64_t n, bool is_first);
/* store_embed_is_reducing — in the last micro-batch: returns true if store_grad_sync_begin has
 * begun to reduce the token embedding's gradient, to which this micro-batch adds rows apart. */
bool store_embed_is_reducing(const struct store *s);
/* store_prepare_grad — waits until the unit's slot of the unsharded buffer can be overwritten. Call
 * it before a unit's backward, in every micro-batch. */
enum status store_prepare_grad(struct store *s, int unit);
/* store_embedding_grad_ready — starts to reduce the head's gradient of the embedding if rows are
 * exchanged. Call it in the last micro-batch, when that gradient is complete. Fits
 * pass.embedding_grad_ready; the argument is the store. */
enum status store_embedding_grad_ready(void *store);
/* store_post_backward — starts to reduce the unit's bucket. Call it after a unit's backward, in the
 * last micro-batch. */
enum status store_post_backward(struct store *s, int unit);
/* store_sparse_embed_pass — returns the pass for the embedding's backward in the last micro-batch:
 * *from, or with sparse rows a copy that writes to the row buffer and has indices of rows as tokens
 * (sparse_embed.h). */
enum status store_sparse_embed_pass(struct store *s, const struct pass *from, struct pass *out);

/* ---- the gradient norm and the update ---- */

/* store_grad_norm_begin — waits for all reductions, and copies this rank's sums of squares to the
 * host. */
enum status store_grad_norm_begin(struct store *s);
/* store_grad_norm_end — computes the square of the norm over the world. Call it after the next
 * dev_sync of the stream. extra: n numbers (at most 8, and one for each virtual shard of each
 * context rank), each replaced by its sum over the world. All ranks get the same bits. */
enum status store_grad_norm_end(struct store *s, double *norm_sq_out, double *extra, int n);
/* The norm on the device, in place of the two calls above: for one rank, or if comm_stays_on_device
 * and comm has all ranks. The host does not wait; results are valid in the stream's order. */

/* store_grad_norm_device — sums store_bucket_norms_sq and store_loss_sum over the ranks. */
enum status store_grad_norm_device(struct store *s);
/* store_bucket_norms_sq — returns the sum of squares of each bucket: (buckets) f64. */
struct tensor store_bucket_norms_sq(const struct store *s);
/* store_loss_sum — returns the (1) f64 to which the caller writes its loss before
 * store_grad_norm_device. */
struct tensor store_loss_sum(const struct store *s);
/* store_gather_device — gathers the parts of all ranks into `all`, (ranks, each) on the device,
 * after this rank has written its part there. `each` is a multiple of 16. */
enum status store_gather_device(struct store *s, struct tensor all, int64_t each);

/* Elements [first, first + elems) of the table, with their parameters, gradients and moments; the
 * tensors begin at element `first`. */
struct store_local_shard {
    int64_t first, elems;
    struct tensor p, g, m, v;
};
/* store_local_shard — returns the elements of a bucket that this rank updates: the whole bucket if
 * moments are whole. */
struct store_local_shard store_local_shard(const struct store *s, int bucket);
/* store_params_update_copy — returns the 16-bit compute copy of the elements that store_local_shard
 * returns as p. For config.update: with the call it promises to write the copy together with p, or
 * neither. data NULL: the store makes the copy itself. */
struct tensor store_params_update_copy(struct store *s, int bucket);
/* A whole bucket, for a config.update that needs whole tensors. first: element of the table at
 * which g begins. rank, ranks: position of this rank among the ranks that share the work; these are
 * all ranks, whatever SHARD is. So each number is computed by one processor, and ranks on different
 * processors cannot drift apart. */
struct store_update_whole {
    struct tensor g;
    int64_t first; /* element of the table */
    int rank, ranks;
};
/* store_update_gather — gathers the values that the update has left in g of every rank's local
 * shard. *out: the whole bucket, which the caller may change: every element of a hidden matrix and
 * of the padding after it becomes a number on one rank and zero on the others. Collective. */
enum status store_update_gather(struct store *s, int bucket, struct store_update_whole *out);
/* store_update_scatter — adds these numbers over the ranks; g of the local shard then holds their
 * sum. Collective. */
enum status store_update_scatter(struct store *s, int bucket);
/* store_update — calls config.update for every bucket, now or at the bucket's next use. Data that
 * the callback reads must not change before the next store_grad_norm_end. */
enum status store_update(struct store *s);

/* ---- other sums over the ranks ---- */

/* store_all_reduce_begin — starts to sum n values over the world, in place. The call owns them
 * until the ticket is waited for. */
enum status store_all_reduce_begin(struct store *s, double *values, int n,
                                   struct comm_ticket *ticket);
/* store_wait — waits for the ticket's call. */
enum status store_wait(struct store *s, struct comm_ticket ticket);

#endif

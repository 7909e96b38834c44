/* store — the memory of one model that several ranks train: parameters, gradients, moments, whole
 * or in parts, and the messages that keep them one model.
 *
 * Design. A step walks the units forward and back as if it were alone. It tells the store when it
 * is about to use a unit (store_unshard, store_prepare_grad) and when a unit's gradient is done
 * (store_post_backward); the store gathers and reduces buckets (layout.h) in the comm's thread
 * meanwhile, and store_grad_norm_end waits for what is left.
 *
 *              parameters                    gradients                            moments
 *   none       whole                         whole, parts reduced, then gathered  whole
 *   optimizer  whole, gathered after update  whole, own parts reduced             own parts
 *   gradients  whole, gathered after update  buffer, reduced into own parts       own parts
 *   full       own parts, buffer gathered    buffer, reduced into own parts       own parts
 *
 * What is gathered after the backward pass (gradients, or parameters that their owners have
 * updated) comes in the order of the next forward pass, which waits for each bucket at its first
 * use: so half of a reduction's bytes travel beside the backward pass and half beside the next
 * forward. With `none` a bucket's update is done there too (it is due until then): only the norm,
 * which needs own parts alone, stands between the two halves. But where token rows travel by
 * themselves, the rest of the embedding's gradient, whose largest part the head makes first of all,
 * is reduced and gathered beside the backward pass, for the next forward begins with it.
 *
 * All four add the same numbers in the same order: what is kept differs, not what is computed, so
 * they give the same bits. With accumulation gradients are added up locally and reduced once a
 * step, in every way of sharding; that needs them whole, so then the buffer's memory is saved only
 * for parameters and moments. One rank shares nothing: then all ways are `none`.
 *
 * The norm: each rank adds the squares of its own part of each bucket; the sums of the buckets are
 * all-reduced and added from the last bucket to the first. The tied embedding's gradient has two
 * sources: the output layer's, reduced as soon as the head is done, and the token rows of the last
 * micro-batch, exchanged at the end (sparse_embed.h) where that is cheaper and the gradients lie in
 * the host's memory.
 *
 * With a 16-bit dtype passes read a rounded compute_copy of what the table's `parameters` column
 * says is there. What is kept and updated are f32 masters: with `none` whole, each bucket rounded,
 * on the stream, at its first use after it changed; else own parts alone, also where the table says
 * `whole`. Then each rank rounds its own part, and 16-bit elements are gathered: passes read the
 * same bits, half the bytes travel, and no rank holds masters that it does not update
 * (store_params.c).
 *
 * Every call here but the readers is collective: all ranks make the same calls in the same order.
 * Must not know losses, optimisers, files or what the model computes. */
#ifndef CONVOY_MESH_STORE_H
#define CONVOY_MESH_STORE_H

#include "comm/core/comm.h"
#include "dev/dev.h"
#include "mesh/layout.h"
#include "mesh/grad_compress.h"
#include "model/model.h"

struct store_config {
    struct dev *dev;
    struct stream *stream;
    struct comm *comm;
    const struct param_table *table; /* outlives the store */
    enum layout_shard shard;
    enum grad_compress_kind compress;
    bool has_grads;      /* false: parameters only */
    bool is_accumulated; /* a step has several micro-batches */
    /* of the parameters that passes read: f32, the masters themselves; else rounded copies of them
     * */
    enum dtype dtype;
    int moments;
    int64_t pass_tokens;          /* B·T of a micro-batch */
    int64_t bucket_elems_min;     /* as layout_init */
    void (*heartbeat)(void *arg); /* between large buckets of memory; NULL allowed */
    void *heartbeat_arg;
    /* the optimiser, on store_local_shard of a bucket */
    enum status (*update)(void *arg, int bucket);
    void *update_arg;
};

/* Bytes by purpose; planned from the layout, and taken: the same. */
struct store_memory {
    int64_t params, grads, moments; /* what is held of them, wholly or in parts */
    /* whole buckets while they are worked on, token rows, and 16-bit parameters */
    int64_t unsharded;
    int64_t residuals; /* compression: what is not sent yet, and what is on the way */
};

struct store;
enum status store_open(const struct store_config *config, struct store **out);
/* accepts NULL; waits for what is under way, also after a failure */
void store_close(struct store *s);
struct store_memory store_memory(const struct store *s);
/* store_plan — what store_open would take on rank `rank` of `ranks`, whose memory is apart from the
 * host's or not. Of the config dev, stream, comm and the callbacks are not looked at. */
enum status store_plan(const struct store_config *config, int rank, int ranks, bool is_discrete,
                       struct store_memory *out);
int64_t store_memory_bytes(const struct store *s);
const struct layout *store_layout(const struct store *s);

/* store_bind — where a pass finds parameters and leaves gradients. */
void store_bind(const struct store *s, struct pass *p);

/* store_unshard — the unit's parameters are there when this returns, until the unit after next is
 * needed; those of unit 0 until the update. way: +1 the walk goes up, -1 down, 0 it ends: what
 * comes next is gathered meanwhile. */
enum status store_unshard(struct store *s, int unit, int way);

/* One step's gradients. store_grad_sync_begin: the last micro-batch begins; tokens (n, host, below
 * the vocabulary). store_prepare_grad: before a unit's backward. store_post_backward: after it, of
 * the last micro-batch only; store_embedding_grad_ready (of a store): when all of the output
 * layer's part of the embedding's gradient is asked for (pass.embedding_grad_ready), so that it may
 * travel. store_embed_pass: the pass for the backward of unit 0, in the last micro-batch. */
enum status store_grad_sync_begin(struct store *s, const int32_t *tokens, int64_t n);
enum status store_prepare_grad(struct store *s, int unit);
enum status store_embedding_grad_ready(void *store);
enum status store_post_backward(struct store *s, int unit);
enum status store_embed_pass(struct store *s, const struct pass *from, struct pass *out);

/* store_grad_norm_begin — all gradients are reduced, and the squares of this rank's on their way to
 * the host: after the next dev_sync of the stream store_grad_norm_end makes the norm of them.
 * extra: n numbers, replaced by their sums over ranks. Then the same bits are on every rank. */
enum status store_grad_norm_begin(struct store *s);
enum status store_grad_norm_end(struct store *s, double *norm_sq_out, double *extra, int n);
/* store_bucket_norms_sq — of a rank alone, once all units are done: the squares of each bucket
 * (store_layout), f64 on the device. Their sum from the last bucket to the first is the norm's
 * square: such a rank may go without store_grad_norm_begin and store_grad_norm_end. */
struct tensor store_bucket_norms_sq(const struct store *s);

/* store_update — every bucket is updated, now or before its next use, by config.update: what that
 * needs stays as it is until the next store_grad_norm_end. store_local_shard: what this rank
 * updates of a bucket (elements [first, first+elems) of the table; the tensors begin there). */
struct store_local_shard {
    int64_t first, elems;
    struct tensor p, g, m, v;
};
struct store_local_shard store_local_shard(const struct store *s, int bucket);
enum status store_update(struct store *s);

/* store_sum_begin, store_wait — other small sums over the ranks, waited for and counted like the
 * rest. */
enum status store_sum_begin(struct store *s, double *values, int n, struct comm_ticket *ticket);
enum status store_wait(struct store *s, struct comm_ticket ticket);

/* store_times — milliseconds since the last call: the wire at work, and this thread waiting for
 * it. */
void store_times(struct store *s, double *comm_ms_out, double *wait_ms_out);

/* The state. part 0 parameters, 1 and 2 moments; ranges of the table. store_replicated: the address
 * of a part that lies here whole, else data NULL (of the gradients: part -1). store_holds: does
 * this rank hold any of that range? store_set: from values (host) that this rank has at hand, no
 * messages; once a pass has read the rounded copy, the only way to change them. store_drain:
 * nothing is under way or due; before store_replicated. More: store_state.h. */
struct tensor store_replicated(const struct store *s, int part);
bool store_holds(const struct store *s, int part, int64_t first, int64_t n);
enum status store_set(struct store *s, int part, int64_t first, int64_t n, const float *values);
enum status store_drain(struct store *s);

#endif

/* grad_compress — gradients that are compressed on the way from rank to rank.
 *
 * Every rank quantises its gradient of a bucket part by part, each part goes to its owner, the
 * owner adds what the parts say in the order of sum_tree.h, quantises the sum, and everybody (or
 * the owner alone) takes what that says: so all ranks hold the same bits, whatever they keep. What
 * INT8 lost is added to the next step's gradient, by the sender for its own, by the owner for the
 * sum (error feedback: Seide et al. 2014; Karimireddy et al. 2019; on both sides as in 1-bit Adam,
 * Tang et al. 2021). What was lost last is no part of a checkpoint: a resumed run begins with none.
 *
 * All of it runs in the comm's thread, bucket after bucket, on a CPU of one thread of its own;
 * gradients that lie in the memory of a GPU are brought here and back. Must not know units, steps
 * or whose gradient it is. */
#ifndef CONVOY_MESH_SQUEEZE_H
#define CONVOY_MESH_SQUEEZE_H

#include "comm/core/comm.h"

enum grad_compress_kind {
    GRAD_COMPRESS_KIND_NONE,
    GRAD_COMPRESS_KIND_BF16,
    GRAD_COMPRESS_KIND_INT8
};

struct grad_compress_config {
    struct comm *comm;
    struct dev *dev;              /* in whose memory gradients lie; NULL: the host's */
    enum grad_compress_kind kind; /* not NONE */
    /* buckets from here on: grad_compress_gather_begin is used, and what that needs is kept */
    int deferred_first;
    int buckets_n;
    const int64_t *bucket_elems;
};

struct grad_compress;
enum status grad_compress_open(const struct grad_compress_config *config,
                               struct grad_compress **out);
void grad_compress_close(struct grad_compress *q); /* accepts NULL; the comm's thread is at rest */
int64_t grad_compress_bytes(const struct grad_compress *q); /* memory taken */
/* grad_compress_plan — the same before it is taken, for one of `ranks` whose memory is apart from
 * the host's or not. Of the config kind, deferred_first and buckets are looked at. */
int64_t grad_compress_plan(const struct grad_compress_config *config, int rank, int ranks,
                           bool is_discrete);

/* grad_compress_begin — the sum over ranks of bucket `bucket`, at `from` (its gradient, f32):
 * to_all gets all of it; to_own, when to_all is NULL, this rank's part (part_extent). Either may
 * lie in `from`. from and to belong to the call until the ticket is waited for. */
enum status grad_compress_begin(struct grad_compress *q, int bucket, const float *from,
                                float *to_all, float *to_own, struct comm_ticket *ticket);

/* grad_compress_gather_begin — the other ranks' parts of a bucket whose own part came into its
 * place in to_all, after that has been waited for. to_all belongs to the call until the ticket is
 * waited for. */
enum status grad_compress_gather_begin(struct grad_compress *q, int bucket, float *to_all,
                                       struct comm_ticket *ticket);

#endif

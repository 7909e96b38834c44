/* grad_compress — the forms in which gradients are sent, and all-reduce and reduce-scatter of
 * quantised gradients. store/reduce.c chooses the form of each bucket. It must not know units or
 * steps.
 *
 * For each bucket:
 * - Each rank quantises its gradient part by part and sends each part to its owner.
 * - The owner adds the parts in the order of sum.h, and quantises the sum.
 * - All ranks, or only the owner, use the dequantised sum. So all hold the same bits.
 *
 * Error feedback: the rounding error of INT8 and INT4 is added to the next step's gradient, by the
 * sender for its gradient and by the owner for the sum. (Seide et al. 2014; Karimireddy et al.
 * 2019; on both sides as in 1-bit Adam, Tang et al. 2021.) Residuals of gradients are not in
 * checkpoints: a resumed run begins with none. Residuals of outer steps are
 * (train/feature/step_local_state.c).
 *
 * Coding (INT8_ZSTD and INT4_ZSTD): messages are coded by grad/code.h, and INT8_ZSTD is quantised
 * as INT8_RMS of grad/code.h. Messages then have no fixed size: the ranks first agree on the size
 * of the longest one, and all messages have this size.
 *
 * Everything runs in the comm's thread, bucket after bucket, on a CPU device of one thread.
 * Gradients in a GPU's memory are copied to the host and back. */
#ifndef CONVOY_MESH_GRAD_COMPRESS_H
#define CONVOY_MESH_GRAD_COMPRESS_H

#include "comm/core/comm.h"
#include "comm/core/part.h"

/* Coded messages: bytes of each rank in the gather of lengths, which runs before an exchange or a
 * gather. It is the least size of equal parts of a gather (part.h). */
#define GRAD_COMPRESS_LENGTH_BYTES PART_ALIGN

enum grad_compress_kind {
    GRAD_COMPRESS_KIND_NONE,
    GRAD_COMPRESS_KIND_BF16, /* rounded by the store, and added by the comm (mesh/store/store.h) */
    GRAD_COMPRESS_KIND_INT8,
    GRAD_COMPRESS_KIND_INT4,
    GRAD_COMPRESS_KIND_INT8_ZSTD,
    GRAD_COMPRESS_KIND_INT4_ZSTD,
    GRAD_COMPRESS_KIND_N
};

/* grad_compress_quantises — returns true if gradients of this kind are quantised: they need a
 * struct grad_compress. */
static inline bool grad_compress_quantises(enum grad_compress_kind kind)
{
    return kind >= GRAD_COMPRESS_KIND_INT8;
}

/* grad_compress_is_coded — returns true if messages of this kind are coded. */
static inline bool grad_compress_is_coded(enum grad_compress_kind kind)
{
    return kind >= GRAD_COMPRESS_KIND_INT8_ZSTD;
}

struct grad_compress_config {
    struct comm *comm;
    struct dev *dev; /* device that holds the gradients; NULL: they lie in host memory */
    enum grad_compress_kind kind; /* a kind that quantises */
    int deferred_first;           /* first bucket that is gathered by grad_compress_gather_begin */
    int buckets_n;
    const int64_t *bucket_elems;
};

struct grad_compress;
/* grad_compress_open — allocates residuals and buffers for all buckets; residuals begin at 0. It
 * borrows comm and dev until close. Not collective. */
enum status grad_compress_open(const struct grad_compress_config *config,
                               struct grad_compress **out);
/* grad_compress_close — frees all memory; no call may be in progress. Accepts NULL. */
void grad_compress_close(struct grad_compress *q);
/* grad_compress_part_bytes — returns the bytes that each rank sends to each other rank for a bucket
 * of `elems` elements: the packed bytes of the largest part. Coded messages have no fixed size; for
 * them it is an estimate from above, for gradients of a normal distribution. */
int64_t grad_compress_part_bytes(enum grad_compress_kind kind, int ranks, int64_t elems);
/* grad_compress_plan — returns the bytes that grad_compress_open would allocate on rank `rank` of
 * `ranks`. is_discrete: gradients lie in a device's own memory. Reads kind, deferred_first and
 * buckets. */
int64_t grad_compress_plan(const struct grad_compress_config *config, int rank, int ranks,
                           bool is_discrete);

/* grad_compress_begin — starts to sum one bucket (f32, at `from`) over all ranks, and returns.
 * to_all: buffer for the whole sum; NULL: to_own gets this rank's part. Either may lie in `from`.
 * The buffers belong to the call until the ticket is waited for. */
enum status grad_compress_begin(struct grad_compress *q, int bucket, const float *from,
                                float *to_all, float *to_own, struct comm_ticket *ticket);
/* grad_compress_gather_begin — starts to gather the other ranks' parts of the sum, and returns. For
 * a bucket from deferred_first on, after grad_compress_begin with to_own. to_all: the whole bucket,
 * with this rank's part already in it; it belongs to the call until the ticket is waited for. */
enum status grad_compress_gather_begin(struct grad_compress *q, int bucket, float *to_all,
                                       struct comm_ticket *ticket);

/* The error feedback of a bucket. own: residuals of all its elements; sum: residuals of this rank's
 * part. */
struct grad_compress_residual {
    float *own, *sum;
};
/* grad_compress_residual — returns the error feedback of a bucket, for a caller that saves it. No
 * call may be in progress. */
struct grad_compress_residual grad_compress_residual(const struct grad_compress *q, int bucket);

/* The elements and bytes that this rank has sent to other ranks, without the headers of messages.
 * With coding, bytes include the exchanged lengths. */
struct grad_compress_traffic {
    int64_t elems, bytes;
};
/* grad_compress_traffic — for tests: returns the traffic since grad_compress_open. No call may be
 * in progress. */
struct grad_compress_traffic grad_compress_traffic(const struct grad_compress *q);

#endif

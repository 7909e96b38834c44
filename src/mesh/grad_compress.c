/* grad_compress — see grad_compress.h. */
#include "mesh/grad_compress.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/assert.h"
#include "comm/core/part.h"
#include "comm/core/sum_tree.h"
#include "dev/dev.h"
#include "kernels/cpu.h"

/* added up at once: all ranks' values of so many stay in cache */
#define RUN_ELEMS (64 * COMPRESS_BLOCK)

struct bucket {
    int64_t elems, part_bytes; /* packed bytes of the largest part */
    /* INT8: what quantising lost: of this rank's gradient; of the sum of its part */
    float *lost, *lost_sum;
    /* packed sum of this rank's part, until it is gathered; NULL: it is so at once */
    uint8_t *sum;
};

/* What one begun call is about; a bucket has one at a time. */
struct job {
    struct grad_compress *q;
    int bucket;
    const float *from;
    float *to_all, *to_own;
};

struct grad_compress {
    struct grad_compress_config c;
    enum compress_kind kind;
    int rank, ranks;
    struct dev *dev;
    struct stream *stream;
    struct bucket *bucket;
    struct job *job;
    uint8_t *send, *got;         /* ranks × the largest part_bytes each */
    float *runs;                 /* ranks × RUN_ELEMS */
    struct sum_tree_step *order; /* ranks - 1 */
    void *lost, *sums;           /* of all buckets, from the device */
    int64_t lost_bytes, sums_bytes;
    /* of config.dev, when its memory is apart from the host's; else NULL */
    struct stream *far;
    float *near; /* then: a bucket on the host */
    int64_t bytes;
};

static enum status take(struct grad_compress *q, int64_t n, size_t each, void **out)
{
    *out = calloc((size_t)(n > 0 ? n : 1), each);
    q->bytes += n * (int64_t)each;
    return *out ? ST_OK
                : FAIL(memory_status(n * (int64_t)each),
                       "out of memory: %lld x %zu bytes to compress gradients; use COMPRESS=none",
                       (long long)n, each);
}

static enum compress_kind kind_of(const struct grad_compress_config *c)
{
    return c->kind == GRAD_COMPRESS_KIND_INT8 ? COMPRESS_KIND_INT8 : COMPRESS_KIND_BF16;
}

/* Packed bytes of the largest part of a bucket. */
static int64_t part_bytes_of(enum compress_kind kind, int ranks, int64_t elems)
{
    struct part_extent largest = part_extent(elems, ranks, 0);
    for (int rank = 1; rank < ranks; rank++)
        if (part_extent(elems, ranks, rank).elems > largest.elems)
            largest = part_extent(elems, ranks, rank);
    int64_t bytes = compress_bytes(kind, largest.elems);
    return (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

static void plan_bucket(const struct grad_compress *q, struct bucket *p, int64_t elems)
{
    p->elems = elems;
    p->part_bytes = part_bytes_of(q->kind, q->ranks, elems);
}

int64_t grad_compress_plan(const struct grad_compress_config *c, int rank, int ranks,
                           bool is_discrete)
{
    enum compress_kind kind = kind_of(c);
    int64_t part_most = 0, bucket_most = 1, kept = 0;
    for (int i = 0; i < c->buckets_n; i++) {
        int64_t elems = c->bucket_elems[i], part = part_bytes_of(kind, ranks, elems);
        part_most = part > part_most ? part : part_most;
        bucket_most = elems > bucket_most ? elems : bucket_most;
        if (kind == COMPRESS_KIND_INT8)
            kept += (elems + part_extent(elems, ranks, rank).elems) * (int64_t)sizeof(float);
        kept += i >= c->deferred_first ? part : 0;
    }
    return c->buckets_n * (int64_t)(sizeof(struct bucket) + sizeof(struct job)) +
           2 * ranks * part_most +
           ranks * (int64_t)(RUN_ELEMS * sizeof(float) + sizeof(struct sum_tree_step)) + kept +
           (is_discrete ? bucket_most * (int64_t)sizeof(float) : 0);
}

/* What every bucket keeps from step to step: large, walked through in order, so in large pages. */
static enum status take_kept(struct grad_compress *q)
{
    int64_t lost_n = 0;
    for (int i = 0; i < q->c.buckets_n; i++) {
        lost_n += q->bucket[i].elems + part_extent(q->bucket[i].elems, q->ranks, q->rank).elems;
        q->sums_bytes += i >= q->c.deferred_first ? q->bucket[i].part_bytes : 0;
    }
    q->lost_bytes = q->kind == COMPRESS_KIND_INT8 ? lost_n * (int64_t)sizeof(float) : 0;
    q->bytes += q->lost_bytes + q->sums_bytes;
    if (q->lost_bytes > 0)
        TRY(dev_alloc(q->dev, (size_t)q->lost_bytes, &q->lost));
    if (q->sums_bytes > 0)
        TRY(dev_alloc(q->dev, (size_t)q->sums_bytes, &q->sums));
    float *lost = q->lost;
    int64_t sums_at = 0;
    for (int i = 0; i < q->c.buckets_n; i++) {
        struct bucket *p = &q->bucket[i];
        if (lost) {
            p->lost = lost;
            p->lost_sum = lost + p->elems;
            lost = p->lost_sum + part_extent(p->elems, q->ranks, q->rank).elems;
        }
        if (i >= q->c.deferred_first) {
            p->sum = (uint8_t *)q->sums + sums_at;
            sums_at += p->part_bytes;
        }
    }
    ASSERTF(sums_at == q->sums_bytes, "taken %lld dealt %lld", (long long)q->sums_bytes,
            (long long)sums_at);
    return ST_OK;
}

static enum status take_near(struct grad_compress *q)
{
    int64_t most = 1;
    void *near;
    for (int i = 0; i < q->c.buckets_n; i++)
        most = q->c.bucket_elems[i] > most ? q->c.bucket_elems[i] : most;
    TRY(dev_stream_open(q->c.dev, &q->far));
    TRY(dev_pin(q->c.dev, (size_t)most * sizeof *q->near, &near));
    q->near = near;
    q->bytes += most * (int64_t)sizeof *q->near;
    return ST_OK;
}

static enum status take_all(struct grad_compress *q)
{
    int64_t part_bytes = 0;
    void *memory;
    TRY(take(q, q->c.buckets_n, sizeof *q->bucket, &memory));
    q->bucket = memory;
    TRY(take(q, q->c.buckets_n, sizeof *q->job, &memory));
    q->job = memory;
    for (int i = 0; i < q->c.buckets_n; i++) {
        plan_bucket(q, &q->bucket[i], q->c.bucket_elems[i]);
        part_bytes = q->bucket[i].part_bytes > part_bytes ? q->bucket[i].part_bytes : part_bytes;
    }
    TRY(take(q, q->ranks * part_bytes, 1, &memory));
    q->send = memory;
    TRY(take(q, q->ranks * part_bytes, 1, &memory));
    q->got = memory;
    TRY(take(q, q->ranks * RUN_ELEMS, sizeof *q->runs, &memory));
    q->runs = memory;
    TRY(take(q, q->ranks, sizeof *q->order, &memory));
    q->order = memory;
    sum_tree_plan(q->ranks, q->order);
    TRY(dev_cpu_open(1, CPU_ISA_N, &q->dev));
    TRY(take_kept(q));
    TRY(dev_stream_open(q->dev, &q->stream));
    return dev_is_discrete(q->c.dev) ? take_near(q) : ST_OK;
}

enum status grad_compress_open(const struct grad_compress_config *config,
                               struct grad_compress **out)
{
    ASSERT(config->kind != GRAD_COMPRESS_KIND_NONE);
    struct grad_compress *q = calloc(1, sizeof *q);
    if (!q)
        return FAIL(ST_RETRY, "out of memory: compression");
    q->c = *config;
    q->kind = kind_of(config);
    q->rank = comm_place(config->comm)->rank;
    q->ranks = comm_place(config->comm)->ranks;
    enum status st = take_all(q);
    ASSERTF(st != ST_OK || q->bytes == grad_compress_plan(config, q->rank, q->ranks,
                                                          dev_is_discrete(config->dev)),
            "planned and taken differ: %lld taken", (long long)q->bytes);
    if (st == ST_OK)
        *out = q;
    else
        grad_compress_close(q);
    return st;
}

void grad_compress_close(struct grad_compress *q)
{
    if (!q)
        return;
    if (q->lost)
        dev_free(q->dev, q->lost, (size_t)q->lost_bytes);
    if (q->sums)
        dev_free(q->dev, q->sums, (size_t)q->sums_bytes);
    free(q->bucket);
    free(q->job);
    free(q->send);
    free(q->got);
    free(q->runs);
    free(q->order);
    dev_stream_close(q->far);
    if (q->near)
        dev_unpin(q->c.dev, q->near);
    dev_stream_close(q->stream);
    dev_close(q->dev);
    free(q);
}

int64_t grad_compress_bytes(const struct grad_compress *q) { return q->bytes; }

/* ---- in the comm's thread ---- */

static enum status pack(struct grad_compress *q, const float *x, float *lost, int64_t n,
                        uint8_t *packed)
{
    return dev_op(q->dev)->compress(q->stream,
                                    &(struct compress){.packed = {packed, DTYPE_U8},
                                                       .residual = {lost, DTYPE_F32},
                                                       .x = {(void *)(uintptr_t)x, DTYPE_F32},
                                                       .n = n,
                                                       .kind = q->kind});
}

static enum status unpack(struct grad_compress *q, const uint8_t *packed, int64_t n, float *y)
{
    return dev_op(q->dev)->expand(q->stream,
                                  &(struct expand){.y = {y, DTYPE_F32},
                                                   .packed = {(void *)(uintptr_t)packed, DTYPE_U8},
                                                   .n = n,
                                                   .kind = q->kind});
}

/* Elements [first, first + n) of this rank's part: what every rank says of them, added in the order
 * of sums. */
static enum status add_run(struct grad_compress *q, int64_t part_bytes, int64_t first, int64_t n,
                           float *sum)
{
    for (int rank = 0; rank < q->ranks; rank++)
        TRY(unpack(q, q->got + rank * part_bytes + compress_bytes(q->kind, first), n,
                   q->runs + rank * RUN_ELEMS));
    for (int i = 0; i < q->ranks - 1; i++) {
        float *restrict to = q->runs + q->order[i].to * RUN_ELEMS;
        const float *restrict from = q->runs + q->order[i].from * RUN_ELEMS;
        for (int64_t k = 0; k < n; k++)
            to[k] += from[k];
    }
    memcpy(sum, q->runs, (size_t)n * sizeof *sum);
    return ST_OK;
}

static enum status send_parts(struct grad_compress *q, const struct job *job,
                              const struct bucket *p)
{
    for (int rank = 0; rank < q->ranks; rank++) {
        struct part_extent part = part_extent(p->elems, q->ranks, rank);
        float *lost = p->lost ? p->lost + part.first : NULL;
        TRY(pack(q, job->from + part.first, lost, part.elems, q->send + rank * p->part_bytes));
    }
    struct tensor got = {q->got, DTYPE_U8}, send = {q->send, DTYPE_U8};
    return comm_all_to_all(q->c.comm, got, send, p->part_bytes);
}

/* The sum of this rank's part, quantised; a run is packed while it is in cache. */
static enum status add_parts(struct grad_compress *q, const struct bucket *p, uint8_t *packed)
{
    float sum[RUN_ELEMS];
    int64_t elems = part_extent(p->elems, q->ranks, q->rank).elems;
    for (int64_t first = 0; first < elems; first += RUN_ELEMS) {
        int64_t n = elems - first < RUN_ELEMS ? elems - first : RUN_ELEMS;
        TRY(add_run(q, p->part_bytes, first, n, sum));
        TRY(pack(q, sum, p->lost_sum ? p->lost_sum + first : NULL, n,
                 packed + compress_bytes(q->kind, first)));
    }
    return ST_OK;
}

/* Packed sums of all parts come together; but_own: this rank's part lies in `to` already. */
static enum status gather_parts(struct grad_compress *q, const struct bucket *p, uint8_t *packed,
                                float *to, bool but_own)
{
    struct tensor all = {q->got, DTYPE_U8}, mine = {packed, DTYPE_U8};
    TRY(comm_all_gather(q->c.comm, all, mine, q->ranks * p->part_bytes));
    for (int rank = 0; rank < q->ranks; rank++) {
        struct part_extent part = part_extent(p->elems, q->ranks, rank);
        if (rank != q->rank || !but_own)
            TRY(unpack(q, q->got + rank * p->part_bytes, part.elems, to + part.first));
    }
    return ST_OK;
}

static enum status sum_here(const struct job *job)
{
    struct grad_compress *q = job->q;
    const struct bucket *p = &q->bucket[job->bucket];
    uint8_t *packed = p->sum && !job->to_all ? p->sum : q->send;
    TRY(send_parts(q, job, p));
    TRY(add_parts(q, p, packed));
    if (job->to_all)
        return gather_parts(q, p, packed, job->to_all, false);
    return unpack(q, packed, part_extent(p->elems, q->ranks, q->rank).elems, job->to_own);
}

/* From or to the device, to the end. */
static enum status bring(struct grad_compress *q, void *dst, const void *src, int64_t elems)
{
    TRY(dev_make_current(q->c.dev));
    TRY(dev_copy(q->far, dst, src, (size_t)elems * sizeof *q->near));
    return dev_sync(q->far);
}

static enum status run_sum(void *arg)
{
    const struct job *job = arg;
    struct grad_compress *q = job->q;
    const int64_t elems = q->bucket[job->bucket].elems;
    const struct part_extent own = part_extent(elems, q->ranks, q->rank);
    if (!q->far)
        return sum_here(job);
    struct job here = *job;
    here.from = q->near;
    here.to_all = job->to_all ? q->near : NULL;
    here.to_own = q->near + own.first;
    TRY(bring(q, q->near, job->from, elems));
    TRY(sum_here(&here));
    return job->to_all ? bring(q, job->to_all, q->near, elems)
                       : bring(q, job->to_own, here.to_own, own.elems);
}

static enum status run_gather(void *arg)
{
    const struct job *job = arg;
    struct grad_compress *q = job->q;
    const struct bucket *p = &q->bucket[job->bucket];
    if (!q->far)
        return gather_parts(q, p, p->sum, job->to_all, true);
    TRY(gather_parts(q, p, p->sum, q->near, false));
    return bring(q, job->to_all, q->near, p->elems);
}

enum status grad_compress_begin(struct grad_compress *q, int bucket, const float *from,
                                float *to_all, float *to_own, struct comm_ticket *ticket)
{
    struct job *job = &q->job[bucket];
    ASSERTF(bucket >= 0 && bucket < q->c.buckets_n, "bucket %d of %d", bucket, q->c.buckets_n);
    *job = (struct job){.q = q, .bucket = bucket, .from = from, .to_all = to_all, .to_own = to_own};
    return comm_job_begin(q->c.comm, run_sum, job, ticket);
}

enum status grad_compress_gather_begin(struct grad_compress *q, int bucket, float *to_all,
                                       struct comm_ticket *ticket)
{
    struct job *job = &q->job[bucket];
    ASSERTF(bucket >= 0 && bucket < q->c.buckets_n && q->bucket[bucket].sum, "bucket %d of %d",
            bucket, q->c.buckets_n);
    *job = (struct job){.q = q, .bucket = bucket, .to_all = to_all};
    return comm_job_begin(q->c.comm, run_gather, job, ticket);
}

/* grad_compress — quantise, exchange, add, quantise the sum, gather (grad/compress.h). */
#include "mesh/grad/compress.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/assert.h"
#include "comm/core/part.h"
#include "comm/core/sum.h"
#include "dev/dev.h"
#include "kernels/cpu.h"
#include "mesh/grad/code.h"
#include "mesh/store/layout.h"

/* elements of a rank that are added together, so that the elements of all ranks stay in cache; a
 * multiple of every kind's block */
#define RUN_ELEMS (64 * COMPRESS_BLOCK)

/* The form in which gradients are packed. */
struct packing {
    bool is_kernel; /* packed by kernels/compress.h, else by grad/code.h */
    enum grad_quant_kind quant;
    struct grad_quant_block block;
};

struct bucket {
    int64_t elems, part_bytes; /* part_bytes: packed bytes of the largest part */
    float *residual;           /* rounding error of this rank's gradient */
    float *residual_sum;       /* rounding error of the sum of its part */
    /* packed sum of its part, kept until grad_compress_gather_begin; NULL: gathered immediately */
    uint8_t *sum;
};

/* A call in progress; a bucket has one at a time. */
struct job {
    struct grad_compress *q;
    int bucket;
    const float *from;
    float *to_all, *to_own;
};

struct grad_compress {
    struct grad_compress_config c;
    struct packing packing;
    int rank, ranks;
    struct dev *dev;
    struct stream *stream;
    struct bucket *bucket;
    struct job *job;
    uint8_t *send, *recv;       /* ranks × the largest part_bytes bytes each */
    float *runs;                /* ranks × RUN_ELEMS elements */
    struct sum_tree_step *tree; /* ranks - 1 steps */
    void *residual, *sums;      /* memory of all buckets, from the device */
    int64_t residual_bytes, sums_bytes;
    /* stream of copies, if gradients lie in a device's own memory; else NULL */
    struct stream *copy_stream;
    float *host_bucket; /* a bucket in host memory, if gradients lie in a device's own memory */
    int64_t bytes;
    struct grad_code *code;           /* used for coded messages, with the next four; else NULL */
    uint8_t *coded_send, *coded_recv; /* ranks × code_bound of the largest part_bytes, bytes each */
    uint8_t *lengths;                 /* ranks × GRAD_COMPRESS_LENGTH_BYTES */
    struct grad_compress_traffic traffic;
};

static enum status allocate_buffer(struct grad_compress *q, int64_t n, size_t each, void **out)
{
    *out = calloc((size_t)(n > 0 ? n : 1), each);
    q->bytes += n * (int64_t)each;
    return *out ? ST_OK
                : FAIL(memory_status(n * (int64_t)each),
                       "out of memory: %lld x %zu bytes to compress gradients; use COMPRESS=none",
                       (long long)n, each);
}

static struct packing packing_of(enum grad_compress_kind kind)
{
    if (kind == GRAD_COMPRESS_KIND_INT8)
        return (struct packing){.is_kernel = true,
                                .block = {COMPRESS_BLOCK, COMPRESS_BLOCK_BYTES, sizeof(float)}};
    const enum grad_quant_kind quant =
        kind == GRAD_COMPRESS_KIND_INT8_ZSTD ? GRAD_QUANT_KIND_INT8_RMS : GRAD_QUANT_KIND_INT4;
    return (struct packing){.quant = quant, .block = grad_quant_block(quant)};
}

static int64_t blocks_of(const struct packing *p, int64_t elems)
{
    return (elems + p->block.elems - 1) / p->block.elems;
}

static int64_t packed_bytes(const struct packing *p, int64_t elems)
{
    return blocks_of(p, elems) * p->block.bytes;
}

static struct grad_code_block code_block(const struct packing *p)
{
    return (struct grad_code_block){p->block.bytes, p->block.scale_bytes};
}

static int64_t aligned(int64_t bytes) { return (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN; }

/* Returns the packed bytes of the largest part of a bucket, aligned. */
static int64_t part_bytes_of(const struct packing *p, int ranks, int64_t elems)
{
    return aligned(packed_bytes(p, layout_largest_part(elems, ranks)));
}

/* Returns the most bytes of a coded part of part_bytes packed bytes, aligned. */
static int64_t code_bound(const struct packing *p, int64_t part_bytes)
{
    return aligned(grad_code_bound(code_block(p), part_bytes / p->block.bytes));
}

int64_t grad_compress_part_bytes(enum grad_compress_kind kind, int ranks, int64_t elems)
{
    const struct packing p = packing_of(kind);
    int64_t bytes = part_bytes_of(&p, ranks, elems);
    if (!grad_compress_is_coded(kind)) /* a normal distribution: 5.2 of 8.1 bits, 3.4 of 4.1 bits */
        return bytes;
    return aligned(kind == GRAD_COMPRESS_KIND_INT8_ZSTD ? bytes * 64 / 100 : bytes * 83 / 100);
}

int64_t grad_compress_plan(const struct grad_compress_config *c, int rank, int ranks,
                           bool is_discrete)
{
    const struct packing p = packing_of(c->kind);
    int64_t part_most = 0, bucket_most = 1, persistent = 0;
    for (int i = 0; i < c->buckets_n; i++) {
        int64_t elems = c->bucket_elems[i], part = part_bytes_of(&p, ranks, elems);
        part_most = part > part_most ? part : part_most;
        bucket_most = elems > bucket_most ? elems : bucket_most;
        persistent += (elems + part_extent(elems, ranks, rank).elems) * (int64_t)sizeof(float);
        persistent += i >= c->deferred_first ? part : 0;
    }
    const int64_t coding =
        grad_code_memory() + ranks * (2 * code_bound(&p, part_most) + GRAD_COMPRESS_LENGTH_BYTES);
    return c->buckets_n * (int64_t)(sizeof(struct bucket) + sizeof(struct job)) +
           2 * ranks * part_most +
           ranks * (int64_t)(RUN_ELEMS * sizeof(float) + sizeof(struct sum_tree_step)) +
           persistent + (grad_compress_is_coded(c->kind) ? coding : 0) +
           (is_discrete ? bucket_most * (int64_t)sizeof(float) : 0);
}

/* Allocates the memory that lives from step to step: large and read from front to back, so it lies
 * in large pages. */
static enum status take_persistent(struct grad_compress *q)
{
    int64_t residual_n = 0;
    for (int i = 0; i < q->c.buckets_n; i++) {
        residual_n += q->bucket[i].elems + part_extent(q->bucket[i].elems, q->ranks, q->rank).elems;
        q->sums_bytes += i >= q->c.deferred_first ? q->bucket[i].part_bytes : 0;
    }
    q->residual_bytes = residual_n * (int64_t)sizeof(float);
    q->bytes += q->residual_bytes + q->sums_bytes;
    TRY(dev_alloc(q->dev, (size_t)q->residual_bytes, &q->residual));
    if (q->sums_bytes > 0)
        TRY(dev_alloc(q->dev, (size_t)q->sums_bytes, &q->sums));
    float *residual = q->residual;
    int64_t sums_at = 0;
    for (int i = 0; i < q->c.buckets_n; i++) {
        struct bucket *p = &q->bucket[i];
        p->residual = residual;
        p->residual_sum = residual + p->elems;
        residual = p->residual_sum + part_extent(p->elems, q->ranks, q->rank).elems;
        if (i >= q->c.deferred_first) {
            p->sum = (uint8_t *)q->sums + sums_at;
            sums_at += p->part_bytes;
        }
    }
    ASSERTF(sums_at == q->sums_bytes, "allocated %lld handed out %lld", (long long)q->sums_bytes,
            (long long)sums_at);
    return ST_OK;
}

static enum status open_staging(struct grad_compress *q)
{
    int64_t most = 1;
    void *host_bucket;
    for (int i = 0; i < q->c.buckets_n; i++)
        most = q->c.bucket_elems[i] > most ? q->c.bucket_elems[i] : most;
    TRY(dev_stream_open(q->c.dev, &q->copy_stream));
    TRY(dev_pin(q->c.dev, (size_t)most * sizeof *q->host_bucket, &host_bucket));
    q->host_bucket = host_bucket;
    q->bytes += most * (int64_t)sizeof *q->host_bucket;
    return ST_OK;
}

static enum status take_coding(struct grad_compress *q, int64_t part_most)
{
    const int64_t most = q->ranks * code_bound(&q->packing, part_most);
    void *memory;
    TRY(grad_code_open(&q->code));
    q->bytes += grad_code_memory();
    TRY(allocate_buffer(q, most, 1, &memory));
    q->coded_send = memory;
    TRY(allocate_buffer(q, most, 1, &memory));
    q->coded_recv = memory;
    TRY(allocate_buffer(q, q->ranks, GRAD_COMPRESS_LENGTH_BYTES, &memory));
    q->lengths = memory;
    return ST_OK;
}

static enum status take_all(struct grad_compress *q)
{
    int64_t part_bytes = 0;
    void *memory;
    TRY(allocate_buffer(q, q->c.buckets_n, sizeof *q->bucket, &memory));
    q->bucket = memory;
    TRY(allocate_buffer(q, q->c.buckets_n, sizeof *q->job, &memory));
    q->job = memory;
    for (int i = 0; i < q->c.buckets_n; i++) {
        int64_t elems = q->c.bucket_elems[i];
        q->bucket[i].elems = elems;
        q->bucket[i].part_bytes = part_bytes_of(&q->packing, q->ranks, elems);
        part_bytes = q->bucket[i].part_bytes > part_bytes ? q->bucket[i].part_bytes : part_bytes;
    }
    TRY(allocate_buffer(q, q->ranks * part_bytes, 1, &memory));
    q->send = memory;
    TRY(allocate_buffer(q, q->ranks * part_bytes, 1, &memory));
    q->recv = memory;
    TRY(allocate_buffer(q, q->ranks * RUN_ELEMS, sizeof *q->runs, &memory));
    q->runs = memory;
    TRY(allocate_buffer(q, q->ranks, sizeof *q->tree, &memory));
    q->tree = memory;
    sum_tree_plan(q->ranks, q->tree);
    if (grad_compress_is_coded(q->c.kind))
        TRY(take_coding(q, part_bytes));
    TRY(dev_cpu_open(1, CPU_ISA_N, &q->dev));
    TRY(take_persistent(q));
    TRY(dev_stream_open(q->dev, &q->stream));
    return dev_is_discrete(q->c.dev) ? open_staging(q) : ST_OK;
}

enum status grad_compress_open(const struct grad_compress_config *config,
                               struct grad_compress **out)
{
    ASSERT(grad_compress_quantises(config->kind));
    struct grad_compress *q = memory_new(1, sizeof *q);
    q->c = *config;
    q->packing = packing_of(config->kind);
    q->rank = comm_place(config->comm)->rank;
    q->ranks = comm_place(config->comm)->ranks;
    enum status st = take_all(q);
    ASSERTF(st != ST_OK || q->bytes == grad_compress_plan(config, q->rank, q->ranks,
                                                          dev_is_discrete(config->dev)),
            "planned and allocated differ: %lld allocated", (long long)q->bytes);
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
    char shown[32];
    if (q->traffic.elems > 0 && q->rank == 0)
        LOG_INFO("compression: this worker sent %s of gradients, %.3f bits an element",
                 text_format_bytes(shown, sizeof shown, (double)q->traffic.bytes),
                 8 * (double)q->traffic.bytes / (double)q->traffic.elems);
    if (q->residual)
        dev_free(q->dev, q->residual, (size_t)q->residual_bytes);
    if (q->sums)
        dev_free(q->dev, q->sums, (size_t)q->sums_bytes);
    free(q->bucket);
    free(q->job);
    free(q->send);
    free(q->recv);
    free(q->runs);
    free(q->tree);
    grad_code_close(q->code);
    free(q->coded_send);
    free(q->coded_recv);
    free(q->lengths);
    dev_stream_close(q->copy_stream);
    if (q->host_bucket)
        dev_unpin(q->c.dev, q->host_bucket);
    dev_stream_close(q->stream);
    dev_close(q->dev);
    free(q);
}

/* ---- in the comm's thread ---- */

static enum status pack_grads(struct grad_compress *q, const float *x, float *residual, int64_t n,
                              uint8_t *packed)
{
    if (!q->packing.is_kernel) {
        grad_quant_pack(q->packing.quant, x, residual, n, packed);
        return ST_OK;
    }
    return dev_op(q->dev)->compress(q->stream,
                                    &(struct compress){.packed = {packed, DTYPE_U8},
                                                       .residual = {residual, DTYPE_F32},
                                                       .x = {(void *)(uintptr_t)x, DTYPE_F32},
                                                       .n = n});
}

static enum status unpack_grads(struct grad_compress *q, const uint8_t *packed, int64_t n, float *y)
{
    if (!q->packing.is_kernel) {
        grad_quant_unpack(q->packing.quant, packed, n, y);
        return ST_OK;
    }
    return dev_op(q->dev)->expand(q->stream,
                                  &(struct expand){.y = {y, DTYPE_F32},
                                                   .packed = {(void *)(uintptr_t)packed, DTYPE_U8},
                                                   .n = n});
}

static void count_sent(struct grad_compress *q, int64_t elems, int64_t bytes)
{
    q->traffic.elems += elems;
    q->traffic.bytes += bytes;
}

/* ---- coded messages ---- */

static int64_t part_blocks(const struct grad_compress *q, const struct bucket *p, int rank)
{
    return blocks_of(&q->packing, part_extent(p->elems, q->ranks, rank).elems);
}

/* Agrees on the size of messages. *bytes: bytes of this rank's longest message, then of the longest
 * of all ranks, aligned. */
static enum status exchange_lengths(struct grad_compress *q, const struct bucket *p, int64_t *bytes)
{
    const int64_t bound = code_bound(&q->packing, p->part_bytes);
    uint8_t own[GRAD_COMPRESS_LENGTH_BYTES] = {0};
    struct tensor all = {q->lengths, DTYPE_U8}, mine = {own, DTYPE_U8};
    memcpy(own, bytes, sizeof *bytes);
    TRY(comm_all_gather(q->c.comm, all, mine, q->ranks * GRAD_COMPRESS_LENGTH_BYTES));
    count_sent(q, 0, (q->ranks - 1) * GRAD_COMPRESS_LENGTH_BYTES);
    for (int rank = 0; rank < q->ranks; rank++) {
        int64_t theirs;
        memcpy(&theirs, q->lengths + rank * GRAD_COMPRESS_LENGTH_BYTES, sizeof theirs);
        if (theirs < 0 || theirs > bound)
            return FAIL(ST_PEER, "rank %d sends %lld bytes of coded gradients, %lld at most", rank,
                        (long long)theirs, (long long)bound);
        *bytes = theirs > *bytes ? theirs : *bytes;
    }
    *bytes = aligned(*bytes);
    return ST_OK;
}

/* Codes the packed parts of the other ranks from q->send, each at a multiple of *bytes. */
static enum status encode_parts(struct grad_compress *q, const struct bucket *p, int64_t *bytes)
{
    const int64_t bound = code_bound(&q->packing, p->part_bytes);
    *bytes = 0;
    for (int rank = 0; rank < q->ranks; rank++) {
        if (rank == q->rank)
            continue;
        int64_t n =
            grad_code_encode(q->code, code_block(&q->packing), q->send + rank * p->part_bytes,
                             part_blocks(q, p, rank), q->coded_send + rank * bound);
        *bytes = n > *bytes ? n : *bytes;
    }
    TRY(exchange_lengths(q, p, bytes));
    for (int rank = 1; rank < q->ranks; rank++)
        memmove(q->coded_send + rank * *bytes, q->coded_send + rank * bound, (size_t)*bytes);
    return ST_OK;
}

/* Decodes the message of rank `from`, the packed part of rank `part`, to its place in q->recv. */
static enum status decode_part(struct grad_compress *q, const struct bucket *p, int from, int part,
                               int64_t bytes)
{
    return grad_code_decode(q->code, code_block(&q->packing), q->coded_recv + from * bytes, bytes,
                            q->recv + from * p->part_bytes, part_blocks(q, p, part));
}

/* ---- a bucket ---- */

static enum status send_parts(struct grad_compress *q, const struct job *job,
                              const struct bucket *p)
{
    for (int rank = 0; rank < q->ranks; rank++) {
        struct part_extent part = part_extent(p->elems, q->ranks, rank);
        TRY(pack_grads(q, job->from + part.first, p->residual + part.first, part.elems,
                       q->send + rank * p->part_bytes));
        count_sent(q, rank == q->rank ? 0 : part.elems, 0);
    }
    if (q->code) {
        int64_t bytes;
        TRY(encode_parts(q, p, &bytes));
        struct tensor recv = {q->coded_recv, DTYPE_U8}, send = {q->coded_send, DTYPE_U8};
        TRY(comm_all_to_all(q->c.comm, recv, send, bytes));
        count_sent(q, 0, (q->ranks - 1) * bytes);
        memcpy(q->recv + q->rank * p->part_bytes, q->send + q->rank * p->part_bytes,
               (size_t)p->part_bytes);
        for (int rank = 0; rank < q->ranks; rank++)
            if (rank != q->rank)
                TRY(decode_part(q, p, rank, q->rank, bytes));
        return ST_OK;
    }
    count_sent(q, 0, (q->ranks - 1) * p->part_bytes);
    struct tensor recv = {q->recv, DTYPE_U8}, send = {q->send, DTYPE_U8};
    return comm_all_to_all(q->c.comm, recv, send, p->part_bytes);
}

/* Adds this rank's part and quantises the sum; a run is packed while it is in cache. */
static enum status add_parts(struct grad_compress *q, const struct bucket *p, uint8_t *packed)
{
    int64_t elems = part_extent(p->elems, q->ranks, q->rank).elems;
    for (int64_t first = 0; first < elems; first += RUN_ELEMS) {
        int64_t n = elems - first < RUN_ELEMS ? elems - first : RUN_ELEMS;
        /* Adds elements [first, first + n) of this rank's part over all ranks (sum.h). The
         * sums are at the start of q->runs. */
        int64_t part_bytes = p->part_bytes;
        for (int rank = 0; rank < q->ranks; rank++)
            TRY(unpack_grads(q, q->recv + rank * part_bytes + packed_bytes(&q->packing, first), n,
                             q->runs + rank * RUN_ELEMS));
        for (int i = 0; i < q->ranks - 1; i++) {
            float *restrict to = q->runs + q->tree[i].to * RUN_ELEMS;
            const float *restrict from = q->runs + q->tree[i].from * RUN_ELEMS;
            for (int64_t k = 0; k < n; k++)
                to[k] += from[k];
        }
        TRY(pack_grads(q, q->runs, p->residual_sum + first, n,
                       packed + packed_bytes(&q->packing, first)));
    }
    return ST_OK;
}

static enum status gather_packed(struct grad_compress *q, const struct bucket *p, uint8_t *packed)
{
    struct tensor all = {q->recv, DTYPE_U8}, mine = {packed, DTYPE_U8};
    count_sent(q, (q->ranks - 1) * part_extent(p->elems, q->ranks, q->rank).elems, 0);
    if (q->code) {
        int64_t bytes = grad_code_encode(q->code, code_block(&q->packing), packed,
                                         part_blocks(q, p, q->rank), q->coded_send);
        TRY(exchange_lengths(q, p, &bytes));
        struct tensor coded = {q->coded_recv, DTYPE_U8}, own_coded = {q->coded_send, DTYPE_U8};
        TRY(comm_all_gather(q->c.comm, coded, own_coded, q->ranks * bytes));
        count_sent(q, 0, (q->ranks - 1) * bytes);
        memcpy(q->recv + q->rank * p->part_bytes, packed,
               (size_t)(part_blocks(q, p, q->rank) * q->packing.block.bytes));
        for (int rank = 0; rank < q->ranks; rank++)
            if (rank != q->rank)
                TRY(decode_part(q, p, rank, rank, bytes));
        return ST_OK;
    }
    count_sent(q, 0, (q->ranks - 1) * p->part_bytes);
    return comm_all_gather(q->c.comm, all, mine, q->ranks * p->part_bytes);
}

/* Gathers the packed sums of all parts. but_own: this rank's part is in `to` already. */
static enum status gather_parts(struct grad_compress *q, const struct bucket *p, uint8_t *packed,
                                float *to, bool but_own)
{
    TRY(gather_packed(q, p, packed));
    for (int rank = 0; rank < q->ranks; rank++) {
        struct part_extent part = part_extent(p->elems, q->ranks, rank);
        if (rank != q->rank || !but_own)
            TRY(unpack_grads(q, q->recv + rank * p->part_bytes, part.elems, to + part.first));
    }
    return ST_OK;
}

static enum status reduce_here(const struct job *job)
{
    struct grad_compress *q = job->q;
    const struct bucket *p = &q->bucket[job->bucket];
    uint8_t *packed = p->sum && !job->to_all ? p->sum : q->send;
    TRY(send_parts(q, job, p));
    TRY(add_parts(q, p, packed));
    if (job->to_all)
        return gather_parts(q, p, packed, job->to_all, false);
    return unpack_grads(q, packed, part_extent(p->elems, q->ranks, q->rank).elems, job->to_own);
}

/* Copies a bucket from or to the device, and waits. */
static enum status copy_bucket(struct grad_compress *q, void *dst, const void *src, int64_t elems)
{
    TRY(dev_make_current(q->c.dev));
    TRY(dev_copy(q->copy_stream, dst, src, (size_t)elems * sizeof *q->host_bucket));
    return dev_sync(q->copy_stream);
}

static enum status job_reduce(void *arg)
{
    const struct job *job = arg;
    struct grad_compress *q = job->q;
    const int64_t elems = q->bucket[job->bucket].elems;
    const struct part_extent own = part_extent(elems, q->ranks, q->rank);
    if (!q->copy_stream)
        return reduce_here(job);
    struct job here = *job;
    here.from = q->host_bucket;
    here.to_all = job->to_all ? q->host_bucket : NULL;
    here.to_own = q->host_bucket + own.first;
    TRY(copy_bucket(q, q->host_bucket, job->from, elems));
    TRY(reduce_here(&here));
    return job->to_all ? copy_bucket(q, job->to_all, q->host_bucket, elems)
                       : copy_bucket(q, job->to_own, here.to_own, own.elems);
}

static enum status job_gather(void *arg)
{
    const struct job *job = arg;
    struct grad_compress *q = job->q;
    const struct bucket *p = &q->bucket[job->bucket];
    if (!q->copy_stream)
        return gather_parts(q, p, p->sum, job->to_all, true);
    TRY(gather_parts(q, p, p->sum, q->host_bucket, false));
    return copy_bucket(q, job->to_all, q->host_bucket, p->elems);
}

enum status grad_compress_begin(struct grad_compress *q, int bucket, const float *from,
                                float *to_all, float *to_own, struct comm_ticket *ticket)
{
    struct job *job = &q->job[bucket];
    ASSERTF(bucket >= 0 && bucket < q->c.buckets_n, "bucket %d of %d", bucket, q->c.buckets_n);
    *job = (struct job){.q = q, .bucket = bucket, .from = from, .to_all = to_all, .to_own = to_own};
    return comm_job_begin(q->c.comm, job_reduce, job, ticket);
}

enum status grad_compress_gather_begin(struct grad_compress *q, int bucket, float *to_all,
                                       struct comm_ticket *ticket)
{
    struct job *job = &q->job[bucket];
    ASSERTF(bucket >= 0 && bucket < q->c.buckets_n && q->bucket[bucket].sum, "bucket %d of %d",
            bucket, q->c.buckets_n);
    *job = (struct job){.q = q, .bucket = bucket, .to_all = to_all};
    return comm_job_begin(q->c.comm, job_gather, job, ticket);
}

struct grad_compress_traffic grad_compress_traffic(const struct grad_compress *q)
{
    return q->traffic;
}

struct grad_compress_residual grad_compress_residual(const struct grad_compress *q, int bucket)
{
    ASSERTF(bucket >= 0 && bucket < q->c.buckets_n, "bucket %d of %d", bucket, q->c.buckets_n);
    return (struct grad_compress_residual){q->bucket[bucket].residual,
                                           q->bucket[bucket].residual_sum};
}

/* grad_tree — see grad/tree.h. */
#include "mesh/grad/tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "comm/core/sum.h"
#include "dev/dev.h"
#include "kernels/combine.h"
#include "mesh/store/layout.h"
#include "mesh/store/shard_tree.h"

/* elements of a part that are added together, so that the elements of all partials stay in cache */
#define RUN_ELEMS ((int64_t)1 << 15)

struct job {
    struct grad_tree *t;
    const float *partial[GRAD_TREE_PARTIALS_MAX];
    int64_t elems;
    float *to_all, *to_own;
};

/* A sum of n blocks: block `first` and the others `stride` apart, in the order of sum_run and of
 * kernels/combine.h. It replaces block `first`. */
struct block_sum {
    int first, stride, n;
};

struct grad_tree {
    struct grad_tree_config c;
    int rank, ranks;
    int *partials;    /* partials of each rank */
    int partials_max; /* most partials of a rank */
    int all_partials;
    struct block_sum *sum; /* the sums that make the sum of all partials, in their order */
    int sums_n;
    const void **in;        /* sources of one of them */
    float *sent, *received; /* host memory: ranks x partials_max x RUN_ELEMS elements each */
    struct stream *stream;  /* device memory, if calls do not stay on the device; else NULL */
    struct job *job;        /* job of each bucket */
};

/* ---- the order of the additions ---- */

/* block_of — returns the block of received numbers that holds a rank's partial. On a device each
 * exchange carries one partial of every rank. */
static int block_of(const struct grad_tree *t, int rank, int partial)
{
    return t->c.received ? partial * t->ranks + rank : rank * t->partials_max + partial;
}

static void add_sum(struct grad_tree *t, struct block_sum sum)
{
    if (sum.n > 1)
        t->sum[t->sums_n++] = sum;
}

/* join_sums — returns the sum of two sums that are not made yet: one sum of all their blocks if
 * that adds in the same order. Else both are made first. */
static struct block_sum join_sums(struct grad_tree *t, struct block_sum to, struct block_sum from)
{
    const int stride = from.first - to.first - (to.n - 1) * to.stride, n = to.n + from.n;
    if (stride > 0 && n <= COMBINE_SOURCES_MAX && to.n == sum_tree_left(n) &&
        (to.n == 1 || to.stride == stride) && (from.n == 1 || from.stride == stride))
        return (struct block_sum){to.first, stride, n};
    add_sum(t, to);
    add_sum(t, from);
    return (struct block_sum){to.first, from.first - to.first, 2};
}

/* plan_sums — turns the additions of two partials each (shard_tree_join) into few sums of many, so
 * that each partial is read once if the tree allows it. */
static void plan_sums(struct grad_tree *t)
{
    const int n = t->all_partials;
    struct sum_tree_step *join = memory_new((size_t)n, sizeof *join);
    struct block_sum *left = memory_new((size_t)n, sizeof *left);
    int all = 0;
    for (int rank = 0; rank < t->ranks; rank++)
        for (int i = 0; i < t->partials[rank]; i++)
            left[all++] = (struct block_sum){block_of(t, rank, i), 0, 1};
    shard_tree_join(t->c.begin, t->ranks / t->c.contexts, t->c.contexts, join);
    for (int i = 0; i < n - 1; i++)
        left[join[i].to] = join_sums(t, left[join[i].to], left[join[i].from]);
    add_sum(t, left[0]);
    free(left);
    free(join);
}

/* ---- open and close ---- */

int64_t grad_tree_received_elems(const int *begin, int ranks, int64_t elems)
{
    int *count = memory_new((size_t)ranks, sizeof *count), most = 0;
    (void)shard_tree_partials(begin, ranks, count);
    for (int rank = 0; rank < ranks; rank++)
        most = count[rank] > most ? count[rank] : most;
    free(count);
    return most * elems;
}

/* allocate_blocks — allocates host memory to send and to receive. */
static enum status allocate_blocks(struct grad_tree *t)
{
    const size_t floats = (size_t)t->ranks * (size_t)t->partials_max * RUN_ELEMS;
    t->sent = calloc(floats, sizeof *t->sent);
    t->received = calloc(floats, sizeof *t->received);
    return t->sent && t->received
               ? ST_OK
               : FAIL(ST_RETRY, "out of memory: 2 x %zu bytes to add virtual shards of %d ranks",
                      floats * sizeof *t->sent, t->ranks);
}

enum status grad_tree_open(const struct grad_tree_config *config, struct grad_tree **out)
{
    struct grad_tree *t = memory_new(1, sizeof *t);
    t->c = *config;
    const struct comm_place *place = comm_place(t->c.comm);
    t->rank = place->rank;
    t->ranks = place->ranks;
    t->partials = memory_new((size_t)t->ranks, sizeof *t->partials);
    ASSERTF(t->ranks % t->c.contexts == 0, "%d ranks in groups of %d", t->ranks, t->c.contexts);
    t->all_partials =
        t->c.contexts * shard_tree_partials(t->c.begin, t->ranks / t->c.contexts, t->partials);
    for (int rank = t->ranks - 1; rank >= 0; rank--) {
        t->partials[rank] = t->partials[rank / t->c.contexts];
        t->partials_max = t->partials[rank] > t->partials_max ? t->partials[rank] : t->partials_max;
    }
    ASSERTF(t->partials_max <= GRAD_TREE_PARTIALS_MAX, "%d partials", t->partials_max);
    t->sum = memory_new((size_t)t->all_partials, sizeof *t->sum);
    t->in = memory_new((size_t)t->all_partials, sizeof *t->in);
    t->job = memory_new((size_t)t->c.buckets_n, sizeof *t->job);
    plan_sums(t);
    enum status st = !t->c.received                     ? allocate_blocks(t)
                     : !comm_stays_on_device(t->c.comm) ? dev_stream_open(t->c.dev, &t->stream)
                                                        : ST_OK;
    if (st == ST_OK)
        *out = t;
    else
        grad_tree_close(t);
    return st;
}

void grad_tree_close(struct grad_tree *t)
{
    if (!t)
        return;
    dev_stream_close(t->stream);
    free(t->partials);
    free(t->sum);
    free(t->in);
    free(t->sent);
    free(t->received);
    free(t->job);
    free(t);
}

/* ---- in host memory: in the comm's thread ---- */

/* A stretch of every part: elements [at, at + n) of each, or fewer at its end. */
struct stretch {
    int64_t at, n;
};

static int64_t count_elems(const struct job *j, int rank, struct stretch run)
{
    int64_t left = part_extent(j->elems, j->t->ranks, rank).elems - run.at;
    return left < 0 ? 0 : left < run.n ? left : run.n;
}

/* sum_partials — adds the received partials; the sum goes to `to`. */
static void sum_partials(const struct job *j, struct stretch run, float *to)
{
    const struct grad_tree *t = j->t;
    for (int i = 0; i < t->sums_n; i++) {
        const struct block_sum *sum = &t->sum[i];
        void *out[] = {i == t->sums_n - 1 ? to : t->received + sum->first * run.n};
        for (int k = 0; k < sum->n; k++)
            t->in[k] = t->received + (sum->first + k * sum->stride) * run.n;
        sum_run(&(struct sum_args){t->in, out, 1, sum->n, 1, DTYPE_F32, DTYPE_F32,
                                   count_elems(j, t->rank, run), false});
    }
}

static enum status run_job(void *arg)
{
    const struct job *j = arg;
    struct grad_tree *t = j->t;
    const int64_t most = layout_largest_part(j->elems, t->ranks);
    for (int64_t at = 0; at < most; at += RUN_ELEMS) {
        struct stretch run = {at, most - at < RUN_ELEMS ? most - at : RUN_ELEMS};
        const struct part_extent own = part_extent(j->elems, t->ranks, t->rank);
        float *to = j->to_all ? j->to_all + own.first : j->to_own;
        for (int rank = 0; rank < t->ranks; rank++) {
            int64_t first = part_extent(j->elems, t->ranks, rank).first + run.at;
            for (int i = 0; i < t->partials[t->rank]; i++)
                memcpy(t->sent + block_of(t, rank, i) * run.n, j->partial[i] + first,
                       (size_t)count_elems(j, rank, run) * sizeof(float));
        }
        TRY(comm_all_to_all(t->c.comm, (struct tensor){t->received, DTYPE_F32},
                            (struct tensor){t->sent, DTYPE_F32}, t->partials_max * run.n));
        sum_partials(j, run, to + run.at);
    }
    if (!j->to_all)
        return ST_OK;
    struct tensor all = {j->to_all, DTYPE_F32};
    return comm_all_gather(
        t->c.comm, all, tensor_at(all, part_extent(j->elems, t->ranks, t->rank).first), j->elems);
}

/* ---- in device memory ---- */

/* own_sum — returns the memory of this rank's part of the sum. */
static struct tensor own_sum(const struct job *j)
{
    const struct tensor all = {j->to_all, DTYPE_F32}, own = {j->to_own, DTYPE_F32};
    return j->to_all ? tensor_at(all, j->elems / j->t->ranks * j->t->rank) : own;
}

/* add_blocks — adds the received partials on the device, after the last exchange of a bucket. */
static enum status add_blocks(void *arg, struct stream *s)
{
    const struct job *j = arg;
    const struct grad_tree *t = j->t;
    struct stream *on = s ? s : t->stream;
    const int64_t n = j->elems / t->ranks;
    for (int i = 0; i < t->sums_n; i++) {
        const struct block_sum *sum = &t->sum[i];
        const struct tensor received = {t->c.received, DTYPE_F32},
                            first = tensor_at(received, sum->first * n),
                            last =
                                tensor_at(received, (sum->first + (sum->n - 1) * sum->stride) * n);
        const struct combine all = {.out = i == t->sums_n - 1 ? own_sum(j) : first,
                                    .in = first,
                                    .own = last,
                                    .elems = n,
                                    .stride = sum->n > 2 ? sum->stride * n : n,
                                    .sources_n = sum->n,
                                    .own_i = sum->n - 1};
        TRY(dev_op(t->c.dev)->combine(on, &all));
    }
    return s ? ST_OK : dev_sync(on);
}

/* begin_on_device — begins one exchange for each partial, straight from the gradients. A rank with
 * fewer partials than another sends its first one instead, and no rank reads it. */
static enum status begin_on_device(struct job *j, struct comm_ticket *ticket)
{
    struct grad_tree *t = j->t;
    const int64_t n = j->elems / t->ranks;
    ASSERTF(n > 0 && n % PART_ALIGN == 0 && j->elems % t->ranks == 0, "%lld elements of %d ranks",
            (long long)j->elems, t->ranks);
    for (int i = 0; i < t->partials_max; i++) {
        const bool is_last = i == t->partials_max - 1;
        const float *from = j->partial[i < t->partials[t->rank] ? i : 0];
        TRY(comm_all_to_all_begin(
            t->c.comm, tensor_at((struct tensor){t->c.received, DTYPE_F32}, i * j->elems),
            (struct tensor){(void *)(uintptr_t)from, DTYPE_F32}, n, is_last ? add_blocks : NULL, j,
            ticket));
    }
    const struct tensor all = {j->to_all, DTYPE_F32};
    return j->to_all ? comm_all_gather_begin(t->c.comm, all, own_sum(j), j->elems, ticket) : ST_OK;
}

enum status grad_tree_begin(struct grad_tree *t, int bucket, const float *const *partial,
                            int64_t elems, float *to_all, float *to_own, struct comm_ticket *ticket)
{
    struct job *j = &t->job[bucket];
    *j = (struct job){.t = t, .elems = elems, .to_all = to_all, .to_own = to_own};
    memcpy(j->partial, partial, (size_t)t->partials[t->rank] * sizeof *partial);
    return t->c.received ? begin_on_device(j, ticket)
                         : comm_job_begin(t->c.comm, run_job, j, ticket);
}

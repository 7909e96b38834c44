/* grad_tree — see grad/tree.h. */
#include "mesh/grad/tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "comm/core/sum.h"
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

struct grad_tree {
    struct grad_tree_config c;
    int rank, ranks;
    int *partials;    /* partials of each rank */
    int partials_max; /* most partials of a rank */
    int all_partials;
    struct sum_tree_step *join; /* all_partials - 1 steps */
    float **source;             /* position of each of all_partials in `received` */
    float *sent, *received;     /* ranks x partials_max x RUN_ELEMS elements each */
    struct job *job;            /* job of each bucket */
};

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
    t->join = memory_new((size_t)t->all_partials, sizeof *t->join);
    t->source = memory_new((size_t)t->all_partials, sizeof *t->source);
    t->job = memory_new((size_t)t->c.buckets_n, sizeof *t->job);
    shard_tree_join(t->c.begin, t->ranks / t->c.contexts, t->c.contexts, t->join);
    const size_t floats = (size_t)t->ranks * (size_t)t->partials_max * RUN_ELEMS;
    t->sent = calloc(floats, sizeof *t->sent);
    t->received = calloc(floats, sizeof *t->received);
    if (t->sent && t->received) {
        *out = t;
        return ST_OK;
    }
    enum status st =
        FAIL(ST_RETRY, "out of memory: 2 x %zu bytes to add virtual shards of %d ranks",
             floats * sizeof *t->sent, t->ranks);
    grad_tree_close(t);
    return st;
}

void grad_tree_close(struct grad_tree *t)
{
    if (!t)
        return;
    free(t->partials);
    free(t->join);
    free(t->source);
    free(t->sent);
    free(t->received);
    free(t->job);
    free(t);
}

/* ---- in the comm's thread ---- */

/* A stretch of every part: elements [at, at + n) of each, or fewer at its end. */
struct stretch {
    int64_t at, n;
};

static int64_t count_elems(const struct job *j, int rank, struct stretch run)
{
    int64_t left = part_extent(j->elems, j->t->ranks, rank).elems - run.at;
    return left < 0 ? 0 : left < run.n ? left : run.n;
}

static float *partial_at(float *buffer, const struct grad_tree *t, int rank, int partial, int64_t n)
{
    return buffer + (rank * t->partials_max + partial) * n;
}

/* sum_partials — adds the received partials; the sum is in source[0]. */
static void sum_partials(const struct job *j, struct stretch run)
{
    struct grad_tree *t = j->t;
    int64_t n = count_elems(j, t->rank, run);
    int all = 0;
    for (int rank = 0; rank < t->ranks; rank++)
        for (int i = 0; i < t->partials[rank]; i++)
            t->source[all++] = partial_at(t->received, t, rank, i, run.n);
    for (int i = 0; i < t->all_partials - 1; i++) {
        float *to = t->source[t->join[i].to];
        const float *from = t->source[t->join[i].from];
        const void *in[] = {to, from};
        void *out[] = {to};
        sum_run(&(struct sum_args){in, out, 1, 2, 1, DTYPE_F32, DTYPE_F32, n, false});
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
                memcpy(partial_at(t->sent, t, rank, i, run.n), j->partial[i] + first,
                       (size_t)count_elems(j, rank, run) * sizeof(float));
        }
        TRY(comm_all_to_all(t->c.comm, (struct tensor){t->received, DTYPE_F32},
                            (struct tensor){t->sent, DTYPE_F32}, t->partials_max * run.n));
        sum_partials(j, run);
        memcpy(to + run.at, t->source[0], (size_t)count_elems(j, t->rank, run) * sizeof *to);
    }
    if (!j->to_all)
        return ST_OK;
    struct tensor all = {j->to_all, DTYPE_F32};
    return comm_all_gather(
        t->c.comm, all, tensor_at(all, part_extent(j->elems, t->ranks, t->rank).first), j->elems);
}

enum status grad_tree_begin(struct grad_tree *t, int bucket, const float *const *partial,
                            int64_t elems, float *to_all, float *to_own, struct comm_ticket *ticket)
{
    struct job *j = &t->job[bucket];
    *j = (struct job){.t = t, .elems = elems, .to_all = to_all, .to_own = to_own};
    memcpy(j->partial, partial, (size_t)t->partials[t->rank] * sizeof *partial);
    return comm_job_begin(t->c.comm, run_job, j, ticket);
}

/* plan_machine_link — sums between workers by size, and what computation loses to calls beside it.
 * The time of a call is turned into the latency and the rates with which plan_time gives the same
 * time. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/core/part.h"
#include "plan/plan_machine_inside.h"
#include "plan/plan_time.h"

#define HALVINGS 60
#define RATE_LEAST 1e3
#define RATE_MOST 4      /* of the memory's: no link is faster */
#define SHARE_LEAST 1e-6 /* that a file may hold */
#define BESIDE 3         /* calls beside computation */
#define OVERLAP_MOST 10.0
#define OVERLAP_SPREAD 0.5 /* of the middle half of the tries */
#define OVERLAP_SLICES 60  /* that all tries take */
#define OVERLAP_ELEMS_LEAST 16384
#define TRIES 7
#define PART_PLACES 8
#define PART_MOST 2.0 /* that a file may hold */

static const int64_t sizes[] = {64,      16 << 10, 64 << 10, 256 << 10,
                                1 << 20, 4 << 20,  16 << 20, 64 << 20};
#define SIZES (int)(sizeof sizes / sizeof sizes[0])

/* A call that is repeated, each time on the next part of the memory. So it finds little of its data
 * in caches, as in a step, where gradients were written some time ago. */
struct call {
    struct comm *comm;
    struct tensor data;
    int64_t elems, places, *at;
};

static struct call call_of(const struct plan_machine *m, struct comm *comm, void *data,
                           int64_t bytes, int64_t *at)
{
    *at = 0;
    return (struct call){.comm = comm,
                         .data = {data, DTYPE_F32},
                         .elems = bytes / (int64_t)sizeof(float),
                         .places = m->shared_bytes / bytes,
                         .at = at};
}

static struct tensor next_place(const struct call *call)
{
    *call->at = (*call->at + 1) % call->places;
    return tensor_at(call->data, *call->at * call->elems);
}

static enum status run_sum(const struct plan_machine *m, const void *args)
{
    const struct call *call = args;
    struct tensor all = next_place(call);
    (void)m;
    return comm_all_reduce(call->comm, all, all, call->elems);
}

/* The rank's part of a buffer, where the store has it. */
static struct tensor own_part(const struct call *call, struct tensor all)
{
    const struct comm_place *place = comm_place(call->comm);
    return tensor_at(all, part_extent(call->elems, place->ranks, place->rank).first);
}

static enum status run_scatter(const struct plan_machine *m, const void *args)
{
    const struct call *call = args;
    struct tensor all = next_place(call);
    (void)m;
    return comm_reduce_scatter(call->comm, own_part(call, all), all, call->elems);
}

static enum status run_gather(const struct plan_machine *m, const void *args)
{
    const struct call *call = args;
    struct tensor all = next_place(call);
    (void)m;
    return comm_all_gather(call->comm, all, own_part(call, all), call->elems);
}

/* A link that is being found: of the cluster, and a call that uses no other. */
struct search {
    struct plan_cluster *cluster;
    struct plan_link *link;
    struct plan_call call;
};

static double planned_ms(const struct search *s) { return plan_time_call_ms(s->cluster, &s->call); }

/* find_latency — with an endless bandwidth. */
static void find_latency(struct search *s, double seconds)
{
    s->link->bytes_per_second = 1e18;
    s->link->latency_us = 1;
    s->link->latency_us = 1e3 * seconds / planned_ms(s);
}

/* find_rate — the more, the shorter. */
static double find_rate(struct search *s, double seconds)
{
    double low = RATE_LEAST, high = RATE_MOST * s->cluster->memory_bytes_per_second;
    for (int i = 0; i < HALVINGS; i++) {
        s->link->bytes_per_second = __builtin_sqrt(low * high);
        if (planned_ms(s) > 1e3 * seconds)
            low = s->link->bytes_per_second;
        else
            high = s->link->bytes_per_second;
    }
    return s->link->bytes_per_second;
}

void plan_machine_link_fit(struct plan_cluster *cluster, struct plan_link *link,
                           const struct plan_call *like, const double *bytes, const double *seconds,
                           int n)
{
    struct search s = {cluster, link, *like};
    double rates[PLAN_CLUSTER_POINTS_MAX], least = seconds[0], best = 0;
    for (int i = 1; i < n; i++)
        least = seconds[i] < least ? seconds[i] : least;
    link->share.n = 0;
    find_latency(&s, least);
    for (int i = n - 1; i > 0; i--) {
        s.call.bytes = bytes[i];
        rates[i] = i < n - 1 && seconds[i] <= least ? rates[i + 1] : find_rate(&s, seconds[i]);
        best = rates[i] > best ? rates[i] : best;
    }
    link->bytes_per_second = best;
    for (int i = 1; i < n; i++) {
        double share = rates[i] / best;
        link->share.point[link->share.n].size = bytes[i];
        link->share.point[link->share.n++].share = share > SHARE_LEAST ? share : SHARE_LEAST;
    }
}

/* measure_parts — the times of a reduce-scatter and an all-gather as parts of an all-reduce's, in
 * calls of a block's size; at most what a file may hold. */
static enum status measure_parts(struct plan_machine *m, struct comm *comm, void *data,
                                 struct plan_link *link)
{
    double sum, scatter, gather;
    int64_t at, bytes = m->shared_bytes / PART_PLACES / 4096 * 4096;
    const struct call call = call_of(m, comm, data, bytes, &at);
    TRY(plan_machine_time(m, run_sum, &call, &sum));
    TRY(plan_machine_time(m, run_scatter, &call, &scatter));
    TRY(plan_machine_time(m, run_gather, &call, &gather));
    link->scatter_part = scatter < PART_MOST * sum ? scatter / sum : PART_MOST;
    link->gather_part = gather < PART_MOST * sum ? gather / sum : PART_MOST;
    return ST_OK;
}

/* measure_sums — the link of the calls of one comm. */
static enum status measure_sums(struct plan_machine *m, struct comm *comm, void *data,
                                struct plan_link *link, const struct plan_call *like)
{
    double bytes[SIZES], seconds[SIZES];
    int64_t at;
    int n = 0;
    for (; n < SIZES && sizes[n] <= m->shared_bytes; n++) {
        const struct call sum = call_of(m, comm, data, sizes[n], &at);
        bytes[n] = (double)sizes[n];
        TRY(plan_machine_time(m, run_sum, &sum, &seconds[n]));
    }
    plan_machine_link_fit(m->cluster, link, like, bytes, seconds, n);
    return measure_parts(m, comm, data, link);
}

/* ---- beside computation ---- */

struct computation {
    struct matmul_fwd product;
    int64_t runs;
};

static enum status compute(const struct plan_machine *m, const struct computation *c)
{
    for (int64_t i = 0; i < c->runs; i++)
        TRY(dev_op(m->config->dev)->matmul_fwd(m->stream, &c->product));
    return dev_sync(m->stream);
}

static enum status begin_sum(const struct call *call, struct comm_ticket *ticket)
{
    struct tensor all = next_place(call);
    return comm_all_reduce_begin(call->comm, all, all, call->elems, ticket);
}

/* try_both — computation with calls beside it. */
static enum status try_both(const struct plan_machine *m, const struct computation *c,
                            const struct call *call, int calls, double *seconds_out)
{
    struct comm_ticket ticket[BESIDE];
    TRY(comm_barrier(call->comm));
    int64_t begin = clock_ns();
    for (int i = 0; i < calls; i++)
        TRY(begin_sum(call, &ticket[i]));
    TRY(compute(m, c));
    for (int i = 0; i < calls; i++)
        TRY(comm_wait(call->comm, ticket[i]));
    *seconds_out = (double)(clock_ns() - begin) * 1e-9;
    return plan_machine_time_largest(m, seconds_out);
}

/* planned_seconds — of one of the calls, as a plan counts it. */
static double planned_seconds(const struct plan_machine *m, const struct call *call)
{
    const struct plan_call planned = {.kind = PLAN_CALL_ALL_REDUCE,
                                      .ranks = m->ranks,
                                      .ranks_inside = m->cluster->locals,
                                      .bytes = (double)call->elems * sizeof(float)};
    return plan_time_call_ms(m->cluster, &planned) / 1e3;
}

/* choose_size — calls as large as the budget has time for, with computation that takes three times
 * as long, once alone and once with them beside it in each try. */
static void choose_size(const struct plan_machine *m, struct call *call)
{
    call->elems = m->shared_bytes / BESIDE / 4096 * 4096 / (int64_t)sizeof(float);
    while (call->elems > OVERLAP_ELEMS_LEAST &&
           planned_seconds(m, call) * BESIDE * (3 + 4) * TRIES > OVERLAP_SLICES * m->slice)
        call->elems /= 2;
    call->places = m->shared_bytes / (int64_t)sizeof(float) / call->elems;
}

/* choose_runs — so many products that they take three times as long as the calls. */
static enum status choose_runs(const struct plan_machine *m, struct computation *c,
                               const struct call *call)
{
    double calls = planned_seconds(m, call) * BESIDE, alone;
    TRY(try_both(m, c, call, 0, &alone)); /* warm */
    TRY(try_both(m, c, call, 0, &alone));
    c->runs = (int64_t)(3 * calls / alone) + 1;
    return ST_OK;
}

/* lost_parts — of the calls' time, what computation takes longer for them; alone and together by
 * turns, so that what else the machine does is in both. */
static enum status lost_parts(const struct plan_machine *m, struct computation *c,
                              const struct call *call, double part[TRIES])
{
    TRY(choose_runs(m, c, call));
    for (int i = 0; i < TRIES; i++) {
        double alone, together;
        TRY(try_both(m, c, call, 0, &alone));
        TRY(try_both(m, c, call, BESIDE, &together));
        part[i] = (together - alone) / (planned_seconds(m, call) * BESIDE);
    }
    return ST_OK;
}

bool plan_machine_link_overlap(double *part, int n, double *out)
{
    qsort(part, (size_t)n, sizeof *part, plan_machine_time_by_value);
    bool is_sure = part[n * 3 / 4] - part[n / 4] <= OVERLAP_SPREAD;
    double most = is_sure ? OVERLAP_MOST : 1, middle = part[n / 2];
    *out = middle < 0 ? 0 : middle < most ? middle : most;
    return is_sure;
}

static void set_overlap(struct plan_cluster *c, double part[TRIES])
{
    size_t len = strlen(c->source);
    if (!plan_machine_link_overlap(part, TRIES, &c->overlap_cost))
        text_format(c->source + len, sizeof c->source - len,
                    "; overlap_cost could not be measured: %.2f to %.2f", part[TRIES / 4],
                    part[TRIES * 3 / 4]);
}

/* measure_overlap — on a CPU more than the calls' own time may be lost: their thread takes turns
 * with computation on a core, and takes memory's bandwidth from it. */
static enum status measure_overlap(struct plan_machine *m, void *data)
{
    const int64_t n = 256, bytes = 3 * n * n * (int64_t)sizeof(float);
    int64_t at;
    struct call call = call_of(m, m->config->comm, data, m->shared_bytes, &at);
    struct computation c = {.runs = 1};
    double part[TRIES];
    void *memory = NULL;
    choose_size(m, &call);
    TRY(dev_alloc(m->config->dev, (size_t)bytes, &memory));
    struct tensor x = {memory, DTYPE_F32};
    c.product = (struct matmul_fwd){
        .y = x, .x = tensor_at(x, n * n), .w = tensor_at(x, 2 * n * n), .n = n, .in = n, .out = n};
    enum status st = dev_fill(m->stream, memory, 0x3c, (size_t)bytes);
    if (st == ST_OK)
        st = lost_parts(m, &c, &call, part);
    dev_free(m->config->dev, memory, (size_t)bytes);
    if (st == ST_OK)
        set_overlap(m->cluster, part);
    return st;
}

/* ---- all ---- */

/* split_ranks — n ranks from `first` on, `step` apart. */
static enum status split_ranks(const struct plan_machine *m, int first, int step, int n,
                               struct comm **out)
{
    int ranks[COMM_RANKS_MAX];
    for (int i = 0; i < n; i++)
        ranks[i] = first + i * step;
    return comm_split(m->config->comm, ranks, n, out);
}

/* measure_part — the link between some ranks, as a comm of their own. */
static enum status measure_part(struct plan_machine *m, void *data, struct plan_link *link,
                                int first, int step, int n)
{
    struct comm *part = m->config->comm;
    const struct plan_call like = {.kind = PLAN_CALL_ALL_REDUCE,
                                   .ranks = n,
                                   .ranks_inside = link == &m->cluster->inside ? n : 1};
    if (n < m->ranks)
        TRY(split_ranks(m, first, step, n, &part));
    enum status st = measure_sums(m, part, data, link, &like);
    if (n < m->ranks)
        comm_close(part);
    return st;
}

enum status plan_machine_link(struct plan_machine *m)
{
    struct plan_cluster *c = m->cluster;
    void *data = m->shared;
    if (m->ranks == 1)
        return ST_OK;
    const struct comm_place *place = comm_place(m->config->comm);
    if (place->locals > 1)
        TRY(measure_part(m, data, &c->inside, place->node * place->locals, 1, place->locals));
    if (place->nodes > 1)
        TRY(measure_part(m, data, &c->across, place->local, place->locals, place->nodes));
    return measure_overlap(m, data);
}

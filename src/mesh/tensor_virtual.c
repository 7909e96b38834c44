/* tensor_virtual — see tensor_virtual.h. */
#include "mesh/tensor_virtual.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/coroutine.h"
#include "dev/dev.h"

enum call_kind { CALL_GATHER, CALL_SCATTER_SUM, CALL_SUM };

/* What a virtual rank asks for. GATHER: whole = the parts of all; SCATTER_SUM: part = its part of
 * the sum of whole; SUM: whole = its sum over `copies` neighbours. */
struct call {
    enum call_kind kind;
    struct stream *stream;
    struct tensor whole, part;
    int64_t elems;
    int copies;
};

struct virtual_rank {
    struct model_axis axis;
    struct tensor_virtual *all;
    struct coroutine *turns;
    int i; /* of this rank's */
    bool has_called;
    struct call call;
};

struct tensor_virtual {
    const struct model_axis *ranks; /* NULL: one */
    const struct op_table *op;
    int n, first, parts; /* own; the first of them; of all ranks */
    enum status (*work)(void *arg, int i);
    void *arg;
    enum status st; /* of the run: its first failure */
    struct status_saved sentence;
    struct virtual_rank rank[];
};

static bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

enum status tensor_virtual_check(int parts, int ranks)
{
    const bool are_powers = is_power_of_two(parts) && is_power_of_two(ranks);
    if (parts == ranks || (parts % ranks == 0 && (ranks == 1 || are_powers)))
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "VIRTUAL_TP=%d does not go with TP=%d: each worker of a group has as many parts, "
                "and adds them up before those of the others; set TP=1, or two of 1, 2, 4, 8 … of "
                "which TP is the smaller",
                parts, ranks);
}

/* ---- what a virtual rank calls ---- */

/* ask — notes the call, and lets the others come to theirs. */
static enum status ask(void *arg, struct call call)
{
    struct virtual_rank *r = arg;
    r->call = call;
    r->has_called = true;
    coroutine_yield(r->turns);
    return r->all->st;
}

static enum status gather(void *arg, struct stream *s, struct tensor out, struct tensor own,
                          int64_t elems)
{
    return ask(arg, (struct call){CALL_GATHER, s, out, own, elems, 0});
}

static enum status scatter_sum(void *arg, struct stream *s, struct tensor own, struct tensor in,
                               int64_t elems)
{
    return ask(arg, (struct call){CALL_SCATTER_SUM, s, in, own, elems, 0});
}

static enum status sum(void *arg, struct stream *s, struct tensor x, int64_t elems, int copies)
{
    return ask(arg, (struct call){CALL_SUM, s, x, {0}, elems, copies});
}

/* ---- carrying out ---- */

static enum status copy(struct stream *s, struct tensor to, struct tensor from, int64_t elems)
{
    return to.data == from.data
               ? ST_OK
               : dev_copy(s, to.data, from.data, (size_t)elems * dtype_bytes(from.dtype));
}

static const struct call *call_of(const struct tensor_virtual *v, int i)
{
    return &v->rank[i].call;
}

/* copy_to_others — what own virtual rank `first` has as a whole, to the n - 1 behind it. */
static enum status copy_to_others(struct tensor_virtual *v, int first, int n)
{
    const struct call *own = call_of(v, first);
    for (int i = first + 1; i < first + n; i++)
        TRY(copy(own->stream, call_of(v, i)->whole, own->whole, own->elems));
    return ST_OK;
}

/* add — the sum of own virtual ranks [first, first + n), by halves, to the first one's whole. */
static enum status add(struct tensor_virtual *v, int first, int n)
{
    const int left = (n + 1) / 2;
    if (n == 1)
        return ST_OK;
    TRY(add(v, first, left));
    TRY(add(v, first + left, n - left));
    const struct call *to = call_of(v, first);
    const struct combine both = {.out = to->whole,
                                 .in = to->whole,
                                 .own = call_of(v, first + left)->whole,
                                 .elems = to->elems,
                                 .stride = to->elems,
                                 .sources_n = 2,
                                 .own_i = 1};
    return v->op->combine(to->stream, &both);
}

static enum status gather_all(struct tensor_virtual *v)
{
    const struct call *c = call_of(v, 0);
    const int64_t each = c->elems / v->parts;
    struct tensor own = tensor_at(c->whole, v->first * each);
    for (int i = 0; i < v->n; i++)
        TRY(copy(c->stream, tensor_at(own, i * each), call_of(v, i)->part, each));
    if (v->ranks)
        TRY(v->ranks->gather(v->ranks->arg, c->stream, c->whole, own, c->elems));
    return copy_to_others(v, 0, v->n);
}

/* The sum of own virtual ranks is in the whole of the first; that of all ranks takes the place of
 * the second's, which is not needed any more. */
static enum status scatter_all(struct tensor_virtual *v)
{
    const struct call *c = call_of(v, 0);
    const int64_t each = c->elems / v->parts;
    struct tensor own = c->whole;
    TRY(add(v, 0, v->n));
    if (v->ranks) {
        own = call_of(v, 1)->whole;
        TRY(v->ranks->scatter_sum(v->ranks->arg, c->stream, own, c->whole, c->elems));
    }
    for (int i = 0; i < v->n; i++)
        TRY(copy(c->stream, call_of(v, i)->part, tensor_at(own, i * each), each));
    return ST_OK;
}

/* Neighbours that share a tensor are on one rank, or on neighbouring ranks, and then all of this
 * rank's are. */
static enum status sum_all(struct tensor_virtual *v)
{
    const struct call *c = call_of(v, 0);
    const int copies = c->copies, here = copies < v->n ? copies : v->n;
    ASSERTF(copies % here == 0 && v->n % here == 0, "%d copies, %d here", copies, v->n);
    for (int i = 0; i < v->n; i += here) {
        TRY(add(v, i, here));
        if (copies > here)
            TRY(v->ranks->sum(v->ranks->arg, c->stream, c->whole, c->elems, copies / here));
        TRY(copy_to_others(v, i, here));
    }
    return ST_OK;
}

static enum status carry_out(struct tensor_virtual *v)
{
    static enum status (*const way[])(struct tensor_virtual * v) = {
        [CALL_GATHER] = gather_all, [CALL_SCATTER_SUM] = scatter_all, [CALL_SUM] = sum_all};
    const struct call *c = call_of(v, 0);
    for (int i = 0; i < v->n; i++)
        ASSERTF(v->rank[i].has_called && call_of(v, i)->kind == c->kind &&
                    call_of(v, i)->elems == c->elems && call_of(v, i)->copies == c->copies,
                "virtual rank %d makes another call than 0", v->first + i);
    return way[c->kind](v);
}

/* ---- turns ---- */

/* note — the first failure, and its sentence. */
static void note(struct tensor_virtual *v, enum status st)
{
    if (st == ST_OK || v->st != ST_OK)
        return;
    v->st = st;
    status_save(&v->sentence);
}

/* one_round — each that has not ended, up to its next call. Returns whether any has one. */
static bool one_round(struct tensor_virtual *v, bool *has_ended)
{
    bool any = false;
    for (int i = 0; i < v->n; i++) {
        struct virtual_rank *r = &v->rank[i];
        r->has_called = false;
        if (has_ended[i])
            continue;
        has_ended[i] = !coroutine_resume(r->turns);
        if (has_ended[i])
            note(v, coroutine_end(r->turns));
        any = any || r->has_called;
    }
    return any;
}

static enum status work_of(void *arg)
{
    const struct virtual_rank *r = arg;
    return r->all->work(r->all->arg, r->i);
}

enum status tensor_virtual_run(struct tensor_virtual *v, enum status (*work)(void *arg, int i),
                               void *arg)
{
    bool has_ended[TENSOR_VIRTUAL_MAX] = {false};
    v->work = work;
    v->arg = arg;
    v->st = ST_OK;
    for (int i = 0; i < v->n; i++)
        coroutine_begin(v->rank[i].turns, work_of, &v->rank[i]);
    while (one_round(v, has_ended))
        if (v->st == ST_OK)
            note(v, carry_out(v));
    if (v->st != ST_OK)
        status_restore(&v->sentence);
    return v->st;
}

const struct model_axis *tensor_virtual_axis(const struct tensor_virtual *v, int i)
{
    ASSERTF(i >= 0 && i < v->n, "virtual rank %d of %d", i, v->n);
    return &v->rank[i].axis;
}

/* ---- life ---- */

static enum status open_rank(struct tensor_virtual *v, int i)
{
    struct virtual_rank *r = &v->rank[i];
    *r = (struct virtual_rank){.all = v,
                               .i = i,
                               .axis = {.part = v->first + i,
                                        .parts = v->parts,
                                        .arg = r,
                                        .gather = gather,
                                        .scatter_sum = scatter_sum,
                                        .sum = sum}};
    return coroutine_open("computes a part of a layer", &r->turns);
}

enum status tensor_virtual_open(const struct model_axis *ranks, const struct op_table *op, int n,
                                struct tensor_virtual **out)
{
    ASSERTF(n > 1 && n <= TENSOR_VIRTUAL_MAX, "%d virtual ranks", n);
    struct tensor_virtual *v = calloc(1, sizeof *v + (size_t)n * sizeof *v->rank);
    if (!v)
        return FAIL(ST_RETRY, "out of memory: %d virtual ranks", n);
    *v = (struct tensor_virtual){.ranks = ranks,
                                 .op = op,
                                 .n = n,
                                 .first = ranks ? ranks->part * n : 0,
                                 .parts = ranks ? ranks->parts * n : n};
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && i < n; i++)
        st = open_rank(v, i);
    if (st == ST_OK)
        *out = v;
    else
        tensor_virtual_close(v);
    return st;
}

void tensor_virtual_set_ranks(struct tensor_virtual *v, const struct model_axis *ranks)
{
    ASSERT((v->ranks == NULL) == (ranks == NULL));
    v->ranks = ranks;
}

void tensor_virtual_close(struct tensor_virtual *v)
{
    if (!v)
        return;
    for (int i = 0; i < v->n; i++)
        coroutine_close(v->rank[i].turns);
    free(v);
}

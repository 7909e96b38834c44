/* dev_cuda_call — calls of a library of collectives as a part of a stream's gathered work (dev.h:
 * dev_calls_open). Must not know which library it is, nor what it moves.
 *
 * One by one     the owner begins and joins each call, in the order of the list.
 * In a capture   the library's stream forks from the stream by an event, a copy marks that the call
 *                could begin, the library makes its call, another copy marks its end, and an event
 *                there is what the join waits for.
 * At its end     a list joins all its calls: a capture must end so, and lists stay the same however
 *                they are submitted.
 *
 * Marks. The number of a call changes with each launch. It comes from the block of step scalars, as
 * those of events do. Calls of one list run one after the other on the library's stream, and lists
 * too, so the greatest number that was marked is enough.
 *
 * Places. Lists with calls are counted from dev_calls_begin on: the place of a list is the same on
 * all ranks. In the first agreed step ranks tell each other for every list the place where its
 * graph was captured, or the list's own place if it has none. If those differ, no rank makes
 * graphs. So what is launched at a place comes from the same capture on every rank, as NCCL
 * demands. */
#include "dev/dev_cuda_internal.h"

#ifdef CONVOY_CUDA
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"

struct cuda_calls {
    struct dev_calls c;
    cudaEvent_t order; /* between the two streams */
    cudaEvent_t *done; /* the end of each call of the list that is captured */
    int64_t *ticket;   /* of each call of the list that is submitted one by one */
    int64_t cap;
    uint64_t last, submitted; /* numbers: of the newest call, of the newest in lists of before */
    int64_t begun, joined;    /* the newest ticket, and the newest that the stream waits for */
    int64_t places;           /* lists with calls since dev_calls_begin */
    bool is_agreed, is_first; /* is_first: the agreed step that captures */
    bool is_found;            /* all lists since dev_calls_begin were cached */
    bool is_captured;         /* the first agreed step has ended */
    bool is_refused;          /* a capture has failed on some rank */
};

enum status dev_cuda_call_open(struct stream *s, const struct dev_calls *calls)
{
    ASSERT(s->graphs && !s->calls);
    struct cuda_calls *x = calloc(1, sizeof *x);
    if (!x)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for calls of a stream", sizeof *x);
    x->c = *calls;
    cudaError_t error = cudaEventCreateWithFlags(&x->order, cudaEventDisableTiming);
    if (error != cudaSuccess) {
        free(x);
        return dev_cuda_error_fail(error, "creating an event");
    }
    s->calls = x;
    return ST_OK;
}

void dev_cuda_call_close(struct stream *s)
{
    struct cuda_calls *x = s->calls;
    if (!x)
        return;
    dev_cuda_graph_drop(s, false);
    (void)cudaStreamSynchronize(s->stream);
    for (int64_t i = 0; i < x->cap; i++)
        (void)cudaEventDestroy(x->done[i]);
    (void)cudaEventDestroy(x->order);
    free(x->done);
    free(x->ticket);
    free(x);
    s->calls = NULL;
}

/* ---- gathering ---- */

/* Places for one more call. An event cannot be created in a capture. */
static enum status grow(struct cuda_calls *x)
{
    int64_t cap = x->cap + 1;
    cudaEvent_t *done = realloc(x->done, (size_t)cap * sizeof *done);
    if (done)
        x->done = done;
    int64_t *ticket = realloc(x->ticket, (size_t)cap * sizeof *ticket);
    if (ticket)
        x->ticket = ticket;
    if (!done || !ticket)
        return FAIL(ST_RETRY, "out of memory: %lld calls of a stream", (long long)cap);
    CUDA_CHECK(cudaEventCreateWithFlags(&x->done[x->cap], cudaEventDisableTiming));
    x->cap = cap;
    return ST_OK;
}

enum status dev_cuda_call_add(struct stream *s, const struct dev_call *call, uint64_t *number_out)
{
    struct cuda_calls *x = s->calls;
    struct cuda_call args = {.number = x->last + 1, .call = *call};
    TRY(dev_cuda_graph_make_room(s));
    args.index = x->last - x->submitted;
    if ((int64_t)args.index == x->cap)
        TRY(grow(x));
    *number_out = ++x->last;
    return dev_cuda_graph_add(s, CUDA_WORK_CALL, &args, sizeof args);
}

enum status dev_cuda_call_join(struct stream *s, uint64_t number)
{
    struct cuda_calls *x = s->calls;
    if (!x || number <= x->submitted)
        return ST_OK;
    struct cuda_call args = {.index = number - x->submitted - 1};
    TRY(dev_cuda_graph_make_room(s));
    return number <= x->submitted ? ST_OK
                                  : dev_cuda_graph_add(s, CUDA_WORK_JOIN, &args, sizeof args);
}

/* ---- submitting ---- */

static enum status order(struct cuda_calls *x, cudaStream_t first, cudaStream_t then)
{
    CUDA_CHECK(cudaEventRecord(x->order, first));
    CUDA_CHECK(cudaStreamWaitEvent(then, x->order, 0));
    return ST_OK;
}

/* The number of the call, when the library's stream comes to this point. */
static enum status mark(struct stream *s, uint64_t *to)
{
    CUDA_CHECK(cudaMemcpyAsync(to, &s->cuda.scalars->seed, sizeof *to, cudaMemcpyDeviceToHost,
                               s->calls->c.stream->stream));
    return ST_OK;
}

static enum status capture_call(struct stream *s, const struct cuda_call *a)
{
    struct cuda_calls *x = s->calls;
    cudaStream_t beside = x->c.stream->stream;
    TRY(order(x, s->stream, beside));
    TRY(mark(s, x->c.began));
    TRY(x->c.put(x->c.arg, &a->call));
    TRY(mark(s, x->c.ended));
    CUDA_CHECK(cudaEventRecord(x->done[a->index], beside));
    return ST_OK;
}

static enum status begin_call(struct cuda_calls *x, const struct cuda_call *a)
{
    TRY(x->c.begin(x->c.arg, &a->call, &x->ticket[a->index]));
    x->begun = x->ticket[a->index];
    return ST_OK;
}

/* Calls end in the order in which they began. */
static enum status join_ticket(struct cuda_calls *x, int64_t ticket)
{
    if (ticket <= x->joined)
        return ST_OK;
    x->joined = ticket;
    return x->c.join(x->c.arg, ticket);
}

enum status dev_cuda_call_do(struct stream *s, enum cuda_work work, const struct cuda_call *a)
{
    struct cuda_calls *x = s->calls;
    if (work == CUDA_WORK_CALL)
        return s->is_captured ? capture_call(s, a) : begin_call(x, a);
    if (!s->is_captured)
        return join_ticket(x, x->ticket[a->index]);
    CUDA_CHECK(cudaStreamWaitEvent(s->stream, x->done[a->index], 0));
    return ST_OK;
}

enum status dev_cuda_call_end_list(struct stream *s)
{
    struct cuda_calls *x = s->calls;
    return s->is_captured ? order(x, x->c.stream->stream, s->stream) : join_ticket(x, x->begun);
}

enum status dev_cuda_call_before(struct stream *s, bool is_capture)
{
    struct cuda_calls *x = s->calls;
    TRY(x->c.settle(x->c.arg, is_capture));
    return is_capture ? ST_OK : order(x, x->c.stream->stream, s->stream);
}

enum status dev_cuda_call_after(struct stream *s)
{
    return order(s->calls, s->stream, s->calls->c.stream->stream);
}

enum status dev_cuda_call_launched(struct stream *s, const struct cuda_call *a)
{
    return s->calls->c.launched(s->calls->c.arg, &a->call, a->number);
}

void dev_cuda_call_submitted(struct stream *s)
{
    if (s->calls)
        s->calls->submitted = s->calls->last;
}

/* ---- what ranks agree on ---- */

enum status dev_cuda_call_begin(struct stream *s, bool is_agreed)
{
    struct cuda_calls *x = s->calls;
    TRY(dev_cuda_graph_flush(s));
    x->is_agreed = is_agreed;
    x->is_first = is_agreed && !x->is_captured;
    x->is_found = true;
    x->places = 0;
    if (!is_agreed) {
        dev_cuda_graph_drop(s, true);
        x->is_captured = false;
    }
    return ST_OK;
}

enum status dev_cuda_call_end(struct stream *s, bool *is_ready_out)
{
    struct cuda_calls *x = s->calls;
    TRY(dev_cuda_graph_flush(s));
    x->is_captured = x->is_agreed;
    *is_ready_out = x->is_found && x->places > 0 && !x->is_refused;
    return ST_OK;
}

/* agree — *out ← is x the same number on all ranks? All ranks get the same answer. */
static enum status agree(struct cuda_calls *calls, double x, bool *out)
{
    double sums[3] = {1, x, x * x};
    TRY(calls->c.sum(calls->c.arg, sums, 3));
    *out = sums[0] * sums[2] == sums[1] * sums[1];
    return ST_OK;
}

enum status dev_cuda_call_way(struct stream *s, bool is_cached, int64_t cached_at,
                              enum cuda_call_way *out, int64_t *place_out)
{
    struct cuda_calls *x = s->calls;
    bool is_same = false;
    *out = CALL_ONE_BY_ONE;
    *place_out = ++x->places;
    x->is_found = x->is_found && is_cached;
    if (!x->is_agreed || x->is_refused)
        return ST_OK;
    if (!is_cached || (!x->is_first && cached_at == 0))
        return FAIL(ST_BUG,
                    "this rank's work with collectives, part %lld of the step, is not what was "
                    "captured into a CUDA graph; report it, and set COMM_GRAPH=0",
                    (long long)x->places);
    *out = CALL_LAUNCH;
    if (!x->is_first)
        return ST_OK;
    TRY(agree(x, (double)(cached_at > 0 ? cached_at : x->places), &is_same));
    *out = !is_same ? CALL_ONE_BY_ONE : cached_at > 0 ? CALL_LAUNCH : CALL_CAPTURE;
    x->is_refused = !is_same;
    if (!is_same)
        LOG_WARN("collectives are submitted one by one: work repeats on this rank in another way "
                 "than on others, so it cannot be made a CUDA graph on all");
    return ST_OK;
}

enum status dev_cuda_call_captured(struct stream *s, enum status st, enum cuda_call_way *out)
{
    struct cuda_calls *x = s->calls;
    struct status_saved saved;
    double failed = st != ST_OK;
    status_save(&saved);
    TRY(x->c.sum(x->c.arg, &failed, 1));
    *out = failed > 0 ? CALL_ONE_BY_ONE : CALL_LAUNCH;
    if (failed == 0)
        return ST_OK;
    x->is_refused = true;
    (void)cudaGetLastError(); /* of the capture alone */
    if (st == ST_OK)
        LOG_WARN("collectives are submitted one by one: another rank could not make its work a "
                 "CUDA graph; see its log");
    status_restore(&saved);
    if (st != ST_OK)
        LOG_WARN("collectives are submitted one by one, because work with them cannot be made a "
                 "CUDA graph: %s",
                 status_message());
    return st == ST_FAULT ? st : ST_OK;
}
#endif

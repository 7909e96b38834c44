/* p2p_pipeline — the queues of chunks of a large call, and the one loop that moves them. Must not
 * know which call it is. */
#include "comm/algorithm/direct.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/core/transport.h"
#include "comm/core/part.h"

/* of a chunk: two of half the size cost more time than their overlap wins */
#define CHUNK_MIN_BYTES (32 << 10)

/* Messages of one kind with one peer: those in [done, posted) are under way. */
struct p2p_pipeline_queue {
    int64_t posted, done;
    struct p2p_op ops[P2P_PIPELINE_DEPTH];
};

struct p2p_pipeline_peer {
    struct p2p_pipeline_queue send_part, recv_part; /* contributions: to its part, to mine */
    struct p2p_pipeline_queue send_sum, recv_sum;   /* sums: of my part, of its part */
};

/* One call under way. */
struct p2p_pipeline_run {
    struct p2p_pipeline *pipeline;
    const struct p2p_pipeline_call *call;
    int64_t elem_bytes, elem_bytes_out; /* bytes of an element: of a contribution, of a sum */
    int64_t chunk_elems;
    bool sends_parts, sends_sums; /* which queues are in use */
    bool is_windowed; /* a chunk waits for the result of the one P2P_PIPELINE_DEPTH before it */
    /* the class of empty acknowledgements; P2P_TAG_HEADER: none */
    enum p2p_tag_class ack_class;
    struct part_extent mine;
    int64_t added;  /* finished chunks of my part */
    bool is_adding; /* a GPU adds the next one */
};

enum status p2p_pipeline_open(struct p2p_pipeline *pipeline, int64_t chunk_bytes)
{
    pipeline->chunk_bytes = chunk_bytes;
    pipeline->peers = memory_new((size_t)pipeline->n, sizeof(*pipeline->peers));
    pipeline->sources = memory_new((size_t)pipeline->n, sizeof(*pipeline->sources));
    int64_t bytes = chunk_bytes * P2P_PIPELINE_DEPTH * pipeline->n;
    void *slots;
    TRY(p2p_memory_alloc(&pipeline->memory, bytes, &slots));
    pipeline->slots = slots;
    pipeline->slots_bytes = bytes;
    return ST_OK;
}

void p2p_pipeline_free(struct p2p_pipeline *pipeline)
{
    p2p_memory_free(&pipeline->memory, pipeline->slots, pipeline->slots_bytes);
    free(pipeline->peers);
    free(pipeline->sources);
    pipeline->slots = NULL;
    pipeline->peers = NULL;
    pipeline->sources = NULL;
}

static int64_t count_chunks(const struct p2p_pipeline_run *run, struct part_extent part)
{
    return (part.elems + run->chunk_elems - 1) / run->chunk_elems;
}

static struct part_extent chunk_of(const struct p2p_pipeline_run *run, struct part_extent part,
                                   int64_t chunk_i)
{
    int64_t first = chunk_i * run->chunk_elems, left = part.elems - first;
    return (struct part_extent){.first = part.first + first,
                                .elems = left < run->chunk_elems ? left : run->chunk_elems};
}

static char *slot_of(const struct p2p_pipeline *pipeline, int64_t chunk_i, int r)
{
    return pipeline->slots +
           ((chunk_i % P2P_PIPELINE_DEPTH) * pipeline->n + r) * pipeline->chunk_bytes;
}

static bool has_room(const struct p2p_pipeline_queue *s)
{
    return s->posted - s->done < P2P_PIPELINE_DEPTH;
}

static void retire(struct p2p_pipeline_queue *s)
{
    while (s->done < s->posted && p2p_is_done(&s->ops[s->done % P2P_PIPELINE_DEPTH]))
        s->done++;
}

static int64_t bytes_of(const struct p2p_pipeline_run *run, int64_t elems,
                        enum p2p_tag_class tag_class)
{
    if (tag_class == run->ack_class)
        return 0;
    return elems * (tag_class == P2P_TAG_SUM ? run->elem_bytes_out : run->elem_bytes);
}

/* The next message of the queue. An empty one has no memory, so it is not a GPU's. */
static struct p2p_op *next_op(const struct p2p_pipeline_run *run, struct p2p_pipeline_queue *s,
                              int64_t bytes)
{
    struct p2p_op *op = &s->ops[s->posted++ % P2P_PIPELINE_DEPTH];
    op->is_gpu = run->pipeline->memory.ops->is_gpu && bytes > 0;
    return op;
}

static enum status send_chunk(struct p2p_pipeline_run *run, struct p2p_pipeline_queue *s,
                              const char *data, int64_t elems, int r, enum p2p_tag_class tag_class)
{
    int64_t bytes = bytes_of(run, elems, tag_class);
    struct p2p_pipeline *pipeline = run->pipeline;
    struct p2p_tag tag = {
        .group = pipeline->group, .tag_class = tag_class, .sequence = run->call->sequence};
    pipeline->bytes_sent += bytes;
    return p2p_send(pipeline->p2p, next_op(run, s, bytes), data, bytes, pipeline->p2p_rank[r], tag);
}

static enum status recv_chunk(struct p2p_pipeline_run *run, struct p2p_pipeline_queue *s,
                              char *data, int64_t elems, int r, enum p2p_tag_class tag_class)
{
    struct p2p_pipeline *pipeline = run->pipeline;
    struct p2p_tag tag = {.group = pipeline->group,
                          .from = pipeline->p2p_rank[r],
                          .tag_class = tag_class,
                          .sequence = run->call->sequence};
    int64_t bytes = bytes_of(run, elems, tag_class);
    return p2p_recv(pipeline->p2p, next_op(run, s, bytes), data, bytes, tag);
}

/* A queue may have P2P_PIPELINE_DEPTH messages under way. With a window, it may also be only so
 * many ahead of the results that have come back. */
static bool may_send(const struct p2p_pipeline_run *run, const struct p2p_pipeline_queue *s,
                     int64_t n, int64_t back)
{
    return s->posted < n && has_room(s) &&
           (!run->is_windowed || s->posted < back + P2P_PIPELINE_DEPTH);
}

/* Receives come first: the transport does not have to copy a message that is expected. */
static enum status post_receives(struct p2p_pipeline_run *run, int r)
{
    struct p2p_pipeline *pipeline = run->pipeline;
    struct p2p_pipeline_peer *peer = &pipeline->peers[r];
    struct part_extent theirs = run->call->parts[r], chunk;
    int64_t mine_n = count_chunks(run, run->mine), theirs_n = count_chunks(run, theirs);
    /* a slot is free when its chunk is added, or sent back */
    int64_t free_n = run->call->in != NULL ? run->added : peer->recv_part.done;
    while (run->sends_parts && peer->recv_part.posted < mine_n &&
           peer->recv_part.posted < free_n + P2P_PIPELINE_DEPTH) {
        chunk = chunk_of(run, run->mine, peer->recv_part.posted);
        TRY(recv_chunk(run, &peer->recv_part, slot_of(pipeline, peer->recv_part.posted, r),
                       chunk.elems, r, P2P_TAG_PART));
    }
    while (run->sends_sums && peer->recv_sum.posted < theirs_n && has_room(&peer->recv_sum)) {
        chunk = chunk_of(run, theirs, peer->recv_sum.posted);
        char *to = run->call->out != NULL ? run->call->out + chunk.first * run->elem_bytes_out
                                          : pipeline->slots;
        TRY(recv_chunk(run, &peer->recv_sum, to, chunk.elems, r, P2P_TAG_SUM));
    }
    return ST_OK;
}

/* Begins all messages with rank r that may begin. */
static enum status post(struct p2p_pipeline_run *run, int r)
{
    const struct p2p_pipeline_call *call = run->call;
    struct p2p_pipeline_peer *peer = &run->pipeline->peers[r];
    struct part_extent theirs = call->parts[r], chunk;
    int64_t theirs_n = count_chunks(run, theirs);
    TRY(post_receives(run, r));
    while (run->sends_sums && may_send(run, &peer->send_sum, run->added,
                                       call->in != NULL ? run->added : peer->recv_part.done)) {
        chunk = chunk_of(run, run->mine, peer->send_sum.posted);
        TRY(send_chunk(run, &peer->send_sum,
                       call->own_out + (chunk.first - run->mine.first) * run->elem_bytes_out,
                       chunk.elems, r, P2P_TAG_SUM));
    }
    while (run->sends_parts &&
           may_send(run, &peer->send_part, call->in != NULL ? theirs_n : peer->recv_sum.done,
                    peer->recv_sum.done)) {
        chunk = chunk_of(run, theirs, peer->send_part.posted);
        const char *from =
            call->in != NULL ? call->in + chunk.first * run->elem_bytes : run->pipeline->slots;
        TRY(send_chunk(run, &peer->send_part, from, chunk.elems, r, P2P_TAG_PART));
    }
    return ST_OK;
}

static bool may_add(const struct p2p_pipeline_run *run)
{
    const struct p2p_pipeline *pipeline = run->pipeline;
    for (int r = 0; r < pipeline->n; r++) {
        const struct p2p_pipeline_peer *peer = &pipeline->peers[r];
        if (r != pipeline->me && (peer->recv_part.done <= run->added ||
                                  (run->call->is_whole && peer->send_part.done <= run->added)))
            return false;
    }
    return true;
}

/* The next chunk's sum begins where all its contributions are there. A GPU adds while chunks move,
 * one chunk at a time: it is tens of times as fast as any wire. */
static enum status sum_next(struct p2p_pipeline_run *run)
{
    struct p2p_pipeline *pipeline = run->pipeline;
    const struct p2p_pipeline_call *call = run->call;
    const struct p2p_memory *memory = &pipeline->memory;
    struct part_extent chunk = chunk_of(run, run->mine, run->added);
    const struct p2p_memory_sum sum = {.slots = slot_of(pipeline, run->added, 0),
                                       .own = call->in + chunk.first * run->elem_bytes,
                                       .stride_bytes = pipeline->chunk_bytes,
                                       .own_i = pipeline->me,
                                       .nodes = pipeline->nodes,
                                       .locals = pipeline->locals,
                                       .dtype = call->dtype,
                                       .dtype_out = call->dtype_out,
                                       .out = call->own_out +
                                              (chunk.first - run->mine.first) * run->elem_bytes_out,
                                       .elems = chunk.elems,
                                       .scratch = pipeline->sources};
    bool is_done = false;
    if (run->is_adding)
        TRY(memory->ops->is_done(memory, &is_done));
    else if (may_add(run))
        TRY(memory->ops->sum(memory, &sum, &is_done));
    else
        return ST_OK;
    run->is_adding = !is_done;
    run->added += is_done;
    return ST_OK;
}

/* All messages with rank r are over. */
static bool is_finished(const struct p2p_pipeline_run *run, int r)
{
    const struct p2p_pipeline_peer *peer = &run->pipeline->peers[r];
    int64_t mine_n = count_chunks(run, run->mine);
    int64_t theirs_n = count_chunks(run, run->call->parts[r]);
    if (run->sends_parts && (peer->send_part.done < theirs_n ||
                             (run->call->in == NULL && peer->recv_part.done < mine_n)))
        return false;
    return !run->sends_sums || (peer->send_sum.done == mine_n && peer->recv_sum.done == theirs_n);
}

static enum status advance(struct p2p_pipeline_run *run, bool *is_done)
{
    struct p2p_pipeline *pipeline = run->pipeline;
    *is_done = true;
    for (int i = 1; i < pipeline->n; i++) {
        int r = (pipeline->me + i) % pipeline->n;
        struct p2p_pipeline_peer *peer = &pipeline->peers[r];
        retire(&peer->send_part);
        retire(&peer->recv_part);
        retire(&peer->send_sum);
        retire(&peer->recv_sum);
        TRY(post(run, r));
        *is_done = *is_done && is_finished(run, r);
    }
    if (run->added < count_chunks(run, run->mine)) {
        TRY(sum_next(run));
        *is_done = false;
    }
    return run->call->poll(run->call->arg);
}

/* The chunks of the call. All ranks compute the same from the largest part. */
static void plan(struct p2p_pipeline_run *run)
{
    const struct p2p_pipeline_call *call = run->call;
    int64_t most = 0;
    for (int r = 0; r < run->pipeline->n; r++)
        most = call->parts[r].elems > most ? call->parts[r].elems : most;
    /* The part is cut into the fewest chunks of one size that fit into slots, since a short last
     * chunk costs a round trip as a long one does; into two at least, so that adding overlaps with
     * moving. Slots are a multiple of PART_ALIGN too. */
    const int64_t room = run->pipeline->chunk_bytes / run->elem_bytes,
                  least = CHUNK_MIN_BYTES / run->elem_bytes, chunks_n = (most + room - 1) / room,
                  wanted = most / (chunks_n > 2 ? chunks_n : 2),
                  elems = wanted > least ? wanted : least;
    run->chunk_elems = (elems + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    run->is_windowed = !run->pipeline->memory.ops->is_gpu && !call->is_whole &&
                       most > run->chunk_elems * P2P_PIPELINE_DEPTH;
    run->sends_parts = call->in != NULL || run->is_windowed;
    run->sends_sums = call->out != NULL || run->is_windowed;
    run->ack_class = call->in == NULL    ? P2P_TAG_PART
                     : call->out == NULL ? P2P_TAG_SUM
                                         : P2P_TAG_HEADER;
    run->added = call->in != NULL ? 0 : count_chunks(run, run->mine);
}

enum status p2p_pipeline_run(struct p2p_pipeline *pipeline, const struct p2p_pipeline_call *call,
                             struct p2p_wait *wait)
{
    struct p2p_pipeline_run run = {.pipeline = pipeline,
                                   .call = call,
                                   .elem_bytes = (int64_t)dtype_bytes(call->dtype),
                                   .elem_bytes_out = (int64_t)dtype_bytes(call->dtype_out),
                                   .mine = call->parts[pipeline->me]};
    plan(&run);
    memset(pipeline->peers, 0, sizeof(*pipeline->peers) * (size_t)pipeline->n);
    bool is_done = false;
    for (;;) {
        int64_t added = run.added;
        TRY(advance(&run, &is_done));
        if (is_done)
            return ST_OK;
        /* no message would wake this thread to send that chunk */
        wait->is_polling = run.is_adding || run.added > added;
        TRY(p2p_progress(pipeline->p2p, wait));
        wait->is_polling = false;
    }
}

enum status p2p_pipeline_all_to_all(struct p2p_pipeline *pipeline,
                                    const struct p2p_pipeline_call *call, int64_t elems,
                                    struct p2p_wait *wait)
{
    struct p2p_pipeline_run run = {
        .pipeline = pipeline, .call = call, .elem_bytes = (int64_t)dtype_bytes(call->dtype)};
    int64_t bytes = elems * run.elem_bytes;
    memset(pipeline->peers, 0, sizeof(*pipeline->peers) * (size_t)pipeline->n);
    for (int i = 1; i < pipeline->n; i++) {
        int to = (pipeline->me + i) % pipeline->n,
            from = (pipeline->me - i + pipeline->n) % pipeline->n;
        TRY(recv_chunk(&run, &pipeline->peers[from].recv_part, call->out + from * bytes, elems,
                       from, P2P_TAG_PART));
        TRY(send_chunk(&run, &pipeline->peers[to].send_part, call->in + to * bytes, elems, to,
                       P2P_TAG_PART));
    }
    for (int r = 0; r < pipeline->n; r++) {
        while (!p2p_is_done(&pipeline->peers[r].recv_part.ops[0]) ||
               !p2p_is_done(&pipeline->peers[r].send_part.ops[0])) {
            TRY(call->poll(call->arg));
            TRY(p2p_progress(pipeline->p2p, wait));
        }
    }
    return ST_OK;
}

/* Each rank passes a chunk on while it receives the next. Chunks are so large that UCX uses
 * rendezvous, since no result comes back to bound unexpected messages. */
enum status p2p_pipeline_broadcast(struct p2p_pipeline *pipeline,
                                   const struct p2p_pipeline_call *call, int64_t bytes, int root,
                                   struct p2p_wait *wait)
{
    struct p2p_pipeline_run run = {.pipeline = pipeline,
                                   .call = call,
                                   .elem_bytes = 1,
                                   .elem_bytes_out = 1,
                                   .chunk_elems = 2 * pipeline->chunk_bytes};
    int at = (pipeline->me - root + pipeline->n) % pipeline->n,
        prev = (pipeline->me - 1 + pipeline->n) % pipeline->n;
    int next = (pipeline->me + 1) % pipeline->n;
    bool is_last = at == pipeline->n - 1;
    struct part_extent all = {.elems = bytes};
    int64_t chunks_n = count_chunks(&run, all);
    struct p2p_pipeline_queue *from = &pipeline->peers[prev].recv_sum,
                              *to = &pipeline->peers[next].send_sum;
    memset(pipeline->peers, 0, sizeof(*pipeline->peers) * (size_t)pipeline->n);
    if (at == 0)
        from->done = from->posted = chunks_n;
    if (is_last)
        to->done = to->posted = chunks_n;
    while (from->done < chunks_n || to->done < chunks_n) {
        retire(from);
        retire(to);
        while (from->posted < chunks_n && has_room(from)) {
            struct part_extent chunk = chunk_of(&run, all, from->posted);
            TRY(recv_chunk(&run, from, call->out + chunk.first, chunk.elems, prev, P2P_TAG_PART));
        }
        while (to->posted < from->done && has_room(to)) {
            struct part_extent chunk = chunk_of(&run, all, to->posted);
            TRY(send_chunk(&run, to, call->out + chunk.first, chunk.elems, next, P2P_TAG_PART));
        }
        TRY(call->poll(call->arg));
        TRY(p2p_progress(pipeline->p2p, wait));
    }
    return ST_OK;
}

/* comm_direct — direct reduce-scatter and all-gather: the queues of chunks of a large call, and the
 * one loop that moves them. Numbers in comments are the steps of direct.h. This file must not
 * depend on the kind of call. */
#include "comm/algorithm/direct.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "comm/core/transport.h"
#include "comm/core/part.h"

/* least bytes of a chunk: two chunks of half the size cost more time than their overlap saves */
#define CHUNK_MIN_BYTES (32 << 10)

/* One call in progress. */
struct comm_direct_run {
    struct comm_direct *direct;
    const struct comm_direct_call *call;
    int64_t elem_bytes, elem_bytes_out; /* bytes of an element of a contribution, and of a sum */
    int64_t chunk_elems;
    bool sends_parts, sends_sums; /* which queues are in use */
    bool is_windowed; /* a chunk waits for the result of the chunk COMM_DIRECT_DEPTH before it */
    /* class of empty acknowledgements; MESSAGE_TAG_HEADER: none */
    enum message_tag_class ack_class;
    struct part_extent mine;
    int64_t added;  /* finished chunks of this rank's part */
    bool is_adding; /* a GPU adds the next chunk */
};

enum status comm_direct_open(struct comm_direct *direct, int64_t chunk_bytes)
{
    direct->chunk_bytes = chunk_bytes;
    direct->peers = memory_new((size_t)direct->n, sizeof(*direct->peers));
    direct->sources = memory_new((size_t)direct->n, sizeof(*direct->sources));
    int64_t bytes = chunk_bytes * COMM_DIRECT_DEPTH * direct->n;
    void *slots;
    TRY(comm_memory_alloc(&direct->memory, bytes, &slots));
    direct->slots = slots;
    direct->slots_bytes = bytes;
    return ST_OK;
}

void comm_direct_free(struct comm_direct *direct)
{
    comm_memory_free(&direct->memory, direct->slots, direct->slots_bytes);
    free(direct->peers);
    free(direct->sources);
    direct->slots = NULL;
    direct->peers = NULL;
    direct->sources = NULL;
}

static int64_t count_chunks(const struct comm_direct_run *run, struct part_extent part)
{
    return (part.elems + run->chunk_elems - 1) / run->chunk_elems;
}

static struct part_extent chunk_of(const struct comm_direct_run *run, struct part_extent part,
                                   int64_t chunk_i)
{
    int64_t first = chunk_i * run->chunk_elems, left = part.elems - first;
    return (struct part_extent){.first = part.first + first,
                                .elems = left < run->chunk_elems ? left : run->chunk_elems};
}

static char *slot_of(const struct comm_direct *direct, int64_t chunk_i, int r)
{
    return direct->slots + ((chunk_i % COMM_DIRECT_DEPTH) * direct->n + r) * direct->chunk_bytes;
}

static bool has_room(const struct comm_direct_queue *s)
{
    return s->posted - s->done < COMM_DIRECT_DEPTH;
}

void comm_direct_retire(struct comm_direct_queue *s)
{
    while (s->done < s->posted && messenger_is_done(&s->ops[s->done % COMM_DIRECT_DEPTH]))
        s->done++;
}

static int64_t bytes_of(const struct comm_direct_run *run, int64_t elems,
                        enum message_tag_class tag_class)
{
    if (tag_class == run->ack_class)
        return 0;
    return elems * (tag_class == MESSAGE_TAG_SUM ? run->elem_bytes_out : run->elem_bytes);
}

/* Returns the next message of the queue. An empty message has no memory, so it is not a GPU's. */
static struct message_op *next_op(const struct comm_direct_run *run, struct comm_direct_queue *s,
                                  int64_t bytes)
{
    struct message_op *op = &s->ops[s->posted++ % COMM_DIRECT_DEPTH];
    op->is_gpu = run->direct->memory.ops->is_gpu && bytes > 0;
    return op;
}

static enum status send_chunk(struct comm_direct_run *run, struct comm_direct_queue *s,
                              const char *data, int64_t elems, int r,
                              enum message_tag_class tag_class)
{
    int64_t bytes = bytes_of(run, elems, tag_class);
    struct comm_direct *direct = run->direct;
    struct message_tag tag = {
        .group = direct->group, .tag_class = tag_class, .sequence = run->call->sequence};
    direct->bytes_sent += bytes;
    return messenger_send(direct->messenger, next_op(run, s, bytes), data, bytes,
                          direct->root_rank[r], tag);
}

static enum status recv_chunk(struct comm_direct_run *run, struct comm_direct_queue *s, char *data,
                              int64_t elems, int r, enum message_tag_class tag_class)
{
    struct comm_direct *direct = run->direct;
    struct message_tag tag = {.group = direct->group,
                              .from = direct->root_rank[r],
                              .tag_class = tag_class,
                              .sequence = run->call->sequence};
    int64_t bytes = bytes_of(run, elems, tag_class);
    return messenger_recv(direct->messenger, next_op(run, s, bytes), data, bytes, tag);
}

/* Returns true if a queue may send: at most COMM_DIRECT_DEPTH messages are in progress. With a
 * window, they are also at most COMM_DIRECT_DEPTH ahead of the results that have come back. */
static bool may_send(const struct comm_direct_run *run, const struct comm_direct_queue *s,
                     int64_t n, int64_t back)
{
    return s->posted < n && has_room(s) &&
           (!run->is_windowed || s->posted < back + COMM_DIRECT_DEPTH);
}

/* Posts receives, before any send: the transport does not have to copy an expected message. */
static enum status post_receives(struct comm_direct_run *run, int r)
{
    struct comm_direct *direct = run->direct;
    struct comm_direct_peer *peer = &direct->peers[r];
    struct part_extent theirs = run->call->parts[r], chunk;
    int64_t mine_n = count_chunks(run, run->mine), theirs_n = count_chunks(run, theirs);
    /* a slot is free when its chunk has been added, or sent back */
    int64_t free_n = run->call->in != NULL ? run->added : peer->recv_part.done;
    /* 1. */
    while (run->sends_parts && peer->recv_part.posted < mine_n &&
           peer->recv_part.posted < free_n + COMM_DIRECT_DEPTH) {
        chunk = chunk_of(run, run->mine, peer->recv_part.posted);
        TRY(recv_chunk(run, &peer->recv_part, slot_of(direct, peer->recv_part.posted, r),
                       chunk.elems, r, MESSAGE_TAG_PART));
    }
    /* 3. */
    while (run->sends_sums && peer->recv_sum.posted < theirs_n && has_room(&peer->recv_sum)) {
        chunk = chunk_of(run, theirs, peer->recv_sum.posted);
        char *to = run->call->out != NULL ? run->call->out + chunk.first * run->elem_bytes_out
                                          : direct->slots;
        TRY(recv_chunk(run, &peer->recv_sum, to, chunk.elems, r, MESSAGE_TAG_SUM));
    }
    return ST_OK;
}

/* Begins all messages with rank r that may begin now. */
static enum status post_messages(struct comm_direct_run *run, int r)
{
    const struct comm_direct_call *call = run->call;
    struct comm_direct_peer *peer = &run->direct->peers[r];
    struct part_extent theirs = call->parts[r], chunk;
    int64_t theirs_n = count_chunks(run, theirs);
    TRY(post_receives(run, r));
    /* 3. */
    while (run->sends_sums && may_send(run, &peer->send_sum, run->added,
                                       call->in != NULL ? run->added : peer->recv_part.done)) {
        chunk = chunk_of(run, run->mine, peer->send_sum.posted);
        TRY(send_chunk(run, &peer->send_sum,
                       call->own_out + (chunk.first - run->mine.first) * run->elem_bytes_out,
                       chunk.elems, r, MESSAGE_TAG_SUM));
    }
    /* 1. */
    while (run->sends_parts &&
           may_send(run, &peer->send_part, call->in != NULL ? theirs_n : peer->recv_sum.done,
                    peer->recv_sum.done)) {
        chunk = chunk_of(run, theirs, peer->send_part.posted);
        const char *from =
            call->in != NULL ? call->in + chunk.first * run->elem_bytes : run->direct->slots;
        TRY(send_chunk(run, &peer->send_part, from, chunk.elems, r, MESSAGE_TAG_PART));
    }
    return ST_OK;
}

static bool may_add(const struct comm_direct_run *run)
{
    const struct comm_direct *direct = run->direct;
    for (int r = 0; r < direct->n; r++) {
        const struct comm_direct_peer *peer = &direct->peers[r];
        if (r != direct->me && (peer->recv_part.done <= run->added ||
                                (run->call->is_whole && peer->send_part.done <= run->added)))
            return false;
    }
    return true;
}

/* 2. Begins the next chunk's sum if all its contributions have arrived. A GPU adds while chunks
 * move, one chunk at a time: it is tens of times as fast as any wire. */
static enum status sum_next(struct comm_direct_run *run)
{
    struct comm_direct *direct = run->direct;
    const struct comm_direct_call *call = run->call;
    const struct comm_memory *memory = &direct->memory;
    struct part_extent chunk = chunk_of(run, run->mine, run->added);
    const struct comm_memory_sum sum = {.slots = slot_of(direct, run->added, 0),
                                        .own = call->in + chunk.first * run->elem_bytes,
                                        .stride_bytes = direct->chunk_bytes,
                                        .own_i = direct->me,
                                        .nodes = direct->nodes,
                                        .locals = direct->locals,
                                        .dtype = call->dtype,
                                        .dtype_out = call->dtype_out,
                                        .out = call->own_out + (chunk.first - run->mine.first) *
                                                                   run->elem_bytes_out,
                                        .elems = chunk.elems,
                                        .scratch = direct->sources};
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

/* Returns true if all messages with rank r have ended. */
static bool is_finished(const struct comm_direct_run *run, int r)
{
    const struct comm_direct_peer *peer = &run->direct->peers[r];
    int64_t mine_n = count_chunks(run, run->mine);
    int64_t theirs_n = count_chunks(run, run->call->parts[r]);
    if (run->sends_parts && (peer->send_part.done < theirs_n ||
                             (run->call->in == NULL && peer->recv_part.done < mine_n)))
        return false;
    return !run->sends_sums || (peer->send_sum.done == mine_n && peer->recv_sum.done == theirs_n);
}

static enum status progress_run(struct comm_direct_run *run, bool *is_done)
{
    struct comm_direct *direct = run->direct;
    *is_done = true;
    for (int i = 1; i < direct->n; i++) {
        int r = (direct->me + i) % direct->n;
        struct comm_direct_peer *peer = &direct->peers[r];
        comm_direct_retire(&peer->send_part);
        comm_direct_retire(&peer->recv_part);
        comm_direct_retire(&peer->send_sum);
        comm_direct_retire(&peer->recv_sum);
        TRY(post_messages(run, r));
        *is_done = *is_done && is_finished(run, r);
    }
    if (run->added < count_chunks(run, run->mine)) {
        TRY(sum_next(run));
        *is_done = false;
    }
    return run->call->poll(run->call->arg);
}

/* Computes the chunks of the call. All ranks compute the same from the largest part. */
static void plan_chunks(struct comm_direct_run *run)
{
    const struct comm_direct_call *call = run->call;
    int64_t most = 0;
    for (int r = 0; r < run->direct->n; r++)
        most = call->parts[r].elems > most ? call->parts[r].elems : most;
    /* The part is cut into the fewest chunks of one size that fit into slots, since a short last
     * chunk costs a round trip like a long one. There are at least two, so that adding overlaps
     * with moving. Slots are a multiple of PART_ALIGN too. */
    const int64_t room = run->direct->chunk_bytes / run->elem_bytes,
                  least = CHUNK_MIN_BYTES / run->elem_bytes, chunks_n = (most + room - 1) / room,
                  wanted = most / (chunks_n > 2 ? chunks_n : 2),
                  elems = wanted > least ? wanted : least;
    run->chunk_elems = (elems + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    run->is_windowed = !run->direct->memory.ops->is_gpu && !call->is_whole &&
                       most > run->chunk_elems * COMM_DIRECT_DEPTH;
    run->sends_parts = call->in != NULL || run->is_windowed;
    run->sends_sums = call->out != NULL || run->is_windowed;
    run->ack_class = call->in == NULL    ? MESSAGE_TAG_PART
                     : call->out == NULL ? MESSAGE_TAG_SUM
                                         : MESSAGE_TAG_HEADER;
    run->added = call->in != NULL ? 0 : count_chunks(run, run->mine);
    ASSERTF(run->chunk_elems * run->elem_bytes <= run->direct->chunk_bytes,
            "chunks of %lld elements in slots of %lld bytes", (long long)run->chunk_elems,
            (long long)run->direct->chunk_bytes);
}

enum status comm_direct_run(struct comm_direct *direct, const struct comm_direct_call *call,
                            struct message_wait *wait)
{
    struct comm_direct_run run = {.direct = direct,
                                  .call = call,
                                  .elem_bytes = (int64_t)dtype_bytes(call->dtype),
                                  .elem_bytes_out = (int64_t)dtype_bytes(call->dtype_out),
                                  .mine = call->parts[direct->me]};
    plan_chunks(&run);
    memset(direct->peers, 0, sizeof(*direct->peers) * (size_t)direct->n);
    bool is_done = false;
    for (;;) {
        int64_t added = run.added;
        TRY(progress_run(&run, &is_done));
        if (is_done)
            return ST_OK;
        /* no message would wake this thread to send that chunk */
        wait->is_polling = run.is_adding || run.added > added;
        TRY(messenger_progress(direct->messenger, wait));
        wait->is_polling = false;
    }
}

/* Spread-out all-to-all (post-all with scattered destinations, in the same paper): each rank
 *   1. receives from and sends to all others at the same time; in round i from the rank i before it
 *      and to the rank i after it, so that not all ranks send to the same one;
 *   2. waits for all messages. */
enum status comm_direct_all_to_all(struct comm_direct *direct, const struct comm_direct_call *call,
                                   int64_t elems, struct message_wait *wait)
{
    struct comm_direct_run run = {
        .direct = direct, .call = call, .elem_bytes = (int64_t)dtype_bytes(call->dtype)};
    int64_t bytes = elems * run.elem_bytes;
    memset(direct->peers, 0, sizeof(*direct->peers) * (size_t)direct->n);
    /* 1. */
    for (int i = 1; i < direct->n; i++) {
        int to = (direct->me + i) % direct->n, from = (direct->me - i + direct->n) % direct->n;
        TRY(recv_chunk(&run, &direct->peers[from].recv_part, call->out + from * bytes, elems, from,
                       MESSAGE_TAG_PART));
        TRY(send_chunk(&run, &direct->peers[to].send_part, call->in + to * bytes, elems, to,
                       MESSAGE_TAG_PART));
    }
    /* 2. */
    for (int r = 0; r < direct->n; r++) {
        while (!messenger_is_done(&direct->peers[r].recv_part.ops[0]) ||
               !messenger_is_done(&direct->peers[r].send_part.ops[0])) {
            TRY(call->poll(call->arg));
            TRY(messenger_progress(direct->messenger, wait));
        }
    }
    return ST_OK;
}

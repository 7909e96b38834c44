/* p2p — messages under way and the peers they wait for, over any driver.
 *
 * Each receive names its sender. The list of messages under way shows which of them fail
 * with a lost peer. Must not know collectives, nor how a driver moves bytes. */
#include "comm/message/message.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/assert.h"
#include "comm/message/choose.h"
#include "comm/message/inside.h"

/* While nothing moves, spin for this long before yielding, if a core is free for waiting. A shorter
 * spin is slower on busy cores. 1 MiB between two ranks, on two cores at load 20, took 5.7 and
 * 8.4 ms with 4 µs, 1.1 and 0.8 ms with 50 µs. */
#define SPIN_NS ((int64_t)50000)
/* …yield for this long before sleeping: waking up costs 50 µs in a virtual machine */
#define YIELD_NS ((int64_t)150000)
#define ASK_NS ((int64_t)4000000) /* between two calls of the watch */
#define SLEEP_MS 5                /* at a time */
#define COALESCE_MAX_NS ((int64_t)2000000)
#define COALESCE_MIN_NS ((int64_t)125000)
/* Messages that end during a coalescing sleep: with few, a longer sleep costs nothing; with many,
 * the wire may be idle: half of what p2p_pipeline.h keeps in flight each way. */
#define COALESCE_FEW 1
#define COALESCE_MANY 4
#define FLUSH_NS ((int64_t)100000000)
/* to send GOAWAY messages over the connections of a failed rank */
#define GOAWAY_SEND_NS ((int64_t)2000000)
/* after a GOAWAY message: for messages sent before it by another path */
#define GOAWAY_NS ((int64_t)200000000)

const char p2p_truncated[] = "a message is longer than expected";
const char p2p_damaged[] = "a message is forged, damaged or out of order";

enum status p2p_open(const struct p2p_config *config, struct p2p **out)
{
    struct p2p *p2p = memory_new(1, sizeof(*p2p));
    p2p->config = *config;
    p2p->lost = -1;
    p2p->coalesce_ns = COALESCE_MIN_NS;
    enum status st = p2p_choose_open(p2p);
    if (st != ST_OK) {
        p2p_close(p2p);
        return st;
    }
    *out = p2p;
    return ST_OK;
}

enum status p2p_address(struct p2p *p2p, bool is_intra_node, void *out, int64_t cap,
                        int64_t *bytes_out)
{
    return p2p_choose_pack(p2p, is_intra_node, out, cap, bytes_out);
}

/* ---- messages ---- */

static void list_remove(struct p2p_op *op)
{
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        op->p2p->busy = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    op->is_busy = false;
}

void p2p_queue_add(struct p2p_queue *queue, struct p2p_op *op)
{
    if (queue->last != NULL)
        queue->last->after = op;
    else
        queue->first = op;
    queue->last = op;
}

struct p2p_op *p2p_queue_take(struct p2p_queue *queue, uint64_t tag)
{
    struct p2p_op *before = NULL;
    for (struct p2p_op *op = queue->first; op != NULL; before = op, op = op->after) {
        if (op->bits != tag)
            continue;
        if (before != NULL)
            before->after = op->after;
        else
            queue->first = op->after;
        if (queue->last == op)
            queue->last = before;
        op->after = NULL;
        return op;
    }
    return NULL;
}

void p2p_op_end(struct p2p_op *op, const char *why)
{
    struct p2p *p2p = op->p2p;
    list_remove(op);
    p2p->ended++;
    op->request = NULL;
    if (op->is_goaway && why != NULL)
        op->bytes = -1;
    if (why != NULL && p2p->failed == NULL && !p2p->is_broken && !op->is_goaway) {
        p2p->failed = op;
        p2p->failed_why = why;
    }
}

static uint64_t tag_bits(const struct p2p *p2p, struct p2p_tag tag)
{
    return (uint64_t)(p2p->mine.generation & 0xff) << 56 | (uint64_t)(tag.group & 0xfff) << 44 |
           (uint64_t)(tag.from & 0xfff) << 32 | (uint64_t)tag.tag_class << 30 |
           (uint64_t)(tag.sequence & 0x3fffffff);
}

enum status p2p_fail_unreachable(const struct p2p *p2p, int rank, const char *why)
{
    char at[80] = "";
    if (p2p->driver->address_text != NULL)
        p2p->driver->address_text(&p2p->peers[rank], at, sizeof(at));
    return FAIL(
        ST_PEER,
        "rank %d%s%s cannot be reached from here (%s: %s); see that both nodes are on one network, "
        "that no firewall is between them (workers use other ports than MASTER_PORT), and that %s",
        rank, at[0] != 0 ? " at " : "", at, p2p->driver->label, why,
        p2p->driver == &tcp_driver ? "DATA_ADDR, if it is set, names a device of that network"
                                   : "UCX_NET_DEVICES and UCX_TLS name devices of that network");
}

/* The error of a peer that this rank needs and that is lost. It names the peer lost first: the
 * others may have ended because of it. */
static enum status fail_lost(const struct p2p *p2p, int rank)
{
    int first = p2p->lost >= 0 ? p2p->lost : rank;
    const struct p2p_peer *peer = &p2p->peers[first];
    const char *why = peer->why != NULL ? peer->why : "it was closed here";
    if (peer->theirs.magic != P2P_HELLO_MAGIC) /* no HELLO message came */
        return p2p_fail_unreachable(p2p, first, why);
    return FAIL(ST_PEER, "rank %d was lost: its connection ended (%s: %s)", first,
                p2p->driver->label, why);
}

/* The driver has begun, finished or refused a message. */
static enum status op_begun(struct p2p_op *op, const char *why)
{
    if (why == NULL)
        return ST_OK;
    list_remove(op);
    struct p2p_peer *peer = &op->p2p->peers[op->peer];
    if (peer->why == NULL)
        peer->why = why;
    return fail_lost(op->p2p, op->peer);
}

static void op_start(struct p2p *p2p, struct p2p_op *op, int peer, bool is_send, int64_t bytes)
{
    const bool is_goaway = op->is_goaway, is_gpu = op->is_gpu;
    op->request = op->after = NULL;
    op->p2p = p2p;
    op->data = NULL;
    op->moved = 0;
    op->frame_bytes = op->frame_moved = 0;
    op->peer = peer;
    op->is_send = is_send;
    op->is_goaway = is_goaway;
    op->is_gpu = is_gpu;
    op->bytes = bytes;
    op->prev = NULL;
    op->next = op->p2p->busy;
    if (op->next != NULL)
        op->next->prev = op;
    op->p2p->busy = op;
    op->is_busy = true;
}

enum status p2p_send(struct p2p *p2p, struct p2p_op *op, const void *data, int64_t bytes, int to,
                     struct p2p_tag tag)
{
    ASSERTF(to >= 0 && to < p2p->ranks && p2p->peers[to].is_connected, "to %d of %d", to,
            p2p->ranks);
    tag.from = p2p->rank;
    if (p2p->is_broken || p2p->peers[to].why != NULL)
        return fail_lost(p2p, to);
    op_start(p2p, op, to, true, bytes);
    return op_begun(op, p2p->driver->send(p2p, op, data, tag_bits(p2p, tag)));
}

enum status p2p_recv(struct p2p *p2p, struct p2p_op *op, void *data, int64_t bytes,
                     struct p2p_tag tag)
{
    ASSERTF(tag.from >= 0 && tag.from < p2p->ranks && p2p->peers[tag.from].is_connected,
            "from %d of %d", tag.from, p2p->ranks);
    if (p2p->is_broken)
        return fail_lost(p2p, tag.from);
    /* A message of a lost peer may have arrived already: p2p_progress finds out. */
    op_start(p2p, op, tag.from, false, bytes);
    return op_begun(op, p2p->driver->recv(p2p, op, data, tag_bits(p2p, tag)));
}

/* ---- waiting ---- */

static enum status check_failures(struct p2p *p2p)
{
    if (p2p->failed != NULL) {
        if (p2p->failed_why == p2p_truncated)
            return FAIL(ST_BUG,
                        "a message of rank %d is longer than the %lld bytes expected; a bug: the "
                        "ranks are in different calls",
                        p2p->failed->peer, (long long)p2p->failed->bytes);
        struct p2p_peer *peer = &p2p->peers[p2p->failed->peer];
        p2p_on_lost(peer, p2p->failed_why);
        return fail_lost(p2p, peer->rank);
    }
    if (p2p->lost >= 0) {
        for (const struct p2p_op *op = p2p->busy; op != NULL; op = op->next) {
            if (!op->is_goaway && p2p->peers[op->peer].why != NULL)
                return fail_lost(p2p, op->peer);
        }
    }
    return ST_OK;
}

void p2p_on_lost(struct p2p_peer *peer, const char *why)
{
    if (peer->why == NULL)
        peer->why = why;
    if (peer->p2p->lost < 0 && !peer->p2p->is_broken)
        peer->p2p->lost = peer->rank;
}

/* Sleeps as long as it can without an idle wire: the messages in flight must last for it. false:
 * the sleep would have the least length, and the driver's sleep, which ends with news, is as
 * good. */
static bool coalesce(struct p2p *p2p, const struct p2p_watch *watch)
{
    if (watch->coalesce == NULL)
        return false;
    int64_t ended = p2p->ended - p2p->coalesce_ended;
    p2p->coalesce_ended = p2p->ended;
    if (ended <= COALESCE_FEW)
        p2p->coalesce_ns =
            p2p->coalesce_ns * 2 > COALESCE_MAX_NS ? COALESCE_MAX_NS : p2p->coalesce_ns * 2;
    else if (ended >= COALESCE_MANY)
        p2p->coalesce_ns =
            p2p->coalesce_ns / 2 < COALESCE_MIN_NS ? COALESCE_MIN_NS : p2p->coalesce_ns / 2;
    return p2p->coalesce_ns > COALESCE_MIN_NS && watch->coalesce(watch->arg, p2p->coalesce_ns);
}

/* Nothing moved: spin, yield, or sleep until there is news. */
static void wait_idle(struct p2p *p2p, struct p2p_wait *wait, int64_t now_ns)
{
    if (wait->is_polling) {
        /* on a busy machine a yield costs milliseconds, and this thread has work to do */
        if (wait->watch.wait_policy != WAIT_POLICY_SPIN)
            sched_yield();
        return;
    }
    if (wait->idle_ns == 0)
        wait->idle_ns = now_ns;
    int64_t idle_ns = now_ns - wait->idle_ns;
    if (wait->watch.wait_policy == WAIT_POLICY_SPIN && idle_ns < SPIN_NS)
        return;
    if (wait->watch.wait_policy != WAIT_POLICY_SLEEP && idle_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    if (!coalesce(p2p, &wait->watch))
        p2p->driver->sleep(p2p, SLEEP_MS);
}

enum status p2p_progress(struct p2p *p2p, struct p2p_wait *wait)
{
    unsigned moved = p2p->driver->progress(p2p);
    if (moved > 0)
        wait->idle_ns = 0;
    if (p2p->failed != NULL || p2p->lost >= 0)
        TRY(check_failures(p2p));
    if (moved > 0 && wait->asked_ns != 0 && (++wait->progressed_n & 15) != 0)
        return ST_OK;
    int64_t now_ns = clock_ns();
    if (wait->asked_ns == 0)
        wait->asked_ns = now_ns;
    if (now_ns - wait->asked_ns >= ASK_NS) {
        wait->asked_ns = now_ns;
        /* A peer that sent GOAWAY counts as lost, even if the network does not report it. */
        for (int i = 0; i < p2p->ranks; i++) {
            struct p2p_peer *peer = &p2p->peers[i];
            if (!peer->is_connected || peer->why != NULL || peer->goaway_recv.p2p == NULL ||
                !p2p_is_done(&peer->goaway_recv))
                continue;
            if (peer->goaway_ns == 0)
                peer->goaway_ns = now_ns;
            else if (now_ns - peer->goaway_ns > GOAWAY_NS)
                p2p_on_lost(peer, "it has ended");
        }
        TRY(wait->watch.check(wait->watch.arg));
    }
    if (moved == 0)
        wait_idle(p2p, wait, now_ns);
    return ST_OK;
}

/* ---- the end ---- */

static bool has_sent_goaway(const struct p2p_peer *peer)
{
    return peer->goaway_ns != 0 || (p2p_is_done(&peer->goaway_recv) &&
                                    peer->goaway_recv.bytes == (int64_t)sizeof(peer->goaway_cause));
}

static int find_closed(const struct p2p *p2p)
{
    for (int i = p2p->lost >= 0 ? -1 : 0; i < p2p->ranks; i++) {
        const struct p2p_peer *peer = &p2p->peers[i < 0 ? p2p->lost : i];
        if (peer->was_closed && !has_sent_goaway(peer))
            return peer->rank;
    }
    return -1;
}

int p2p_closed(const struct p2p *p2p) { return p2p->is_broken ? p2p->closed : find_closed(p2p); }

bool p2p_lost(const struct p2p *p2p, struct p2p_loss *out)
{
    if (p2p->lost < 0)
        return false;
    const struct p2p_peer *peer = &p2p->peers[p2p->lost];
    const bool sent_goaway = has_sent_goaway(peer);
    *out = (struct p2p_loss){.rank = peer->rank,
                             .sent_goaway = sent_goaway,
                             .cause = sent_goaway ? peer->goaway_cause : -1,
                             .is_damaged = peer->why == p2p_damaged,
                             .text = peer->why,
                             .label = p2p->driver->label};
    return true;
}

/* So that peers can distinguish an orderly end from a death, and know which rank was lost first. */
static void send_goaways(struct p2p *p2p)
{
    struct p2p_loss loss;
    p2p->goaway_cause = !p2p_lost(p2p, &loss) ? -1 : loss.sent_goaway ? loss.cause : loss.rank;
    for (int i = 0; i < p2p->ranks; i++) {
        struct p2p_peer *peer = &p2p->peers[i];
        if (!peer->is_connected || peer->why != NULL)
            continue;
        struct p2p_tag goaway = {.group = P2P_HELLO_GROUP, .sequence = 1};
        if (p2p_send(p2p, &peer->goaway_send, &p2p->goaway_cause, sizeof(p2p->goaway_cause), i,
                     goaway) != ST_OK)
            status_clear();
    }
}

/* Ends every message under way. */
static void drop_all(struct p2p *p2p)
{
    p2p->closed = find_closed(p2p); /* then GOAWAY messages end unread */
    p2p->is_broken = true;
    p2p->driver->drop(p2p);
    while (p2p->busy != NULL)
        list_remove(p2p->busy);
}

void p2p_abort(struct p2p *p2p)
{
    if (p2p->is_broken || p2p->driver == NULL)
        return;
    struct status_saved saved;
    status_save(&saved);
    send_goaways(p2p);
    int64_t end_ns = clock_ns() + GOAWAY_SEND_NS;
    while (clock_ns() < end_ns)
        p2p->driver->progress(p2p);
    drop_all(p2p);
    status_restore(&saved);
}

void p2p_close(struct p2p *p2p)
{
    if (p2p == NULL)
        return;
    if (!p2p->is_broken && p2p->driver != NULL) {
        send_goaways(p2p);
        p2p->driver->flush(p2p, FLUSH_NS); /* a peer may still wait for what the last calls sent */
        drop_all(p2p);
    }
    p2p_choose_close(p2p);
    free(p2p->peers);
    free(p2p);
}

const char *p2p_name(const struct p2p *p2p) { return p2p->name; }
const char *p2p_driver_name(const struct p2p *p2p) { return p2p->driver->name; }

bool p2p_link(const struct p2p *p2p, int rank, struct comm_link *out)
{
    const struct p2p_peer *peer = &p2p->peers[rank];
    return p2p->driver->link != NULL && peer->is_connected && peer->why == NULL &&
           p2p->driver->link(peer, out);
}

int64_t p2p_refused(void) { return tcp_accept_refused() + ucx_message_refused(); }

const char *p2p_choice_reason(const struct p2p *p2p) { return p2p->choice_reason; }

bool p2p_supports_gpu(const struct p2p *p2p) { return p2p_choose_supports_gpu(p2p); }

int p2p_rank_without_gpu(const struct p2p *p2p)
{
    for (int i = 0; i < p2p->ranks; i++) {
        bool offers = (i == p2p->rank ? &p2p->mine : &p2p->peers[i].theirs)->offers_gpu != 0;
        if (!offers && (i == p2p->rank || p2p->peers[i].is_connected))
            return i;
    }
    return -1;
}

bool p2p_shares_cores(const struct p2p *p2p)
{
    bool shares = p2p->mine.shares_cores != 0;
    for (int i = 0; i < p2p->ranks; i++)
        shares = shares || (p2p->peers[i].is_connected && p2p->peers[i].theirs.shares_cores != 0);
    return shares;
}

void p2p_log_gpu(const struct p2p *p2p)
{
    int without = p2p_rank_without_gpu(p2p);
    if (without < 0)
        LOG_INFO("GPU data goes to other nodes straight from its memory: the UCX of all %d ranks "
                 "supports CUDA",
                 p2p->ranks);
    else if (p2p->driver == &tcp_driver)
        LOG_INFO("GPU data goes to other nodes through pinned host memory, in overlapping chunks, "
                 "and TCP");
    else
        LOG_INFO("GPU data goes to other nodes through pinned host memory, in overlapping chunks: "
                 "rank %d's UCX does not move GPU memory; if it should, install UCX with CUDA "
                 "there, and leave cuda in UCX_TLS",
                 without);
}

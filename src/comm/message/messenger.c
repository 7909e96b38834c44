/* messenger — messages in progress and the peers they wait for, over any driver.
 *
 * Each receive has a definite sender. So the list of messages in progress shows which of them fail
 * with a lost peer. Must not know collectives, nor how a driver moves bytes. */
#include "comm/message/messenger.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/assert.h"
#include "comm/message/inside.h"
#include "comm/nccl/lib.h"

/* While nothing moves, spin for this long before yielding, if a core is free for waiting. A shorter
 * spin is slower on busy cores: 1 MiB between two ranks, on two cores at load 20, needed 5.7 and
 * 8.4 ms with 4 µs, 1.1 and 0.8 ms with 50 µs. */
#define SPIN_NS ((int64_t)50000)
/* then yield for this long before sleeping: waking up costs 50 µs in a virtual machine */
#define YIELD_NS ((int64_t)150000)
#define ASK_NS ((int64_t)4000000) /* ns between two calls of the watch */
#define SLEEP_MS 5                /* most ms of one sleep */
#define COALESCE_MAX_NS ((int64_t)2000000)
#define COALESCE_MIN_NS ((int64_t)125000)
/* Messages that end during a coalescing sleep: with few, a longer sleep costs nothing; with many,
 * the wire may be idle: half of the messages that algorithm/direct.h keeps in flight each way. */
#define COALESCE_FEW 1
#define COALESCE_MANY 4
#define FLUSH_NS ((int64_t)100000000)
/* time for sending GOAWAY messages over the connections of a failed rank */
#define GOAWAY_SEND_NS ((int64_t)2000000)
/* time after a GOAWAY message, for messages sent before it by another path */
#define GOAWAY_NS ((int64_t)200000000)

const char messenger_truncated[] = "a message is longer than expected";
const char messenger_damaged[] = "a message is forged, damaged or out of order";

enum status messenger_open(const struct message_config *config, struct messenger **out)
{
    struct messenger *messenger = memory_new(1, sizeof(*messenger));
    messenger->config = *config;
    messenger->lost = -1;
    messenger->coalesce_ns = COALESCE_MIN_NS;
    enum status st = message_choose_open(messenger);
    if (st != ST_OK) {
        messenger_close(messenger);
        return st;
    }
    *out = messenger;
    return ST_OK;
}

/* ---- messages ---- */

static void list_remove(struct message_op *op)
{
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        op->messenger->busy = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    op->is_busy = false;
}

void messenger_op_end(struct message_op *op, const char *why)
{
    struct messenger *messenger = op->messenger;
    ASSERT(op->is_busy);
    list_remove(op);
    messenger->ended++;
    op->request = NULL;
    if (op->is_goaway && why != NULL)
        op->bytes = -1;
    if (why != NULL && messenger->failed == NULL && !messenger->is_broken && !op->is_goaway) {
        messenger->failed = op;
        messenger->failed_why = why;
    }
}

static uint64_t tag_bits(const struct messenger *messenger, struct message_tag tag)
{
    return (uint64_t)(messenger->mine.generation & 0xff) << 56 |
           (uint64_t)(tag.group & 0xfff) << 44 | (uint64_t)(tag.from & 0xfff) << 32 |
           (uint64_t)tag.tag_class << 30 | (uint64_t)(tag.sequence & 0x3fffffff);
}

enum status messenger_fail_unreachable(const struct messenger *messenger, int rank, const char *why)
{
    char at[80] = "";
    if (messenger->driver->address_text != NULL)
        messenger->driver->address_text(&messenger->peers[rank], at, sizeof(at));
    return FAIL(ST_PEER,
                "rank %d%s%s cannot be reached from here (%s: %s); check that both nodes are on "
                "one network, that no firewall is between them (workers use other ports than "
                "MASTER_PORT), and that %s",
                rank, at[0] != 0 ? " at " : "", at, messenger->driver->label, why,
                messenger->driver == &tcp_driver
                    ? "DATA_ADDR, if it is set, names a device of that network"
                    : "UCX_NET_DEVICES and UCX_TLS name devices of that network");
}

/* Fails with the loss of a peer that this rank needs. The message names the peer lost first: the
 * others may have ended because of it. */
static enum status fail_lost(const struct messenger *messenger, int rank)
{
    int first = messenger->lost >= 0 ? messenger->lost : rank;
    const struct message_peer *peer = &messenger->peers[first];
    const char *why = peer->why != NULL ? peer->why : "it was closed here";
    if (peer->theirs.magic != MESSAGE_HELLO_MAGIC) /* no HELLO message came */
        return messenger_fail_unreachable(messenger, first, why);
    return FAIL(ST_PEER, "rank %d was lost: its connection ended (%s: %s)", first,
                messenger->driver->label, why);
}

/* Handles the driver's answer to a message that it has begun, finished or refused. */
static enum status op_begun(struct message_op *op, const char *why)
{
    if (why == NULL)
        return ST_OK;
    list_remove(op);
    struct message_peer *peer = &op->messenger->peers[op->peer];
    if (peer->why == NULL)
        peer->why = why;
    return fail_lost(op->messenger, op->peer);
}

static void op_start(struct messenger *messenger, struct message_op *op, int peer, bool is_send,
                     int64_t bytes)
{
    ASSERTF(!op->is_busy && bytes >= 0, "%lld bytes with rank %d", (long long)bytes, peer);
    const bool is_goaway = op->is_goaway, is_gpu = op->is_gpu;
    op->request = op->after = NULL;
    op->messenger = messenger;
    op->data = NULL;
    op->moved = 0;
    op->frame_bytes = op->frame_moved = 0;
    op->peer = peer;
    op->is_send = is_send;
    op->is_goaway = is_goaway;
    op->is_gpu = is_gpu;
    op->bytes = bytes;
    op->prev = NULL;
    op->next = op->messenger->busy;
    if (op->next != NULL)
        op->next->prev = op;
    op->messenger->busy = op;
    op->is_busy = true;
}

enum status messenger_send(struct messenger *messenger, struct message_op *op, const void *data,
                           int64_t bytes, int to, struct message_tag tag)
{
    ASSERTF(to >= 0 && to < messenger->ranks && messenger->peers[to].is_connected, "to %d of %d",
            to, messenger->ranks);
    tag.from = messenger->rank;
    if (messenger->is_broken || messenger->peers[to].why != NULL)
        return fail_lost(messenger, to);
    op_start(messenger, op, to, true, bytes);
    return op_begun(op, messenger->driver->send(messenger, op, data, tag_bits(messenger, tag)));
}

enum status messenger_recv(struct messenger *messenger, struct message_op *op, void *data,
                           int64_t bytes, struct message_tag tag)
{
    ASSERTF(tag.from >= 0 && tag.from < messenger->ranks && messenger->peers[tag.from].is_connected,
            "from %d of %d", tag.from, messenger->ranks);
    if (messenger->is_broken)
        return fail_lost(messenger, tag.from);
    /* A message of a lost peer may have arrived already: messenger_progress finds out. */
    op_start(messenger, op, tag.from, false, bytes);
    return op_begun(op, messenger->driver->recv(messenger, op, data, tag_bits(messenger, tag)));
}

/* ---- waiting ---- */

static enum status check_failures(struct messenger *messenger)
{
    if (messenger->failed != NULL) {
        if (messenger->failed_why == messenger_truncated)
            return FAIL(ST_BUG,
                        "a message of rank %d is longer than the %lld bytes expected; a bug: the "
                        "ranks are in different calls",
                        messenger->failed->peer, (long long)messenger->failed->bytes);
        struct message_peer *peer = &messenger->peers[messenger->failed->peer];
        messenger_on_lost(peer, messenger->failed_why);
        return fail_lost(messenger, peer->rank);
    }
    if (messenger->lost >= 0) {
        for (const struct message_op *op = messenger->busy; op != NULL; op = op->next) {
            if (!op->is_goaway && messenger->peers[op->peer].why != NULL)
                return fail_lost(messenger, op->peer);
        }
    }
    return ST_OK;
}

void messenger_on_lost(struct message_peer *peer, const char *why)
{
    if (peer->why == NULL)
        peer->why = why;
    if (peer->messenger->lost < 0 && !peer->messenger->is_broken)
        peer->messenger->lost = peer->rank;
}

/* Sleeps as long as possible without an idle wire: the messages in flight must last for it. Returns
 * false if the sleep would have the least length: the driver's sleep, which ends when something
 * arrives, is equally good. */
static bool coalesce_wakeups(struct messenger *messenger, const struct message_watch *watch)
{
    if (watch->coalesce == NULL)
        return false;
    int64_t ended = messenger->ended - messenger->coalesce_ended;
    messenger->coalesce_ended = messenger->ended;
    if (ended <= COALESCE_FEW)
        messenger->coalesce_ns = messenger->coalesce_ns * 2 > COALESCE_MAX_NS
                                     ? COALESCE_MAX_NS
                                     : messenger->coalesce_ns * 2;
    else if (ended >= COALESCE_MANY)
        messenger->coalesce_ns = messenger->coalesce_ns / 2 < COALESCE_MIN_NS
                                     ? COALESCE_MIN_NS
                                     : messenger->coalesce_ns / 2;
    return messenger->coalesce_ns > COALESCE_MIN_NS &&
           watch->coalesce(watch->arg, messenger->coalesce_ns);
}

/* Called when nothing moved: spins, yields, or sleeps until something arrives. */
static void wait_idle(struct messenger *messenger, struct message_wait *wait, int64_t now_ns)
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
    if (!coalesce_wakeups(messenger, &wait->watch))
        messenger->driver->sleep(messenger, SLEEP_MS);
}

enum status messenger_progress(struct messenger *messenger, struct message_wait *wait)
{
    unsigned moved = messenger->driver->progress(messenger);
    if (moved > 0)
        wait->idle_ns = 0;
    if (messenger->failed != NULL || messenger->lost >= 0)
        TRY(check_failures(messenger));
    if (moved > 0 && wait->asked_ns != 0 && (++wait->progressed_n & 15) != 0)
        return ST_OK;
    int64_t now_ns = clock_ns();
    if (wait->asked_ns == 0)
        wait->asked_ns = now_ns;
    if (now_ns - wait->asked_ns >= ASK_NS) {
        wait->asked_ns = now_ns;
        /* A peer that sent GOAWAY counts as lost, even if the network does not report it. */
        for (int i = 0; i < messenger->ranks; i++) {
            struct message_peer *peer = &messenger->peers[i];
            if (!peer->is_connected || peer->why != NULL || peer->goaway_recv.messenger == NULL ||
                !messenger_is_done(&peer->goaway_recv))
                continue;
            if (peer->goaway_ns == 0)
                peer->goaway_ns = now_ns;
            else if (now_ns - peer->goaway_ns > GOAWAY_NS)
                messenger_on_lost(peer, "it has ended");
        }
        TRY(wait->watch.check(wait->watch.arg));
    }
    if (moved == 0)
        wait_idle(messenger, wait, now_ns);
    return ST_OK;
}

/* ---- the end ---- */

static bool has_sent_goaway(const struct message_peer *peer)
{
    return peer->goaway_ns != 0 || (messenger_is_done(&peer->goaway_recv) &&
                                    peer->goaway_recv.bytes == (int64_t)sizeof(peer->goaway_cause));
}

static int find_closed(const struct messenger *messenger)
{
    for (int i = messenger->lost >= 0 ? -1 : 0; i < messenger->ranks; i++) {
        const struct message_peer *peer = &messenger->peers[i < 0 ? messenger->lost : i];
        if (peer->was_closed && !has_sent_goaway(peer))
            return peer->rank;
    }
    return -1;
}

int messenger_closed(const struct messenger *messenger)
{
    return messenger->is_broken ? messenger->closed : find_closed(messenger);
}

bool messenger_lost(const struct messenger *messenger, struct message_loss *out)
{
    if (messenger->lost < 0)
        return false;
    const struct message_peer *peer = &messenger->peers[messenger->lost];
    const bool sent_goaway = has_sent_goaway(peer);
    *out = (struct message_loss){.rank = peer->rank,
                                 .sent_goaway = sent_goaway,
                                 .cause = sent_goaway ? peer->goaway_cause : -1,
                                 .is_damaged = peer->why == messenger_damaged,
                                 .text = peer->why,
                                 .label = messenger->driver->label};
    return true;
}

/* Sends GOAWAY with the rank that was lost first, so that peers distinguish an orderly end from a
 * death. */
static void send_goaways(struct messenger *messenger)
{
    struct message_loss loss;
    messenger->goaway_cause = !messenger_lost(messenger, &loss) ? -1
                              : loss.sent_goaway                ? loss.cause
                                                                : loss.rank;
    for (int i = 0; i < messenger->ranks; i++) {
        struct message_peer *peer = &messenger->peers[i];
        if (!peer->is_connected || peer->why != NULL)
            continue;
        struct message_tag goaway = {.group = MESSAGE_HELLO_GROUP, .sequence = 1};
        if (messenger_send(messenger, &peer->goaway_send, &messenger->goaway_cause,
                           sizeof(messenger->goaway_cause), i, goaway) != ST_OK)
            status_clear();
    }
}

/* Ends every message in progress. */
static void drop_all(struct messenger *messenger)
{
    messenger->closed = find_closed(messenger); /* then GOAWAY messages end unread */
    messenger->is_broken = true;
    messenger->driver->drop(messenger);
    while (messenger->busy != NULL)
        list_remove(messenger->busy);
}

void messenger_abort(struct messenger *messenger)
{
    if (messenger->is_broken || messenger->driver == NULL)
        return;
    struct status_saved saved;
    status_save(&saved);
    send_goaways(messenger);
    int64_t end_ns = clock_ns() + GOAWAY_SEND_NS;
    while (clock_ns() < end_ns)
        messenger->driver->progress(messenger);
    drop_all(messenger);
    status_restore(&saved);
}

void messenger_close(struct messenger *messenger)
{
    if (messenger == NULL)
        return;
    if (!messenger->is_broken && messenger->driver != NULL) {
        send_goaways(messenger);
        /* A peer may still wait for bytes of the last calls. */
        messenger->driver->flush(messenger, FLUSH_NS);
        drop_all(messenger);
    }
    message_choose_close(messenger);
    free(messenger->peers);
    free(messenger);
}

const char *messenger_name(const struct messenger *messenger) { return messenger->name; }
const char *messenger_driver_name(const struct messenger *messenger)
{
    return messenger->driver->name;
}

bool messenger_link(const struct messenger *messenger, int rank, struct comm_link *out)
{
    const struct message_peer *peer = &messenger->peers[rank];
    return messenger->driver->link != NULL && peer->is_connected && peer->why == NULL &&
           messenger->driver->link(peer, out);
}

int64_t messenger_refused(void) { return tcp_accept_refused() + ucx_message_refused(); }

const char *messenger_choice_reason(const struct messenger *messenger)
{
    return messenger->choice_reason;
}

bool messenger_supports_gpu(const struct messenger *messenger)
{
    const void *state = messenger->states[MESSAGE_DRIVER_UCX];
    return state != NULL && ucx_supports_gpu(state);
}

int messenger_rank_without_gpu(const struct messenger *messenger)
{
    for (int i = 0; i < messenger->ranks; i++) {
        bool offers =
            (i == messenger->rank ? &messenger->mine : &messenger->peers[i].theirs)->offers_gpu !=
            0;
        if (!offers && (i == messenger->rank || messenger->peers[i].is_connected))
            return i;
    }
    return -1;
}

bool messenger_shares_cores(const struct messenger *messenger)
{
    bool shares = messenger->mine.shares_cores != 0;
    for (int i = 0; i < messenger->ranks; i++)
        shares = shares ||
                 (messenger->peers[i].is_connected && messenger->peers[i].theirs.shares_cores != 0);
    return shares;
}

void messenger_log_gpu(const struct messenger *messenger)
{
    int without = messenger_rank_without_gpu(messenger);
    if (without < 0)
        LOG_INFO("GPU data goes to other nodes straight from its memory: the UCX of all %d ranks "
                 "supports CUDA",
                 messenger->ranks);
    else if (messenger->driver == &tcp_driver)
        LOG_INFO("GPU data goes to other nodes through pinned host memory, in overlapping chunks, "
                 "and TCP");
    else
        LOG_INFO("GPU data goes to other nodes through pinned host memory, in overlapping chunks: "
                 "rank %d's UCX does not move GPU memory%s",
                 without,
                 nccl_lib_is_rccl() ? ""
                                    : "; if it should, install UCX with CUDA there, and leave cuda "
                                      "in UCX_TLS");
}

/* ucx — messages under way, and the peers they come from, over any driver.
 *
 * A receive waits for a certain peer: the list of messages under way knows which, and a lost peer
 * fails those that need it.
 *
 * Must not know collectives, nor how a driver moves anything. */
#include "comm/ucx.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "comm/ucx_choose.h"
#include "comm/ucx_inside.h"

/* Of nothing moving, before others are given way, where a core is free for waiting. Less loses more
 * where others take it: on two busy cores (load 20) 1 MiB between two ranks took 5.7 and 8.4 ms
 * with 4 µs, 1.1 and 0.8 with 50. */
#define SPIN_NS ((int64_t)50000)
/* …before going to sleep, which costs 50 µs of waking up in a virtual machine */
#define YIELD_NS ((int64_t)150000)
#define ASK_NS ((int64_t)4000000) /* between two questions to the watch */
#define SLEEP_MS 5                /* at a time */
#define NAP_MOST_NS ((int64_t)2000000)
#define NAP_LEAST_NS ((int64_t)125000)
#define NAP_ENDED_FEW 1 /* messages that end in a nap: a longer one loses nothing */
#define NAP_ENDED_MANY 4 /* …the wire may stand still: half of what flow.h has under way each way */
#define FLUSH_NS ((int64_t)100000000)
#define LEAVE_NS ((int64_t)2000000) /* for a farewell to leave a broken connection */
/* after a farewell, for what was sent before it by another way */
#define BYE_NS ((int64_t)200000000)

const char ucx_too_long[] = "a message is longer than expected";

enum status ucx_open(const struct ucx_config *config, struct ucx **out)
{
    struct ucx *ucx = calloc(1, sizeof(*ucx));
    if (ucx == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for messages", sizeof(*ucx));
    ucx->config = *config;
    ucx->lost = -1;
    ucx->nap_ns = NAP_LEAST_NS;
    enum status st = ucx_choose_open(ucx);
    if (st != ST_OK) {
        ucx_close(ucx);
        return st;
    }
    *out = ucx;
    return ST_OK;
}

enum status ucx_address(struct ucx *ucx, bool is_near, void *out, int64_t cap, int64_t *bytes_out)
{
    return ucx_choose_pack(ucx, is_near, out, cap, bytes_out);
}

/* ---- messages ---- */

static void list_add(struct ucx_op *op)
{
    op->prev = NULL;
    op->next = op->ucx->busy;
    if (op->next != NULL)
        op->next->prev = op;
    op->ucx->busy = op;
    op->is_busy = true;
}

static void list_remove(struct ucx_op *op)
{
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        op->ucx->busy = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    op->is_busy = false;
}

void ucx_op_end(struct ucx_op *op, const char *why)
{
    struct ucx *ucx = op->ucx;
    list_remove(op);
    ucx->ended++;
    op->request = NULL;
    if (op->is_bye && why != NULL)
        op->bytes = -1;
    if (why != NULL && ucx->failed == NULL && !ucx->is_broken && !op->is_bye) {
        ucx->failed = op;
        ucx->failed_why = why;
    }
}

static uint64_t tag_bits(const struct ucx *ucx, struct ucx_tag tag)
{
    return (uint64_t)(ucx->mine.generation & 0xff) << 56 | (uint64_t)(tag.group & 0xfff) << 44 |
           (uint64_t)(tag.from & 0xfff) << 32 | (uint64_t)tag.lane << 30 |
           (uint64_t)(tag.sequence & 0x3fffffff);
}

enum status ucx_fail_unreached(const struct ucx *ucx, int rank, const char *why)
{
    return FAIL(
        ST_PEER,
        "rank %d cannot be reached from here (%s: %s); see that both nodes are on one network, "
        "that no firewall is between them (workers use other ports than MASTER_PORT), and that "
        "DATA_ADDR, or for UCX UCX_NET_DEVICES and UCX_TLS, name devices of it",
        rank, ucx->driver->label, why);
}

/* The sentence about a peer that this rank needs and that is gone. The one lost first is named: the
 * others may have left because of it. */
static enum status fail_lost(const struct ucx *ucx, int rank)
{
    int first = ucx->lost >= 0 ? ucx->lost : rank;
    const struct ucx_peer *peer = &ucx->peers[first];
    const char *why = peer->why != NULL ? peer->why : "it was closed here";
    if (peer->theirs.magic != UCX_HELLO_MAGIC) /* it has never greeted */
        return ucx_fail_unreached(ucx, first, why);
    return FAIL(ST_PEER, "rank %d was lost: its connection ended (%s: %s)", first,
                ucx->driver->label, why);
}

/* What became of a call to the driver: begun, done, or refused. */
static enum status op_begun(struct ucx_op *op, const char *why)
{
    if (why == NULL)
        return ST_OK;
    list_remove(op);
    struct ucx_peer *peer = &op->ucx->peers[op->peer];
    if (peer->why == NULL)
        peer->why = why;
    return fail_lost(op->ucx, op->peer);
}

static void op_start(struct ucx *ucx, struct ucx_op *op, int peer, bool is_send, int64_t bytes)
{
    const bool is_bye = op->is_bye, is_gpu = op->is_gpu;
    op->request = op->after = NULL;
    op->ucx = ucx;
    op->data = NULL;
    op->moved = 0;
    op->part = op->part_moved = 0;
    op->peer = peer;
    op->is_send = is_send;
    op->is_bye = is_bye;
    op->is_gpu = is_gpu;
    op->bytes = bytes;
    list_add(op);
}

enum status ucx_send(struct ucx *ucx, struct ucx_op *op, const void *data, int64_t bytes, int to,
                     struct ucx_tag tag)
{
    ASSERTF(to >= 0 && to < ucx->ranks && ucx->peers[to].is_linked, "to %d of %d", to, ucx->ranks);
    tag.from = ucx->rank;
    if (ucx->is_broken || ucx->peers[to].why != NULL)
        return fail_lost(ucx, to);
    op_start(ucx, op, to, true, bytes);
    return op_begun(op, ucx->driver->send(ucx, op, data, tag_bits(ucx, tag)));
}

enum status ucx_recv(struct ucx *ucx, struct ucx_op *op, void *data, int64_t bytes,
                     struct ucx_tag tag)
{
    ASSERTF(tag.from >= 0 && tag.from < ucx->ranks && ucx->peers[tag.from].is_linked,
            "from %d of %d", tag.from, ucx->ranks);
    if (ucx->is_broken)
        return fail_lost(ucx, tag.from);
    /* From a peer that is gone a message may still lie here: ucx_pump finds out whether it does. */
    op_start(ucx, op, tag.from, false, bytes);
    return op_begun(op, ucx->driver->recv(ucx, op, data, tag_bits(ucx, tag)));
}

/* ---- waiting ---- */

static enum status check_failures(struct ucx *ucx)
{
    if (ucx->failed != NULL) {
        if (ucx->failed_why == ucx_too_long)
            return FAIL(ST_BUG,
                        "a message of rank %d is longer than the %lld bytes expected; a bug: the "
                        "ranks are in different calls",
                        ucx->failed->peer, (long long)ucx->failed->bytes);
        struct ucx_peer *peer = &ucx->peers[ucx->failed->peer];
        if (peer->why == NULL)
            peer->why = ucx->failed_why;
        return fail_lost(ucx, peer->rank);
    }
    if (ucx->lost >= 0) {
        for (const struct ucx_op *op = ucx->busy; op != NULL; op = op->next) {
            if (!op->is_bye && ucx->peers[op->peer].why != NULL)
                return fail_lost(ucx, op->peer);
        }
    }
    return ST_OK;
}

void ucx_on_lost(struct ucx_peer *peer, const char *why)
{
    if (peer->why == NULL)
        peer->why = why;
    if (peer->ucx->lost < 0 && !peer->ucx->is_broken)
        peer->ucx->lost = peer->rank;
}

/* Who took its leave is gone, even where the network does not say so. */
static void look_for_leavers(struct ucx *ucx, int64_t now_ns)
{
    for (int i = 0; i < ucx->ranks; i++) {
        struct ucx_peer *peer = &ucx->peers[i];
        if (!peer->is_linked || peer->why != NULL || peer->left.ucx == NULL ||
            !ucx_is_done(&peer->left))
            continue;
        if (peer->left_ns == 0)
            peer->left_ns = now_ns;
        else if (now_ns - peer->left_ns > BYE_NS)
            ucx_on_lost(peer, "it took its leave");
    }
}

/* As long as it costs the wire nothing: as many messages as may be under way have to last. Only
 * then is it a nap, and not worth less than being woken. */
static bool nap(struct ucx *ucx, const struct ucx_watch *watch)
{
    if (watch->nap == NULL)
        return false;
    int64_t ended = ucx->ended - ucx->napped;
    ucx->napped = ucx->ended;
    if (ended <= NAP_ENDED_FEW)
        ucx->nap_ns = ucx->nap_ns * 2 > NAP_MOST_NS ? NAP_MOST_NS : ucx->nap_ns * 2;
    else if (ended >= NAP_ENDED_MANY)
        ucx->nap_ns = ucx->nap_ns / 2 < NAP_LEAST_NS ? NAP_LEAST_NS : ucx->nap_ns / 2;
    return ucx->nap_ns > NAP_LEAST_NS && watch->nap(watch->arg, ucx->nap_ns);
}

/* Nothing moved: spin, give way, or sleep until there is news. */
static void wait_idle(struct ucx *ucx, struct ucx_wait *wait, int64_t now_ns)
{
    if (wait->is_awake) {
        sched_yield();
        return;
    }
    if (wait->idle_ns == 0)
        wait->idle_ns = now_ns;
    int64_t idle_ns = now_ns - wait->idle_ns;
    if (wait->watch.spins && idle_ns < SPIN_NS)
        return;
    if (!wait->watch.rests && idle_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    if (!nap(ucx, &wait->watch))
        ucx->driver->sleep(ucx, SLEEP_MS);
}

enum status ucx_pump(struct ucx *ucx, struct ucx_wait *wait)
{
    unsigned moved = ucx->driver->progress(ucx);
    if (moved > 0)
        wait->idle_ns = 0;
    if (ucx->failed != NULL || ucx->lost >= 0)
        TRY(check_failures(ucx));
    if (moved > 0 && wait->asked_ns != 0 && (++wait->turns & 15) != 0)
        return ST_OK;
    int64_t now_ns = clock_ns();
    if (wait->asked_ns == 0)
        wait->asked_ns = now_ns;
    if (now_ns - wait->asked_ns >= ASK_NS) {
        wait->asked_ns = now_ns;
        look_for_leavers(ucx, now_ns);
        TRY(wait->watch.check(wait->watch.arg));
    }
    if (moved == 0)
        wait_idle(ucx, wait, now_ns);
    return ST_OK;
}

/* ---- the end ---- */

bool ucx_lost(const struct ucx *ucx, struct ucx_loss *out)
{
    if (ucx->lost < 0)
        return false;
    const struct ucx_peer *peer = &ucx->peers[ucx->lost];
    bool has_left = peer->left_ns != 0 ||
                    (ucx_is_done(&peer->left) && peer->left.bytes == (int64_t)sizeof(peer->bye));
    *out = (struct ucx_loss){.rank = peer->rank,
                             .has_left = has_left,
                             .blamed = has_left ? peer->bye : -1,
                             .text = peer->why,
                             .label = ucx->driver->label};
    return true;
}

/* So that peers can tell an end of one's own from a death, and who began. */
static void take_leave(struct ucx *ucx)
{
    struct ucx_loss loss;
    ucx->farewell = !ucx_lost(ucx, &loss) ? -1 : loss.has_left ? loss.blamed : loss.rank;
    for (int i = 0; i < ucx->ranks; i++) {
        struct ucx_peer *peer = &ucx->peers[i];
        if (!peer->is_linked || peer->why != NULL)
            continue;
        struct ucx_tag bye = {.group = UCX_HELLO_GROUP, .sequence = 1};
        if (ucx_send(ucx, &peer->leaving, &ucx->farewell, sizeof(ucx->farewell), i, bye) != ST_OK)
            status_clear();
    }
}

/* Ends every message under way. */
static void drop_all(struct ucx *ucx)
{
    ucx->is_broken = true;
    ucx->driver->drop(ucx);
    while (ucx->busy != NULL)
        list_remove(ucx->busy);
}

void ucx_break(struct ucx *ucx)
{
    if (ucx->is_broken || ucx->driver == NULL)
        return;
    struct status_saved saved;
    status_keep(&saved);
    take_leave(ucx);
    int64_t end_ns = clock_ns() + LEAVE_NS;
    while (clock_ns() < end_ns)
        ucx->driver->progress(ucx);
    drop_all(ucx);
    status_back(&saved);
}

void ucx_close(struct ucx *ucx)
{
    if (ucx == NULL)
        return;
    if (!ucx->is_broken && ucx->driver != NULL) {
        take_leave(ucx);
        ucx->driver->flush(ucx, FLUSH_NS); /* what the last calls sent: a peer may wait for it */
        drop_all(ucx);
    }
    ucx_choose_close(ucx);
    free(ucx->peers);
    free(ucx);
}

const char *ucx_name(const struct ucx *ucx) { return ucx->name; }

int64_t ucx_refused(void) { return tcp_accept_refused(); }

const char *ucx_why(const struct ucx *ucx) { return ucx->why; }

bool ucx_reaches_gpu(const struct ucx *ucx) { return ucx_choose_reaches_gpu(ucx); }

int ucx_without_gpu(const struct ucx *ucx)
{
    for (int i = 0; i < ucx->ranks; i++) {
        bool offers = (i == ucx->rank ? &ucx->mine : &ucx->peers[i].theirs)->offers_gpu != 0;
        if (!offers && (i == ucx->rank || ucx->peers[i].is_linked))
            return i;
    }
    return -1;
}

void ucx_tell_gpu(const struct ucx *ucx)
{
    int without = ucx_without_gpu(ucx);
    if (without < 0)
        LOG_INFO("a GPU's numbers go to other nodes straight from its memory: the UCX of all %d "
                 "ranks has CUDA",
                 ucx->ranks);
    else if (ucx->driver == &tcp_driver)
        LOG_INFO("a GPU's numbers go to other nodes through pinned host memory, in pieces that "
                 "overlap, and TCP");
    else
        LOG_INFO("a GPU's numbers go to other nodes through pinned host memory, in pieces that "
                 "overlap: rank %d's UCX moves no GPU's memory; where it should, install UCX with "
                 "CUDA there, and leave cuda in UCX_TLS",
                 without);
}

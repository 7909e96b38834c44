/* ucx — messages over UCX, and who they come from.
 *
 * Every endpoint is opened with UCP_ERR_HANDLING_MODE_PEER: without it UCX may wait for a dead peer for ever, and
 * closing with FORCE is not allowed. Receives match by tag from anybody, so UCX does not know that one waits for a
 * certain peer: the list of messages under way does, and a lost peer fails those that need it.
 *
 * Must not know collectives. */
#include "comm/ucx.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "base/text.h"
#include "comm/ucx_inside.h"

/* Of nothing moving, before others are given way, where a core is free for waiting. Less loses more where others take it:
 * on two busy cores (load 20) 1 MiB between two ranks took 5.7 and 8.4 ms with 4 µs, 1.1 and 0.8 with 50. */
#define SPIN_NS ((int64_t)50000)
#define YIELD_NS ((int64_t)150000)  /* …before going to sleep, which costs 50 µs of waking up in a virtual machine */
#define ASK_NS ((int64_t)4000000)   /* between two questions to the watch */
#define SLEEP_MS 5                  /* at a time */
#define NAP_MOST_NS ((int64_t)2000000)
#define NAP_LEAST_NS ((int64_t)125000)
#define NAP_ENDED_FEW 1  /* messages that end in a nap: a longer one loses nothing */
#define NAP_ENDED_MANY 4 /* …the wire may stand still: half of what flow.h has under way each way */
#define FLUSH_NS ((int64_t)100000000)
#define BREAK_NS ((int64_t)200000000)
#define LEAVE_NS ((int64_t)2000000)   /* for a farewell to leave a broken connection */
#define BYE_NS ((int64_t)200000000) /* after a farewell, for what was sent before it by another way */

/* ---- open ---- */

enum status ucx_open(int64_t at_once, struct ucx **out)
{
    struct ucx *ucx = calloc(1, sizeof(*ucx));
    if (ucx == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for UCX", sizeof(*ucx));
    ucx->event_fd = ucx->lost = -1;
    ucx->nap_ns = NAP_LEAST_NS;
    enum status st = ucx_setup(at_once, &ucx->context, &ucx->worker, &ucx->event_fd);
    if (st != ST_OK) {
        ucx_close(ucx);
        return st;
    }
    *out = ucx;
    return ST_OK;
}

/* Of networks only, usually: the workers of a node share the host's memory without UCX. */
enum status ucx_address(struct ucx *ucx, bool is_near, void *out, int64_t cap, int64_t *bytes_out)
{
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
                              .address_flags = is_near ? 0 : UCP_WORKER_ADDRESS_FLAG_NET_ONLY};
    ucs_status_t status = ucp_worker_query(ucx->worker, &attr);
    if (status != UCS_OK)
        return ucx_setup_fail(ST_NO_DEVICE, "tell its address", status, "check UCX_NET_DEVICES and UCX_TLS");
    enum status st = ST_OK;
    bool is_long = (int64_t)attr.address_length > (is_near ? cap / 2 : cap);
    if (is_long && !is_near)
        st = FAIL(ST_NO_DEVICE,
                  "UCX's address takes %zu bytes, %lld at most: too many network devices; name those to use in "
                  "UCX_NET_DEVICES",
                  attr.address_length, (long long)cap);
    else if (!is_long)
        memcpy(out, attr.address, attr.address_length);
    *bytes_out = (int64_t)attr.address_length;
    ucp_worker_release_address(ucx->worker, attr.address);
    return is_long && is_near ? ucx_address(ucx, false, out, cap, bytes_out) : st;
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

static void op_end(struct ucx_op *op, ucs_status_t status)
{
    struct ucx *ucx = op->ucx;
    list_remove(op);
    ucx->ended++;
    op->request = NULL;
    if (op->is_bye && status != UCS_OK)
        op->bytes = -1;
    if (status != UCS_OK && ucx->failed == NULL && !ucx->is_broken && !op->is_bye) {
        ucx->failed = op;
        ucx->failed_status = status;
    }
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    op_end(arg, status);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    struct ucx_op *op = arg;
    if (status == UCS_OK)
        op->bytes = (int64_t)info->length;
    ucp_request_free(request);
    op_end(op, status);
}

static ucp_tag_t tag_bits(const struct ucx *ucx, struct ucx_tag tag)
{
    return (uint64_t)(ucx->mine.generation & 0xff) << 56 | (uint64_t)(tag.group & 0xfff) << 44 |
           (uint64_t)(tag.from & 0xfff) << 32 | (uint64_t)tag.lane << 30 | (uint64_t)(tag.sequence & 0x3fffffff);
}

enum status ucx_fail_unreached(int rank, ucs_status_t status)
{
    return FAIL(ST_PEER,
                "rank %d cannot be reached from here (UCX: %s); see that both nodes are on one network, that no firewall "
                "is between them (workers use other ports than MASTER_PORT), and that UCX_NET_DEVICES and UCX_TLS name "
                "devices of it",
                rank, ucs_status_string(status));
}

/* The sentence about a peer that this rank needs and that is gone. The one lost first is named: the others may have
 * left because of it. */
static enum status fail_lost(const struct ucx *ucx, int rank)
{
    int first = ucx->lost >= 0 ? ucx->lost : rank;
    if (ucx->peers[first].theirs.magic != UCX_HELLO_MAGIC) /* it has never greeted */
        return ucx_fail_unreached(first, ucx->peers[first].status);
    return FAIL(ST_PEER, "rank %d was lost: its connection ended (UCX: %s)", first,
                ucs_status_string(ucx->peers[first].status));
}

/* What became of a call to UCX: done at once, begun or refused. */
static enum status op_begun(struct ucx_op *op, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        if (op->is_busy)
            op->request = request;
        return ST_OK;
    }
    list_remove(op);
    ucs_status_t status = UCS_PTR_RAW_STATUS(request);
    if (status == UCS_OK)
        return ST_OK;
    struct ucx_peer *peer = &op->ucx->peers[op->peer];
    if (peer->status == UCS_OK)
        peer->status = status;
    return fail_lost(op->ucx, op->peer);
}

static enum status op_start(struct ucx *ucx, struct ucx_op *op, int peer, bool is_send, int64_t bytes)
{
    if (ucx->is_broken || ucx->peers[peer].status != UCS_OK)
        return fail_lost(ucx, peer);
    *op = (struct ucx_op){
        .ucx = ucx, .peer = peer, .is_send = is_send, .is_bye = op->is_bye, .is_gpu = op->is_gpu, .bytes = bytes};
    list_add(op);
    return ST_OK;
}

/* Said, for otherwise UCX asks CUDA about each address. */
static ucs_memory_type_t memory_of(const struct ucx_op *op)
{
    return op->is_gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

enum status ucx_send(struct ucx *ucx, struct ucx_op *op, const void *data, int64_t bytes, int to, struct ucx_tag tag)
{
    ASSERTF(to >= 0 && to < ucx->ranks && ucx->peers[to].ep != NULL, "to %d of %d", to, ucx->ranks);
    tag.from = ucx->rank;
    TRY(op_start(ucx, op, to, true, bytes));
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = on_sent,
        .user_data = op,
        .memory_type = memory_of(op),
    };
    return op_begun(op, ucp_tag_send_nbx(ucx->peers[to].ep, data, (size_t)bytes, tag_bits(ucx, tag), &param));
}

enum status ucx_recv(struct ucx *ucx, struct ucx_op *op, void *data, int64_t bytes, struct ucx_tag tag)
{
    ASSERTF(tag.from >= 0 && tag.from < ucx->ranks && ucx->peers[tag.from].ep != NULL, "from %d of %d", tag.from,
            ucx->ranks);
    if (ucx->is_broken)
        return fail_lost(ucx, tag.from);
    /* From a peer that is gone a message may still lie here: ucx_pump finds out whether it does. */
    *op = (struct ucx_op){.ucx = ucx, .peer = tag.from, .is_bye = op->is_bye, .is_gpu = op->is_gpu, .bytes = bytes};
    list_add(op);
    ucp_tag_recv_info_t info;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FIELD_RECV_INFO,
        .cb.recv = on_received,
        .user_data = op,
        .memory_type = memory_of(op),
        .recv_info.tag_info = &info,
    };
    ucs_status_ptr_t request =
        ucp_tag_recv_nbx(ucx->worker, data, (size_t)bytes, tag_bits(ucx, tag), ~(ucp_tag_t)0, &param);
    if (request == NULL)
        op->bytes = (int64_t)info.length;
    return op_begun(op, request);
}

/* ---- waiting ---- */

static enum status check_failures(struct ucx *ucx)
{
    if (ucx->failed != NULL) {
        if (ucx->failed_status == UCS_ERR_MESSAGE_TRUNCATED)
            return FAIL(ST_BUG, "a message of rank %d is longer than the %lld bytes expected; a bug: the ranks are in "
                        "different calls", ucx->failed->peer, (long long)ucx->failed->bytes);
        struct ucx_peer *peer = &ucx->peers[ucx->failed->peer];
        if (peer->status == UCS_OK)
            peer->status = ucx->failed_status;
        return fail_lost(ucx, peer->rank);
    }
    if (ucx->lost >= 0) {
        for (const struct ucx_op *op = ucx->busy; op != NULL; op = op->next) {
            if (!op->is_bye && ucx->peers[op->peer].status != UCS_OK)
                return fail_lost(ucx, op->peer);
        }
    }
    return ST_OK;
}

void ucx_on_lost(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct ucx_peer *peer = arg;
    (void)ep;
    if (peer->status == UCS_OK)
        peer->status = status != UCS_OK ? status : UCS_ERR_CONNECTION_RESET;
    if (peer->ucx->lost < 0 && !peer->ucx->is_broken)
        peer->ucx->lost = peer->rank;
}

/* Who took its leave is gone, even where the network does not say so. */
static void look_for_leavers(struct ucx *ucx, int64_t now_ns)
{
    for (int i = 0; i < ucx->ranks; i++) {
        struct ucx_peer *peer = &ucx->peers[i];
        if (peer->ep == NULL || peer->status != UCS_OK || peer->left.ucx == NULL || !ucx_is_done(&peer->left))
            continue;
        if (peer->left_ns == 0)
            peer->left_ns = now_ns;
        else if (now_ns - peer->left_ns > BYE_NS)
            ucx_on_lost(peer, peer->ep, UCS_ERR_CONNECTION_RESET);
    }
}

/* As long as it costs the wire nothing: as many messages as may be under way have to last. Only then is it a nap, and not
 * worth less than being woken. */
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

/* Nothing moved: spin, give way, or sleep until UCX has news. */
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
    if (nap(ucx, &wait->watch))
        return;
    if (ucp_worker_arm(ucx->worker) != UCS_OK)
        return;
    struct pollfd news = {.fd = ucx->event_fd, .events = POLLIN};
    poll(&news, 1, SLEEP_MS);
}

enum status ucx_pump(struct ucx *ucx, struct ucx_wait *wait)
{
    unsigned moved = ucp_worker_progress(ucx->worker);
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

/* Moves things until all requests are done or the time is over. */
static bool settle(struct ucx *ucx, ucs_status_ptr_t *requests, int n, int64_t limit_ns)
{
    int64_t end_ns = clock_ns() + limit_ns;
    for (;;) {
        bool is_done = true;
        for (int i = 0; i < n; i++) {
            if (requests[i] != NULL && ucp_request_check_status(requests[i]) != UCS_INPROGRESS) {
                ucp_request_free(requests[i]);
                requests[i] = NULL;
            }
            is_done = is_done && requests[i] == NULL;
        }
        if (is_done || clock_ns() > end_ns)
            return is_done;
        if (ucp_worker_progress(ucx->worker) == 0)
            sched_yield();
    }
}

static void close_endpoints(struct ucx *ucx)
{
    int n = ucx->peers != NULL ? ucx->ranks : 0;
    ucs_status_ptr_t *closing = calloc((size_t)n + 1, sizeof(*closing));
    for (int i = 0; i < n && closing != NULL; i++) {
        if (ucx->peers[i].ep == NULL)
            continue;
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
        ucs_status_ptr_t request = ucp_ep_close_nbx(ucx->peers[i].ep, &param);
        closing[i] = UCS_PTR_IS_PTR(request) ? request : NULL;
        ucx->peers[i].ep = NULL;
    }
    if (closing != NULL && !settle(ucx, closing, n, BREAK_NS))
        LOG_DEBUG("UCX has not closed all connections in time");
    free(closing);
}

bool ucx_lost(const struct ucx *ucx, struct ucx_loss *out)
{
    if (ucx->lost < 0)
        return false;
    const struct ucx_peer *peer = &ucx->peers[ucx->lost];
    bool has_left = peer->left_ns != 0 || (ucx_is_done(&peer->left) && peer->left.bytes == (int64_t)sizeof(peer->bye));
    *out = (struct ucx_loss){.rank = peer->rank, .has_left = has_left, .blamed = has_left ? peer->bye : -1,
                             .text = ucs_status_string(peer->status)};
    return true;
}

/* So that peers can tell an end of one's own from a death, and who began. */
static void take_leave(struct ucx *ucx)
{
    struct ucx_loss loss;
    ucx->farewell = !ucx_lost(ucx, &loss) ? -1 : loss.has_left ? loss.blamed : loss.rank;
    for (int i = 0; i < ucx->ranks; i++) {
        struct ucx_peer *peer = &ucx->peers[i];
        if (peer->ep == NULL || peer->status != UCS_OK)
            continue;
        struct ucx_tag bye = {.group = UCX_HELLO_GROUP, .sequence = 1};
        if (ucx_send(ucx, &peer->leaving, &ucx->farewell, sizeof(ucx->farewell), i, bye) != ST_OK)
            status_clear();
    }
}

/* What the last calls sent may still lie in UCX's own buffers; a peer may wait for it. */
static void flush(struct ucx *ucx)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t request = ucp_worker_flush_nbx(ucx->worker, &param);
    if (UCS_PTR_IS_PTR(request) && !settle(ucx, &request, 1, FLUSH_NS))
        LOG_DEBUG("UCX could not send everything before the end");
}

/* Ends every message under way. */
static void drop_all(struct ucx *ucx)
{
    ucx->is_broken = true;
    for (struct ucx_op *op = ucx->busy, *next; op != NULL; op = next) {
        next = op->next;
        if (!op->is_send && op->request != NULL)
            ucp_request_cancel(ucx->worker, op->request);
    }
    close_endpoints(ucx);
    int64_t end_ns = clock_ns() + BREAK_NS;
    while (ucx->busy != NULL && clock_ns() < end_ns)
        ucp_worker_progress(ucx->worker);
    /* Without a worker nothing writes to the callers' buffers any more, finished or not. */
    ucp_worker_destroy(ucx->worker);
    ucx->worker = NULL;
    while (ucx->busy != NULL)
        list_remove(ucx->busy);
}

void ucx_break(struct ucx *ucx)
{
    if (ucx->is_broken || ucx->peers == NULL)
        return;
    struct status_saved saved;
    status_keep(&saved);
    take_leave(ucx);
    int64_t end_ns = clock_ns() + LEAVE_NS;
    while (clock_ns() < end_ns)
        ucp_worker_progress(ucx->worker);
    drop_all(ucx);
    status_back(&saved);
}

void ucx_close(struct ucx *ucx)
{
    if (ucx == NULL)
        return;
    if (ucx->worker != NULL && !ucx->is_broken && ucx->peers != NULL) {
        take_leave(ucx);
        flush(ucx);
        drop_all(ucx);
    }
    if (ucx->worker != NULL)
        ucp_worker_destroy(ucx->worker);
    if (ucx->context != NULL)
        ucp_cleanup(ucx->context);
    free(ucx->peers);
    free(ucx);
}

bool ucx_reaches_gpu(const struct ucx *ucx) { return ucx_setup_has_cuda(ucx->context); }

int ucx_without_gpu(const struct ucx *ucx)
{
    for (int i = 0; i < ucx->ranks; i++) {
        bool offers = (i == ucx->rank ? &ucx->mine : &ucx->peers[i].theirs)->offers_gpu != 0;
        if (!offers && (i == ucx->rank || ucx->peers[i].ep != NULL))
            return i;
    }
    return -1;
}

void ucx_tell_gpu(const struct ucx *ucx)
{
    const char *version = ucp_get_version_string();
    int without = ucx_without_gpu(ucx);
    if (without < 0)
        LOG_INFO("a GPU's numbers go to other nodes straight from its memory: UCX %s has CUDA on all %d ranks", version,
                 ucx->ranks);
    else
        LOG_INFO("a GPU's numbers go to other nodes through pinned host memory, in pieces that overlap: rank %d's UCX (%s "
                 "here) moves no GPU's memory; where it should, install UCX with CUDA there, and leave cuda in UCX_TLS",
                 without, version);
}

const char *ucx_name(const struct ucx *ucx) { return ucx->name[0] != 0 ? ucx->name : "ucx"; }

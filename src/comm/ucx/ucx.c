/* ucx — the driver over UCX: a context, a worker, one endpoint for each peer.
 *
 * Every endpoint is opened with UCP_ERR_HANDLING_MODE_PEER. Without it UCX may wait for a dead peer
 * for ever, and closing with FORCE is not allowed. UCX itself trusts the bytes that it receives: a
 * process that reaches its devices with bytes that UCX does not expect can end the job
 * (SECURITY.md). Arrivals from UCX are used only if a member has sent them (message.c). Must not
 * know calls, nor the other driver. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/ucx/inside.h"

#define BREAK_NS ((int64_t)200000000)

static struct ucx *state_of(const struct messenger *messenger) { return messenger->state; }

static enum status open_ucp(const struct message_config *config, void **state_out)
{
    struct ucx *u = memory_new(1, sizeof(*u));
    *state_out = u;
    u->event_fd = -1;
    if (getrandom(u->nonce, sizeof(u->nonce), 0) != (ssize_t)sizeof(u->nonce))
        return FAIL(ST_NO_DEVICE, "no random numbers for UCX's keys: %s", strerror(errno));
    TRY(ucx_setup(config->eager_bytes, &u->context, &u->worker, &u->event_fd));
    ucs_status_t status = ucx_message_listen(u);
    return status == UCS_OK
               ? ST_OK
               : ucx_setup_fail(ST_NO_DEVICE, "receive active messages", status, "use BACKEND=tcp");
}

static void close_ucp(void *state)
{
    struct ucx *u = state;
    for (int i = 0; i < u->conns_n; i++) {
        if (u->worker != NULL)
            ucx_message_drop(&u->conns[i]);
        message_seal_close(&u->conns[i].out);
        message_seal_close(&u->conns[i].in);
    }
    free(u->conns);
    if (u->worker != NULL)
        ucp_worker_destroy(u->worker);
    if (u->context != NULL)
        ucp_cleanup(u->context);
    free(u);
}

/* Copies UCX's address after the nonce. Usually it is the address over networks only: the workers
 * of a node share host memory without UCX. */
static enum status get_address(void *state, bool is_intra_node, void *out, int64_t cap,
                               int64_t *bytes_out)
{
    struct ucx *u = state;
    const int64_t room = (is_intra_node ? cap / 2 : cap) - UCX_HEADER_NONCE_BYTES;
    ucp_worker_attr_t attr = {
        .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = is_intra_node ? 0 : UCP_WORKER_ADDRESS_FLAG_NET_ONLY};
    ucs_status_t status = ucp_worker_query(u->worker, &attr);
    if (status != UCS_OK)
        return ucx_setup_fail(ST_NO_DEVICE, "report its address", status,
                              "check UCX_NET_DEVICES and UCX_TLS");
    enum status st = ST_OK;
    bool is_long = (int64_t)attr.address_length > room;
    if (is_long && !is_intra_node)
        st = FAIL(ST_NO_DEVICE,
                  "UCX's address has %zu bytes, %lld at most: too many network devices; choose "
                  "some with UCX_NET_DEVICES",
                  attr.address_length, (long long)room);
    else if (!is_long) {
        memcpy(out, u->nonce, UCX_HEADER_NONCE_BYTES);
        memcpy((char *)out + UCX_HEADER_NONCE_BYTES, attr.address, attr.address_length);
    }
    *bytes_out = UCX_HEADER_NONCE_BYTES + (int64_t)attr.address_length;
    ucp_worker_release_address(u->worker, attr.address);
    return is_long && is_intra_node ? get_address(state, false, out, cap, bytes_out) : st;
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    struct message_peer *peer = arg;
    if (status == UCS_OK)
        status = UCS_ERR_CONNECTION_RESET;
    if (status == UCS_ERR_CONNECTION_RESET && peer->why != messenger_damaged)
        peer->was_closed = true;
    messenger_on_lost(peer, ucs_status_string(status));
}

/* Derives the keys of both directions. false: OpenSSL failed. */
static bool open_directions(struct ucx_conn *conn, const struct messenger *messenger,
                            const uint8_t *nonce)
{
    const int32_t me = messenger->rank, peer = conn->peer->rank;
    const uint8_t *mine = conn->ucx->nonce;
    const struct ucx_direction_ids out = {messenger->mine.generation, me,   peer,
                                          messenger->ranks,           mine, nonce},
                                   in = {messenger->mine.generation, peer,  me,
                                         messenger->ranks,           nonce, mine};
    return ucx_header_open(&conn->out, messenger->secret, &out, true) &&
           ucx_header_open(&conn->in, messenger->secret, &in, false);
}

static ucs_status_t open_endpoint(struct ucx_conn *conn, const void *to)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = to,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = conn->peer},
    };
    return ucp_ep_create(conn->ucx->worker, &params, &conn->ep);
}

/* Begins a connection. to: the nonce of the peer, then UCX's address. */
static const char *begin_connect(struct messenger *messenger, struct message_peer *peer,
                                 const void *to, int64_t bytes)
{
    struct ucx *u = state_of(messenger);
    if (messenger->secret == NULL)
        return "no secret was given for this generation";
    if (bytes <= UCX_HEADER_NONCE_BYTES)
        return "its address cannot be read";
    if (u->conns == NULL) { /* the first connection */
        u->messenger = messenger;
        u->conns = memory_new((size_t)messenger->ranks, sizeof(*u->conns));
        u->conns_n = messenger->ranks;
    }
    struct ucx_conn *conn = &u->conns[peer->rank];
    conn->ucx = u;
    conn->peer = peer;
    peer->conn = conn;
    if (!open_directions(conn, messenger, to))
        return "OpenSSL failed";
    ucs_status_t status = open_endpoint(conn, (const char *)to + UCX_HEADER_NONCE_BYTES);
    return status == UCS_OK ? NULL : ucs_status_string(status);
}

static unsigned progress(struct messenger *messenger)
{
    return ucp_worker_progress(state_of(messenger)->worker);
}

static void sleep_ucp(struct messenger *messenger, int ms)
{
    if (ucp_worker_arm(state_of(messenger)->worker) != UCS_OK)
        return;
    struct pollfd poll_fd = {.fd = state_of(messenger)->event_fd, .events = POLLIN};
    poll(&poll_fd, 1, ms);
}

/* ---- the end ---- */

/* Progresses until all requests are complete or the time is over; returns true if they are. */
static bool wait_requests(struct ucx *u, ucs_status_ptr_t *requests, int n, int64_t limit_ns)
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
        if (ucp_worker_progress(u->worker) == 0)
            sched_yield();
    }
}

static bool flush(struct messenger *messenger, int64_t ns)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t request = ucp_worker_flush_nbx(state_of(messenger)->worker, &param);
    return !UCS_PTR_IS_PTR(request) || wait_requests(state_of(messenger), &request, 1, ns);
}

static void close_endpoints(struct messenger *messenger)
{
    struct ucx *u = state_of(messenger);
    int n = u->conns_n;
    ucs_status_ptr_t *closing = memory_new((size_t)n, sizeof(*closing));
    for (int i = 0; i < n; i++) {
        if (u->conns[i].ep == NULL)
            continue;
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
        ucs_status_ptr_t request = ucp_ep_close_nbx(u->conns[i].ep, &param);
        closing[i] = UCS_PTR_IS_PTR(request) ? request : NULL;
        u->conns[i].ep = NULL;
    }
    if (!wait_requests(u, closing, n, BREAK_NS))
        LOG_DEBUG("UCX has not closed all connections in time");
    free(closing);
}

/* Returns true if UCX still has the buffer of a message. A posted receive is not among them: it is
 * ours. */
static bool has_requests(const struct messenger *messenger)
{
    const struct message_op *op = messenger->busy;
    while (op != NULL && op->request == NULL)
        op = op->next;
    return op != NULL;
}

static void drop(struct messenger *messenger)
{
    struct ucx *u = state_of(messenger);
    for (int i = 0; i < u->conns_n; i++)
        ucx_message_drop(&u->conns[i]);
    close_endpoints(messenger);
    int64_t end_ns = clock_ns() + BREAK_NS;
    while (has_requests(messenger) && clock_ns() < end_ns)
        ucp_worker_progress(u->worker);
    for (int i = 0; i < u->conns_n; i++)
        ucx_message_drop(&u->conns[i]); /* messages that have arrived meanwhile */
    /* Without a worker nothing writes to the callers' buffers any more, complete or not. */
    ucp_worker_destroy(u->worker);
    u->worker = NULL;
}

/* Writes "ucx (tcp/lo)" and similar, parsed from UCX's print of an endpoint: UCX has no call for
 * it. */
static void describe(struct messenger *messenger, char *out, size_t cap)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    const struct ucx *u = state_of(messenger);
    for (int i = 0; file != NULL && i < u->conns_n; i++) {
        if (u->conns[i].ep != NULL) {
            ucp_ep_print_info(u->conns[i].ep, file);
            break;
        }
    }
    if (file != NULL)
        fclose(file);
    const char *lane = text != NULL ? strstr(text, "lane[0]:") : NULL;
    const char *colon = lane != NULL ? strchr(lane + 8, ':') : NULL;
    if (colon != NULL)
        text_format(out, cap, "ucx (%.*s)", (int)strcspn(colon + 1, " ."), colon + 1);
    else
        text_copy(out, cap, "ucx");
    free(text);
}

bool ucx_supports_gpu(const void *state)
{
    return ucx_setup_has_cuda(((const struct ucx *)state)->context);
}

const struct message_driver ucx_driver = {
    .name = "ucx",
    .label = "UCX",
    .open = open_ucp,
    .close = close_ucp,
    .address = get_address,
    .connect = begin_connect,
    .send = ucx_message_send,
    .recv = ucx_message_recv,
    .progress = progress,
    .sleep = sleep_ucp,
    .flush = flush,
    .drop = drop,
    .describe = describe,
};

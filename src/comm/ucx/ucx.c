/* ucx — the driver over UCX: a context, a worker, one endpoint for each peer.
 *
 * Every endpoint is opened with UCP_ERR_HANDLING_MODE_PEER. Without it UCX may wait for a dead peer
 * for ever, and closing with FORCE is not allowed. UCX trusts what it receives: a process that
 * reaches its devices can end the job or take part in it (SECURITY.md). Must not know calls, nor
 * the other driver. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/p2p/p2p_inside.h"
#include "comm/ucx/ucx_setup.h"

#define BREAK_NS ((int64_t)200000000)

struct ucx {
    ucp_context_h context;
    ucp_worker_h worker;
    int event_fd;
};

static struct ucx *state_of(const struct p2p *p2p) { return p2p->state; }

static enum status open_ucp(const struct p2p_config *config, void **state_out)
{
    struct ucx *u = calloc(1, sizeof(*u));
    if (u == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for UCX", sizeof(*u));
    *state_out = u;
    u->event_fd = -1;
    return ucx_setup(config->eager_bytes, &u->context, &u->worker, &u->event_fd);
}

static void close_ucp(void *state)
{
    struct ucx *u = state;
    if (u->worker != NULL)
        ucp_worker_destroy(u->worker);
    if (u->context != NULL)
        ucp_cleanup(u->context);
    free(u);
}

/* The address over networks only, usually: the workers of a node share host memory without UCX. */
static enum status address(void *state, bool is_intra_node, void *out, int64_t cap,
                           int64_t *bytes_out)
{
    struct ucx *u = state;
    ucp_worker_attr_t attr = {
        .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = is_intra_node ? 0 : UCP_WORKER_ADDRESS_FLAG_NET_ONLY};
    ucs_status_t status = ucp_worker_query(u->worker, &attr);
    if (status != UCS_OK)
        return ucx_setup_fail(ST_NO_DEVICE, "report its address", status,
                              "check UCX_NET_DEVICES and UCX_TLS");
    enum status st = ST_OK;
    bool is_long = (int64_t)attr.address_length > (is_intra_node ? cap / 2 : cap);
    if (is_long && !is_intra_node)
        st = FAIL(ST_NO_DEVICE,
                  "UCX's address takes %zu bytes, %lld at most: too many network devices; name "
                  "those to use in UCX_NET_DEVICES",
                  attr.address_length, (long long)cap);
    else if (!is_long)
        memcpy(out, attr.address, attr.address_length);
    *bytes_out = (int64_t)attr.address_length;
    ucp_worker_release_address(u->worker, attr.address);
    return is_long && is_intra_node ? address(state, false, out, cap, bytes_out) : st;
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    p2p_on_lost(arg, ucs_status_string(status != UCS_OK ? status : UCS_ERR_CONNECTION_RESET));
}

static const char *begin_connect(struct p2p *p2p, struct p2p_peer *peer, const void *to,
                                 int64_t bytes)
{
    (void)bytes;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = to,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = peer},
    };
    ucp_ep_h ep;
    ucs_status_t status = ucp_ep_create(state_of(p2p)->worker, &params, &ep);
    if (status != UCS_OK)
        return ucs_status_string(status);
    peer->conn = ep;
    return NULL;
}

/* ---- messages ---- */

static const char *why_of(ucs_status_t status)
{
    if (status == UCS_OK)
        return NULL;
    return status == UCS_ERR_MESSAGE_TRUNCATED ? p2p_truncated : ucs_status_string(status);
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    p2p_op_end(arg, why_of(status));
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *arg)
{
    struct p2p_op *op = arg;
    if (status == UCS_OK)
        op->bytes = (int64_t)info->length;
    ucp_request_free(request);
    p2p_op_end(op, why_of(status));
}

/* Given explicitly: otherwise UCX asks CUDA about each address. */
static ucs_memory_type_t memory_of(const struct p2p_op *op)
{
    return op->is_gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

/* The request is complete, begun or refused. */
static const char *check_begun(struct p2p_op *op, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        if (op->is_busy)
            op->request = request;
        return NULL;
    }
    ucs_status_t status = UCS_PTR_RAW_STATUS(request);
    if (status == UCS_OK)
        p2p_op_end(op, NULL);
    return status == UCS_OK ? NULL : ucs_status_string(status);
}

static const char *begin_send(struct p2p *p2p, struct p2p_op *op, const void *data, uint64_t tag)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = on_sent,
        .user_data = op,
        .memory_type = memory_of(op),
    };
    return check_begun(
        op, ucp_tag_send_nbx(p2p->peers[op->peer].conn, data, (size_t)op->bytes, tag, &param));
}

static const char *begin_recv(struct p2p *p2p, struct p2p_op *op, void *data, uint64_t tag)
{
    ucp_tag_recv_info_t info;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_RECV_INFO,
        .cb.recv = on_received,
        .user_data = op,
        .memory_type = memory_of(op),
        .recv_info.tag_info = &info,
    };
    ucs_status_ptr_t request = ucp_tag_recv_nbx(state_of(p2p)->worker, data, (size_t)op->bytes, tag,
                                                ~(ucp_tag_t)0, &param);
    if (request == NULL)
        op->bytes = (int64_t)info.length;
    return check_begun(op, request);
}

static unsigned progress(struct p2p *p2p) { return ucp_worker_progress(state_of(p2p)->worker); }

static void sleep_ucp(struct p2p *p2p, int ms)
{
    if (ucp_worker_arm(state_of(p2p)->worker) != UCS_OK)
        return;
    struct pollfd poll_fd = {.fd = state_of(p2p)->event_fd, .events = POLLIN};
    poll(&poll_fd, 1, ms);
}

/* ---- the end ---- */

/* Progresses until all requests are complete or the time is over. */
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

static bool flush(struct p2p *p2p, int64_t ns)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t request = ucp_worker_flush_nbx(state_of(p2p)->worker, &param);
    return !UCS_PTR_IS_PTR(request) || wait_requests(state_of(p2p), &request, 1, ns);
}

static void close_endpoints(struct p2p *p2p)
{
    int n = p2p->ranks;
    ucs_status_ptr_t *closing = calloc((size_t)n + 1, sizeof(*closing));
    for (int i = 0; i < n && closing != NULL; i++) {
        if (p2p->peers[i].conn == NULL)
            continue;
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
        ucs_status_ptr_t request = ucp_ep_close_nbx(p2p->peers[i].conn, &param);
        closing[i] = UCS_PTR_IS_PTR(request) ? request : NULL;
        p2p->peers[i].conn = NULL;
    }
    if (closing != NULL && !wait_requests(state_of(p2p), closing, n, BREAK_NS))
        LOG_DEBUG("UCX has not closed all connections in time");
    free(closing);
}

static void drop(struct p2p *p2p)
{
    struct ucx *u = state_of(p2p);
    for (struct p2p_op *op = p2p->busy, *next; op != NULL; op = next) {
        next = op->next;
        if (!op->is_send && op->request != NULL)
            ucp_request_cancel(u->worker, op->request);
    }
    close_endpoints(p2p);
    int64_t end_ns = clock_ns() + BREAK_NS;
    while (p2p->busy != NULL && clock_ns() < end_ns)
        ucp_worker_progress(u->worker);
    /* Without a worker nothing writes to the callers' buffers any more, complete or not. */
    ucp_worker_destroy(u->worker);
    u->worker = NULL;
}

/* "ucx (tcp/lo)" and the like, parsed from what UCX prints of an endpoint: UCX has no call for
 * it. */
static void describe(struct p2p *p2p, char *out, size_t cap)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    for (int i = 0; file != NULL && i < p2p->ranks; i++) {
        if (p2p->peers[i].conn != NULL) {
            ucp_ep_print_info(p2p->peers[i].conn, file);
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

const struct p2p_driver ucx_driver = {
    .name = "ucx",
    .label = "UCX",
    .open = open_ucp,
    .close = close_ucp,
    .address = address,
    .connect = begin_connect,
    .send = begin_send,
    .recv = begin_recv,
    .progress = progress,
    .sleep = sleep_ucp,
    .flush = flush,
    .drop = drop,
    .describe = describe,
};

/* ucx_message — messages as UCX's active messages: a sealed header, and the content.
 *
 * UCX passes each arrival with its header before any of it is used. A header that is not authentic
 * is refused. From a process outside the job, the message is dropped and counted; on a member's
 * connection, the connection ends, because one of its messages is missing now. Authentic messages
 * are handled in the order of their numbers, and go to the receive with their tag. Short content is
 * copied from UCX's memory, long content is moved by UCX into the receive's buffer (rendezvous).
 * There, content is compared with its checksum before the receive ends. Must not know endpoints,
 * nor calls. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/ucx/inside.h"

#define MESSAGE_ID 1 /* id of UCX's active messages */
#define LOG_MS 1000

static const char no_memory[] = "out of memory", no_cipher[] = "OpenSSL failed";
static const char other_memory[] = "it sends from a GPU's memory to the host's, or the reverse";

static atomic_int_fast64_t refused;

int64_t ucx_message_refused(void) { return refused; }

static const char *why_of(ucs_status_t status)
{
    return status == UCS_OK ? NULL : ucs_status_string(status);
}

/* Returns the type of the memory. It is set explicitly: otherwise UCX queries CUDA about each
 * address. */
static ucs_memory_type_t memory_of(const struct message_op *op)
{
    return op->is_gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

/* ---- out ---- */

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    messenger_op_end(arg, why_of(status));
}

const char *ucx_message_send(struct messenger *messenger, struct message_op *op, const void *data,
                             uint64_t tag)
{
    struct ucx_conn *conn = messenger->peers[op->peer].conn;
    const struct ucx_header header = {.from = messenger->rank,
                                      .flags = op->is_gpu ? UCX_HEADER_IS_GPU : 0,
                                      .tag = tag,
                                      .bytes = op->bytes};
    /* A GPU's content always moves by rendezvous: a receive of another rank's GPU cannot be filled
     * from UCX's host memory here. */
    const unsigned rendezvous = op->is_gpu && op->bytes > 0 ? UCP_AM_SEND_FLAG_RNDV : 0u;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_REPLY | rendezvous,
        .cb.send = on_sent,
        .user_data = op,
        .memory_type = memory_of(op),
    };
    if (!ucx_header_write(&conn->out, &header, data, op->head))
        return no_cipher;
    ucs_status_ptr_t request = ucp_am_send_nbx(conn->ep, MESSAGE_ID, op->head, sizeof(op->head),
                                               data, (size_t)op->bytes, &param);
    if (UCS_PTR_IS_ERR(request))
        return ucs_status_string(UCS_PTR_STATUS(request));
    if (request == NULL)
        messenger_op_end(op, NULL);
    else if (op->is_busy)
        op->request = request;
    return NULL;
}

/* ---- refused ---- */

/* Returns the connection that uses this endpoint; NULL: no member's connection does. */
static struct ucx_conn *conn_of(const struct ucx *ucx, ucp_ep_h ep)
{
    for (int i = 0; i < ucx->conns_n && ep != NULL; i++)
        if (ucx->conns[i].peer != NULL && ucx->conns[i].ep == ep)
            return &ucx->conns[i];
    return NULL;
}

static void refuse_message(struct ucx *ucx, const struct ucx_conn *conn, const char *why)
{
    int64_t now_ms = clock_ms();
    refused++;
    ucx->refused_n++;
    if (conn != NULL)
        messenger_on_lost(conn->peer, messenger_damaged);
    if (ucx->refused_log_ms != 0 && now_ms - ucx->refused_log_ms < LOG_MS)
        return;
    LOG_WARN("dropped %lld message%s that reached this worker's UCX; the last, from %s: %s",
             (long long)ucx->refused_n, ucx->refused_n == 1 ? "" : "s",
             conn != NULL ? "a member" : "a process outside the job", why);
    ucx->refused_log_ms = now_ms;
    ucx->refused_n = 0;
}

/* ---- in: content ---- */

/* Ends a receive whose buffer has all content. */
static void end_recv(struct message_op *op, const struct ucx_header *header)
{
    const struct ucx_conn *conn = op->messenger->peers[op->peer].conn;
    if (!ucx_header_check(&conn->in, header, op->data)) {
        refused++;
        messenger_op_end(op, messenger_damaged);
        return;
    }
    op->bytes = header->bytes;
    messenger_op_end(op, NULL);
}

static void on_moved(void *request, ucs_status_t status, size_t bytes, void *arg)
{
    struct message_op *op = arg;
    struct ucx_header header;
    (void)bytes;
    memcpy(&header, op->head, sizeof(header));
    ucp_request_free(request);
    if (status == UCS_OK)
        end_recv(op, &header);
    else
        messenger_op_end(op, why_of(status));
}

/* Lets UCX move the content, and owns the descriptor from now on. */
static void begin_rendezvous(struct ucx *ucx, struct message_op *op,
                             const struct ucx_header *header, void *rendezvous)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.recv_am = on_moved,
        .user_data = op,
        .memory_type = memory_of(op),
    };
    memcpy(op->head, header, sizeof(*header));
    ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(ucx->worker, rendezvous, op->data, (size_t)header->bytes, &param);
    if (UCS_PTR_IS_ERR(request))
        messenger_op_end(op, ucs_status_string(UCS_PTR_STATUS(request)));
    else if (request == NULL)
        end_recv(op, header);
    else if (op->is_busy)
        op->request = request;
}

/* Returns why the receive cannot hold the message; NULL: it can. */
static const char *find_misfit(const struct message_op *op, const struct ucx_header *header,
                               bool is_rendezvous)
{
    const bool is_gpu = (header->flags & UCX_HEADER_IS_GPU) != 0;
    if (header->bytes > op->bytes)
        return messenger_truncated;
    return header->bytes > 0 && (is_gpu != op->is_gpu || (is_gpu && !is_rendezvous)) ? other_memory
                                                                                     : NULL;
}

/* Delivers the message to the receive. false: the caller still owns the descriptor of a
 * rendezvous. */
static bool deliver_message(struct ucx *ucx, struct message_op *op, const struct ucx_header *header,
                            const void *data, void *rendezvous)
{
    const char *misfit = find_misfit(op, header, rendezvous != NULL);
    if (misfit != NULL) {
        messenger_op_end(op, misfit);
        return false;
    }
    if (rendezvous != NULL) {
        begin_rendezvous(ucx, op, header, rendezvous);
        return true;
    }
    if (header->bytes > 0)
        memcpy(op->data, data, (size_t)header->bytes);
    end_recv(op, header);
    return false;
}

/* ---- in: receives and messages without each other ---- */

static struct ucx_arrival *take_unexpected(struct ucx_conn *conn, uint64_t tag)
{
    struct ucx_arrival *before = NULL;
    for (struct ucx_arrival *at = conn->unexpected_first; at != NULL; before = at, at = at->next) {
        if (at->header.tag != tag)
            continue;
        if (before != NULL)
            before->next = at->next;
        else
            conn->unexpected_first = at->next;
        if (conn->unexpected_last == at)
            conn->unexpected_last = before;
        return at;
    }
    return NULL;
}

static void add_unexpected(struct ucx_conn *conn, struct ucx_arrival *arrival)
{
    arrival->next = NULL;
    if (conn->unexpected_last != NULL)
        conn->unexpected_last->next = arrival;
    else
        conn->unexpected_first = arrival;
    conn->unexpected_last = arrival;
}

/* Keeps a message. NULL: no memory. */
static struct ucx_arrival *keep_message(const struct ucx_header *header, const void *data,
                                        void *rendezvous)
{
    size_t bytes = rendezvous == NULL ? (size_t)header->bytes : 0;
    struct ucx_arrival *arrival = malloc(sizeof(*arrival) + bytes);
    if (arrival == NULL)
        return NULL;
    arrival->header = *header;
    arrival->rendezvous = rendezvous;
    if (bytes > 0)
        memcpy(arrival->data, data, bytes);
    return arrival;
}

static void release_arrival(struct ucx_conn *conn, struct ucx_arrival *arrival)
{
    if (arrival->rendezvous != NULL)
        ucp_am_data_release(conn->ucx->worker, arrival->rendezvous);
    free(arrival);
}

static void deliver_kept(struct ucx_conn *conn, struct ucx_arrival *arrival, struct message_op *op)
{
    if (deliver_message(conn->ucx, op, &arrival->header, arrival->data, arrival->rendezvous))
        arrival->rendezvous = NULL;
    release_arrival(conn, arrival);
}

const char *ucx_message_recv(struct messenger *messenger, struct message_op *op, void *data,
                             uint64_t tag)
{
    struct ucx_conn *conn = messenger->peers[op->peer].conn;
    struct ucx_arrival *arrival = take_unexpected(conn, tag);
    op->data = data;
    op->bits = tag;
    if (arrival != NULL) {
        deliver_kept(conn, arrival, op);
        return NULL;
    }
    messenger_queue_add(&conn->posted, op);
    return NULL;
}

static void free_all(struct ucx_conn *conn, struct ucx_arrival *at)
{
    for (struct ucx_arrival *next; at != NULL; at = next) {
        next = at->next;
        release_arrival(conn, at);
    }
}

void ucx_message_drop(struct ucx_conn *conn)
{
    free_all(conn, conn->unexpected_first);
    free_all(conn, conn->early);
    conn->unexpected_first = conn->unexpected_last = conn->early = NULL;
    conn->posted = (struct message_queue){0};
}

/* ---- in: order ---- */

/* Delivers all kept messages whose turn it is now to their receives. */
static void deliver_early(struct ucx_conn *conn)
{
    while (conn->early != NULL && conn->early->header.number == conn->in.next) {
        struct ucx_arrival *arrival = conn->early;
        struct message_op *op = messenger_queue_take(&conn->posted, arrival->header.tag);
        conn->early = arrival->next;
        conn->in.next++;
        if (op != NULL)
            deliver_kept(conn, arrival, op);
        else
            add_unexpected(conn, arrival);
    }
}

/* Handles an authentic message. true: it also owns the descriptor of a rendezvous now. */
static bool handle_message(struct ucx_conn *conn, const struct ucx_header *header, const void *data,
                           void *rendezvous)
{
    ASSERTF(header->number >= conn->in.next && header->from == conn->peer->rank,
            "message %llu of %d", (unsigned long long)header->number, header->from);
    const bool is_early = header->number != conn->in.next;
    struct message_op *op = is_early ? NULL : messenger_queue_take(&conn->posted, header->tag);
    struct ucx_arrival *arrival = op == NULL ? keep_message(header, data, rendezvous) : NULL;
    bool owns_descriptor = rendezvous != NULL;
    if (op == NULL && arrival == NULL) {
        messenger_on_lost(conn->peer, no_memory);
        return false;
    }
    if (is_early) {
        struct ucx_arrival **at = &conn->early;
        while (*at != NULL && (*at)->header.number < arrival->header.number)
            at = &(*at)->next;
        arrival->next = *at;
        *at = arrival;
        return owns_descriptor;
    }
    conn->in.next++;
    if (op != NULL)
        owns_descriptor = deliver_message(conn->ucx, op, header, data, rendezvous);
    else
        add_unexpected(conn, arrival);
    deliver_early(conn);
    return owns_descriptor;
}

static ucs_status_t on_arrival(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    struct ucx *ucx = arg;
    const bool is_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    ucp_ep_h ep = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) ? param->reply_ep : NULL;
    /* The connection of the sender in the header, which is not authenticated yet; NULL: no such
     * member. */
    int32_t from = header_bytes == UCX_HEADER_BYTES ? ucx_header_sender(header) : -1;
    struct ucx_conn *conn = from >= 0 && from < ucx->conns_n && ucx->conns[from].peer != NULL
                                ? &ucx->conns[from]
                                : NULL;
    struct ucx_header head;
    if (conn == NULL || !ucx_header_read(&conn->in, header, &head) ||
        head.from != conn->peer->rank || head.bytes != (int64_t)bytes) {
        refuse_message(ucx, conn_of(ucx, ep), "it is forged or damaged");
        return UCS_OK;
    }
    uint64_t number = head.number;
    const struct ucx_arrival *at = conn->early;
    while (at != NULL && at->header.number < number)
        at = at->next;
    if (number < conn->in.next || (at != NULL && at->header.number == number)) {
        refuse_message(ucx, conn_of(ucx, ep), "it was received before");
        return UCS_OK;
    }
    return handle_message(conn, &head, data, is_rendezvous ? data : NULL) ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t ucx_message_listen(struct ucx *ucx)
{
    const ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                        UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                        UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                          .id = MESSAGE_ID,
                                          .cb = on_arrival,
                                          .arg = ucx};
    return ucp_worker_set_am_recv_handler(ucx->worker, &param);
}

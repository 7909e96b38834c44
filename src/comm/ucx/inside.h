/* ucx_inside — declarations that the files of the driver over UCX share. Only they include it.
 *
 *   ucx.c      the driver: opens, connects, ends
 *   message.c  messages: sends them, and matches arrivals with receives
 *   header.c   the header of a message, and its protection
 *   setup.c    UCX's context and worker */
#ifndef CONVOY_COMM_UCX_INSIDE_H
#define CONVOY_COMM_UCX_INSIDE_H

#include <ucp/api/ucp.h>

#include "comm/message/inside.h"
#include "comm/ucx/header.h"

/* A message that arrived before its turn, or before its receive was posted (MPI: unexpected). */
struct ucx_arrival {
    struct ucx_arrival *next;
    struct ucx_header header;
    void *rendezvous; /* UCX's descriptor: the content is still at the sender; NULL: in data */
    char data[];
};

/* The connection to one peer. peer NULL: none. */
struct ucx_conn {
    struct message_peer *peer;
    struct ucx *ucx;
    ucp_ep_h ep;
    struct message_seal out, in;
    struct message_queue posted;                            /* receives without a message */
    struct ucx_arrival *unexpected_first, *unexpected_last; /* messages without a receive */
    struct ucx_arrival *early; /* messages that came before an earlier one; by number */
};

struct ucx {
    ucp_context_h context;
    ucp_worker_h worker;
    int event_fd;
    uint8_t nonce[UCX_HEADER_NONCE_BYTES];
    struct messenger *messenger; /* once connecting */
    struct ucx_conn *conns;      /* one for each rank */
    int conns_n;
    int64_t refused_log_ms; /* last log line about refused messages */
    int64_t refused_n;      /* number of messages since that line */
};

/* ucx_message_listen — from now on, UCX passes arrivals at the worker to message.c. */
ucs_status_t ucx_message_listen(struct ucx *ucx);
/* ucx_message_send — implements send of struct message_driver. */
const char *ucx_message_send(struct messenger *messenger, struct message_op *op, const void *data,
                             uint64_t tag);
/* ucx_message_recv — implements recv of struct message_driver. */
const char *ucx_message_recv(struct messenger *messenger, struct message_op *op, void *data,
                             uint64_t tag);
/* ucx_message_drop — forgets arrived messages and posted receives, before the connection closes. */
void ucx_message_drop(struct ucx_conn *conn);

/* ucx_setup — opens a context and one worker for one thread at a time. eager_bytes: as in
 * message_config. Outputs are set even if a later step fails. Errors: ST_NO_DEVICE with UCX's
 * text. */
enum status ucx_setup(int64_t eager_bytes, ucp_context_h *context, ucp_worker_h *worker,
                      int *event_fd);
/* ucx_setup_has_cuda — returns true if this UCX reports that it moves the memory of NVIDIA GPUs.
 * Debian's is built without. */
bool ucx_setup_has_cuda(ucp_context_h context);
/* ucx_setup_fail — fails with "UCX cannot WHAT: its text; ADVICE". */
enum status ucx_setup_fail(enum status st, const char *what, ucs_status_t status,
                           const char *advice);

#endif

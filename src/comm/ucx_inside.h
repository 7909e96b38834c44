/* ucx_inside — what ucx.c and ucx_connect.c share: connections, and what came over them first. UCX's names stay in
 * these files. */
#ifndef CONVOY_COMM_UCX_INSIDE_H
#define CONVOY_COMM_UCX_INSIDE_H

#include "comm/ucx.h"
#include "comm/ucx_setup.h"

#define UCX_HELLO_MAGIC 0x796f766e6f630002u
#define UCX_HELLO_GROUP UCX_GROUPS /* the group of greetings (sequence 0) and farewells (1) */

struct ucx_hello {
    uint64_t magic;
    int64_t generation;
    int32_t rank, ranks;
    int32_t offers_gpu, unused;
};

struct ucx_peer {
    struct ucx *ucx;
    ucp_ep_h ep;
    int rank;
    ucs_status_t status; /* UCS_OK while it lives */
    struct ucx_hello theirs;
    struct ucx_op greeted, heard; /* greeting: sent, received */
    struct ucx_op left, leaving;  /* farewell: received, sent */
    int64_t left_ns;              /* when the farewell was seen */
    int32_t bye; /* whom it lost, which made it leave; -1: nobody */
};

struct ucx {
    ucp_context_h context;
    ucp_worker_h worker;
    int event_fd;
    struct ucx_hello mine;
    int rank, ranks;
    struct ucx_peer *peers; /* ranks of them */
    struct ucx_op *busy;    /* list of what is under way */
    int lost;               /* the rank lost first, or -1 */
    struct ucx_op *failed;  /* …and the first message that failed, with its status */
    ucs_status_t failed_status;
    bool is_broken;
    int32_t farewell;       /* as bye, from here */
    int64_t ended;          /* messages, ever */
    int64_t nap_ns, napped; /* of the last nap: how long, and `ended` before it */
    char name[64];
};

/* ucx_fail_unreached — ST_PEER: nothing came from that rank. ucx_on_lost — UCX's handler of an endpoint that
 * ended; arg: the struct ucx_peer. */
enum status ucx_fail_unreached(int rank, ucs_status_t status);
void ucx_on_lost(void *arg, ucp_ep_h ep, ucs_status_t status);

#endif

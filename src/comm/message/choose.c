/* message_choose — chooses the driver that carries messages: TCP, unless every rank has an RDMA
 * device for UCX or names tcp in UCX_TLS. Drivers are opened before ranks have each other's
 * addresses. When all addresses have arrived, every rank chooses a driver by the same rule. Must
 * not know messages. */
#include "comm/message/inside.h"

#include <string.h>

#include "base/log.h"
#include "base/assert.h"
#include "base/text.h"
#include "comm/ucx/env.h"

/* The head of a rank's address; the addresses of the drivers follow in their order. */
struct address_head {
    uint8_t magic, net;
    uint16_t bytes[MESSAGE_DRIVERS_N];
};
#define ADDRESS_MAGIC 0xc5

static const struct message_driver *const drivers[MESSAGE_DRIVERS_N] = {&tcp_driver, &ucx_driver};
static const char *const net_names[] = {"auto", "tcp", "ucx"};

/* Opens UCX. A rank without UCX falls back to TCP if that is allowed; the log of this rank has the
 * reason. */
static enum status open_ucx(struct messenger *messenger)
{
    void **state = &messenger->states[MESSAGE_DRIVER_UCX];
    enum status st = ucx_driver.open(&messenger->config, state);
    if (st == ST_OK || messenger->config.net == COMM_NET_UCX)
        return st;
    LOG_INFO("no UCX on this rank: %s", status_message());
    status_clear();
    if (*state != NULL)
        ucx_driver.close(*state);
    *state = NULL;
    return ST_OK;
}

enum status message_choose_open(struct messenger *messenger)
{
    enum comm_net net = messenger->config.net;
    bool has_rdma = ucx_env_has_rdma(), asks_tcp = ucx_env_names_tcp();
    if (net == COMM_NET_UCX && !has_rdma && !ucx_env_has_transports())
        return FAIL(ST_NO_DEVICE, "BACKEND=ucx: this node has no InfiniBand or RoCE device; use "
                                  "BACKEND=auto or tcp, or UCX_TLS=tcp,self if UCX is to use TCP, "
                                  "which trusts every host that reaches its ports");
    if (net != COMM_NET_UCX)
        TRY(tcp_driver.open(&messenger->config, &messenger->states[MESSAGE_DRIVER_TCP]));
    if (net == COMM_NET_UCX || (net == COMM_NET_AUTO && (has_rdma || asks_tcp)))
        TRY(open_ucx(messenger));
    return ST_OK;
}

enum status message_choose_pack(struct messenger *messenger, bool is_intra_node, void *out,
                                int64_t cap, int64_t *bytes_out)
{
    struct address_head head = {.magic = ADDRESS_MAGIC, .net = (uint8_t)messenger->config.net};
    int64_t at = (int64_t)sizeof(head), bytes;
    for (int i = 0; i < MESSAGE_DRIVERS_N; i++) {
        if (messenger->states[i] == NULL)
            continue;
        TRY(drivers[i]->address(messenger->states[i], is_intra_node, (char *)out + at, cap - at,
                                &bytes));
        head.bytes[i] = (uint16_t)bytes;
        at += bytes;
    }
    memcpy(out, &head, sizeof(head));
    *bytes_out = at;
    return ST_OK;
}

/* Reads the head of a rank's address, which may be damaged or incomplete. */
static enum status read_head(const struct message_world *world, int rank, struct address_head *out)
{
    int64_t bytes = world->bytes[rank], sum = (int64_t)sizeof(*out);
    *out = (struct address_head){0};
    if (bytes == 0)
        return FAIL(ST_PEER, "rank %d has sent no address", rank);
    if (bytes >= sum && bytes <= world->stride)
        memcpy(out, (const char *)world->addresses + rank * world->stride, sizeof(*out));
    for (int i = 0; i < MESSAGE_DRIVERS_N; i++)
        sum += out->bytes[i];
    if (out->magic != ADDRESS_MAGIC || sum != bytes || out->net > COMM_NET_UCX)
        return FAIL(ST_PEER, "the address of rank %d (%lld bytes) cannot be read", rank,
                    (long long)bytes);
    return ST_OK;
}

const void *message_choose_address(const struct messenger *messenger,
                                   const struct message_world *world, int rank, int64_t *bytes_out)
{
    struct address_head head;
    if (read_head(world, rank, &head) != ST_OK) {
        status_clear();
        return NULL;
    }
    int64_t at = (int64_t)sizeof(head);
    int mine = messenger->driver == &tcp_driver ? MESSAGE_DRIVER_TCP : MESSAGE_DRIVER_UCX;
    for (int i = 0; i < mine; i++)
        at += head.bytes[i];
    *bytes_out = head.bytes[mine];
    return head.bytes[mine] > 0 ? (const char *)world->addresses + rank * world->stride + at : NULL;
}

static void set_choice_reason(struct messenger *messenger, int without)
{
    if (messenger->config.net != COMM_NET_AUTO)
        return;
    if (without < 0)
        text_copy(messenger->choice_reason, sizeof(messenger->choice_reason),
                  ucx_env_names_tcp() ? "UCX_TLS names tcp"
                                      : "every rank has an InfiniBand or RoCE device");
    else
        text_format(messenger->choice_reason, sizeof(messenger->choice_reason),
                    "rank %d has no InfiniBand or RoCE device", without);
}

enum status message_choose_select(struct messenger *messenger, const struct message_world *world)
{
    int without = -1; /* the first rank without UCX */
    struct address_head head;
    for (int r = 0; r < world->ranks; r++) {
        if (r != world->rank && !world->is_peer[r])
            continue;
        TRY(read_head(world, r, &head));
        if (head.net != (uint8_t)messenger->config.net)
            return FAIL(ST_DISAGREE,
                        "rank %d has BACKEND=%s, rank %d %s; give all nodes the same BACKEND", r,
                        net_names[head.net], world->rank, net_names[messenger->config.net]);
        if (head.bytes[MESSAGE_DRIVER_UCX] == 0 && without < 0)
            without = r;
    }
    int chosen = messenger->config.net == COMM_NET_TCP || without >= 0 ? MESSAGE_DRIVER_TCP
                                                                       : MESSAGE_DRIVER_UCX;
    set_choice_reason(messenger, without);
    if (messenger->states[chosen] == NULL)
        return FAIL(ST_PEER, "rank %d has sent no address for %s", without,
                    net_names[messenger->config.net]);
    messenger->driver = drivers[chosen];
    messenger->state = messenger->states[chosen];
    messenger->states[chosen] = NULL;
    message_choose_close(messenger);
    messenger->states[chosen] = messenger->state;
    return ST_OK;
}

void message_choose_close(struct messenger *messenger)
{
    for (int i = 0; i < MESSAGE_DRIVERS_N; i++) {
        if (messenger->states[i] != NULL)
            drivers[i]->close(messenger->states[i]);
        messenger->states[i] = NULL;
    }
}

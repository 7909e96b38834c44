/* ucx_choose — TCP, or UCX where every rank has a network for it that needs no TCP, or was told
 * so. */
#include "comm/ucx_choose.h"

#include <string.h>

#include "base/log.h"
#include "base/must.h"
#include "base/text.h"
#include "comm/ucx_setup_env.h"

/* How a rank's address begins; those of the drivers follow, in their order. */
struct card {
    uint8_t magic, net;
    uint16_t bytes[UCX_DRIVERS_N];
};
#define CARD_MAGIC 0xc5

static const struct ucx_driver *const drivers[UCX_DRIVERS_N] = {&tcp_driver, &ucx_ucp_driver};
static const char *const net_names[] = {"auto", "tcp", "ucx"};

/* Without UCX nothing is lost where TCP may be taken: why is said on this rank. */
static enum status open_ucp(struct ucx *ucx)
{
    void **state = &ucx->states[UCX_DRIVER_UCP];
    enum status st = ucx_ucp_driver.open(&ucx->config, state);
    if (st == ST_OK || ucx->config.net == UCX_NET_UCX)
        return st;
    LOG_INFO("no UCX on this rank: %s", status_message());
    status_clear();
    if (*state != NULL)
        ucx_ucp_driver.close(*state);
    *state = NULL;
    return ST_OK;
}

enum status ucx_choose_open(struct ucx *ucx)
{
    enum ucx_net net = ucx->config.net;
    bool has_rdma = ucx_setup_env_has_rdma(), asks_tcp = ucx_setup_env_asks_tcp();
    if (net == UCX_NET_UCX && !has_rdma && !ucx_setup_env_has_transports())
        return FAIL(
            ST_NO_DEVICE,
            "BACKEND=ucx: this node has no InfiniBand or RoCE device; use BACKEND=auto or tcp, or "
            "UCX_TLS=tcp,self if UCX is to use TCP, which believes whatever reaches its ports");
    if (net != UCX_NET_UCX)
        TRY(tcp_driver.open(&ucx->config, &ucx->states[UCX_DRIVER_TCP]));
    if (net == UCX_NET_UCX || (net == UCX_NET_AUTO && (has_rdma || asks_tcp)))
        TRY(open_ucp(ucx));
    return ST_OK;
}

enum status ucx_choose_pack(struct ucx *ucx, bool is_near, void *out, int64_t cap,
                            int64_t *bytes_out)
{
    struct card card = {.magic = CARD_MAGIC, .net = (uint8_t)ucx->config.net};
    int64_t at = (int64_t)sizeof(card), bytes;
    for (int i = 0; i < UCX_DRIVERS_N; i++) {
        if (ucx->states[i] == NULL)
            continue;
        TRY(drivers[i]->address(ucx->states[i], is_near, (char *)out + at, cap - at, &bytes));
        card.bytes[i] = (uint16_t)bytes;
        at += bytes;
    }
    memcpy(out, &card, sizeof(card));
    *bytes_out = at;
    return ST_OK;
}

/* What other ranks sent is not trusted to be whole. */
static enum status read_card(const struct ucx_world *world, int rank, struct card *out)
{
    int64_t bytes = world->bytes[rank], sum = (int64_t)sizeof(*out);
    *out = (struct card){0};
    if (bytes == 0)
        return FAIL(ST_PEER, "rank %d has sent no address", rank);
    if (bytes >= sum && bytes <= world->stride)
        memcpy(out, (const char *)world->addresses + rank * world->stride, sizeof(*out));
    for (int i = 0; i < UCX_DRIVERS_N; i++)
        sum += out->bytes[i];
    if (out->magic != CARD_MAGIC || sum != bytes || out->net > UCX_NET_UCX)
        return FAIL(ST_PEER, "the address of rank %d (%lld bytes) cannot be read", rank,
                    (long long)bytes);
    return ST_OK;
}

const void *ucx_choose_address(const struct ucx *ucx, const struct ucx_world *world, int rank,
                               int64_t *bytes_out)
{
    struct card card;
    if (read_card(world, rank, &card) != ST_OK) {
        status_clear();
        return NULL;
    }
    int64_t at = (int64_t)sizeof(card);
    int mine = ucx->driver == &tcp_driver ? UCX_DRIVER_TCP : UCX_DRIVER_UCP;
    for (int i = 0; i < mine; i++)
        at += card.bytes[i];
    *bytes_out = card.bytes[mine];
    return card.bytes[mine] > 0 ? (const char *)world->addresses + rank * world->stride + at : NULL;
}

/* The first rank without UCX, or -1. */
static enum status find_without(struct ucx *ucx, const struct ucx_world *world, int *out)
{
    struct card card;
    *out = -1;
    for (int r = 0; r < world->ranks; r++) {
        if (r != world->rank && !world->is_peer[r])
            continue;
        TRY(read_card(world, r, &card));
        if (card.net != (uint8_t)ucx->config.net)
            return FAIL(ST_DISAGREE,
                        "rank %d has BACKEND=%s, rank %d %s; give all nodes the same BACKEND", r,
                        net_names[card.net], world->rank, net_names[ucx->config.net]);
        if (card.bytes[UCX_DRIVER_UCP] == 0 && *out < 0)
            *out = r;
    }
    return ST_OK;
}

static void say_why(struct ucx *ucx, int without)
{
    if (ucx->config.net != UCX_NET_AUTO)
        return;
    if (without < 0)
        text_copy(ucx->why, sizeof(ucx->why),
                  ucx_setup_env_asks_tcp() ? "UCX_TLS names tcp"
                                           : "every rank has an InfiniBand or RoCE device");
    else
        text_format(ucx->why, sizeof(ucx->why), "rank %d has no InfiniBand or RoCE device",
                    without);
}

enum status ucx_choose_take(struct ucx *ucx, const struct ucx_world *world)
{
    int without;
    TRY(find_without(ucx, world, &without));
    int taken = ucx->config.net == UCX_NET_TCP || without >= 0 ? UCX_DRIVER_TCP : UCX_DRIVER_UCP;
    say_why(ucx, without);
    if (ucx->states[taken] == NULL)
        return FAIL(ST_PEER, "rank %d has sent no address for %s", without,
                    net_names[ucx->config.net]);
    ucx->driver = drivers[taken];
    ucx->state = ucx->states[taken];
    ucx->states[taken] = NULL;
    ucx_choose_close(ucx);
    ucx->states[taken] = ucx->state;
    return ST_OK;
}

void ucx_choose_close(struct ucx *ucx)
{
    for (int i = 0; i < UCX_DRIVERS_N; i++) {
        if (ucx->states[i] != NULL)
            drivers[i]->close(ucx->states[i]);
        ucx->states[i] = NULL;
    }
}

bool ucx_choose_reaches_gpu(const struct ucx *ucx)
{
    const void *state = ucx->states[UCX_DRIVER_UCP];
    return state != NULL && ucx_ucp_reaches_gpu(state);
}

/* ucx_connect — an endpoint to every peer, and the first message each way: who is there, of which life of the job.
 * Must not know what is sent later. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/must.h"
#include "base/text.h"
#include "comm/ucx_inside.h"

static enum status open_endpoint(struct ucx *ucx, struct ucx_peer *peer, const void *address)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = ucx_on_lost, .arg = peer},
    };
    ucs_status_t status = ucp_ep_create(ucx->worker, &params, &peer->ep);
    if (status == UCS_OK)
        return ST_OK;
    peer->ep = NULL;
    return ucx_fail_unreached(peer->rank, status);
}

static enum status check_hello(const struct ucx *ucx, const struct ucx_peer *peer)
{
    const struct ucx_hello *mine = &ucx->mine, *theirs = &peer->theirs;
    if (peer->heard.bytes == (int64_t)sizeof(*theirs) && theirs->magic == mine->magic &&
        theirs->generation == mine->generation && theirs->rank == peer->rank && theirs->ranks == ucx->ranks)
        return ST_OK;
    return FAIL(ST_PEER,
                "rank %d greets as rank %d of %d, generation %lld; expected rank %d of %d, generation %lld; a process "
                "of another life of the job, which will leave by itself",
                peer->rank, theirs->rank, theirs->ranks, (long long)theirs->generation, peer->rank, ucx->ranks,
                (long long)mine->generation);
}

/* Everybody greets every peer: connections stand before the first call, and a peer's end is noticed from now on. */
static enum status greet(struct ucx *ucx, struct ucx_watch watch)
{
    struct ucx_wait wait = {.watch = watch};
    for (int i = 1; i < ucx->ranks; i++) {
        struct ucx_peer *peer = &ucx->peers[(ucx->rank + i) % ucx->ranks];
        if (peer->ep == NULL)
            continue;
        struct ucx_tag hello = {.group = UCX_HELLO_GROUP, .from = peer->rank}, bye = hello;
        bye.sequence = 1;
        peer->left.is_bye = peer->leaving.is_bye = true;
        TRY(ucx_recv(ucx, &peer->left, &peer->bye, sizeof(peer->bye), bye));
        TRY(ucx_recv(ucx, &peer->heard, &peer->theirs, sizeof(peer->theirs), hello));
        TRY(ucx_send(ucx, &peer->greeted, &ucx->mine, sizeof(ucx->mine), peer->rank, hello));
    }
    for (int i = 0; i < ucx->ranks; i++) {
        struct ucx_peer *peer = &ucx->peers[i];
        if (peer->ep == NULL)
            continue;
        while (!ucx_is_done(&peer->greeted) || !ucx_is_done(&peer->heard))
            TRY(ucx_pump(ucx, &wait));
        TRY(check_hello(ucx, peer));
    }
    return ST_OK;
}

/* "tcp/lo" and the like, from what UCX prints of an endpoint: there is no call that tells. */
static void find_name(struct ucx *ucx)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    for (int i = 0; out != NULL && i < ucx->ranks; i++) {
        if (ucx->peers[i].ep != NULL) {
            ucp_ep_print_info(ucx->peers[i].ep, out);
            break;
        }
    }
    if (out != NULL)
        fclose(out);
    const char *lane = text != NULL ? strstr(text, "lane[0]:") : NULL;
    const char *colon = lane != NULL ? strchr(lane + 8, ':') : NULL;
    if (colon != NULL)
        text_format(ucx->name, sizeof(ucx->name), "%.*s", (int)strcspn(colon + 1, " ."), colon + 1);
    free(text);
}

enum status ucx_connect(struct ucx *ucx, const struct ucx_world *world, struct ucx_watch watch)
{
    int rank = world->rank, ranks = world->ranks;
    ASSERTF(ucx->peers == NULL && ranks <= UCX_RANKS_MAX && rank < ranks, "rank %d of %d", rank, ranks);
    ucx->peers = calloc((size_t)ranks, sizeof(*ucx->peers));
    if (ucx->peers == NULL)
        return FAIL(ST_RETRY, "out of memory: connections to %d ranks", ranks);
    ucx->rank = rank;
    ucx->ranks = ranks;
    ucx->mine = (struct ucx_hello){UCX_HELLO_MAGIC, world->generation, rank, ranks, world->offers_gpu, 0};
    enum status st = ST_OK;
    for (int i = 0; i < ranks; i++)
        ucx->peers[i] = (struct ucx_peer){.ucx = ucx, .rank = i};
    for (int i = 0; i < ranks && st == ST_OK; i++) {
        if (i == rank || !world->is_peer[i])
            continue;
        st = world->bytes[i] > 0
                 ? open_endpoint(ucx, &ucx->peers[i], (const char *)world->addresses + i * world->stride)
                 : FAIL(ST_PEER, "rank %d has sent no address", i);
    }
    if (st == ST_OK)
        st = greet(ucx, watch);
    if (st == ST_OK)
        find_name(ucx);
    return st;
}

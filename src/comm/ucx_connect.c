/* ucx_connect — a connection to every peer, and the first message each way: which rank, of which
 * generation of the job. Must not know what is sent later. */
#include <stdlib.h>

#include "base/must.h"
#include "comm/ucx_choose.h"

static enum status reach(struct ucx *ucx, const struct ucx_world *world, int rank)
{
    struct ucx_peer *peer = &ucx->peers[rank];
    int64_t bytes;
    const void *address = ucx_choose_address(ucx, world, rank, &bytes);
    if (address == NULL)
        return FAIL(ST_PEER, "rank %d has sent no address", rank);
    const char *why = ucx->driver->reach(ucx, peer, address, bytes);
    peer->is_linked = why == NULL;
    return why == NULL ? ST_OK : ucx_fail_unreached(ucx, rank, why);
}

static enum status check_hello(const struct ucx *ucx, const struct ucx_peer *peer)
{
    const struct ucx_hello *mine = &ucx->mine, *theirs = &peer->theirs;
    if (peer->heard.bytes == (int64_t)sizeof(*theirs) && theirs->magic == mine->magic &&
        theirs->generation == mine->generation && theirs->rank == peer->rank &&
        theirs->ranks == ucx->ranks)
        return ST_OK;
    return FAIL(ST_PEER,
                "rank %d greets as rank %d of %d, generation %lld; expected rank %d of %d, "
                "generation %lld; a process of another life of the job, which will leave by itself",
                peer->rank, theirs->rank, theirs->ranks, (long long)theirs->generation, peer->rank,
                ucx->ranks, (long long)mine->generation);
}

/* Everybody greets every peer: connections stand before the first call, and a peer's end is noticed
 * from now on. */
static enum status greet(struct ucx *ucx, struct ucx_watch watch)
{
    struct ucx_wait wait = {.watch = watch};
    for (int i = 1; i < ucx->ranks; i++) {
        struct ucx_peer *peer = &ucx->peers[(ucx->rank + i) % ucx->ranks];
        if (!peer->is_linked)
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
        if (!peer->is_linked)
            continue;
        while (!ucx_is_done(&peer->greeted) || !ucx_is_done(&peer->heard))
            TRY(ucx_pump(ucx, &wait));
        TRY(check_hello(ucx, peer));
    }
    return ST_OK;
}

static enum status connect_all(struct ucx *ucx, const struct ucx_world *world,
                               struct ucx_watch watch)
{
    TRY(ucx_choose_take(ucx, world));
    ucx->mine.offers_gpu = world->offers_gpu && ucx_choose_reaches_gpu(ucx);
    for (int i = 0; i < ucx->ranks; i++)
        if (i != ucx->rank && world->is_peer[i])
            TRY(reach(ucx, world, i));
    TRY(greet(ucx, watch));
    ucx->driver->describe(ucx, ucx->name, sizeof(ucx->name));
    return ST_OK;
}

enum status ucx_connect(struct ucx *ucx, const struct ucx_world *world, struct ucx_watch watch)
{
    int rank = world->rank, ranks = world->ranks;
    ASSERTF(ucx->peers == NULL && ranks <= UCX_RANKS_MAX && rank < ranks, "rank %d of %d", rank,
            ranks);
    struct ucx_peer *peers = calloc((size_t)ranks, sizeof(*peers));
    if (peers == NULL)
        return FAIL(ST_RETRY, "out of memory: connections to %d ranks", ranks);
    ucx->rank = rank;
    ucx->ranks = ranks;
    ucx->mine = (struct ucx_hello){UCX_HELLO_MAGIC, world->generation, rank, ranks, 0, 0};
    ucx->secret = world->secret;
    for (int i = 0; i < ranks; i++)
        peers[i] = (struct ucx_peer){.ucx = ucx, .rank = i};
    ucx->peers = peers;
    enum status st = connect_all(ucx, world, watch);
    ucx->secret = NULL; /* each connection has keys of its own now */
    return st;
}

/* p2p_connect — connects to every peer and exchanges HELLO messages: rank and generation of each
 * side. Must not know later messages. */
#include "base/assert.h"
#include "base/memory.h"
#include "comm/message/choose.h"

static enum status check_hello(const struct p2p *p2p, const struct p2p_peer *peer)
{
    const struct p2p_hello *mine = &p2p->mine, *theirs = &peer->theirs;
    if (peer->hello_recv.bytes == (int64_t)sizeof(*theirs) && theirs->magic == mine->magic &&
        theirs->generation == mine->generation && theirs->rank == peer->rank &&
        theirs->ranks == p2p->ranks)
        return ST_OK;
    return FAIL(ST_PEER,
                "the process at the address of rank %d is rank %d of %d, generation %lld; expected "
                "rank %d of %d, generation %lld; it is of another generation of the job and will "
                "end by itself",
                peer->rank, theirs->rank, theirs->ranks, (long long)theirs->generation, peer->rank,
                p2p->ranks, (long long)mine->generation);
}

/* Every rank sends HELLO to every peer: so connections stand before the first call, and the end of
 * a peer is noticed from now on. */
static enum status exchange_hellos(struct p2p *p2p, struct p2p_watch watch)
{
    struct p2p_wait wait = {.watch = watch};
    for (int i = 1; i < p2p->ranks; i++) {
        struct p2p_peer *peer = &p2p->peers[(p2p->rank + i) % p2p->ranks];
        if (!peer->is_connected)
            continue;
        struct p2p_tag hello = {.group = P2P_HELLO_GROUP, .from = peer->rank}, goaway = hello;
        goaway.sequence = 1;
        peer->goaway_recv.is_goaway = peer->goaway_send.is_goaway = true;
        TRY(p2p_recv(p2p, &peer->goaway_recv, &peer->goaway_cause, sizeof(peer->goaway_cause),
                     goaway));
        TRY(p2p_recv(p2p, &peer->hello_recv, &peer->theirs, sizeof(peer->theirs), hello));
        TRY(p2p_send(p2p, &peer->hello_send, &p2p->mine, sizeof(p2p->mine), peer->rank, hello));
    }
    for (int i = 0; i < p2p->ranks; i++) {
        struct p2p_peer *peer = &p2p->peers[i];
        if (!peer->is_connected)
            continue;
        while (!p2p_is_done(&peer->hello_send) || !p2p_is_done(&peer->hello_recv))
            TRY(p2p_progress(p2p, &wait));
        TRY(check_hello(p2p, peer));
    }
    return ST_OK;
}

static enum status connect_all(struct p2p *p2p, const struct p2p_world *world,
                               struct p2p_watch watch)
{
    TRY(p2p_choose_select(p2p, world));
    p2p->mine.offers_gpu = world->offers_gpu && p2p_choose_supports_gpu(p2p);
    for (int i = 0; i < p2p->ranks; i++)
        if (i != p2p->rank && world->is_peer[i]) {
            struct p2p_peer *peer = &p2p->peers[i];
            int64_t bytes;
            const void *address = p2p_choose_address(p2p, world, i, &bytes);
            if (address == NULL)
                return FAIL(ST_PEER, "rank %d has sent no address", i);
            const char *why = p2p->driver->connect(p2p, peer, address, bytes);
            peer->is_connected = why == NULL;
            TRY(why == NULL ? ST_OK : p2p_fail_unreachable(p2p, i, why));
        }
    TRY(exchange_hellos(p2p, watch));
    p2p->driver->describe(p2p, p2p->name, sizeof(p2p->name));
    return ST_OK;
}

enum status p2p_connect(struct p2p *p2p, const struct p2p_world *world, struct p2p_watch watch)
{
    int rank = world->rank, ranks = world->ranks;
    ASSERTF(p2p->peers == NULL && ranks <= P2P_RANKS_MAX && rank < ranks, "rank %d of %d", rank,
            ranks);
    struct p2p_peer *peers = memory_new((size_t)ranks, sizeof(*peers));
    p2p->rank = rank;
    p2p->ranks = ranks;
    p2p->mine = (struct p2p_hello){.magic = P2P_HELLO_MAGIC,
                                   .generation = world->generation,
                                   .rank = rank,
                                   .ranks = ranks,
                                   .shares_cores = p2p->config.shares_cores};
    p2p->secret = world->secret;
    for (int i = 0; i < ranks; i++)
        peers[i] = (struct p2p_peer){.p2p = p2p, .rank = i};
    p2p->peers = peers;
    enum status st = connect_all(p2p, world, watch);
    p2p->secret = NULL; /* each connection has keys of its own now */
    return st;
}

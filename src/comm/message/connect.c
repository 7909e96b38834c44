/* message_connect — connects to every peer and exchanges HELLO messages: rank and generation of
 * each side. Must not know later messages. */
#include "base/assert.h"
#include "base/memory.h"
#include "comm/message/inside.h"

static enum status check_hello(const struct messenger *messenger, const struct message_peer *peer)
{
    const struct message_hello *mine = &messenger->mine, *theirs = &peer->theirs;
    if (peer->hello_recv.bytes == (int64_t)sizeof(*theirs) && theirs->magic == mine->magic &&
        theirs->generation == mine->generation && theirs->rank == peer->rank &&
        theirs->ranks == messenger->ranks)
        return ST_OK;
    return FAIL(ST_PEER,
                "the process at the address of rank %d is rank %d of %d, generation %lld; expected "
                "rank %d of %d, generation %lld; it is of another generation of the job and will "
                "end by itself",
                peer->rank, theirs->rank, theirs->ranks, (long long)theirs->generation, peer->rank,
                messenger->ranks, (long long)mine->generation);
}

/* Sends HELLO to every peer: so connections are established before the first call, and the end of a
 * peer is detected from now on. */
static enum status exchange_hellos(struct messenger *messenger, struct message_watch watch)
{
    struct message_wait wait = {.watch = watch};
    for (int i = 1; i < messenger->ranks; i++) {
        struct message_peer *peer = &messenger->peers[(messenger->rank + i) % messenger->ranks];
        if (!peer->is_connected)
            continue;
        struct message_tag hello = {.group = MESSAGE_HELLO_GROUP, .from = peer->rank},
                           goaway = hello;
        goaway.sequence = 1;
        peer->goaway_recv.is_goaway = peer->goaway_send.is_goaway = true;
        TRY(messenger_recv(messenger, &peer->goaway_recv, &peer->goaway_cause,
                           sizeof(peer->goaway_cause), goaway));
        TRY(messenger_recv(messenger, &peer->hello_recv, &peer->theirs, sizeof(peer->theirs),
                           hello));
        TRY(messenger_send(messenger, &peer->hello_send, &messenger->mine, sizeof(messenger->mine),
                           peer->rank, hello));
    }
    for (int i = 0; i < messenger->ranks; i++) {
        struct message_peer *peer = &messenger->peers[i];
        if (!peer->is_connected)
            continue;
        while (!messenger_is_done(&peer->hello_send) || !messenger_is_done(&peer->hello_recv))
            TRY(messenger_progress(messenger, &wait));
        TRY(check_hello(messenger, peer));
    }
    return ST_OK;
}

static enum status connect_all(struct messenger *messenger, const struct message_world *world,
                               struct message_watch watch)
{
    TRY(message_choose_select(messenger, world));
    messenger->mine.offers_gpu = world->offers_gpu && messenger_supports_gpu(messenger);
    for (int i = 0; i < messenger->ranks; i++)
        if (i != messenger->rank && world->is_peer[i]) {
            struct message_peer *peer = &messenger->peers[i];
            int64_t bytes;
            const void *address = message_choose_address(messenger, world, i, &bytes);
            if (address == NULL)
                return FAIL(ST_PEER, "rank %d has sent no address", i);
            const char *why = messenger->driver->connect(messenger, peer, address, bytes);
            peer->is_connected = why == NULL;
            TRY(why == NULL ? ST_OK : messenger_fail_unreachable(messenger, i, why));
        }
    TRY(exchange_hellos(messenger, watch));
    messenger->driver->describe(messenger, messenger->name, sizeof(messenger->name));
    return ST_OK;
}

enum status message_connect(struct messenger *messenger, const struct message_world *world,
                            struct message_watch watch)
{
    int rank = world->rank, ranks = world->ranks;
    ASSERTF(messenger->peers == NULL && ranks <= MESSAGE_RANKS_MAX && rank < ranks, "rank %d of %d",
            rank, ranks);
    struct message_peer *peers = memory_new((size_t)ranks, sizeof(*peers));
    messenger->rank = rank;
    messenger->ranks = ranks;
    messenger->mine = (struct message_hello){.magic = MESSAGE_HELLO_MAGIC,
                                             .generation = world->generation,
                                             .rank = rank,
                                             .ranks = ranks,
                                             .shares_cores = messenger->config.shares_cores};
    messenger->secret = world->secret;
    for (int i = 0; i < ranks; i++)
        peers[i] = (struct message_peer){.messenger = messenger, .rank = i};
    messenger->peers = peers;
    enum status st = connect_all(messenger, world, watch);
    messenger->secret = NULL; /* from now on each connection has its own keys */
    return st;
}

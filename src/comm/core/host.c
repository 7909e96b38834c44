/* comm_host — a second comm of the same ranks over the HOST transport, with a queue thread and
 * connections of its own, for host memory that is sent while the device executes the first comm's
 * calls. Its addresses are exchanged through the first comm. Must not know the meaning of the
 * data. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/core/inside.h"
#include "comm/core/part.h"

/* The address of a rank, as ranks exchange it. */
struct host_address {
    _Alignas(16) int64_t bytes; /* -1: the rank has none */
    char data[COMM_ADDRESS_MAX];
};
_Static_assert(sizeof(struct host_address) % PART_ALIGN == 0, "parts of an all-gather are equal");

/* Begins the comm, and packs this rank's address. A rank without a network logs the reason. */
static void begin_open(struct comm *comm, struct comm **out, struct host_address *own)
{
    struct comm_config config = comm->ctx.config;
    config.kind = COMM_KIND_HOST;
    config.dev = NULL;
    if (comm_begin_open(&config, out, own->data, &own->bytes) == ST_OK)
        return;
    own->bytes = -1;
    LOG_WARN("rank %d cannot send host memory next to %s: %s", config.place.rank,
             comm_backend(comm), status_message());
    status_clear();
}

/* Connects the ranks. *host NULL: some rank has no address. */
static enum status end_open(struct comm *comm, struct comm **host, const struct host_address *all)
{
    const size_t ranks = (size_t)comm_place(comm)->ranks;
    char *addresses = memory_new(ranks, COMM_ADDRESS_MAX);
    int64_t *bytes = memory_new(ranks, sizeof *bytes);
    bool are_complete = true;
    for (size_t rank = 0; rank < ranks; rank++) {
        bytes[rank] = all[rank].bytes;
        memcpy(addresses + rank * COMM_ADDRESS_MAX, all[rank].data, COMM_ADDRESS_MAX);
        are_complete = are_complete && bytes[rank] >= 0 && bytes[rank] <= COMM_ADDRESS_MAX;
    }
    if (!are_complete) {
        comm_close(*host);
        *host = NULL;
    }
    enum status st =
        are_complete ? comm_end_open(*host, comm->ctx.generation, addresses, bytes) : ST_OK;
    free(addresses);
    free(bytes);
    return st;
}

enum status comm_open_host(struct comm *comm)
{
    const struct comm_place *place = comm_place(comm);
    if (!comm_stays_on_device(comm) || place->ranks == 1)
        return ST_OK;
    struct host_address *all =
        aligned_alloc(_Alignof(struct host_address), (size_t)place->ranks * sizeof *all);
    struct comm *host = NULL;
    if (all == NULL)
        return FAIL(ST_RETRY, "out of memory: the addresses of %d ranks", place->ranks);
    memset(all, 0, (size_t)place->ranks * sizeof *all);
    begin_open(comm, &host, &all[place->rank]);
    enum status st = comm_all_gather(comm, (struct tensor){all, DTYPE_U8},
                                     (struct tensor){&all[place->rank], DTYPE_U8},
                                     place->ranks * (int64_t)sizeof *all);
    if (st == ST_OK)
        st = end_open(comm, &host, all);
    comm->root->host = host; /* after a failure comm_close closes it, too */
    free(all);
    return st;
}

struct comm *comm_host(struct comm *comm)
{
    return comm_stays_on_device(comm) ? comm->root->host : comm;
}

/* generations — see generations.h. Read generations_run first, at the foot. */
#include "node/worker/generations.h"

#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"
#include "node/worker/comm_heartbeat.h"

#define WORLD_POLL_MS 2
#define LINKS_POLL_MS 250
#define NETWORK_WAIT_MS (10 * 1000)
#define NETWORK_POLL_MS 20
/* ranks that have not connected after this time stop on request: there is no step to finish */
#define CONNECT_STOP_MS 3000
#define CONNECT_WARN_MS 15000
#define OPEN_RETRY_MS 250

/* The beginning of a worker's address; the address of its comm follows. */
struct address_header {
    uint64_t data, val_data;
};

struct generations {
    const struct generations_config *config;
    /* place in the current generation; before the first one: among all nodes */
    struct comm_place place;
    struct comm_heartbeat *heartbeat;
    int64_t after;              /* the worker waits for a generation later than this one */
    _Atomic int64_t generation; /* current generation; 0: none */
    int usable_expected;        /* usable addresses of this node when all its links are up */
    uint64_t links;   /* hash of the node's network devices when the address was published */
    int64_t links_ms; /* time at which the hash was last computed */
    struct board_ready ready;
    struct comm *comm; /* open comm, whose address is in `ready` */
    /* The previous communicator and its address: a world may have been made from that address while
     * the next communicator was opened. NULL: none. */
    struct comm *older;
    struct board_address older_address;
    char reached[64];            /* reached address that the comm's address uses; "": none */
    struct board_address *world; /* addresses of all ranks */
    char *addresses; /* the addresses of the ranks' comms: ranks × COMM_ADDRESS_MAX bytes */
    int64_t *bytes;
    /* secret of the generation; wiped after its ranks have connected */
    uint8_t secret[BOARD_SECRET_BYTES];
    bool has_run;
    /* time since which the ranks of this world have been connecting; 0: they are not connecting */
    _Atomic int64_t connecting_ms;
    atomic_bool has_warned_connecting, is_stopped_connecting;
};

/* is_stopped_while_connecting — returns true if a stop was requested while the ranks connect.
 * Called on the connecting thread. */
static bool is_stopped_while_connecting(struct generations *g)
{
    if (g->connecting_ms == 0 || clock_ms() - g->connecting_ms < CONNECT_STOP_MS)
        return false;
    if (!g->has_warned_connecting && g->config->comm.place.local == 0 &&
        clock_ms() - g->connecting_ms >= CONNECT_WARN_MS) {
        /* The supervisors are connected; otherwise there would be no world. */
        g->has_warned_connecting = true;
        LOG_WARN("the workers have not connected to each other for %d s%s", CONNECT_WARN_MS / 1000,
                 g->config->comm.place.nodes > 1
                     ? ", although the nodes have, at MASTER_PORT: workers use other ports; check "
                       "firewalls between the nodes, and the network that DATA_ADDR, "
                       "UCX_NET_DEVICES or NCCL_SOCKET_IFNAME selects"
                     : "");
    }
    g->is_stopped_connecting = g->config->stopped(g->config->arg) != ST_OK;
    status_clear();
    return g->is_stopped_connecting;
}

/* is_over — returns true if the supervisor has ended the generation, or a stop was requested. */
static bool is_over(struct generations *g)
{
    int64_t generation = atomic_load_explicit(&g->generation, memory_order_relaxed);
    return generation > 0 &&
           (board_aborted(g->config->board) >= generation || is_stopped_while_connecting(g));
}

/* is_broken — returns true if `rehearse` lets this rank's collectives fail. */
static bool is_broken(const struct generations *g)
{
    int64_t generation = atomic_load_explicit(&g->generation, memory_order_relaxed);
    return generation > 0 && board_broken(g->config->board, g->config->worker_i) >= generation;
}

static bool is_aborted(void *arg)
{
    struct generations *g = arg;
    return is_over(g) || is_broken(g);
}

/* limit_ms — returns the present limit of a collective. A collective may wait for another rank's
 * step, and the duration of steps can be measured only while they run. */
static int64_t limit_ms(void *arg)
{
    const struct generations *g = arg;
    struct board_node node;
    board_node_copy(g->config->board, &node);
    return node.limit_ms + g->config->extra_ms;
}

static struct comm_config comm_config_of(struct generations *g)
{
    struct comm_config config = g->config->comm;
    if (config.place.ranks == 1)
        config.kind = COMM_KIND_SELF;
    if (g->reached[0])
        config.data_addr = g->reached;
    config.limit_ms = limit_ms;
    config.is_aborted = is_aborted;
    config.arg = g;
    config.secret = g->secret;
    return config;
}

/* ---- connecting the ranks ---- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (const uint8_t *at = bytes; n > 0; n--)
        hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash;
}

/* links_now — returns a hash that changes when a network device appears, disappears or gets another
 * address, and the number of addresses that lead out of this node. An address that was published
 * while a cable was unplugged leads nowhere when the cable is back. */
static uint64_t links_now(int *usable_out)
{
    struct ifaddrs *list;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    *usable_out = 0;
    if (getifaddrs(&list) != 0)
        return 0;
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        unsigned flags = at->ifa_flags & (IFF_UP | IFF_RUNNING);
        int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
        hash = hash_bytes(hash, at->ifa_name, strlen(at->ifa_name));
        hash = hash_bytes(hash, &flags, sizeof flags);
        if (family != AF_INET && family != AF_INET6)
            continue;
        *usable_out += flags == (IFF_UP | IFF_RUNNING) && !(at->ifa_flags & IFF_LOOPBACK);
        hash = hash_bytes(hash, at->ifa_addr,
                          family == AF_INET ? sizeof(struct sockaddr_in)
                                            : sizeof(struct sockaddr_in6));
    }
    freeifaddrs(list);
    return hash;
}

/* has_new_links — returns true if the network devices have changed, or if other nodes reach this
 * one at another address than the published one. Called often; reads the devices every
 * LINKS_POLL_MS. */
static bool has_new_links(struct generations *g)
{
    if (g->config->comm.place.nodes == 1 || clock_ms() - g->links_ms < LINKS_POLL_MS)
        return false;
    struct board_node node;
    int usable;
    g->links_ms = clock_ms();
    board_node_copy(g->config->board, &node);
    return links_now(&usable) != g->links || (g->reached[0] && strcmp(g->reached, node.reached));
}

/* begin_open — opens a communicator. By default its address is the source address of the route to
 * MASTER_ADDR. If that is loopback on node 0, or was not found before, it is the address at which
 * other nodes have reached node 0. */
static enum status begin_open(struct generations *g, bool has_failed, void *address, int64_t *bytes)
{
    const struct generations_config *c = g->config;
    ASSERT(g->comm == NULL && g->generation == 0);
    const bool may_use = c->needs_reached || (has_failed && c->comm.place.node == 0 &&
                                              !(c->comm.data_addr && c->comm.data_addr[0]));
    struct board_node node;
    board_node_copy(c->board, &node);
    text_copy(g->reached, sizeof g->reached, may_use ? node.reached : "");
    if (c->needs_reached && !g->reached[0])
        return FAIL(ST_RETRY,
                    "MASTER_ADDR=%s is a loopback address on this node (see /etc/hosts), and no "
                    "other node has connected yet to show at which address it reaches this one",
                    c->comm.master);
    const struct comm_config config = comm_config_of(g);
    TRY(comm_begin_open(&config, &g->comm, address, bytes));
    if (g->reached[0] && c->comm.place.local == 0)
        LOG_INFO(
            "MASTER_ADDR=%s does not lead to this node's network: its workers listen at %s, where "
            "other nodes have reached it",
            c->comm.master, g->reached);
    return ST_OK;
}

/* begin_open_retrying — opens a communicator, and retries while there is no route to node 0 (a
 * cable is unplugged, a name is not published yet). A transport that must know its own address
 * cannot be opened before. Node 0 ends the job itself if no other node connects. */
static enum status begin_open_retrying(struct generations *g, void *address, int64_t *bytes)
{
    const struct generations_config *c = g->config;
    int64_t begin_ms = clock_ms(), warned_ms = 0;
    for (bool has_failed = false;; has_failed = true) {
        enum status st = begin_open(g, has_failed, address, bytes);
        if (st != ST_RETRY || c->comm.place.nodes == 1)
            return st;
        if (clock_ms() - begin_ms >= c->join_timeout_ms && (g->reached[0] || !c->needs_reached)) {
            /* No address was found in time. Before the first world this is a wrong setting; later a
             * cable may be unplugged. */
            char span[32], why[768];
            text_copy(why, sizeof why, status_message());
            return FAIL(g->after == 0 ? ST_BAD_SETTING : ST_RETRY,
                        "the workers of this node found no network address for %s (JOIN_TIMEOUT): "
                        "%s; correct "
                        "MASTER_ADDR, or set DATA_ADDR to an interface or address of this node",
                        text_format_span(span, sizeof span, g->config->join_timeout_ms), why);
        }
        if (warned_ms == 0 && clock_ms() - begin_ms > CONNECT_STOP_MS) {
            warned_ms = clock_ms();
            LOG_WARN("waiting for a network: %s", status_message());
        }
        status_clear();
        TRY(c->stopped(c->arg));
        c->wait(c->arg, !g->has_run);
        clock_sleep_ms(OPEN_RETRY_MS);
    }
}

/* publish_address — opens a communicator and publishes its address on the board. */
static enum status publish_address(struct generations *g)
{
    ASSERTF(g->generation == 0 && (g->older == NULL || g->comm != NULL), "generation %lld",
            (long long)g->generation);
    struct address_header address_header = {g->config->data, g->config->val_data};
    struct board_address *mine = &g->ready.address;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
    int usable;
    /* The communicator stays open while the next one is opened, because a world that is made
     * meanwhile may contain its address. On one node addresses do not change, and the memory is
     * shared. */
    comm_close(g->older);
    g->older = g->comm;
    g->older_address = g->ready.address;
    g->comm = NULL;
    if (g->config->comm.place.nodes == 1) {
        comm_close(g->older);
        g->older = NULL;
    }
    g->links = links_now(&usable);
    g->links_ms = clock_ms();
    TRY(begin_open_retrying(g, address, &bytes));
    if (bytes + (int64_t)sizeof address_header > BOARD_ADDRESS_MAX)
        return FAIL(ST_NO_DEVICE,
                    "this node's network address has %" PRId64
                    " bytes, more than %zu: the node has many network devices; choose some with "
                    "UCX_NET_DEVICES",
                    bytes, BOARD_ADDRESS_MAX - sizeof address_header);
    memcpy(mine->data, &address_header, sizeof address_header);
    memcpy(mine->data + sizeof address_header, address, (size_t)bytes);
    mine->bytes = bytes + (int64_t)sizeof address_header;
    g->ready.after = g->after;
    g->ready.revision++;
    board_ready_publish(g->config->board, g->config->worker_i, &g->ready);
    ASSERT(g->comm != NULL && mine->bytes <= BOARD_ADDRESS_MAX);
    return ST_OK;
}

/* wait_for_world — waits until there is a world, or until the published address is stale
 * (*is_old_out). */
static enum status wait_for_world(struct generations *g, bool *is_old_out)
{
    const struct generations_config *c = g->config;
    struct board_world_place world;
    *is_old_out = false;
    ASSERT(g->comm != NULL && g->generation == 0 && g->ready.after == g->after);
    while (!board_world_copy(c->board, g->after, &world, g->world)) {
        TRY(c->stopped(c->arg));
        *is_old_out = board_aborted(c->board) > g->after || has_new_links(g);
        if (*is_old_out) {
            g->after = board_aborted(c->board) > g->after ? board_aborted(c->board) : g->after;
            return ST_OK;
        }
        c->wait(c->arg, !g->has_run);
        clock_sleep_ms(WORLD_POLL_MS);
    }
    /* This rank's place in the world, which the supervisor has checked. */
    struct comm_place place = c->comm.place;
    ASSERTF(world.generation > g->after && world.nodes >= 1 && world.nodes <= place.nodes &&
                world.node >= 0 && world.node < world.nodes,
            "generation %lld after %lld, node %d of %d, %d in all", (long long)world.generation,
            (long long)g->after, world.node, world.nodes, place.nodes);
    place.nodes = world.nodes;
    place.node = world.node;
    place.ranks = place.nodes * place.locals;
    place.rank = place.node * place.locals + place.local;
    g->place = place;
    atomic_store(&g->generation, world.generation);
    /* Keep the communicator whose address the world has; close the other one. */
    struct comm *other = g->older;
    const struct board_address *own = &g->world[g->place.rank], *older = &g->older_address;
    if (g->older && own->bytes == older->bytes &&
        memcmp(own->data, older->data, (size_t)own->bytes) == 0) {
        other = g->comm;
        g->comm = g->older;
    }
    g->older = NULL;
    comm_close(other);
    ASSERT(g->comm != NULL);
    return ST_OK;
}

bool generations_same_data(const struct board_address *one, int one_node,
                           const struct board_address *other, int other_node, char *out, size_t cap)
{
    struct address_header a, b;
    if (one->bytes < (int64_t)sizeof a || other->bytes < (int64_t)sizeof b)
        return true; /* refused when the address is used */
    memcpy(&a, one->data, sizeof a);
    memcpy(&b, other->data, sizeof b);
    if (a.data == b.data && a.val_data == b.val_data)
        return true;
    bool is_data = a.data != b.data;
    text_format(out, cap,
                "%s differs: fingerprint %016" PRIx64 " on node %d, %016" PRIx64
                " on node %d; give every node the same data",
                is_data ? "DATA" : "VAL_DATA", is_data ? a.data : a.val_data, one_node,
                is_data ? b.data : b.val_data, other_node);
    return false;
}

static enum status connect_ranks(struct generations *g, struct comm *comm)
{
    int ranks = g->place.ranks;
    ASSERTF(comm != NULL && g->generation > g->after && g->connecting_ms == 0 &&
                g->place.rank < ranks && ranks <= g->config->comm.place.ranks,
            "generation %lld, rank %d of %d", (long long)g->generation, g->place.rank, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        const struct board_address *from = &g->world[rank];
        if (from->bytes < (int64_t)sizeof(struct address_header))
            return FAIL(ST_BUG, "the address of rank %d has %" PRId64 " bytes", rank, from->bytes);
        g->bytes[rank] = from->bytes - (int64_t)sizeof(struct address_header);
        memcpy(g->addresses + (size_t)rank * COMM_ADDRESS_MAX,
               from->data + sizeof(struct address_header), (size_t)g->bytes[rank]);
    }
    /* Every rank sees the same world, so all ranks get the same result. */
    const struct comm_place *place = &g->place;
    char why[256];
    for (int rank = 1; rank < place->ranks; rank++)
        if (!generations_same_data(&g->world[0], 0, &g->world[rank], rank / place->locals, why,
                                   sizeof why))
            return FAIL(ST_DISAGREE, "%s", why);
    if (!board_secret_copy(g->config->board, g->generation, g->secret))
        return FAIL(ST_PEER, "generation %" PRId64 " ended before its ranks had connected",
                    g->generation);
    g->connecting_ms = clock_ms();
    g->has_warned_connecting = g->is_stopped_connecting = false;
    enum status st = comm_set_place(comm, &g->place);
    if (st == ST_OK)
        st = comm_end_open(comm, g->generation, g->addresses, g->bytes);
    if (st == ST_OK && g->config->opens_host)
        st = comm_open_host(comm);
    explicit_bzero(g->secret, sizeof g->secret);
    g->connecting_ms = 0;
    return g->is_stopped_connecting ? g->config->stopped(g->config->arg) : st;
}

/* ---- one generation ---- */

/* run_generation — runs one generation in the world that wait_for_world has found. */
static enum status run_generation(struct generations *g, struct comm *comm)
{
    const struct generations_config *c = g->config;
    assert_note("generation %lld begins", (long long)g->generation);
    comm_heartbeat_set_comm(g->heartbeat, comm);
    enum status st = connect_ranks(g, comm);
    if (st == ST_OK && c->connected)
        c->connected(c->arg, comm);
    if (st == ST_OK) {
        LOG_DEBUG("generation %lld: rank %d of %d, %s", (long long)g->generation, g->place.rank,
                  g->place.ranks, comm_name(comm));
        st = c->run(c->arg, comm, g->generation);
    }
    return st;
}

/* may_continue — returns true if only other ranks failed, or if the supervisor ended this
 * generation. Then the reason is recorded for the board, with the rank whose process has ended. */
static bool may_continue(struct generations *g, const struct comm *comm, enum status st)
{
    ASSERTF(st != ST_OK && comm != NULL && g->generation > g->after && g->connecting_ms == 0,
            "status %d in generation %lld after %lld", (int)st, (long long)g->generation,
            (long long)g->after);
    const bool has_ended = is_over(g);
    if (st != ST_PEER && !(has_ended && status_group(st) == STATUS_GROUP_RETRY))
        return false;
    LOG_DEBUG("generation %lld ended for rank %d: %s", (long long)g->generation, g->place.rank,
              status_message());
    if (is_broken(g))
        text_format(g->ready.why, sizeof g->ready.why,
                    "`convoy rehearse` made the collectives of rank %d fail", g->place.rank);
    else
        text_copy(g->ready.why, sizeof g->ready.why, status_message());
    if (has_ended)
        g->ready.why[0] = 0;
    status_clear();
    g->ready.closed_rank = comm_closed_rank(comm);
    g->after = g->generation;
    g->has_run = true;
    return true;
}

/* next_generation — runs the next generation. ST_OK with *is_over_out false: another generation
 * follows. */
static enum status next_generation(struct generations *g, bool *is_over_out)
{
    struct status_saved saved;
    bool is_old;
    *is_over_out = true;
    ASSERT(g->generation == 0 && g->config->comm.place.ranks > 1);
    /* After a cable was unplugged, the network is not usable immediately. Wait until the node has
     * the former number of addresses, at most NETWORK_WAIT_MS. */
    const struct generations_config *c = g->config;
    int64_t until_ms = clock_ms() + NETWORK_WAIT_MS;
    int usable = 0;
    while (c->comm.place.nodes > 1) {
        links_now(&usable);
        if (usable >= g->usable_expected || clock_ms() >= until_ms)
            break;
        TRY(c->stopped(c->arg));
        c->wait(c->arg, !g->has_run);
        clock_sleep_ms(NETWORK_POLL_MS);
    }
    g->usable_expected = usable;
    TRY(publish_address(g));
    enum status st = wait_for_world(g, &is_old);
    if (st == ST_OK && is_old) {
        *is_over_out = false;
        return ST_OK;
    }
    if (st == ST_OK)
        st = run_generation(g, g->comm);
    /* generation 0: waiting for a world has failed */
    *is_over_out = st == ST_OK || g->generation == 0 || !may_continue(g, g->comm, st);
    status_save(&saved);
    comm_heartbeat_set_comm(g->heartbeat, NULL);
    comm_close(g->comm);
    g->comm = NULL;
    status_restore(&saved);
    atomic_store(&g->generation, 0);
    ASSERT(g->older == NULL || *is_over_out);
    return *is_over_out ? st : ST_OK;
}

/* run_single — runs the only generation of a job with one rank; its supervisor restarts it. */
static enum status run_single(struct generations *g)
{
    struct comm_config config = comm_config_of(g);
    struct comm *comm;
    struct status_saved saved;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
    ASSERT(config.place.ranks == 1 && g->comm == NULL && g->older == NULL);
    TRY(comm_begin_open(&config, &comm, address, &bytes));
    enum status st = comm_end_open(comm, 1, address, &bytes);
    if (st == ST_OK && g->config->connected)
        g->config->connected(g->config->arg, comm);
    if (st == ST_OK)
        st = g->config->run(g->config->arg, comm, 1);
    status_save(&saved);
    comm_close(comm);
    status_restore(&saved);
    return st;
}

enum status generations_run(const struct generations_config *config)
{
    struct generations g = {.config = config,
                            .place = config->comm.place,
                            .after = board_aborted(config->board),
                            .ready.closed_rank = -1};
    bool is_over = false;
    const struct comm_place *place = &config->comm.place;
    ASSERTF(place->rank == place->node * place->locals + place->local &&
                place->ranks == place->nodes * place->locals && place->rank < place->ranks,
            "rank %d of %d", place->rank, place->ranks);
    ASSERT(config->board != NULL && config->run != NULL);
    if (place->ranks == 1)
        return run_single(&g);
    ASSERT(config->wait != NULL && config->stopped != NULL);
    size_t ranks = (size_t)place->ranks;
    g.world = memory_new(ranks, sizeof *g.world);
    g.addresses = memory_new(ranks, COMM_ADDRESS_MAX);
    g.bytes = memory_new(ranks, sizeof *g.bytes);
    enum status st = comm_heartbeat_open(config->board, config->worker_i, &g.heartbeat);
    while (st == ST_OK && !is_over)
        st = next_generation(&g, &is_over);
    comm_heartbeat_close(g.heartbeat);
    struct status_saved saved;
    status_save(&saved);
    comm_close(g.older);
    comm_close(g.comm);
    status_restore(&saved);
    free(g.world);
    free(g.addresses);
    free(g.bytes);
    return st;
}

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

/* What a worker's address begins with; the rest is its comm's. */
struct address_header {
    uint64_t data, val_data;
};

struct generations {
    const struct generations_config *config;
    struct comm_place place; /* in the current generation; before the first: among all nodes */
    struct comm_heartbeat *heartbeat;
    int64_t after;              /* it waits for a generation later than this */
    _Atomic int64_t generation; /* the current one; 0: none */
    int usable_expected;        /* addresses of this node's network when all is well */
    uint64_t links;             /* hash of its network when the address was taken */
    int64_t links_ms;           /* when it was last computed */
    struct board_ready ready;
    struct comm *comm; /* open, with the address in `ready` */
    /* The communicator before, with its address: a world may have been made of that while the next
     * one was opened. NULL: none. */
    struct comm *older;
    struct board_address older_address;
    char reached[64];            /* as used for the address; "": not used */
    struct board_address *world; /* ranks */
    char *addresses;             /* ranks × COMM_ADDRESS_MAX: the comm's part of them */
    int64_t *bytes;
    uint8_t secret[BOARD_SECRET_BYTES]; /* of the generation; wiped when its ranks have connected */
    bool has_run;
    /* since when the ranks of this world have been connecting; 0: they are not */
    _Atomic int64_t connecting_ms;
    atomic_bool has_warned_connecting, is_stopped_connecting;
};

/* is_stopped_while_connecting — called on the thread that connects, while it does. */
static bool is_stopped_while_connecting(struct generations *g)
{
    if (g->connecting_ms == 0 || clock_ms() - g->connecting_ms < CONNECT_STOP_MS)
        return false;
    if (!g->has_warned_connecting && g->config->place.local == 0 &&
        clock_ms() - g->connecting_ms >= CONNECT_WARN_MS) {
        /* The supervisors are connected, or there would be no world. */
        g->has_warned_connecting = true;
        LOG_WARN("the workers have not connected to each other for %d s%s", CONNECT_WARN_MS / 1000,
                 g->config->place.nodes > 1
                     ? ", although the nodes have, at MASTER_PORT: workers use other ports; check "
                       "firewalls between the nodes, and the network that DATA_ADDR, "
                       "UCX_NET_DEVICES or NCCL_SOCKET_IFNAME selects"
                     : "");
    }
    g->is_stopped_connecting = g->config->stopped(g->config->arg) != ST_OK;
    status_clear();
    return g->is_stopped_connecting;
}

static bool is_aborted(void *arg)
{
    struct generations *g = arg;
    int64_t generation = atomic_load_explicit(&g->generation, memory_order_relaxed);
    return generation > 0 &&
           (board_aborted(g->config->board) >= generation || is_stopped_while_connecting(g));
}

/* limit_ms — a collective may wait for another rank's step, and how long steps take is known only
 * while they run. */
static int64_t limit_ms(void *arg)
{
    const struct generations *g = arg;
    struct board_node node;
    board_node_copy(g->config->board, &node);
    return node.limit_ms + g->config->extra_ms;
}

static struct comm_config comm_config_of(struct generations *g)
{
    const struct generations_config *c = g->config;
    return (struct comm_config){.kind = c->place.ranks == 1 ? COMM_KIND_SELF : c->kind,
                                .place = c->place,
                                .timeout_ms = c->timeout_ms,
                                .limit_ms = limit_ms,
                                .is_aborted = is_aborted,
                                .arg = g,
                                .device_sms = c->device_sms,
                                .dev = c->dev,
                                .net = c->net,
                                .data_addr = g->reached[0] ? g->reached : c->data_addr,
                                .master = c->master,
                                .secret = g->secret,
                                .shm_fd = c->shm_fd};
}

/* ---- connecting the ranks ---- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t n)
{
    for (const uint8_t *at = bytes; n > 0; n--)
        hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash;
}

/* links_now — a hash that changes when a network device appears, disappears or gets another
 * address; and how many addresses lead out of this node. An address taken while a cable was out
 * leads nowhere when the cable is back. */
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
        hash = mix(hash, at->ifa_name, strlen(at->ifa_name));
        hash = mix(hash, &flags, sizeof flags);
        if (family != AF_INET && family != AF_INET6)
            continue;
        *usable_out += flags == (IFF_UP | IFF_RUNNING) && !(at->ifa_flags & IFF_LOOPBACK);
        hash = mix(hash, at->ifa_addr,
                   family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    }
    freeifaddrs(list);
    return hash;
}

/* has_new_links — called often; reads the devices every LINKS_POLL_MS. Also true if other nodes
 * reach this one at another address than the published one. */
static bool has_new_links(struct generations *g)
{
    if (g->config->place.nodes == 1 || clock_ms() - g->links_ms < LINKS_POLL_MS)
        return false;
    struct board_node node;
    int usable;
    g->links_ms = clock_ms();
    board_node_copy(g->config->board, &node);
    return links_now(&usable) != g->links || (g->reached[0] && strcmp(g->reached, node.reached));
}

/* begin_open — opens a communicator. By default its address is that of the route to MASTER_ADDR. If
 * that is loopback on node 0, or was not found before, it is the address at which other nodes have
 * reached node 0. */
static enum status begin_open(struct generations *g, bool has_failed, void *address, int64_t *bytes)
{
    const struct generations_config *c = g->config;
    const bool may_use = c->needs_reached ||
                         (has_failed && c->place.node == 0 && !(c->data_addr && c->data_addr[0]));
    struct board_node node;
    board_node_copy(c->board, &node);
    text_copy(g->reached, sizeof g->reached, may_use ? node.reached : "");
    if (c->needs_reached && !g->reached[0])
        return FAIL(
            ST_RETRY,
            "MASTER_ADDR=%s is a loopback address on this node (see /etc/hosts), and no other "
            "node has connected yet, which shows where it reaches this one",
            c->master);
    const struct comm_config config = comm_config_of(g);
    TRY(comm_begin_open(&config, &g->comm, address, bytes));
    if (g->reached[0] && c->place.local == 0)
        LOG_INFO(
            "MASTER_ADDR=%s does not lead to this node's network: its workers listen at %s, where "
            "other nodes have reached it",
            c->master, g->reached);
    return ST_OK;
}

/* begin_open_retrying — open a communicator, again and again while there is no route to node 0 (a
 * cable is out, a name is not published yet). A transport that must know its own address cannot
 * open before. Node 0 ends the job itself if no other node connects. */
static enum status begin_open_retrying(struct generations *g, void *address, int64_t *bytes)
{
    const struct generations_config *c = g->config;
    int64_t begin_ms = clock_ms(), warned_ms = 0;
    for (bool has_failed = false;; has_failed = true) {
        enum status st = begin_open(g, has_failed, address, bytes);
        if (st != ST_RETRY || c->place.nodes == 1)
            return st;
        if (clock_ms() - begin_ms >= c->join_timeout_ms && (g->reached[0] || !c->needs_reached)) {
            /* No address was found in time. Before the first world a setting is wrong; later a
             * cable may be out. */
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

/* publish_address — open a communicator and publish its address on the board. */
static enum status publish_address(struct generations *g)
{
    struct address_header address_header = {g->config->data, g->config->val_data};
    struct board_address *mine = &g->ready.address;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
    int usable;
    /* The communicator stays open while the next one is opened: its address may be in a world that
     * is made meanwhile. On one node addresses do not change, and the memory is shared. */
    comm_close(g->older);
    g->older = g->comm;
    g->older_address = g->ready.address;
    g->comm = NULL;
    if (g->config->place.nodes == 1) {
        comm_close(g->older);
        g->older = NULL;
    }
    g->links = links_now(&usable);
    g->links_ms = clock_ms();
    TRY(begin_open_retrying(g, address, &bytes));
    if (bytes + (int64_t)sizeof address_header > BOARD_ADDRESS_MAX)
        return FAIL(
            ST_NO_DEVICE,
            "this node's network address takes %" PRId64
            " bytes, over %zu: it has many network devices; choose some with UCX_NET_DEVICES",
            bytes, BOARD_ADDRESS_MAX - sizeof address_header);
    memcpy(mine->data, &address_header, sizeof address_header);
    memcpy(mine->data + sizeof address_header, address, (size_t)bytes);
    mine->bytes = bytes + (int64_t)sizeof address_header;
    g->ready.after = g->after;
    g->ready.revision++;
    board_ready_publish(g->config->board, g->config->worker_i, &g->ready);
    return ST_OK;
}

/* wait_for_world — until there is a world, or the published address is stale (*is_old_out). */
static enum status wait_for_world(struct generations *g, bool *is_old_out)
{
    const struct generations_config *c = g->config;
    struct board_world_place world;
    *is_old_out = false;
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
    /* This rank's place in a world, of all among all nodes. */
    struct comm_place place = c->place;
    place.nodes = world.nodes;
    place.node = world.node;
    place.ranks = place.nodes * place.locals;
    place.rank = place.node * place.locals + place.local;
    g->place = place;
    atomic_store(&g->generation, world.generation);
    /* The communicator whose address the world has; closes the other. */
    struct comm *other = g->older;
    const struct board_address *own = &g->world[g->place.rank], *older = &g->older_address;
    if (g->older && own->bytes == older->bytes &&
        memcmp(own->data, older->data, (size_t)own->bytes) == 0) {
        other = g->comm;
        g->comm = g->older;
    }
    g->older = NULL;
    comm_close(other);
    return ST_OK;
}

bool generations_same_data(const struct board_address *one, int one_node,
                           const struct board_address *other, int other_node, char *out, size_t cap)
{
    struct address_header a, b;
    if (one->bytes < (int64_t)sizeof a || other->bytes < (int64_t)sizeof b)
        return true; /* refused where it is used */
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
    for (int rank = 0; rank < ranks; rank++) {
        const struct board_address *from = &g->world[rank];
        if (from->bytes < (int64_t)sizeof(struct address_header))
            return FAIL(ST_BUG, "the address of rank %d has %" PRId64 " bytes", rank, from->bytes);
        g->bytes[rank] = from->bytes - (int64_t)sizeof(struct address_header);
        memcpy(g->addresses + (size_t)rank * COMM_ADDRESS_MAX,
               from->data + sizeof(struct address_header), (size_t)g->bytes[rank]);
    }
    /* Every rank sees the same world, so all come to the same result. */
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
    explicit_bzero(g->secret, sizeof g->secret);
    g->connecting_ms = 0;
    return g->is_stopped_connecting ? g->config->stopped(g->config->arg) : st;
}

/* ---- one generation ---- */

/* run_generation — in the world that wait_for_world has found. */
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

/* may_continue — did only other ranks fail, or did the supervisor end this generation? Then its
 * reason goes on the board, and the rank whose process has ended. */
static bool may_continue(struct generations *g, const struct comm *comm, enum status st)
{
    bool is_over = is_aborted(g);
    if (st != ST_PEER && !(is_over && status_group(st) == STATUS_GROUP_RETRY))
        return false;
    LOG_DEBUG("generation %lld ended for rank %d: %s", (long long)g->generation, g->place.rank,
              status_message());
    text_copy(g->ready.why, sizeof g->ready.why, is_over ? "" : status_message());
    status_clear();
    g->ready.closed_rank = comm_closed_rank(comm);
    g->after = g->generation;
    g->has_run = true;
    return true;
}

/* next_generation — ST_OK with *is_over_out false: another one follows. */
static enum status next_generation(struct generations *g, bool *is_over_out)
{
    struct status_saved saved;
    bool is_old;
    *is_over_out = true;
    /* After a cable was out, the network is not usable at once. Waits until it has as many
     * addresses as before, at most NETWORK_WAIT_MS. */
    const struct generations_config *c = g->config;
    int64_t until_ms = clock_ms() + NETWORK_WAIT_MS;
    int usable = 0;
    while (c->place.nodes > 1) {
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
    *is_over_out = st == ST_OK || !may_continue(g, g->comm, st);
    status_save(&saved);
    comm_heartbeat_set_comm(g->heartbeat, NULL);
    comm_close(g->comm);
    g->comm = NULL;
    status_restore(&saved);
    atomic_store(&g->generation, 0);
    return *is_over_out ? st : ST_OK;
}

/* run_single — one rank needs no other and no second generation: its supervisor starts it again. */
static enum status run_single(struct generations *g)
{
    struct comm_config config = comm_config_of(g);
    struct comm *comm;
    struct status_saved saved;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
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
                            .place = config->place,
                            .after = board_aborted(config->board),
                            .ready.closed_rank = -1};
    bool is_over = false;
    if (config->place.ranks == 1)
        return run_single(&g);
    size_t ranks = (size_t)g.config->place.ranks;
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

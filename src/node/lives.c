/* lives — see lives.h. Read lives_run first, at the foot. */
#include "node/lives.h"

#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "base/text.h"
#include "node/pulse.h"

#define LOOK_MS 2
#define LINKS_MS 250
#define SETTLE_MS (10 * 1000)
#define SETTLE_LOOK_MS 20
/* ranks that have not met for so long obey a stop: there is no step to end */
#define MEETING_STOP_MS 3000
#define MEETING_SAY_MS 15000
#define OPEN_MS (120 * 1000)
#define OPEN_LOOK_MS 250

/* What a worker's address begins with; the rest is its comm's. */
struct greeting {
    uint64_t data, val_data;
};

struct lives {
    const struct lives_config *config;
    struct pulse *pulse;
    int64_t after;              /* waits for a later generation than this */
    _Atomic int64_t generation; /* the one it is in; 0: none */
    int usable_home;            /* addresses of this node's network when all is well */
    uint64_t links;             /* its network when the address was packed */
    int64_t links_ms;           /* looked at last */
    struct board_ready ready;
    struct board_address *world; /* ranks */
    char *addresses;             /* ranks × COMM_ADDRESS_MAX: the comm's part of them */
    int64_t *bytes;
    uint8_t secret[BOARD_SECRET_BYTES]; /* of the generation, while its ranks meet */
    bool has_lived;
    /* the ranks of this world have been meeting since; 0: they are not */
    _Atomic int64_t meeting_ms;
    atomic_bool has_said_meeting, is_stopped_meeting;
};

/* say_meeting — the supervisors hear each other, or there would be no world; what workers send goes
 * other ways. */
static void say_meeting(struct lives *l)
{
    if (l->has_said_meeting || l->config->place.local > 0 ||
        clock_ms() - l->meeting_ms < MEETING_SAY_MS)
        return;
    l->has_said_meeting = true;
    LOG_WARN(
        "the workers of the nodes have not reached each other for %d s%s", MEETING_SAY_MS / 1000,
        l->config->place.nodes > 1 ? ", though the nodes have at MASTER_PORT: workers use other "
                                     "ports (is a firewall between the nodes?), on networks that "
                                     "DATA_ADDR, UCX_NET_DEVICES or NCCL_SOCKET_IFNAME choose"
                                   : "");
}

/* is_stopped_while_meeting — on the thread that meets, while it does. */
static bool is_stopped_while_meeting(struct lives *l)
{
    if (l->meeting_ms == 0 || clock_ms() - l->meeting_ms < MEETING_STOP_MS)
        return false;
    say_meeting(l);
    l->is_stopped_meeting = l->config->stopped(l->config->arg) != ST_OK;
    status_clear();
    return l->is_stopped_meeting;
}

static bool is_aborted(void *arg)
{
    struct lives *l = arg;
    int64_t generation = atomic_load_explicit(&l->generation, memory_order_relaxed);
    return generation > 0 &&
           (board_aborted(l->config->board) >= generation || is_stopped_while_meeting(l));
}

/* limit_ms — a call may wait for a step of another rank, and what steps take shows while they are
 * done. */
static int64_t limit_ms(void *arg)
{
    const struct lives *l = arg;
    struct board_node node;
    board_node_copy(l->config->board, &node);
    return node.limit_ms + l->config->extra_ms;
}

static struct comm_config comm_of(struct lives *l)
{
    const struct lives_config *c = l->config;
    return (struct comm_config){.kind = c->place.ranks == 1 ? COMM_KIND_SELF : c->kind,
                                .place = c->place,
                                .timeout_ms = c->timeout_ms,
                                .limit_ms = limit_ms,
                                .is_aborted = is_aborted,
                                .arg = l,
                                .dev = c->dev,
                                .net = c->net,
                                .data_addr = c->data_addr,
                                .master = c->master,
                                .secret = l->secret,
                                .share_fd = c->share_fd};
}

/* ---- meeting the others ---- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t n)
{
    for (const uint8_t *at = bytes; n > 0; n--)
        hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash;
}

/* links_now — a number that changes when a network device comes, goes, or gets another address; and
 * how many addresses lead out of this node. An address packed while a cable is out leads nowhere
 * when it is back. */
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

/* has_new_links — asked often, looks sometimes. */
static bool has_new_links(struct lives *l)
{
    if (l->config->place.nodes == 1 || clock_ms() - l->links_ms < LINKS_MS)
        return false;
    int usable;
    l->links_ms = clock_ms();
    return links_now(&usable) != l->links;
}

/* settle — a cable that was out and is back is not of use at once. Until the network is what it
 * was, or will not be. */
static enum status settle(struct lives *l)
{
    const struct lives_config *c = l->config;
    int64_t until_ms = clock_ms() + SETTLE_MS;
    int usable = 0;
    while (c->place.nodes > 1) {
        links_now(&usable);
        if (usable >= l->usable_home || clock_ms() >= until_ms)
            break;
        TRY(c->stopped(c->arg));
        c->wait(c->arg, !l->has_lived);
        clock_sleep_ms(SETTLE_LOOK_MS);
    }
    l->usable_home = usable;
    return ST_OK;
}

/* begin_open — again and again while no way leads to node 0 (a cable is out, a name is not known
 * yet): a transport that must know where it is to be reached cannot begin. */
static enum status begin_open(struct lives *l, const struct comm_config *config, struct comm **out,
                              void *address, int64_t *bytes)
{
    const struct lives_config *c = l->config;
    int64_t begin_ms = clock_ms(), said_ms = 0;
    for (;;) {
        enum status st = comm_begin_open(config, out, address, bytes);
        if (st != ST_RETRY || c->place.nodes == 1 || clock_ms() - begin_ms > OPEN_MS)
            return st;
        if (said_ms == 0 && clock_ms() - begin_ms > MEETING_STOP_MS) {
            said_ms = clock_ms();
            LOG_WARN("waiting for a network: %s", status_message());
        }
        status_clear();
        TRY(c->stopped(c->arg));
        c->wait(c->arg, !l->has_lived);
        clock_sleep_ms(OPEN_LOOK_MS);
    }
}

/* pack — a comm of which nobody knows yet, and its address on the board. */
static enum status pack(struct lives *l, struct comm **out)
{
    struct comm_config config = comm_of(l);
    struct greeting greeting = {l->config->data, l->config->val_data};
    struct board_address *mine = &l->ready.address;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
    struct comm *comm;
    int usable;
    l->links = links_now(&usable);
    l->links_ms = clock_ms();
    TRY(begin_open(l, &config, &comm, address, &bytes));
    if (bytes + (int64_t)sizeof greeting > BOARD_ADDRESS_MAX) {
        comm_close(comm);
        return FAIL(
            ST_NO_DEVICE,
            "this node's network address takes %" PRId64
            " bytes, over %zu: it has many network devices; choose some with UCX_NET_DEVICES",
            bytes, BOARD_ADDRESS_MAX - sizeof greeting);
    }
    memcpy(mine->data, &greeting, sizeof greeting);
    memcpy(mine->data + sizeof greeting, address, (size_t)bytes);
    mine->bytes = bytes + (int64_t)sizeof greeting;
    l->ready.after = l->after;
    l->ready.turn++;
    board_ready_post(l->config->board, l->config->worker_i, &l->ready);
    *out = comm;
    return ST_OK;
}

/* wait_world — until there is one, or what was packed has become old (then *is_old_out). */
static enum status wait_world(struct lives *l, bool *is_old_out)
{
    const struct lives_config *c = l->config;
    int64_t generation = 0;
    *is_old_out = false;
    while (!board_world_copy(c->board, l->after, &generation, l->world)) {
        TRY(c->stopped(c->arg));
        *is_old_out = board_aborted(c->board) > l->after || has_new_links(l);
        if (*is_old_out) {
            l->after = board_aborted(c->board) > l->after ? board_aborted(c->board) : l->after;
            return ST_OK;
        }
        c->wait(c->arg, !l->has_lived);
        clock_sleep_ms(LOOK_MS);
    }
    atomic_store(&l->generation, generation);
    return ST_OK;
}

bool lives_is_alike(const struct board_address *one, int one_node,
                    const struct board_address *other, int other_node, char *out, size_t cap)
{
    struct greeting a, b;
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

/* check_greetings — every rank sees the same world, so all come to the same end. */
static enum status check_greetings(const struct lives *l)
{
    const struct comm_place *place = &l->config->place;
    char why[256];
    for (int rank = 1; rank < place->ranks; rank++)
        if (!lives_is_alike(&l->world[0], 0, &l->world[rank], rank / place->locals, why,
                            sizeof why))
            return FAIL(ST_DISAGREE, "%s", why);
    return ST_OK;
}

static enum status meet_world(struct lives *l, struct comm *comm)
{
    int ranks = l->config->place.ranks;
    for (int rank = 0; rank < ranks; rank++) {
        const struct board_address *from = &l->world[rank];
        if (from->bytes < (int64_t)sizeof(struct greeting))
            return FAIL(ST_BUG, "the address of rank %d has %" PRId64 " bytes", rank, from->bytes);
        l->bytes[rank] = from->bytes - (int64_t)sizeof(struct greeting);
        memcpy(l->addresses + (size_t)rank * COMM_ADDRESS_MAX, from->data + sizeof(struct greeting),
               (size_t)l->bytes[rank]);
    }
    TRY(check_greetings(l));
    if (!board_secret_copy(l->config->board, l->generation, l->secret))
        return FAIL(ST_PEER, "generation %" PRId64 " is over before its ranks have met",
                    l->generation);
    l->meeting_ms = clock_ms();
    l->has_said_meeting = l->is_stopped_meeting = false;
    enum status st = comm_end_open(comm, l->generation, l->addresses, l->bytes);
    explicit_bzero(l->secret, sizeof l->secret);
    l->meeting_ms = 0;
    return l->is_stopped_meeting ? l->config->stopped(l->config->arg) : st;
}

/* ---- one life ---- */

/* live — in the world that wait_world has found. */
static enum status live(struct lives *l, struct comm *comm)
{
    const struct lives_config *c = l->config;
    must_note("generation %lld begins", (long long)l->generation);
    pulse_comm(l->pulse, comm);
    enum status st = meet_world(l, comm);
    if (st == ST_OK && c->met)
        c->met(c->arg, comm);
    if (st == ST_OK) {
        LOG_DEBUG("generation %lld: rank %d of %d, %s", (long long)l->generation, c->place.rank,
                  c->place.ranks, comm_name(comm));
        st = c->run(c->arg, comm, l->generation);
    }
    return st;
}

/* may_live_on — was it only others, or this generation, that ended? Its sentence goes on the
 * board. */
static bool may_live_on(struct lives *l, enum status st)
{
    bool is_over = is_aborted(l);
    if (st != ST_PEER && !(is_over && status_group(st) == STATUS_GROUP_RETRY))
        return false;
    LOG_DEBUG("generation %lld ended for rank %d: %s", (long long)l->generation,
              l->config->place.rank, status_message());
    text_copy(l->ready.why, sizeof l->ready.why, is_over ? "" : status_message());
    status_clear();
    l->after = l->generation;
    l->has_lived = true;
    return true;
}

/* one_life — ST_OK with *is_over_out false: another one is to follow. */
static enum status one_life(struct lives *l, bool *is_over_out)
{
    struct comm *comm = NULL;
    struct status_saved saved;
    bool is_old;
    *is_over_out = true;
    TRY(settle(l));
    TRY(pack(l, &comm));
    enum status st = wait_world(l, &is_old);
    if (st == ST_OK && !is_old)
        st = live(l, comm);
    *is_over_out = st != ST_OK ? !may_live_on(l, st) : !is_old;
    status_keep(&saved);
    pulse_comm(l->pulse, NULL);
    comm_close(comm);
    status_back(&saved);
    atomic_store(&l->generation, 0);
    return *is_over_out ? st : ST_OK;
}

/* alone — one rank needs neither others nor a second life: a supervisor starts it again. */
static enum status alone(struct lives *l)
{
    struct comm_config config = comm_of(l);
    struct comm *comm;
    struct status_saved saved;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
    TRY(comm_begin_open(&config, &comm, address, &bytes));
    enum status st = comm_end_open(comm, 1, address, &bytes);
    if (st == ST_OK && l->config->met)
        l->config->met(l->config->arg, comm);
    if (st == ST_OK)
        st = l->config->run(l->config->arg, comm, 1);
    status_keep(&saved);
    comm_close(comm);
    status_back(&saved);
    return st;
}

static enum status take_memory(struct lives *l)
{
    size_t ranks = (size_t)l->config->place.ranks;
    l->world = calloc(ranks, sizeof *l->world);
    l->addresses = calloc(ranks, COMM_ADDRESS_MAX);
    l->bytes = calloc(ranks, sizeof *l->bytes);
    return l->world && l->addresses && l->bytes
               ? ST_OK
               : FAIL(ST_RETRY, "out of memory: the addresses of %zu ranks", ranks);
}

enum status lives_run(const struct lives_config *config)
{
    struct lives l = {.config = config, .after = board_aborted(config->board)};
    bool is_over = false;
    if (config->place.ranks == 1)
        return alone(&l);
    enum status st = take_memory(&l);
    if (st == ST_OK)
        st = pulse_open(config->board, config->worker_i, &l.pulse);
    while (st == ST_OK && !is_over)
        st = one_life(&l, &is_over);
    pulse_close(l.pulse);
    free(l.world);
    free(l.addresses);
    free(l.bytes);
    return st;
}

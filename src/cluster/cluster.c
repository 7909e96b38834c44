/* cluster — see cluster.h: connects the two state machines to the loop. coordinator.c and member.c
 * decide on messages. Sockets belong to coordinator_server.c (node 0) and member_client.c (other
 * nodes). */
#include "cluster/cluster.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secure.h"
#include "base/text.h"
#include "cluster/coordinator.h"
#include "cluster/coordinator_server.h"
#include "cluster/member.h"
#include "cluster/member_client.h"
#include "cluster/straggler.h"
#include "cluster/view_client.h"
#include "net/https_server.h"
#include "net/psk.h"

#define TICK_MS 100
#define HEARTBEAT_MS 1000
#define STRAGGLER_MS 3000
#define STRAGGLER_LOG_MS 10000
#define SEARCH_MS 10 /* time between two looks at the requests while the coordinator is lost */
#define PLACES_MAX 4 /* processes of one node whose addresses are kept */
#define FLUSH_MS 150 /* ms for the last replies to leave this host */
/* Node 0 waits this long for the other nodes to fetch the end of the job; less if nothing moves any
 * more. */
#define END_NOTICE_MS 3000
#define END_NOTICE_STALLED_MS 1000
/* After a request to stop, a call without an answer is abandoned after this time, or after
 * STALL_FACTOR times the longest call so far, whichever is longer. */
#define STALL_MS 2500
#define STALL_FACTOR 2

/* Where the last processes of a node listen, the newest first. */
struct control_book {
    struct {
        struct message_incarnation incarnation; /* zero: unknown, named by another node */
        char control[CLUSTER_CONTROL_MAX];
    } places[PLACES_MAX];
};

struct cluster {
    struct cluster_config config;
    char *master_addr, *agree_json; /* copies of config's */
    char host[64];
    struct psk psk;
    uint8_t seed[PSK_SEED_BYTES];      /* node 0 derives the secret of each generation from it */
    struct coordinator *coordinator;   /* NULL: another node has it */
    struct coordinator_server *server; /* NULL: this node does not listen */
    struct member_client *client;      /* NULL: this node has had the coordinator from the start */
    struct view_client *views;         /* NULL: no other node may become the coordinator */
    struct control_book *book;         /* nodes_n */
    char control[CLUSTER_CONTROL_MAX]; /* where this node listens, "host:port" */
    /* The coordinator is to be closed, because this node has the better one: -1: it is not. */
    int yields_to;
    struct message_incarnation process;
    struct member member;
    struct event *tick, *pump;
    int64_t heartbeat_ms; /* clock_ms of the last heartbeat to the coordinator in this process */
    struct cluster_address addresses[CLUSTER_WORKERS_MAX];
    struct machine_stats machine;
    struct cluster_rank ranks[CLUSTER_WORKERS_MAX];
    int ranks_n;
    struct cluster_node own[2];
    int64_t straggler_logged_ms; /* 0: there is none */
    struct straggler_pace pace;
    int64_t stop_ms;  /* when a stop of the job was requested; 0: it was not */
    bool was_stalled; /* a stop ended a generation in which nothing moved */
    bool is_ending;   /* the member is done; the other nodes may not have received the end yet */
    int64_t ending_ms, end_sent_ms;
    enum status end_st;
    char end_text[MESSAGE_TEXT_MAX];
};

static void wake(struct cluster *cluster) { event_active(cluster->pump, EV_TIMEOUT, 1); }

static void carry_out(struct cluster *cluster, const struct member_actions *actions);

static enum status make_incarnation(struct message_incarnation *out)
{
    do {
        if (getrandom(out, sizeof *out, 0) != (ssize_t)sizeof *out)
            return FAIL(ST_RETRY, "the system returned no random numbers: %s", strerror(errno));
    } while (out->hi == 0 && out->lo == 0);
    return ST_OK;
}

static void print_log(struct cluster *cluster)
{
    const char *line;
    bool is_warning;
    while ((line = log_queue_next(coordinator_log(cluster->coordinator), &is_warning))) {
        if (is_warning)
            LOG_WARN("%s", line);
        else if (cluster->config.nodes_n > 1)
            LOG_INFO("%s", line);
        else
            LOG_DEBUG("%s", line);
    }
}

/* ---- where the nodes listen ---- */

static void note_control(struct cluster *cluster, int node_id,
                         struct message_incarnation incarnation, const char *control)
{
    struct control_book *book = &cluster->book[node_id];
    int at = 0;
    if (control[0] == 0)
        return;
    while (at < PLACES_MAX - 1 && !message_is_same(book->places[at].incarnation, incarnation))
        at++;
    memmove(&book->places[1], &book->places[0], (size_t)at * sizeof *book->places);
    book->places[0].incarnation = incarnation;
    text_copy(book->places[0].control, sizeof book->places[0].control, control);
}

static void note_world(struct cluster *cluster, const struct cluster_world *world)
{
    for (int i = 0; world->past && i < world->nodes_n; i++) {
        const struct succession_process *process = &world->past->processes[i];
        if (process->node_id == cluster->config.node_id)
            text_copy(cluster->control, sizeof cluster->control, world->controls[i]);
        note_control(cluster, process->node_id, process->incarnation, world->controls[i]);
    }
}

/* Writes where a process of the node listens; expected zero: the newest one. Node 0 listens at
 * MASTER_ADDR. */
static bool find_place(const struct cluster *cluster, int node_id,
                       struct message_incarnation expected, char *out, size_t cap)
{
    const struct message_incarnation none = {0};
    for (int i = 0; i < PLACES_MAX && cluster->book; i++) {
        const char *control = cluster->book[node_id].places[i].control;
        if (control[0] != 0 &&
            (message_is_same(expected, none) ||
             message_is_same(expected, cluster->book[node_id].places[i].incarnation)))
            return text_copy(out, cap, control);
    }
    return node_id == 0 &&
           text_format(out, cap, strchr(cluster->master_addr, ':') ? "[%s]:%d" : "%s:%d",
                       cluster->master_addr, cluster->config.master_port);
}

static bool find_control(void *arg, int node_id, char *out, size_t cap)
{
    const struct cluster *cluster = arg;
    if (node_id == 0) /* a new process of node 0 listens there, too */
        return text_format(out, cap, strchr(cluster->master_addr, ':') ? "[%s]:%d" : "%s:%d",
                           cluster->master_addr, cluster->config.master_port);
    return find_place(cluster, node_id, (struct message_incarnation){0}, out, cap);
}

static void on_control(void *arg, int node_id, const char *control)
{
    struct cluster *cluster = arg;
    if (cluster->book && node_id < cluster->config.nodes_n)
        note_control(cluster, node_id, (struct message_incarnation){0}, control);
}

/* ---- the coordinator of this node ---- */

static enum status open_coordinator(struct cluster *cluster,
                                    const struct coordinator_inheritance *inheritance)
{
    const struct cluster_config *config = &cluster->config;
    struct coordinator_config coordinator = {.nodes_n = config->nodes_n,
                                             .workers_n = config->workers_n,
                                             .leader_id = config->node_id,
                                             .has_succession = config->has_succession,
                                             .process = cluster->process,
                                             .control = cluster->control,
                                             .inheritance = inheritance,
                                             .min_nodes = config->min_nodes,
                                             .join_timeout_ms = config->join_timeout_ms,
                                             .peer_timeout_ms = config->peer_timeout_ms,
                                             .max_restarts = config->max_restarts,
                                             .agree_json = cluster->agree_json,
                                             .is_same_data = config->is_same_data,
                                             .places = config->places};
    TRY(make_incarnation(&coordinator.incarnation));
    cluster->coordinator = coordinator_open(&coordinator, clock_ms());
    return ST_OK;
}

/* Starts the coordinator on this node, which is the first one that has lost it. */
static void lead_job(struct cluster *cluster)
{
    struct member *m = &cluster->member;
    const struct coordinator_inheritance from = {.former_id = m->leader_id,
                                                 .ended = m->ended,
                                                 .past = &m->past,
                                                 .generation = m->generation,
                                                 .counts = m->counts,
                                                 .stop = m->known_stop};
    ASSERT(!cluster->coordinator && cluster->server);
    if (open_coordinator(cluster, m->past.n > 0 ? &from : NULL) != ST_OK) {
        LOG_WARN("%s", status_message());
        status_clear();
        return; /* the search goes on */
    }
    if (m->past.n > 0)
        LOG_WARN("node %d is lost; node %d leads the job now, at %s", m->leader_id,
                 cluster->config.node_id, cluster->control);
    cluster->yields_to = -1;
    member_lead(m);
    coordinator_server_set(cluster->server, cluster->coordinator);
    wake(cluster);
}

/* Closes this node's coordinator, because another node leads the job. */
static void yield_job(struct cluster *cluster, int leader_id)
{
    struct member_actions actions = {0};
    char control[CLUSTER_CONTROL_MAX] = "?";
    (void)find_control(cluster, leader_id, control, sizeof control);
    LOG_INFO("node %d leads the job, at %s; this node joins it", leader_id, control);
    coordinator_server_set(cluster->server, NULL);
    coordinator_close(cluster->coordinator);
    cluster->coordinator = NULL;
    member_follow(&cluster->member, leader_id, clock_ms(), &actions);
    carry_out(cluster, &actions);
}

static void fill_view(void *arg, struct message_view *own)
{
    const struct cluster *cluster = arg;
    own->node_id = cluster->config.node_id;
    own->incarnation = cluster->process;
    own->leader_id = member_leader(&cluster->member);
    if (cluster->coordinator)
        coordinator_fill_view(cluster->coordinator, own);
    if (own->leader_id == cluster->config.node_id)
        text_copy(own->control, sizeof own->control, cluster->control);
    else if (own->leader_id >= 0)
        (void)find_control(arg, own->leader_id, own->control, sizeof own->control);
}

/* Notes that this node's coordinator must end; the next pump closes it. */
static void compare_views(struct cluster *cluster, const struct message_view *theirs)
{
    struct member_actions actions = {0};
    if (theirs->leader_id >= 0 && theirs->is_coordinator)
        on_control(cluster, theirs->leader_id, theirs->control);
    if (!theirs->is_coordinator || theirs->leader_id == cluster->config.node_id)
        return;
    if (!cluster->coordinator) {
        member_on_view(&cluster->member, theirs, clock_ms(), &actions);
        carry_out(cluster, &actions);
    } else if (coordinator_yields(cluster->coordinator, theirs)) {
        cluster->yields_to = theirs->leader_id;
        wake(cluster);
    }
}

static void on_view(void *arg, const struct message_view *theirs) { compare_views(arg, theirs); }

static void on_server_view(void *arg, const struct message_view *theirs, struct message_view *own)
{
    fill_view(arg, own);
    compare_views(arg, theirs);
}

static void on_ended(void *arg, int node_id, struct message_incarnation incarnation)
{
    struct cluster *cluster = arg;
    if (!cluster->coordinator)
        return;
    coordinator_on_ended(cluster->coordinator, node_id, incarnation, clock_ms());
    wake(cluster);
}

static void on_elsewhere(void *arg, struct message_reply *reply)
{
    struct cluster *cluster = arg;
    reply->leader_id = member_leader(&cluster->member);
    if (reply->leader_id >= 0)
        (void)find_control(cluster, reply->leader_id, reply->control, sizeof reply->control);
}

/* Requests the views of the nodes that are no members. */
static void request_views(struct cluster *cluster)
{
    char control[CLUSTER_CONTROL_MAX];
    struct message_incarnation expected;
    for (int i = 0; i < cluster->config.nodes_n && cluster->views && cluster->coordinator; i++)
        if (coordinator_wants_view(cluster->coordinator, i, &expected) &&
            find_place(cluster, i, expected, control, sizeof control))
            view_client_request(cluster->views, i, control, expected);
}

static void carry_out(struct cluster *cluster, const struct member_actions *actions)
{
    void *arg = cluster->config.arg;
    if (actions->is_urgent)
        wake(cluster);
    if (actions->is_urgent && cluster->client)
        member_client_notify(cluster->client);
    if (actions->is_over) {
        cluster->is_ending = true;
        cluster->ending_ms = clock_ms();
        cluster->end_st = actions->st;
        text_copy(cluster->end_text, sizeof cluster->end_text, actions->text);
        wake(cluster);
        return;
    }
    if (actions->abort != 0)
        cluster->config.on_abort(arg, actions->abort, actions->text);
    if (actions->stop != 0)
        cluster->config.on_stop(arg, actions->stop);
    if (actions->lead && !cluster->coordinator)
        lead_job(cluster);
    if (actions->fetch != 0 && !cluster->coordinator) {
        member_client_fetch_world(cluster->client, actions->fetch);
    } else if (actions->fetch != 0) {
        /* On this node the addresses come from the coordinator in this process. */
        int64_t generation = actions->fetch;
        struct cluster_world world;
        if (coordinator_world(cluster->coordinator, cluster->config.node_id,
                              cluster->member.config.incarnation, generation, &world) &&
            member_on_world(&cluster->member, generation, world.past, clock_ms())) {
            note_world(cluster, &world);
            psk_generation(cluster->seed, world.generation, world.secret);
            cluster->config.on_world(cluster->config.arg, &world);
            explicit_bzero(world.secret, sizeof world.secret);
        }
    }
}

/* Adds the caller's fields to a heartbeat. */
static void fill_heartbeat(void *arg, bool is_with_addresses, struct message_heartbeat *heartbeat,
                           struct message_join *join)
{
    struct cluster *cluster = arg;
    heartbeat->machine = cluster->machine;
    heartbeat->ranks_n = cluster->ranks_n;
    heartbeat->ranks = cluster->ranks;
    if (is_with_addresses) {
        heartbeat->addresses_n = cluster->config.workers_n;
        heartbeat->addresses = cluster->addresses;
    }
    *join = (struct message_join){
        .protocol = MESSAGE_PROTOCOL,
        .nodes_n = cluster->config.nodes_n,
        .workers_n = cluster->config.workers_n,
        .pid = getpid(),
        .control_port =
            cluster->config.has_succession ? coordinator_server_port(cluster->server) : 0,
        .past = cluster->config.has_succession ? &cluster->member.past : NULL,
        .ended = cluster->member.ended,
        .agree_json = cluster->agree_json};
    text_copy(join->host, sizeof join->host, cluster->host);
}

/* Returns true if the other nodes have received the end, or had the time to fetch it. Node 0 with
 * status ST_OK waits without limit for the others to finish. */
static bool may_end(struct cluster *cluster)
{
    if (!cluster->coordinator || !cluster->server)
        return true;
    bool is_end_sent = coordinator_is_end_sent(cluster->coordinator);
    if (is_end_sent && cluster->end_sent_ms == 0)
        cluster->end_sent_ms = clock_ms();
    if (is_end_sent)
        return clock_ms() - cluster->end_sent_ms >= FLUSH_MS;
    int64_t limit_ms = cluster->was_stalled ? END_NOTICE_STALLED_MS : END_NOTICE_MS;
    return cluster->end_st != ST_OK && clock_ms() - cluster->ending_ms >= limit_ms;
}

static void finish_cluster(struct cluster *cluster)
{
    void (*on_end)(void *arg, enum status st) = cluster->config.on_end;
    void *arg = cluster->config.arg;
    enum status st = cluster->end_st;
    event_del(cluster->tick);
    event_del(cluster->pump);
    cluster->config.on_end = NULL;
    if (st != ST_OK)
        (void)FAIL(st, "%s", cluster->end_text);
    on_end(arg, st); /* may call cluster_close */
}

static void carry_out_for_client(void *arg, const struct member_actions *actions)
{
    carry_out(arg, actions);
}

static void on_client_world(void *arg, const struct cluster_world *world);

static enum status open_client(struct cluster *cluster)
{
    const struct cluster_config *config = &cluster->config;
    struct member_client_config client = {.loop = config->loop,
                                          .member = &cluster->member,
                                          .find_control = find_control,
                                          .on_control = on_control,
                                          .nodes_n = config->nodes_n,
                                          .workers_n = config->workers_n,
                                          .psk = &cluster->psk,
                                          .fill_heartbeat = fill_heartbeat,
                                          .carry_out = carry_out_for_client,
                                          .on_world = on_client_world,
                                          .arg = cluster};
    return member_client_open(&client, &cluster->client);
}

static void on_pump(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval soon = {.tv_usec = SEARCH_MS * 1000};
    (void)fd, (void)what;
    struct cluster *cluster = arg;
    if (cluster->yields_to >= 0 && cluster->coordinator && !cluster->is_ending)
        yield_job(cluster, cluster->yields_to);
    cluster->yields_to = -1;
    if (!cluster->is_ending && cluster->coordinator) {
        /* On this node: one heartbeat to the coordinator in this process, and its reply. */
        struct message_heartbeat heartbeat;
        struct message_join join;
        struct message_reply reply;
        struct member_actions actions = {0};
        int64_t now_ms = clock_ms();
        bool is_with_addresses = member_has_addresses(&cluster->member);
        bool is_joining = member_make_heartbeat(&cluster->member, now_ms, &heartbeat);
        fill_heartbeat(cluster, is_with_addresses, &heartbeat, &join);
        coordinator_on_heartbeat(cluster->coordinator, &heartbeat, is_joining ? &join : NULL,
                                 now_ms, &reply);
        cluster->heartbeat_ms = now_ms;
        member_on_reply(&cluster->member, &reply, now_ms, now_ms, &actions);
        carry_out(cluster, &actions);
    }
    if (!cluster->coordinator && !cluster->client && open_client(cluster) != ST_OK) {
        LOG_WARN("%s", status_message());
        status_clear();
    }
    if (!cluster->coordinator && cluster->client)
        member_client_pump(cluster->client);
    if (cluster->member.is_searching && !cluster->is_ending)
        event_add(cluster->pump, &soon);
    request_views(cluster);
    if (cluster->server)
        coordinator_server_flush(cluster->server);
    if (cluster->coordinator) {
        print_log(cluster);
        if (!cluster->is_ending &&
            cluster->member.revision != coordinator_revision(cluster->coordinator))
            wake(cluster);
    }
    if (cluster->is_ending && cluster->config.on_end && may_end(cluster))
        finish_cluster(cluster);
}

/* Ends a generation in which nothing moves. A stop waits for the end of the step and for a
 * checkpoint, but not for a call that never returns. */
static void check_stalled(struct cluster *cluster, int64_t now_ms)
{
    const struct cluster_node *nodes;
    struct member_actions actions = {0};
    char why[160];
    if (cluster->stop_ms == 0 && cluster->member.known_stop != 0)
        cluster->stop_ms = now_ms;
    if (cluster->member.running == 0 || cluster->stop_ms == 0 ||
        now_ms - cluster->stop_ms < STALL_MS || cluster->is_ending)
        return;
    int64_t limit_ms = STALL_FACTOR * cluster->pace.longest_ms;
    int nodes_n = cluster_nodes(cluster, &nodes);
    if (!straggler_is_stalled(nodes, nodes_n, limit_ms > STALL_MS ? limit_ms : STALL_MS, why,
                              sizeof why))
        return;
    cluster->was_stalled = true;
    member_abandon(&cluster->member, why, &actions);
    carry_out(cluster, &actions);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct cluster *cluster = arg;
    struct member_actions actions = {0};
    int64_t now_ms = clock_ms();
    if (!cluster->is_ending)
        member_tick(&cluster->member, now_ms, &actions);
    carry_out(cluster, &actions);
    check_stalled(cluster, now_ms);
    if (cluster->coordinator) {
        coordinator_tick(cluster->coordinator, now_ms);
        /* Logs a straggler when it is first found, and every STRAGGLER_LOG_MS after that. */
        const struct cluster_node *nodes = coordinator_nodes(cluster->coordinator, now_ms);
        char text[256];
        bool is_found = cluster->member.running != 0 &&
                        straggler_find(nodes, cluster->config.nodes_n, STRAGGLER_MS,
                                       &cluster->config.places, text, sizeof text);
        if (!is_found) {
            cluster->straggler_logged_ms = 0;
        } else if (cluster->straggler_logged_ms == 0 ||
                   now_ms - cluster->straggler_logged_ms >= STRAGGLER_LOG_MS) {
            cluster->straggler_logged_ms = now_ms;
            LOG_WARN("%s", text);
        }
        bool is_due = now_ms - cluster->heartbeat_ms >= HEARTBEAT_MS ||
                      cluster->member.revision != coordinator_revision(cluster->coordinator);
        if (is_due || cluster->is_ending)
            wake(cluster);
        request_views(cluster);
        if (cluster->server)
            coordinator_server_flush(cluster->server);
    } else {
        wake(cluster);
    }
}

/* Called when the coordinator has applied a message; its state may have changed. */
static void on_change(void *arg)
{
    struct cluster *cluster = arg;
    print_log(cluster);
    if (cluster->member.revision != coordinator_revision(cluster->coordinator) ||
        cluster->is_ending)
        wake(cluster);
}

static void on_request(void *arg, struct https_server_request *request, const char *path,
                       const char *bytes, size_t n)
{
    struct cluster *cluster = arg;
    if (cluster->config.on_request)
        cluster->config.on_request(cluster->config.arg, request, path, bytes, n);
    else
        https_server_respond(request, 404, NULL);
}

static void on_client_world(void *arg, const struct cluster_world *world)
{
    struct cluster *cluster = arg;
    if (cluster->book)
        note_world(cluster, world);
    cluster->config.on_world(cluster->config.arg, world);
}

/* ---- open and close ---- */

static enum status keep_config(struct cluster *cluster, const struct cluster_config *config)
{
    cluster->config = *config;
    cluster->master_addr = memory_text(config->master_addr ? config->master_addr : "");
    if (config->agree_json && strlen(config->agree_json) >= MESSAGE_AGREE_MAX)
        return FAIL(ST_BUG, "the list of settings that must agree has %zu bytes, more than %zu",
                    strlen(config->agree_json), MESSAGE_AGREE_MAX);
    cluster->agree_json = memory_text(config->agree_json ? config->agree_json : "{}");
    cluster->config.master_addr = cluster->master_addr;
    cluster->config.psk = NULL; /* the caller wipes its own */
    cluster->config.agree_json = cluster->agree_json;
    if (gethostname(cluster->host, sizeof cluster->host - 1) != 0)
        text_copy(cluster->host, sizeof cluster->host, "?");
    return ST_OK;
}

static enum status open_machines(struct cluster *cluster)
{
    const struct cluster_config *config = &cluster->config;
    struct member_config member = {.node_id = config->node_id,
                                   .join_timeout_ms = config->join_timeout_ms,
                                   .peer_timeout_ms = config->peer_timeout_ms,
                                   .may_search = config->has_succession};
    TRY(make_incarnation(&member.incarnation));
    cluster->process = member.incarnation;
    cluster->yields_to = -1;
    TRY(psk_seed(cluster->seed));
    member_init(&cluster->member, &member, clock_ms());
    if (config->has_succession)
        cluster->book = memory_new((size_t)config->nodes_n, sizeof *cluster->book);
    if (config->node_id == 0)
        (void)find_control(cluster, 0, cluster->control, sizeof cluster->control);
    return config->node_id == 0 ? open_coordinator(cluster, NULL) : ST_OK;
}

static enum status open_events(struct cluster *cluster)
{
    static const struct timeval every = {.tv_usec = TICK_MS * 1000};
    cluster->tick = event_new(cluster->config.loop, -1, EV_PERSIST, on_tick, cluster);
    cluster->pump = event_new(cluster->config.loop, -1, 0, on_pump, cluster);
    if (!cluster->tick || !cluster->pump || event_add(cluster->tick, &every) != 0)
        return FAIL(ST_RETRY, "out of memory: the timers of the cluster");
    wake(cluster);
    return ST_OK;
}

static enum status open_network(struct cluster *cluster)
{
    const struct cluster_config *config = &cluster->config;
    struct coordinator_server_config server = {.loop = config->loop,
                                               .coordinator = cluster->coordinator,
                                               .nodes_n = config->nodes_n,
                                               .workers_n = config->workers_n,
                                               .addr = cluster->master_addr,
                                               .is_towards = config->node_id != 0,
                                               .port = config->master_port,
                                               .psk = &cluster->psk,
                                               .seed = cluster->seed,
                                               .on_change = on_change,
                                               .on_elsewhere = on_elsewhere,
                                               .on_view =
                                                   config->has_succession ? on_server_view : NULL,
                                               .on_request = on_request,
                                               .arg = cluster};
    const struct view_client_config views = {.loop = config->loop,
                                             .psk = &cluster->psk,
                                             .nodes_n = config->nodes_n,
                                             .fill_view = fill_view,
                                             .on_view = on_view,
                                             .on_ended = on_ended,
                                             .arg = cluster};
    signal(SIGPIPE, SIG_IGN); /* a closed connection must not end this process */
    if (cluster->coordinator || config->has_succession)
        TRY(coordinator_server_open(&server, &cluster->server));
    if (config->has_succession)
        cluster->views = view_client_open(&views);
    return cluster->coordinator ? ST_OK : open_client(cluster);
}

enum status cluster_open(const struct cluster_config *config, struct cluster **out)
{
    ASSERTF(config->nodes_n >= 1 && config->nodes_n <= CLUSTER_NODES_MAX && config->node_id >= 0 &&
                config->node_id < config->nodes_n && config->workers_n >= 1 &&
                config->workers_n <= CLUSTER_WORKERS_MAX,
            "node_id %d nodes_n %d workers_n %d", config->node_id, config->nodes_n,
            config->workers_n);
    ASSERT(config->nodes_n == 1 || config->psk != NULL);
    struct cluster *cluster = secure_alloc(sizeof *cluster); /* it holds secrets */
    if (!cluster)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for the cluster", sizeof *cluster);
    cluster->machine = machine_stats_unknown();
    enum status st;
    TRY_OR(keep_config(cluster, config), close);
    TRY_OR(open_machines(cluster), close);
    TRY_OR(open_events(cluster), close);
    if (config->nodes_n > 1) {
        cluster->psk = *config->psk;
        TRY_OR(open_network(cluster), close);
    }
    *out = cluster;
    return ST_OK;
close:
    cluster_close(cluster);
    return st;
}

void cluster_close(struct cluster *cluster)
{
    if (!cluster)
        return;
    if (cluster->tick)
        event_free(cluster->tick);
    if (cluster->pump)
        event_free(cluster->pump);
    coordinator_server_close(cluster->server);
    view_client_close(cluster->views);
    member_client_close(cluster->client);
    free(cluster->book);
    coordinator_close(cluster->coordinator);
    psk_wipe(&cluster->psk);
    free(cluster->master_addr);
    free(cluster->agree_json);
    secure_free(cluster);
}

/* ---- events of the supervisor ---- */

void cluster_ready(struct cluster *cluster, const struct cluster_address *mine, int workers_n)
{
    struct member_actions actions = {0};
    ASSERTF(workers_n == cluster->config.workers_n, "workers_n %d, expected %d", workers_n,
            cluster->config.workers_n);
    memcpy(cluster->addresses, mine, (size_t)workers_n * sizeof *mine);
    member_ready(&cluster->member, &actions);
    carry_out(cluster, &actions);
}

void cluster_worker_lost(struct cluster *cluster, const struct cluster_loss *loss)
{
    struct member_actions actions = {0};
    member_lost(&cluster->member, loss, &actions);
    carry_out(cluster, &actions);
}

void cluster_closed(struct cluster *cluster, int64_t generation, int closed_rank)
{
    struct member_actions actions = {0};
    member_closed(&cluster->member, generation, closed_rank, &actions);
    carry_out(cluster, &actions);
}

void cluster_stepped(struct cluster *cluster, int64_t generation)
{
    struct member_actions actions = {0};
    member_stepped(&cluster->member, generation, &actions);
    carry_out(cluster, &actions);
}

void cluster_report(struct cluster *cluster, const struct cluster_rank *ranks, int ranks_n)
{
    ASSERTF(ranks_n <= CLUSTER_WORKERS_MAX, "ranks_n %d", ranks_n);
    memcpy(cluster->ranks, ranks, (size_t)ranks_n * sizeof *ranks);
    cluster->ranks_n = ranks_n;
    cluster->member.step = -1;
    for (int i = 0; i < ranks_n; i++) {
        if (ranks[i].step > cluster->member.step)
            cluster->member.step = ranks[i].step;
    }
    if (ranks_n > 0)
        straggler_pace_add(&cluster->pace, &ranks[0]);
}

void cluster_report_machine(struct cluster *cluster, const struct machine_stats *machine)
{
    cluster->machine = *machine;
}

void cluster_stop(struct cluster *cluster, int request)
{
    struct member_actions actions = {0};
    member_stop(&cluster->member, request, &actions);
    carry_out(cluster, &actions);
}

void cluster_leave(struct cluster *cluster, enum status st, const char *message)
{
    struct member_actions actions = {0};
    member_leave(&cluster->member, st, message, clock_ms(), &actions);
    carry_out(cluster, &actions);
}

void cluster_psk(const struct cluster *cluster, struct psk *out) { *out = cluster->psk; }

/* ---- the state, for the supervisor ---- */

bool cluster_strangers(const struct cluster *cluster, struct https_server_strangers *out)
{
    if (cluster->server)
        coordinator_server_strangers(cluster->server, out);
    return cluster->server;
}

int cluster_nodes(struct cluster *cluster, const struct cluster_node **out)
{
    if (cluster->coordinator) {
        *out = coordinator_nodes(cluster->coordinator, clock_ms());
        return cluster->config.nodes_n;
    }
    /* The coordinator's node and this node, as this node sees them. */
    struct cluster_node *own = cluster->own;
    const struct member *m = &cluster->member;
    int64_t now_ms = clock_ms(), silent_ms = now_ms - m->answered_ms;
    bool is_met = m->answered_ms >= 0,
         is_gone = m->disconnected_ms >= 0 && now_ms - m->disconnected_ms >= MEMBER_DISCONNECTED_MS;
    own[0] = (struct cluster_node){
        .node_id = m->leader_id,
        .state = !is_met                                 ? CLUSTER_NODE_AWAITED
                 : is_gone                               ? CLUSTER_NODE_LOST
                 : silent_ms < COORDINATOR_SUSPECT_MS    ? CLUSTER_NODE_JOINED
                 : silent_ms < m->config.peer_timeout_ms ? CLUSTER_NODE_SUSPECT
                                                         : CLUSTER_NODE_LOST,
        .machine = machine_stats_unknown(),
        .heartbeat_age_seconds = is_met ? (double)silent_ms / 1e3 : NAN};
    char control[CLUSTER_CONTROL_MAX] = "";
    if (m->leader_id == 0)
        text_copy(control, sizeof control, cluster->master_addr);
    else
        (void)find_control(cluster, m->leader_id, control, sizeof control);
    text_copy(own[0].address, sizeof own[0].address, control);
    own[1] =
        (struct cluster_node){.node_id = cluster->config.node_id,
                              .state = m->is_joined ? CLUSTER_NODE_JOINED : CLUSTER_NODE_AWAITED,
                              .heartbeat_age_seconds = 0,
                              .machine = cluster->machine,
                              .ranks_n = cluster->ranks_n,
                              .ranks = cluster->ranks};
    text_copy(own[1].address, sizeof own[1].address, cluster->host);
    *out = own;
    return 2;
}

bool cluster_leads(const struct cluster *cluster) { return cluster->coordinator != NULL; }

int64_t cluster_generation(const struct cluster *cluster) { return cluster->member.generation; }
int64_t cluster_restarts(const struct cluster *cluster) { return cluster->member.counts.restarts; }

const char *cluster_cause(const struct cluster *cluster, int *rank_out)
{
    return cluster->coordinator ? coordinator_cause(cluster->coordinator, rank_out) : "";
}

void cluster_checkpoints(struct cluster *cluster, int64_t n)
{
    if (cluster->coordinator)
        coordinator_checkpoints(cluster->coordinator, n);
}

const char *cluster_missing(const struct cluster *cluster) { return cluster->member.missing; }

/* cluster_bridge — see cluster_bridge.h. */
#include "node/supervisor/cluster_bridge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secure.h"
#include "base/text.h"
#include "net/https_server.h"
#include "net/listener.h"
#include "cluster/cluster.h"
#include "file_share/file_server.h"
#include "net/https_server.h"
#include "net/psk.h"
#include "node/worker/file_sync.h"
#include "node/worker/generations.h"
#include "node/choose/config_map.h"
#include "train/trainer/stop_request.h"

#define REPORT_MS 250
#define NAME_MS (30 * 1000)
#define NAME_RETRY_MS 250
/* missing nodes are logged after this time, and again when the list changes */
#define WAITING_MS 3000
#define WAITING_AGAIN_MS 60000 /* time between two log lines about the same missing nodes */

_Static_assert(FILE_LIST_NODES_MAX == CLUSTER_NODES_MAX, "a node of the cluster may request data");
_Static_assert(sizeof(struct cluster_address) == sizeof(struct board_address) &&
                   CLUSTER_ADDRESS_MAX == BOARD_ADDRESS_MAX &&
                   CLUSTER_SECRET_BYTES == BOARD_SECRET_BYTES,
               "the board's addresses and secrets have the sizes of the cluster's");
_Static_assert(CLUSTER_STOP_MAX == (int)BOARD_REQUEST_INTERRUPT,
               "a stop is a request of the board");

struct cluster_bridge {
    struct cluster_bridge_config config;
    struct cluster *cluster;
    int nodes_n, workers_n, ranks_n;
    int64_t running;   /* current generation; 0: none */
    int running_nodes; /* number of nodes in the current generation, or in the last one */
    int64_t stepped;   /* the last generation with a reported step */
    bool has_fault;    /* a worker of this node ended with ST_FAULT in the last generation */
    bool is_ready;     /* the cluster has all workers' addresses */
    bool is_ended;
    struct file_server *files;                  /* set on node 0 of several nodes; else NULL */
    uint64_t blob_revisions[FILE_LIST_KINDS_N]; /* the revisions that were read last */
    int64_t report_ms, waiting_ms;
    int64_t opened_ms;
    char missing[1024]; /* list of missing nodes in the last log line */
    int64_t missing_ms; /* time of that log line */
    char reached[64];   /* last argument of on_reached; "": not called yet */
    struct cluster_address addresses[CLUSTER_WORKERS_MAX];
    /* revision of each worker's board_ready whose address is in addresses[] */
    int64_t revisions[CLUSTER_WORKERS_MAX];
    struct board_address *world; /* ranks_n addresses */
    struct view_node *nodes;     /* nodes_n nodes */
    struct view_peer *peers;     /* ranks_n peers */
    /* numbers of valid nodes and peers since the last refresh_nodes */
    int shown_nodes_n, shown_peers_n;
};

static void report_ranks(struct cluster_bridge *b, int64_t now_ms);

static void report_first_step(struct cluster_bridge *b);

/* report_loss — reports to the cluster that a worker ended or that its comm failed. worker_i -1: a
 * comm failed. generation: the generation of the loss; 0: before the first one. */
static void report_loss(struct cluster_bridge *b, int64_t generation, int worker_i, enum status st,
                        const char *why)
{
    struct board_worker last;
    struct cluster_loss loss = {generation, worker_i, -1, st, why};
    ASSERTF(worker_i >= -1 && worker_i < b->workers_n, "worker %d of %d", worker_i, b->workers_n);
    if (b->is_ended)
        return;
    if (worker_i >= 0 && board_worker_copy(b->config.board, worker_i, &last))
        loss.step = last.step;
    b->is_ready = false;
    report_first_step(b); /* the progress of this generation decides whether the job restarts */
    report_ranks(b, clock_ms());
    cluster_worker_lost(b->cluster, &loss);
}

/* ---- calls from the cluster ---- */

static bool has_same_data(const struct cluster_address *one, int one_node,
                          const struct cluster_address *other, int other_node, char *out,
                          size_t cap)
{
    return generations_same_data((const void *)one, one_node, (const void *)other, other_node, out,
                                 cap);
}

/* on_request — serves a request to this node for a path that is not the cluster's. */
static void on_request(void *arg, struct https_server_request *request, const char *path,
                       const char *bytes, size_t n)
{
    struct cluster_bridge *b = arg;
    if (b->files)
        file_server_on_request(b->files, request, path, bytes, n);
    else /* only node 0 serves files, also while another node leads the job */
        https_server_respond(request, 404, NULL);
}

static void on_world(void *arg, const struct cluster_world *world)
{
    struct cluster_bridge *b = arg;
    /* The index of this node in the world; -1: it is not in it. */
    struct board_world_place place = {world->generation, world->nodes_n, -1};
    for (int i = 0; i < world->nodes_n; i++)
        if (world->node_ids[i] == (int)conf_i64(b->config.conf, CONF_NODE_ID))
            place.node = i;
    ASSERTF(b->running == 0 && !b->is_ended && world->generation > 0, "%lld after %lld",
            (long long)world->generation, (long long)b->running);
    b->running = world->generation;
    b->running_nodes = world->nodes_n;
    b->is_ready = b->has_fault = false;
    /* The first worker that does not run; workers_n: all run. */
    int dead = 0;
    while (dead < b->workers_n && workers_is_alive(b->config.workers, dead))
        dead++;
    if (dead < b->workers_n || world->ranks_n > b->ranks_n || place.node < 0) {
        report_loss(b, b->running, dead < b->workers_n ? dead : -1, ST_RETRY,
                    "a worker ended while the nodes connected");
        return;
    }
    for (int rank = 0; rank < world->ranks_n; rank++) {
        b->world[rank].bytes = world->addresses[rank].bytes;
        memcpy(b->world[rank].data, world->addresses[rank].data, sizeof b->world[rank].data);
    }
    LOG_DEBUG("generation %lld: %d ranks on %d nodes", (long long)world->generation, world->ranks_n,
              world->nodes_n);
    b->missing[0] = 0;
    b->config.on_begin(b->config.arg);
    board_secret_publish(b->config.board, world->generation, world->secret);
    board_world_publish(b->config.board, &place, b->world, world->ranks_n);
}

static void on_abort(void *arg, int64_t generation, const char *why)
{
    struct cluster_bridge *b = arg;
    ASSERTF(generation > 0 && generation >= b->running, "%lld in %lld", (long long)generation,
            (long long)b->running);
    b->running = 0;
    b->is_ready = false;
    b->waiting_ms = clock_ms();
    /* before board_abort: a worker that is stopped while it waits reports this reason */
    b->config.on_abort(b->config.arg, why);
    board_abort(b->config.board, generation);
}

static void on_stop(void *arg, int request)
{
    struct cluster_bridge *b = arg;
    b->config.on_stop(b->config.arg, (enum board_request)request);
}

static void on_end(void *arg, enum status st)
{
    struct cluster_bridge *b = arg;
    b->is_ended = true;
    /* The exit code of a fault requests a scheduler to drain the machine, so only the node that has
     * the fault ends with it. */
    if (st == ST_PEER || st == ST_FAULT)
        st = b->has_fault ? ST_FAULT : ST_PEER;
    b->config.on_end(b->config.arg, st);
}

/* ---- reports from the workers ---- */

/* collect_ready — reads the addresses of the workers. Returns true if every worker waits for a
 * generation later than any that is known here. A worker that left the current generation by itself
 * reports it this way. */
static bool collect_ready(struct cluster_bridge *b)
{
    struct board_ready ready;
    int64_t over = board_aborted(b->config.board);
    bool is_whole = true;
    for (int i = 0; i < b->workers_n; i++) {
        if (!workers_is_alive(b->config.workers, i) ||
            !board_ready_copy(b->config.board, i, &ready)) {
            is_whole = false;
            continue;
        }
        if (ready.closed_rank >= 0)
            cluster_closed(b->cluster, ready.after, ready.closed_rank);
        if (b->running && ready.after >= b->running) {
            report_loss(b, b->running, -1, ST_PEER, ready.why[0] ? ready.why : "a worker left");
            return false;
        }
        is_whole = is_whole && ready.after >= over;
        b->is_ready = b->is_ready && ready.revision == b->revisions[i];
        b->revisions[i] = ready.revision;
        b->addresses[i].bytes = ready.address.bytes;
        memcpy(b->addresses[i].data, ready.address.data, sizeof b->addresses[i].data);
    }
    return is_whole && !b->running;
}

static void log_missing(struct cluster_bridge *b, int64_t now_ms)
{
    const char *missing = cluster_missing(b->cluster);
    const int64_t waited_ms = now_ms - b->waiting_ms;
    if (b->running || !missing[0] || waited_ms < WAITING_MS)
        return;
    if (strcmp(missing, b->missing) == 0 && now_ms - b->missing_ms < WAITING_AGAIN_MS)
        return;
    text_copy(b->missing, sizeof b->missing, missing);
    b->missing_ms = now_ms;
    LOG_INFO("waiting for %s, %lld s", missing, (long long)(waited_ms / 1000));
}

static void report_ranks(struct cluster_bridge *b, int64_t now_ms)
{
    struct cluster_rank ranks[CLUSTER_WORKERS_MAX];
    struct board_worker stats;
    struct board_call call;
    int first = (int)conf_i64(b->config.conf, CONF_NODE_ID) * b->workers_n;
    for (int i = 0; i < b->workers_n; i++) {
        struct cluster_rank *rank = &ranks[i];
        *rank = (struct cluster_rank){
            .rank = first + i,
#define RANK_STAT(NAME, field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#include "base/rank_stats.def"
        };
        text_copy(rank->state, sizeof rank->state, board_phase_text(BOARD_PHASE_STARTING));
        if (board_worker_copy(b->config.board, i, &stats)) {
            rank->rank = stats.rank;
            text_copy(rank->state, sizeof rank->state, board_phase_text(stats.phase));
            text_copy(rank->device, sizeof rank->device, stats.device);
#define RANK_STAT(NAME, field, ...) rank->field = stats.field;
#include "base/rank_stats.def"
        }
        if (board_call_copy(b->config.board, i, &call)) {
            text_copy(rank->call, sizeof rank->call, call.call);
            rank->call_sequence = call.sequence;
            rank->call_age_ms =
                call.call[0] && now_ms > call.entered_ms ? now_ms - call.entered_ms : 0;
        }
    }
    cluster_report(b->cluster, ranks, b->workers_n);
}

/* is_loopback — returns true if only processes of this host can reach the address. */
static bool is_loopback(const char *address)
{
    return text_starts(address, "127.") || strcmp(address, "::1") == 0;
}

const char *cluster_bridge_choose_reached(const struct cluster_node *nodes, int nodes_n,
                                          bool *is_split_out)
{
    const char *best = "";
    int best_n = 0;
    *is_split_out = false;
    for (int i = 1; i < nodes_n; i++) {
        const char *address = nodes[i].reached;
        int n = 0;
        bool is_first = address[0] && nodes[i].state == CLUSTER_NODE_JOINED;
        for (int k = 1; k < nodes_n && is_first; k++) {
            const bool is_same =
                nodes[k].state == CLUSTER_NODE_JOINED && strcmp(nodes[k].reached, address) == 0;
            is_first = !is_same || k >= i;
            n += is_same;
        }
        if (!is_first)
            continue;
        const bool is_outer = !is_loopback(address), was_outer = best[0] && !is_loopback(best);
        *is_split_out = *is_split_out || (is_outer && was_outer);
        if (!best[0] || is_outer > was_outer || (is_outer == was_outer && n > best_n)) {
            best = address;
            best_n = n;
        }
    }
    return best;
}

/* report_reached — on node 0, reports the address at which the other nodes reach this one. If the
 * job may begin with node 0 only and no node has connected in time, any address is enough. */
static void report_reached(struct cluster_bridge *b, int64_t now_ms)
{
    const struct conf *conf = b->config.conf;
    const struct cluster_node *nodes;
    bool is_split;
    if (b->nodes_n == 1 || conf_i64(conf, CONF_NODE_ID) != 0 || conf_text(conf, CONF_DATA_ADDR)[0])
        return;
    const int nodes_n = cluster_nodes(b->cluster, &nodes);
    const char *address = cluster_bridge_choose_reached(nodes, nodes_n, &is_split);
    if (!address[0] && !b->reached[0] && conf_min_nodes(conf) == 1 &&
        now_ms - b->opened_ms >= conf_i64(conf, CONF_JOIN_TIMEOUT))
        address = "127.0.0.1";
    if (!address[0] || strcmp(address, b->reached) == 0)
        return;
    if (is_split)
        LOG_INFO("other nodes reach this one at several addresses; if MASTER_ADDR has no address "
                 "for its workers, they use %s; DATA_ADDR sets another",
                 address);
    text_copy(b->reached, sizeof b->reached, address);
    b->config.on_reached(b->config.arg, address);
}

/* publish_file_lists — serves the file lists of node 0's first worker to the nodes that have no
 * files. */
static void publish_file_lists(struct cluster_bridge *b)
{
    static char blob[BOARD_BLOB_MAX];
    size_t n;
    for (int kind = 0; kind < FILE_LIST_KINDS_N; kind++) {
        enum board_blob from = file_sync_blob((enum file_list_kind)kind);
        uint64_t revision = board_blob_revision(b->config.board, from);
        if (revision == b->blob_revisions[kind] ||
            !board_blob_copy(b->config.board, from, blob, &n))
            continue;
        b->blob_revisions[kind] = revision;
        if (file_server_set(b->files, (enum file_list_kind)kind, blob, n) != ST_OK) {
            LOG_WARN("no %s for other nodes: %s", file_list_setting((enum file_list_kind)kind),
                     status_message());
            status_clear();
        }
    }
}

/* report_first_step — reports the first step of this generation that a worker of this node has
 * finished. With copies of the state, the step counts only when its copy is complete: a node that
 * returns ends the generation, and the job goes on from that copy. */
static void report_first_step(struct cluster_bridge *b)
{
    struct board_worker first;
    if (!b->running || b->stepped == b->running || !board_worker_copy(b->config.board, 0, &first) ||
        first.generation != b->running || !board_worker_has_stepped(&first))
        return;
    if (first.peer_copy.step >= 0 && first.peer_copy.step <= first.begun_step)
        return;
    b->stepped = b->running;
    cluster_stepped(b->cluster, b->running);
}

void cluster_bridge_tick(struct cluster_bridge *b, int64_t now_ms)
{
    if (b->is_ended)
        return;
    report_first_step(b);
    if (b->files)
        publish_file_lists(b);
    if (now_ms - b->report_ms >= REPORT_MS) {
        b->report_ms = now_ms;
        report_ranks(b, now_ms);
        log_missing(b, now_ms);
        report_reached(b, now_ms);
    }
    if (!collect_ready(b) || b->is_ready)
        return;
    ASSERT(b->running == 0);
    b->is_ready = true;
    cluster_ready(b->cluster, b->addresses, b->workers_n);
}

/* ---- calls from the supervisor ---- */

void cluster_bridge_lost(struct cluster_bridge *b, int worker_i, enum status st, const char *why)
{
    struct board_ready ready;
    ASSERTF(worker_i >= 0, "worker %d", worker_i);
    const int64_t over = board_aborted(b->config.board);
    int64_t generation = b->running;
    /* If the worker was not ready for another generation, its generation may already be over: all
     * ranks end if a loss is not finite, and other ranks may report first that this worker
     * ended. */
    if (!b->running && board_ready_copy(b->config.board, worker_i, &ready) && ready.after < over)
        generation = over;
    b->has_fault = b->has_fault || st == ST_FAULT;
    report_loss(b, generation, worker_i, st, why);
}

void cluster_bridge_stop(struct cluster_bridge *b, enum board_request request)
{
    if (!b->is_ended)
        cluster_stop(b->cluster, (int)request);
}

void cluster_bridge_leave(struct cluster_bridge *b, enum status st, const char *message)
{
    b->has_fault = b->has_fault || st == ST_FAULT;
    if (!b->is_ended)
        cluster_leave(b->cluster, st, message);
}

bool cluster_bridge_has_all(struct cluster_bridge *b)
{
    const struct cluster_node *nodes;
    const int nodes_n = cluster_nodes(b->cluster, &nodes);
    for (int i = 0; i < nodes_n; i++)
        if (nodes[i].state != CLUSTER_NODE_JOINED)
            return false;
    return true;
}

void cluster_bridge_report_machine(struct cluster_bridge *b, const struct machine_stats *machine)
{
    if (!b->is_ended)
        cluster_report_machine(b->cluster, machine);
}

bool cluster_bridge_leads(const struct cluster_bridge *b)
{
    return b->cluster && cluster_leads(b->cluster);
}
int cluster_bridge_running_nodes(const struct cluster_bridge *b) { return b->running_nodes; }
bool cluster_bridge_is_running(const struct cluster_bridge *b) { return b->running != 0; }

int64_t cluster_bridge_restarts(const struct cluster_bridge *b)
{
    return cluster_restarts(b->cluster);
}

const char *cluster_bridge_cause(const struct cluster_bridge *b, int *rank_out)
{
    return cluster_cause(b->cluster, rank_out);
}

void cluster_bridge_checkpoints(struct cluster_bridge *b, int64_t n)
{
    if (!b->is_ended)
        cluster_checkpoints(b->cluster, n);
}

/* ---- for the status page ---- */

/* fill_peer — copies the report of a node about one of its ranks. For a node that is not connected,
 * only its last step is still valid. */
static void fill_peer(struct view_peer *out, const struct cluster_node *node,
                      const struct cluster_rank *rank)
{
    bool is_here = node->state == CLUSTER_NODE_JOINED, is_gone = node->state == CLUSTER_NODE_LOST;
    *out = (struct view_peer){
#define RANK_STAT(NAME, field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#include "base/rank_stats.def"
        .rank = rank->rank,
        .node = node->node_id,
        .heard_age_ms = is_here || !isfinite(node->heartbeat_age_seconds)
                            ? -1
                            : (int64_t)(1000 * node->heartbeat_age_seconds),
        .call_age_ms = is_here && rank->call[0] ? rank->call_age_ms : -1,
    };
    out->step = rank->step;
    text_copy(out->device, sizeof out->device, rank->device);
    text_copy(out->state, sizeof out->state,
              is_here                            ? rank->state
              : is_gone                          ? "lost"
              : node->state == CLUSTER_NODE_LEFT ? "left"
                                                 : "unknown");
    if (!is_here)
        return;
    text_copy(out->call, sizeof out->call, rank->call);
#define RANK_STAT(NAME, field, ...) out->field = rank->field;
#include "base/rank_stats.def"
}

void cluster_bridge_fill(void *arg, struct view *view)
{
    struct cluster_bridge *b = arg;
    if (!b->is_ended) {
        static const char *const states[] = {[CLUSTER_NODE_AWAITED] = "awaited",
                                             [CLUSTER_NODE_JOINED] = "joined",
                                             [CLUSTER_NODE_SUSPECT] = "suspect",
                                             [CLUSTER_NODE_LOST] = "lost",
                                             [CLUSTER_NODE_LEFT] = "left"};
        const struct cluster_node *nodes;
        int nodes_n = b->nodes_n > 1 ? cluster_nodes(b->cluster, &nodes) : 0;
        int own = (int)conf_i64(b->config.conf, CONF_NODE_ID);
        b->shown_nodes_n = nodes_n < b->nodes_n ? nodes_n : b->nodes_n;
        b->shown_peers_n = 0;
        for (int i = 0; i < b->shown_nodes_n; i++) {
            const struct cluster_node *node = &nodes[i];
            b->nodes[i] = (struct view_node){.node_id = node->node_id,
                                             .state = states[node->state],
                                             .heartbeat_age_seconds = node->heartbeat_age_seconds,
                                             .machine = node->machine};
            text_copy(b->nodes[i].address, sizeof b->nodes[i].address, node->address);
            const bool is_shown =
                node->node_id != own && cluster_leads(b->cluster) && !node->is_outside;
            for (int k = 0; k < node->ranks_n && b->shown_peers_n < b->ranks_n && is_shown; k++)
                fill_peer(&b->peers[b->shown_peers_n++], node, &node->ranks[k]);
        }
    }
    view->nodes = b->nodes;
    view->nodes_n = b->shown_nodes_n;
    view->peers = b->peers;
    view->peers_n = b->shown_peers_n;
    struct https_server_strangers door;
    if (!b->is_ended && cluster_strangers(b->cluster, &door))
        view->door = (struct view_door){true, door.is_full, door.strangers_n, door.turned_away};
}

/* ---- open and close ---- */

/* wait_for_name — looks up node 0's own name again for a while, because it may have been published
 * only now (for example, a pod's name in Kubernetes). The event loop runs meanwhile, so a stop
 * request is handled. */
static enum status wait_for_name(struct cluster_bridge *b)
{
    const char *addr = conf_text(b->config.conf, CONF_MASTER_ADDR);
    int64_t join_ms = conf_i64(b->config.conf, CONF_JOIN_TIMEOUT),
            wait_ms = join_ms < NAME_MS ? join_ms : NAME_MS;
    enum status st = listener_resolve(addr);
    if (st == ST_RETRY)
        LOG_WARN("%s; it is looked up again for %lld s", status_message(),
                 (long long)(wait_ms / 1000));
    for (int64_t until_ms = clock_ms() + wait_ms; st == ST_RETRY && clock_ms() < until_ms;
         st = listener_resolve(addr)) {
        event_base_loop(b->config.loop, EVLOOP_NONBLOCK);
        enum board_request request = board_requested(b->config.board);
        if (stop_request_is_stop(request))
            return FAIL(stop_request_status(request), "stopped by %s before the nodes connected",
                        stop_request_signal(request));
        clock_sleep_ms(NAME_RETRY_MS);
    }
    return st == ST_RETRY ? FAIL(ST_BAD_SETTING, "%s", status_message()) : st;
}

static void describe(const void *arg, int rank, int ranks, char *out, size_t cap)
{
    mesh_place(arg, rank, ranks, out, cap);
}

static struct cluster_places places_of(const struct mesh *mesh)
{
    if (!mesh)
        return (struct cluster_places){0};
    /* Stages make different calls. In evaluations, a data group with no batch makes only its
     * store's calls, not the calls of tensor and context groups (train/step/eval.c). */
    const int data = mesh->size[MESH_AXIS_DATA];
    const bool calls_differ =
        mesh->size[MESH_AXIS_PIPELINE] > 1 || (data > 1 && data != mesh_ranks(mesh));
    return (struct cluster_places){.describe = describe, .arg = mesh, .calls_differ = calls_differ};
}

/* derive_job_key — reads the token and derives the job's key from it. Wipes the token. */
static enum status derive_job_key(const struct conf *conf, struct psk *out)
{
    char *token = secure_alloc(CONF_TOKEN_BYTES);
    enum status st =
        token ? conf_token(conf, token) : FAIL(ST_RETRY, "out of memory: the token of this job");
    if (st == ST_OK)
        st = psk_derive(token, out);
    secure_free(token);
    return st;
}

/* has_succession — returns true if another node may lead the job when node 0 is lost. Node 0 stays
 * needed if it moves the checkpoints to and from a bucket. */
static bool has_succession(const struct cluster_bridge *b)
{
    const struct conf *conf = b->config.conf;
    const bool has_bucket =
        strcmp(conf_text(conf, CONF_CHECKPOINT_DIR), conf_given(conf, CONF_CHECKPOINT_DIR)) != 0;
    return b->config.mesh != NULL && conf_min_nodes(conf) < b->nodes_n && !has_bucket &&
           b->nodes_n <= SUCCESSION_NODES_MAX;
}

static enum status open_cluster(struct cluster_bridge *b)
{
    const struct conf *conf = b->config.conf;
    struct text agreed = {0};
    TRY(b->config.agreement(conf, &agreed));
    struct psk *psk = secure_alloc(sizeof *psk);
    enum status st = psk ? ST_OK : FAIL(ST_RETRY, "out of memory: the key of this job");
    if (st == ST_OK && b->nodes_n > 1)
        st = derive_job_key(conf, psk);
    conf_token_wipe(conf);
    struct cluster_config config = {.node_id = (int)conf_i64(conf, CONF_NODE_ID),
                                    .nodes_n = b->nodes_n,
                                    .workers_n = b->workers_n,
                                    .min_nodes = conf_min_nodes(conf),
                                    .has_succession = has_succession(b),
                                    .master_addr = conf_text(conf, CONF_MASTER_ADDR),
                                    .master_port = (int)conf_i64(conf, CONF_MASTER_PORT),
                                    .psk = psk,
                                    .join_timeout_ms = conf_i64(conf, CONF_JOIN_TIMEOUT),
                                    .peer_timeout_ms = conf_i64(conf, CONF_PEER_TIMEOUT),
                                    .max_restarts = b->config.max_restarts,
                                    .agree_json = agreed.data,
                                    .is_same_data = has_same_data,
                                    .places = places_of(b->config.mesh),
                                    .loop = b->config.loop,
                                    .on_world = on_world,
                                    .on_abort = on_abort,
                                    .on_stop = on_stop,
                                    .on_end = on_end,
                                    .on_request = on_request,
                                    .arg = b};
    if (st == ST_OK && b->nodes_n > 1 && psk->is_none)
        LOG_WARN("JOB_TOKEN=none: any host that reaches MASTER_PORT=%d can join this job and read "
                 "its data",
                 config.master_port);
    if (st == ST_OK && b->nodes_n > 1 && config.node_id == 0)
        st = wait_for_name(b);
    if (st == ST_OK)
        st = cluster_open(&config, &b->cluster);
    secure_free(psk);
    text_free(&agreed);
    return st;
}

enum status cluster_bridge_open(const struct cluster_bridge_config *config,
                                struct cluster_bridge **out)
{
    struct cluster_bridge *b = memory_new(1, sizeof *b);
    b->config = *config;
    b->nodes_n = (int)conf_i64(config->conf, CONF_N_NODES);
    b->workers_n = (int)conf_i64(config->conf, CONF_N_GPU_EACH_NODE);
    b->ranks_n = conf_ranks(config->conf);
    b->waiting_ms = b->opened_ms = clock_ms();
    int node_id = (int)conf_i64(config->conf, CONF_NODE_ID);
    b->world = memory_new((size_t)b->ranks_n, sizeof *b->world);
    b->nodes = memory_new((size_t)b->nodes_n, sizeof *b->nodes);
    b->peers = memory_new((size_t)b->ranks_n, sizeof *b->peers);
    if (b->nodes_n > 1 && node_id == 0)
        b->files = file_server_open();
    enum status st = open_cluster(b);
    if (st == ST_OK && b->nodes_n > 1 && node_id > 0) {
        /* The key with which this node's workers download node 0's files. */
        struct psk psk;
        cluster_psk(b->cluster, &psk);
        board_blob_publish(b->config.board, BOARD_BLOB_JOB_KEY, &psk, sizeof psk);
        psk_wipe(&psk);
    }
    if (st == ST_OK)
        *out = b;
    else
        cluster_bridge_close(b);
    return st;
}

void cluster_bridge_end(struct cluster_bridge *b)
{
    if (!b)
        return;
    b->is_ended = true;
    cluster_close(b->cluster);
    b->cluster = NULL;
    file_server_close(b->files);
    b->files = NULL;
    for (int i = 0; i < b->shown_nodes_n; i++)
        b->nodes[i].heartbeat_age_seconds = NAN; /* the port is closed */
}

void cluster_bridge_close(struct cluster_bridge *b)
{
    if (!b)
        return;
    cluster_bridge_end(b);
    free(b->world);
    free(b->nodes);
    free(b->peers);
    free(b);
}

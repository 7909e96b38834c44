/* rally — see rally.h. */
#include "node/rally.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/secure.h"
#include "base/text.h"
#include "meet/doorstep.h"
#include "meet/meet.h"
#include "meet/secret.h"
#include "node/lives.h"
#include "node/mapping.h"
#include "train/guard.h"

#define TOKEN_BYTES 1200
#define REPORT_MS 250
#define NAME_MS (30 * 1000)
#define NAME_LOOK_MS 250
#define WAITING_MS 3000 /* who is waited for is said after so long, and when it changes */

_Static_assert(sizeof(struct meet_address) == sizeof(struct board_address) &&
                   MEET_ADDRESS_MAX == BOARD_ADDRESS_MAX && MEET_SECRET_BYTES == BOARD_SECRET_BYTES,
               "the board carries what meet does");

struct rally {
    struct rally_config config;
    struct meet *meet;
    int nodes_n, workers_n, ranks_n;
    int64_t running;  /* generation; 0: none */
    int64_t given_up; /* the last generation we told meet that it is lost */
    bool is_ready;    /* meet knows all workers' addresses */
    bool is_ended;
    bool is_giver;                  /* node 0 of several */
    uint64_t letters[BILL_KINDS_N]; /* as read last */
    int64_t report_ms, waiting_ms;
    char missing[256]; /* as said last */
    struct meet_address addresses[MEET_WORKERS_MAX];
    int64_t turns[MEET_WORKERS_MAX];  /* of each worker's ready post whose address that is */
    struct board_address *world;      /* ranks_n */
    struct view_node *nodes;          /* nodes_n */
    struct view_peer *peers;          /* ranks_n */
    int shown_nodes_n, shown_peers_n; /* of these: as of the last look */
};

/* ---- what meet says ---- */

static bool is_alike(const struct meet_address *one, int one_node, const struct meet_address *other,
                     int other_node, char *out, size_t cap)
{
    return lives_is_alike((const void *)one, one_node, (const void *)other, other_node, out, cap);
}

static bool all_alive(const struct rally *r)
{
    for (int i = 0; i < r->workers_n; i++)
        if (!crew_is_alive(r->config.crew, i))
            return false;
    return true;
}

static void on_world(void *arg, const struct meet_world *world)
{
    struct rally *r = arg;
    r->running = world->generation;
    r->is_ready = false;
    if (!all_alive(r) || world->ranks_n != r->ranks_n) {
        rally_lost(r, ST_RETRY, "a worker ended while the nodes met");
        return;
    }
    for (int rank = 0; rank < world->ranks_n; rank++) {
        r->world[rank].bytes = world->addresses[rank].bytes;
        memcpy(r->world[rank].data, world->addresses[rank].data, sizeof r->world[rank].data);
    }
    LOG_DEBUG("generation %lld: %d ranks on %d nodes", (long long)world->generation, world->ranks_n,
              r->nodes_n);
    r->missing[0] = 0;
    board_secret_post(r->config.board, world->generation, world->secret);
    board_world_post(r->config.board, world->generation, r->world);
}

static void on_abort(void *arg, int64_t generation, const char *why)
{
    struct rally *r = arg;
    r->running = 0;
    r->is_ready = false;
    r->waiting_ms = clock_ms();
    /* first: a worker that is stopped while it waits says why */
    r->config.on_abort(r->config.arg, why);
    board_abort(r->config.board, generation);
}

static void on_stop(void *arg, int request)
{
    struct rally *r = arg;
    r->config.on_stop(r->config.arg, (enum board_request)request);
}

static void on_end(void *arg, enum status st)
{
    struct rally *r = arg;
    r->is_ended = true;
    r->config.on_end(r->config.arg, st);
}

/* ---- what workers say ---- */

/* gather_ready — every worker waits for a later generation than any we know of. A worker that left
 * the one under way by itself says so here. */
static bool gather_ready(struct rally *r)
{
    struct board_ready ready;
    int64_t over = board_aborted(r->config.board);
    bool is_whole = true;
    for (int i = 0; i < r->workers_n; i++) {
        if (!crew_is_alive(r->config.crew, i) || !board_ready_copy(r->config.board, i, &ready)) {
            is_whole = false;
            continue;
        }
        if (r->running && ready.after >= r->running) {
            rally_lost(r, ST_PEER, ready.why[0] ? ready.why : "a worker left");
            return false;
        }
        is_whole = is_whole && ready.after >= over;
        r->is_ready = r->is_ready && ready.turn == r->turns[i];
        r->turns[i] = ready.turn;
        r->addresses[i].bytes = ready.address.bytes;
        memcpy(r->addresses[i].data, ready.address.data, sizeof r->addresses[i].data);
    }
    return is_whole && !r->running;
}

static void say_missing(struct rally *r, int64_t now_ms)
{
    const char *missing = meet_missing(r->meet);
    if (r->running || !missing[0] || now_ms - r->waiting_ms < WAITING_MS ||
        !strcmp(missing, r->missing))
        return;
    text_copy(r->missing, sizeof r->missing, missing);
    LOG_INFO("waiting for %s", missing);
}

static void report(struct rally *r, int64_t now_ms)
{
    struct meet_rank ranks[MEET_WORKERS_MAX];
    struct board_worker post;
    struct board_call call;
    int first = (int)conf_i64(r->config.conf, CONF_NODE_ID) * r->workers_n;
    for (int i = 0; i < r->workers_n; i++) {
        struct meet_rank *rank = &ranks[i];
        *rank = (struct meet_rank){.rank = first + i,
                                   .step = -1,
                                   .compute_ms = NAN,
                                   .comm_ms = NAN,
                                   .wait_ms = NAN,
                                   .memory_bytes = -1};
        text_copy(rank->state, sizeof rank->state, board_phase_text(BOARD_PHASE_STARTING));
        if (board_worker_copy(r->config.board, i, &post)) {
            text_copy(rank->state, sizeof rank->state, board_phase_text(post.phase));
            text_copy(rank->device, sizeof rank->device, post.device);
            rank->step = post.step;
            rank->compute_ms = post.compute_ms;
            rank->comm_ms = post.comm_ms;
            rank->wait_ms = post.wait_ms;
            rank->memory_bytes = post.memory_bytes;
        }
        if (board_call_copy(r->config.board, i, &call)) {
            text_copy(rank->call, sizeof rank->call, call.call);
            rank->call_sequence = call.sequence;
            rank->call_age_ms =
                call.call[0] && now_ms > call.entered_ms ? now_ms - call.entered_ms : 0;
        }
    }
    meet_report(r->meet, ranks, r->workers_n);
}

/* take_letters — what node 0's first worker wrote of its data, for the nodes that have none. */
static void take_letters(struct rally *r)
{
    static char letter[BOARD_LETTER_MAX];
    size_t n;
    static const enum board_letter letters[BILL_KINDS_N] = {
        [BILL_KIND_DATA] = BOARD_LETTER_DATA, [BILL_KIND_VAL_DATA] = BOARD_LETTER_VAL_DATA};
    for (int kind = 0; kind < BILL_KINDS_N; kind++) {
        enum board_letter from = letters[kind];
        uint64_t turn = board_letter_turn(r->config.board, from);
        if (turn == r->letters[kind] || !board_letter_copy(r->config.board, from, letter, &n))
            continue;
        r->letters[kind] = turn;
        meet_offer(r->meet, (enum bill_kind)kind, letter, n);
    }
}

void rally_tick(struct rally *r, int64_t now_ms)
{
    if (r->is_ended)
        return;
    if (r->is_giver)
        take_letters(r);
    if (now_ms - r->report_ms >= REPORT_MS) {
        r->report_ms = now_ms;
        report(r, now_ms);
        say_missing(r, now_ms);
    }
    if (!gather_ready(r) || r->is_ready)
        return;
    r->is_ready = true;
    meet_ready(r->meet, r->addresses, r->workers_n);
}

/* ---- what the supervisor says ---- */

void rally_lost(struct rally *r, enum status st, const char *why)
{
    if (r->is_ended || (r->running && r->given_up == r->running))
        return;
    r->is_ready = false;
    r->given_up = r->running;
    report(r, clock_ms()); /* how far they came decides whether more is tried */
    meet_lost(r->meet, r->running, st, why);
}

void rally_stop(struct rally *r, enum board_request request)
{
    if (!r->is_ended)
        meet_stop(r->meet, (int)request);
}

void rally_leave(struct rally *r, enum status st, const char *message)
{
    if (!r->is_ended)
        meet_leave(r->meet, st, message);
}

bool rally_is_running(const struct rally *r) { return r->running != 0; }

int64_t rally_restarts(const struct rally *r) { return meet_restarts(r->meet); }

/* ---- for people ---- */

/* fill_rank — what a node said of one of its ranks. Of a node that is not heard of, how far it had
 * come is all that is still true. */
static void fill_rank(struct view_peer *out, const struct meet_node *node,
                      const struct meet_rank *rank)
{
    bool is_here = node->state == MEET_NODE_JOINED, is_gone = node->state == MEET_NODE_LOST;
    *out = (struct view_peer){.rank = rank->rank,
                              .node = node->node_id,
                              .step = rank->step,
                              .compute_ms = is_here ? rank->compute_ms : NAN,
                              .comm_ms = is_here ? rank->comm_ms : NAN,
                              .wait_ms = is_here ? rank->wait_ms : NAN,
                              .memory_bytes = is_here ? rank->memory_bytes : -1,
                              .heard_age_ms = is_here || !isfinite(node->heartbeat_age_seconds)
                                                  ? -1
                                                  : (int64_t)(1000 * node->heartbeat_age_seconds),
                              .call_age_ms = is_here && rank->call[0] ? rank->call_age_ms : -1};
    text_copy(out->device, sizeof out->device, rank->device);
    text_copy(out->state, sizeof out->state,
              is_here                         ? rank->state
              : is_gone                       ? "lost"
              : node->state == MEET_NODE_LEFT ? "left"
                                              : "unknown");
    if (is_here)
        text_copy(out->call, sizeof out->call, rank->call);
}

static void look(struct rally *r)
{
    static const char *const states[] = {[MEET_NODE_AWAITED] = "awaited",
                                         [MEET_NODE_JOINED] = "joined",
                                         [MEET_NODE_SUSPECT] = "suspect",
                                         [MEET_NODE_LOST] = "lost",
                                         [MEET_NODE_LEFT] = "left"};
    const struct meet_node *roster;
    int nodes_n = r->nodes_n > 1 ? meet_roster(r->meet, &roster) : 0;
    int own = (int)conf_i64(r->config.conf, CONF_NODE_ID);
    r->shown_nodes_n = nodes_n < r->nodes_n ? nodes_n : r->nodes_n;
    r->shown_peers_n = 0;
    for (int i = 0; i < r->shown_nodes_n; i++) {
        const struct meet_node *node = &roster[i];
        r->nodes[i] = (struct view_node){.node_id = node->node_id,
                                         .state = states[node->state],
                                         .heartbeat_age_seconds = node->heartbeat_age_seconds};
        text_copy(r->nodes[i].address, sizeof r->nodes[i].address, node->address);
        for (int k = 0;
             k < node->ranks_n && r->shown_peers_n < r->ranks_n && node->node_id != own && own == 0;
             k++)
            fill_rank(&r->peers[r->shown_peers_n++], node, &node->ranks[k]);
    }
}

void rally_fill(void *arg, struct view *view)
{
    struct rally *r = arg;
    if (!r->is_ended)
        look(r);
    view->nodes = r->nodes;
    view->nodes_n = r->shown_nodes_n;
    view->peers = r->peers;
    view->peers_n = r->shown_peers_n;
    struct meet_door door;
    if (!r->is_ended && meet_door(r->meet, &door))
        view->door = (struct view_door){true, door.is_full, door.strangers_n, door.turned_away};
}

/* ---- life ---- */

/* leave_pass — by what this node's workers may ask node 0 for its data. */
static void leave_pass(struct rally *r)
{
    struct secret secret;
    meet_secret(r->meet, &secret);
    board_letter_post(r->config.board, BOARD_LETTER_PASS, &secret, sizeof secret);
    secret_forget(&secret);
}

static enum status take_memory(struct rally *r)
{
    r->world = calloc((size_t)r->ranks_n, sizeof *r->world);
    r->nodes = calloc((size_t)r->nodes_n, sizeof *r->nodes);
    r->peers = calloc((size_t)r->ranks_n, sizeof *r->peers);
    return r->world && r->nodes && r->peers
               ? ST_OK
               : FAIL(ST_RETRY, "out of memory: the list of %d ranks", r->ranks_n);
}

/* await_name — node 0's own name, which may have been published just now (of a pod, in Kubernetes):
 * for a while it is looked up again, with the loop turning, so that a stop is heard. */
static enum status await_name(struct rally *r)
{
    const char *addr = conf_text(r->config.conf, CONF_MASTER_ADDR);
    int64_t join_ms = conf_i64(r->config.conf, CONF_JOIN_TIMEOUT),
            wait_ms = join_ms < NAME_MS ? join_ms : NAME_MS;
    enum status st = doorstep_find(addr);
    if (st == ST_RETRY)
        LOG_WARN("%s; looked up again for %lld s", status_message(), (long long)(wait_ms / 1000));
    for (int64_t until_ms = clock_ms() + wait_ms; st == ST_RETRY && clock_ms() < until_ms;
         st = doorstep_find(addr)) {
        event_base_loop(r->config.loop, EVLOOP_NONBLOCK);
        enum board_request request = board_requested(r->config.board);
        if (guard_is_stop(request))
            return FAIL(guard_status(request), "stopped by %s before the nodes met",
                        guard_signal(request));
        clock_sleep_ms(NAME_LOOK_MS);
    }
    return st == ST_RETRY ? FAIL(ST_BAD_SETTING, "%s", status_message()) : st;
}

static enum status open_meet(struct rally *r)
{
    const struct conf *conf = r->config.conf;
    struct text agreed = {0};
    TRY(mapping_agree(conf, &agreed));
    char *token = secure_alloc(TOKEN_BYTES);
    enum status st = token ? ST_OK : FAIL(ST_RETRY, "out of memory: the token of this job");
    if (st == ST_OK && r->nodes_n > 1)
        st = conf_token(conf, token, TOKEN_BYTES);
    else if (st == ST_OK)
        text_copy(token, TOKEN_BYTES, "none");
    conf_token_wipe(conf);
    struct meet_config config = {.node_id = (int)conf_i64(conf, CONF_NODE_ID),
                                 .nodes_n = r->nodes_n,
                                 .workers_n = r->workers_n,
                                 .master_addr = conf_text(conf, CONF_MASTER_ADDR),
                                 .master_port = (int)conf_i64(conf, CONF_MASTER_PORT),
                                 .token = token,
                                 .join_timeout_ms = conf_i64(conf, CONF_JOIN_TIMEOUT),
                                 .peer_timeout_ms = conf_i64(conf, CONF_PEER_TIMEOUT),
                                 .max_restarts = (int)conf_i64(conf, CONF_MAX_RESTARTS),
                                 .agree_json = agreed.data,
                                 .is_alike = is_alike,
                                 .loop = r->config.loop,
                                 .on_world = on_world,
                                 .on_abort = on_abort,
                                 .on_stop = on_stop,
                                 .on_end = on_end,
                                 .arg = r};
    if (st == ST_OK && r->nodes_n > 1 && !strcmp(token, "none"))
        LOG_WARN("JOB_TOKEN=none: whoever reaches MASTER_PORT=%d may join this job and read what "
                 "it sends",
                 config.master_port);
    if (st == ST_OK && r->nodes_n > 1 && config.node_id == 0)
        st = await_name(r);
    if (st == ST_OK)
        st = meet_open(&config, &r->meet);
    secure_free(token);
    text_free(&agreed);
    return st;
}

enum status rally_open(const struct rally_config *config, struct rally **out)
{
    struct rally *r = calloc(1, sizeof *r);
    if (!r)
        return FAIL(ST_RETRY, "out of memory: the meeting of the nodes");
    r->config = *config;
    r->nodes_n = (int)conf_i64(config->conf, CONF_N_NODES);
    r->workers_n = (int)conf_i64(config->conf, CONF_N_GPU_EACH_NODE);
    r->ranks_n = conf_ranks(config->conf);
    r->waiting_ms = clock_ms();
    enum status st = take_memory(r);
    if (st == ST_OK)
        st = open_meet(r);
    int node_id = (int)conf_i64(config->conf, CONF_NODE_ID);
    r->is_giver = r->nodes_n > 1 && node_id == 0;
    if (st == ST_OK && r->nodes_n > 1 && node_id > 0)
        leave_pass(r);
    if (st == ST_OK)
        *out = r;
    else
        rally_close(r);
    return st;
}

void rally_end(struct rally *r)
{
    if (!r)
        return;
    r->is_ended = true;
    meet_close(r->meet);
    r->meet = NULL;
    for (int i = 0; i < r->shown_nodes_n; i++)
        r->nodes[i].heartbeat_age_seconds = NAN; /* the port is closed */
}

void rally_close(struct rally *r)
{
    if (!r)
        return;
    rally_end(r);
    free(r->world);
    free(r->nodes);
    free(r->peers);
    free(r);
}

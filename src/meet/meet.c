/* meet — see meet.h: carries messages between the pure machines and the loop. What they mean is
 * decided in coordinator.c and member.c; sockets are desk.c's (node 0) and link.c's (the
 * others). */
#include "meet/meet.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "base/secure.h"
#include "base/text.h"
#include "meet/coordinator.h"
#include "meet/desk.h"
#include "meet/link.h"
#include "meet/member.h"
#include "meet/secret.h"
#include "meet/stuck.h"

#define TICK_MS 100
#define BEAT_MS 1000
#define STUCK_MS 3000
#define STUCK_SAY_MS 10000
#define FLUSH_MS 150       /* for the last answers to leave this host */
#define TELL_MS 3000       /* node 0 waits so long for the others to hear of the end */
#define TELL_STILL_MS 1000 /* likewise, when nothing moved any more */
/* who is asked to stop waits so long for a call that gets no answer, or STILL_FACTOR times */
#define STILL_MS 2500
#define STILL_FACTOR 2 /* as long as calls took */

struct meet {
    struct meet_config config;
    char *master_addr, *agree_json; /* config's, kept */
    char host[64];
    struct secret secret;
    uint8_t seed[SECRET_SEED_BYTES]; /* of the generations' secrets, on node 0 */
    struct coordinator *coordinator; /* node 0; else NULL */
    struct desk *desk;               /* node 0 of several */
    struct link *link;               /* the others */
    struct member member;
    struct event *tick, *pump;
    int64_t said_ms; /* the last time to the coordinator of this process */
    struct meet_address addresses[MEET_WORKERS_MAX];
    struct meet_rank ranks[MEET_WORKERS_MAX];
    int ranks_n;
    struct meet_node own[2];
    char stuck[256];
    int64_t stuck_said_ms;
    struct stuck_pace pace;
    int64_t stop_ms; /* asked to stop since; 0: not */
    bool was_still;  /* a stop gave a world up in which nothing moved */
    bool is_ending;  /* the member is done; node 0 may still have to tell the others */
    int64_t ending_ms, told_ms;
    enum status end_st;
    char end_text[WIRE_TEXT_MAX];
};

static void pump_soon(struct meet *meet) { event_active(meet->pump, EV_TIMEOUT, 1); }

static void print_notes(struct meet *meet)
{
    const char *line;
    bool is_warning;
    while ((line = notes_next(coordinator_notes(meet->coordinator), &is_warning)) != NULL) {
        if (is_warning)
            LOG_WARN("%s", line);
        else if (meet->config.nodes_n > 1)
            LOG_INFO("%s", line);
        else
            LOG_DEBUG("%s", line);
    }
}

static void take_end(struct meet *meet, const struct member_actions *actions)
{
    meet->is_ending = true;
    meet->ending_ms = clock_ms();
    meet->end_st = actions->st;
    text_copy(meet->end_text, sizeof(meet->end_text), actions->text);
    pump_soon(meet);
}

/* The world is asked of the coordinator next door. */
static void fetch_here(struct meet *meet, int64_t generation)
{
    struct meet_world world;
    if (coordinator_world(meet->coordinator, meet->config.node_id, meet->member.config.instance,
                          generation, &world) &&
        member_world(&meet->member, generation, clock_ms())) {
        secret_generation(meet->seed, world.generation, world.secret);
        meet->config.on_world(meet->config.arg, &world);
        explicit_bzero(world.secret, sizeof(world.secret));
    }
}

static void act(struct meet *meet, const struct member_actions *actions)
{
    void *arg = meet->config.arg;
    if (actions->is_news)
        pump_soon(meet);
    if (actions->is_news && meet->link != NULL)
        link_news(meet->link);
    if (actions->is_over) {
        take_end(meet, actions);
        return;
    }
    if (actions->abort != 0)
        meet->config.on_abort(arg, actions->abort, actions->text);
    if (actions->stop != 0)
        meet->config.on_stop(arg, actions->stop);
    if (actions->fetch != 0 && meet->link != NULL)
        link_fetch(meet->link, actions->fetch);
    else if (actions->fetch != 0)
        fetch_here(meet, actions->fetch);
}

/* What a message of this node carries beside the member's state. */
static void fill(void *arg, bool is_with_addresses, struct wire_says *says,
                 struct wire_hello *hello)
{
    struct meet *meet = arg;
    says->ranks_n = meet->ranks_n;
    says->ranks = meet->ranks;
    if (is_with_addresses) {
        says->addresses_n = meet->config.workers_n;
        says->addresses = meet->addresses;
    }
    *hello = (struct wire_hello){.protocol = WIRE_PROTOCOL,
                                 .nodes_n = meet->config.nodes_n,
                                 .workers_n = meet->config.workers_n,
                                 .pid = getpid(),
                                 .agree_json = meet->agree_json};
    text_copy(hello->host, sizeof(hello->host), meet->host);
}

/* One message of this node and its answer, by call. */
static void talk_here(struct meet *meet)
{
    struct wire_says says;
    struct wire_hello hello;
    struct wire_told told;
    struct member_actions actions = {0};
    int64_t now_ms = clock_ms();
    bool is_with_addresses = member_has_addresses(&meet->member);
    bool is_hello = member_say(&meet->member, now_ms, &says);
    fill(meet, is_with_addresses, &says, &hello);
    coordinator_hear(meet->coordinator, &says, is_hello ? &hello : NULL, now_ms, &told);
    meet->said_ms = now_ms;
    member_told(&meet->member, &told, now_ms, now_ms, &actions);
    act(meet, &actions);
}

/* may_end — the others know, or have had their time; a node 0 that finished its work waits for the
 * others'. */
static bool may_end(struct meet *meet)
{
    if (meet->coordinator == NULL || meet->desk == NULL)
        return true;
    bool is_told = coordinator_is_told(meet->coordinator);
    if (is_told && meet->told_ms == 0)
        meet->told_ms = clock_ms();
    if (is_told)
        return clock_ms() - meet->told_ms >= FLUSH_MS;
    int64_t limit_ms = meet->was_still ? TELL_STILL_MS : TELL_MS;
    return meet->end_st != ST_OK && clock_ms() - meet->ending_ms >= limit_ms;
}

static void finish(struct meet *meet)
{
    void (*on_end)(void *arg, enum status st) = meet->config.on_end;
    void *arg = meet->config.arg;
    enum status st = meet->end_st;
    event_del(meet->tick);
    event_del(meet->pump);
    meet->config.on_end = NULL;
    if (st != ST_OK)
        (void)FAIL(st, "%s", meet->end_text);
    on_end(arg, st); /* may close us */
}

static void on_pump(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct meet *meet = arg;
    if (!meet->is_ending && meet->coordinator != NULL)
        talk_here(meet);
    if (meet->link != NULL)
        link_pump(meet->link);
    if (meet->desk != NULL)
        desk_flush(meet->desk);
    if (meet->coordinator != NULL) {
        print_notes(meet);
        if (!meet->is_ending && meet->member.turn != coordinator_turn(meet->coordinator))
            pump_soon(meet);
    }
    if (meet->is_ending && meet->config.on_end != NULL && may_end(meet))
        finish(meet);
}

/* Said when somebody is first found waited for, and every ten seconds after. */
static void look_stuck(struct meet *meet, int64_t now_ms)
{
    const struct meet_node *nodes = coordinator_roster(meet->coordinator, now_ms);
    bool is_stuck = meet->member.running != 0 && stuck_find(nodes, meet->config.nodes_n, STUCK_MS,
                                                            meet->stuck, sizeof(meet->stuck));
    if (!is_stuck) {
        meet->stuck[0] = 0;
        meet->stuck_said_ms = 0;
    } else if (meet->stuck_said_ms == 0 || now_ms - meet->stuck_said_ms >= STUCK_SAY_MS) {
        meet->stuck_said_ms = now_ms;
        LOG_WARN("%s", meet->stuck);
    }
}

/* look_still — a stop waits for a step's end and a checkpoint, but not for what never ends. */
static void look_still(struct meet *meet, int64_t now_ms)
{
    const struct meet_node *nodes;
    struct member_actions actions = {0};
    char why[160];
    if (meet->stop_ms == 0 && meet->member.stop_told != 0)
        meet->stop_ms = now_ms;
    if (meet->member.running == 0 || meet->stop_ms == 0 || now_ms - meet->stop_ms < STILL_MS ||
        meet->is_ending)
        return;
    int64_t limit_ms = STILL_FACTOR * meet->pace.longest_ms;
    int nodes_n = meet_roster(meet, &nodes);
    if (!stuck_is_still(nodes, nodes_n, limit_ms > STILL_MS ? limit_ms : STILL_MS, why,
                        sizeof(why)))
        return;
    meet->was_still = true;
    member_desert(&meet->member, why, &actions);
    act(meet, &actions);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct meet *meet = arg;
    struct member_actions actions = {0};
    int64_t now_ms = clock_ms();
    if (!meet->is_ending)
        member_tick(&meet->member, now_ms, &actions);
    act(meet, &actions);
    look_still(meet, now_ms);
    if (meet->coordinator != NULL) {
        coordinator_tick(meet->coordinator, now_ms);
        look_stuck(meet, now_ms);
        bool is_due = now_ms - meet->said_ms >= BEAT_MS ||
                      meet->member.turn != coordinator_turn(meet->coordinator);
        if (is_due || meet->is_ending)
            pump_soon(meet);
        if (meet->desk != NULL)
            desk_flush(meet->desk);
    } else {
        pump_soon(meet);
    }
}

/* A member was heard: the job may have moved on. */
static void on_change(void *arg)
{
    struct meet *meet = arg;
    print_notes(meet);
    if (meet->member.turn != coordinator_turn(meet->coordinator) || meet->is_ending)
        pump_soon(meet);
}

static void act_on_link(void *arg, const struct member_actions *actions) { act(arg, actions); }

static void on_link_world(void *arg, const struct meet_world *world)
{
    struct meet *meet = arg;
    meet->config.on_world(meet->config.arg, world);
}

/* ---- life ---- */

static enum status keep_config(struct meet *meet, const struct meet_config *config)
{
    meet->config = *config;
    meet->master_addr = strdup(config->master_addr != NULL ? config->master_addr : "");
    if (config->agree_json != NULL && strlen(config->agree_json) >= WIRE_AGREE_MAX)
        return FAIL(ST_BUG, "what must agree takes %zu bytes, more than %zu",
                    strlen(config->agree_json), WIRE_AGREE_MAX);
    meet->agree_json = strdup(config->agree_json != NULL ? config->agree_json : "{}");
    if (meet->master_addr == NULL || meet->agree_json == NULL)
        return FAIL(ST_RETRY, "out of memory: the settings of the meeting");
    meet->config.master_addr = meet->master_addr;
    meet->config.token = NULL; /* the caller's, which wipes it */
    meet->config.agree_json = meet->agree_json;
    if (gethostname(meet->host, sizeof(meet->host) - 1) != 0)
        text_copy(meet->host, sizeof(meet->host), "?");
    return ST_OK;
}

static enum status make_instance(struct wire_instance *out)
{
    do {
        if (getrandom(out, sizeof(*out), 0) != (ssize_t)sizeof(*out))
            return FAIL(ST_RETRY, "the system gave no random numbers: %s", strerror(errno));
    } while (out->hi == 0 && out->lo == 0);
    return ST_OK;
}

static enum status open_machines(struct meet *meet)
{
    const struct meet_config *config = &meet->config;
    struct member_config member = {.node_id = config->node_id,
                                   .join_timeout_ms = config->join_timeout_ms,
                                   .peer_timeout_ms = config->peer_timeout_ms};
    struct coordinator_config coordinator = {.nodes_n = config->nodes_n,
                                             .workers_n = config->workers_n,
                                             .join_timeout_ms = config->join_timeout_ms,
                                             .peer_timeout_ms = config->peer_timeout_ms,
                                             .max_restarts = config->max_restarts,
                                             .agree_json = meet->agree_json,
                                             .is_alike = config->is_alike};
    TRY(make_instance(&member.instance));
    TRY(make_instance(&coordinator.instance));
    TRY(secret_seed(meet->seed));
    member_init(&meet->member, &member, clock_ms());
    if (config->node_id == 0)
        TRY(coordinator_open(&coordinator, clock_ms(), &meet->coordinator));
    return ST_OK;
}

static enum status open_events(struct meet *meet)
{
    static const struct timeval every = {.tv_usec = TICK_MS * 1000};
    meet->tick = event_new(meet->config.loop, -1, EV_PERSIST, on_tick, meet);
    meet->pump = event_new(meet->config.loop, -1, 0, on_pump, meet);
    if (meet->tick == NULL || meet->pump == NULL || event_add(meet->tick, &every) != 0)
        return FAIL(ST_RETRY, "out of memory: the timers of the meeting");
    pump_soon(meet);
    return ST_OK;
}

static enum status open_network(struct meet *meet, const char *token)
{
    const struct meet_config *config = &meet->config;
    struct desk_config desk = {.loop = config->loop,
                               .coordinator = meet->coordinator,
                               .nodes_n = config->nodes_n,
                               .workers_n = config->workers_n,
                               .addr = meet->master_addr,
                               .port = config->master_port,
                               .secret = &meet->secret,
                               .seed = meet->seed,
                               .on_change = on_change,
                               .arg = meet};
    struct link_config link = {.loop = config->loop,
                               .member = &meet->member,
                               .host = meet->master_addr,
                               .port = config->master_port,
                               .ranks_n = config->nodes_n * config->workers_n,
                               .secret = &meet->secret,
                               .fill = fill,
                               .act = act_on_link,
                               .on_world = on_link_world,
                               .arg = meet};
    signal(SIGPIPE, SIG_IGN); /* who hangs up must not end the node */
    TRY(secret_derive(token, &meet->secret));
    return meet->coordinator != NULL ? desk_open(&desk, &meet->desk)
                                     : link_open(&link, &meet->link);
}

enum status meet_open(const struct meet_config *config, struct meet **out)
{
    ASSERTF(config->nodes_n >= 1 && config->nodes_n <= MEET_NODES_MAX && config->node_id >= 0 &&
                config->node_id < config->nodes_n && config->workers_n >= 1 &&
                config->workers_n <= MEET_WORKERS_MAX,
            "node_id %d nodes_n %d workers_n %d", config->node_id, config->nodes_n,
            config->workers_n);
    struct meet *meet = secure_alloc(sizeof(*meet)); /* for the secrets in it */
    if (meet == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for the meeting", sizeof(*meet));
    enum status st;
    TRY_OR(keep_config(meet, config), close);
    TRY_OR(open_machines(meet), close);
    TRY_OR(open_events(meet), close);
    if (config->nodes_n > 1)
        TRY_OR(open_network(meet, config->token != NULL ? config->token : ""), close);
    *out = meet;
    return ST_OK;
close:
    meet_close(meet);
    return st;
}

void meet_close(struct meet *meet)
{
    if (meet == NULL)
        return;
    if (meet->tick != NULL)
        event_free(meet->tick);
    if (meet->pump != NULL)
        event_free(meet->pump);
    desk_close(meet->desk);
    link_close(meet->link);
    coordinator_close(meet->coordinator);
    secret_forget(&meet->secret);
    free(meet->master_addr);
    free(meet->agree_json);
    secure_free(meet);
}

/* ---- what the supervisor tells ---- */

void meet_ready(struct meet *meet, const struct meet_address *mine, int workers_n)
{
    struct member_actions actions = {0};
    ASSERTF(workers_n == meet->config.workers_n, "workers_n %d, expected %d", workers_n,
            meet->config.workers_n);
    memcpy(meet->addresses, mine, (size_t)workers_n * sizeof(*mine));
    member_ready(&meet->member, &actions);
    act(meet, &actions);
}

void meet_lost(struct meet *meet, int64_t generation, enum status st, const char *why)
{
    struct member_actions actions = {0};
    member_lost(&meet->member, generation, st, why, &actions);
    act(meet, &actions);
}

void meet_report(struct meet *meet, const struct meet_rank *ranks, int ranks_n)
{
    ASSERTF(ranks_n <= MEET_WORKERS_MAX, "ranks_n %d", ranks_n);
    memcpy(meet->ranks, ranks, (size_t)ranks_n * sizeof(*ranks));
    meet->ranks_n = ranks_n;
    for (int i = 0; i < ranks_n; i++) {
        if (ranks[i].step > meet->member.step)
            meet->member.step = ranks[i].step;
    }
    if (ranks_n > 0)
        stuck_pace_add(&meet->pace, &ranks[0]);
}

void meet_stop(struct meet *meet, int request)
{
    struct member_actions actions = {0};
    member_stop(&meet->member, request, &actions);
    act(meet, &actions);
}

void meet_leave(struct meet *meet, enum status st, const char *message)
{
    struct member_actions actions = {0};
    member_leave(&meet->member, st, message, clock_ms(), &actions);
    act(meet, &actions);
}

void meet_offer(struct meet *meet, enum bill_kind kind, const char *bytes, size_t n)
{
    if (meet->desk == NULL || desk_offer(meet->desk, kind, bytes, n) == ST_OK)
        return;
    LOG_WARN("no data for other nodes: %s", status_message());
    status_clear();
}

void meet_secret(const struct meet *meet, struct secret *out) { *out = meet->secret; }

/* ---- what it asks ---- */

bool meet_door(const struct meet *meet, struct meet_door *out)
{
    if (meet->desk != NULL)
        desk_door(meet->desk, out);
    return meet->desk != NULL;
}

/* Node 0 and itself, as this node sees them. */
static int fill_own(struct meet_node own[2], const struct meet *meet)
{
    const struct member *m = &meet->member;
    int64_t now_ms = clock_ms(), silent_ms = now_ms - m->answered_ms;
    bool is_met = m->answered_ms >= 0,
         is_gone = m->closed_ms >= 0 && now_ms - m->closed_ms >= MEMBER_CLOSED_MS;
    own[0] = (struct meet_node){.state = !is_met                                 ? MEET_NODE_AWAITED
                                         : is_gone                               ? MEET_NODE_LOST
                                         : silent_ms < COORDINATOR_SUSPECT_MS    ? MEET_NODE_JOINED
                                         : silent_ms < m->config.peer_timeout_ms ? MEET_NODE_SUSPECT
                                                                                 : MEET_NODE_LOST,
                                .heartbeat_age_seconds = is_met ? (double)silent_ms / 1e3 : NAN};
    text_copy(own[0].address, sizeof(own[0].address), meet->master_addr);
    own[1] = (struct meet_node){.node_id = meet->config.node_id,
                                .state = m->is_joined ? MEET_NODE_JOINED : MEET_NODE_AWAITED,
                                .heartbeat_age_seconds = 0,
                                .ranks_n = meet->ranks_n,
                                .ranks = meet->ranks};
    text_copy(own[1].address, sizeof(own[1].address), meet->host);
    return 2;
}

int meet_roster(struct meet *meet, const struct meet_node **out)
{
    if (meet->coordinator != NULL) {
        *out = coordinator_roster(meet->coordinator, clock_ms());
        return meet->config.nodes_n;
    }
    *out = meet->own;
    return fill_own(meet->own, meet);
}

int64_t meet_generation(const struct meet *meet) { return meet->member.generation; }
int64_t meet_restarts(const struct meet *meet) { return meet->member.counts.restarts; }
const char *meet_missing(const struct meet *meet) { return meet->member.missing; }
const char *meet_stuck(struct meet *meet) { return meet->stuck; }

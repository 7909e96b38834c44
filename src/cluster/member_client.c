/* member_client — see member_client.h. Must not decide anything about the job. */
#include "cluster/member_client.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rand.h"
#include "net/https_client.h"

#define HOLD_MS 1000   /* the longest time that node 0 holds a heartbeat */
#define ANSWER_MS 3000 /* the longest time until the reply after that */
/* before the next request to join, while another process may hold the NODE_ID */
#define WAIT_MS 300
#define BACK_OFF_MS 100
#define BACK_OFF_MS_MAX 2000
#define LOG_MS 5000
#define SEARCH_RETRY_MS 30 /* before the next request while the coordinator is searched for */

struct member_client {
    struct member_client_config config;
    struct https_client *client;       /* NULL: no node was asked yet */
    int target;                        /* node of `client`'s questions */
    char control[CLUSTER_CONTROL_MAX]; /* … where it listens */
    bool is_in_callback;
    bool is_urgent;
    int fails_n;
    int64_t next_ms;             /* the next request is not sent before this time */
    int64_t first_ms, logged_ms; /* when node 0 was found silent · when that was last logged */
};

static void send_heartbeat(struct member_client *c, enum https_client_slot slot, int64_t hold_ms)
{
    struct message_heartbeat heartbeat;
    struct message_join join;
    struct text body = {0};
    bool is_with_addresses = member_has_addresses(c->config.member);
    bool is_joining = member_make_heartbeat(c->config.member, clock_ms(), &heartbeat);
    c->config.fill_heartbeat(c->config.arg, is_with_addresses, &heartbeat, &join);
    message_write_heartbeat(&body, &heartbeat, is_joining ? &join : NULL, hold_ms);
    c->is_urgent = false;
    const struct member *m = c->config.member;
    int64_t grace_ms = m->lease_ms - m->config.peer_timeout_ms; /* node 0 may stall for this long */
    if (m->is_searching) {
        https_client_post(c->client, slot, "/v1/say", &body, MESSAGE_BODY_MAX, MEMBER_ASK_MS);
        return;
    }
    https_client_post(c->client, slot, "/v1/say", &body, MESSAGE_BODY_MAX,
                      hold_ms + ANSWER_MS + grace_ms);
}

/* Splits "host:port" or "[host]:port". Returns the port; 0: there is none. */
static int split_control(const char *control, char *host, size_t cap)
{
    const char *colon = strrchr(control, ':');
    if (!colon)
        return 0;
    const bool is_v6 = control[0] == '[' && colon > control + 1 && colon[-1] == ']';
    text_format(host, cap, "%.*s", (int)(colon - control) - 2 * is_v6, control + is_v6);
    int64_t port = 0;
    (void)text_parse_i64(colon + 1, 1, 65535, &port);
    return (int)port;
}

enum status member_client_dial(struct event_base *loop, const struct psk *psk, const char *control,
                               void (*on_response)(void *arg,
                                                   const struct https_client_response *response),
                               void *arg, struct https_client **out)
{
    char host[CLUSTER_CONTROL_MAX];
    struct https_client_config client = {.loop = loop,
                                         .host = host,
                                         .port = split_control(control, host, sizeof host),
                                         .psk = psk,
                                         .on_response = on_response,
                                         .arg = arg};
    return https_client_open(&client, out);
}

static void on_response(void *arg, const struct https_client_response *answer);

/* Turns to the node that the member asks now. Requests in progress are dropped. */
static enum status turn_to_target(struct member_client *c)
{
    struct member *m = c->config.member;
    char control[CLUSTER_CONTROL_MAX] = "";
    if (!c->config.find_control(c->config.arg, m->target, control, sizeof control)) {
        struct member_actions actions = {0};
        member_on_silence(m, m->target, clock_ms(), &actions);
        c->next_ms = clock_ms() + SEARCH_RETRY_MS;
        c->config.carry_out(c->config.arg, &actions);
        return ST_OK;
    }
    if (c->client && c->target == m->target && strcmp(control, c->control) == 0)
        return ST_OK;
    https_client_close(c->client);
    c->client = NULL;
    c->target = m->target;
    text_copy(c->control, sizeof c->control, control);
    text_copy(m->where, sizeof m->where, control);
    c->next_ms = 0;
    return member_client_dial(c->config.loop, c->config.psk, control, on_response, c, &c->client);
}

void member_client_pump(struct member_client *c)
{
    const struct member *m = c->config.member;
    if (m->is_over || clock_ms() < c->next_ms)
        return;
    if (c->is_in_callback && c->target != m->target)
        return; /* the next call turns to it */
    if (!c->is_in_callback && turn_to_target(c) != ST_OK) {
        LOG_WARN("node %d cannot be asked: %s", m->target, status_message());
        status_clear();
        c->next_ms = clock_ms() + BACK_OFF_MS;
    }
    if (!c->client || c->target != m->target || clock_ms() < c->next_ms)
        return;
    if (!https_client_is_busy(c->client, HTTPS_CLIENT_SLOT_HEARTBEAT))
        send_heartbeat(c, HTTPS_CLIENT_SLOT_HEARTBEAT, m->is_joined ? HOLD_MS : 0);
    else if (c->is_urgent && m->is_joined &&
             !https_client_is_busy(c->client, HTTPS_CLIENT_SLOT_UPDATE))
        send_heartbeat(c, HTTPS_CLIENT_SLOT_UPDATE, 0);
}

void member_client_notify(struct member_client *c) { c->is_urgent = true; }

void member_client_fetch_world(struct member_client *c, int64_t generation)
{
    const struct member_config *own = &c->config.member->config;
    struct text body = {0};
    if (!c->client || https_client_is_busy(c->client, HTTPS_CLIENT_SLOT_WORLD))
        return; /* the next reply brings the same action again */
    message_write_world_request(&body, own->node_id, own->incarnation, generation);
    https_client_post(c->client, HTTPS_CLIENT_SLOT_WORLD, "/v1/world", &body, MESSAGE_WORLD_MAX,
                      own->peer_timeout_ms);
}

/* ---- replies ---- */

/* Waits before the next request, with jitter, so that a thousand nodes do not connect at the same
 * moment. */
static void back_off(struct member_client *c, const char *why)
{
    const struct member *m = c->config.member;
    if (m->config.may_search && m->has_ever_joined) {
        /* The loss of the coordinator is found, and another one, without delay. */
        c->next_ms = clock_ms() + SEARCH_RETRY_MS;
        return;
    }
    int64_t delay_ms = BACK_OFF_MS;
    for (int i = 0; i < c->fails_n && delay_ms < BACK_OFF_MS_MAX; i++)
        delay_ms *= 2;
    if (delay_ms > BACK_OFF_MS_MAX)
        delay_ms = BACK_OFF_MS_MAX;
    uint64_t seed = c->config.member->config.incarnation.lo;
    int64_t jitter_ms =
        (int64_t)rand_below(seed, RAND_STREAM(TEST, 0), (uint64_t)c->fails_n, (uint64_t)delay_ms);
    int64_t now_ms = clock_ms();
    c->next_ms = now_ms + delay_ms / 2 + jitter_ms / 2;
    c->fails_n++;
    if (c->first_ms == 0)
        c->first_ms = c->logged_ms = now_ms;
    bool is_first = c->fails_n == 1 && !c->config.member->has_ever_joined;
    if (!is_first && now_ms - c->logged_ms < LOG_MS)
        return;
    c->logged_ms = now_ms;
    LOG_INFO("waiting for node %d at %s (%s), %lld s", c->target, c->config.member->where, why,
             (long long)((now_ms - c->first_ms) / 1000));
}

static void on_reply(struct member_client *c, const struct https_client_response *answer)
{
    struct message_reply reply;
    struct member_actions actions = {0};
    char why[64];
    text_format(why, sizeof why, "it answered HTTP %ld", answer->code);
    if (answer->code != 200 || message_read_reply(answer->bytes, answer->n, &reply) != ST_OK) {
        text_copy(c->config.member->unreachable_why, sizeof c->config.member->unreachable_why, why);
        back_off(c, why);
        return;
    }
    c->fails_n = 0;
    c->first_ms = 0;
    c->next_ms = reply.answer == MESSAGE_ANSWER_WAIT        ? clock_ms() + WAIT_MS
                 : reply.answer == MESSAGE_ANSWER_ELSEWHERE ? clock_ms() + SEARCH_RETRY_MS
                                                            : 0;
    if (reply.answer == MESSAGE_ANSWER_MEMBER && !c->config.member->has_ever_joined)
        LOG_INFO("joined node %d at %s, as node %d of %d", c->target, c->config.member->where,
                 c->config.member->config.node_id, c->config.nodes_n);
    if (reply.answer == MESSAGE_ANSWER_ELSEWHERE && reply.leader_id >= 0)
        c->config.on_control(c->config.arg, reply.leader_id, reply.control);
    member_on_reply(c->config.member, &reply, answer->sent_ms, clock_ms(), &actions);
    c->config.carry_out(c->config.arg, &actions);
}

static void on_world(struct member_client *c, const struct https_client_response *answer)
{
    struct cluster_world world = {0};
    if (answer->result != HTTPS_CLIENT_ANSWERED || answer->code != 200)
        return; /* the next heartbeat brings it again, if that generation still runs */
    const int nodes_n = c->config.nodes_n, workers_n = c->config.workers_n;
    struct cluster_address *addresses =
        memory_new((size_t)(nodes_n * workers_n), sizeof *addresses);
    int *node_ids = memory_new((size_t)nodes_n, sizeof *node_ids);
    struct succession_world *past = memory_new(1, sizeof *past);
    char(*controls)[CLUSTER_CONTROL_MAX] = memory_new((size_t)nodes_n, sizeof *controls);
    if (message_read_world(answer->bytes, answer->n, nodes_n, workers_n, addresses, node_ids, past,
                           controls, &world) != ST_OK)
        LOG_WARN("the coordinator's addresses cannot be read: %s", status_message());
    else if (member_on_world(c->config.member, world.generation, world.past, clock_ms())) {
        c->is_urgent = true;
        c->config.on_world(c->config.arg, &world);
    }
    free(addresses);
    free(node_ids);
    free(past);
    free(controls);
    explicit_bzero(world.secret, sizeof world.secret);
}

static void on_error(struct member_client *c, const struct https_client_response *answer)
{
    struct member *m = c->config.member;
    if (answer->result == HTTPS_CLIENT_NOT_ADMITTED && !m->has_ever_joined) {
        const char *why = answer->why;
        struct member_actions actions = {.is_over = true, .st = ST_NOT_ADMITTED};
        text_format(actions.text, sizeof actions.text, "not admitted by node %d at %s: %s",
                    c->target, c->config.member->where, why);
        c->config.member->is_over = true;
        c->config.carry_out(c->config.arg, &actions);
        return;
    }
    /* A second connection that cannot be made, at a node 0 that a thousand nodes connect to, does
     * not mean that node 0 is lost: the heartbeat's own connection fails with it. */
    struct member_actions actions = {0};
    if (answer->is_refused && answer->slot == HTTPS_CLIENT_SLOT_HEARTBEAT)
        member_on_refused(m, c->target, answer->why, clock_ms(), &actions);
    else if (m->is_searching)
        member_on_silence(m, c->target, clock_ms(), &actions);
    else if (answer->result == HTTPS_CLIENT_UNREACHABLE ||
             answer->slot != HTTPS_CLIENT_SLOT_HEARTBEAT)
        text_copy(m->unreachable_why, sizeof m->unreachable_why, answer->why);
    else
        member_on_disconnect(m, answer->why, clock_ms());
    c->is_urgent = c->is_urgent || answer->slot == HTTPS_CLIENT_SLOT_UPDATE;
    back_off(c, answer->why);
    c->config.carry_out(c->config.arg, &actions);
}

static void on_response(void *arg, const struct https_client_response *answer)
{
    struct member_client *c = arg;
    if (c->config.member->is_over || c->target != c->config.member->target)
        return;
    c->is_in_callback = true;
    if (answer->slot == HTTPS_CLIENT_SLOT_WORLD)
        on_world(c, answer);
    else if (answer->result == HTTPS_CLIENT_ANSWERED)
        on_reply(c, answer);
    else
        on_error(c, answer);
    member_client_pump(c);
    c->is_in_callback = false;
}

/* ---- open and close ---- */

enum status member_client_open(const struct member_client_config *config,
                               struct member_client **out)
{
    struct member_client *c = memory_new(1, sizeof *c);
    c->config = *config;
    c->target = -1;
    enum status st = turn_to_target(c);
    if (st != ST_OK) {
        member_client_close(c);
        return st;
    }
    *out = c;
    return ST_OK;
}

void member_client_close(struct member_client *c)
{
    if (!c)
        return;
    https_client_close(c->client);
    free(c);
}

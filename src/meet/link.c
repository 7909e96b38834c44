/* link — see link.h. Must not decide anything about the job. */
#include "meet/link.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "meet/caller.h"

#define HOLD_MS 1000   /* node 0 answers a beat at least so often */
#define ANSWER_MS 3000 /* and no later than this after that */
#define WAIT_MS 300    /* between hellos while another may hold the place */
#define BACK_OFF_MS 100
#define BACK_OFF_MS_MAX 2000
#define SAY_MS 5000

struct link {
    struct link_config config;
    char where[288];
    struct caller *caller;
    bool is_news;
    int fails_n;
    int64_t next_ms;          /* not before */
    int64_t first_ms, say_ms; /* of this silence; the last word about it */
};

static void send_says(struct link *link, enum caller_lane lane, int64_t hold_ms)
{
    struct wire_says says;
    struct wire_hello hello;
    struct text body = {0};
    bool is_with_addresses = member_has_addresses(link->config.member);
    bool is_hello = member_say(link->config.member, clock_ms(), &says);
    link->config.fill(link->config.arg, is_with_addresses, &says, &hello);
    wire_write_says(&body, &says, is_hello ? &hello : NULL, hold_ms);
    link->is_news = false;
    const struct member *m = link->config.member;
    int64_t grace_ms = m->lease_ms - m->config.peer_timeout_ms; /* node 0 may be late */
    caller_post(link->caller, lane, "/v1/say", &body, WIRE_BODY_MAX,
                hold_ms + ANSWER_MS + grace_ms);
}

void link_pump(struct link *link)
{
    const struct member *m = link->config.member;
    if (m->is_over || clock_ms() < link->next_ms)
        return;
    if (!caller_is_busy(link->caller, CALLER_LANE_BEAT))
        send_says(link, CALLER_LANE_BEAT, m->is_joined ? HOLD_MS : 0);
    else if (link->is_news && m->is_joined && !caller_is_busy(link->caller, CALLER_LANE_NEWS))
        send_says(link, CALLER_LANE_NEWS, 0);
}

void link_news(struct link *link) { link->is_news = true; }

void link_fetch(struct link *link, int64_t generation)
{
    const struct member_config *own = &link->config.member->config;
    struct text body = {0};
    if (caller_is_busy(link->caller, CALLER_LANE_WORLD))
        return; /* told again with the next answer */
    wire_write_ask(&body, own->node_id, own->instance, generation);
    caller_post(link->caller, CALLER_LANE_WORLD, "/v1/world", &body, WIRE_WORLD_MAX,
                own->peer_timeout_ms);
}

/* ---- answers ---- */

static void say_waiting(struct link *link, const char *why)
{
    int64_t now_ms = clock_ms();
    if (link->first_ms == 0)
        link->first_ms = link->say_ms = now_ms;
    bool is_first = link->fails_n == 1 && !link->config.member->is_welcome;
    if (!is_first && now_ms - link->say_ms < SAY_MS)
        return;
    link->say_ms = now_ms;
    LOG_INFO("waiting for node 0 at %s (%s), %lld s", link->where, why,
             (long long)((now_ms - link->first_ms) / 1000));
}

/* Back-off with jitter, so that a thousand nodes do not come all at once. */
static void fail(struct link *link, const char *why)
{
    int64_t delay_ms = BACK_OFF_MS;
    for (int i = 0; i < link->fails_n && delay_ms < BACK_OFF_MS_MAX; i++)
        delay_ms *= 2;
    if (delay_ms > BACK_OFF_MS_MAX)
        delay_ms = BACK_OFF_MS_MAX;
    uint64_t seed = link->config.member->config.instance.lo;
    int64_t jitter_ms = (int64_t)rand_below(seed, RAND_STREAM(TEST, 0), (uint64_t)link->fails_n,
                                            (uint64_t)delay_ms);
    link->next_ms = clock_ms() + delay_ms / 2 + jitter_ms / 2;
    link->fails_n++;
    say_waiting(link, why);
}

static void refused(struct link *link, const char *why)
{
    struct member_actions actions = {.is_over = true, .st = ST_NOT_ADMITTED};
    text_format(actions.text, sizeof(actions.text),
                "not admitted by node 0 at %s: %s; give all nodes the same JOB_TOKEN", link->where,
                why);
    link->config.member->is_over = true;
    link->config.act(link->config.arg, &actions);
}

static void take_told(struct link *link, const struct caller_answer *answer)
{
    struct wire_told told;
    struct member_actions actions = {0};
    char why[64];
    text_format(why, sizeof(why), "it answered HTTP %ld", answer->code);
    if (answer->code != 200 || wire_read_told(answer->bytes, answer->n, &told) != ST_OK) {
        text_copy(link->config.member->trouble, sizeof(link->config.member->trouble), why);
        fail(link, why);
        return;
    }
    link->fails_n = 0;
    link->first_ms = 0;
    link->next_ms = told.answer == WIRE_ANSWER_WAIT ? clock_ms() + WAIT_MS : 0;
    member_told(link->config.member, &told, answer->sent_ms, clock_ms(), &actions);
    link->config.act(link->config.arg, &actions);
}

static void take_world(struct link *link, const struct caller_answer *answer)
{
    struct meet_world world = {.ranks_n = link->config.ranks_n};
    if (answer->result != CALLER_ANSWERED || answer->code != 200)
        return; /* told again with the next beat, if that world still stands */
    struct meet_address *addresses = calloc((size_t)world.ranks_n, sizeof(*addresses));
    world.addresses = addresses;
    if (addresses == NULL)
        LOG_WARN("out of memory: the addresses of %d ranks", world.ranks_n);
    else if (wire_read_world(answer->bytes, answer->n, world.ranks_n, addresses, &world.generation,
                             world.secret) != ST_OK)
        LOG_WARN("node 0's addresses cannot be read: %s", status_message());
    else if (member_world(link->config.member, world.generation, clock_ms())) {
        link->is_news = true;
        link->config.on_world(link->config.arg, &world);
    }
    free(addresses);
    explicit_bzero(world.secret, sizeof(world.secret));
}

static void take_trouble(struct link *link, const struct caller_answer *answer)
{
    struct member *m = link->config.member;
    if (answer->result == CALLER_NOT_ADMITTED && !m->is_welcome) {
        refused(link, answer->why);
        return;
    }
    if (answer->result == CALLER_UNREACHED)
        text_copy(m->trouble, sizeof(m->trouble), answer->why);
    else
        member_closed(m, answer->why, clock_ms());
    link->is_news = link->is_news || answer->lane == CALLER_LANE_NEWS;
    fail(link, answer->why);
}

static void on_answer(void *arg, const struct caller_answer *answer)
{
    struct link *link = arg;
    if (link->config.member->is_over)
        return;
    if (answer->lane == CALLER_LANE_WORLD)
        take_world(link, answer);
    else if (answer->result == CALLER_ANSWERED)
        take_told(link, answer);
    else
        take_trouble(link, answer);
    link_pump(link);
}

/* ---- life ---- */

enum status link_open(const struct link_config *config, struct link **out)
{
    struct link *link = calloc(1, sizeof(*link));
    if (link == NULL)
        return FAIL(ST_RETRY, "out of memory: the line to node 0");
    link->config = *config;
    text_format(link->where, sizeof(link->where), "%s:%d", config->host, config->port);
    struct caller_config caller = {.loop = config->loop,
                                   .host = config->host,
                                   .port = config->port,
                                   .secret = config->secret,
                                   .on_answer = on_answer,
                                   .arg = link};
    enum status st = caller_open(&caller, &link->caller);
    if (st != ST_OK) {
        link_close(link);
        return st;
    }
    *out = link;
    return ST_OK;
}

void link_close(struct link *link)
{
    if (link == NULL)
        return;
    caller_close(link->caller);
    free(link);
}

/* desk — see desk.h. Must not decide anything about the job. */
#include "meet/desk.h"

#include <stdlib.h>
#include <string.h>

#include <event2/buffer.h>

#include "base/clock.h"
#include "base/log.h"
#include "meet/offer.h"
#include "meet/porter.h"

#define LANES 4 /* connections of one node at a time: beat, news, world, and a dying one */

/* What is known of a node's connections. */
struct guest {
    struct porter_request *held; /* its beat; NULL none */
    int64_t sequence, turn, until_ms;
    struct wire_instance instance; /* of the held beat, and of the tags */
    const void *tags[LANES];
    bool has_asked_data;
};

struct desk {
    struct desk_config config;
    struct porter *porter;
    struct offer *offer;
    struct guest *guests;   /* nodes_n */
    struct evbuffer *world; /* as JSON, of this generation; NULL none */
    int64_t world_generation;
    int64_t complained_ms, unread_ms; /* said last */
    struct wire_body body; /* of the request being read */
};

static void send_told(struct porter_request *request, const struct wire_told *told)
{
    struct text out = {0};
    struct evbuffer *body = evbuffer_new();
    wire_write_told(&out, told);
    bool is_whole = body != NULL && !out.overflow && evbuffer_add(body, out.data, out.len) == 0;
    porter_answer(request, is_whole ? 200 : 503, is_whole ? body : NULL);
    if (body != NULL)
        evbuffer_free(body);
    text_free(&out);
}

static void answer_held(struct desk *desk, int node_id)
{
    struct guest *guest = &desk->guests[node_id];
    struct porter_request *request = guest->held;
    struct wire_told told;
    guest->held = NULL;
    coordinator_tell(desk->config.coordinator, node_id, guest->instance, guest->sequence, &told);
    send_told(request, &told);
}

/* ---- which connections are whose ---- */

static void add_tag(struct guest *guest, const void *tag)
{
    for (int i = 0; i < LANES; i++) {
        if (guest->tags[i] == tag)
            return;
    }
    for (int i = 0; i < LANES; i++) {
        if (guest->tags[i] == NULL) {
            guest->tags[i] = tag;
            return;
        }
    }
}

/* The holder of a place has written: its connections are watched. Another life's are forgotten. */
static void know(struct desk *desk, int node_id, struct wire_instance instance, struct porter_request *request)
{
    struct guest *guest = &desk->guests[node_id];
    char peer[64];
    if (!wire_is_same(guest->instance, instance)) {
        if (guest->held != NULL)
            answer_held(desk, node_id);
        *guest = (struct guest){.instance = instance};
        porter_peer(request, peer, sizeof(peer));
        coordinator_came_from(desk->config.coordinator, node_id, instance, peer);
    }
    add_tag(guest, porter_tag(request));
}

static void on_gone(void *arg, const void *tag)
{
    struct desk *desk = arg;
    for (int i = 0; i < desk->config.nodes_n; i++) {
        struct guest *guest = &desk->guests[i];
        bool was_mine = false, is_left = false;
        for (int k = 0; k < LANES; k++) {
            was_mine = was_mine || guest->tags[k] == tag;
            if (guest->tags[k] == tag)
                guest->tags[k] = NULL;
            is_left = is_left || guest->tags[k] != NULL;
        }
        if (was_mine && !is_left)
            coordinator_closed(desk->config.coordinator, i, guest->instance, clock_ms());
        if (was_mine)
            return;
    }
}

/* ---- requests ---- */

static void complain(struct desk *desk, struct porter_request *request)
{
    char peer[64];
    int64_t now_ms = clock_ms();
    porter_peer(request, peer, sizeof(peer));
    if (desk->complained_ms == 0 || now_ms - desk->complained_ms >= 1000)
        LOG_WARN("%s sent what cannot be read: %s", peer, status_message());
    desk->complained_ms = now_ms;
    porter_answer(request, 400, NULL);
}

static void hold(struct desk *desk, struct porter_request *request, const struct wire_told *told)
{
    const struct wire_says *says = &desk->body.says;
    struct guest *guest = &desk->guests[says->node_id];
    if (guest->held != NULL)
        answer_held(desk, says->node_id);
    guest->held = request;
    guest->sequence = says->sequence;
    guest->turn = told->turn;
    guest->until_ms = clock_ms() + desk->body.hold_ms;
}

static void take_says(struct desk *desk, struct porter_request *request, const char *bytes, size_t n)
{
    struct wire_body *body = &desk->body;
    struct wire_told told;
    if (wire_read_says(bytes, n, body) != ST_OK) {
        complain(desk, request);
        return;
    }
    const struct wire_says *says = &body->says;
    int64_t before = coordinator_turn(desk->config.coordinator);
    coordinator_hear(desk->config.coordinator, says, body->has_hello ? &body->hello : NULL, clock_ms(), &told);
    bool is_in = told.answer == WIRE_ANSWER_IN && says->node_id < desk->config.nodes_n;
    if (is_in)
        know(desk, says->node_id, says->instance, request);
    if (is_in && body->hold_ms > 0 && told.is_lease && !told.is_left && says->turn == told.turn)
        hold(desk, request, &told);
    else
        send_told(request, &told);
    if (told.turn != before)
        desk_flush(desk);
    desk->config.on_change(desk->config.arg);
}

static bool make_world(struct desk *desk, const struct meet_world *world)
{
    struct text out = {.limit = WIRE_WORLD_MAX};
    if (desk->world != NULL && desk->world_generation == world->generation)
        return true;
    if (desk->world == NULL)
        desk->world = evbuffer_new();
    if (desk->world == NULL)
        return false;
    evbuffer_drain(desk->world, evbuffer_get_length(desk->world));
    wire_write_world(&out, world);
    bool is_whole = !out.overflow && evbuffer_add(desk->world, out.data, out.len) == 0;
    desk->world_generation = is_whole ? world->generation : 0;
    text_free(&out);
    return is_whole;
}

static void take_ask(struct desk *desk, struct porter_request *request, const char *bytes, size_t n)
{
    int node_id;
    struct wire_instance instance;
    int64_t generation;
    struct meet_world world;
    if (wire_read_ask(bytes, n, &node_id, &instance, &generation) != ST_OK) {
        complain(desk, request);
        return;
    }
    if (!coordinator_world(desk->config.coordinator, node_id, instance, generation, &world)) {
        porter_answer(request, 410, NULL); /* fenced: that world is over, or not yours */
        return;
    }
    struct evbuffer *body = make_world(desk, &world) ? evbuffer_new() : NULL;
    bool is_whole = body != NULL && evbuffer_add_buffer_reference(body, desk->world) == 0;
    porter_answer(request, is_whole ? 200 : 503, is_whole ? body : NULL);
    if (body != NULL)
        evbuffer_free(body);
}

/* Once a second at most: whoever asks may ask again at once. */
static void say_unread(struct desk *desk, const struct bill_ask *ask)
{
    int64_t now_ms = clock_ms();
    if (desk->unread_ms == 0 || now_ms - desk->unread_ms >= 1000) {
        desk->unread_ms = now_ms;
        LOG_WARN("node %d asks for data: %s", ask->node_id, status_message());
    }
    status_clear();
}

/* Said once for each life of a node: it explains what the network is busy with. */
static void note_taker(struct desk *desk, const struct bill_ask *ask, struct porter_request *request)
{
    char peer[64];
    if (ask->node_id >= desk->config.nodes_n || desk->guests[ask->node_id].has_asked_data)
        return;
    desk->guests[ask->node_id].has_asked_data = true;
    porter_peer(request, peer, sizeof(peer));
    LOG_INFO("node %d (%s) has no data of its own and takes this node's", ask->node_id, peer);
}

static void send_bill(struct desk *desk, struct porter_request *request, enum bill_kind kind)
{
    struct text out = {.limit = BILL_JSON_MAX};
    struct evbuffer *body = evbuffer_new();
    offer_bill(desk->offer, kind, &out);
    bool is_whole = body != NULL && !out.overflow && evbuffer_add(body, out.data, out.len) == 0;
    porter_answer(request, is_whole ? 200 : 503, is_whole ? body : NULL);
    if (body != NULL)
        evbuffer_free(body);
    text_free(&out);
}

/* Whoever has the key may ask for data: it might as well join. */
static void take_data(struct desk *desk, struct porter_request *request, const char *bytes, size_t n)
{
    struct bill_ask ask;
    if (bill_read_ask(bytes, n, &ask) != ST_OK) {
        complain(desk, request);
        return;
    }
    if (ask.is_for_bill) {
        send_bill(desk, request, ask.kind);
        return;
    }
    struct evbuffer *body = evbuffer_new();
    status_clear();
    int code = body != NULL ? offer_piece(desk->offer, &ask, body) : 503;
    if (status_message()[0] != 0)
        say_unread(desk, &ask);
    if (code == 200)
        note_taker(desk, &ask, request);
    if (code == 200)
        porter_send(request, body);
    else
        porter_answer(request, code, NULL);
    if (body != NULL)
        evbuffer_free(body);
}

enum status desk_offer(struct desk *desk, enum bill_kind kind, const char *bytes, size_t n)
{
    return offer_set(desk->offer, kind, bytes, n);
}

static void on_request(void *arg, struct porter_request *request, const char *path, const char *bytes, size_t n)
{
    struct desk *desk = arg;
    if (strcmp(path, "/v1/say") == 0)
        take_says(desk, request, bytes, n);
    else if (strcmp(path, "/v1/world") == 0)
        take_ask(desk, request, bytes, n);
    else if (strcmp(path, "/v1/data") == 0)
        take_data(desk, request, bytes, n);
    else
        porter_answer(request, 404, NULL);
}

void desk_flush(struct desk *desk)
{
    int64_t turn = coordinator_turn(desk->config.coordinator), now_ms = clock_ms();
    for (int i = 0; i < desk->config.nodes_n; i++) {
        const struct guest *guest = &desk->guests[i];
        if (guest->held != NULL && (guest->turn != turn || now_ms >= guest->until_ms))
            answer_held(desk, i);
    }
}

/* ---- life ---- */

enum status desk_open(const struct desk_config *config, struct desk **out)
{
    struct desk *desk = calloc(1, sizeof(*desk));
    if (desk != NULL)
        desk->guests = calloc((size_t)config->nodes_n, sizeof(*desk->guests));
    if (desk == NULL || desk->guests == NULL) {
        desk_close(desk);
        return FAIL(ST_RETRY, "out of memory: the desk for %d nodes", config->nodes_n);
    }
    desk->config = *config;
    enum status st = offer_open(&desk->offer);
    struct porter_config porter = {.loop = config->loop,
                                   .addr = config->addr,
                                   .port = config->port,
                                   .nodes_n = config->nodes_n,
                                   .workers_n = config->workers_n,
                                   .secret = config->secret,
                                   .on_request = on_request,
                                   .on_gone = on_gone,
                                   .arg = desk};
    if (st == ST_OK)
        st = porter_open(&porter, &desk->porter);
    if (st != ST_OK) {
        desk_close(desk);
        return st;
    }
    *out = desk;
    return ST_OK;
}

void desk_close(struct desk *desk)
{
    if (desk == NULL)
        return;
    for (int i = 0; desk->guests != NULL && i < desk->config.nodes_n; i++) {
        if (desk->guests[i].held != NULL)
            answer_held(desk, i);
    }
    porter_close(desk->porter);
    offer_close(desk->offer);
    if (desk->world != NULL)
        evbuffer_free(desk->world);
    free(desk->guests);
    free(desk);
}

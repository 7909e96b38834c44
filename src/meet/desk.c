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
    struct wire_body body;            /* of the request being read */
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
static void know(struct desk *desk, int node_id, struct wire_instance instance,
                 struct porter_request *request)
{
    struct guest *guest = &desk->guests[node_id];
    char peer[64];
    if (!wire_is_same(guest->instance, instance)) {
        if (guest->held != NULL)
            answer_held(desk, node_id);
        *guest = (struct guest){.instance = instance};
        porter_peer(request, peer, sizeof(peer));
        coordinator_roster_from(desk->config.coordinator, node_id, instance, peer);
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

static void take_says(struct desk *desk, struct porter_request *request, const char *bytes,
                      size_t n)
{
    struct wire_body *body = &desk->body;
    struct wire_told told;
    if (wire_read_says(bytes, n, body) != ST_OK) {
        complain(desk, request);
        return;
    }
    const struct wire_says *says = &body->says;
    int64_t before = coordinator_turn(desk->config.coordinator);
    coordinator_hear(desk->config.coordinator, says, body->has_hello ? &body->hello : NULL,
                     clock_ms(), &told);
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
    struct meet_world told = *world;
    secret_generation(desk->config.seed, world->generation, told.secret);
    wire_write_world(&out, &told);
    explicit_bzero(told.secret, sizeof(told.secret));
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
static void note_taker(struct desk *desk, const struct bill_ask *ask,
                       struct porter_request *request)
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
static void take_data(struct desk *desk, struct porter_request *request, const char *bytes,
                      size_t n)
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

static void on_request(void *arg, struct porter_request *request, const char *path,
                       const char *bytes, size_t n)
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

void desk_door(const struct desk *desk, struct meet_door *out) { porter_crowd(desk->porter, out); }

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

#ifdef FUZZ
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/must.h"

#define FUZZ_NODES 3

static struct event_base *fuzz_loop;
static struct desk *fuzz_desk;
static struct sockaddr_in fuzz_name = {.sin_family = AF_INET};

static void fuzz_change(void *arg) { (void)arg; }

static struct coordinator *fuzz_coordinator(void)
{
    struct coordinator *c;
    const struct coordinator_config config = {.nodes_n = FUZZ_NODES,
                                              .workers_n = 2,
                                              .join_timeout_ms = 600000,
                                              .peer_timeout_ms = 6000,
                                              .max_restarts = 3,
                                              .agree_json = "{\"SEED\":\"1\"}",
                                              .instance = {1, 2}};
    ASSERT(coordinator_open(&config, clock_ms(), &c) == ST_OK);
    return c;
}

/* A door without a key, so that whatever comes is a guest's, and a bill of one file that is not
 * there. */
static void fuzz_open(void)
{
    static const char bill[] =
        "{\"state\":\"ready\",\"why\":\"\",\"weights\":[0],\"files\":[{\"part\":0,\"bytes\":9,"
        "\"skip\":0,\"sum\":\"0000000000000001\",\"suffix\":\".bin\",\"path\":\"/none\"}]}";
    static const struct secret none = {.is_none = true};
    static const uint8_t seed[SECRET_SEED_BYTES] = {1};
    socklen_t n = sizeof(fuzz_name);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    fuzz_name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT(bind(fd, (struct sockaddr *)&fuzz_name, n) == 0 &&
           getsockname(fd, (struct sockaddr *)&fuzz_name, &n) == 0);
    close(fd);
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    fuzz_loop = event_base_new();
    const struct desk_config config = {.loop = fuzz_loop,
                                       .coordinator = fuzz_coordinator(),
                                       .nodes_n = FUZZ_NODES,
                                       .workers_n = 2,
                                       .addr = "127.0.0.1",
                                       .port = ntohs(fuzz_name.sin_port),
                                       .secret = &none,
                                       .seed = seed,
                                       .on_change = fuzz_change};
    ASSERT(desk_open(&config, &fuzz_desk) == ST_OK);
    ASSERT(desk_offer(fuzz_desk, BILL_KIND_DATA, bill, sizeof(bill) - 1) == ST_OK);
}

/* Requests, each ended by a byte that UTF-8 has not: one that says where it goes, and the body; or
 * bytes as they are. */
static void fuzz_write(struct text *out, const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"say", "world", "data"};
    for (size_t at = 0, n; at < size; at += n + 1) {
        const uint8_t *end = memchr(data + at, 0xff, size - at);
        n = end != NULL ? (size_t)(end - data) - at : size - at;
        unsigned where = n > 0 ? data[at] % 4 : 3;
        if (where < 3)
            text_add(out, "POST /v1/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
                     paths[where], n - 1);
        for (size_t i = at + (n > 0); i < at + n; i++)
            text_add(out, "%c", data[i]);
    }
}

static int fuzz_dial(void)
{
    const struct linger reset = {1, 0};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
    while (connect(fd, (struct sockaddr *)&fuzz_name, sizeof(fuzz_name)) != 0 && errno != EISCONN)
        ASSERTF(errno == EINTR || errno == EALREADY, "%s", strerror(errno));
    return fd;
}

static void fuzz_forget(void)
{
    coordinator_close(fuzz_desk->config.coordinator);
    fuzz_desk->config.coordinator = fuzz_coordinator();
    memset(fuzz_desk->guests, 0, FUZZ_NODES * sizeof(*fuzz_desk->guests));
    fuzz_desk->world_generation = 0;
}

/* A guest of any kind: node 0 answers or hangs up, keeps no question, and takes the next one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char answer[1 << 16];
    struct text out = {.limit = (size_t)1 << 20};
    size_t sent = 0;
    if (fuzz_desk == NULL)
        fuzz_open();
    fuzz_write(&out, data, size);
    const int fd = fuzz_dial();
    for (bool is_open = true; is_open;) {
        const ssize_t n =
            sent < out.len ? send(fd, out.data + sent, out.len - sent, MSG_NOSIGNAL | MSG_DONTWAIT)
                           : 0;
        sent += n > 0 ? (size_t)n : 0;
        if (sent == out.len || (n < 0 && errno != EAGAIN))
            shutdown(fd, SHUT_WR);
        event_base_loop(fuzz_loop, EVLOOP_NONBLOCK);
        for (int i = 0; i < FUZZ_NODES; i++)
            if (fuzz_desk->guests[i].held != NULL)
                answer_held(fuzz_desk, i);
        const ssize_t got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
        is_open = got > 0 || (got < 0 && errno == EAGAIN);
    }
    close(fd);
    event_base_loop(fuzz_loop, EVLOOP_NONBLOCK);
    coordinator_tick(fuzz_desk->config.coordinator, clock_ms());
    fuzz_forget();
    text_free(&out);
    return 0;
}
#endif

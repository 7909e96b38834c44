/* coordinator_server — see coordinator_server.h. Must not decide anything about the job. */
#include "cluster/coordinator_server.h"

#include <stdlib.h>
#include <string.h>

#include <event2/buffer.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cluster/succession.h"
#include "net/https_server.h"

/* most connections of one node: heartbeat, urgent news, world, and one that is closing */
#define CONNECTIONS_MAX 4

/* The connections of one node. */
struct connections {
    struct https_server_request *held; /* its heartbeat; NULL: none */
    int64_t sequence, revision, until_ms;
    /* the incarnation that sent the held heartbeat and used the tags */
    struct message_incarnation incarnation;
    const void *tags[CONNECTIONS_MAX];
};

struct coordinator_server {
    struct coordinator_server_config config;
    struct https_server *server;
    struct connections *connections; /* nodes_n */
    struct evbuffer *world;          /* the JSON of world_generation; NULL: none yet */
    int64_t world_generation;
    int64_t unreadable_ms;    /* clock_ms of the last warning */
    struct succession past;   /* the list in the request being read */
    struct message_body body; /* body of the request being read */
};

static void send_reply(struct https_server_request *request, const struct message_reply *reply)
{
    struct text out = {0};
    struct evbuffer *body = evbuffer_new();
    message_write_reply(&out, reply);
    bool is_whole = body && !out.overflow && evbuffer_add(body, out.data, out.len) == 0;
    https_server_respond(request, is_whole ? 200 : 503, is_whole ? body : NULL);
    if (body)
        evbuffer_free(body);
    text_free(&out);
}

/* Answers that this node is not the coordinator's. */
static void answer_elsewhere(struct coordinator_server *s, struct https_server_request *request,
                             struct message_incarnation sender, int64_t sequence)
{
    struct message_reply reply = {.answer = MESSAGE_ANSWER_ELSEWHERE,
                                  .coordinator = sender, /* not read */
                                  .sequence = sequence,
                                  .leader_id = -1};
    if (s->config.on_elsewhere)
        s->config.on_elsewhere(s->config.arg, &reply);
    send_reply(request, &reply);
}

static void answer_held(struct coordinator_server *s, int node_id)
{
    struct connections *conns = &s->connections[node_id];
    struct https_server_request *request = conns->held;
    struct message_reply reply;
    conns->held = NULL;
    if (!s->config.coordinator) {
        answer_elsewhere(s, request, conns->incarnation, conns->sequence);
        return;
    }
    coordinator_make_reply(s->config.coordinator, node_id, conns->incarnation, conns->sequence,
                           &reply);
    send_reply(request, &reply);
}

/* ---- the connections of each node ---- */

static void add_tag(struct connections *conns, const void *tag)
{
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        if (conns->tags[i] == tag)
            return;
    }
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        if (!conns->tags[i]) {
            conns->tags[i] = tag;
            return;
        }
    }
}

/* Notes the connection of a member's message. Connections of an earlier incarnation are
 * forgotten. */
static void note_connection(struct coordinator_server *s, int node_id,
                            struct message_incarnation incarnation,
                            struct https_server_request *request)
{
    struct connections *conns = &s->connections[node_id];
    char peer[64], local[64];
    if (!message_is_same(conns->incarnation, incarnation)) {
        if (conns->held)
            answer_held(s, node_id);
        *conns = (struct connections){.incarnation = incarnation};
        https_server_peer(request, peer, sizeof peer);
        https_server_local(request, local, sizeof local);
        coordinator_nodes_set_address(s->config.coordinator, node_id, incarnation, peer, local);
    }
    add_tag(conns, https_server_connection(request));
}

static void on_disconnect(void *arg, const void *tag)
{
    struct coordinator_server *s = arg;
    for (int i = 0; i < s->config.nodes_n; i++) {
        struct connections *conns = &s->connections[i];
        bool was_mine = false, is_left = false;
        for (int k = 0; k < CONNECTIONS_MAX; k++) {
            was_mine = was_mine || conns->tags[k] == tag;
            if (conns->tags[k] == tag)
                conns->tags[k] = NULL;
            is_left = is_left || conns->tags[k];
        }
        if (was_mine && !is_left && s->config.coordinator) {
            /* The last connection of this node was closed. If the node is lost by that, the others
             * must be informed. */
            const int64_t before = coordinator_revision(s->config.coordinator);
            coordinator_on_disconnect(s->config.coordinator, i, s->connections[i].incarnation,
                                      clock_ms());
            if (coordinator_revision(s->config.coordinator) != before)
                s->config.on_change(s->config.arg);
        }
        if (was_mine)
            return;
    }
}

/* ---- requests ---- */

static void answer_unreadable(struct coordinator_server *s, struct https_server_request *request)
{
    char peer[64];
    int64_t now_ms = clock_ms();
    https_server_peer(request, peer, sizeof peer);
    if (s->unreadable_ms == 0 || now_ms - s->unreadable_ms >= 1000)
        LOG_WARN("unreadable message from %s: %s", peer, status_message());
    s->unreadable_ms = now_ms;
    https_server_respond(request, 400, NULL);
}

static void on_heartbeat(struct coordinator_server *s, struct https_server_request *request,
                         const char *bytes, size_t n)
{
    struct message_body *body = &s->body;
    struct message_reply reply;
    if (message_read_heartbeat(bytes, n, body) != ST_OK) {
        answer_unreadable(s, request);
        return;
    }
    const struct message_heartbeat *heartbeat = &body->heartbeat;
    if (!s->config.coordinator) {
        answer_elsewhere(s, request, heartbeat->incarnation, heartbeat->sequence);
        return;
    }
    int64_t before = coordinator_revision(s->config.coordinator);
    coordinator_on_heartbeat(s->config.coordinator, heartbeat, body->has_join ? &body->join : NULL,
                             clock_ms(), &reply);
    bool is_in = reply.answer == MESSAGE_ANSWER_MEMBER && heartbeat->node_id < s->config.nodes_n;
    if (is_in)
        note_connection(s, heartbeat->node_id, heartbeat->incarnation, request);
    if (is_in && body->hold_ms > 0 && reply.is_lease && !reply.is_leave_confirmed &&
        heartbeat->revision == reply.revision) {
        struct connections *conns = &s->connections[heartbeat->node_id];
        if (conns->held)
            answer_held(s, heartbeat->node_id);
        conns->held = request;
        conns->sequence = heartbeat->sequence;
        conns->revision = reply.revision;
        conns->until_ms = clock_ms() + body->hold_ms;
    } else {
        send_reply(request, &reply);
    }
    if (reply.revision != before)
        coordinator_server_flush(s);
    s->config.on_change(s->config.arg);
}

static bool serialize_world(struct coordinator_server *s, const struct cluster_world *world)
{
    struct text out = {.limit = MESSAGE_WORLD_MAX};
    if (s->world && s->world_generation == world->generation)
        return true;
    if (!s->world)
        s->world = evbuffer_new();
    if (!s->world)
        return false;
    evbuffer_drain(s->world, evbuffer_get_length(s->world));
    struct cluster_world reply = *world;
    psk_generation(s->config.seed, world->generation, reply.secret);
    message_write_world(&out, &reply);
    explicit_bzero(reply.secret, sizeof reply.secret);
    bool is_whole = !out.overflow && evbuffer_add(s->world, out.data, out.len) == 0;
    s->world_generation = is_whole ? world->generation : 0;
    text_free(&out);
    return is_whole;
}

static void on_world_request(struct coordinator_server *s, struct https_server_request *request,
                             const char *bytes, size_t n)
{
    int node_id;
    struct message_incarnation incarnation;
    int64_t generation;
    struct cluster_world world;
    if (message_read_world_request(bytes, n, &node_id, &incarnation, &generation) != ST_OK) {
        answer_unreadable(s, request);
        return;
    }
    if (!s->config.coordinator ||
        !coordinator_world(s->config.coordinator, node_id, incarnation, generation, &world)) {
        /* That generation has ended, or the sender is no member. */
        https_server_respond(request, 410, NULL);
        return;
    }
    struct evbuffer *body = serialize_world(s, &world) ? evbuffer_new() : NULL;
    bool is_whole = body && evbuffer_add_buffer_reference(body, s->world) == 0;
    https_server_respond(request, is_whole ? 200 : 503, is_whole ? body : NULL);
    if (body)
        evbuffer_free(body);
}

static void on_view(struct coordinator_server *s, struct https_server_request *request,
                    const char *bytes, size_t n)
{
    struct message_view theirs, own = {0};
    struct text out = {0};
    if (message_read_view(bytes, n, &theirs) != ST_OK) {
        answer_unreadable(s, request);
        return;
    }
    s->config.on_view(s->config.arg, &theirs, &own);
    message_write_view(&out, &own);
    struct evbuffer *body = evbuffer_new();
    const bool is_whole = body && !out.overflow && evbuffer_add(body, out.data, out.len) == 0;
    https_server_respond(request, is_whole ? 200 : 503, is_whole ? body : NULL);
    if (body)
        evbuffer_free(body);
    text_free(&out);
}

static void on_request(void *arg, struct https_server_request *request, const char *path,
                       const char *bytes, size_t n)
{
    struct coordinator_server *s = arg;
    if (strcmp(path, "/v1/say") == 0)
        on_heartbeat(s, request, bytes, n);
    else if (strcmp(path, "/v1/world") == 0)
        on_world_request(s, request, bytes, n);
    else if (strcmp(path, "/v1/view") == 0 && s->config.on_view)
        on_view(s, request, bytes, n);
    else
        s->config.on_request(s->config.arg, request, path, bytes, n);
}

void coordinator_server_strangers(const struct coordinator_server *s,
                                  struct https_server_strangers *out)
{
    https_server_strangers(s->server, out);
}

int coordinator_server_port(const struct coordinator_server *s)
{
    return https_server_port(s->server);
}

void coordinator_server_set(struct coordinator_server *s, struct coordinator *coordinator)
{
    s->config.coordinator = coordinator;
    for (int i = 0; i < s->config.nodes_n; i++) {
        if (s->connections[i].held)
            answer_held(s, i);
        s->connections[i] = (struct connections){0};
    }
    s->world_generation = 0;
}

void coordinator_server_flush(struct coordinator_server *s)
{
    if (!s->config.coordinator)
        return;
    int64_t revision = coordinator_revision(s->config.coordinator), now_ms = clock_ms();
    for (int i = 0; i < s->config.nodes_n; i++) {
        const struct connections *conns = &s->connections[i];
        if (conns->held && (conns->revision != revision || now_ms >= conns->until_ms))
            answer_held(s, i);
    }
}

/* ---- open and close ---- */

enum status coordinator_server_open(const struct coordinator_server_config *config,
                                    struct coordinator_server **out)
{
    struct coordinator_server *s = memory_new(1, sizeof *s);
    s->connections = memory_new((size_t)config->nodes_n, sizeof *s->connections);
    s->config = *config;
    s->body.past = &s->past;
    struct https_server_config server = {.loop = config->loop,
                                         .addr = config->addr,
                                         .is_towards = config->is_towards,
                                         .port = config->port,
                                         .nodes_n = config->nodes_n,
                                         .workers_n = config->workers_n,
                                         .body_bytes_max = MESSAGE_BODY_MAX,
                                         .psk = config->psk,
                                         .on_request = on_request,
                                         .on_disconnect = on_disconnect,
                                         .arg = s};
    enum status st = https_server_open(&server, &s->server);
    if (st != ST_OK) {
        coordinator_server_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void coordinator_server_close(struct coordinator_server *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->config.nodes_n; i++) {
        if (s->connections[i].held)
            answer_held(s, i);
    }
    https_server_close(s->server);
    if (s->world)
        evbuffer_free(s->world);
    free(s->connections);
    free(s);
}

#ifdef FUZZ
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"

#define FUZZ_NODES 3

static struct event_base *fuzz_loop;
static struct coordinator_server *fuzz_server;
static struct sockaddr_in fuzz_name = {.sin_family = AF_INET};

static void fuzz_change(void *arg) { (void)arg; }
static void fuzz_request(void *arg, struct https_server_request *request, const char *path,
                         const char *bytes, size_t n)
{
    (void)arg, (void)path, (void)bytes, (void)n;
    https_server_respond(request, 404, NULL);
}

static struct coordinator *fuzz_coordinator(void)
{
    const struct coordinator_config config = {.nodes_n = FUZZ_NODES,
                                              .workers_n = 2,
                                              .join_timeout_ms = 600000,
                                              .peer_timeout_ms = 6000,
                                              .max_restarts = 3,
                                              .agree_json = "{\"SEED\":\"1\"}",
                                              .incarnation = {1, 2}};
    return coordinator_open(&config, clock_ms());
}

/* Opens a server without a key, so that every connection is admitted. */
static void fuzz_open(void)
{
    static const struct psk none = {.is_none = true};
    static const uint8_t seed[PSK_SEED_BYTES] = {1};
    socklen_t n = sizeof fuzz_name;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    fuzz_name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT(bind(fd, (struct sockaddr *)&fuzz_name, n) == 0 &&
           getsockname(fd, (struct sockaddr *)&fuzz_name, &n) == 0);
    close(fd);
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    fuzz_loop = event_base_new();
    const struct coordinator_server_config config = {.loop = fuzz_loop,
                                                     .coordinator = fuzz_coordinator(),
                                                     .nodes_n = FUZZ_NODES,
                                                     .workers_n = 2,
                                                     .addr = "127.0.0.1",
                                                     .port = ntohs(fuzz_name.sin_port),
                                                     .psk = &none,
                                                     .seed = seed,
                                                     .on_change = fuzz_change,
                                                     .on_request = fuzz_request};
    ASSERT(coordinator_server_open(&config, &fuzz_server) == ST_OK);
}

/* Writes requests, each ended by a byte that UTF-8 does not have. The first byte of a request
 * selects the path; the rest is the body, or raw bytes. */
static void fuzz_write(struct text *out, const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"say", "world", "data"};
    for (size_t at = 0, n; at < size; at += n + 1) {
        const uint8_t *end = memchr(data + at, 0xff, size - at);
        n = end ? (size_t)(end - data) - at : size - at;
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
    ASSERT(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
    while (connect(fd, (struct sockaddr *)&fuzz_name, sizeof fuzz_name) != 0 && errno != EISCONN)
        ASSERTF(errno == EINTR || errno == EALREADY, "%s", strerror(errno));
    return fd;
}

static void fuzz_forget(void)
{
    coordinator_close(fuzz_server->config.coordinator);
    fuzz_server->config.coordinator = fuzz_coordinator();
    memset(fuzz_server->connections, 0, FUZZ_NODES * sizeof *fuzz_server->connections);
    fuzz_server->world_generation = 0;
}

/* Runs a client of any kind: node 0 answers or closes the connection, holds no request, and accepts
 * the next client. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char answer[1 << 16];
    struct text out = {.limit = (size_t)1 << 20};
    size_t sent = 0;
    if (!fuzz_server)
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
            if (fuzz_server->connections[i].held)
                answer_held(fuzz_server, i);
        const ssize_t got = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
        is_open = got > 0 || (got < 0 && errno == EAGAIN);
    }
    close(fd);
    event_base_loop(fuzz_loop, EVLOOP_NONBLOCK);
    coordinator_tick(fuzz_server->config.coordinator, clock_ms());
    fuzz_forget();
    text_free(&out);
    return 0;
}
#endif

/* view_client — see view_client.h. Must not decide anything about the job. */
#include "cluster/view_client.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cluster/member_client.h"
#include "net/https_client.h"

#define VIEW_EVERY_MS 250
#define VIEW_ANSWER_MS 1000

struct peer {
    struct view_client *owner;
    struct https_client *client; /* NULL: none was asked yet */
    char control[CLUSTER_CONTROL_MAX];
    struct message_incarnation expected;
    int64_t next_ms;
};

struct view_client {
    struct view_client_config config;
    struct peer *peers; /* nodes_n */
};

static bool is_some(struct message_incarnation incarnation)
{
    return incarnation.hi != 0 || incarnation.lo != 0;
}

static void on_response(void *arg, const struct https_client_response *answer)
{
    struct peer *peer = arg;
    struct view_client *v = peer->owner;
    struct message_view theirs;
    const struct message_incarnation expected = peer->expected;
    const int node_id = (int)(peer - v->peers);
    if (answer->result != HTTPS_CLIENT_ANSWERED) {
        if (answer->is_refused && is_some(expected))
            v->config.on_ended(v->config.arg, node_id, expected);
        return;
    }
    if (answer->code != 200 || message_read_view(answer->bytes, answer->n, &theirs) != ST_OK) {
        LOG_DEBUG("node %d answers with no view: HTTP %ld", node_id, answer->code);
        status_clear();
        return;
    }
    if (is_some(expected) && !message_is_same(theirs.incarnation, expected))
        v->config.on_ended(v->config.arg, node_id, expected);
    v->config.on_view(v->config.arg, &theirs);
}

void view_client_request(struct view_client *v, int node_id, const char *control,
                         struct message_incarnation expected)
{
    struct peer *peer = &v->peers[node_id];
    struct message_view own = {0};
    struct text body = {0};
    if (clock_ms() < peer->next_ms ||
        (peer->client && https_client_is_busy(peer->client, HTTPS_CLIENT_SLOT_HEARTBEAT)))
        return;
    peer->next_ms = clock_ms() + VIEW_EVERY_MS;
    if (strcmp(control, peer->control) != 0) {
        https_client_close(peer->client);
        peer->client = NULL;
    }
    text_copy(peer->control, sizeof peer->control, control);
    if (!peer->client && member_client_dial(v->config.loop, v->config.psk, control, on_response,
                                            peer, &peer->client) != ST_OK) {
        LOG_WARN("node %d cannot be asked: %s", node_id, status_message());
        status_clear();
        return;
    }
    peer->expected = expected;
    v->config.fill_view(v->config.arg, &own);
    message_write_view(&body, &own);
    https_client_post(peer->client, HTTPS_CLIENT_SLOT_HEARTBEAT, "/v1/view", &body,
                      MESSAGE_BODY_MAX, VIEW_ANSWER_MS);
}

struct view_client *view_client_open(const struct view_client_config *config)
{
    struct view_client *v = memory_new(1, sizeof *v);
    v->config = *config;
    v->peers = memory_new((size_t)config->nodes_n, sizeof *v->peers);
    for (int i = 0; i < config->nodes_n; i++)
        v->peers[i].owner = v;
    return v;
}

void view_client_close(struct view_client *v)
{
    if (!v)
        return;
    for (int i = 0; i < v->config.nodes_n; i++)
        https_client_close(v->peers[i].client);
    free(v->peers);
    free(v);
}

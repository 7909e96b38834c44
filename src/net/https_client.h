/* https_client — asynchronous requests to node 0: libcurl on the event loop, one request at a time
 * in each slot. No function blocks; libcurl's own thread resolves names. All functions and the
 * callback run on the loop's thread. It must not know the meaning of requests and responses. */
#ifndef CONVOY_NET_HTTPS_CLIENT_H
#define CONVOY_NET_HTTPS_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "net/psk.h"

struct event_base;
struct https_client;

enum https_client_slot {
    HTTPS_CLIENT_SLOT_HEARTBEAT,
    HTTPS_CLIENT_SLOT_UPDATE,
    HTTPS_CLIENT_SLOT_WORLD,
    HTTPS_CLIENT_SLOTS_N
};

enum https_client_result {
    HTTPS_CLIENT_ANSWERED,    /* there is a code and a body */
    HTTPS_CLIENT_UNREACHABLE, /* no route (yet), or no response in time */
    HTTPS_CLIENT_CLOSED,      /* the connection was refused or closed: no process serves there */
    HTTPS_CLIENT_NOT_ADMITTED /* the two sides have different keys, or it is not node 0 */
};

struct https_client_response {
    enum https_client_slot slot;
    enum https_client_result result;
    bool is_refused; /* CLOSED: the host refused the connection, so no process listens there */
    long code;
    const char *bytes; /* valid during the callback */
    size_t n;
    int64_t sent_ms; /* when the request was started */
    char why[384];   /* the error as a sentence, unless ANSWERED */
};

struct https_client_config {
    struct event_base *loop;
    const char *host; /* borrowed during open */
    int port;
    const struct psk *psk; /* borrowed until close */
    /* on_response — receives a response. The slot is free again; https_client_post may be called
     * from here. */
    void (*on_response)(void *arg, const struct https_client_response *response);
    void *arg;
};

/* https_client_open — opens a client without connecting; each slot connects at its first request.
 * Copies the config. */
enum status https_client_open(const struct https_client_config *config, struct https_client **out);
/* https_client_close — drops requests in progress. Must not be called from on_response. Accepts
 * NULL. */
void https_client_close(struct https_client *client);
/* https_client_is_busy — returns true while the slot's request is in progress. */
bool https_client_is_busy(const struct https_client *client, enum https_client_slot slot);
/* https_client_post — posts JSON to path ("/v1/say") in a free slot. It owns the text's memory from
 * now on and leaves the text empty. A response over response_max bytes, or later than timeout_ms,
 * is an error. */
void https_client_post(struct https_client *client, enum https_client_slot slot, const char *path,
                       struct text *take_body, size_t response_max, int64_t timeout_ms);

#endif

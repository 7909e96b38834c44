/* https_client — requests to node 0, on the loop: libcurl, a few lanes, one request a slot. Nothing
 * here blocks, names are looked up aside. Must not know what is said. */
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
    HTTPS_CLIENT_ANSWERED,    /* code and body */
    HTTPS_CLIENT_UNREACHABLE, /* no way there (yet), or no answer in time */
    HTTPS_CLIENT_CLOSED,      /* refused or closed: nobody is there */
    HTTPS_CLIENT_NOT_ADMITTED /* not the same key on both sides */
};

struct https_client_response {
    enum https_client_slot slot;
    enum https_client_result result;
    long code;
    const char *bytes; /* during the call */
    size_t n;
    int64_t sent_ms; /* when the request was begun */
    char why[256];   /* unless ANSWERED */
};

struct https_client_config {
    struct event_base *loop;
    const char *host; /* borrowed during open */
    int port;
    const struct psk *psk; /* outlives the client */
    /* the slot is free again */
    void (*on_response)(void *arg, const struct https_client_response *answer);
    void *arg;
};

enum status https_client_open(const struct https_client_config *config, struct https_client **out);
void https_client_close(struct https_client *client); /* not from on_response; accepts NULL */
bool https_client_is_busy(const struct https_client *client, enum https_client_slot slot);
/* https_client_post — takes the text's memory (leaves it empty). path: "/v1/say". */
void https_client_post(struct https_client *client, enum https_client_slot slot, const char *path,
                       struct text *take_body, size_t response_max, int64_t timeout_ms);

#endif

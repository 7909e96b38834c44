/* porter — node 0's door: listens, lets in who has the key, hands over their requests.
 *
 * evhttp over TLS, behind limits: 128 connections that have not yet shown the key, 32 silent ones
 * of one address, 1 s to show it and 5 s to a request; silent ones lose their places first, oldest
 * first. Bodies of WIRE_BODY_MAX, short headers. Says at once when a connection has ended. Must not
 * know what is said inside. */
#ifndef CONVOY_MEET_PORTER_H
#define CONVOY_MEET_PORTER_H

#include <stddef.h>

#include "base/status.h"
#include "meet/meet.h"
#include "meet/secret.h"

struct event_base;
struct evbuffer;
struct porter;
struct porter_request; /* evhttp's */

struct porter_config {
    struct event_base *loop;
    const char *addr;             /* MASTER_ADDR */
    int port, nodes_n, workers_n; /* workers_n: of each node */
    const struct secret *secret;  /* outlives the porter */
    /* on_request — answer with porter_answer now or later; bytes are valid during the call. */
    void (*on_request)(void *arg, struct porter_request *request, const char *path,
                       const char *bytes, size_t n);
    /* on_gone — the connection with this tag ended; requests of it that are not answered are of no
     * use but to answer. */
    void (*on_gone)(void *arg, const void *tag);
    void *arg;
};

enum status porter_open(const struct porter_config *config, struct porter **out);
void porter_close(struct porter *porter); /* answer all requests before; accepts NULL */

void porter_crowd(const struct porter *porter, struct meet_door *out);

/* porter_tag — what names the request's connection while that lives. NULL: it has ended. */
const void *porter_tag(struct porter_request *request);
/* porter_peer — the other side's address, "" unknown. */
void porter_peer(struct porter_request *request, char *out, size_t cap);
/* porter_answer — 200 with JSON, or another code with no body. Frees the request. body: NULL or
 * drained. */
void porter_answer(struct porter_request *request, int code, struct evbuffer *body);
/* porter_send — 200 with bytes of any kind. As above. */
void porter_send(struct porter_request *request, struct evbuffer *body);

#endif

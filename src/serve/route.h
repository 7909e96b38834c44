/* route — the paths of the status endpoint and the form of its errors.
 *
 * A pure function from (method, path, view) to bytes. It must not know sockets or libevent. */
#ifndef CONVOY_SERVE_ROUTE_H
#define CONVOY_SERVE_ROUTE_H

#include <stdbool.h>

#include "base/text.h"
#include "serve/view.h"

struct route_answer {
    int code; /* HTTP status */
    const char *reason;
    const char *content_type;
    const char *allow; /* value of the Allow header; NULL: none */
    char policy[512];  /* value of the Content-Security-Policy header */
    struct text body;  /* body of the answer; route_free frees it */
};

/* route_answer — answers a request. path: without the query. has_body: the request has a body,
 * which is refused. */
void route_answer(const char *path, bool is_get, bool has_body, const struct view *view,
                  struct route_answer *out);
/* route_is_probe — returns true for the paths of health checks, which need no token. */
bool route_is_probe(const char *path);
/* route_refuse — makes an error in the common form. */
void route_refuse(int code, const char *reason, const char *message, struct route_answer *out);
/* route_free — frees the body of an answer. */
void route_free(struct route_answer *answer);

#endif

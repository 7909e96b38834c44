/* http_auth — decides whether a request has the token that a server requires: as a bearer token
 * (RFC 6750), or, because a browser can only show a login, as the password of a Basic login with
 * any user name (RFC 7617). It must not know paths, nor where the token comes from. */
#ifndef CONVOY_NET_HTTP_AUTH_H
#define CONVOY_NET_HTTP_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#define HTTP_AUTH_BEARER "Bearer realm=\"convoy\""
#define HTTP_AUTH_BASIC "Basic realm=\"convoy\", charset=\"UTF-8\""

/* Zeroed: no token is required. */
struct http_auth {
    bool is_required;
    uint8_t digest[32]; /* SHA-256 of the token; the token itself is not kept */
};

/* http_auth_init — sets the token; "" or NULL: none is required. */
void http_auth_init(struct http_auth *auth, const char *token);
/* http_auth_is_granted — compares the token in a time that does not depend on how much of it is
 * right. value: the request's Authorization header, NULL if it has none. */
bool http_auth_is_granted(const struct http_auth *auth, const char *value);

#endif

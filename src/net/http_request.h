/* http_request — is the head of an HTTP request one that every reader understands alike? What two
 * readers may take for two different requests (of which the second is then smuggled past the first)
 * is refused, not guessed. Must not know what is asked for. */
#ifndef CONVOY_NET_HTTP_REQUEST_H
#define CONVOY_NET_HTTP_REQUEST_H

struct evkeyvalq; /* libevent's headers */

/* http_request_fault — what is wrong with it, for people; NULL: nothing. minor: of HTTP/1.minor;
 * from 1 on there must be a Host. */
const char *http_request_fault(const struct evkeyvalq *headers, int minor);

#endif

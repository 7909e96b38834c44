/* http_request — refuses requests whose headers two HTTP parsers may read differently: such a
 * request can be smuggled past a proxy. It must not know paths. */
#ifndef CONVOY_NET_HTTP_REQUEST_H
#define CONVOY_NET_HTTP_REQUEST_H

struct evkeyvalq; /* libevent's headers */

/* http_request_fault — returns the reason to refuse the request, as a sentence; NULL: none. minor:
 * the request's version is HTTP/1.minor; from HTTP/1.1 on a Host header is required. */
const char *http_request_fault(const struct evkeyvalq *headers, int minor);

#endif

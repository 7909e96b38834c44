/* tls_client — a libcurl handle for requests to node 0: TLS 1.3 with the job's key and nothing
 * else, or plain HTTP with JOB_TOKEN=none. It also explains why a handshake failed. It must not
 * know the requests. */
#ifndef CONVOY_NET_TLS_CLIENT_H
#define CONVOY_NET_TLS_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include <curl/curl.h>

#include "base/status.h"
#include "net/psk.h"

/* State of one handle; keep it at one address while the handle lives. */
struct tls_client {
    const struct psk *psk;
    int alert; /* the last fatal TLS alert received; 0: none. Set to 0 before each request */
    int fd;    /* descriptor of the connection made last */
    /* The beginning of the answer of a server without TLS; "": no such answer. */
    char plain[256];
    char error[CURL_ERROR_SIZE];
};

/* tls_client_check — checks the TLS library; call it first. Fails ST_NO_DEVICE if libcurl has
 * another TLS library than OpenSSL. */
enum status tls_client_check(void);
/* tls_client_url — writes "https://host:port", with an IPv6 address in brackets. */
bool tls_client_url(const struct psk *psk, const char *host, int port, char *out, size_t cap);
/* tls_client_open — opens a handle; psk and headers are borrowed while it lives. Before each
 * request set CURLOPT_WRITEDATA to a struct text for the response. Free the handle with
 * curl_easy_cleanup. */
enum status tls_client_open(struct tls_client *tls, const struct psk *psk,
                            struct curl_slist *headers, CURL **out);
/* tls_client_is_refused — returns true if the last handshake failed because the two sides have
 * different keys, or the other side does not use TLS. why: the reason and the remedy, as a
 * sentence, in either case. */
bool tls_client_is_refused(const struct tls_client *tls, char *why, size_t cap);

#endif

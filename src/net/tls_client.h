/* tls_client — how node 0 is asked: one libcurl handle made ready for TLS 1.3 with the job's key
 * and nothing else (or plain HTTP when there is none), and what a handshake that failed means. Must
 * not know what is said, nor when. */
#ifndef CONVOY_NET_TLS_CLIENT_H
#define CONVOY_NET_TLS_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include <curl/curl.h>

#include "base/status.h"
#include "net/psk.h"

/* One handle's; stays where it is while the handle lives. */
struct tls_client {
    const struct psk *psk;
    int alert; /* the last fatal one that came; 0 none: set to 0 before each request */
    char error[CURL_ERROR_SIZE];
};

enum status tls_client_check(void); /* libcurl is there, with OpenSSL; call it first */
/* tls_client_url — "https://host:port", with an IPv6 address in brackets. */
bool tls_client_url(const struct psk *psk, const char *host, int port, char *out, size_t cap);
/* tls_client_set_up — an answer is added to the struct text that CURLOPT_WRITEDATA is set to before
 * each request. */
void tls_client_set_up(CURL *easy, struct tls_client *tls, const struct psk *psk,
                       struct curl_slist *headers);
/* tls_client_is_refused — after a failed handshake: not the same key on both sides; why for people
 * in any case. */
bool tls_client_is_refused(const struct tls_client *tls, char *why, size_t cap);

#endif

/* dial — how node 0 is asked: one libcurl handle made ready for TLS 1.3 with the job's key and
 * nothing else (or plain HTTP when there is none), and what a handshake that failed means. Must not
 * know what is said, nor when. */
#ifndef CONVOY_MEET_DIAL_H
#define CONVOY_MEET_DIAL_H

#include <stdbool.h>
#include <stddef.h>

#include <curl/curl.h>

#include "base/status.h"
#include "meet/secret.h"

/* One handle's; stays where it is while the handle lives. */
struct dial {
    const struct secret *secret;
    int alert; /* the last fatal one that came; 0 none: set to 0 before each request */
    char error[CURL_ERROR_SIZE];
};

enum status dial_check(void); /* libcurl is there, with OpenSSL; call it first */
/* dial_base — "https://host:port", with an IPv6 address in brackets. */
bool dial_base(const struct secret *secret, const char *host, int port, char *out, size_t cap);
/* dial_prepare — an answer is added to the struct text that CURLOPT_WRITEDATA is set to before each
 * request. */
void dial_prepare(CURL *easy, struct dial *dial, const struct secret *secret,
                  struct curl_slist *headers);
/* dial_is_refused — after a failed handshake: not the same key on both sides; why for people in any
 * case. */
bool dial_is_refused(const struct dial *dial, char *why, size_t cap);

#endif

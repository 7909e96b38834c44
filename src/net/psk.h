/* psk — the job's pre-shared key, derived from JOB_TOKEN, and TLS 1.3 with that key only.
 *
 * key = scrypt(token, salt PSK_IDENTITY): tokens can be tried against one recorded handshake, and
 * each try costs time and memory. There are no certificates: both sides refuse a peer that presents
 * one instead of the key. It must not know the data of the connections. */
#ifndef CONVOY_NET_PSK_H
#define CONVOY_NET_PSK_H

#include <stdbool.h>
#include <stdint.h>

#include <openssl/ssl.h>

#include "base/status.h"

#define PSK_IDENTITY_START "convoy/"
#define PSK_IDENTITY PSK_IDENTITY_START "v2" /* v1: HKDF, until 0.1.0 */

struct psk {
    bool is_none; /* JOB_TOKEN=none: plain HTTP */
    uint8_t key[32];
};

/* psk_derive — derives the key, which costs about 0.1 s and 16 MiB: call it once in a process.
 * Token "none": no key. Fails ST_BAD_SETTING: the token is empty; ST_RETRY: no memory;
 * ST_NO_DEVICE: OpenSSL cannot. */
enum status psk_derive(const char *token, struct psk *out);
/* psk_wipe — overwrites the key with zeros. */
void psk_wipe(struct psk *psk);
#define PSK_SEED_BYTES 32
#define PSK_GENERATION_BYTES 16
/* psk_seed — writes random bytes of the operating system. */
enum status psk_seed(uint8_t out[PSK_SEED_BYTES]);
/* psk_generation — derives the secret by which the ranks of one generation recognise each other:
 * HMAC-SHA256 of its number with node 0's seed. One generation's secret reveals nothing about
 * another's. */
void psk_generation(const uint8_t seed[PSK_SEED_BYTES], int64_t generation,
                    uint8_t out[PSK_GENERATION_BYTES]);
/* psk_new_server_ctx — returns a context that accepts only clients with the key, which must outlive
 * it. NULL: failed, and status_message has the reason. */
SSL_CTX *psk_new_server_ctx(const struct psk *psk);
/* psk_set_client_ctx — makes a client's context accept only servers with the key, which must
 * outlive it. false: out of memory. */
bool psk_set_client_ctx(SSL_CTX *ctx, const struct psk *psk);
/* psk_is_refusal — returns true for a fatal TLS alert (RFC 8446, 6.2) that our server sends for
 * another key. */
bool psk_is_refusal(int alert);
/* psk_is_unknown — returns true for an alert by which a server refuses the identity of our key: it
 * is Convoy of another version, or not Convoy. */
bool psk_is_unknown(int alert);
/* psk_is_other_version — returns true if the client of this server's connection presented the
 * identity of another version of Convoy. */
bool psk_is_other_version(const SSL *ssl);

#endif

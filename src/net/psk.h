/* psk — what makes a connection the job's own: a key from JOB_TOKEN, and TLS 1.3 with nothing
 * but that key.
 *
 * key = HKDF-SHA256(token, info "convoy/v1"). There are no certificates: who shows one instead of
 * the key is refused, by both sides. Must not know who talks, or of what. */
#ifndef CONVOY_NET_PSK_H
#define CONVOY_NET_PSK_H

#include <stdbool.h>
#include <stdint.h>

#include <openssl/ssl.h>

#include "base/status.h"

struct psk {
    bool is_none; /* JOB_TOKEN=none: plain HTTP */
    uint8_t key[32];
};

enum status psk_derive(const char *token, struct psk *out);
void psk_wipe(struct psk *psk);
/* psk_seed — new, at random. psk_generation — by what the ranks of a generation know each
 * other, from node 0's seed: HMAC-SHA256 of its number, so that no two are alike and none tells of
 * another. */
#define PSK_SEED_BYTES 32
#define PSK_GENERATION_BYTES 16
enum status psk_seed(uint8_t out[PSK_SEED_BYTES]);
void psk_generation(const uint8_t seed[PSK_SEED_BYTES], int64_t generation,
                    uint8_t out[PSK_GENERATION_BYTES]);
/* psk_new_server_ctx — a context that accepts only peers with the key; secret must outlive it.
 * NULL: FAIL was called. */
SSL_CTX *psk_new_server_ctx(const struct psk *psk);
/* psk_set_client_ctx — makes a client's context accept only a server with the key; false: out of
 * memory. */
bool psk_set_client_ctx(SSL_CTX *ctx, const struct psk *psk);
/* psk_is_refusal — a fatal alert (RFC 8446, 6.2) by which a server of this room says: another
 * key. */
bool psk_is_refusal(int alert);

#endif

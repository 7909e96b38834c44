/* secret — what makes a connection the job's own: a key from JOB_TOKEN, and TLS 1.3 with nothing
 * but that key.
 *
 * key = HKDF-SHA256(token, info "convoy/v1"). There are no certificates: who shows one instead of
 * the key is refused, by both sides. Must not know who talks, or of what. */
#ifndef CONVOY_MEET_SECRET_H
#define CONVOY_MEET_SECRET_H

#include <stdbool.h>
#include <stdint.h>

#include <openssl/ssl.h>

#include "base/status.h"

struct secret {
    bool is_none; /* JOB_TOKEN=none: plain HTTP */
    uint8_t key[32];
};

enum status secret_derive(const char *token, struct secret *out);
void secret_forget(struct secret *secret);
/* secret_seed — new, at random. secret_generation — by what the ranks of a generation know each
 * other, from node 0's seed: HMAC-SHA256 of its number, so that no two are alike and none tells of
 * another. */
#define SECRET_SEED_BYTES 32
#define SECRET_GENERATION_BYTES 16
enum status secret_seed(uint8_t out[SECRET_SEED_BYTES]);
void secret_generation(const uint8_t seed[SECRET_SEED_BYTES], int64_t generation,
                       uint8_t out[SECRET_GENERATION_BYTES]);
/* secret_serve — a context that accepts only peers with the key; secret must outlive it. NULL: FAIL
 * was called. */
SSL_CTX *secret_serve(const struct secret *secret);
/* secret_dial — makes a client's context accept only a server with the key; false: out of
 * memory. */
bool secret_dial(SSL_CTX *ctx, const struct secret *secret);
/* secret_is_refusal — a fatal alert (RFC 8446, 6.2) by which a server of this room says: another
 * key. */
bool secret_is_refusal(int alert);

#endif

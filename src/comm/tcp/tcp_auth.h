/* tcp_auth — two processes prove to each other that they know the secret of their generation, and
 * which rank each is.
 *
 * Four messages of fixed size; each ends with HMAC-SHA256 over its name and everything said before
 * it:
 *
 *   hello    client → server   both ranks, generation, nonce
 *   answer   server → client   nonce
 *   proof    client → server   (both nonces are in what the MAC covers)
 *   welcome  server → client
 *
 * The server answers only a hello with a right MAC, and believes only a proof that covers its own
 * nonce, so a recorded hello wins nothing. The keys of the connection come from the secret and the
 * whole exchange: HKDF-SHA256. Pure but for the nonces. Must not know sockets. */
#ifndef CONVOY_COMM_TCP_AUTH_H
#define CONVOY_COMM_TCP_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TCP_AUTH_SECRET_BYTES 16
#define TCP_AUTH_MAC_BYTES 32
#define TCP_AUTH_HELLO_BYTES 96
#define TCP_AUTH_ANSWER_BYTES 64
#define TCP_AUTH_PROOF_BYTES 32
#define TCP_AUTH_WELCOME_BYTES 32
#define TCP_AUTH_KEY_BYTES 16
#define TCP_AUTH_CHECKSUM_KEY_BYTES 192

struct tcp_auth_ids {
    int64_t generation;
    int32_t client, server, ranks;
};

/* What was said so far. Zeroed but for the secret: nothing. */
struct tcp_auth {
    uint8_t secret[TCP_AUTH_SECRET_BYTES];
    uint8_t transcript[TCP_AUTH_HELLO_BYTES + TCP_AUTH_ANSWER_BYTES + TCP_AUTH_PROOF_BYTES +
                       TCP_AUTH_WELCOME_BYTES];
    size_t transcript_n;
};

/* Keys of one direction. */
struct tcp_auth_keys {
    uint8_t header[TCP_AUTH_KEY_BYTES];            /* of AES-128-GCM */
    uint8_t checksum[TCP_AUTH_CHECKSUM_KEY_BYTES]; /* of XXH3-128 */
};

/* Each writes or reads one message and adds it to what was said. make: false: OpenSSL failed. read:
 * false: it is not proved, or not for this world; nothing is added then. read_hello:
 * expected.client -1: any rank but the server's own; the one that came is put there. */
bool tcp_auth_make_hello(struct tcp_auth *auth, const struct tcp_auth_ids *ids,
                         uint8_t out[TCP_AUTH_HELLO_BYTES]);
bool tcp_auth_read_hello(struct tcp_auth *auth, struct tcp_auth_ids *expected,
                         const uint8_t in[TCP_AUTH_HELLO_BYTES]);
bool tcp_auth_make_answer(struct tcp_auth *auth, uint8_t out[TCP_AUTH_ANSWER_BYTES]);
bool tcp_auth_read_answer(struct tcp_auth *auth, const uint8_t in[TCP_AUTH_ANSWER_BYTES]);
bool tcp_auth_make_proof(struct tcp_auth *auth, uint8_t out[TCP_AUTH_PROOF_BYTES]);
bool tcp_auth_read_proof(struct tcp_auth *auth, const uint8_t in[TCP_AUTH_PROOF_BYTES]);
bool tcp_auth_make_welcome(struct tcp_auth *auth, uint8_t out[TCP_AUTH_WELCOME_BYTES]);
bool tcp_auth_read_welcome(struct tcp_auth *auth, const uint8_t in[TCP_AUTH_WELCOME_BYTES]);
/* tcp_auth_keys — of what the client sends, or the server; after the welcome. */
bool tcp_auth_keys(const struct tcp_auth *auth, bool of_client, struct tcp_auth_keys *out);
void tcp_auth_wipe(void *secret, size_t bytes);

#endif

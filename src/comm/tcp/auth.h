/* tcp_auth — two processes prove to each other that they know the secret of their generation, and
 * which rank each is.
 *
 * Four messages of fixed size. Each ends with HMAC-SHA256 over its name and the transcript, all
 * bytes exchanged so far:
 *
 *   hello    client → server   both ranks, generation, nonce
 *   answer   server → client   nonce
 *   proof    client → server   (its MAC covers both nonces)
 *   welcome  server → client
 *
 * The server answers only a hello with a valid MAC, and accepts only a proof that covers its own
 * nonce: so a recorded hello gains nothing. The keys of the connection are HKDF-SHA256 of secret
 * and transcript; with them message/seal.h authenticates each later message. Pure but for the
 * nonces. Must not know sockets. */
#ifndef CONVOY_COMM_TCP_AUTH_H
#define CONVOY_COMM_TCP_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/message/seal.h"

#define TCP_AUTH_SECRET_BYTES 16
#define TCP_AUTH_MAC_BYTES 32
#define TCP_AUTH_HELLO_BYTES 96
#define TCP_AUTH_ANSWER_BYTES 64
#define TCP_AUTH_PROOF_BYTES 32
#define TCP_AUTH_WELCOME_BYTES 32

struct tcp_auth_ids {
    int64_t generation;
    int32_t client, server, ranks;
};

/* The transcript. Zeroed but for the secret: empty. */
struct tcp_auth {
    uint8_t secret[TCP_AUTH_SECRET_BYTES];
    uint8_t transcript[TCP_AUTH_HELLO_BYTES + TCP_AUTH_ANSWER_BYTES + TCP_AUTH_PROOF_BYTES +
                       TCP_AUTH_WELCOME_BYTES];
    size_t transcript_n;
};

/* Each function writes or reads one message and adds it to the transcript.
 * make: false: OpenSSL failed.
 * read: false: the message is not authentic or of another world; the transcript is unchanged.
 * read_hello: expected->client -1: any rank but the server's own; it is set to the rank that
 * came. */
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
/* tcp_auth_keys — the keys of what the client sends, or the server; after the welcome. */
bool tcp_auth_keys(const struct tcp_auth *auth, bool of_client, struct message_seal_keys *out);

#endif

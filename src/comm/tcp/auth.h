/* tcp_auth — two processes prove to each other that they have the secret of their generation, and
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
 * nonce: so a recorded hello is useless. The keys of the connection are HKDF-SHA256 of secret and
 * transcript; with them message/seal.h authenticates each later message. Pure except for the
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

/* The transcript. All zero except for the secret: empty. */
struct tcp_auth {
    uint8_t secret[TCP_AUTH_SECRET_BYTES];
    uint8_t transcript[TCP_AUTH_HELLO_BYTES + TCP_AUTH_ANSWER_BYTES + TCP_AUTH_PROOF_BYTES +
                       TCP_AUTH_WELCOME_BYTES];
    size_t transcript_n;
};

/* Each function makes or reads one message and adds it to the transcript. make returns false if
 * OpenSSL or the kernel's generator failed. read returns false, and leaves the transcript
 * unchanged, if the message is not authentic or belongs to another world. */

/* tcp_auth_make_hello — makes the client's first message. */
bool tcp_auth_make_hello(struct tcp_auth *auth, const struct tcp_auth_ids *ids,
                         uint8_t out[TCP_AUTH_HELLO_BYTES]);
/* tcp_auth_read_hello — reads a hello. expected->client -1 accepts any rank but the server's own,
 * and is set to the rank in the message. */
bool tcp_auth_read_hello(struct tcp_auth *auth, struct tcp_auth_ids *expected,
                         const uint8_t in[TCP_AUTH_HELLO_BYTES]);
/* tcp_auth_make_answer — makes the server's answer to a hello, with a nonce of its own. */
bool tcp_auth_make_answer(struct tcp_auth *auth, uint8_t out[TCP_AUTH_ANSWER_BYTES]);
/* tcp_auth_read_answer — reads the answer, in the client. */
bool tcp_auth_read_answer(struct tcp_auth *auth, const uint8_t in[TCP_AUTH_ANSWER_BYTES]);
/* tcp_auth_make_proof — makes the client's proof, whose MAC covers both nonces. */
bool tcp_auth_make_proof(struct tcp_auth *auth, uint8_t out[TCP_AUTH_PROOF_BYTES]);
/* tcp_auth_read_proof — reads the proof, in the server: the client is authentic then. */
bool tcp_auth_read_proof(struct tcp_auth *auth, const uint8_t in[TCP_AUTH_PROOF_BYTES]);
/* tcp_auth_make_welcome — makes the server's last message. */
bool tcp_auth_make_welcome(struct tcp_auth *auth, uint8_t out[TCP_AUTH_WELCOME_BYTES]);
/* tcp_auth_read_welcome — reads the welcome, in the client. Both have the same transcript then. */
bool tcp_auth_read_welcome(struct tcp_auth *auth, const uint8_t in[TCP_AUTH_WELCOME_BYTES]);
/* tcp_auth_keys — returns the keys of the client's direction, or of the server's; call it after the
 * welcome. */
bool tcp_auth_keys(const struct tcp_auth *auth, bool of_client, struct message_seal_keys *out);

#endif

/* message_seal — the keys of one direction of a connection, and the sealed header of each message.
 *
 * A sealed header has 64 bytes: 32 that are readable, 16 that are encrypted (the checksum of the
 * content, so that its key cannot be derived from what is sent), and the authentication tag of
 * AES-128-GCM over both. The nonce is the number of the header in its direction: no number may be
 * used twice with the same keys. Must not know what the bytes mean, nor connections. */
#ifndef CONVOY_COMM_MESSAGE_SEAL_H
#define CONVOY_COMM_MESSAGE_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/core/checksum.h"

#define MESSAGE_SEAL_BYTES 64
#define MESSAGE_SEAL_PLAIN_BYTES 32
#define MESSAGE_SEAL_HIDDEN_BYTES 16
#define MESSAGE_SEAL_KEY_BYTES 16

/* The keys of one direction. */
struct message_seal_keys {
    uint8_t header[MESSAGE_SEAL_KEY_BYTES];    /* of AES-128-GCM */
    uint8_t checksum[COMM_CHECKSUM_KEY_BYTES]; /* of the content */
};

/* message_seal_derive — HKDF-SHA256 of the secret, with a salt that is new for each connection.
 * info: a string that names the direction. false: OpenSSL failed. */
bool message_seal_derive(const uint8_t *secret, size_t secret_n, const uint8_t *salt, size_t salt_n,
                         const char *info, struct message_seal_keys *out);
void message_seal_wipe(void *keys, size_t bytes); /* overwrites keys or a secret */

struct message_seal {
    void *cipher; /* OpenSSL's; NULL: none */
};

/* message_seal_open — false: out of memory. message_seal_close — accepts a zeroed one. */
bool message_seal_open(struct message_seal *seal, const struct message_seal_keys *keys,
                       bool writes);
void message_seal_close(struct message_seal *seal);
/* message_seal_write — false: OpenSSL failed.
 * message_seal_read — false: the header is not authentic, or has another number. */
bool message_seal_write(struct message_seal *seal, uint64_t number,
                        const uint8_t plain[MESSAGE_SEAL_PLAIN_BYTES],
                        const uint8_t hidden[MESSAGE_SEAL_HIDDEN_BYTES],
                        uint8_t out[MESSAGE_SEAL_BYTES]);
bool message_seal_read(struct message_seal *seal, uint64_t number,
                       const uint8_t in[MESSAGE_SEAL_BYTES],
                       uint8_t hidden[MESSAGE_SEAL_HIDDEN_BYTES]);
/* message_seal_is_same — compares two checksums in constant time. */
bool message_seal_is_same(const uint8_t a[MESSAGE_SEAL_HIDDEN_BYTES],
                          const uint8_t b[MESSAGE_SEAL_HIDDEN_BYTES]);

#endif

/* message_seal — the keys of one direction of a connection, the checksum of content, and the sealed
 * header of each message.
 *
 * A sealed header has 64 bytes: 32 readable bytes, 16 encrypted bytes (the checksum of the content,
 * so that its key cannot be derived from the sent bytes), and the authentication tag of AES-128-GCM
 * over both. The nonce is the number of the header in its direction: no number may be used twice
 * with the same keys. The checksum is XXH3-128 with a key of 192 bytes. Must not interpret the
 * bytes or hold connections. */
#ifndef CONVOY_COMM_MESSAGE_SEAL_H
#define CONVOY_COMM_MESSAGE_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_SEAL_BYTES 64
#define MESSAGE_SEAL_PLAIN_BYTES 32
#define MESSAGE_SEAL_SUM_BYTES 16
#define MESSAGE_SEAL_KEY_BYTES 16
#define MESSAGE_SEAL_SUM_KEY_BYTES 192

/* The keys of one direction. */
struct message_seal_keys {
    uint8_t header[MESSAGE_SEAL_KEY_BYTES];       /* key of AES-128-GCM */
    uint8_t checksum[MESSAGE_SEAL_SUM_KEY_BYTES]; /* key of the content's checksum */
};

/* message_seal_derive — derives keys by HKDF-SHA256 from the secret, with a salt that is new for
 * each connection. info: a string that names the direction. false: OpenSSL failed. */
bool message_seal_derive(const uint8_t *secret, size_t secret_n, const uint8_t *salt, size_t salt_n,
                         const char *info, struct message_seal_keys *out);
void message_seal_wipe(void *keys, size_t bytes); /* overwrites keys or a secret */

/* One direction of a connection. Zeroed: none. */
struct message_seal {
    void *cipher; /* OpenSSL's; NULL: none */
    struct message_seal_keys keys;
    uint64_t next; /* the number of the next header */
};

/* message_seal_open — copies the keys. writes: encrypts, else decrypts. false: out of memory. */
bool message_seal_open(struct message_seal *seal, const struct message_seal_keys *keys,
                       bool writes);
/* message_seal_close — wipes the keys; accepts a zeroed struct. */
void message_seal_close(struct message_seal *seal);
/* message_seal_write — writes the next header, with the checksum of the content (bytes 0: none).
 * false: OpenSSL failed. */
bool message_seal_write(struct message_seal *seal, const void *plain, const void *content,
                        size_t bytes, uint8_t out[MESSAGE_SEAL_BYTES]);
/* message_seal_read — returns the checksum in a header. false: the header is not authentic, or has
 * another number. */
bool message_seal_read(struct message_seal *seal, uint64_t number,
                       const uint8_t in[MESSAGE_SEAL_BYTES], uint8_t sum[MESSAGE_SEAL_SUM_BYTES]);
/* message_seal_check — returns true if the content has that checksum. Compares in constant time. */
bool message_seal_check(const struct message_seal *seal, const void *content, size_t bytes,
                        const uint8_t sum[MESSAGE_SEAL_SUM_BYTES]);
/* message_seal_avx2 — computes the checksum, compiled for AVX2: 48 GB/s instead of the 29 of the
 * library's own build. Only for seal.c. */
void message_seal_avx2(const uint8_t key[MESSAGE_SEAL_SUM_KEY_BYTES], const void *data,
                       size_t bytes, uint8_t out[MESSAGE_SEAL_SUM_BYTES]);

#endif

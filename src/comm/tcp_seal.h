/* tcp_seal — what stands before each part of a message on a proved connection, so that no part can
 * be forged, changed, left out, repeated or moved unnoticed.
 *
 * A part has a head of 64 bytes: tag, bytes of the whole message, place and bytes of the part, the
 * keyed sum of its content, and the tag of AES-128-GCM over all that. The number of the part on its
 * connection is the nonce, which both sides count, so it need not travel. The sum itself is
 * encrypted: its key cannot be learnt from what travels. Content is not encrypted. A head is proved
 * before anything of it is used. Must not know sockets. */
#ifndef CONVOY_COMM_TCP_SEAL_H
#define CONVOY_COMM_TCP_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/tcp_auth.h"
#include "comm/tcp_sum.h"

#define TCP_SEAL_BYTES 64
#define TCP_SEAL_MESSAGE_MAX ((int64_t)1 << 42)
/* the content stays in a second-level cache between its sum and its copy */
#define TCP_SEAL_PART_MAX (128 << 10)

/* One direction of a connection. */
struct tcp_seal {
    void *cipher; /* OpenSSL's */
    struct tcp_auth_keys keys;
    uint64_t parts; /* so far */
};

struct tcp_seal_head {
    uint64_t tag;
    int64_t total, at; /* bytes of the message, of which this part begins at `at` */
    int64_t bytes;     /* of this part */
    uint8_t sum[TCP_SUM_BYTES];
};

/* tcp_seal_open — keys: copied. false: out of memory. */
bool tcp_seal_open(struct tcp_seal *seal, const struct tcp_auth_keys *keys, bool sends);
void tcp_seal_close(struct tcp_seal *seal); /* accepts a zeroed one */
/* tcp_seal_write — the head of a part; content: its bytes. */
bool tcp_seal_write(struct tcp_seal *seal, const struct tcp_seal_head *head, const void *content,
                    uint8_t out[TCP_SEAL_BYTES]);
/* tcp_seal_read — false: forged, or out of its place, or its sizes contradict each other.
 * tcp_seal_check — is this the content of that head? */
bool tcp_seal_read(struct tcp_seal *seal, const uint8_t in[TCP_SEAL_BYTES],
                   struct tcp_seal_head *out);
bool tcp_seal_check(const struct tcp_seal *seal, const struct tcp_seal_head *head,
                    const void *content);

#endif

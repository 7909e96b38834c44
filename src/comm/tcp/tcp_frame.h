/* tcp_frame — what stands before each part of a message on a proved connection, so that no part can
 * be forged, changed, left out, repeated or moved unnoticed.
 *
 * A part has a head of 64 bytes: tag, bytes of the whole message, place and bytes of the part, the
 * keyed sum of its content, and the tag of AES-128-GCM over all that. The number of the part on its
 * connection is the nonce, which both sides count, so it need not travel. The sum itself is
 * encrypted: its key cannot be learnt from what travels. Content is not encrypted. A head is proved
 * before anything of it is used. Must not know sockets. */
#ifndef CONVOY_COMM_TCP_FRAME_H
#define CONVOY_COMM_TCP_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/tcp/tcp_auth.h"
#include "comm/tcp/tcp_checksum.h"

#define TCP_FRAME_HEADER_BYTES 64
#define TCP_FRAME_MESSAGE_MAX ((int64_t)1 << 42)
/* the content stays in a second-level cache between its sum and its copy */
#define TCP_FRAME_CONTENT_MAX (128 << 10)

/* One direction of a connection. */
struct tcp_frame_state {
    void *cipher; /* OpenSSL's */
    struct tcp_auth_keys keys;
    uint64_t frames_n; /* so far */
};

struct tcp_frame_header {
    uint64_t tag;
    int64_t total, at; /* bytes of the message, of which this part begins at `at` */
    int64_t bytes;     /* of this part */
    uint8_t checksum[TCP_CHECKSUM_BYTES];
};

/* tcp_frame_open — keys: copied. false: out of memory. */
bool tcp_frame_open(struct tcp_frame_state *state, const struct tcp_auth_keys *keys, bool sends);
void tcp_frame_close(struct tcp_frame_state *state); /* accepts a zeroed one */
/* tcp_frame_write — the head of a part; content: its bytes. */
bool tcp_frame_write(struct tcp_frame_state *state, const struct tcp_frame_header *head,
                     const void *content, uint8_t out[TCP_FRAME_HEADER_BYTES]);
/* tcp_frame_read — false: forged, or out of its place, or its sizes contradict each other.
 * tcp_frame_check — is this the content of that head? */
bool tcp_frame_read(struct tcp_frame_state *state, const uint8_t in[TCP_FRAME_HEADER_BYTES],
                    struct tcp_frame_header *out);
bool tcp_frame_check(const struct tcp_frame_state *state, const struct tcp_frame_header *head,
                     const void *content);

#endif

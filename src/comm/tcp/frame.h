/* tcp_frame — the header of each frame of a message on an authenticated connection. No frame can be
 * forged, changed, left out, repeated or moved unnoticed.
 *
 * The header is sealed (message/seal.h). Its readable part has the tag and length of the message,
 * the frame's offset in it and the frame's length; its encrypted part has the keyed checksum of the
 * frame's content. Its number is the frame's on its connection; both sides count, so it is not
 * sent. Content is not encrypted. A header is authenticated before any of it is used. Must not know
 * sockets. */
#ifndef CONVOY_COMM_TCP_FRAME_H
#define CONVOY_COMM_TCP_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/message/seal.h"

#define TCP_FRAME_HEADER_BYTES MESSAGE_SEAL_BYTES
#define TCP_FRAME_MESSAGE_MAX ((int64_t)1 << 42)
/* Bytes of content: few enough that the content stays in a second-level cache between its checksum
 * and its copy; together with its header two segments of the loopback device's 64 KiB, and not a
 * third one of a few bytes. */
#define TCP_FRAME_CONTENT_MAX (126 << 10)

struct tcp_frame_header {
    uint64_t tag;      /* tag of the message (message/messenger.h) */
    int64_t total, at; /* bytes of the message; offset of this frame in it */
    int64_t bytes;     /* bytes of this frame's content */
    uint8_t checksum[MESSAGE_SEAL_SUM_BYTES];
};

/* tcp_frame_write — makes the header of the next frame. content: its header.bytes bytes. false:
 * OpenSSL failed. */
bool tcp_frame_write(struct message_seal *out, const struct tcp_frame_header *head,
                     const void *content, uint8_t to[TCP_FRAME_HEADER_BYTES]);
/* tcp_frame_read — authenticates the next header. false: it is forged or out of order, or its sizes
 * contradict each other. */
bool tcp_frame_read(struct message_seal *in, const uint8_t from[TCP_FRAME_HEADER_BYTES],
                    struct tcp_frame_header *out);

#endif

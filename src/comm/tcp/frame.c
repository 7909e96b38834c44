/* tcp_frame — the layout of a header. */
#include "comm/tcp/frame.h"

#include <string.h>

/* The layout on the wire and in memory: little-endian. */
struct plain {
    uint64_t tag; /* tag of the message */
    int64_t total, at;
    uint32_t bytes, unused;
};
_Static_assert(sizeof(struct plain) == MESSAGE_SEAL_PLAIN_BYTES,
               "the header has the size on the wire");

bool tcp_frame_write(struct message_seal *out, const struct tcp_frame_header *head,
                     const void *content, uint8_t to[TCP_FRAME_HEADER_BYTES])
{
    const struct plain plain = {
        .tag = head->tag, .total = head->total, .at = head->at, .bytes = (uint32_t)head->bytes};
    return message_seal_write(out, &plain, content, (size_t)head->bytes, to);
}

bool tcp_frame_read(struct message_seal *in, const uint8_t from[TCP_FRAME_HEADER_BYTES],
                    struct tcp_frame_header *out)
{
    struct plain plain;
    if (!message_seal_read(in, in->next++, from, out->checksum))
        return false;
    memcpy(&plain, from, sizeof(plain));
    out->tag = plain.tag;
    out->total = plain.total;
    out->at = plain.at;
    out->bytes = plain.bytes;
    return plain.unused == 0 && plain.total >= 0 && plain.total <= TCP_FRAME_MESSAGE_MAX &&
           plain.at >= 0 && plain.at <= plain.total && plain.bytes <= TCP_FRAME_CONTENT_MAX &&
           (int64_t)plain.bytes <= plain.total - plain.at && (plain.bytes > 0 || plain.total == 0);
}

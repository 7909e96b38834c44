/* tcp_frame — the layout of a header, and the checksum of its content. */
#include "comm/tcp/frame.h"

#include <string.h>

/* Sent as it lies in memory: little-endian. */
struct plain {
    uint64_t tag; /* of the message */
    int64_t total, at;
    uint32_t bytes, unused;
};
_Static_assert(sizeof(struct plain) == MESSAGE_SEAL_PLAIN_BYTES,
               "the header has the size on the wire");

bool tcp_frame_open(struct tcp_frame_state *state, const struct message_seal_keys *keys, bool sends)
{
    *state = (struct tcp_frame_state){.keys = *keys};
    return message_seal_open(&state->seal, keys, sends);
}

void tcp_frame_close(struct tcp_frame_state *state)
{
    message_seal_close(&state->seal);
    message_seal_wipe(state, sizeof(*state));
}

bool tcp_frame_write(struct tcp_frame_state *state, const struct tcp_frame_header *head,
                     const void *content, uint8_t out[TCP_FRAME_HEADER_BYTES])
{
    struct plain plain = {
        .tag = head->tag, .total = head->total, .at = head->at, .bytes = (uint32_t)head->bytes};
    uint8_t sum[COMM_CHECKSUM_BYTES] = {0}, bytes[sizeof(plain)];
    if (head->bytes > 0)
        comm_checksum(state->keys.checksum, content, (size_t)head->bytes, sum);
    memcpy(bytes, &plain, sizeof(plain));
    return message_seal_write(&state->seal, state->frames_n++, bytes, sum, out);
}

bool tcp_frame_read(struct tcp_frame_state *state, const uint8_t in[TCP_FRAME_HEADER_BYTES],
                    struct tcp_frame_header *out)
{
    struct plain plain;
    if (!message_seal_read(&state->seal, state->frames_n++, in, out->checksum))
        return false;
    memcpy(&plain, in, sizeof(plain));
    out->tag = plain.tag;
    out->total = plain.total;
    out->at = plain.at;
    out->bytes = plain.bytes;
    return plain.unused == 0 && plain.total >= 0 && plain.total <= TCP_FRAME_MESSAGE_MAX &&
           plain.at >= 0 && plain.at <= plain.total && plain.bytes <= TCP_FRAME_CONTENT_MAX &&
           (int64_t)plain.bytes <= plain.total - plain.at && (plain.bytes > 0 || plain.total == 0);
}

bool tcp_frame_check(const struct tcp_frame_state *state, const struct tcp_frame_header *head,
                     const void *content)
{
    uint8_t sum[COMM_CHECKSUM_BYTES] = {0};
    if (head->bytes > 0)
        comm_checksum(state->keys.checksum, content, (size_t)head->bytes, sum);
    return message_seal_is_same(sum, head->checksum);
}

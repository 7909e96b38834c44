/* ucx_header — the header of each message over UCX. It is sealed (message/seal.h): a process
 * without the generation's secret cannot make a header, nor change, repeat or move one unnoticed.
 *
 * Its readable part has the sender, the number of the message in its direction, its tag and its
 * length; its encrypted part has the keyed checksum of the content. UCX does not promise an order
 * of active messages, so the number is sent. Content is not encrypted. Must not call UCX. */
#ifndef CONVOY_COMM_UCX_HEADER_H
#define CONVOY_COMM_UCX_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/message/seal.h"

#define UCX_HEADER_BYTES MESSAGE_SEAL_BYTES
#define UCX_HEADER_NONCE_BYTES 16
#define UCX_HEADER_MESSAGE_MAX ((int64_t)1 << 42)

/* The content lies in a GPU's memory: it has no checksum. */
#define UCX_HEADER_IS_GPU 1u

struct ucx_header {
    int32_t from; /* rank of the sender */
    uint32_t flags;
    uint64_t number; /* number of the message, from 0 on */
    uint64_t tag;    /* tag of the message (message/messenger.h) */
    int64_t bytes;   /* bytes of the content */
    uint8_t checksum[MESSAGE_SEAL_SUM_BYTES];
};

/* The inputs of a direction's keys, besides the generation's secret. The nonces of both ends are
 * new in each process and travel with its address. */
struct ucx_direction_ids {
    int64_t generation;
    int32_t from, to, ranks;
    const uint8_t *nonce_from, *nonce_to; /* UCX_HEADER_NONCE_BYTES */
};

/* ucx_header_open — derives the keys of a direction. secret: COMM_SECRET_BYTES. false: OpenSSL
 * failed. */
bool ucx_header_open(struct message_seal *direction, const uint8_t *secret,
                     const struct ucx_direction_ids *ids, bool sends);

/* ucx_header_write — makes the header of the next message. content: its bytes; NULL with
 * UCX_HEADER_IS_GPU. false: OpenSSL failed. */
bool ucx_header_write(struct message_seal *direction, const struct ucx_header *header,
                      const void *content, uint8_t out[UCX_HEADER_BYTES]);
/* ucx_header_sender — returns the rank that a header claims, before it is authenticated. */
int32_t ucx_header_sender(const uint8_t in[UCX_HEADER_BYTES]);
/* ucx_header_read — authenticates a header of any number. false: it is not of this direction, is
 * forged or damaged, or its length is impossible. */
bool ucx_header_read(struct message_seal *direction, const uint8_t in[UCX_HEADER_BYTES],
                     struct ucx_header *out);
/* ucx_header_check — returns true if the content has the header's checksum. */
bool ucx_header_check(const struct message_seal *direction, const struct ucx_header *header,
                      const void *content);

#endif

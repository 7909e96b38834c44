/* ucx_header — layout and keys. */
#include "comm/ucx/header.h"

#include <string.h>

#include "base/text.h"
#include "comm/core/comm.h"

/* The layout on the wire and in memory: little-endian. */
struct plain {
    int32_t from;
    uint32_t flags;
    uint64_t number, tag;
    int64_t bytes;
};
_Static_assert(sizeof(struct plain) == MESSAGE_SEAL_PLAIN_BYTES,
               "the header has the size on the wire");

bool ucx_header_open(struct message_seal *direction, const uint8_t *secret,
                     const struct ucx_direction_ids *ids, bool sends)
{
    uint8_t salt[2 * UCX_HEADER_NONCE_BYTES];
    char info[96];
    memcpy(salt, ids->nonce_from, UCX_HEADER_NONCE_BYTES);
    memcpy(salt + UCX_HEADER_NONCE_BYTES, ids->nonce_to, UCX_HEADER_NONCE_BYTES);
    text_format(info, sizeof(info), "convoy UCX, generation %lld, %d to %d of %d",
                (long long)ids->generation, ids->from, ids->to, ids->ranks);
    struct message_seal_keys keys;
    bool is_done =
        message_seal_derive(secret, COMM_SECRET_BYTES, salt, sizeof(salt), info, &keys) &&
        message_seal_open(direction, &keys, sends);
    message_seal_wipe(&keys, sizeof(keys));
    return is_done;
}

/* Returns the number of bytes that the checksum covers. */
static size_t summed_bytes(const struct ucx_header *header)
{
    return (header->flags & UCX_HEADER_IS_GPU) == 0 ? (size_t)header->bytes : 0;
}

bool ucx_header_write(struct message_seal *direction, const struct ucx_header *header,
                      const void *content, uint8_t out[UCX_HEADER_BYTES])
{
    const struct plain plain = {.from = header->from,
                                .flags = header->flags,
                                .number = direction->next,
                                .tag = header->tag,
                                .bytes = header->bytes};
    return message_seal_write(direction, &plain, content, summed_bytes(header), out);
}

int32_t ucx_header_sender(const uint8_t in[UCX_HEADER_BYTES])
{
    int32_t from;
    memcpy(&from, in, sizeof(from));
    return from;
}

bool ucx_header_read(struct message_seal *direction, const uint8_t in[UCX_HEADER_BYTES],
                     struct ucx_header *out)
{
    struct plain plain;
    memcpy(&plain, in, sizeof(plain));
    *out = (struct ucx_header){.from = plain.from,
                               .flags = plain.flags,
                               .number = plain.number,
                               .tag = plain.tag,
                               .bytes = plain.bytes};
    return message_seal_read(direction, plain.number, in, out->checksum) &&
           (plain.flags & ~UCX_HEADER_IS_GPU) == 0 && plain.bytes >= 0 &&
           plain.bytes <= UCX_HEADER_MESSAGE_MAX;
}

bool ucx_header_check(const struct message_seal *direction, const struct ucx_header *header,
                      const void *content)
{
    return message_seal_check(direction, content, summed_bytes(header), header->checksum);
}

/* ucx_header — layout, keys and checksum. */
#include "comm/ucx/header.h"

#include <string.h>

#include "base/text.h"
#include "comm/core/comm.h"

/* Sent as it lies in memory: little-endian. */
struct plain {
    int32_t from;
    uint32_t flags;
    uint64_t number, tag;
    int64_t bytes;
};
_Static_assert(sizeof(struct plain) == MESSAGE_SEAL_PLAIN_BYTES,
               "the header has the size on the wire");

bool ucx_header_open(struct ucx_direction *direction, const uint8_t *secret,
                     const struct ucx_direction_ids *ids, bool sends)
{
    uint8_t salt[2 * UCX_HEADER_NONCE_BYTES];
    char info[96];
    memcpy(salt, ids->nonce_from, UCX_HEADER_NONCE_BYTES);
    memcpy(salt + UCX_HEADER_NONCE_BYTES, ids->nonce_to, UCX_HEADER_NONCE_BYTES);
    text_format(info, sizeof(info), "convoy UCX, generation %lld, %d to %d of %d",
                (long long)ids->generation, ids->from, ids->to, ids->ranks);
    direction->next = 0;
    return message_seal_derive(secret, COMM_SECRET_BYTES, salt, sizeof(salt), info,
                               &direction->keys) &&
           message_seal_open(&direction->seal, &direction->keys, sends);
}

void ucx_header_close(struct ucx_direction *direction)
{
    message_seal_close(&direction->seal);
    message_seal_wipe(direction, sizeof(*direction));
}

static void checksum(const struct ucx_direction *direction, const struct ucx_header *header,
                     const void *content, uint8_t out[COMM_CHECKSUM_BYTES])
{
    memset(out, 0, COMM_CHECKSUM_BYTES);
    if (header->bytes > 0 && (header->flags & UCX_HEADER_IS_GPU) == 0)
        comm_checksum(direction->keys.checksum, content, (size_t)header->bytes, out);
}

bool ucx_header_write(struct ucx_direction *direction, const struct ucx_header *header,
                      const void *content, uint8_t out[UCX_HEADER_BYTES])
{
    const struct plain plain = {.from = header->from,
                                .flags = header->flags,
                                .number = direction->next,
                                .tag = header->tag,
                                .bytes = header->bytes};
    uint8_t sum[COMM_CHECKSUM_BYTES], bytes[sizeof(plain)];
    checksum(direction, header, content, sum);
    memcpy(bytes, &plain, sizeof(plain));
    return message_seal_write(&direction->seal, direction->next++, bytes, sum, out);
}

int32_t ucx_header_sender(const uint8_t in[UCX_HEADER_BYTES])
{
    int32_t from;
    memcpy(&from, in, sizeof(from));
    return from;
}

bool ucx_header_read(struct ucx_direction *direction, const uint8_t in[UCX_HEADER_BYTES],
                     struct ucx_header *out)
{
    struct plain plain;
    memcpy(&plain, in, sizeof(plain));
    *out = (struct ucx_header){.from = plain.from,
                               .flags = plain.flags,
                               .number = plain.number,
                               .tag = plain.tag,
                               .bytes = plain.bytes};
    return message_seal_read(&direction->seal, plain.number, in, out->checksum) &&
           (plain.flags & ~UCX_HEADER_IS_GPU) == 0 && plain.bytes >= 0 &&
           plain.bytes <= UCX_HEADER_MESSAGE_MAX;
}

bool ucx_header_check(const struct ucx_direction *direction, const struct ucx_header *header,
                      const void *content)
{
    uint8_t sum[COMM_CHECKSUM_BYTES];
    checksum(direction, header, content, sum);
    return message_seal_is_same(sum, header->checksum);
}

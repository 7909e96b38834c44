/* comm_checksum — checksums of content. Keyed: XXH3-128 with a key of 192 bytes, for messages that
 * cross a network. Chained: XXH3-64 without a key, for memory that processes of one node share; it
 * finds damage, not forgery. Must not know messages. */
#ifndef CONVOY_COMM_COMM_CHECKSUM_H
#define CONVOY_COMM_COMM_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define COMM_CHECKSUM_BYTES 16
#define COMM_CHECKSUM_KEY_BYTES 192

void comm_checksum(const uint8_t key[COMM_CHECKSUM_KEY_BYTES], const void *data, size_t bytes,
                   uint8_t out[COMM_CHECKSUM_BYTES]);
/* comm_checksum_add — the checksum of what `so_far` is of, and of these bytes behind it; so_far 0:
 * of these alone. Both sides must cut what they add at the same places. */
uint64_t comm_checksum_add(uint64_t so_far, const void *data, size_t bytes);
/* comm_checksum_chain — one to one in each of its arguments, so a difference in any part stays
 * one. */
static inline uint64_t comm_checksum_chain(uint64_t so_far, uint64_t next)
{
    return ((so_far << 27 | so_far >> 37) ^ next) * 0x9e3779b97f4a7c15u;
}
/* comm_checksum_avx2, comm_checksum_avx2_add — the same checksums, compiled for AVX2: 48 GB/s
 * instead of 29 by the library's own build. Only for comm_checksum.c. */
void comm_checksum_avx2(const uint8_t key[COMM_CHECKSUM_KEY_BYTES], const void *data, size_t bytes,
                        uint8_t out[COMM_CHECKSUM_BYTES]);
uint64_t comm_checksum_avx2_add(uint64_t so_far, const void *data, size_t bytes);

#endif

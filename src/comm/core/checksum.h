/* comm_checksum — keyed checksums of content that crosses a network: XXH3-128 with a key of 192
 * bytes. Must not know messages. */
#ifndef CONVOY_COMM_COMM_CHECKSUM_H
#define CONVOY_COMM_COMM_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define COMM_CHECKSUM_BYTES 16
#define COMM_CHECKSUM_KEY_BYTES 192

void comm_checksum(const uint8_t key[COMM_CHECKSUM_KEY_BYTES], const void *data, size_t bytes,
                   uint8_t out[COMM_CHECKSUM_BYTES]);
/* comm_checksum_avx2 — the same checksum, compiled for AVX2: 48 GB/s instead of 29 by the library's
 * own build. Only for checksum.c. */
void comm_checksum_avx2(const uint8_t key[COMM_CHECKSUM_KEY_BYTES], const void *data, size_t bytes,
                        uint8_t out[COMM_CHECKSUM_BYTES]);

#endif

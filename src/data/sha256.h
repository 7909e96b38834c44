/* sha256 — SHA-256 of bytes as they come. Source: FIPS 180-4. Must not know what they are. */
#ifndef CONVOY_DATA_SHA256_H
#define CONVOY_DATA_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64]; /* bytes % 64 of them wait */
};

void sha256_begin(struct sha256 *sum);
void sha256_add(struct sha256 *sum, const void *bytes, size_t n);
void sha256_end(struct sha256 *sum, uint8_t out[SHA256_BYTES]);

#endif

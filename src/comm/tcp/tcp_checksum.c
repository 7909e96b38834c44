/* tcp_checksum — picks the AVX2 version where the processor has it. Must not know messages. */
#include "comm/tcp/tcp_checksum.h"

#include <string.h>
#include <xxhash.h>

void tcp_checksum(const uint8_t key[192], const void *data, size_t bytes,
                  uint8_t out[TCP_CHECKSUM_BYTES])
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        tcp_checksum_avx2(key, data, bytes, out);
        return;
    }
#endif
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits_withSecret(data, bytes, key, 192));
    memcpy(out, sum.digest, TCP_CHECKSUM_BYTES);
}

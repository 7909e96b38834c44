/* comm_checksum — picks the AVX2 version where the processor has it. Must not know messages. */
#include "comm/core/checksum.h"

#include <string.h>
#include <xxhash.h>

void comm_checksum(const uint8_t key[COMM_CHECKSUM_KEY_BYTES], const void *data, size_t bytes,
                   uint8_t out[COMM_CHECKSUM_BYTES])
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        comm_checksum_avx2(key, data, bytes, out);
        return;
    }
#endif
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum,
                             XXH3_128bits_withSecret(data, bytes, key, COMM_CHECKSUM_KEY_BYTES));
    memcpy(out, sum.digest, COMM_CHECKSUM_BYTES);
}

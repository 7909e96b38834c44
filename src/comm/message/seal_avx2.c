/* message_seal_avx2 — xxHash compiled with AVX2, unlike the library's archive (under clang: with
 * the compiler's own flags). Must not know messages. */
#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC optimize("O3")
#pragma GCC target("avx2")
#endif
#define XXH_INLINE_ALL
#include <string.h>
#include <xxhash.h>

#include "comm/message/seal.h"

void message_seal_avx2(const uint8_t key[MESSAGE_SEAL_SUM_KEY_BYTES], const void *data,
                       size_t bytes, uint8_t out[MESSAGE_SEAL_SUM_BYTES])
{
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum,
                             XXH3_128bits_withSecret(data, bytes, key, MESSAGE_SEAL_SUM_KEY_BYTES));
    memcpy(out, sum.digest, MESSAGE_SEAL_SUM_BYTES);
}

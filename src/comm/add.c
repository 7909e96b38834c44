/* add — picks the level; the sums themselves are in add_level_cpu.h. Must not know ranks or transports. */
#include "comm/add.h"

#include <immintrin.h>
#include <string.h>

#include "base/must.h"
#include "comm/order.h"

#define ADD_BLOCK 512 /* elements summed at a time in the first-level cache */
#define ADD_LEVELS 16  /* depth of two trees, 4096 sources together, and one */

typedef float add_vec __attribute__((vector_size(64), aligned(4), may_alias));

union add_bits {
    uint32_t u;
    float f;
};

struct add_work {
    const struct add *a;
    int64_t i, block_n;
    double sums[ADD_LEVELS][ADD_BLOCK] __attribute__((aligned(64)));
};

void add_copy(void *out, const void *in, int64_t bytes, bool stream)
{
    if (!stream || (uintptr_t)out % 16 != 0) {
        memcpy(out, in, (size_t)bytes);
        return;
    }
    int64_t i = 0;
    for (; i + 64 <= bytes; i += 64) {
        __m128i x[4];
        memcpy(x, (const char *)in + i, sizeof(x));
        for (int k = 0; k < 4; k++)
            _mm_stream_si128((__m128i *)(void *)((char *)out + i) + k, x[k]);
    }
    memcpy((char *)out + i, (const char *)in + i, (size_t)(bytes - i));
}

#define ADD_FN(name) name##_v2
#define ADD_STREAM(p, x)                                                                                     \
    do {                                                                                                     \
        const add_vec v_ = (x);                                                                              \
        for (int k_ = 0; k_ < 4; k_++)                                                                       \
            _mm_stream_ps((p) + 4 * k_, _mm_loadu_ps((const float *)&v_ + 4 * k_));                          \
    } while (0)
#pragma GCC push_options
#pragma GCC optimize("O3")
#include "comm/add_level_cpu.h"
#pragma GCC pop_options
#undef ADD_FN
#undef ADD_STREAM

#define ADD_FN(name) name##_v3
#define ADD_STREAM(p, x)                                                                                     \
    do {                                                                                                     \
        const add_vec v_ = (x);                                                                              \
        _mm256_stream_ps((p), _mm256_loadu_ps((const float *)&v_));                                          \
        _mm256_stream_ps((p) + 8, _mm256_loadu_ps((const float *)&v_ + 8));                                  \
    } while (0)
#pragma GCC push_options
#pragma GCC optimize("O3")
#pragma GCC target("arch=x86-64-v3")
#include "comm/add_level_cpu.h"
#pragma GCC pop_options
#undef ADD_FN
#undef ADD_STREAM

#define ADD_FN(name) name##_v4
#define ADD_STREAM(p, x) _mm512_stream_ps((p), (__m512)(x))
#pragma GCC push_options
#pragma GCC optimize("O3")
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#include "comm/add_level_cpu.h"
#pragma GCC pop_options
#undef ADD_FN
#undef ADD_STREAM

static int level(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512cd"))
        return 4;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") ? 3 : 2;
}

static bool is_known(const struct add *a)
{
    enum dtype in = a->dtype_in, out = a->dtype_out;
    return (in == out && (in == DTYPE_F32 || in == DTYPE_F64 || in == DTYPE_BF16)) ||
           (in == DTYPE_BF16 && out == DTYPE_F32) || (in == DTYPE_F32 && out == DTYPE_BF16);
}

void add_run(const struct add *a)
{
    ASSERTF(is_known(a) && a->nodes >= 1 && a->locals >= 1, "dtypes %d to %d, %d × %d sources", a->dtype_in,
            a->dtype_out, a->nodes, a->locals);
    const int best = level();
    struct add now = *a;
    for (int o = 0; o < a->outs_n; o++)
        now.stream = now.stream && (uintptr_t)a->out[o] % 64 == 0;
    bool is_float = a->dtype_in == DTYPE_F32 && a->dtype_out == DTYPE_F32;
    if (best == 4)
        blocks_v4(&now, is_float ? few_v4(&now) : 0);
    else if (best == 3)
        blocks_v3(&now, is_float ? few_v3(&now) : 0);
    else
        blocks_v2(&now, is_float ? few_v2(&now) : 0);
    if (now.stream)
        _mm_sfence();
}

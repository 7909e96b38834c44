/* sum — chooses the version for this processor, and the order of additions; sum_cpu.c holds the
 * sums. */
#include "comm/core/sum.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif
#include <string.h>

#include "base/assert.h"
#include "base/isa.h"
#include "comm/core/sum_isa.h"

#ifdef __SSE2__
static int64_t copy_past(char *out, const char *in, int64_t bytes)
{
    int64_t i = 0;
    for (; i + 64 <= bytes; i += 64) {
        __m128i x[4];
        memcpy(x, in + i, sizeof(x));
        for (int k = 0; k < 4; k++)
            _mm_stream_si128((__m128i *)(void *)(out + i) + k, x[k]);
    }
    return i;
}
static void fence(void) { _mm_sfence(); }
#else
static int64_t copy_past(char *out, const char *in, int64_t bytes)
{
    (void)out, (void)in, (void)bytes;
    return 0;
}
static void fence(void) {}
#endif

void sum_copy(void *out, const void *in, int64_t bytes, bool is_nt)
{
    const int64_t done = is_nt && (uintptr_t)out % 16 == 0 ? copy_past(out, in, bytes) : 0;
    memcpy((char *)out + done, (const char *)in + done, (size_t)(bytes - done));
}

typedef void isa_fn(const struct sum_args *a);

static isa_fn *isa_sum(int level)
{
#if defined(__x86_64__)
    return level >= 4   ? sum_isa_v4
           : level == 3 ? sum_isa_v3
           : level == 2 ? sum_isa_v2
                        : sum_isa_plain;
#elif defined(__aarch64__)
    (void)level;
    return isa_has_neon() ? sum_isa_neon : sum_isa_plain;
#else
    (void)level;
    return sum_isa_plain;
#endif
}

static bool is_known(const struct sum_args *a)
{
    enum dtype in = a->dtype_in, out = a->dtype_out;
    bool is_half_in = in == DTYPE_BF16 || in == DTYPE_F16,
         is_half_out = out == DTYPE_BF16 || out == DTYPE_F16;
    return (in == out && (in == DTYPE_F32 || in == DTYPE_F64 || is_half_in)) ||
           (is_half_in && out == DTYPE_F32) || (in == DTYPE_F32 && is_half_out);
}

void sum_run(const struct sum_args *a)
{
    ASSERTF(is_known(a) && a->nodes >= 1 && a->locals >= 1, "dtypes %d to %d, %d × %d sources",
            a->dtype_in, a->dtype_out, a->nodes, a->locals);
    struct sum_args now = *a;
    for (int o = 0; o < a->outs_n; o++)
        now.is_nt = now.is_nt && (uintptr_t)a->out[o] % 64 == 0;
    isa_sum(isa_level())(&now);
    if (now.is_nt)
        fence();
}

/* ---- the order of additions ---- */

void sum_tree_shape(const int *ranks, int n, int locals, int *nodes_out, int *locals_out)
{
    ASSERTF(n >= 1 && locals >= 1, "%d ranks, %d on a node", n, locals);
    int each = 1;
    while (each < n && ranks[each] / locals == ranks[0] / locals)
        each++;
    bool is_even = n % each == 0;
    for (int i = 0; i < n && is_even; i++)
        is_even = (i % each == 0) == (i == 0 || ranks[i] / locals != ranks[i - 1] / locals);
    *locals_out = is_even ? each : 1;
    *nodes_out = n / *locals_out;
}

int sum_tree_left(int n)
{
    ASSERTF(n >= 2, "%d neighbours", n);
    int left = 1;
    while (left < n - left)
        left *= 2;
    return left;
}

/* Writes the steps for n slots: slot `first`, and the others `stride` apart. Returns the end of the
 * steps. */
static struct sum_tree_step *write_steps(int first, int n, int stride, struct sum_tree_step *out)
{
    if (n < 2)
        return out;
    int left = sum_tree_left(n);
    out = write_steps(first, left, stride, out);
    out = write_steps(first + left * stride, n - left, stride, out);
    *out = (struct sum_tree_step){.to = first, .from = first + left * stride};
    return out + 1;
}

void sum_tree_plan(int n, struct sum_tree_step *out) { write_steps(0, n, 1, out); }

void sum_tree_plan_nodes(int nodes, int locals, struct sum_tree_step *out)
{
    for (int node = 0; node < nodes; node++)
        out = write_steps(node * locals, locals, 1, out);
    write_steps(0, nodes, locals, out);
}

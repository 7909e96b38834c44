/* cuda_test — compares a CUDA kernel on the emulation with its CPU truth: tensors of each dtype
 * between guards; the same launch under several orders of threads, which must give the same bits.
 *
 * Inputs are rounded to the dtype first, and the truth gets the rounded values, so only the
 * kernel's own errors count. */
#ifndef CONVOY_TESTS_CUDA_TEST_H
#define CONVOY_TESTS_CUDA_TEST_H

#include "kernel_test.h"

#include "kernels/cuda.h"
#include "tests/emu/emu_control.h"

#define CT_GUARD 64 /* elements */
#define CT_GUARD_BYTE 0x5A

static inline float ct_from_bits(uint16_t bits, enum dtype dtype)
{
    if (dtype == DTYPE_BF16) {
        uint32_t u = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &u, sizeof x);
        return x;
    }
    int exponent = bits >> 10 & 31, fraction = bits & 0x3FF;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
                             : ldexpf((float)(exponent ? fraction + 1024 : fraction),
                                      (exponent ? exponent : 1) - 25);
    return bits & 0x8000 ? -x : x;
}

static inline uint16_t ct_to_bits(float x, enum dtype dtype)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (dtype == DTYPE_BF16)
        return (uint16_t)(isnan(x) ? 0x7FFF : (u + 0x7FFF + (u >> 16 & 1)) >> 16);
    /* halves of one sign are in order: bisect */
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000), low = 0, high = 0x7C00;
    float size = fabsf(x);
    while (low + 1 < high) {
        uint16_t mid = (uint16_t)((low + high) / 2);
        *(ct_from_bits(mid, dtype) <= size ? &low : &high) = mid;
    }
    float below = ct_from_bits(low, dtype),
          above = low == 0x7BFF ? 65536 : ct_from_bits(high, dtype);
    bool is_up = size - below > above - size || (size - below == above - size && low % 2 == 1);
    return (uint16_t)(sign | (is_up ? high : low));
}

/* ct_tensor — n elements of dtype between guards, 256-byte aligned as device memory is; from
 * `values`, rounded, or, when NULL, filled with NaN. ct_free also checks the guards. */
static inline struct tensor ct_tensor(int64_t n, enum dtype dtype, const float *values)
{
    size_t guard = CT_GUARD * 8, bytes = (size_t)n * dtype_bytes(dtype);
    char *all = aligned_alloc(256, (bytes + 2 * guard + 255) / 256 * 256);
    assert_non_null(all);
    memset(all, CT_GUARD_BYTE, guard);
    memset(all + guard, 0xFF, bytes);
    memset(all + guard + bytes, CT_GUARD_BYTE, guard);
    struct tensor t = {all + guard, dtype};
    for (int64_t i = 0; values && i < n; i++) {
        if (dtype == DTYPE_F32)
            ((float *)t.data)[i] = values[i];
        else
            ((uint16_t *)t.data)[i] = ct_to_bits(values[i], dtype);
    }
    return t;
}

static inline void ct_guards(struct tensor t, int64_t n)
{
    const unsigned char *p = t.data;
    for (int64_t i = 1; i <= CT_GUARD * 8; i++)
        if (p[-i] != CT_GUARD_BYTE || p[n * (int64_t)dtype_bytes(t.dtype) + i - 1] != CT_GUARD_BYTE)
            fail_msg("wrote beside a tensor of %lld elements", (long long)n);
}

static inline void ct_free(struct tensor t, int64_t n)
{
    if (!t.data)
        return;
    ct_guards(t, n);
    free((char *)t.data - CT_GUARD * 8);
}

/* ct_floats — the elements as floats; the caller frees. */
static inline float *ct_floats(struct tensor t, int64_t n)
{
    float *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = t.dtype == DTYPE_F32 ? ((const float *)t.data)[i]
                                    : ct_from_bits(((const uint16_t *)t.data)[i], t.dtype);
    return x;
}

/* ct_random — n normal numbers times gain; the caller frees. `draw` names them. */
static inline float *ct_random(int64_t n, uint64_t draw, float gain)
{
    float *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = gain * kt_value(KT_RANDOM, draw, i);
    return x;
}

/* ct_cuda — what launchers are given: scratch of `bytes` filled with NaN. */
static inline struct cuda ct_cuda(size_t bytes)
{
    struct tensor t = ct_tensor((int64_t)bytes, DTYPE_U8, NULL);
    return (struct cuda){.scratch = t.data, .scratch_bytes = bytes, .sm_count = 4};
}
static inline void ct_cuda_free(struct cuda *cuda)
{
    ct_free((struct tensor){cuda->scratch, DTYPE_U8}, (int64_t)cuda->scratch_bytes);
    cuda->scratch = NULL;
}

/* ct_ok — a launch went well: says the emulation's error when not. */
static inline void ct_ok(int rc, const char *what)
{
    const char *error = emu_error();
    if (rc != 0 || error)
        fail_msg("%s returned %d: %s", what, rc, error ? error : "no word of the emulation");
}

static inline void ct_near(const char *what, struct tensor got, const float *want, int64_t n,
                           double nmse_max)
{
    float *x = ct_floats(got, n);
    double nmse = kt_nmse(x, want, n);
    free(x);
    KT_SEEN(what, nmse, nmse_max);
    if (!(nmse <= nmse_max))
        fail_msg("%s, dtype %d: nmse %g, allowed %g", what, (int)got.dtype, nmse, nmse_max);
}

/* ct_barriers_unneeded — the same bits under other orders of blocks and threads; with any one
 * barrier left out, some order gives others. Returns how many barriers can be left out unnoticed.
 * got: n elements that launch(arg) makes, with more than more_than barriers. */
static inline int ct_barriers_unneeded(int (*launch)(void *arg), void *arg, struct tensor got,
                                       int64_t n, int more_than)
{
    size_t bytes = (size_t)n * dtype_bytes(got.dtype);
    void *first = malloc(bytes);
    int unneeded = 0;
    assert_non_null(first);
    emu_seed(0);
    emu_skip_barrier(-1);
    emu_barriers();
    ct_ok(launch(arg), "in order");
    memcpy(first, got.data, bytes);
    int barriers = emu_barriers();
    assert_true(barriers > more_than);
    for (uint64_t i = 0; i < 3; i++) {
        emu_seed(100 + i);
        ct_ok(launch(arg), "in another order");
        assert_memory_equal(first, got.data, bytes);
    }
    for (int skip = 0; skip < barriers; skip++) {
        emu_skip_barrier(skip);
        bool is_found = false;
        for (uint64_t i = 0; i < 40 && !is_found; i++) {
            emu_seed(200 + i);
            is_found = launch(arg) != 0 || memcmp(first, got.data, bytes) != 0;
            emu_error();
        }
        unneeded += !is_found;
        if (!is_found)
            print_message("# barrier %d of %d can be left out unnoticed\n", skip, barriers);
    }
    emu_skip_barrier(-1);
    emu_seed(1);
    free(first);
    return unneeded;
}

#endif

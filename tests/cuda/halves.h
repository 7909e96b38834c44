/* halves — an operation's tensors twice: as floats for the plain truth, and as elements of another
 * type, with guards, for the emulation of CUDA. */
#ifndef CONVOY_TESTS_CUDA_HALVES_H
#define CONVOY_TESTS_CUDA_HALVES_H

#include "tests/cuda/emulated.h"

#define FLOATS 12

/* One operation's tensors, as floats for the truth and as elements of `dtype` for the kernel. */
struct pair {
    float *truth;
    char *memory; /* with guards */
    struct tensor half;
    int64_t n;
};
struct set {
    enum dtype dtype;
    struct pair pair[FLOATS];
    int n;
};

static uint16_t to_bits(enum dtype dtype, float x)
{
    uint16_t bits;
    if (dtype == DTYPE_F16) {
        _Float16 h = (_Float16)x;
        memcpy(&bits, &h, sizeof bits);
        return bits;
    }
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float from_bits(enum dtype dtype, uint16_t bits)
{
    float x;
    uint32_t u = (uint32_t)bits << 16;
    if (dtype == DTYPE_F16) {
        _Float16 h;
        memcpy(&h, &bits, sizeof h);
        return (float)h;
    }
    memcpy(&x, &u, sizeof x);
    return x;
}

#define GUARD 64 /* bytes */

/* add — n random numbers, rounded to dtype; both forms hold the same. */
static struct pair *add(struct set *s, enum dtype dtype, int64_t n, float gain)
{
    struct pair *p = &s->pair[s->n++];
    size_t bytes = (size_t)n * dtype_bytes(dtype);
    *p = (struct pair){.truth = kt_floats(n, KT_RANDOM, (uint64_t)s->n), .n = n};
    p->memory = aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    assert_non_null(p->memory);
    memset(p->memory, 0x5a, bytes + 2 * GUARD);
    p->half = (struct tensor){p->memory + GUARD, dtype};
    for (int64_t i = 0; i < n; i++) {
        p->truth[i] *= gain;
        if (dtype == DTYPE_F32) {
            ((float *)p->half.data)[i] = p->truth[i];
        } else {
            ((uint16_t *)p->half.data)[i] = to_bits(dtype, p->truth[i]);
            p->truth[i] = from_bits(dtype, ((uint16_t *)p->half.data)[i]);
        }
    }
    return p;
}

static void done(struct set *s)
{
    for (int i = 0; i < s->n; i++) {
        kt_free(s->pair[i].truth);
        free(s->pair[i].memory);
    }
    s->n = 0;
}

static void ran(int rc)
{
    const char *error = emu_error();
    if (rc != 0 || error)
        fail_msg("status %d, %s", rc, error ? error : "no mistake seen");
}

static void near(const char *what, const struct pair *p, double limit)
{
    float *got = kt_floats(p->n, KT_ONES, 0);
    size_t bytes = (size_t)p->n * dtype_bytes(p->half.dtype);
    for (int64_t i = 0; i < p->n; i++)
        got[i] = p->half.dtype == DTYPE_F32
                     ? ((float *)p->half.data)[i]
                     : from_bits(p->half.dtype, ((uint16_t *)p->half.data)[i]);
    double nmse = kt_nmse(got, p->truth, p->n);
    KT_SEEN(what, nmse, limit);
    if (!(nmse <= limit))
        fail_msg("%s, dtype %d: nmse %g, allowed %g", what, p->half.dtype, nmse, limit);
    for (int i = 0; i < GUARD; i++)
        if (p->memory[i] != 0x5a || p->memory[GUARD + bytes + (size_t)i] != 0x5a)
            fail_msg("%s, dtype %d: wrote outside", what, p->half.dtype);
    kt_free(got);
}

static struct tensor truth(const struct pair *p) { return kt_f32(p->truth); }
/* Rounding of one result: at most 2^-8 or 2^-11 of it, evenly spread, so a third of that
 * squared. */
static double limit_of(enum dtype dtype) { return dtype == DTYPE_BF16 ? 5.1e-6 : 8e-8; }
#define PLAIN(op, ...) kt_ok(dev_op(kt_plain()->dev)->op(kt_plain()->stream, __VA_ARGS__))

#endif

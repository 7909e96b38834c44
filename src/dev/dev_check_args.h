/* dev_check_args — the conditions that the checks of operations are made of: a tensor, a size, a
 * product of sizes. Included by dev_check.c and
 * dev_check_attention.c only. Must not know operations. */
#ifndef CONVOY_DEV_DEV_CHECK_ARGS_H
#define CONVOY_DEV_DEV_CHECK_ARGS_H

#include "base/status.h"
#include "kernels/tensor.h"

static inline enum status check_tensor(const char *op, const char *field, const struct tensor *t,
                                       enum dtype dtype)
{
    if (!t->data)
        return FAIL(ST_BUG, "operation %s: tensor %s is missing", op, field);
    if (t->dtype != dtype)
        return FAIL(ST_BUG, "operation %s: tensor %s has dtype %d, expected %d", op, field,
                    t->dtype, dtype);
    return ST_OK;
}

/* As check_tensor for f32, or for one of the 16-bit types. */
static inline enum status check_float(const char *op, const char *field, const struct tensor *t,
                                      bool takes_halves)
{
    bool is_half = t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16;
    return check_tensor(op, field, t, takes_halves && is_half ? t->dtype : DTYPE_F32);
}

static inline enum status check_size(const char *op, const char *field, int64_t value, int64_t min,
                                     int64_t max)
{
    if (value < min || value > max)
        return FAIL(ST_BUG, "operation %s: %s is %lld, expected %lld to %lld", op, field,
                    (long long)value, (long long)min, (long long)max);
    return ST_OK;
}

static inline enum status check_that(const char *op, const char *what, bool holds)
{
    return holds ? ST_OK : FAIL(ST_BUG, "operation %s: %s does not hold", op, what);
}

/* Element numbers up to this can be multiplied by a few bytes without leaving 64 bits. */
#define ELEMS_MAX ((int64_t)1 << 56)

static inline enum status check_dropout(const char *op, const struct dropout *d)
{
    if (!(d->p >= 0 && d->p < 1)) /* NaN fails too */
        return FAIL(ST_BUG, "operation %s: dropout %g, expected 0 <= p < 1", op, (double)d->p);
    return ST_OK;
}

static inline enum status check_product(const char *op, int64_t x, int64_t y)
{
    TRY(check_size(op, "a size", x, 0, ELEMS_MAX));
    TRY(check_size(op, "a size", y, 0, ELEMS_MAX));
    int64_t elems;
    if (__builtin_mul_overflow(x, y, &elems) || elems > ELEMS_MAX)
        return FAIL(ST_BUG, "operation %s: %lld by %lld elements cannot be addressed", op,
                    (long long)x, (long long)y);
    return ST_OK;
}

/* Columns [v_first, v_first + v_n) of a vocabulary, in n rows `stride` apart. */
static inline enum status check_columns(const char *op, int64_t n, int64_t v_first, int64_t v_n,
                                        int64_t stride)
{
    TRY(check_size(op, "n", n, 0, ELEMS_MAX));
    TRY(check_size(op, "v_n", v_n, 1, INT32_MAX));
    TRY(check_size(op, "v_first", v_first, 0, INT32_MAX - v_n));
    TRY(check_size(op, "stride", stride, v_n, ELEMS_MAX));
    return check_product(op, n, stride);
}

/* A product of (n, in) and (in, out), of which the (n, out) may lie in wider rows: stride 0 is
 * out. */
static inline enum status check_matmul(const char *op, int64_t n, int64_t in, int64_t out,
                                       int64_t stride)
{
    TRY(check_size(op, "n", n, 1, ELEMS_MAX));
    TRY(check_size(op, "in", in, 1, ELEMS_MAX));
    TRY(check_size(op, "out", out, 1, ELEMS_MAX));
    TRY(check_that(op, "stride == 0 || stride >= out", stride == 0 || stride >= out));
    TRY(check_product(op, n, stride ? stride : out));
    TRY(check_product(op, n, in));
    return check_product(op, in, out);
}

/* In each check, OP is the operation's name. Optional tensors that are absent are not checked. */
#define HAS(field, type) TRY(check_tensor(OP, #field, &a->field, DTYPE_##type))
#define HAS_FLOAT(field) TRY(check_float(OP, #field, &a->field, takes_halves))
#define MAY_FLOAT(field) \
    if (a->field.data)   \
    HAS_FLOAT(field)
#define MAY(field, type) \
    if (a->field.data)   \
    HAS(field, type)
#define MIN(field, min) TRY(check_size(OP, #field, a->field, (min), ELEMS_MAX))
#define THAT(condition) TRY(check_that(OP, #condition, condition))

#endif

/* The division of neurons by their root mean square: fast against plain, several updates of one
 * running mean, by rows and by columns; a neuron without an update; NaN, which stops all. */
#include "kernel_test.h"

struct input {
    int64_t rows, columns;
    bool is_by_column;
    const double *grad_scale;
};

static int64_t neurons_of(const struct input *in)
{
    return in->is_by_column ? in->columns : in->rows;
}

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    const struct normuon a = {.x = kt_f32(out[0]),
                              .v = kt_f32(out[1]),
                              .rows = in->rows,
                              .columns = in->columns,
                              .is_by_column = in->is_by_column,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .grad_scale = kt_f64(in->grad_scale)};
    return op->normuon(s, &a);
}

static void check(int64_t rows, int64_t columns, bool is_by_column, enum kt_fill fill)
{
    struct input in = {rows, columns, is_by_column, NULL};
    float *x = kt_floats(rows * columns, fill, 1), *v = kt_floats(neurons_of(&in), KT_RANDOM, 2);
    for (int64_t i = 0; i < neurons_of(&in); i++)
        v[i] = i % 3 ? v[i] * v[i] : 0;
    kt_check(
        &(struct kt_case){"normuon", run, &in, {x, v}, {rows * columns, neurons_of(&in)}, 1e-11});
    kt_free(x);
    kt_free(v);
}

static void fast_matches_plain(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},  {1, 7},     {7, 1},    {3, 33},
                                        {64, 5}, {130, 196}, {9, 1030}, {1030, 72}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int fill = KT_RANDOM; fill <= KT_ONES; fill++)
            for (int form = 0; form < 2; form++)
                check(shapes[i][0], shapes[i][1], form != 0, (enum kt_fill)fill);
}

/* Worked out by hand: 3, 4 and their mean square 12.5, from 0 and from 4. */
static void by_hand(void **state)
{
    (void)state;
    for (int level = 0; level < CPU_ISA_N; level++)
        for (int form = 0; form < 2; form++) {
            struct kt_device *d = kt_device(level, 1);
            float *x = kt_floats(4, KT_ONES, 0), *v = kt_floats(2, KT_ONES, 0);
            struct input in = {2, 2, form != 0, NULL};
            if (d->dev) {
                x[0] = 3, x[form ? 2 : 1] = 4, x[form ? 1 : 2] = -3, x[3] = -4;
                v[0] = 0, v[1] = 4;
                kt_ok(run(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){x, v}));
                assert_true(fabs(v[0] - 0.625) < 1e-6 && fabs(v[1] - 4.425) < 1e-6);
                assert_true(fabs(x[0] - 3 / sqrt(0.625)) < 1e-6);
                assert_true(fabs(x[3] + 4 / sqrt(4.425)) < 1e-6);
            }
            kt_free(x);
            kt_free(v);
        }
}

/* A neuron whose update was always 0 keeps 0; with NaN nothing changes, else any scale will do. */
static void zero_and_not_finite(void **state)
{
    (void)state;
    for (int level = 0; level < CPU_ISA_N; level++)
        for (int form = 0; form < 4; form++) {
            struct kt_device *d = kt_device(level, 2);
            float *x = kt_floats(3 * 40, KT_ONES, 0), *v = kt_floats(40, KT_ONES, 0);
            double *scale = malloc(sizeof *scale);
            *scale = form < 2 ? NAN : 0.25;
            struct input in = {form & 1 ? 3 : 40, form & 1 ? 40 : 3, form & 1, scale};
            int64_t step = form & 1 ? 1 : 3, each = form & 1 ? 40 : 1;
            for (int i = 0; i < 3; i++)
                x[7 * step + i * each] = 0;
            v[7] = 0;
            if (d->dev)
                kt_ok(run(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){x, v}));
            for (int i = 0; i < 40 && d->dev; i++) {
                assert_true(v[i] == (i == 7 ? 0 : 1));
                assert_true(fabsf(x[i * step] - (i == 7 ? 0 : 1)) < (form < 2 ? 1e-30f : 1e-6f));
            }
            kt_free(x);
            kt_free(v);
            free(scale);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fast_matches_plain),
    cmocka_unit_test(by_hand),
    cmocka_unit_test(zero_and_not_finite),
};
HARNESS_MAIN(tests)

/* The errors that the emulation adds to the device's arithmetic: of the promised size, in every
 * function, and large enough that a limit which is too small is exceeded. Compiled twice: with
 * EMU_FUSED against kernels that are compiled with contraction (tests/emu/emu.mk). */
#include "tests/cuda/emulated.h"

#include "tests/cuda/emu_kernels.h"

enum { N = 1000 };

static double exact_of(enum emu_number number, double x)
{
    switch (number) {
    case EMU_NUMBER_EXP:
        return exp(x);
    case EMU_NUMBER_EXP2:
    case EMU_NUMBER_EXP2_QUICK:
        return exp2(x);
    case EMU_NUMBER_LOG:
        return log(x);
    case EMU_NUMBER_LOG2:
        return log2(x);
    case EMU_NUMBER_TANH:
        return tanh(x);
    case EMU_NUMBER_RSQRT:
        return 1 / sqrt(x);
    default:
        return 1 / x;
    }
}

static void compute(float *out, const float *in, int n, enum emu_number number)
{
    int rc = emu_kernels_number(out, in, n, number);
    const char *error = emu_error();
    if (rc != 0 || error)
        fail_msg("number %d: %s", number, error ? error : "refused");
}

/* Writes the lowest and the highest error of N results to range, in units in the last place. */
static void find_errors(enum emu_number number, double range[2])
{
    float in[N], out[N], again[N];
    for (int i = 0; i < N; i++)
        in[i] = 0.013f + (float)i / 128;
    compute(out, in, N, number);
    compute(again, in, N, number);
    assert_memory_equal(out, again, sizeof out);
    range[0] = range[1] = 0;
    for (int i = 0; i < N; i++) {
        double exact = exact_of(number, in[i]);
        double error = (out[i] - exact) / ldexp(1, ilogb(exact) - 23);
        range[0] = fmin(range[0], error);
        range[1] = fmax(range[1], error);
    }
}

TEST(errors_are_two_units_at_most)
{
    for (int number = EMU_NUMBER_EXP; number <= EMU_NUMBER_RCP_QUICK; number++) {
        double none[2], drawn[2], up[2], down[2];
        emu_noise(EMU_NOISE_DRAWN);
        find_errors((enum emu_number)number, drawn);
        emu_noise(EMU_NOISE_UP);
        find_errors((enum emu_number)number, up);
        emu_noise(EMU_NOISE_DOWN);
        find_errors((enum emu_number)number, down);
        emu_noise(EMU_NOISE_NONE);
        find_errors((enum emu_number)number, none);
        print_message("# number %d: none %.2f %.2f, drawn %.2f %.2f, up %.2f, down %.2f\n", number,
                      none[0], none[1], drawn[0], drawn[1], up[1], down[0]);
        assert_true(none[0] > -2 && none[1] < 2); /* tanhf of the host's C library: 1.6 */
        assert_true(drawn[0] >= -2 && drawn[0] < -1.5 && drawn[1] <= 2 && drawn[1] > 1.5);
        assert_true(up[0] == 0 && up[1] <= 2 && up[1] > 1.5);
        assert_true(down[1] == 0 && down[0] >= -2 && down[0] < -1.5);
    }
}

/* CUDA documents these results without an error. */
TEST(special_results_are_exact)
{
    static const struct {
        enum emu_number number;
        float x, y;
    } rows[] = {{EMU_NUMBER_EXP, 0, 1},
                {EMU_NUMBER_EXP, -INFINITY, 0},
                {EMU_NUMBER_EXP, INFINITY, INFINITY},
                {EMU_NUMBER_EXP2_QUICK, 0, 1},
                {EMU_NUMBER_LOG, 1, 0},
                {EMU_NUMBER_LOG, 0, -INFINITY},
                {EMU_NUMBER_TANH, 0, 0},
                {EMU_NUMBER_TANH, INFINITY, 1},
                {EMU_NUMBER_TANH, -INFINITY, -1},
                {EMU_NUMBER_RSQRT, INFINITY, 0}};
    for (int noise = EMU_NOISE_NONE; noise <= EMU_NOISE_DOWN; noise++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            float y;
            emu_noise((enum emu_noise)noise);
            compute(&y, &rows[i].x, 1, rows[i].number);
            emu_noise(EMU_NOISE_NONE);
            if (y != rows[i].y)
                fail_msg("number %d of %g: %g", rows[i].number, (double)rows[i].x, (double)y);
        }
}

static double softcap_error(enum emu_noise noise)
{
    float *got = kt_floats(N, KT_RANDOM, 1), *want = kt_floats(N, KT_RANDOM, 1);
    struct kt_device *d = kt_device(CPU_ISA_V2, 1);
    struct softcap a = {kt_f32(want), 1, N, N, 1};
    kt_ok(dev_op(kt_plain()->dev)->softcap(kt_plain()->stream, &a));
    a.x = kt_f32(got);
    emu_noise(noise);
    kt_ok(dev_op(d->dev)->softcap(d->stream, &a));
    emu_noise(EMU_NOISE_NONE);
    double error = kt_nmse(got, want, N);
    kt_free(got);
    kt_free(want);
    return error;
}

/* A limit that a device as exact as the host keeps, and a device with CUDA's errors does not. */
TEST(a_limit_that_is_too_small_is_exceeded)
{
    const double too_small = 3e-15, of_the_contract = 1e-12;
    double none = softcap_error(EMU_NOISE_NONE);
    assert_true(none > 0 && none < too_small);
    for (int noise = EMU_NOISE_DRAWN; noise <= EMU_NOISE_DOWN; noise++) {
        double error = softcap_error((enum emu_noise)noise);
        print_message("# nmse %g, with noise %d %g\n", none, noise, error);
        assert_true(error > too_small && error < of_the_contract);
    }
}

/* Is the host's own arithmetic as it was? */
static bool keeps_subnormals(void)
{
    volatile float x = 0x1p-126f;
    return x * 0.5f == 0x1p-127f;
}

TEST(subnormal_numbers_become_zero)
{
    float normal = 0x1p-126f, subnormal = 0x1p-127f, y;
    compute(&y, &normal, 1, EMU_NUMBER_HALF);
    assert_true(y == 0x1p-127f);
    compute(&y, &subnormal, 1, EMU_NUMBER_TWICE);
    assert_true(y == 0x1p-126f);
    emu_flush(true);
    compute(&y, &normal, 1, EMU_NUMBER_HALF);
    assert_true(y == 0 && keeps_subnormals());
    compute(&y, &subnormal, 1, EMU_NUMBER_TWICE);
    assert_true(y == 0 && keeps_subnormals());
    compute(&y, &normal, 1, EMU_NUMBER_TWICE);
    assert_true(y == 0x1p-125f);
    /* after a launch that fails, too */
    int in[256] __attribute__((aligned(16))) = {0}, out;
    assert_int_not_equal(emu_kernels_sum(&out, in, 1, EMU_MISTAKE_EARLY_RETURN), 0);
    assert_true(emu_error() != NULL && keeps_subnormals());
    emu_flush(false);
    compute(&y, &normal, 1, EMU_NUMBER_HALF);
    assert_true(y == 0x1p-127f);
}

/* (1 + 2^-12)² - 1: the product alone loses 2^-24. */
TEST(products_are_contracted_if_compiled_so)
{
    float x = 1 + 0x1p-12f, square, rounded;
    compute(&square, &x, 1, EMU_NUMBER_SQUARE);
    compute(&rounded, &x, 1, EMU_NUMBER_ROUNDED);
    assert_true(rounded == 0x1p-11f);
#ifdef EMU_FUSED
    assert_true(square == 0x1p-11f + 0x1p-24f);
#else
    assert_true(square == 0x1p-11f);
#endif
}

HARNESS_RUN_ALL()

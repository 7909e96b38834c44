/* The emulation of CUDA itself: correct kernels give correct results under every order of threads,
 * and planted mistakes are found. */
#include "kernel_test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "tests/cuda/emu_kernels.h"
#include "tests/emu/emu_control.h"

#define BLOCKS 3
#define SEEDS 20

/* ---- several threads ---- */

enum { THREADS = 4, PROCESSES = 100 };
static pthread_mutex_t one_launch = PTHREAD_MUTEX_INITIALIZER;
static atomic_int started_n;
static int first_kernel[THREADS];

static int run_alone(void *stream, int (*run)(void *arg), const void *arg, size_t bytes)
{
    char own[512];
    (void)stream;
    if (bytes > sizeof own)
        return -1;
    memcpy(own, arg, bytes);
    pthread_mutex_lock(&one_launch);
    int rc = run(own);
    pthread_mutex_unlock(&one_launch);
    return rc;
}

/* All kernels, each thread from another one on. Returns NULL: all launches were right. */
static void *launch_all(void *arg)
{
    int first = *(const int *)arg, out;
    atomic_fetch_add(&started_n, 1);
    while (atomic_load(&started_n) < THREADS) /* at the same instant, as far as cores allow */
        continue;
    for (int i = 0; i < EMU_KERNELS_LARGE; i++) {
        int kernel = (first + i) % EMU_KERNELS_LARGE;
        if (emu_kernels_large(&out, kernel) != 0 || out != kernel)
            return arg;
    }
    return NULL;
}

/* Returns the exit code of a process. */
static int launch_on_threads(void)
{
    pthread_t thread[THREADS];
    void *wrong;
    int wrong_n = 0;
    emu_device = run_alone;
    for (int i = 0; i < THREADS; i++) {
        first_kernel[i] = 4 * i;
        if (pthread_create(&thread[i], NULL, launch_all, &first_kernel[i]) != 0)
            return 99;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &wrong);
        wrong_n += wrong != NULL;
    }
    return wrong_n;
}

/* The first launches of a process come from several threads at once, as where ranks are threads:
 * each finds its kernel's limits. Runs first, so that no table is read yet. */
TEST(the_first_launches_come_from_many_threads)
{
    for (int i = 0; i < PROCESSES; i++) {
        int how = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(launch_on_threads());
        assert_true(child > 0 && waitpid(child, &how, 0) == child);
        if (how != 0)
            fail_msg("process %d of %d: signal %d, exit code %d (threads with a refused launch)", i,
                     PROCESSES, WTERMSIG(how), WEXITSTATUS(how));
    }
}

/* Does a launch under one of many seeds fail, or give a wrong sum? */
static bool is_found(enum emu_mistake mistake, bool want_error)
{
    static int in[BLOCKS * 256 + 4] __attribute__((aligned(16)));
    int out[BLOCKS], found = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        emu_seed(seed);
        for (int i = 0; i < BLOCKS * 256; i++)
            in[i] = i % 7 + i / 256;
        int rc = emu_kernels_sum(out, in, BLOCKS, mistake);
        const char *error = emu_error();
        assert_int_equal(rc != 0, error != NULL);
        if (error && mistake == EMU_MISTAKE_NONE)
            fail_msg("%s", error);
        if (error)
            found++;
        for (int b = 0; b < BLOCKS && !error; b++) {
            int want = 256 * b;
            for (int i = 0; i < 256; i++)
                want += (256 * b + i) % 7;
            if (out[b] != want && !want_error) {
                found++;
                break;
            }
        }
    }
    return found > (want_error ? SEEDS - 1 : 0);
}

TEST(correct_kernels_give_correct_results) { assert_false(is_found(EMU_MISTAKE_NONE, false)); }

TEST(planted_mistakes_show_in_results)
{
    assert_true(is_found(EMU_MISTAKE_NO_BARRIER, false));
    assert_true(is_found(EMU_MISTAKE_NO_WARP, false));
    assert_true(is_found(EMU_MISTAKE_NO_WAIT, false));
    emu_skip_barrier(0);
    assert_true(is_found(EMU_MISTAKE_TWO_BARRIERS, false));
    emu_skip_barrier(-1);
}

TEST(mistakes_are_errors)
{
    static const enum emu_mistake found[] = {EMU_MISTAKE_TWO_BARRIERS, EMU_MISTAKE_EARLY_RETURN,
                                             EMU_MISTAKE_LANES, EMU_MISTAKE_ALIGNMENT};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (!is_found(found[i], true))
            fail_msg("mistake %d is not found under every seed", found[i]);
#if !defined(__SANITIZE_ADDRESS__) /* which would end the program */
    assert_true(is_found(EMU_MISTAKE_SHARED_END, true));
#endif
}

static void store_as(void *p, int i, float x, enum dtype dtype)
{
    uint16_t bits[8];
    float in[256] = {x}, back[256];
    uint16_t all[256] __attribute__((aligned(16)));
    float in_aligned[256] __attribute__((aligned(16))),
        back_aligned[256] __attribute__((aligned(16)));
    memcpy(in_aligned, in, sizeof in);
    if (dtype == DTYPE_F32) {
        ((float *)p)[i] = x;
        return;
    }
    assert_int_equal(emu_kernels_round(all, back_aligned, in_aligned, 256, dtype), 0);
    memcpy(back, back_aligned, sizeof back);
    memcpy(bits, all, sizeof bits);
    ((uint16_t *)p)[i] = bits[0];
}

/* Small whole numbers: every product and sum is exact in every dtype. */
TEST(fragments_are_as_documented)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    for (int n = 0; n < 4; n++) {
        enum dtype dtype = n < 3 ? dtypes[n] : DTYPE_BF16;
        int k = dtype == DTYPE_F32 ? 8 : 16;
        float a[16 * 16] __attribute__((aligned(16))), b[16 * 8] __attribute__((aligned(16))),
            d[16 * 8];
        int x[16 * 16], y[16 * 8];
        for (int i = 0; i < 16 * k; i++)
            store_as(a, i, (float)(x[i] = (int)(rand_u32(1, 1, (uint64_t)i) % 15) - 7), dtype);
        for (int i = 0; i < k * 8; i++)
            store_as(b, i, (float)(y[i] = (int)(rand_u32(1, 2, (uint64_t)i) % 15) - 7), dtype);
        emu_seed((uint64_t)n);
        struct tensor ta = {a, dtype}, tb = {b, dtype};
        assert_int_equal(n < 3 ? emu_kernels_mma(d, ta, tb) : emu_kernels_ldmatrix(d, ta, tb), 0);
        for (int row = 0; row < 16; row++)
            for (int col = 0; col < 8; col++) {
                int want = 0;
                for (int i = 0; i < k; i++)
                    want += x[row * k + i] * y[i * 8 + col];
                assert_int_equal((int)d[row * 8 + col], want);
            }
    }
}

TEST(dropout_draws_the_cpus_numbers)
{
    enum { N = 400 };
    float out[2 * N];
    for (uint64_t shift = 0; shift < 4; shift++) {
        struct dropout d = kt_dropout(0.3f);
        d.offset = ((uint64_t)1 << 33) + shift;
        assert_int_equal(emu_kernels_drop(out, N, 5, &d), 0);
        for (int i = 0; i < N; i++) {
            assert_true(out[i] == dropout_factor(&d, 5 + i));
            assert_true(out[N + i] == out[i]);
        }
    }
    struct dropout off = kt_dropout(0);
    assert_int_equal(emu_kernels_drop(out, N, 5, &off), 0);
    assert_true(out[0] == 1.0f && out[2 * N - 1] == 1.0f);
}

/* Every half and bfloat16 is itself; between two neighbours the nearer one, or the even one, is
 * taken. */
TEST(rounding_is_exact)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16};
    static float in[65536] __attribute__((aligned(16))), back[65536] __attribute__((aligned(16)));
    static uint16_t bits[65536] __attribute__((aligned(16)));
    for (int n = 0; n < 2; n++) {
        bool is_bf16 = dtypes[n] == DTYPE_BF16;
        uint32_t infinity = is_bf16 ? 0x7F80 : 0x7C00;
        float value[65536];
        for (uint32_t i = 0; i < 65536; i++) {
            uint32_t size = i & 0x7FFF, f;
            if (is_bf16) {
                f = size << 16;
                memcpy(&value[i], &f, 4);
            } else {
                value[i] = size >= infinity ? size > infinity ? NAN : INFINITY
                           : size < 0x400
                               ? ldexpf((float)size, -24)
                               : ldexpf((float)(size % 0x400 + 0x400), (int)(size >> 10) - 25);
            }
            value[i] = i & 0x8000 ? -value[i] : value[i];
        }
        memcpy(in, value, sizeof in);
        assert_int_equal(emu_kernels_round(bits, back, in, 65536, dtypes[n]), 0);
        for (uint32_t i = 0; i < 65536; i++)
            if ((i & 0x7FFF) <= infinity && (bits[i] != i || back[i] != value[i]))
                fail_msg("%04x became %04x", i, bits[i]);
        for (uint32_t i = 0; i + 1 < infinity; i++)
            in[i] = value[i] / 2 + value[i + 1] / 2;
        assert_int_equal(emu_kernels_round(bits, back, in, 65536, dtypes[n]), 0);
        for (uint32_t i = 0; i + 1 < infinity; i++)
            assert_int_equal(bits[i], i + i % 2);
        for (uint32_t i = 0; i + 1 < infinity; i++)
            in[i] = nextafterf(value[i] / 2 + value[i + 1] / 2, 0);
        assert_int_equal(emu_kernels_round(bits, back, in, 65536, dtypes[n]), 0);
        for (uint32_t i = 1; i + 1 < infinity; i++)
            assert_int_equal(bits[i], i);
    }
}

TEST(reductions_are_right_in_any_order)
{
    float in[256], out[4];
    for (int i = 0; i < 256; i++)
        in[i] = (float)((i * 37) % 256 - 100);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        emu_seed(seed);
        assert_int_equal(emu_kernels_reduce(out, in), 0);
        assert_true(out[0] == 256 * 127.5f - 25600 && out[1] == 155 && out[2] == 155 &&
                    out[3] == -100);
    }
}

static int shared_of(size_t kib)
{
    int out = 0, rc = emu_kernels_shared(&out, kib << 10);
    return rc != 0 ? rc : out;
}

/* A kernel's limit of shared memory is set once, to what the device has: a smaller launch does not
 * lower it, and one that needs more than the device has is refused. */
TEST(shared_memory_is_allowed_once)
{
    emu_shared_max(99 << 10);
    (void)emu_opt_ins();
    assert_int_equal(shared_of(47), 7);
    assert_int_equal(emu_opt_ins(), 0);
    assert_int_equal(shared_of(48), 7);
    assert_int_equal(shared_of(99), 7);
    assert_int_equal(shared_of(64), 7);
    assert_int_equal(shared_of(99), 7);
    assert_int_equal(emu_opt_ins(), 1);
    assert_int_not_equal(shared_of(100), 7);
    assert_non_null(emu_error());
    emu_shared_max(0); /* another device */
    assert_int_equal(shared_of(100), 7);
    assert_int_equal(shared_of(48), 7);
    assert_int_equal(emu_opt_ins(), 1);
    assert_null(emu_error());
}

HARNESS_RUN_ALL()

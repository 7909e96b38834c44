/* outer — the outer update of LOCAL_STEPS against torch.optim.SGD's formula in double. */
#include "harness.h"

#include "base/rand.h"
#include "train/feature/step_local.h"

#define N 1003
#define ROUNDS 6

static float value(int array, int64_t i)
{
    return (float)((double)rand_below(7, RAND_STREAM(TEST, 0), (uint64_t)(array * N + i), 2001) /
                       1000 -
                   1);
}

/* torch.optim.SGD(lr, momentum, dampening=0, nesterov=True): buf = momentum · buf + g;
 * p -= lr · (g + momentum · buf). */
static void plain(const struct step_local_rule *rule, double *x, double *v, const double *mean)
{
    for (int i = 0; i < N; i++) {
        v[i] = rule->momentum * v[i] + mean[i];
        x[i] -= rule->lr * (mean[i] + rule->momentum * v[i]);
    }
}

static void check(const struct step_local_rule *rule, int replicas)
{
    static float x[N], v[N], sum[N], inner[N];
    static double want_x[N], want_v[N], mean[N];
    for (int i = 0; i < N; i++) {
        want_x[i] = x[i] = value(0, i);
        want_v[i] = v[i] = 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            sum[i] = 0, mean[i] = 0;
        for (int r = 0; r < replicas; r++) {
            for (int i = 0; i < N; i++)
                inner[i] = x[i] + value(1 + round * replicas + r, i) / 16;
            for (int i = 0; i < N; i++)
                mean[i] += ((double)x[i] - (double)inner[i]) / replicas;
            step_local_sync_gradient(x, inner, N);
            for (int i = 0; i < N; i++)
                sum[i] += inner[i];
        }
        plain(rule, want_x, want_v, mean);
        step_local_sync_mean(replicas, sum, N);
        step_local_sync_update(rule, x, v, sum, N);
        for (int i = 0; i < N; i++) {
            assert_true(fabs((double)x[i] - want_x[i]) <= 3e-6);
            assert_true(fabs((double)v[i] - want_v[i]) <= 3e-6);
        }
    }
}

static void test_nesterov(void **state)
{
    for (int replicas = 1; replicas <= 5; replicas++)
        check(&(struct step_local_rule){0.7, 0.9}, replicas);
    check(&(struct step_local_rule){0.3, 0}, 3);
}

/* Rate 1 without momentum: the mean of what the replicas have. */
static void test_mean(void **state)
{
    float x[3] = {1, -2, 0.5F}, v[3] = {0}, a[3] = {2, 2, 1}, b[3] = {4, -4, 0.25F}, sum[3];
    const float want[3] = {3, -1, 0.625F};
    step_local_sync_gradient(x, a, 3);
    step_local_sync_gradient(x, b, 3);
    for (int i = 0; i < 3; i++)
        sum[i] = a[i] + b[i];
    step_local_sync_mean(2, sum, 3);
    step_local_sync_update(&(struct step_local_rule){1, 0}, x, v, sum, 3);
    assert_memory_equal(x, want, sizeof want);
    step_local_sync_update(&(struct step_local_rule){1, 0}, x, v, sum, 0);
    assert_memory_equal(x, want, sizeof want);
}

/* A number of 8 bits of mantissa comes back as it was, others rounded to nearest; so does a NaN. */
static void test_round(void **state)
{
    static float d[N], back[N];
    static uint16_t half[N];
    for (int i = 0; i < N; i++)
        d[i] = value(0, i);
    d[0] = 1.0078125F, d[1] = -0.0F, d[2] = NAN, d[3] = INFINITY;
    step_local_sync_round(d, half, N);
    step_local_sync_widen(half, back, N);
    assert_true(back[0] == d[0] && back[1] == 0 && signbit(back[1]));
    assert_true(isnan(back[2]) && back[3] == d[3]);
    for (int i = 4; i < N; i++)
        assert_true(fabsf(back[i] - d[i]) <= fabsf(d[i]) / 256);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_nesterov),
    cmocka_unit_test(test_mean),
    cmocka_unit_test(test_round),
};
HARNESS_MAIN(tests)

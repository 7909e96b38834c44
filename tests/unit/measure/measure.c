/* measure — the pieces of which bench, check and plan are made: quantiles, times, values over
 * ranks, exact patterns, collectives, tables; and the rows of `convoy bench` on threads as ranks,
 * in host memory and in device memory that the host cannot touch. */
#pragma GCC diagnostic ignored "-Wunused-function" /* not all of the device is used here */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantile.h"
#include "comm/fake_device.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "mesh/ranks.h"
#include "measure/measure_collective.h"
#include "measure/measure_pattern.h"
#include "measure/measure_product.h"
#include "measure/measure_ranks.h"
#include "measure/measure_table.h"
#include "measure/measure_time.h"
#include "node/command/bench_run.h"

static void quantiles(void **state)
{
    double values[] = {40, 10, 30, 20}, one = 5;
    quantile_sort(values, 4);
    assert_true(values[0] == 10 && values[3] == 40);
    assert_true(quantile_of(values, 4, 0) == 10 && quantile_of(values, 4, 0.5) == 20);
    assert_true(quantile_of(values, 4, 0.95) == 40 && quantile_of(values, 4, 1) == 40);
    assert_true(quantile_median(values, 4) == 25 && quantile_median(values, 3) == 20);
    assert_true(quantile_of(&one, 1, 0.5) == 5 && quantile_median(&one, 1) == 5);
    assert_true(isnan(quantile_median(values, 0)));
    double large[] = {1.5e308, 1.7e308};
    assert_true(isfinite(quantile_median(large, 2)));
}

/* ---- times ---- */

static enum status compute_2_ms(void *arg)
{
    (void)arg;
    const int64_t begin_ns = clock_thread_ns();
    while (clock_thread_ns() - begin_ns < 2000000)
        continue;
    return ST_OK;
}

/* One thread of two computes and the other is off its core: it may have been waited for all the
 * time, so a rate half as high as its peers' says nothing. One thread by itself waits for none. */
static void time_off_the_cores_is_slack(void **state)
{
    struct measure_timer timer = {.threads_n = 2, .slices_min = 8, .patience = 8};
    struct measure_best two = {0}, one = {0};
    assert_int_equal(measure_time_best(&timer, 10, compute_2_ms, NULL, &two), ST_OK);
    assert_true(two.slices >= 8 && two.seconds >= 2e-3);
    assert_true(two.waited > 0.9 && two.waited <= 1);
    assert_true(measure_time_slack(&two, 63, 0.05) > 126 - 63);
    timer.threads_n = 1;
    assert_int_equal(measure_time_best(&timer, 10, compute_2_ms, NULL, &one), ST_OK);
    assert_true(one.waited == 0);
    assert_true(fabs(measure_time_slack(&one, 63, 0.05) - 0.05 * 63) < 1e-9);
}

static enum status fail_third(void *arg)
{
    int *calls = arg;
    return ++*calls == 3 ? FAIL(ST_FAULT, "the third call") : ST_OK;
}

static void a_failure_ends_the_slices(void **state)
{
    const struct measure_timer timer = {.slices_min = 8, .patience = 8};
    struct measure_best best = {0};
    double seconds[8];
    int calls = 0;
    assert_int_equal(measure_time_best(&timer, 1, fail_third, &calls, &best), ST_FAULT);
    assert_true(calls == 3 && best.slices == 2);
    calls = 0;
    assert_int_equal(measure_time_runs(&timer, fail_third, &calls, 2, seconds, 8), ST_FAULT);
    assert_int_equal(calls, 3);
}

static enum status sleep_by_rank(void *arg)
{
    clock_sleep_ms(1 + 4 * ((struct ranks_one *)arg)->rank);
    return ST_OK;
}

/* What ranks measured together, and over all of them. */
struct told {
    double together, max[2], sum[2], gathered[3];
};

static enum status measure_together(struct ranks_one *one)
{
    struct told *told = one->arg;
    const struct measure_timer timer = {.comm = one->comm};
    const double mine = 10 * one->rank;
    told->max[0] = one->rank, told->max[1] = -one->rank;
    told->sum[0] = one->rank, told->sum[1] = 1;
    TRY(measure_time_together(&timer, 5e-3, false, sleep_by_rank, one, &told->together));
    TRY(measure_ranks_max(one->comm, told->max, 2));
    TRY(measure_ranks_sum(one->comm, told->sum, 2));
    return measure_ranks_gather(one->comm, &mine, sizeof mine, told->gathered);
}

/* The slowest rank counts: it sleeps for 9 ms, the first one for 1 ms. */
static void the_slowest_rank_counts(void **state)
{
    struct told told[3];
    ranks_run(1, 3, measure_together, told, sizeof *told);
    for (int r = 0; r < 3; r++) {
        assert_true(told[r].together >= 9e-3 && told[r].together == told[0].together);
        assert_true(told[r].max[0] == 2 && told[r].max[1] == 0);
        assert_true(told[r].sum[0] == 3 && told[r].sum[1] == 3);
        for (int i = 0; i < 3; i++)
            assert_true(told[r].gathered[i] == 10 * i);
    }
}

/* ---- patterns ---- */

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

static float value_of(const struct measure_pattern *p, int i)
{
    if (p->dtype == DTYPE_F32)
        return ((const float *)p->data)[i];
    const uint16_t half = ((const uint16_t *)p->data)[i];
    return p->dtype == DTYPE_BF16 ? bf16_to_float(half) : f16_to_float(half);
}

/* The sum of all contributions is the pattern of sums, exactly, whatever the element type. */
static void sums_are_exact(void **state)
{
    static struct measure_pattern one, all;
    for (int d = 0; d < 3; d++)
        for (int ranks = 1; ranks <= COMM_RANKS_MAX; ranks *= 8) {
            measure_pattern_sum(&all, dtypes[d], ranks);
            double sum[sizeof all.data / 2] = {0}, most = 0;
            for (int r = 0; r < ranks; r++) {
                measure_pattern_summand(&one, dtypes[d], r, ranks);
                assert_int_equal(one.period, all.period);
                for (int i = 0; i < one.period; i++)
                    sum[i] += value_of(&one, i);
            }
            for (int i = 0; i < all.period; i++) {
                assert_true(sum[i] == value_of(&all, i));
                most = fmax(most, sum[i]);
            }
            assert_true(most > 0 && (dtypes[d] == DTYPE_F32 || most < 256));
        }
}

static void wrong_elements_are_counted(void **state)
{
    static char data[3000 * sizeof(float)];
    struct measure_pattern p, other;
    for (int d = 0; d < 3; d++) {
        const size_t each = dtype_bytes(dtypes[d]);
        measure_pattern_copy(&p, dtypes[d], 3, 1);
        measure_pattern_copy(&other, dtypes[d], 1, 3);
        assert_true(memcmp(p.data, other.data, each * 16) != 0);
        memset(data, 0xff, sizeof data);
        measure_pattern_fill(&p, data, 7, 2500);
        assert_int_equal(measure_pattern_wrong(&p, data, 7, 2500), 0);
        assert_int_equal(measure_pattern_wrong(&p, data, 0, 3000), 500); /* outside: untouched */
        data[8 * each] ^= 1;
        data[2506 * each] ^= 1;
        data[1000 * each] ^= 1;
        assert_int_equal(measure_pattern_wrong(&p, data, 7, 2500), 3);
    }
}

static void random_numbers_are_of_one_size(void **state)
{
    for (int d = 0; d < 3; d++) {
        struct measure_pattern p = {.dtype = dtypes[d]};
        int negative = 0;
        measure_pattern_random(p.data, dtypes[d], 1001, 1);
        for (int i = 0; i < 1001; i++) {
            const float value = value_of(&p, i);
            assert_true(fabsf(value) >= 0.5f && fabsf(value) < 1);
            negative += value < 0;
        }
        assert_true(negative > 400 && negative < 600);
    }
}

/* ---- collectives ---- */

static enum status run_collectives(struct ranks_one *one)
{
    int64_t *flipped = one->arg;
    struct measure_collective_memory memory;
    TRY(measure_collective_open(&memory, one->comm, one->dev, 1 << 16, true));
    enum status st = ST_OK;
    for (int c = 0; c < BUS_COLLECTIVE_N * 3 && st == ST_OK; c++) {
        struct measure_collective_call call = {
            .collective = (enum bus_collective)(c / 3), .dtype = dtypes[c % 3], .bytes = 12340};
        int64_t wrong = 0;
        double us, best, median;
        st = measure_collective_right(&memory, one->comm, &call, &wrong, &us);
        if (st == ST_OK && (wrong > 0 || us <= 0))
            st = FAIL(ST_BUG, "%s, dtype %d: %lld wrong, %g us",
                      bus_bandwidth_name(call.collective), call.dtype, (long long)wrong, us);
        if (st == ST_OK)
            st = measure_collective_time(&memory, one->comm, &call, 4, &best, &median);
        if (st == ST_OK && !(best > 0 && median >= best))
            st = FAIL(ST_BUG, "best %g us, median %g us", best, median);
    }
    const struct measure_collective_call call = {.collective = BUS_COLLECTIVE_ALL_REDUCE,
                                                 .dtype = DTYPE_F32,
                                                 .bytes = 12340,
                                                 .is_split = true,
                                                 .flips = one->rank == 1};
    double us;
    if (st == ST_OK)
        st = measure_collective_right(&memory, one->comm, &call, flipped, &us);
    measure_collective_close(&memory);
    return st;
}

/* Every collective in every element type is right; a bit that one rank inverts in its part of the
 * sum is one wrong element on all ranks. */
static void collectives_are_right(void **state)
{
    int64_t flipped[5];
    ranks_run(1, 5, run_collectives, flipped, sizeof *flipped);
    for (int r = 0; r < 5; r++)
        assert_int_equal(flipped[r], 1);
}

/* ---- products ---- */

static void products_have_their_bytes(void **state)
{
    struct dev *dev = ranks_dev(0);
    struct stream *s;
    assert_int_equal(dev_stream_open(dev, &s), ST_OK);
    for (int kind = MEASURE_PRODUCT_FORWARD; kind <= MEASURE_PRODUCT_HEAD; kind++) {
        const struct measure_product p = {.kind = (enum measure_product_kind)kind,
                                          .n = 64,
                                          .in = 32,
                                          .out = 48,
                                          .dtype = DTYPE_F32};
        struct measure_memory memory;
        struct measure_product_run run;
        assert_int_equal(measure_memory_open(&memory, dev, s, measure_product_bytes(&p)), ST_OK);
        assert_int_equal(measure_memory_fill(&memory, DTYPE_F32), ST_OK);
        assert_true(measure_product_open(&p, &memory, &run));
        assert_int_equal(run.turns.n, 1);
        for (int i = 0; i < 3; i++)
            assert_int_equal(measure_product_work(&run), ST_OK);
        memory.bytes -= 256;
        assert_false(measure_product_open(&p, &memory, &run));
        memory.bytes += 256;
        measure_memory_close(&memory);
    }
    dev_stream_close(s);
}

/* ---- tables ---- */

static void a_table_keeps_its_columns(void **state)
{
    static const struct measure_column columns[] = {
        {"name", -6, 0}, {"value", 9, 0}, {"n", 4, 0}, {"share", 6, 2}, {"where", 0, 0}};
    struct text out = {0};
    char value[32];
    measure_table_value(value, sizeof value, 54.634, "GB/s");
    measure_table_head(&out, columns, 5);
    measure_table_row(&out, columns, 5,
                      (struct measure_cell[]){{.text = "höher"},
                                              {.text = value},
                                              {.number = 12},
                                              {.number = 0.5},
                                              {.text = "a long place"}});
    measure_table_row(&out, columns, 5,
                      (struct measure_cell[]){{.text = "a\033[31m long name"},
                                              {.text = "1"},
                                              {.number = NAN},
                                              {.number = 123456},
                                              {.text = ""}});
    assert_string_equal(out.data, "name       value    n  share where\n"
                                  "höher  54.63 GB…   12   0.50 a long place\n"
                                  "a?[31…         1    - 123456.00\n");
    text_free(&out);
}

static void values_have_four_digits(void **state)
{
    char out[64];
    assert_string_equal(measure_table_value(out, sizeof out, 54.634, "GB/s"), "54.63 GB/s");
    assert_string_equal(measure_table_value(out, sizeof out, 120034.2, "us"), "120034 us");
    assert_string_equal(measure_table_value(out, sizeof out, 3, ""), "3");
    assert_string_equal(measure_table_value(out, sizeof out, NAN, "us"), "-");
    assert_string_equal(measure_table_value(out, sizeof out, -INFINITY, "us"), "-infinite us");
    assert_string_equal(measure_table_value(out, sizeof out, 1e300, "us"), "1e+300 us");
}

/* ---- rows of bench ---- */

struct rows {
    struct bench_run_row row[BENCH_RUN_ROWS_MAX];
    int n;
};
static struct dev *fake; /* NULL: host memory */

static enum status run_bench(struct ranks_one *one)
{
    struct rows *rows = one->arg;
    const struct bench_run_question question = {
        .bytes_max = 70000, .sizes_n = 6, .sizes = {4, 64, 1 << 10, 16 << 10, 70004, 64 << 10}};
    return bench_run(one->comm, fake, &question, rows->row, &rows->n);
}

static struct dev *fake_dev(int rank)
{
    (void)rank;
    return fake;
}

static void check_three(void)
{
    static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
    static struct rows rows[3];
    ranks_run(1, 3, run_bench, rows, sizeof *rows);
    assert_int_equal(rows[0].n, 4 * 5); /* one of the sizes is over the largest */
    for (int r = 0; r < 3; r++)
        assert_memory_equal(rows[r].row, rows[0].row, sizeof(rows[0].row[0]) * 20);
    for (int i = 0; i < 20; i++) {
        const struct bench_run_row *row = &rows[0].row[i];
        assert_string_equal(bus_bandwidth_name(row->collective), names[i / 5]);
        assert_int_equal(row->wrong, 0);
        assert_true(row->runs >= 5 && row->best_us > 0 && row->median_us >= row->best_us);
    }
}

static void rows_of_three(void **state) { check_three(); }

static void rows_of_three_devices(void **state)
{
    fake = fake_device_open();
    ranks_own_dev = fake_dev;
    check_three();
    ranks_own_dev = NULL;
    assert_true(fake_device.carried > 0);
    assert_int_equal(fake_device.blocks_n, 0);
    fake_device_close(fake);
}

static void bus(void **state)
{
    const double all_reduce = bus_bandwidth(BUS_COLLECTIVE_ALL_REDUCE, 1000000, 2, 1000);
    assert_true(fabs(all_reduce - 1.0) < 1e-9);
    assert_true(fabs(bus_bandwidth(BUS_COLLECTIVE_ALL_REDUCE, 1000000, 4, 1000) - 1.5) < 1e-9);
    assert_true(fabs(bus_bandwidth(BUS_COLLECTIVE_ALL_GATHER, 1000000, 4, 1000) - 0.75) < 1e-9);
    assert_true(fabs(bus_bandwidth(BUS_COLLECTIVE_BROADCAST, 1000000, 4, 1000) - 1.0) < 1e-9);
    assert_true(bus_bandwidth(BUS_COLLECTIVE_BROADCAST, 1000000, 1, 1000) == 0);
    assert_true(bus_bandwidth(BUS_COLLECTIVE_BROADCAST, 1000000, 4, 0) == 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(quantiles),
    cmocka_unit_test(time_off_the_cores_is_slack),
    cmocka_unit_test(a_failure_ends_the_slices),
    cmocka_unit_test(the_slowest_rank_counts),
    cmocka_unit_test(sums_are_exact),
    cmocka_unit_test(wrong_elements_are_counted),
    cmocka_unit_test(random_numbers_are_of_one_size),
    cmocka_unit_test(collectives_are_right),
    cmocka_unit_test(products_have_their_bytes),
    cmocka_unit_test(a_table_keeps_its_columns),
    cmocka_unit_test(values_have_four_digits),
    cmocka_unit_test(rows_of_three),
    cmocka_unit_test(rows_of_three_devices),
    cmocka_unit_test(bus),
};
HARNESS_MAIN(tests)

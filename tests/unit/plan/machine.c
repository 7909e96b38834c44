/* machine — a machine is measured: with one worker and with two on threads. What it gives is a
 * cluster that a file can hold and a plan can be made with; how fast the machine is, no test
 * knows. */
#include "mesh/ranks.h"

#include "plan/plan_machine.h"
#include "plan/plan_time.h"

/* The smallest budget has no memory for heads of any width, the others have it for all. */
#define BUDGET_LEAST_MS 10
#define BUDGET_MS 160
static int budget_ms;

static enum status measure(struct ranks_one *one)
{
    const struct plan_machine_config config = {.comm = one->ranks > 1 ? one->comm : NULL,
                                               .dev = one->dev,
                                               .name = "this-machine",
                                               .budget_ms = budget_ms,
                                               .disk_bytes_per_second = 1e9};
    return plan_machine_measure(&config, one->arg);
}

static void check_share(const struct plan_share *share, int at_least)
{
    assert_true(share->n >= at_least && share->n <= PLAN_CLUSTER_POINTS_MAX);
    for (int i = 0; i < share->n; i++) {
        assert_true(share->point[i].share > 0 && share->point[i].share <= 1);
        assert_true(i == 0 || share->point[i].size > share->point[i - 1].size);
    }
}

static void check_rows(const struct plan_rows *rows, int at_least)
{
    assert_true(rows->n >= at_least && rows->n <= PLAN_CLUSTER_WIDTHS_MAX);
    for (int i = 0; i < rows->n; i++) {
        check_share(&rows->width[i].share, 1);
        assert_true(i == 0 || rows->width[i].width > rows->width[i - 1].width);
    }
}

static void check_link(const struct plan_link *link, bool is_there)
{
    assert_true((link->bytes_per_second > 0) == is_there && (link->latency_us > 0) == is_there);
    check_share(&link->share, is_there ? 2 : 0);
}

/* check_ratios — of a link that was measured. */
static void check_ratios(const struct plan_link *link, bool is_there)
{
    const double ratios[] = {link->scatter_ratio, link->gather_ratio};
    for (int i = 0; i < 2; i++)
        assert_true((ratios[i] > 0) == is_there && ratios[i] >= 0 && ratios[i] <= 2);
}

/* planned_ms — of a small model that all workers train. */
static double planned_ms(const struct plan_cluster *c)
{
    struct trainer_config trainer = {.step = {.batch_samples = 1,
                                              .global_samples = c->nodes * c->locals,
                                              .seq_tokens = 64,
                                              .dims = {.name = "small",
                                                       .layers = 2,
                                                       .heads = 2,
                                                       .embed = 64,
                                                       .context = 64,
                                                       .vocab = 256}}};
    const struct memory_plan_place place = {
        .at = {.ranks = c->nodes * c->locals, .nodes = c->nodes, .locals = c->locals},
        .threads_n = c->threads_n};
    struct plan_ops ops;
    struct plan_time time;
    assert_int_equal(plan_ops_make(&trainer, &place, &ops), ST_OK);
    plan_time_make(&ops, 1, PLAN_PRECISION_F32, c, 0, &time);
    plan_ops_free(&ops);
    return time.step_ms;
}

static void check(int nodes, int locals, int budget)
{
    struct plan_cluster c[RANKS_MAX], again;
    struct text out = {.data = NULL};
    budget_ms = budget;
    ranks_run(nodes, locals, measure, c, sizeof *c);
    const struct plan_cluster *b = &c[nodes * locals - 1];
    struct text x = {.data = NULL}, y = {.data = NULL};
    plan_cluster_write(&c[0], &x);
    plan_cluster_write(b, &y);
    assert_string_equal(x.data, y.data);
    text_free(&x);
    text_free(&y);
    assert_string_equal(c->name, "this-machine");
    assert_non_null(strstr(c->source, "measured: cpu 1 thread"));
    assert_true(!c->is_gpu && c->nodes == nodes && c->locals == locals && c->threads_n == 1);
    assert_true(c->memory_bytes > 0 && c->disk_bytes_per_second == 1e9);
    assert_true(c->peak[PLAN_PRECISION_F32] > 0 && c->peak[PLAN_PRECISION_BF16] == 0);
    assert_true(c->memory_bytes_per_second > 0 && c->operation_us > 0 && c->step_us >= 0);
    assert_true(c->memory_share > 0 && c->memory_share <= 1);
    assert_true(c->optimizer_share > 0 && c->optimizer_share <= 1);
    assert_true(c->overlap_cost >= 0 && c->overlap_cost <= 10);
    assert_int_equal(c->product[PLAN_PRECISION_F32].n, 0); /* a CPU has rows */
    check_rows(&c->product_rows, 1);
    check_rows(&c->product_wide, 0);
    check_share(&c->attention, 1);
    check_share(&c->attention_width, budget == BUDGET_LEAST_MS ? 0 : 3);
    assert_true(c->cores > 0);
    check_link(&c->inside, locals > 1);
    check_link(&c->across, nodes > 1);
    check_ratios(&c->inside, locals > 1);
    check_ratios(&c->across, nodes > 1);
    plan_cluster_write(c, &out);
    if (plan_cluster_parse(out.data, out.len, "measured", &again) != ST_OK)
        fail_msg("%s: %s", status_message(), out.data);
    assert_true(isfinite(planned_ms(&again)) && planned_ms(&again) > 0);
    text_free(&out);
}

TEST(test_alone) { check(1, 1, BUDGET_MS); }

TEST(test_smallest_budget) { check(1, 1, BUDGET_LEAST_MS); }

/* test_inside, test_across — two workers of one node, and two nodes of one. */
TEST(test_inside) { check(1, 2, BUDGET_MS); }

TEST(test_across) { check(2, 1, BUDGET_MS); }

/* ---- links of given times ---- */

static const double bytes[] = {64, 16384, 65536, 262144, 1 << 20};
#define SIZES (int)(sizeof bytes / sizeof bytes[0])
static const struct plan_call like = {.kind = PLAN_CALL_ALL_REDUCE, .ranks = 2, .ranks_inside = 2};

static struct plan_cluster host(void)
{
    return (struct plan_cluster){.name = "host",
                                 .source = "a test",
                                 .locals = 2,
                                 .threads_n = 1,
                                 .memory_bytes = 1e10,
                                 .memory_bytes_per_second = 1e10,
                                 .memory_share = 1,
                                 .optimizer_share = 1,
                                 .peak[PLAN_PRECISION_F32] = 1e12};
}

/* check_fit — the link of these times; whatever they are, a file can hold it. */
static void check_fit(const double *seconds, struct plan_cluster *c)
{
    struct text out = {.data = NULL};
    struct plan_cluster again;
    *c = host();
    plan_machine_link_fit(c, &c->inside, &like, bytes, seconds, SIZES);
    check_link(&c->inside, true);
    assert_true(c->inside.bytes_per_second <= 4.0001e10);
    plan_cluster_write(c, &out);
    if (plan_cluster_parse(out.data, out.len, "fitted", &again) != ST_OK)
        fail_msg("%s: %s", status_message(), out.data);
    text_free(&out);
}

/* What plan_time makes of a link, it is found from. */
TEST(test_fit)
{
    struct plan_cluster c = host(), found;
    struct plan_call call = like;
    double seconds[SIZES];
    c.inside = (struct plan_link){.latency_us = 20, .bytes_per_second = 2e9};
    for (int i = 0; i < SIZES; i++) {
        call.bytes = bytes[i];
        seconds[i] = plan_time_call_ms(&c, &call) / 1e3;
    }
    check_fit(seconds, &found);
    for (int i = 1; i < SIZES; i++) {
        call.bytes = bytes[i];
        assert_float_equal(plan_time_call_ms(&found, &call) / 1e3, seconds[i], 0.01 * seconds[i]);
    }
}

/* A time that something else made longer spoils no other one: that of the smallest sum, of any
 * other, of all. */
TEST(test_fit_disturbed)
{
    struct plan_cluster c;
    const double plain[SIZES] = {2e-5, 4e-5, 8e-5, 3e-4, 1e-3};
    for (int late = 0; late <= SIZES; late++) {
        double seconds[SIZES];
        for (int i = 0; i < SIZES; i++)
            seconds[i] = plain[i] + (i == late || late == SIZES ? 5 : 0);
        check_fit(seconds, &c);
        struct plan_call call = like;
        for (int i = 1; i < SIZES && late == 0; i++) {
            call.bytes = bytes[i];
            assert_true(plan_time_call_ms(&c, &call) / 1e3 < 2.01 * plain[i]);
        }
    }
    check_fit((const double[SIZES]){1e-3, 8e-4, 5e-4, 3e-4, 1e-4}, &c);
    check_fit((const double[SIZES]){1e-3, 1e-3, 1e-3, 1e-3, 1e-3}, &c);
}

TEST(test_overlap)
{
    double cost, near[] = {0.55, 0.5, 0.6, 0.52, 9, 0.58, -4},
                 far[] = {6.59, 0.31, 0.55, 3, 2, 0.1, 5}, none[] = {-0.1, -0.2, 0, -0.1, 0, 0, -1};
    assert_true(plan_machine_link_overlap(near, 7, &cost));
    assert_float_equal(cost, 0.55, 0);
    assert_false(plan_machine_link_overlap(far, 7, &cost));
    assert_float_equal(cost, 1, 0);
    assert_true(plan_machine_link_overlap(none, 7, &cost));
    assert_float_equal(cost, 0, 0);
}

HARNESS_RUN_ALL()

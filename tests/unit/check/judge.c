/* check_judge: verdicts relative to peers and to known limits, remedies; no verdict from values
 * that mean nothing; the table of limits is consistent. */
#include "harness.h"

#include "base/rand.h"
#include "check/check_judge.h"
#include "check/check_sample.h"

static void judge(struct check_rows *rows) { check_judge(rows); }

/* Eight values of 100 and one other: its verdict. */
static enum check_verdict beside_eight(double value, enum check_better better, double slack)
{
    struct check_rows rows = {0};
    for (int node = 0; node < 9; node++) {
        struct check_row *row = sample_rate(&rows, node, node == 4 ? value : 100);
        row->better = better;
        row->slack = slack;
    }
    judge(&rows);
    const enum check_verdict verdict = rows.row[4].verdict;
    for (int node = 0; node < 9; node++)
        if (node != 4)
            assert_int_equal(rows.row[node].verdict, CHECK_VERDICT_PASS);
    check_row_free(&rows);
    return verdict;
}

TEST(shares_of_the_median)
{
    const enum check_better higher = CHECK_BETTER_HIGHER, lower = CHECK_BETTER_LOWER;
    assert_int_equal(beside_eight(95.1, higher, 0), CHECK_VERDICT_PASS);
    assert_int_equal(beside_eight(94.9, higher, 0), CHECK_VERDICT_WARN);
    assert_int_equal(beside_eight(80.1, higher, 0), CHECK_VERDICT_WARN);
    assert_int_equal(beside_eight(79.9, higher, 0), CHECK_VERDICT_FAIL);
    assert_int_equal(beside_eight(0, higher, 0), CHECK_VERDICT_FAIL);
    assert_int_equal(beside_eight(-3, higher, 0), CHECK_VERDICT_FAIL);
    assert_int_equal(beside_eight(900, higher, 0), CHECK_VERDICT_PASS);
    assert_int_equal(beside_eight(104.9, lower, 0), CHECK_VERDICT_PASS);
    assert_int_equal(beside_eight(105.1, lower, 0), CHECK_VERDICT_WARN);
    assert_int_equal(beside_eight(120.1, lower, 0), CHECK_VERDICT_FAIL);
    assert_int_equal(beside_eight(0, lower, 0), CHECK_VERDICT_PASS);
    /* a difference within the slack means nothing */
    assert_int_equal(beside_eight(70, higher, 31), CHECK_VERDICT_PASS);
    assert_int_equal(beside_eight(68, higher, 31), CHECK_VERDICT_FAIL);
    assert_int_equal(beside_eight(79.9, higher, NAN), CHECK_VERDICT_FAIL);
    assert_int_equal(beside_eight(79.9, higher, -5), CHECK_VERDICT_FAIL);
}

TEST(values_that_are_no_numbers)
{
    const enum check_better higher = CHECK_BETTER_HIGHER, lower = CHECK_BETTER_LOWER;
    assert_int_equal(beside_eight(NAN, higher, 0), CHECK_VERDICT_SKIPPED);
    assert_int_equal(beside_eight(NAN, lower, 0), CHECK_VERDICT_SKIPPED);
    assert_int_equal(beside_eight(INFINITY, higher, 0), CHECK_VERDICT_SKIPPED);
    assert_int_equal(beside_eight(-INFINITY, higher, 0), CHECK_VERDICT_FAIL);
    assert_int_equal(beside_eight(INFINITY, lower, 0), CHECK_VERDICT_FAIL);
    assert_int_equal(beside_eight(-INFINITY, lower, 0), CHECK_VERDICT_SKIPPED);
    assert_int_equal(beside_eight(-1e308, higher, 0), CHECK_VERDICT_FAIL);
    assert_int_equal(beside_eight(1e308, lower, 0), CHECK_VERDICT_FAIL);
}

/* Retransmissions: the median is 0, and no share of it means anything. */
TEST(median_of_zero)
{
    struct check_rows rows = {0};
    for (int node = 0; node < 8; node++) {
        struct check_row *row = sample_rate(&rows, node, node == 2 ? 40 : node == 5 ? 1 : 0);
        row->better = CHECK_BETTER_LOWER;
        row->slack = 3;
    }
    judge(&rows);
    for (int node = 0; node < 8; node++)
        assert_int_equal(rows.row[node].verdict,
                         node == 2 ? CHECK_VERDICT_FAIL : CHECK_VERDICT_PASS);
    check_row_free(&rows);
}

TEST(few_peers_mean_no_verdict)
{
    struct check_rows rows = {0};
    sample_rate(&rows, 0, 100);
    sample_rate(&rows, 1, 1);
    judge(&rows);
    for (int i = 0; i < rows.n; i++) {
        assert_int_equal(rows.row[i].verdict, CHECK_VERDICT_PASS);
        assert_non_null(strstr(rows.row[i].why, "too few peers"));
    }
    check_row_free(&rows);
}

/* A third value, and the other unit of the same name stays out of it. */
TEST(groups_are_names_and_units)
{
    struct check_rows rows = {0};
    for (int node = 0; node < 3; node++)
        sample_rate(&rows, node, node ? 100 : 50);
    for (int node = 0; node < 3; node++)
        strcpy(sample_rate(&rows, node, 1)->unit, "MB/s");
    strcpy(sample_rate(&rows, 0, 1)->name, "another");
    judge(&rows);
    assert_int_equal(rows.row[0].verdict, CHECK_VERDICT_FAIL);
    for (int i = 1; i < rows.n; i++)
        assert_int_equal(rows.row[i].verdict, CHECK_VERDICT_PASS);
    check_row_free(&rows);
}

/* Values that scatter by 15 %: the worst of a group is an outlier in one group of 1,000. */
TEST(a_busy_machine_is_not_blamed)
{
    enum { GROUPS = 2000 };
    for (int n = 8; n <= 128; n *= 2) {
        int alarms = 0;
        for (uint64_t round = 0; round < GROUPS; round++) {
            struct check_rows rows = {0};
            for (int node = 0; node < n; node++)
                sample_rate(&rows, node, 100 + 15 * rand_normal(3, round, (uint64_t)node));
            judge(&rows);
            alarms += check_row_worst(&rows, -1) != CHECK_VERDICT_PASS;
            check_row_free(&rows);
        }
        if (alarms > GROUPS / 250)
            fail_msg("%d alarms in %d groups of %d values", alarms, GROUPS, n);
    }
}

/* One node at half the rate of the others, which scatter by 1 %. */
TEST(half_the_rate_is_found)
{
    for (int n = 8; n <= 128; n *= 2)
        for (uint64_t round = 0; round < 100; round++) {
            struct check_rows rows = {0};
            for (int node = 0; node < n; node++)
                sample_rate(&rows, node,
                            (node == 5 ? 50 : 100) + rand_normal(4, round, (uint64_t)node));
            judge(&rows);
            for (int node = 0; node < n; node++)
                assert_int_equal(rows.row[node].verdict == CHECK_VERDICT_FAIL, node == 5);
            check_row_free(&rows);
        }
}

TEST(why_and_limit_name_the_values)
{
    struct check_rows rows = {0};
    for (int node = 0; node < 4; node++)
        strcpy(sample_rate(&rows, node, node == 2 ? 43.11 : 54.63)->why, "best of 40 slices");
    judge(&rows);
    assert_string_equal(rows.row[2].why, "43.11 GB/s; 21.1 % worse than the median of 4 peers, "
                                         "54.63 GB/s; limit 43.7 GB/s; best of 40 slices");
    assert_true(fabs(rows.row[2].limit - 0.8 * 54.63) < 1e-9);
    assert_string_equal(rows.row[1].why, "54.63 GB/s; the median of 4 peers, 54.63 GB/s; limit "
                                         "43.7 GB/s; best of 40 slices");
    assert_true(fabs(rows.row[1].limit - 0.8 * 54.63) < 1e-9);
    check_row_free(&rows);
}

/* Limits of known hardware hold for one node alone; better peers make them stricter. */
TEST(known_hardware)
{
    static const struct {
        double value;
        enum check_verdict verdict;
    } cases[] = {{800, CHECK_VERDICT_PASS}, {630, CHECK_VERDICT_WARN}, {500, CHECK_VERDICT_FAIL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct check_rows rows = {0};
        struct check_row *row = sample_rate(&rows, 0, cases[i].value);
        strcpy(row->name, "product bf16");
        strcpy(row->unit, "TFLOP/s");
        strcpy(row->hardware, "NVIDIA H100 80GB HBM3");
        judge(&rows);
        assert_int_equal(rows.row[0].verdict, cases[i].verdict);
        assert_non_null(strstr(rows.row[0].why, "expected 794.5 TFLOP/s"));
        assert_non_null(strstr(rows.row[0].why, "MAMF"));
        check_row_free(&rows);
    }
    struct check_rows rows = {0};
    for (int gpu = 0; gpu < 8; gpu++) {
        struct check_row *row = sample_rate(&rows, 0, gpu == 3 ? 700 : 790);
        strcpy(row->name, "product bf16");
        strcpy(row->unit, "TFLOP/s");
        strcpy(row->hardware, "NVIDIA H100 80GB HBM3");
    }
    judge(&rows);
    for (int gpu = 0; gpu < 8; gpu++)
        assert_int_equal(rows.row[gpu].verdict, gpu == 3 ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS);
    check_row_free(&rows);
}

/* Devices of another kind are no peers: four of each, one of the slower kind slower still. */
TEST(unlike_devices)
{
    struct check_rows rows = {0};
    for (int node = 0; node < 8; node++) {
        const bool is_old = node % 2;
        struct check_row *row = sample_rate(&rows, node, node == 3 ? 60 : is_old ? 100 : 250);
        strcpy(row->hardware, is_old ? "an old one" : "a new one");
    }
    judge(&rows);
    for (int node = 0; node < 8; node++)
        assert_int_equal(rows.row[node].verdict,
                         node == 3 ? CHECK_VERDICT_FAIL : CHECK_VERDICT_PASS);
    check_row_free(&rows);
}

/* Half of the memory may be on purpose: nobody is taken out for it. */
TEST(unlike_inventories)
{
    for (int nodes = 4; nodes <= 16; nodes *= 2) {
        struct check_rows rows = {0};
        for (int node = 0; node < nodes; node++)
            sample_rate(&rows, node, node == 2 ? 256 : 512)->stage = CHECK_STAGE_STATIC;
        judge(&rows);
        for (int node = 0; node < nodes; node++)
            assert_int_equal(rows.row[node].verdict,
                             node == 2 ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS);
        assert_non_null(strstr(rows.row[2].why, "50 % worse than the median"));
        assert_true(rows.row[2].limit == 0.8 * 512);
        check_row_free(&rows);
    }
}

static void remedy_of(enum check_scheduler scheduler, const char *name, const char *expected)
{
    struct check_rows rows = {0};
    sample_hosts(&rows, 4, scheduler);
    rows.row[2] = check_host_row(2, scheduler, name);
    for (int node = 0; node < 4; node++)
        sample_rate(&rows, node, node == 2 ? 10 : 100);
    struct check_row own =
        check_row_found(CHECK_STAGE_STATIC, CHECK_POINT_HOST, 2, "memlock", CHECK_VERDICT_FAIL,
                        "8 MB may be locked, 1 GB is needed");
    strcpy(own.remedy, "ulimit -l unlimited");
    sample_add(&rows, own);
    judge(&rows);
    assert_string_equal(rows.row[6].remedy, expected);
    assert_string_equal(rows.row[7].remedy, "");
    assert_string_equal(rows.row[8].remedy, "ulimit -l unlimited");
    check_row_free(&rows);
}

TEST(remedies)
{
    const char *others = "repair node 2, or start only the others: N_NODES=3";
    remedy_of(CHECK_SCHEDULER_KUBERNETES, "gpu-17", "kubectl cordon gpu-17");
    remedy_of(CHECK_SCHEDULER_POD, "convoy-2",
              "kubectl cordon $(kubectl get pod convoy-2 -o jsonpath={.spec.nodeName})");
    remedy_of(CHECK_SCHEDULER_SLURM, "gpu-17",
              "scontrol update NodeName=gpu-17 State=DRAIN Reason=\"convoy check: rate\"");
    remedy_of(CHECK_SCHEDULER_NONE, "rack3",
              "repair node 2, rack3, or start only the others: N_NODES=3");
    /* a name that is more than a name never reaches a command */
    remedy_of(CHECK_SCHEDULER_SLURM, "a; rm -rf /", others);
    remedy_of(CHECK_SCHEDULER_POD, "$(reboot)", others);
    remedy_of(CHECK_SCHEDULER_KUBERNETES, "--all", others);
    remedy_of(CHECK_SCHEDULER_KUBERNETES, "a\nb", others);
}

/* Of eight values; of seven, the same value is no warning. */
TEST(remedy_of_a_warning)
{
    for (int n = 7; n <= 8; n++) {
        struct check_rows rows = {0};
        for (int node = 0; node < n; node++)
            sample_rate(&rows, node, node == 2 ? 90 : 100);
        judge(&rows);
        assert_int_equal(rows.row[2].verdict, n < 8 ? CHECK_VERDICT_PASS : CHECK_VERDICT_WARN);
        assert_string_equal(rows.row[2].remedy,
                            n < 8 ? "" : "measure again: convoy check CHECK=full");
        check_row_free(&rows);
    }
}

/* 4,096 nodes with eight GPUs each; n log n, so it needs no second. */
TEST(many_nodes)
{
    struct check_rows rows = {0};
    const int64_t begin = clock_ms();
    for (int node = 0; node < 4096; node++) {
        for (int gpu = 0; gpu < 8; gpu++)
            sample_rate(&rows, node, node == 1234 && gpu == 5 ? 60 : 100);
    }
    judge(&rows);
    assert_true(clock_ms() - begin < harness_patience_ms(5000));
    int fails = 0;
    for (int i = 0; i < rows.n; i++)
        fails += rows.row[i].verdict == CHECK_VERDICT_FAIL;
    assert_int_equal(fails, 1);
    check_row_free(&rows);
    judge(&rows); /* none at all */
}

TEST(median_and_scatter)
{
    struct check_rows rows = {0};
    static const double values[] = {3, 1, NAN, 2, INFINITY, 4};
    struct check_row *list[6];
    double room[6];
    for (int i = 0; i < 6; i++)
        sample_rate(&rows, i, values[i]);
    for (int i = 0; i < 6; i++)
        list[i] = &rows.row[i];
    struct check_reference peers = check_judge_peers(list, 6, room);
    assert_int_equal(peers.n, 4);
    assert_true(peers.value == 2.5);
    assert_true(fabs(peers.scatter - 1.4826) < 1e-9);
    peers = check_judge_peers(list + 2, 1, room);
    assert_true(peers.n == 0 && isnan(peers.value));
    peers = check_judge_peers(list, 0, room);
    assert_true(peers.n == 0 && isnan(peers.value));
    check_row_free(&rows);
}

/* A slow link of a node that computes slowly says nothing; one between other nodes does. */
TEST(links_of_a_slow_core)
{
    static const char *const names[] = {"cpu quota", "core clock", "memlock"};
    static const enum check_verdict verdicts[] = {CHECK_VERDICT_FAIL, CHECK_VERDICT_WARN};
    for (int i = 0; i < 6; i++) {
        struct check_rows rows = {0};
        sample_add(&rows, check_row_found(CHECK_STAGE_NODE, CHECK_POINT_HOST, 1, names[i / 2],
                                          verdicts[i % 2], "it is so"));
        for (int link = 0; link < 2; link++) {
            struct check_row row =
                check_row_found(CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, link ? 2 : 1,
                                "link bandwidth", CHECK_VERDICT_FAIL, "it is slow");
            row.peer = 3;
            sample_add(&rows, row);
        }
        judge(&rows);
        assert_int_equal(rows.row[1].verdict,
                         i / 2 < 2 && i % 2 == 0 ? CHECK_VERDICT_SKIPPED : CHECK_VERDICT_FAIL);
        assert_int_equal(strstr(rows.row[1].why, "node 1 computes slowly") != NULL,
                         rows.row[1].verdict == CHECK_VERDICT_SKIPPED);
        assert_int_equal(rows.row[2].verdict, CHECK_VERDICT_FAIL);
        check_row_free(&rows);
    }
}

/* ---- the table of known hardware ---- */

/* Is `a` at least as good as `b`? What is not known is no contradiction. */
static bool in_order(const struct check_judge_limit *limit, double a, double b)
{
    return isnan(a) || isnan(b) || (limit->better == CHECK_BETTER_HIGHER ? a > b : a < b);
}

TEST(entries_make_sense)
{
    const struct check_row *row = NULL;
    for (int i = 0; check_judge_limit_at(i); i++) {
        const struct check_judge_limit *limit = check_judge_limit_at(i);
        assert_true(limit->source[0] && limit->fail > 0);
        assert_true(in_order(limit, limit->expected, limit->warn));
        assert_true(in_order(limit, limit->warn, limit->fail));
        assert_true(in_order(limit, limit->expected, limit->fail));
        assert_true(strlen(limit->name) < sizeof row->name);
        assert_true(strlen(limit->unit) < sizeof row->unit);
        assert_true(strlen(limit->hardware) < sizeof row->hardware);
    }
}

TEST(each_entry_is_found_once)
{
    for (int i = 0; check_judge_limit_at(i); i++) {
        const struct check_judge_limit *limit = check_judge_limit_at(i);
        if (check_judge_limit(limit->name, limit->unit, limit->hardware) != limit)
            fail_msg("%s of %s is there twice", limit->name, limit->hardware);
    }
}

TEST(unknown_hardware_has_no_limit)
{
    assert_non_null(check_judge_limit("product bf16", "TFLOP/s", "NVIDIA H200"));
    assert_null(check_judge_limit("product bf16", "TFLOP/s", "NVIDIA H200 NVL"));
    assert_null(check_judge_limit("product bf16", "GFLOP/s", "NVIDIA H200"));
    assert_null(check_judge_limit("product", "TFLOP/s", "NVIDIA H200"));
    assert_null(check_judge_limit("product bf16", "TFLOP/s", ""));
}

TEST(key_of_a_gpu)
{
    char key[32];
    check_judge_gpu("cuda 3 NVIDIA H100 80GB HBM3 sm_90 driver 13.0", key, sizeof key);
    assert_string_equal(key, "NVIDIA H100 80GB HBM3");
    check_judge_gpu("cuda 0 Tesla T4", key, sizeof key);
    assert_string_equal(key, "Tesla T4");
    check_judge_gpu("cpu", key, sizeof key);
    assert_string_equal(key, "cpu");
    check_judge_gpu("", key, sizeof key);
    assert_string_equal(key, "");
}

HARNESS_RUN_ALL()

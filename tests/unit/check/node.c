/* The node stage on CPUs: what it measures, that a node with faults is named, and that it works
 * among several ranks. */
#include "mesh/ranks.h"

#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "check/check.h"
#include "check/node/inside.h"

static const struct check_row *find(const struct check_rows *rows, const char *name,
                                    const char *subject)
{
    for (int i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].name, name) == 0 &&
            (!subject || strcmp(rows->row[i].subject, subject) == 0))
            return &rows->row[i];
    return NULL;
}

/* A tree without anything but a quota. */
static char root[600];

static void write_quota(const char *max, const char *stat)
{
    char path[700];
    text_format(root, sizeof root, "%s/root", harness_tmpdir());
    text_format(path, sizeof path, "%s/proc/self", root);
    assert_int_equal(file_make_dirs(path), ST_OK);
    text_format(path, sizeof path, "%s/proc/self/cgroup", root);
    assert_int_equal(file_replace(path, "0::/\n", 5), ST_OK);
    text_format(path, sizeof path, "%s/sys/fs/cgroup", root);
    assert_int_equal(file_make_dirs(path), ST_OK);
    text_format(path, sizeof path, "%s/sys/fs/cgroup/cpu.max", root);
    assert_int_equal(file_replace(path, max, strlen(max)), ST_OK);
    text_format(path, sizeof path, "%s/sys/fs/cgroup/cpu.stat", root);
    assert_int_equal(file_replace(path, stat, strlen(stat)), ST_OK);
}

static struct check_config config_of(enum check_depth depth, const char *dir)
{
    return (struct check_config){.place = {.ranks = 1, .nodes = 1, .locals = 1},
                                 .dev = ranks_dev(0),
                                 .depth = depth,
                                 .root = "",
                                 .dir = dir,
                                 .gpus_expected = -1};
}

static void assert_measured(const struct check_rows *rows, const char *name, const char *unit,
                            double least, double most)
{
    const struct check_row *row = find(rows, name, NULL);
    assert_non_null(row);
    assert_int_equal(row->verdict, CHECK_VERDICT_MEASURED);
    assert_int_equal(row->stage, CHECK_STAGE_NODE);
    assert_string_equal(row->unit, unit);
    if (!(row->value > least && row->value < most && row->slack > 0))
        fail_msg("%s: %g %s, slack %g", name, row->value, unit, row->slack);
}

static enum status count_progress(void *arg, enum check_stage stage, double done)
{
    double *last = arg;
    if (stage != CHECK_STAGE_NODE || !(done > *last && done <= 1))
        return FAIL(ST_BUG, "progress from %g to %g", *last, done);
    *last = done;
    return ST_OK;
}

static void measures_this_machine(void **state)
{
    struct check_rows rows = {0};
    double done = 0;
    struct check_config config = config_of(CHECK_DEPTH_STANDARD, harness_tmpdir());
    config.progress = count_progress;
    config.arg = &done;
    write_quota("max 100000\n", "throttled_usec 0\n"); /* this machine may have one */
    config.root = root;
    assert_int_equal(check_node_run(&config, 300, &rows), ST_OK);
    assert_true(done == 1);
    assert_measured(&rows, "product fp32", "GFLOP/s", 0.1, 1e6);
    assert_measured(&rows, "copy bandwidth", "GB/s", 0.1, 1e5);
    assert_measured(&rows, "triad bandwidth", "GB/s", 0.1, 1e5);
    assert_measured(&rows, "core clock", "GHz", 0.1, 10);
    assert_measured(&rows, "disk write", "MB/s", 0.01, 1e6);
    assert_int_equal(find(&rows, "core arithmetic", NULL)->verdict, CHECK_VERDICT_PASS);
    assert_non_null(find(&rows, "cpu quota", NULL));
    assert_null(find(&rows, "product bf16", NULL));
    assert_int_equal(check_row_worst(&rows, -1), CHECK_VERDICT_PASS);
    check_row_free(&rows);
}

/* The quick check is for 64 oversubscribed ranks: its processor time has a limit. */
static void quick_is_cheap(void **state)
{
    struct check_rows rows = {0};
    struct check_config config = config_of(CHECK_DEPTH_QUICK, "");
    assert_int_equal(check_node_run(&config, 1000, &rows), ST_OK); /* loads pages and kernels */
    check_row_free(&rows);
    const clock_t begin = clock();
    assert_int_equal(check_node_run(&config, 1000, &rows), ST_OK);
    const double ms = (double)(clock() - begin) * 1e3 / CLOCKS_PER_SEC;
    print_message("# a quick check took %.1f ms of processor time\n", ms);
    assert_true(ms < (double)harness_patience_ms(1000)); /* 50 to 100 where nothing else runs */
    assert_int_equal(find(&rows, "disk write", NULL)->verdict, CHECK_VERDICT_SKIPPED);
    assert_int_equal(find(&rows, "copy bandwidth", NULL)->verdict, CHECK_VERDICT_SKIPPED);
    check_row_free(&rows);
}

/* ---- several ranks ---- */

struct job {
    struct check_rows rows;
};

static enum status run_rank(struct ranks_one *one)
{
    struct job *job = one->arg;
    struct check_config config = config_of(CHECK_DEPTH_QUICK, "");
    config.comm = one->comm;
    config.place = *comm_place(one->comm);
    config.dev = one->dev;
    return check_node_run(&config, 200, &job->rows);
}

/* Two nodes of two workers: every core and device once, one disk and one quota for a node. */
static void ranks_share_the_node(void **state)
{
    struct job jobs[4] = {0};
    ranks_run(2, 2, run_rank, jobs, sizeof *jobs);
    int cores = 0;
    for (int rank = 0; rank < 4; rank++) {
        const struct check_rows *rows = &jobs[rank].rows;
        const struct check_row *product = find(rows, "product fp32", rank % 2 ? "worker 1" : NULL);
        assert_non_null(product);
        assert_int_equal(product->rank, rank);
        assert_int_equal(product->node, rank / 2);
        assert_true((find(rows, "disk write", NULL) != NULL) == (rank % 2 == 0));
        assert_true((find(rows, "cpu quota", NULL) != NULL) == (rank % 2 == 0));
        for (int i = 0; i < rows->n && rank < 2; i++)
            cores += strstr(rows->row[i].name, "core clock") != NULL;
        check_row_free(&jobs[rank].rows);
    }
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(cores, CPU_COUNT(&set));
}

/* ---- the CPU quota, in trees of the test's own ---- */

static struct check_row quota_row(const char *max, int threads, int64_t stopped_ms, int64_t of_ms)
{
    struct check_rows rows = {0};
    struct check_node_quota begin;
    char after[80];
    struct check_config config = config_of(CHECK_DEPTH_QUICK, "");
    write_quota(max, "nr_throttled 1\nthrottled_usec 1000\n");
    config.root = root;
    check_node_quota_begin(root, &begin);
    begin.at_ns = clock_ns() - of_ms * 1000000;
    text_format(after, sizeof after, "throttled_usec %lld\n", 1000 + (long long)stopped_ms * 1000);
    write_quota(max, after);
    check_node_quota_end(&config, &begin, threads, &rows);
    assert_int_equal(rows.n, 1);
    struct check_row row = rows.row[0];
    check_row_free(&rows);
    return row;
}

static void a_quota_is_named_with_its_share(void **state)
{
    struct check_row row = quota_row("max 100000\n", 4, 0, 1000000);
    assert_int_equal(row.verdict, CHECK_VERDICT_PASS);
    assert_string_equal(row.why, "there is none");
    row = quota_row("400000 100000\n", 4, 0, 1000000);
    assert_int_equal(row.verdict, CHECK_VERDICT_PASS);
    assert_true(row.value == 4);
    row = quota_row("40000 100000\n", 1, 0, 1000000); /* less than a core for its thread */
    assert_int_equal(row.verdict, CHECK_VERDICT_FAIL);
    assert_non_null(strstr(row.why, "0.40 cores for 1 threads stops this node for 60 %"));
    assert_non_null(strstr(row.remedy, "CPUQuota=100%"));
    row = quota_row("370000 100000\n", 4, 0, 1000000);
    assert_int_equal(row.verdict, CHECK_VERDICT_WARN);
    /* enough by itself, but others in the group use it up: 4 threads stood still for 1000 of 2000
     * seconds */
    row = quota_row("400000 100000\n", 4, 4000000, 2000000);
    assert_int_equal(row.verdict, CHECK_VERDICT_FAIL);
    assert_non_null(strstr(row.why, "stopped for 50 % of this check"));
}

static void the_stage_names_a_quota(void **state)
{
    struct check_rows rows = {0};
    struct check_config config = config_of(CHECK_DEPTH_QUICK, "");
    write_quota("25000 100000\n", "throttled_usec 0\n");
    config.root = root;
    assert_int_equal(check_node_run(&config, 100, &rows), ST_OK);
    assert_int_equal(find(&rows, "cpu quota", NULL)->verdict, CHECK_VERDICT_FAIL);
    assert_int_equal(check_row_worst(&rows, 0), CHECK_VERDICT_FAIL);
    check_row_free(&rows);
}

/* Cores of another kind have a name of their own. */
static void small_cores_are_compared_apart(void **state)
{
    struct check_rows rows = {0};
    cpu_set_t set;
    char path[700];
    struct check_config config = config_of(CHECK_DEPTH_QUICK, "");
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    if (CPU_COUNT(&set) < 2)
        HARNESS_SKIP("one core");
    write_quota("max 100000\n", "throttled_usec 0\n");
    for (int i = 0, seen = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &set))
            continue;
        const char *khz = seen++ == 0 ? "5000000\n" : "3800000\n";
        text_format(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cpufreq", root, i);
        assert_int_equal(file_make_dirs(path), ST_OK);
        text_format(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq",
                    root, i);
        assert_int_equal(file_replace(path, khz, strlen(khz)), ST_OK);
    }
    config.root = root;
    assert_int_equal(check_node_run(&config, 100, &rows), ST_OK);
    assert_non_null(find(&rows, "core clock", NULL));
    assert_non_null(find(&rows, "small core clock", NULL));
    check_row_free(&rows);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(measures_this_machine),   cmocka_unit_test(quick_is_cheap),
    cmocka_unit_test(ranks_share_the_node),    cmocka_unit_test(a_quota_is_named_with_its_share),
    cmocka_unit_test(the_stage_names_a_quota), cmocka_unit_test(small_cores_are_compared_apart),
};
HARNESS_MAIN(tests)

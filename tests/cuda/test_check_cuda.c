/* The node stage and the soak of `convoy check` on a GPU that the tests emulate: what they measure
 * there, and that a GPU which fails or computes wrong becomes a row. */
#ifndef CONVOY_CUDA
#include "tests/cuda/absent.h"
#else
#include "kernel_test.h"

#include "tests/cuda/rank_devices.h"

#include "check/check.h"
#include "node/check/soak.h"

static const struct check_row *find(const struct check_rows *rows, const char *name)
{
    for (int i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].name, name) == 0)
            return &rows->row[i];
    return NULL;
}

static struct check_config config_of(struct dev *dev)
{
    return (struct check_config){.place = {.ranks = 1, .nodes = 1, .locals = 1},
                                 .dev = dev,
                                 .depth = CHECK_DEPTH_QUICK,
                                 .root = "",
                                 .dir = ""};
}

static void assert_measured(const struct check_rows *rows, const char *name, const char *unit)
{
    const struct check_row *row = find(rows, name);
    if (!row)
        fail_msg("no row %s", name);
    if (row->verdict != CHECK_VERDICT_MEASURED)
        fail_msg("%s: verdict %d: %s", name, (int)row->verdict, row->why);
    assert_string_equal(row->unit, unit);
    assert_string_equal(row->subject, "GPU 0");
    assert_string_equal(row->hardware, "Emulated 0");
    assert_non_null(strstr(row->remedy, "nvidia-smi -i 0000:3b:00.0"));
    assert_true(row->value > 0);
}

static void the_node_stage_measures_a_gpu(void **state)
{
    (void)state;
    for (int is_tf32 = 0; is_tf32 < 2; is_tf32++) {
        struct dev *dev = open_device_as(is_tf32);
        struct check_rows rows = {0};
        struct check_config config = config_of(dev);
        kt_ok(check_node_run(&config, 50, &rows));
        assert_measured(&rows, is_tf32 ? "product tf32" : "product fp32", "TFLOP/s");
        assert_null(find(&rows, is_tf32 ? "product fp32" : "product tf32"));
        assert_measured(&rows, "product bf16", "TFLOP/s");
        assert_measured(&rows, "product fp16", "TFLOP/s");
        assert_measured(&rows, "copy bandwidth", "GB/s");
        assert_measured(&rows, "triad bandwidth", "GB/s");
        assert_measured(&rows, "host to device", "GB/s");
        assert_measured(&rows, "device to host", "GB/s");
        assert_int_equal(check_row_worst(&rows, -1), CHECK_VERDICT_PASS);
        check_row_free(&rows);
        dev_close(dev);
    }
}

/* A GPU that fails is a row that says so; the stage goes on with what is left. */
static void a_gpu_that_fails_is_a_row(void **state)
{
    (void)state;
    struct dev *dev = open_device();
    struct check_rows rows = {0};
    struct check_config config = config_of(dev);
    runtime_fail("cudaStreamSynchronize", 2, cudaErrorIllegalAddress);
    kt_ok(check_node_run(&config, 20, &rows));
    assert_int_equal(check_row_worst(&rows, 0), CHECK_VERDICT_FAIL);
    const struct check_row *row = find(&rows, "product fp32");
    assert_non_null(row);
    assert_int_equal(row->verdict, CHECK_VERDICT_FAIL);
    assert_non_null(strstr(row->why, "cannot be measured"));
    assert_non_null(find(&rows, "core clock"));
    check_row_free(&rows);
    dev_close(dev);
}

/* ---- ranks with a GPU each ---- */

struct job {
    struct check_rows rows;
    enum check_soak_flip flip;
};

static enum status node_rank(struct ranks_one *one)
{
    struct job *job = one->arg;
    struct check_config config = config_of(one->dev);
    config.comm = one->comm;
    config.place = *comm_place(one->comm);
    return check_node_run(&config, 20, &job->rows);
}

static enum status soak_rank(struct ranks_one *one)
{
    struct job *job = one->arg;
    struct check_config check = config_of(one->dev);
    check.comm = one->comm;
    check.place = *comm_place(one->comm);
    const struct check_soak_config config = {
        .check = &check, .dtype = DTYPE_BF16, .flip = job->flip};
    return check_soak_run(&config, 0, &job->rows);
}

static void gpus_of_a_node_take_turns(void **state)
{
    (void)state;
    struct job jobs[2] = {0};
    ranks_run(1, 2, node_rank, jobs, sizeof *jobs);
    for (int rank = 0; rank < 2; rank++) {
        const struct check_row *row = find(&jobs[rank].rows, "host to device");
        assert_non_null(row);
        assert_string_equal(row->subject, rank ? "GPU 1" : "GPU 0");
        check_row_free(&jobs[rank].rows);
    }
}

static void a_soak_of_gpus_names_the_wrong_one(void **state)
{
    (void)state;
    for (int is_wrong = 0; is_wrong < 2; is_wrong++) {
        struct job jobs[2] = {0};
        jobs[1].flip = is_wrong ? CHECK_SOAK_FLIP_ALONE : CHECK_SOAK_FLIP_NONE;
        ranks_run(1, 2, soak_rank, jobs, sizeof *jobs);
        const struct check_row *row = find(&jobs[1].rows, "silent corruption");
        assert_true((row != NULL) == (is_wrong == 1));
        /* the bit is too low for the 16-bit weights of the passes, so weights show it first */
        if (row && !strstr(row->why, "rank 1, GPU 1: wte.weight after step 2 differed"))
            fail_msg("%s", row->why);
        assert_null(find(&jobs[0].rows, "silent corruption"));
        assert_int_equal(find(&jobs[0].rows, "training in a node")->verdict, CHECK_VERDICT_PASS);
        assert_int_equal(find(&jobs[0].rows, "model distribution")->verdict, CHECK_VERDICT_PASS);
        for (int rank = 0; rank < 2; rank++)
            check_row_free(&jobs[rank].rows);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_node_stage_measures_a_gpu),
    cmocka_unit_test(a_gpu_that_fails_is_a_row),
    cmocka_unit_test(gpus_of_a_node_take_turns),
    cmocka_unit_test(a_soak_of_gpus_names_the_wrong_one),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    rank_devices_open();
    int failed = cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
    rank_devices_close();
    return failed;
}
#endif

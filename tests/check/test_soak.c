/* The soak: on one rank and several it passes where nothing is wrong; a flipped bit is found, and
 * its rank named; a checkpoint survives the death of its writer. */
#include "mesh/ranks.h"

#include "node/check/soak.h"
#include "node/check/soak_train.h"

static const struct check_row *find(const struct check_rows *rows, const char *name)
{
    for (int i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].name, name) == 0)
            return &rows->row[i];
    return NULL;
}

static void assert_verdict(const struct check_rows *rows, const char *name,
                           enum check_verdict verdict, enum check_point point)
{
    const struct check_row *row = find(rows, name);
    if (!row)
        fail_msg("no row %s", name);
    if (row->verdict != verdict || row->point != point || row->stage != CHECK_STAGE_SOAK)
        fail_msg("%s: verdict %d, point %d: %s", name, (int)row->verdict, (int)row->point,
                 row->why);
}

struct job {
    struct check_rows rows;
    enum check_soak_flip flip;
    enum check_depth depth;
    int64_t ms;
    const char *dir;
};

static enum status run_rank(struct ranks_one *one)
{
    struct job *job = one->arg;
    const struct check_config check = {.comm = one->ranks > 1 ? one->comm : NULL,
                                       .place = *comm_place(one->comm),
                                       .dev = one->dev,
                                       .depth = job->depth,
                                       .root = "",
                                       .dir = job->dir ? job->dir : ""};
    const struct check_soak_config config = {.check = &check, .flip = job->flip};
    return check_soak_run(&config, job->ms, &job->rows);
}

#ifdef __SANITIZE_THREAD__
#define CAN_FORK false /* its runtime starts no threads in a forked process */
#else
#define CAN_FORK true
#endif

TEST(one_rank_passes)
{
    struct job job = {.dir = CAN_FORK ? harness_tmpdir() : "", .ms = 50};
    ranks_run(1, 1, run_rank, &job, sizeof job);
    assert_verdict(&job.rows, "training alone", CHECK_VERDICT_PASS, CHECK_POINT_ONE_DEVICE);
    assert_verdict(&job.rows, "training in a node", CHECK_VERDICT_SKIPPED, CHECK_POINT_ONE_NODE);
    assert_verdict(&job.rows, "training over nodes", CHECK_VERDICT_SKIPPED, CHECK_POINT_MANY_NODES);
    assert_verdict(&job.rows, "checkpoint and restart",
                   CAN_FORK ? CHECK_VERDICT_PASS : CHECK_VERDICT_SKIPPED, CHECK_POINT_CHECKPOINT);
    assert_int_equal(check_row_worst(&job.rows, -1), CHECK_VERDICT_PASS);
    assert_int_equal(harness_entries(harness_tmpdir()), 0);
    check_row_free(&job.rows);
}

/* Every point of the list has its row, once, on rank 0. */
TEST(ranks_of_two_nodes_pass)
{
    struct job jobs[4] = {0};
    ranks_run(2, 2, run_rank, jobs, sizeof *jobs);
    const struct check_rows *rows = &jobs[0].rows;
    assert_verdict(rows, "training alone", CHECK_VERDICT_PASS, CHECK_POINT_ONE_DEVICE);
    assert_verdict(rows, "training in a node", CHECK_VERDICT_PASS, CHECK_POINT_ONE_NODE);
    assert_verdict(rows, "training over nodes", CHECK_VERDICT_PASS, CHECK_POINT_MANY_NODES);
    assert_verdict(rows, "data partitioning", CHECK_VERDICT_PASS, CHECK_POINT_PARTITIONING);
    assert_verdict(rows, "model distribution", CHECK_VERDICT_PASS, CHECK_POINT_DISTRIBUTION);
    assert_verdict(rows, "checkpoint and restart", CHECK_VERDICT_SKIPPED, CHECK_POINT_CHECKPOINT);
    assert_int_equal(rows->n, 6);
    for (int rank = 1; rank < 4; rank++)
        assert_int_equal(jobs[rank].rows.n, 0);
    check_row_free(&jobs[0].rows);
}

/* ---- flipped bits ---- */

static void assert_named(struct job *jobs, int ranks, int wrong, const char *what)
{
    int fails = 0;
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < jobs[rank].rows.n; i++) {
            const struct check_row *row = &jobs[rank].rows.row[i];
            if (row->verdict != CHECK_VERDICT_FAIL)
                continue;
            fails++;
            assert_string_equal(row->name, "silent corruption");
            if (row->rank != wrong || !strstr(row->why, what))
                fail_msg("rank %d instead of %d, or not %s: %s", row->rank, wrong, what, row->why);
            assert_true(row->remedy[0] != 0);
        }
    assert_int_equal(fails, 1);
    for (int rank = 0; rank < ranks; rank++)
        check_row_free(&jobs[rank].rows);
}

/* Another result of the same steps names the device and what differed first: the weight's bit
 * changed between two steps, so the next step's loss is the first to show it. */
TEST(a_flip_between_rounds_names_the_device)
{
    struct job jobs[4] = {0};
    jobs[2].flip = CHECK_SOAK_FLIP_ALONE;
    ranks_run(2, 2, run_rank, jobs, sizeof *jobs);
    /* the loss, or where its rounding hides so small a difference, a gradient */
    assert_named(jobs, 4, 2, " step 2 differed when the same steps were repeated");
    struct job one = {.flip = CHECK_SOAK_FLIP_ALONE};
    ranks_run(1, 1, run_rank, &one, sizeof one);
    assert_named(&one, 1, 0, " step 2 differed when the same steps were repeated");
}

/* A device that computes wrong in the same way each time differs from others of its kind. */
TEST(a_flip_in_each_round_names_the_device)
{
    struct job jobs[4] = {0};
    jobs[1].flip = CHECK_SOAK_FLIP_ALWAYS;
    ranks_run(2, 2, run_rank, jobs, sizeof *jobs);
    assert_named(jobs, 4, 1, "other results than on most of 3 devices of its kind");
}

TEST(a_flip_among_replicas_names_the_rank)
{
    struct job jobs[4] = {0};
    for (int rank = 0; rank < 4; rank += 3) {
        memset(jobs, 0, sizeof jobs);
        jobs[rank].flip = CHECK_SOAK_FLIP_GROUP;
        ranks_run(4, 1, run_rank, jobs, sizeof *jobs);
        assert_named(jobs, 4, rank, "most replicas of the model have other");
    }
}

/* Two workers of a node differ, and four of two nodes have a majority. */
TEST(all_nodes_name_what_a_node_cannot)
{
    struct job jobs[4] = {0};
    jobs[2].flip = CHECK_SOAK_FLIP_GROUP;
    ranks_run(2, 2, run_rank, jobs, sizeof *jobs);
    assert_named(jobs, 4, 2, "most replicas of the model have other");
}

/* A wrong gradient is in the sum that all replicas take: they agree, and no node is named where
 * there are several. */
TEST(a_wrong_gradient_names_no_node_of_several)
{
    for (int nodes = 1; nodes <= 2; nodes++) {
        struct job jobs[2] = {{.flip = CHECK_SOAK_FLIP_NONE}, {.flip = CHECK_SOAK_FLIP_GRADIENT}};
        ranks_run(nodes, 2 / nodes, run_rank, jobs, sizeof *jobs);
        const struct check_row *row = find(&jobs[0].rows, "silent corruption");
        assert_non_null(row);
        assert_int_equal(row->verdict, CHECK_VERDICT_FAIL);
        if (row->node != (nodes == 1 ? 0 : -1) || row->rank != -1)
            fail_msg("node %d of %d, rank %d: %s", row->node, nodes, row->rank, row->why);
        assert_true((strstr(row->remedy, "half of the nodes") != NULL) == (nodes == 2));
        assert_null(find(&jobs[1].rows, "silent corruption"));
        for (int rank = 0; rank < 2; rank++)
            check_row_free(&jobs[rank].rows);
    }
}

/* ---- processors of several kinds ---- */

static int lowest;
static struct dev *mixed_dev(int rank)
{
    static struct dev *devs[2][RANKS_MAX];
    struct dev **dev = &devs[lowest == CPU_ISA_V2][rank];
    if (!*dev && dev_cpu_open(1 + rank % 2, rank == 0 ? lowest : CPU_ISA_N, dev) != ST_OK)
        assert_int_equal(dev_cpu_open(1, CPU_ISA_N, dev), ST_OK);
    return *dev;
}

/* They compute other numbers, and that is no corruption. Their replicas have equal weights where
 * all of them multiply and add in one rounding; else they drift apart, which is a warning. */
TEST(processors_may_differ)
{
    for (int i = 0; i < 2; i++) {
        struct job jobs[4] = {0};
        struct dev_info info;
        lowest = i == 0 ? CPU_ISA_V3 : CPU_ISA_V2;
        ranks_own_dev = mixed_dev;
        dev_info(mixed_dev(1), &info);
        ranks_run(4, 1, run_rank, jobs, sizeof *jobs);
        ranks_own_dev = NULL;
        bool drifts = i == 1 && (strstr(info.name, "avx") || strstr(info.name, "amx"));
        assert_verdict(&jobs[0].rows, "training over nodes",
                       drifts ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS, CHECK_POINT_MANY_NODES);
        assert_null(find(&jobs[0].rows, "silent corruption"));
        for (int rank = 0; rank < 4; rank++)
            check_row_free(&jobs[rank].rows);
    }
}

/* ---- pure parts ---- */

TEST(samples_are_counted)
{
    const uint64_t wanted[] = {40, 10, 30, 20}, same[] = {10, 20, 30, 40},
                   twice[] = {10, 20, 20, 40}, other[] = {10, 20, 30, 41};
    assert_int_equal(check_soak_train_lost(same, wanted, 4), -1);
    assert_int_equal(check_soak_train_lost(twice, wanted, 4), 2);
    assert_int_equal(check_soak_train_lost(other, wanted, 4), 0);
}

/* A folder in which nothing can be written is a row, and nothing stays there. */
TEST(a_bad_folder_fails_the_restart)
{
    const struct model_dims dims = {
        .name = "tiny", .layers = 1, .heads = 2, .embed = 16, .context = 8, .vocab = 40};
    const struct check_config check = {.dir = "/proc", .root = ""};
    struct check_rows rows = {0};
    assert_int_equal(check_soak_restart(&check, &dims, &rows), ST_OK);
    assert_int_equal(rows.n, 1);
    assert_int_equal(rows.row[0].verdict, CHECK_VERDICT_FAIL);
    assert_non_null(strstr(rows.row[0].why, "/proc"));
    check_row_free(&rows);
}

HARNESS_RUN_ALL()

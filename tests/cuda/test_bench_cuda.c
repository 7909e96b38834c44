/* The kernels' benchmark (tests/gpu/gpu_bench.c) with the smallest sizes, without a GPU: every row
 * is measured and none refused, a name picks rows, and each figure that was predicted
 * (tests/gpu/predicted.tsv) has its row. */
#include "kernel_test.h"

#include "tests/cuda/guarded.h"

#define BENCH_DRY
#include "tests/gpu/gpu_bench.c"

#define ROWS 400

static char rows[ROWS][160];
static int rows_n;

/* output — what real_bench prints, a line a row. */
static void output(const char *only)
{
    FILE *file = tmpfile();
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_true(file != NULL && saved >= 0);
    use_fake();
    dup2(fileno(file), STDOUT_FILENO);
    int rc = real_bench(only);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(rc, 0);
    rewind(file);
    for (rows_n = 0; rows_n < ROWS && fgets(rows[rows_n], sizeof *rows, file);)
        rows_n += rows[rows_n][0] != '#';
    fclose(file);
    assert_int_equal(runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
}

static bool has_row(const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < rows_n; i++)
        if (strncmp(rows[i], name, n) == 0 && rows[i][n] == '\t')
            return true;
    return false;
}

TEST(every_row_is_measured)
{
    output(NULL);
    assert_true(rows_n > 60);
    for (int i = 0; i < rows_n; i++)
        if (strstr(rows[i], "refused"))
            fail_msg("%s", rows[i]);
}

/* Figures of the program's runs and times of its steps are not of this table. */
TEST(predicted_figures_have_a_row)
{
    char line[256];
    int found = 0;
    FILE *file = fopen("tests/gpu/predicted.tsv", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char *end = strchr(line, '\t');
        if (line[0] == '#' || !end || strncmp(line, "time ", 5) == 0 || strstr(line, "gpt2"))
            continue;
        *end = 0;
        if (!has_row(line))
            fail_msg("predicted, but not measured: %s", line);
        found++;
    }
    fclose(file);
    assert_true(found > 20);
}

TEST(a_name_picks_rows)
{
    output("attention_bwd");
    assert_int_equal(rows_n, 1 + 4); /* the copy; D 64 and 128, the program's way and its own */
    assert_true(has_row("copy") && has_row("own attention_bwd B64 H12 T1024 D64 bf16"));
}

HARNESS_RUN_ALL()

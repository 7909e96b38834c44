/* metrics_file — lines have their format, a file is truncated exactly, and other files stay
 * unharmed. */
#include "harness.h"

#include "train/trainer/metrics_file.h"

static const char *path(const char *name)
{
    static char out[600];
    text_format(out, sizeof out, "%s/%s", harness_tmpdir(), name);
    return out;
}

static void fill(struct metrics_file *file, int64_t first, int64_t last)
{
    for (int64_t step = first; step <= last; step++)
        metrics_file_step(file, &(struct metrics_file_step){
                                    .step = step, .loss = 0.1 * (double)step, .lr = 1e-3});
}

static void assert_content(const char *name, const char *want)
{
    char *data;
    size_t bytes;
    assert_int_equal(file_read(path(name), 1 << 20, &data, &bytes), ST_OK);
    assert_string_equal(data, want);
    free(data);
}

TEST(test_lines)
{
    struct metrics_file file;
    assert_int_equal(metrics_file_open(path("lines"), 0, &file), ST_OK);
    metrics_file_step(&file, &(struct metrics_file_step){.step = 1,
                                                         .epoch = 0,
                                                         .loss = 0.1,
                                                         .grad_norm = 2,
                                                         .lr = 3e-4,
                                                         .tokens = 32,
                                                         .step_ms = 1.23456});
    metrics_file_step(&file,
                      &(struct metrics_file_step){
                          .step = 2, .loss = NAN, .grad_norm = INFINITY, .lr = 3e-4, .trained = 9});
    metrics_file_eval(&file, 2, 4.5, NAN);
    metrics_file_eval(&file, 2, 4.5, 0.25);
    metrics_file_close(&file);
    metrics_file_close(&file);
    assert_content("lines",
                   "{\"step\":1,\"epoch\":0,\"loss\":0.1,\"grad_norm\":2,\"lr\":0.0003,"
                   "\"tokens\":32,\"step_ms\":1.235}\n"
                   "{\"step\":2,\"epoch\":0,\"loss\":null,\"grad_norm\":null,\"lr\":0.0003,"
                   "\"tokens\":0,\"trained_tokens\":9,\"step_ms\":0.000}\n"
                   "{\"step\":2,\"val_loss\":4.5}\n"
                   "{\"step\":2,\"val_loss\":4.5,\"val_accuracy\":0.25}\n");
}

TEST(test_off)
{
    struct metrics_file file;
    assert_int_equal(metrics_file_open("", 0, &file), ST_OK);
    fill(&file, 1, 3);
    metrics_file_eval(&file, 3, 1, NAN);
    metrics_file_close(&file);
}

TEST(test_cut_back)
{
    struct metrics_file file;
    metrics_file_open(path("cut"), 0, &file);
    fill(&file, 1, 9);
    metrics_file_close(&file);
    int64_t whole = file_bytes(path("cut"));
    metrics_file_open(path("cut"), 9, &file);
    metrics_file_close(&file);
    assert_int_equal(file_bytes(path("cut")), whole);
    metrics_file_open(path("cut"), 4, &file);
    fill(&file, 5, 9);
    metrics_file_close(&file);
    assert_int_equal(file_bytes(path("cut")), whole);
    metrics_file_open(path("cut"), 0, &file);
    metrics_file_close(&file);
    assert_int_equal(file_bytes(path("cut")), 0);
}

/* A second run is refused while the first has the file, and finds all lines as they were. */
TEST(test_two_runs)
{
    struct metrics_file one, two;
    assert_int_equal(metrics_file_open(path("two"), 0, &one), ST_OK);
    fill(&one, 1, 9);
    const int64_t whole = file_bytes(path("two"));
    assert_int_equal(metrics_file_open(path("two"), 0, &two), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "in use by another run"));
    assert_int_equal(file_bytes(path("two")), whole);
    metrics_file_close(&two);
    metrics_file_close(&one);
    assert_int_equal(metrics_file_open(path("two"), 4, &two), ST_OK);
    metrics_file_close(&two);
    assert_true(file_bytes(path("two")) < whole);
}

/* keep — the result of metrics_file_keep; -1: not a metrics file. */
static long keep(const char *text, int64_t step)
{
    size_t out;
    return metrics_file_keep(text, strlen(text), step, &out) ? (long)out : -1;
}

TEST(test_keep)
{
    const char *two = "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":1}\n";
    assert_int_equal(keep("", 5), 0);
    assert_int_equal(keep(two, 0), 0);
    assert_int_equal(keep(two, 1), 17);
    assert_int_equal(keep(two, 2), 34);
    /* cut within a line */
    assert_int_equal(keep("{\"step\":1,\"a\":1}\n{\"step\":2,\"a\"", 9), 17);
    assert_int_equal(keep("{\"st", 9), 0);
    /* mended after a full disk */
    assert_int_equal(keep("{\"step\":1,\"a\":1}\n{\"ste\n{\"step\":2}\n", 9), 34);
    assert_int_equal(keep("dear diary\n", 9), -1);
    assert_int_equal(keep("\n", 9), -1);
    assert_int_equal(keep("{\"other\":1}\n", 9), -1);
    assert_int_equal(keep("{\"step\":99999999999999999999999,\"a\":1}\n", 9), -1);
    assert_int_equal(keep("{\"step\":-1,\"a\":1}\n", 9), -1);
}

/* Every prefix of a file is accepted and keeps whole lines only. */
TEST(test_keep_every_prefix)
{
    const char *text = "{\"step\":1,\"a\":1}\n{\"step\":1,\"val_loss\":2}\n{\"step\":2,\"a\":1}\n";
    for (size_t n = 0; n <= strlen(text); n++) {
        size_t out = 99;
        assert_true(metrics_file_keep(text, n, 2, &out));
        assert_true(out <= n);
        assert_true(out == 0 || text[out - 1] == '\n');
    }
}

TEST(test_refusals)
{
    struct metrics_file file;
    assert_int_equal(file_replace(path("diary"), "dear diary\n", 11), ST_OK);
    assert_int_equal(metrics_file_open(path("diary"), 0, &file), ST_BAD_SETTING);
    assert_content("diary", "dear diary\n");
    assert_int_equal(metrics_file_open(path("no/such/folder"), 0, &file), ST_BAD_SETTING);
    assert_int_equal(metrics_file_open(harness_tmpdir(), 0, &file), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), harness_tmpdir()));
}

TEST(test_full_disk)
{
    struct metrics_file file;
    assert_int_equal(metrics_file_open("/dev/full", 0, &file), ST_OK);
    fill(&file, 1, 5);
    assert_int_equal(file.lost, 5);
    metrics_file_close(&file);
}

HARNESS_RUN_ALL()

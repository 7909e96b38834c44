/* `gpu_tests tune` (tests/gpu/gpu_tune.c) with a small model and times that the test makes up,
 * without a GPU: the entries that it writes are found again, and name what was the fastest. */
#include "kernel_test.h"

#include "tests/cuda/guarded.h"

#define TUNE_DRY
#define MEMORY_BYTES ((size_t)1 << 20)
struct blas_form;
struct products_config;
static bool tune_model(int i, struct products_config *c);
static double tune_ms(const struct blas_form *form);
#include "tests/gpu/gpu_tune.c"

#define FASTEST 1 /* of the library's three */

static bool tune_model(int i, struct products_config *c)
{
    *c = (struct products_config){.dims = {.embed = 16, .vocab = 40},
                                  .dtype = DTYPE_BF16,
                                  .n = 8,
                                  .logits_rows = 8,
                                  .logits_stride = 64};
    return i == 0;
}

/* Runs the form, and sees which algorithm it took. GELU in the forward epilogue is slow. */
static double tune_ms(const struct blas_form *form)
{
    bool is_done = false;
    fake_count();
    kt_ok(blas_form_run(tune.blas, &tune.cuda, form, &is_done));
    assert_true(is_done);
    double ms = fake_counted(FAKE_CHOSEN + FASTEST) ? 1 : 2;
    return form->call.shape.epilogue == BLAS_GELU_AUX_BIAS ? ms + 5 : ms;
}

static char *slurp(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

/* The number of an algorithm of the tests' library, as fake_blas.c lays it out. */
static int number_of(const struct blas_tuned *tuned)
{
    uint16_t number;
    memcpy(&number, tuned->algo + 20, sizeof number);
    return number;
}

TEST(entries_name_the_fastest)
{
    static struct products products;
    struct blas_form form[BLAS_FORMS];
    struct blas_tuned found;
    struct products_config c;
    char path[] = "/tmp/convoy-tune-XXXXXX";
    int file = mkstemp(path), entries = 0;
    assert_true(file >= 0);
    close(file);
    dev_close(open_device()); /* the launchers of the emulation, and the tests' library */
    assert_int_equal(real_tune(path), 0);
    char *table = slurp(path);
    unlink(path);
    assert_true(tune_model(0, &c));
    products_of(&c, &products);
    for (int i = 0; i < products.n; i++) {
        int n = products_forms(&products.list[i], false, form);
        bool is_slow = form[0].call.shape.epilogue == BLAS_GELU_AUX_BIAS;
        if (!blas_tuned_find(table, &tune.chip, 130002, &form[0].call.shape, &found))
            fail_msg("no entry for %s", products.list[i].name);
        assert_int_equal(found.is_apart, is_slow);
        assert_true(is_slow || number_of(&found) == FASTEST);
        entries++;
        if (!is_slow)
            continue;
        assert_int_equal(n, 2);
        assert_true(blas_tuned_find(table, &tune.chip, 130002, &form[1].call.shape, &found));
        assert_false(found.is_apart);
        assert_int_equal(number_of(&found), FASTEST);
    }
    assert_true(entries > 15);
    assert_int_equal(runtime.blocks_n + runtime.streams_n, 0);
}

TEST(a_file_is_needed)
{
    assert_int_equal(real_tune(NULL), 64);
    assert_int_equal(real_tune("/nonexistent/file"), 64);
}

HARNESS_RUN_ALL()

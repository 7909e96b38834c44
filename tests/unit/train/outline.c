/* outline — what a model or an adapter is, without its weights: of every kind of model, written and
 * read again; what differs is told with both checksums. */
#include "harness.h"

#include "base/file.h"
#include "train/weights/adapter.h"
#include "train/weights/outline.h"
#include "train/weights/weights.h"

#define DIR "tests/golden/hf_export/"

static char folder[FILE_PATH_MAX];

/* put — writes the outline into an empty folder. */
static void put(const struct outline *outline)
{
    char path[FILE_PATH_MAX];
    struct text text = {0};
    text_format(folder, sizeof(folder), "%s/outline", harness_tmpdir());
    assert_int_equal(file_make_dirs(folder), ST_OK);
    assert_int_equal(file_join(path, sizeof(path), folder, OUTLINE_FILE), ST_OK);
    assert_int_equal(outline_write(outline, &text), ST_OK);
    assert_int_equal(file_replace(path, text.data, text.len), ST_OK);
    text_free(&text);
}

TEST(every_kind_of_model_has_one)
{
    static const char *const models[] = {DIR "lm", DIR "lm_f32.bin", "tests/golden/qa",
                                         "tests/golden/llama"};
    struct outline outline, again;
    struct model_dims dims;
    char how[512];
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        assert_int_equal(outline_of_model(models[i], &outline), ST_OK);
        assert_true(outline.sum != 0);
        put(&outline);
        assert_true(outline_is_at(folder) && weights_are_at(folder));
        assert_false(weights_are_ckpt(folder));
        assert_int_equal(outline_read(folder, &again), ST_OK);
        assert_true(outline_is_same(&outline, 0, &again, 1, how, sizeof(how)));
        /* It stands for the model, but has no weights. */
        assert_int_equal(weights_dims(folder, &dims), ST_OK);
        assert_int_equal(dims.layers, outline.dims.layers);
        assert_string_equal(dims.name, outline.dims.name);
        struct param_table table;
        struct weights *weights = NULL;
        assert_int_equal(model_ops(&dims)->describe(&dims, &table), ST_OK);
        assert_int_not_equal(weights_open(folder, &table, false, &weights), ST_OK);
        param_table_free(&table);
        status_clear();
    }
}

TEST(what_differs_is_told)
{
    struct outline one, other;
    char how[512];
    assert_int_equal(outline_of_model(DIR "lm", &one), ST_OK);
    other = one;
    text_copy(other.dims.name, sizeof(other.dims.name), "copy"); /* names may differ */
    assert_true(outline_is_same(&one, 0, &other, 1, how, sizeof(how)));
    other.sum = one.sum ^ 1;
    assert_false(outline_is_same(&one, 0, &other, 3, how, sizeof(how)));
    char sums[2][40];
    text_format(sums[0], 40, "%016llx on node 0", (unsigned long long)one.sum);
    text_format(sums[1], 40, "%016llx on node 3", (unsigned long long)other.sum);
    assert_true(strstr(how, sums[0]) != NULL && strstr(how, sums[1]) != NULL);
    other.sum = 0; /* a resumed run needs no weights */
    assert_true(outline_is_same(&one, 0, &other, 1, how, sizeof(how)));
    other.dims.layers = 1;
    assert_false(outline_is_same(&one, 0, &other, 1, how, sizeof(how)));
    assert_non_null(strstr(how, "2 layers"));
    assert_non_null(strstr(how, "1 layers"));
    assert_non_null(strstr(how, "on node 1"));
}

TEST(weights_that_change_have_another_sum)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], *bytes;
    size_t n;
    struct outline before, after;
    text_format(dir, sizeof(dir), "%s/lm", harness_tmpdir());
    assert_int_equal(file_make_dirs(dir), ST_OK);
    static const char *const files[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(file_join(path, sizeof(path), "tests/golden/lm", files[i]), ST_OK);
        assert_int_equal(file_read(path, 1 << 24, &bytes, &n), ST_OK);
        assert_int_equal(file_join(path, sizeof(path), dir, files[i]), ST_OK);
        assert_int_equal(file_replace(path, bytes, n), ST_OK);
        if (i == 0)
            free(bytes);
    }
    assert_int_equal(outline_of_model(dir, &before), ST_OK);
    bytes[n - 1] ^= 1;
    assert_int_equal(file_replace(path, bytes, n), ST_OK);
    assert_int_equal(outline_of_model(dir, &after), ST_OK);
    assert_true(before.sum != after.sum);
    unlink(path); /* as after a run that has checkpoints */
    assert_int_equal(outline_of_model(dir, &after), ST_OK);
    assert_int_equal(after.sum, 0);
    free(bytes);
}

TEST(an_adapter_has_one)
{
    struct outline outline, again;
    struct model_adapter adapter;
    struct model_dims base;
    assert_int_equal(weights_dims(DIR "lm", &base), ST_OK);
    outline = (struct outline){.dims = base, .sum = 7};
    outline.dims.adapter = (struct model_adapter){.r = 4, .alpha = 8, .targets = MODEL_TARGETS_MLP};
    put(&outline);
    assert_int_equal(adapter_dims(folder, &base, &adapter), ST_OK);
    assert_true(adapter.r == 4 && adapter.alpha == 8 && adapter.targets == MODEL_TARGETS_MLP);
    assert_int_equal(outline_read(folder, &again), ST_OK);
    char how[512];
    assert_true(outline_is_same(&outline, 0, &again, 1, how, sizeof(how)));
    again.dims.adapter.r = 8;
    assert_false(outline_is_same(&outline, 0, &again, 1, how, sizeof(how)));
    assert_int_equal(adapter_dims("tests/nothing", &base, &adapter), ST_NO_INPUT);
    assert_int_equal(outline_of_adapter("tests/nothing", &base, &again), ST_NO_INPUT);
    status_clear();
}

TEST(other_bytes_are_refused)
{
    static const char *const bodies[] = {
        "",
        "{}",
        "null",
        "[1]",
        "{\"outline\":2,\"sum\":\"0000000000000001\",\"dims\":{}}",
        "{\"outline\":1,\"sum\":\"1\",\"dims\":{}}",
        "{\"outline\":1,\"sum\":\"0000000000000001\"}",
        "{\"outline\":1,\"sum\":\"0000000000000001\",\"dims\":[]}",
        "{\"outline\":1,\"sum\":\"0000000000000001\",\"dims\":{\"name\":\"x\",\"task\":\"lm\","
        "\"layers\":-1,\"heads\":1,\"embed\":8,\"context\":8,\"vocab\":8}}"};
    struct outline outline, whole;
    struct text text = {0};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        assert_int_equal(outline_parse(bodies[i], strlen(bodies[i]), "outline", &outline),
                         ST_BAD_DATA);
    assert_int_equal(outline_of_model(DIR "lm", &whole), ST_OK);
    assert_int_equal(outline_write(&whole, &text), ST_OK);
    for (size_t n = 0; n + 2 < text.len; n++)
        assert_int_equal(outline_parse(text.data, n, "outline", &outline), ST_BAD_DATA);
    text_free(&text);
    status_clear();
}

HARNESS_RUN_ALL()

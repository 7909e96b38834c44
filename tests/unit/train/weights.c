/* weights — dimensions and parameters of every kind of model at a path; a checkpoint by its
 * own path, or as the newest of its folder. */
#include "harness.h"

#include "ckpt_sample.h"
#include "conf/conf.h"
#include "node/command.h"
#include "train/weights/weights.h"

#define DIR "tests/golden/hf_export/"

TEST(test_dims)
{
    static const struct {
        const char *path, *name;
        enum model_task task;
    } list[] = {{DIR "lm", "lm", MODEL_TASK_LM},
                {DIR "qa/", "qa", MODEL_TASK_QA},
                {DIR "lm_f32.bin", "lm_f32.bin", MODEL_TASK_LM}};
    struct model_dims dims;
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        assert_true(weights_are_at(list[i].path));
        assert_int_equal(weights_dims(list[i].path, &dims), ST_OK);
        assert_string_equal(dims.name, list[i].name);
        assert_true(dims.task == list[i].task && dims.layers == 2 && dims.heads == 3 &&
                    dims.embed == 12);
        assert_true(dims.context == 24 && dims.vocab == 31);
    }
    assert_false(weights_are_at("tests/golden") || weights_are_at("tests/nothing") ||
                 weights_are_at(""));
    assert_int_equal(weights_dims("tests/nothing", &dims), ST_NO_INPUT);
    assert_int_equal(weights_dims("README.md", &dims), ST_BAD_DATA);
}

/* load — into host memory, over values that show what stays unchanged. */
static float *load(const char *path, enum model_task task, struct param_table *table)
{
    struct model_dims dims;
    assert_int_equal(weights_dims(path, &dims), ST_OK);
    dims.task = task;
    assert_int_equal(model_ops(&dims)->describe(&dims, table), ST_OK);
    float *data = malloc((size_t)table->total_elems * sizeof *data);
    for (int64_t i = 0; i < table->total_elems; i++)
        data[i] = 77;
    const struct load_target to = {.table = table, .data = {data, DTYPE_F32}};
    assert_int_equal(weights_load(path, &to), ST_OK);
    return data;
}

TEST(test_load)
{
    for (int task = 0; task < 2; task++) {
        struct param_table a_table, b_table;
        float *a = load(DIR "lm", (enum model_task)task, &a_table),
              *b = load(DIR "lm_f32.bin", (enum model_task)task, &b_table);
        assert_memory_equal(a, b, (size_t)a_table.total_elems * sizeof *a);
        /* a language model has no head for question answering */
        for (int i = 0; i < a_table.params_n; i++)
            assert_int_equal(a[a_table.param[i].offset] == 77,
                             text_starts(a_table.param[i].name, "qa_outputs."));
        free(a);
        free(b);
        param_table_free(&a_table);
        param_table_free(&b_table);
    }
}

TEST(test_checkpoint)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct ckpt_lock *lock;
    struct ckpt *ckpt;
    struct model_dims dims;
    text_format(dir, sizeof(dir), "%s/run", harness_tmpdir());
    assert_int_equal(weights_checkpoint(dir, &ckpt, &dims), ST_NO_INPUT);
    assert_non_null(strstr(status_message(), "does not exist"));
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(weights_checkpoint(dir, &ckpt, &dims), ST_NO_INPUT);
    assert_int_equal(sample_save(lock, 7, 0, path), ST_OK); /* whose model is none of ours */
    assert_int_equal(weights_checkpoint(dir, &ckpt, &dims), ST_BAD_DATA);
    struct ckpt_meta meta = {.settings_json = "{}", .step = 8};
    const struct model_dims want = {.name = "m",
                                    .task = MODEL_TASK_QA,
                                    .layers = 1,
                                    .heads = 2,
                                    .embed = 4,
                                    .context = 8,
                                    .vocab = 16};
    const float data[4] = {0};
    const struct safetensors_source source = {"wte", DTYPE_F32, 1, {4}, .data = data};
    const struct ckpt_array array = {"model", &source, 1};
    load_dims_json(&want, meta.model_json, sizeof(meta.model_json));
    assert_int_equal(ckpt_save(lock, &meta, &array, 1, 0, NULL, path, sizeof(path)), ST_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weights_checkpoint(i ? path : dir, &ckpt, &dims), ST_OK);
        assert_int_equal(ckpt_meta(ckpt)->step, 8);
        assert_true(dims.task == MODEL_TASK_QA && dims.embed == 4 && dims.vocab == 16);
        ckpt_close(ckpt);
    }
    ckpt_lock_release(lock);
    assert_true(weights_are_ckpt(path) && weights_are_ckpt(dir));
    assert_false(weights_are_ckpt(DIR "lm") || weights_are_ckpt(DIR "lm_f32.bin") ||
                 weights_are_ckpt("tests/nothing"));
    assert_int_equal(weights_dims(dir, &dims), ST_OK); /* what MODEL= takes */
    assert_true(dims.task == MODEL_TASK_QA && dims.embed == 4 && dims.vocab == 16);
    text_format(path, sizeof(path), "%s/step-00000008/manifest.json", dir);
    assert_int_equal(truncate(path, 20), 0);
    *strrchr(path, '/') = 0;
    assert_int_equal(weights_dims(path, &dims), ST_BAD_DATA);
    /* the one before is not a model file */
    assert_int_equal(weights_dims(dir, &dims), ST_BAD_DATA);
}

/* A checkpoint of this model whose tensor i has elements that are not finite. */
static void save_broken(const char *dir, const struct model_dims *dims, int broken_i)
{
    struct ckpt_meta meta = {.settings_json = "{}", .step = 1};
    struct ckpt_lock *lock;
    struct param_table table;
    struct safetensors_source source[64];
    char path[FILE_PATH_MAX];
    assert_int_equal(model_ops(dims)->describe(dims, &table), ST_OK);
    float *data = calloc((size_t)table.total_elems, sizeof *data);
    for (int i = 0; i < table.params_n; i++) {
        const struct param *p = &table.param[i];
        float *at = data + p->offset;
        source[i] = (struct safetensors_source){
            p->name, DTYPE_F32, p->dims_n, {p->dim[0], p->dim[1]}, .data = at};
        if (i == broken_i)
            at[1] = at[p->elems - 1] = 1 / (float)data[0];
    }
    load_dims_json(dims, meta.model_json, sizeof(meta.model_json));
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(ckpt_save(lock, &meta, &(struct ckpt_array){"model", source, table.params_n},
                               1, 0, NULL, path, sizeof(path)),
                     ST_OK);
    ckpt_lock_release(lock);
    param_table_free(&table);
    free(data);
}

static enum status export(const char *from, const char *to) {
    char from_word[FILE_PATH_MAX], to_word[FILE_PATH_MAX]; struct conf * conf;
    text_format(from_word, sizeof(from_word), "FROM=%s", from);
    text_format(to_word, sizeof(to_word), "TO=%s", to);
    assert_int_equal(conf_open(2, (char *[]){from_word, to_word}, (char *[]){NULL}, &conf), ST_OK);
    enum status st = export_main(conf);
    conf_close(conf);
    return st;
}

TEST(test_export_not_finite)
{
    const struct model_dims dims = {.name = "m",
                                    .task = MODEL_TASK_LM,
                                    .layers = 1,
                                    .heads = 2,
                                    .embed = 4,
                                    .context = 8,
                                    .vocab = 16};
    char run[FILE_PATH_MAX], to[FILE_PATH_MAX];
    text_format(to, sizeof(to), "%s/out", harness_tmpdir());
    for (int i = 0; i < 3; i += 2) {
        text_format(run, sizeof(run), "%s/broken%d", harness_tmpdir(), i);
        save_broken(run, &dims, i);
        assert_int_equal(export(run, to), ST_BAD_DATA);
        assert_non_null(
            strstr(status_message(), i ? " 2 of the 4 elements of h.0.ln_1.weight are not finite"
                                       : " 2 of the 64 elements of wte.weight are not finite"));
        assert_false(file_exists(to));
    }
    text_format(run, sizeof(run), "%s/whole", harness_tmpdir());
    save_broken(run, &dims, -1);
    assert_int_equal(export(run, to), ST_OK);
    assert_true(file_exists(to));
}

HARNESS_RUN_ALL()

/* sources — MODEL, ADAPTER and TOKENIZER become paths of this machine: which checkpoint of a
 * folder, which adapter of a resumed run; the user's text stays for messages. Names of other
 * machines: tests/e2e/test_hub.sh, test_sources.sh. */
#include "harness.h"

#include "ckpt_sample.h"
#include "node/choose/sources.h"
#include "train/weights/load.h"

static char run[FILE_PATH_MAX], tuned[FILE_PATH_MAX];

/* save — saves a checkpoint of a model, or of an adapter of it. */
static void save(const char *dir, int64_t step, int64_t rank)
{
    struct ckpt_meta meta = {.settings_json = "{}", .step = step};
    struct model_dims dims = {.name = "m", .layers = 1, .heads = 2, .embed = 4, .context = 8};
    const float data[4] = {0};
    const struct safetensors_source source = {"wte", DTYPE_F32, 1, {4}, .data = data};
    const struct ckpt_array array = {"model", &source, 1};
    struct ckpt_lock *lock;
    char path[FILE_PATH_MAX];
    dims.vocab = 16;
    dims.adapter = (struct model_adapter){.r = rank, .alpha = 8, .targets = MODEL_TARGETS_ALL};
    assert_int_equal(load_dims_json(&dims, meta.model_json, sizeof(meta.model_json)), ST_OK);
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(ckpt_save(lock, &meta, &array, 1, 0, NULL, path, sizeof(path)), ST_OK);
    ckpt_lock_release(lock);
}

static struct conf *open_with(const char *a, const char *b, const char *c)
{
    char words[3][FILE_PATH_MAX + 32], *argv[3], *none[] = {NULL};
    const char *given[] = {a, b, c};
    struct conf *conf;
    for (int i = 0; i < 3; i++) {
        text_copy(words[i], sizeof(words[i]), given[i]);
        argv[i] = words[i];
    }
    assert_int_equal(conf_open(3, argv, none, &conf), ST_OK);
    return conf;
}

static struct conf *open_named(const char *name, const char *path, const char *more)
{
    char word[FILE_PATH_MAX + 32];
    text_format(word, sizeof(word), "%s=%s", name, path);
    return open_with(word, more, "SEED=1");
}

TEST(a_folder_of_checkpoints_becomes_one)
{
    char newest[FILE_PATH_MAX + 32];
    text_format(run, sizeof(run), "%s/run", harness_tmpdir());
    save(run, 3, 0);
    save(run, 6, 0);
    text_format(newest, sizeof(newest), "%s/step-00000006", run);
    struct conf *conf = open_named("MODEL", run, "STEPS=1");
    assert_false(sources_is_local(conf, CONF_MODEL)); /* it may get newer ones */
    assert_int_equal(sources_find(conf, NULL, NULL), ST_OK);
    assert_string_equal(conf_text(conf, CONF_MODEL), newest);
    assert_string_equal(conf_given(conf, CONF_MODEL), run);
    assert_true(sources_are_here(conf));
    /* A worker that is started again uses the same one, unless it was removed. */
    struct text json = {0}, settings = {0};
    struct conf *again = open_named("MODEL", run, "STEPS=1");
    sources_write(conf, &json);
    save(run, 9, 0);
    assert_true(sources_read(again, json.data, json.len));
    assert_string_equal(conf_text(again, CONF_MODEL), newest);
    conf_write_settings(again, &settings); /* as the user wrote it */
    assert_null(strstr(settings.data, "step-00000006"));
    conf_close(again);
    again = open_named("MODEL", newest, "STEPS=1");
    assert_true(sources_is_local(again, CONF_MODEL));
    sources_find_local(again);
    assert_string_equal(conf_text(again, CONF_MODEL), newest);
    conf_close(again);
    assert_int_equal(file_remove_tree(newest), ST_OK);
    again = open_named("MODEL", run, "STEPS=1");
    assert_false(sources_read(again, json.data, json.len));
    assert_string_equal(conf_text(again, CONF_MODEL), run);
    conf_close(again);
    conf_close(conf);
    text_free(&json);
    text_free(&settings);
}

TEST(a_resumed_run_needs_no_adapter)
{
    char word[FILE_PATH_MAX + 32], path[FILE_PATH_MAX + 32];
    text_format(tuned, sizeof(tuned), "%s/tuned", harness_tmpdir());
    text_format(word, sizeof(word), "CHECKPOINT_DIR=%s", tuned);
    struct conf *conf = open_with("ADAPTER=gone", "MODEL=gpt2-nano", word);
    assert_int_equal(sources_find(conf, NULL, NULL), ST_OK); /* it begins: the trainer reports it */
    assert_string_equal(conf_text(conf, CONF_ADAPTER), "gone");
    assert_false(sources_adapter_is_resumed(conf));
    save(tuned, 4, 4);
    text_format(path, sizeof(path), "%s/step-00000004", tuned);
    assert_int_equal(sources_find(conf, NULL, NULL), ST_OK);
    assert_string_equal(conf_text(conf, CONF_ADAPTER), path);
    assert_true(sources_adapter_is_resumed(conf));
    conf_close(conf);
    conf = open_with("ADAPTER=gone", "RESUME=never", word);
    sources_find_local(conf);
    assert_string_equal(conf_text(conf, CONF_ADAPTER), "gone");
    conf_close(conf);
    assert_int_equal(file_remove_tree(tuned), ST_OK);
    save(tuned, 4, 0); /* of a whole model: the trainer refuses it */
    conf = open_with("ADAPTER=gone", "MODEL=gpt2-nano", word);
    sources_find_local(conf);
    assert_string_equal(conf_text(conf, CONF_ADAPTER), "gone");
    conf_close(conf);
}

TEST(what_is_here)
{
    static const struct {
        const char *words[3];
        bool is_here;
    } rows[] = {
        {{"MODEL=gpt2-nano", "NODE_ID=0", "N_NODES=2"}, true},
        {{"MODEL=gpt2-nano", "NODE_ID=1", "N_NODES=2"}, true},
        {{"MODEL=tests/golden/lm", "NODE_ID=1", "N_NODES=2"}, true},
        {{"MODEL=/no/where", "NODE_ID=1", "N_NODES=2"}, false},
        {{"MODEL=/no/where", "NODE_ID=0", "N_NODES=2"}, true}, /* and an error when it is read */
        {{"MODEL=hf://org/name", "NODE_ID=0", "N_NODES=2"}, false},
        {{"MODEL=s3://bucket/key", "NODE_ID=0", "N_NODES=1"}, false},
        {{"MODEL=hf://org/name", "NODE_ID=1", "N_NODES=2"}, false},
        {{"ADAPTER=/no/where", "NODE_ID=1", "N_NODES=2"}, false},
        {{"ADAPTER=hf://org/name", "NODE_ID=0", "N_NODES=1"}, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct conf *conf = open_with(rows[i].words[0], rows[i].words[1], rows[i].words[2]);
        if (sources_are_here(conf) != rows[i].is_here)
            print_error("%s %s\n", rows[i].words[0], rows[i].words[1]);
        assert_true(sources_are_here(conf) == rows[i].is_here);
        conf_close(conf);
    }
}

TEST(other_bytes_set_nothing)
{
    static const char *const bodies[] = {"",
                                         "null",
                                         "[]",
                                         "{\"MODEL\":7}",
                                         "{\"MODEL\":{}}",
                                         "{\"MODEL\":{\"path\":7}}",
                                         "{\"MODEL\":{\"path\":\"/no/where\"}}"};
    struct conf *conf = open_with("MODEL=gpt2-nano", "STEPS=1", "SEED=1");
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        const bool is_set = sources_read(conf, bodies[i], strlen(bodies[i]));
        assert_true(!is_set || i == 1 || i == 2); /* no object names no path */
        assert_string_equal(conf_text(conf, CONF_MODEL), "gpt2-nano");
    }
    conf_close(conf);
}

HARNESS_RUN_ALL()

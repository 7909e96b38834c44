/* manifest — what is written reads back; every flipped bit and every cut is found; a forged
 * manifest with a right checksum is still checked. */
#include "harness.h"

#include <inttypes.h>
#include <xxhash.h>

#include "format/manifest.h"

static const struct manifest sample = {
    .meta = {.step = 100,
             .samples = 800,
             .tokens = 51200,
             .trained = 1234,
             .seed = UINT64_MAX,
             .data_fingerprint = 1,
             .loss_scale = 1 << 24,
             .loss_scale_steps = 7,
             .outer_steps = 21,
             .schedule_step_samples = 2,
             .schedule_samples = 42,
             .skipped = 2,
             .spike_history = "00012345ffff0000",
             .version = "0.1 \"x\"",
             .model_json = "{\"layers\":2}",
             .settings_json = "{\"LR\":0.0003}",
             .commits_json = "{\"hf://org/name@main\":\"0123\"}"},
    .file = {{"model.safetensors", 208, 0x8000000000000001},
             {"optim_m.safetensors", (int64_t)1 << 53, 0}},
    .files_n = 2,
};

TEST(test_round_trip)
{
    struct text text = {.data = NULL};
    struct manifest back;
    assert_int_equal(manifest_write(&sample, &text), ST_OK);
    assert_int_equal(manifest_parse(text.data, text.len, "m", &back), ST_OK);
    assert_true(back.meta.step == 100 && back.meta.samples == 800 && back.meta.tokens == 51200);
    assert_true(back.meta.seed == UINT64_MAX && back.meta.data_fingerprint == 1);
    assert_true(back.meta.loss_scale == 1 << 24 && back.meta.loss_scale_steps == 7);
    assert_int_equal(back.meta.outer_steps, 21);
    assert_int_equal(back.meta.trained, 1234);
    assert_int_equal(back.meta.skipped, 2);
    assert_int_equal(back.meta.schedule_step_samples, 2);
    assert_int_equal(back.meta.schedule_samples, 42);
    assert_string_equal(back.meta.spike_history, sample.meta.spike_history);
    assert_string_equal(back.meta.version, sample.meta.version);
    assert_string_equal(back.meta.model_json, sample.meta.model_json);
    assert_string_equal(back.meta.settings_json, sample.meta.settings_json);
    assert_string_equal(back.meta.commits_json, sample.meta.commits_json);
    assert_int_equal(back.files_n, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(back.file[i].name, sample.file[i].name);
        assert_true(back.file[i].bytes == sample.file[i].bytes &&
                    back.file[i].hash == sample.file[i].hash);
    }
    text_free(&text);
}

TEST(test_every_flip_and_cut)
{
    struct text text = {.data = NULL};
    struct manifest back;
    assert_int_equal(manifest_write(&sample, &text), ST_OK);
    for (size_t n = 0; n < text.len; n++)
        assert_int_equal(manifest_parse(text.data, n, "cut", &back), ST_BAD_DATA);
    for (size_t bit = 0; bit < text.len * 8; bit++) {
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ (1 << bit % 8));
        enum status st = manifest_parse(text.data, text.len, "flip", &back);
        bool is_schema = (long)(bit / 8) == strstr(text.data, "\"schema\": ") - text.data +
                                                (long)strlen("\"schema\": ");
        if (st != ST_BAD_DATA && !(is_schema && st == ST_SCHEMA)) /* 1 becomes 0, 3, 5 or 9 */
            fail_msg("bit %zu: %s", bit, status_name(st));
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ (1 << bit % 8));
    }
    assert_int_equal(manifest_parse(text.data, text.len, "again", &back), ST_OK);
    text_free(&text);
}

/* forge — the sample with one part of its text replaced and a new checksum. */
static enum status forge(const char *from, const char *to)
{
    struct text text = {.data = NULL}, forged = {.data = NULL};
    struct manifest back;
    assert_int_equal(manifest_write(&sample, &text), ST_OK);
    const char *tail = strstr(text.data, "  \"manifest_xxh3_64\""), *at = strstr(text.data, from);
    assert_true(tail && at && at < tail);
    text_add(&forged, "%.*s%s%.*s", (int)(at - text.data), text.data, to,
             (int)(tail - at - (long)strlen(from)), at + strlen(from));
    text_add(&forged, "  \"manifest_xxh3_64\": \"%016" PRIx64 "\"\n}\n",
             (uint64_t)XXH3_64bits(forged.data, forged.len));
    enum status st = manifest_parse(forged.data, forged.len, "forged", &back);
    text_free(&text);
    text_free(&forged);
    return st;
}

TEST(test_forged)
{
    static const char *const pair[][3] = {
        {"\"schema\": 1", "\"schema\": \"1\"", "schema"},
        {"\"step\": 100", "\"step\": -1", "step"},
        {"\"step\": 100", "\"step\": 1e300", "step"},
        {"\"step\": 100", "\"steps\": 100", "step"},
        {"ffffffffffffffff", "fffffffffffffffF", "seed"},
        {"ffffffffffffffff", "ff", "seed"},
        {"{\"layers\":2}", "[2]", "model"},
        {"model.safetensors", "../x.safetensors", "name"},
        {"model.safetensors", ".safetensors", "name"},
        {"model.safetensors", "model.bin", "name"},
        {"model.safetensors", "optim_m.safetensors", "twice"},
        {"\"bytes\": 208", "\"bytes\": -208", "bytes"},
        {"\"bytes\": 208", "\"bytes\": 9007199254740994", "bytes"},
        {"8000000000000001", "8000000000000001 ", "xxh3_64"},
        {"\"files\"", "\"step\"", "twice"},
        {"[\n    {\"name\"", "[7, {\"name\"", "name"},
        {"\"skipped\": 2", "\"skipped\": 101", "skipped"},
        {"00012345ffff0000", "00012345FFFF0000", "spike_history"},
        {"\"schedule_step_samples\": 2", "\"schedule_step_samples\": 0", "schedule_step_samples"},
        {"\"schedule_step_samples\": 2", "\"schedule_step_samples\": 1e9", "schedule_step_samples"},
        {"\"schedule_samples\": 42", "\"schedule_samples\": -1", "schedule_samples"},
        {"\"schedule_samples\": 42,", "", "schedule_samples"},
    };
    assert_int_equal(forge("\"step\": 100", "\"step\": 101"), ST_OK);
    for (size_t i = 0; i < sizeof(pair) / sizeof(pair[0]); i++) {
        if (forge(pair[i][0], pair[i][1]) != ST_BAD_DATA || !strstr(status_message(), pair[i][2]) ||
            !strstr(status_message(), "forged"))
            fail_msg("%s → %s: expected \"%s\" in: %s", pair[i][0], pair[i][1], pair[i][2],
                     status_message());
    }
}

/* Another schema is reported whatever the bytes are: it may have another checksum. */
TEST(test_schemas)
{
    struct manifest back;
    static const char *const other[] = {
        "{\"schema\":2,",
        "{ \"schema\" : 2 , \"x\": 1}",
        "\n{\n\t\"schema\": 0,\r\n\"files\":[]}",
        "{\"schema\": 9223372036854775807,",
        "{\"schema\":10,\"v\":\xff\xff",
    };
    static const char *const none[] = {"{\"schema\": 1,",
                                       "{\"schema\": 2",
                                       "{\"schema\": 2.5,",
                                       "{\"schema\": -1,",
                                       "{\"schema\": \"2\",",
                                       "{\"schema\": 99999999999999999999,",
                                       "[\"schema\": 2,",
                                       "{\"step\": 1, \"schema\": 2,",
                                       "",
                                       "{"};
    assert_int_equal(forge("\"schema\": 1", "\"schema\": 2"), ST_SCHEMA);
    assert_non_null(strstr(status_message(),
                           "schema 2, but this version reads schema 1: a newer version wrote it"));
    assert_int_equal(forge("\"schema\": 1", "\"schema\": 0"), ST_SCHEMA);
    assert_non_null(strstr(status_message(), "an older version wrote it"));
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        assert_int_equal(manifest_parse(other[i], strlen(other[i]), "other", &back), ST_SCHEMA);
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_int_equal(manifest_parse(none[i], strlen(none[i]), "none", &back), ST_BAD_DATA);
}

TEST(test_grad_compress)
{
    struct ckpt_meta meta = {.model_json = " { \"a\" : 1e3 } ", .settings_json = "{}"};
    assert_int_equal(manifest_normalize(&meta), ST_OK);
    assert_string_equal(meta.model_json, "{\"a\":1000}");
    meta.settings_json[1] = 0;
    assert_int_equal(manifest_normalize(&meta), ST_BAD_DATA);
}

/* A run without names of the hub records no commits; commits are an object. */
TEST(test_commits)
{
    struct manifest m = sample, back;
    struct text text = {.data = NULL};
    m.meta.commits_json[0] = 0;
    assert_int_equal(manifest_normalize(&m.meta), ST_OK);
    assert_int_equal(manifest_write(&m, &text), ST_OK);
    assert_null(strstr(text.data, "commits"));
    assert_int_equal(manifest_parse(text.data, text.len, "m", &back), ST_OK);
    assert_string_equal(back.meta.commits_json, "");
    text_free(&text);
    text_copy(m.meta.commits_json, sizeof m.meta.commits_json, "[]");
    assert_int_equal(manifest_normalize(&m.meta), ST_BAD_DATA);
}

/* A run that never changed its batches has no schedule of its own in the file. */
TEST(test_no_schedule)
{
    struct manifest m = sample, back;
    struct text text = {.data = NULL};
    m.meta.schedule_step_samples = m.meta.schedule_samples = 0;
    assert_int_equal(manifest_write(&m, &text), ST_OK);
    assert_null(strstr(text.data, "schedule"));
    assert_int_equal(manifest_parse(text.data, text.len, "m", &back), ST_OK);
    assert_int_equal(back.meta.schedule_step_samples, 0);
    text_free(&text);
}

HARNESS_RUN_ALL()

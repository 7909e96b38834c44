/* sample_text — the same model gives the same line, which is one line of JSON whatever the
 * tokens hold; prompts that the model cannot read are refused. */
#include "train/trainer/sample_text.h"

#include "base/json.h"
#include "harness.h"
#include "kernels/cpu.h"

enum { VOCAB = 300, T = 12 };

static struct dev *dev;

static int set_up(void **state) { return dev_cpu_open(1, CPU_ISA_N, &dev) != ST_OK; }

static int tear_down(void **state)
{
    dev_close(dev);
    return 0;
}

static struct step *open_step(void)
{
    struct step *step;
    struct step_config config = {
        .dev = dev,
        .batch_samples = 1,
        .global_samples = 1,
        .seq_tokens = T,
        .seed = 3,
        .is_eval = true,
        .dims = {
            .name = "tiny", .layers = 1, .heads = 2, .embed = 16, .context = T, .vocab = VOCAB}};
    assert_int_equal(step_open(&config, &step), ST_OK);
    return step;
}

static struct sample_text_config config_of(const char *prompt, double temperature)
{
    return (struct sample_text_config){
        .prompt = prompt, .rule = {temperature, 0, 1}, .seed = 5, .vocab = VOCAB, .seq_tokens = T};
}

static bool never(void *arg)
{
    ++*(int *)arg;
    return false;
}

static bool at_third(void *arg) { return ++*(int *)arg > 2; }

/* sample_text — at most cap bytes of a text that was just started. */
static void sample_text(const struct sample_text_config *config, struct step *step,
                        bool (*stop)(void *), char *out, size_t cap)
{
    struct sample_text *v;
    const char *text;
    int asked = 0;
    assert_int_equal(sample_text_open(config, &v), ST_OK);
    assert_int_equal(sample_text_generate(v, step, stop, &asked, &text), ST_OK);
    assert_true(strlen(text) < cap);
    memcpy(out, text, strlen(text) + 1);
    assert_int_equal(sample_text_generate(v, step, stop, &asked, &text), ST_OK);
    if (stop == never) {
        assert_string_equal(text, out); /* again the same */
        assert_int_equal(asked, 2 * SAMPLE_TEXT_TOKENS);
        assert_int_equal(sample_text_generate(v, step, NULL, NULL, &text), ST_OK);
        assert_string_equal(text, out);
    }
    sample_text_close(v);
}

TEST(test_text)
{
    struct step *step = open_step();
    char one[8192], other[8192], cut[8192];
    struct sample_text_config config = config_of("a!b", 1);
    sample_text(&config, step, never, one, sizeof one);
    assert_int_equal(strncmp(one, "\"a!b", 4), 0);
    assert_int_equal(one[strlen(one) - 1], '"');
    for (const char *c = one; *c; c++)
        assert_true((unsigned char)*c >= 0x20 && *c != 0x7F);
    cJSON *root;
    assert_int_equal(json_parse(one, strlen(one), "sample_text", &root), ST_OK);
    assert_true(strlen(root->valuestring) > 3 + SAMPLE_TEXT_TOKENS / 2);
    cJSON_Delete(root);
    config.seed = 6;
    sample_text(&config, step, never, other, sizeof other);
    assert_string_not_equal(one, other);
    config.seed = 5;
    sample_text(&config, step, at_third, cut, sizeof cut);
    /* may end within a character */
    assert_true(strlen(cut) < strlen(one) && strncmp(cut, one, strlen(cut) - 7) == 0);
    step_close(step);
}

TEST(test_greedy_and_long_prompt)
{
    struct step *step = open_step();
    char one[8192], other[8192], prompt[4001];
    struct sample_text_config config = config_of(prompt, 0);
    for (size_t i = 0; i < sizeof prompt; i++)
        prompt[i] = i == 4000 ? 0 : "z!"[i % 2];
    sample_text(&config, step, never, one, sizeof one);
    config.seed = 77;
    sample_text(&config, step, never, other, sizeof other);
    assert_string_equal(one, other); /* greedy sampling ignores the seed */
    assert_int_equal(strncmp(one, "\"\xE2\x80\xA6z!z!", 8), 0);
    assert_true(strlen(one) < 60 + SAMPLE_TEXT_TOKENS * 8 + 8);
    step_close(step);
}

TEST(test_refused)
{
    struct sample_text *v = NULL;
    struct sample_text_config config = config_of("", 1);
    assert_int_equal(sample_text_open(&config, &v), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "50256"));
    config.prompt = "Hello";
    assert_int_equal(sample_text_open(&config, &v), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "change PROMPT"));
    assert_null(v);
    sample_text_close(NULL);
}

TEST(test_not_finite)
{
    struct step *step = open_step();
    struct sample_text_config config = config_of("a", 1);
    struct sample_text *v;
    const char *text;
    int asked = 0;
    for (int64_t i = 0; i < step_own_table(step)->total_elems; i++)
        step_array(step, 0)[i] = NAN;
    assert_int_equal(sample_text_open(&config, &v), ST_OK);
    assert_int_equal(sample_text_generate(v, step, never, &asked, &text), ST_NOT_FINITE);
    sample_text_close(v);
    step_close(step);
}

TEST(test_quote)
{
    const struct {
        const char *bytes;
        size_t n;
        const char *want;
    } row[] = {{"", 0, "\"\""},
               {"a\nb\t\"\\", 6, "\"a\\nb\\t\\\"\\\\\""},
               {"\x1b[2J", 4, "\"\\u001b[2J\""},
               {"\0x\x7F", 3, "\"\xEF\xBF\xBDx\xEF\xBF\xBD\""},
               {"\xC3\xA9\xFF", 3, "\"\xC3\xA9\xEF\xBF\xBD\""}};
    char out[64];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_true(sample_text_quote((const uint8_t *)row[i].bytes, row[i].n, out, sizeof out));
        assert_string_equal(out, row[i].want);
    }
    /* one byte of a terminal's command */
    assert_true(sample_text_quote((const uint8_t *)"\xC2\x9B", 2, out, sizeof out));
    assert_null(strstr(out, "\x9B"));
    assert_false(sample_text_quote((const uint8_t *)"long enough", 11, out, 8));
}

HARNESS_RUN_ALL_WITH(set_up, tear_down)

/* tokenizer_gpt2_write — the files match the tokenizer: every id under its characters, every
 * merge in its order. */
#include "harness.h"

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/gpt2.h"

static struct tokenizer *gpt2;
static struct text text;

static int setup(void **state)
{
    text = (struct text){.limit = TOKENIZER_GPT2_WRITE_BYTES_MAX};
    return tokenizer_gpt2_open(&gpt2) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    tokenizer_close(gpt2);
    text_free(&text);
    return 0;
}

static cJSON *parse(void)
{
    cJSON *root;
    assert_false(text.overflow);
    if (json_parse(text.data, text.len, "written", &root) != ST_OK)
        fail_msg("%s", status_message());
    return root;
}

/* byte_of — GPT-2's characters back to bytes: printable Latin-1 is itself, the others stand from
 * U+0100 on. */
static int byte_of(uint32_t c)
{
    if (c < 256)
        return (int)c;
    for (int b = 0, shifted = 256; b < 256; b++) {
        bool is_itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (!is_itself && (uint32_t)shifted++ == c)
            return b;
    }
    return -1;
}

static void check_vocab(const cJSON *vocab)
{
    int ids_n = 0;
    for (const cJSON *item = vocab->child; item; item = item->next, ids_n++) {
        size_t n;
        assert_int_equal(item->valueint, ids_n);
        const uint8_t *bytes = tokenizer_bytes(gpt2, (uint32_t)ids_n, &n);
        /* The characters of s stand for these bytes. */
        const char *s = item->string;
        size_t i = 0;
        for (const uint8_t *p = (const uint8_t *)s; *p; p++, i++) {
            uint32_t c = *p;
            if (c >= 0x80)
                c = (c & 0x1f) << 6 | (*++p & 0x3f);
            assert_true(i < n);
            assert_int_equal(byte_of(c), bytes[i]);
        }
        assert_int_equal(i, n);
    }
    assert_int_equal(ids_n, TOKENIZER_GPT2_VOCAB);
}

static void test_vocab(void **state)
{
    tokenizer_gpt2_write_vocab(gpt2, &text);
    cJSON *root = parse();
    check_vocab(root);
    cJSON_Delete(root);
}

static void test_merges(void **state)
{
    char *bytes;
    size_t n;
    tokenizer_gpt2_write_merges(&text);
    assert_int_equal(file_read("assets/vocab.bpe", 1 << 20, &bytes, &n), ST_OK);
    assert_int_equal(text.len, n);
    assert_memory_equal(text.data, bytes, n);
    free(bytes);
}

static void test_fast(void **state)
{
    struct text merges = {.limit = TOKENIZER_GPT2_WRITE_BYTES_MAX};
    tokenizer_gpt2_write_tokenizer_json(gpt2, &text);
    tokenizer_gpt2_write_merges(&merges);
    cJSON *root = parse();
    const cJSON *model, *vocab, *list;
    assert_int_equal(json_get_object(root, "model", &model), ST_OK);
    assert_int_equal(json_get_object(model, "vocab", &vocab), ST_OK);
    assert_int_equal(json_get_array(model, "merges", &list), ST_OK);
    check_vocab(vocab);
    const char *line = strchr(merges.data, '\n') + 1; /* behind the version */
    int merges_n = 0;
    for (const cJSON *item = list->child; item; item = item->next, merges_n++) {
        size_t n = strcspn(line, "\n");
        assert_int_equal(strlen(item->valuestring), n);
        assert_memory_equal(item->valuestring, line, n);
        line += n + 1;
    }
    assert_int_equal(*line, 0);
    assert_int_equal(merges_n, TOKENIZER_GPT2_VOCAB - 257);
    cJSON_Delete(root);
    text_free(&merges);
}

static void test_small(void **state)
{
    int64_t tokens;
    const char *end;
    tokenizer_gpt2_write_settings(1024, &text);
    cJSON *root = parse();
    assert_int_equal(json_get_i64(root, "model_max_length", 1, 1 << 20, &tokens), ST_OK);
    assert_int_equal(tokens, 1024);
    cJSON_Delete(root);
    text_free(&text);
    tokenizer_gpt2_write_specials(&text);
    root = parse();
    assert_int_equal(json_get_string(root, "eos_token", &end), ST_OK);
    assert_string_equal(end, "<|endoftext|>");
    cJSON_Delete(root);
    struct text tight = {.limit = 1000};
    tokenizer_gpt2_write_vocab(gpt2, &tight);
    assert_true(tight.overflow);
    text_free(&tight);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_vocab, setup, teardown),
    cmocka_unit_test_setup_teardown(test_merges, setup, teardown),
    cmocka_unit_test_setup_teardown(test_fast, setup, teardown),
    cmocka_unit_test_setup_teardown(test_small, setup, teardown),
};
HARNESS_MAIN(tests)

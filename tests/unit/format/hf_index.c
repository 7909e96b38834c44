/* hf_index — a list of tensors and files is accepted if every name is plain, and refused by
 * name otherwise. */
#include "harness.h"

#include "format/hf_config.h"

#define MAP(text) "{\"weight_map\":{" text "}}"

static enum status parse(const char *text, struct hf_index *out)
{
    return hf_index_parse(text, strlen(text), "DIR/model.safetensors.index.json", out);
}

TEST(test_good)
{
    struct hf_index index;
    assert_int_equal(parse("{\"metadata\":{\"total_size\":1.5},\"weight_map\":{\"c\":\"m-2."
                           "safetensors\",\"a\":\"m-2.safetensors\",\"b\":\"M_1.safetensors\"}}",
                           &index),
                     ST_OK);
    assert_int_equal(index.rows_n, 3);
    assert_int_equal(index.files_n, 2);
    assert_string_equal(index.file[0], "M_1.safetensors");
    assert_string_equal(index.file[1], "m-2.safetensors");
    for (int i = 0; i < 3; i++) {
        assert_string_equal(index.row[i].name, ((const char *[]){"a", "b", "c"})[i]);
        assert_int_equal(index.row[i].file_i, i == 1 ? 0 : 1);
        assert_ptr_equal(hf_index_find(&index, index.row[i].name), &index.row[i]);
    }
    assert_null(hf_index_find(&index, "d"));
    hf_index_free(&index);
    hf_index_free(&index);
    assert_null(hf_index_find(&index, "a"));
}

TEST(test_bad)
{
    static const struct {
        const char *text, *says;
    } bad_list[] = {
        {"", "not JSON"},
        {"[]", "not a JSON object"},
        {"{}", "weight_map"},
        {"{\"weight_map\":[]}", "weight_map"},
        {MAP(""), "lists 0 tensors"},
        {MAP("\"a\":\"../x.safetensors\""), "\"../x.safetensors\", which is no plain file name"},
        {MAP("\"a\":\"/etc/x.safetensors\""), "no plain file name"},
        {MAP("\"a\":\"d/x.safetensors\""), "no plain file name"},
        {MAP("\"a\":\"..\\\\x.safetensors\""), "no plain file name"},
        {MAP("\"a\":\".x.safetensors\""), "no plain file name"},
        {MAP("\"a\":\".safetensors\""), "no plain file name"},
        {MAP("\"a\":\"x y.safetensors\""), "no plain file name"},
        {MAP("\"a\":\"x\\n.safetensors\""), "no plain file name"},
        {MAP("\"a\":\"\""), "no plain file name"},
        {MAP("\"a\":\"pytorch_model.bin\""), "no plain file name"},
        {MAP("\"a\":3"), "is not a string"},
        {MAP("\"a\":null"), "is not a string"},
        {MAP("\"\":\"x.safetensors\""), "0 bytes"},
        {MAP("\"a\\u0007\":\"x.safetensors\""), "control byte"},
        {MAP("\"a\":\"x.safetensors\",\"a\":\"y.safetensors\""), "\"a\" appears twice"},
        {MAP("\"a\":\"x.safetensors\"") "x", "more bytes after"},
    };
    struct hf_index index = {.rows_n = 77};
    for (size_t i = 0; i < sizeof(bad_list) / sizeof(bad_list[0]); i++) {
        assert_int_equal(parse(bad_list[i].text, &index), ST_BAD_DATA);
        if (!strstr(status_message(), bad_list[i].says) || !strstr(status_message(), "index.json"))
            fail_msg("expected \"%s\" in: %s", bad_list[i].says, status_message());
        assert_int_equal(index.rows_n, 77);
    }
}

TEST(test_huge)
{
    struct text text = {.limit = 16 << 20};
    struct hf_index index;
    text_add(&text, "{\"weight_map\":{");
    for (int i = 0; i < 2000; i++)
        text_add(&text, "%s\"t%d\":\"f%d.safetensors\"", i > 0 ? "," : "", i, i);
    text_add(&text, "}}");
    assert_int_equal(parse(text.data, &index), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "2000 files"));
    text_free(&text);
    text.limit = 16 << 20;
    text_add(&text, "{\"weight_map\":{");
    for (int i = 0; i < 65537; i++)
        text_add(&text, "%s\"t%d\":\"f.safetensors\"", i > 0 ? "," : "", i);
    text_add(&text, "}}");
    assert_int_equal(parse(text.data, &index), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "65537 tensors"));
    text_free(&text);
}

HARNESS_RUN_ALL()

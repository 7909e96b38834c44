/* gguf — a sound file is read to its last element; one that is cut, or lies, is refused. */
#include "harness.h"

#include "gguf_sample.h"

static void add_all_kinds(struct gguf_sample *s)
{
    sample_text(s, "general.architecture", "llama");
    sample_u32(s, "u32", 7);
    sample_key(s, "i8", GGUF_KIND_I8);
    sample_le(&s->keys, 0xfe, 1);
    sample_key(s, "u64", GGUF_KIND_U64);
    sample_le(&s->keys, UINT64_MAX, 8);
    sample_key(s, "i64", GGUF_KIND_I64);
    sample_le(&s->keys, (uint64_t)-9, 8);
    sample_f32(s, "f32", 1.5f);
    double f64 = 2.25;
    sample_key(s, "f64", GGUF_KIND_F64);
    text_add_bytes(&s->keys, &f64, 8);
    sample_bool(s, "yes", 1);
    sample_bool(s, "two", 2);
    sample_texts(s, "words", (const char *const[]){"one", "", "three"}, 3);
    sample_array(s, "numbers", GGUF_KIND_U16, 3);
    sample_le(&s->keys, 0x000300020001, 6);
}

/* two tensors, of 2 × 3 and of 32 elements */
static uint8_t *good(uint32_t version, size_t *n)
{
    static const float a[6] = {1, 2, 3, 4, 5, 6};
    uint8_t q[34] = {0x00, 0x3c}; /* scale 1 */
    struct gguf_sample s = {.keys_n = 0};
    for (int i = 0; i < 32; i++)
        q[2 + i] = (uint8_t)(i - 16);
    add_all_kinds(&s);
    sample_tensor(&s, "b.weight", 2, (int64_t[]){2, 3}, 0, a, sizeof(a));
    sample_tensor(&s, "a.weight", 1, (int64_t[]){32}, 8, q, sizeof(q));
    return sample_end(&s, version, n);
}

TEST(test_read)
{
    for (uint32_t version = 2; version <= 3; version++) {
        size_t n;
        uint8_t *bytes = good(version, &n);
        struct gguf gguf;
        float out[32];
        assert_true(gguf_is_magic(bytes, n));
        assert_int_equal(gguf_parse(bytes, n, "file", &gguf), ST_OK);
        assert_int_equal(gguf.tensors_n, 2);
        const struct gguf_tensor *b = gguf_find_tensor(&gguf, "b.weight");
        assert_int_equal(b->dims_n, 2);
        assert_int_equal(b->dim[0], 2);
        assert_int_equal(b->dim[1], 3);
        gguf_quant_to_f32(b->quant, b->data, 0, 6, out);
        assert_float_equal(out[5], 6, 0);
        const struct gguf_tensor *a = gguf_find_tensor(&gguf, "a.weight");
        gguf_quant_to_f32(a->quant, a->data, 3, 29, out);
        assert_float_equal(out[0], -13, 0);
        assert_float_equal(out[28], 15, 0);
        assert_null(gguf_find_tensor(&gguf, "c.weight"));
        gguf_free(&gguf);
        gguf_free(&gguf);
        free(bytes);
    }
}

TEST(test_values)
{
    size_t n;
    uint8_t *bytes = good(3, &n);
    struct gguf gguf;
    int64_t i;
    double f;
    bool flag;
    char text[8];
    const struct gguf_value *array;
    assert_int_equal(gguf_parse(bytes, n, "file", &gguf), ST_OK);
    assert_int_equal(gguf_get_i64(&gguf, "u32", 0, 7, &i), ST_OK);
    assert_int_equal(i, 7);
    assert_int_equal(gguf_get_i64(&gguf, "u32", 0, 6, &i), ST_BAD_DATA);
    harness_assert_message("key u32 is 7");
    assert_int_equal(gguf_get_i64(&gguf, "i8", -5, 5, &i), ST_OK);
    assert_int_equal(i, -2);
    assert_int_equal(gguf_get_i64(&gguf, "i64", -10, 0, &i), ST_OK);
    assert_int_equal(i, -9);
    assert_int_equal(gguf_get_i64(&gguf, "u64", INT64_MIN, INT64_MAX, &i), ST_BAD_DATA);
    assert_int_equal(gguf_get_i64(&gguf, "f32", 0, 9, &i), ST_BAD_DATA);
    assert_int_equal(gguf_get_i64(&gguf, "numbers", 0, 9, &i), ST_BAD_DATA);
    harness_assert_message("an array");
    assert_int_equal(gguf_get_i64(&gguf, "nothing", 0, 9, &i), ST_BAD_DATA);
    harness_assert_message("nothing is missing");
    assert_int_equal(gguf_get_f64(&gguf, "f32", &f), ST_OK);
    assert_float_equal(f, 1.5, 0);
    assert_int_equal(gguf_get_f64(&gguf, "f64", &f), ST_OK);
    assert_float_equal(f, 2.25, 0);
    assert_int_equal(gguf_get_f64(&gguf, "u32", &f), ST_BAD_DATA);
    assert_int_equal(gguf_get_bool(&gguf, "yes", &flag), ST_OK);
    assert_true(flag);
    assert_int_equal(gguf_get_bool(&gguf, "two", &flag), ST_BAD_DATA);
    assert_int_equal(gguf_get_text(&gguf, "general.architecture", text, sizeof(text)), ST_OK);
    assert_string_equal(text, "llama");
    assert_int_equal(gguf_get_text(&gguf, "general.architecture", text, 5), ST_BAD_DATA);
    assert_int_equal(gguf_get_array(&gguf, "words", GGUF_KIND_STRING, &array), ST_OK);
    const uint8_t *at = array->data;
    assert_int_equal(gguf_next_string(&at).n, 3);
    assert_int_equal(gguf_next_string(&at).n, 0);
    assert_memory_equal(gguf_next_string(&at).text, "three", 5);
    assert_int_equal(gguf_get_array(&gguf, "words", GGUF_KIND_U8, &array), ST_BAD_DATA);
    assert_int_equal(gguf_get_array(&gguf, "u32", GGUF_KIND_U32, &array), ST_BAD_DATA);
    gguf_free(&gguf);
    free(bytes);
}

/* Cut at each byte: in memory of exactly that size, so that a sanitizer sees a read beyond. */
TEST(test_cut)
{
    size_t n;
    uint8_t *bytes = good(3, &n);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *some = malloc(cut + 1);
        struct gguf gguf;
        memcpy(some, bytes, cut);
        some = realloc(some, cut > 0 ? cut : 1);
        if (gguf_parse(some, cut, "DIR/cut.gguf", &gguf) != ST_BAD_DATA)
            fail_msg("cut at %zu of %zu was taken", cut, n);
        harness_assert_message("cut.gguf");
        free(some);
    }
    free(bytes);
}

/* refuse — the sample is refused with these words. */
static void refuse(struct gguf_sample *s, const char *says)
{
    size_t n;
    uint8_t *bytes = sample_end(s, 3, &n);
    struct gguf gguf;
    if (gguf_parse(bytes, n, "file", &gguf) != ST_BAD_DATA)
        fail_msg("expected \"%s\", but it was taken", says);
    harness_assert_message(says);
    free(bytes);
}

TEST(test_header)
{
    static const struct {
        const char *bytes, *says;
    } list[] = {
        {"GGML\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "no GGUF file"},
        {"GGUF\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "version 1, expected 2 or 3"},
        {"GGUF\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "version 4"},
        {"GGUF\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "version 0"},
        {"GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "big-endian"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", "1 keys"},
        {"GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "1 tensors"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\377\377\377\377\377\377\377\377",
         "18446744073709551615 keys"},
        {"GGUF\3\0\0\0\377\377\377\377\377\377\377\177\0\0\0\0\0\0\0\0",
         "9223372036854775807 tensors"},
    };
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        struct gguf gguf;
        assert_int_equal(gguf_parse((const uint8_t *)list[i].bytes, 24, "file", &gguf),
                         ST_BAD_DATA);
        harness_assert_message(list[i].says);
    }
}

TEST(test_bad_values)
{
    struct gguf_sample s = {.keys_n = 0};
    sample_key(&s, "k", (enum gguf_kind)13);
    sample_le(&s.keys, 0, 8);
    refuse(&s, "kind 13");
    sample_array(&s, "k", GGUF_KIND_ARRAY, 1);
    sample_le(&s.keys, 0, 16);
    refuse(&s, "array of arrays");
    sample_array(&s, "k", GGUF_KIND_U64, UINT64_MAX / 4);
    refuse(&s, "left");
    sample_array(&s, "k", GGUF_KIND_STRING, UINT64_MAX / 16);
    sample_le(&s.keys, 0, 8);
    refuse(&s, "left");
    sample_key(&s, "k", GGUF_KIND_STRING);
    sample_le(&s.keys, UINT64_MAX - 7, 8);
    refuse(&s, "left");
    sample_u32(&s, "same", 1);
    sample_u32(&s, "same", 2);
    refuse(&s, "key same appears twice");
    sample_u32(&s, "new\nline", 1);
    refuse(&s, "control byte 10");
    sample_u32(&s, "", 1);
    sample_u32(&s, "b", 1);
    refuse(&s, "a key has 0 bytes");
    char longer[66000];
    memset(longer, 'k', sizeof(longer));
    longer[65999] = 0;
    sample_u32(&s, longer, 1);
    refuse(&s, "a key has 65999 bytes");
}

TEST(test_bad_tensors)
{
    static const uint8_t zero[256];
    struct gguf_sample s = {.keys_n = 0};
    sample_tensor(&s, "same", 1, (int64_t[]){8}, 0, zero, 32);
    sample_tensor(&s, "same", 1, (int64_t[]){8}, 0, zero, 32);
    refuse(&s, "tensor same appears twice");
    sample_tensor(&s, "k", 1, (int64_t[]){256}, 12, zero, 144);
    refuse(&s, "type 12 (Q4_K)");
    sample_tensor(&s, "k", 1, (int64_t[]){8}, 4000000000u, zero, 32);
    refuse(&s, "type 4000000000 (unknown)");
    sample_tensor(&s, "k", 1, (int64_t[]){33}, 8, zero, 34);
    refuse(&s, "no multiple of Q8_0's blocks of 32");
    sample_tensor(&s, "k", 0, NULL, 0, zero, 32);
    refuse(&s, "0 dimensions");
    sample_tensor(&s, "k", 5, (int64_t[]){1, 1, 1, 1, 8}, 0, zero, 32);
    refuse(&s, "5 dimensions");
    sample_tensor(&s, "k", 2, (int64_t[]){0, 8}, 0, zero, 32);
    refuse(&s, "a dimension of 0");
    sample_tensor(&s, "k", 1, (int64_t[]){-1}, 0, zero, 32);
    refuse(&s, "a dimension of 18446744073709551615");
    sample_tensor(&s, "k", 3, (int64_t[]){1 << 30, 1 << 30, 1 << 30}, 0, zero, 32);
    refuse(&s, "2^63 elements");
    sample_tensor(&s, "k", 2, (int64_t[]){1 << 30, (int64_t)1 << 32}, 0, zero, 32);
    refuse(&s, "2^63 bytes");
    sample_tensor(&s, "k", 1, (int64_t[]){9}, 0, zero, 32);
    refuse(&s, "has 36 bytes");
    sample_entry(&s, "k", 1, (int64_t[]){8}, 0, UINT64_MAX - 31);
    refuse(&s, "data area of 0");
    sample_tensor(&s, "", 1, (int64_t[]){8}, 0, zero, 32);
    refuse(&s, "a tensor's name has 0 bytes");
}

TEST(test_offsets)
{
    static const uint8_t zero[256];
    struct gguf_sample s = {.keys_n = 0};
    text_add_bytes(&s.data, zero, 96);
    sample_entry(&s, "a", 1, (int64_t[]){16}, 0, 0);
    sample_entry(&s, "b", 1, (int64_t[]){16}, 0, 32);
    refuse(&s, "overlap");
    text_add_bytes(&s.data, zero, 64);
    sample_entry(&s, "a", 1, (int64_t[]){16}, 0, 0);
    sample_entry(&s, "b", 1, (int64_t[]){16}, 0, 0);
    refuse(&s, "overlap");
    text_add_bytes(&s.data, zero, 96);
    sample_entry(&s, "a", 1, (int64_t[]){8}, 0, 0);
    sample_entry(&s, "b", 1, (int64_t[]){8}, 0, 64);
    refuse(&s, "bytes between them belong to no tensor");
    text_add_bytes(&s.data, zero, 64);
    sample_entry(&s, "a", 1, (int64_t[]){8}, 0, 0);
    refuse(&s, "the tensors end at byte 32 of a data area of 64");
    text_add_bytes(&s.data, zero, 64);
    sample_entry(&s, "a", 1, (int64_t[]){8}, 0, 8);
    refuse(&s, "no multiple of 32");
    sample_u32(&s, "general.alignment", 0);
    refuse(&s, "general.alignment is 0");
    sample_u32(&s, "general.alignment", 24);
    refuse(&s, "expected a power of two");
    sample_u32(&s, "general.alignment", UINT32_MAX);
    refuse(&s, "general.alignment");
    sample_text(&s, "general.alignment", "32");
    refuse(&s, "general.alignment");
}

/* Alignments from 1 to 4096, and a file without tensors. */
TEST(test_alignments)
{
    static const float a[3] = {1, 2, 3};
    for (uint32_t alignment = 1; alignment <= 4096; alignment *= 4) {
        struct gguf_sample s = {.alignment = alignment};
        struct gguf gguf;
        size_t n;
        float out;
        sample_u32(&s, "general.alignment", alignment);
        sample_tensor(&s, "x", 1, (int64_t[]){3}, 0, a, sizeof(a));
        sample_tensor(&s, "y", 1, (int64_t[]){3}, 0, a, sizeof(a));
        uint8_t *bytes = sample_end(&s, 3, &n);
        assert_int_equal(gguf_parse(bytes, n, "file", &gguf), ST_OK);
        const struct gguf_tensor *y = gguf_find_tensor(&gguf, "y");
        gguf_quant_to_f32(y->quant, y->data, 2, 1, &out);
        assert_float_equal(out, 3, 0);
        gguf_free(&gguf);
        free(bytes);
    }
    struct gguf_sample s = {.keys_n = 0};
    struct gguf gguf;
    size_t n;
    uint8_t *bytes = sample_end(&s, 3, &n);
    assert_int_equal(gguf_parse(bytes, n, "file", &gguf), ST_OK);
    assert_null(gguf_find(&gguf, "general.architecture"));
    assert_null(gguf_find_tensor(&gguf, "x"));
    gguf_free(&gguf);
    free(bytes);
}

/* The keys alone are a file that is read, with the same values. */
TEST(test_keys)
{
    size_t n, keys_n;
    uint8_t *bytes = good(3, &n), *keys;
    struct gguf gguf, alone;
    int64_t value;
    assert_int_equal(gguf_parse(bytes, n, "file", &gguf), ST_OK);
    keys = gguf_keys(&gguf, bytes, &keys_n);
    assert_non_null(keys);
    assert_true(keys_n < n);
    assert_int_equal(gguf_parse(keys, keys_n, "keys", &alone), ST_OK);
    assert_int_equal(alone.tensors_n, 0);
    assert_int_equal(alone.values_n, gguf.values_n);
    assert_int_equal(gguf_get_i64(&alone, "u32", 0, 10, &value), ST_OK);
    assert_int_equal(value, 7);
    assert_non_null(gguf_find(&alone, "numbers"));
    gguf_free(&alone);
    gguf_free(&gguf);
    free(keys);
    free(bytes);
}

/* Rounding to the types that are written, and reading again. */
TEST(test_quantize)
{
    float in[64], out[64];
    uint8_t bytes[256];
    const struct gguf_quant *q8 = gguf_quant_named("q8_0");
    assert_non_null(q8);
    assert_null(gguf_quant_named("Q4_0"));
    assert_null(gguf_quant_named(""));
    for (int i = 0; i < 64; i++)
        in[i] = i < 32 ? (float)(i - 16) * 0.25f : 0;
    assert_true(gguf_quant_from_f32(q8, in, 64, bytes));
    gguf_quant_to_f32(q8, bytes, 0, 64, out);
    assert_int_equal((int8_t)bytes[2], -127);
    assert_int_equal(bytes[34] | bytes[35], 0); /* a block of zeros */
    for (int i = 0; i < 64; i++)
        assert_float_equal(out[i], in[i], 4.0 / 127);
    /* 0.5 is rounded away from 0 */
    in[0] = 127, in[1] = 2.5f, in[2] = -2.5f;
    assert_true(gguf_quant_from_f32(q8, in, 32, bytes));
    assert_int_equal((int8_t)bytes[3], 3);
    assert_int_equal((int8_t)bytes[4], -3);
    in[5] = 127 * 65520.0f;
    assert_false(gguf_quant_from_f32(q8, in, 32, bytes));
    static const struct {
        const char *name;
        float in, out, beyond;
    } list[] = {{"F32", 1.1f, 1.1f, 0},
                {"F16", 1.00048828125f, 1, 65520},
                {"F16", -65519, -65504, -1e9f},
                {"BF16", 1.00390625f, 1, 3.4e38f}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const struct gguf_quant *quant = gguf_quant_named(list[i].name);
        assert_true(gguf_quant_from_f32(quant, &list[i].in, 1, bytes));
        gguf_quant_to_f32(quant, bytes, 0, 1, out);
        assert_float_equal(out[0], list[i].out, 0);
        if (list[i].beyond != 0)
            assert_false(gguf_quant_from_f32(quant, &list[i].beyond, 1, bytes));
    }
}

HARNESS_RUN_ALL()

/* text: readers take the whole string or refuse it; writers never pass the end. */
#include "harness.h"

TEST(whole_numbers)
{
    int64_t v = -77;
    static const char *const bad[] = {"",  " ",   "8x",  " 8",  "8 ", "+8",  "0x8",
                                      "-", "--8", "8.0", "1e3", "٣",  "8\n", "1_000"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(text_parse_i64(bad[i], INT64_MIN, INT64_MAX, &v), TEXT_NOT_A_NUMBER);
    static const char *const far[] = {"9223372036854775808", "-9223372036854775809",
                                      "99999999999999999999999999999"};
    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++)
        assert_int_equal(text_parse_i64(far[i], INT64_MIN, INT64_MAX, &v), TEXT_OUT_OF_RANGE);
    assert_int_equal(text_parse_i64("11", 0, 10, &v), TEXT_OUT_OF_RANGE);
    assert_int_equal(text_parse_i64("-1", 0, 10, &v), TEXT_OUT_OF_RANGE);
    assert_int_equal(v, -77); /* untouched by failures */
    assert_int_equal(text_parse_i64("10", 0, 10, &v), TEXT_OK);
    assert_int_equal(v, 10);
    assert_int_equal(text_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &v), TEXT_OK);
    assert_true(v == INT64_MIN);
    assert_int_equal(text_parse_i64("9223372036854775807", INT64_MIN, INT64_MAX, &v), TEXT_OK);
    assert_true(v == INT64_MAX);
    assert_int_equal(text_parse_i64("007", 0, 10, &v), TEXT_OK);
    assert_int_equal(v, 7);
}

TEST(numbers)
{
    double v = -77;
    static const char *const bad[] = {"",      ".",   "-",     "e5",    "1e",      "1e+", "inf",
                                      "-inf",  "nan", "0x1p3", "1,5",   " 1",      "1 ",  "+1",
                                      "1.2.3", "1d",  "1f",    "1e5.0", "infinity"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(text_parse_f64(bad[i], -INFINITY, INFINITY, &v), TEXT_NOT_A_NUMBER);
    assert_int_equal(text_parse_f64("1e999", -INFINITY, INFINITY, &v), TEXT_OUT_OF_RANGE);
    assert_int_equal(text_parse_f64("1.01", 0, 1, &v), TEXT_OUT_OF_RANGE);
    assert_true(v == -77);
    static const struct {
        const char *text;
        double value;
    } good[] = {{"3e-4", 3e-4}, {"-0.5", -0.5}, {".5", 0.5},   {"5.", 5},
                {"1E+2", 100},  {"0", 0},       {"1e-999", 0}, {"00.25", 0.25}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(text_parse_f64(good[i].text, -1e9, 1e9, &v), TEXT_OK);
        assert_true(v == good[i].value);
    }
}

TEST(byte_counts)
{
    int64_t v = -77;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"500", 500},
                {"500B", 500},
                {"1k", 1000},
                {"1kB", 1000},
                {"64Mi", 64 << 20},
                {"64MiB", 64 << 20},
                {"1G", 1000000000},
                {"1.5Ki", 1536},
                {"0.1k", 100},
                {"2Ti", 2LL << 40},
                {"1.1Ki", 1126},
                {"8388607Ti", 8388607LL << 40},
                {"1T", 1000000000000}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(text_parse_bytes(good[i].text, 0, INT64_MAX, &v), TEXT_OK);
        assert_true(v == good[i].value);
    }
    static const char *const bad[] = {
        "",     "Mi",   "1 Mi", "1mi",   "1Mib",           "1.5", "1.5B", "1.Mi",
        ".5Mi", "0x1k", "1e3",  "1MiBB", "1.0000000001Gi", "B",   "-",    "-Mi"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(text_parse_bytes(bad[i], 0, INT64_MAX, &v), TEXT_NOT_A_NUMBER);
    static const char *const far[] = {"8388608Ti", "-1", "-1Mi", "99999999999999999999",
                                      "99999999999999999999Ki"};
    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++)
        assert_int_equal(text_parse_bytes(far[i], 0, INT64_MAX, &v), TEXT_OUT_OF_RANGE);
    assert_int_equal(text_parse_bytes("-1Ki", -2000, 0, &v), TEXT_OK);
    assert_int_equal(v, -1024);
}

TEST(durations)
{
    int64_t v = -77;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"10s", 10000},  {"10", 10000},    {"1.5m", 90000}, {"250ms", 250},
                {"2h", 7200000}, {"1d", 86400000}, {"0", 0},        {"0.5", 500}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(text_parse_duration(good[i].text, 0, INT64_MAX, &v), TEXT_OK);
        assert_true(v == good[i].value);
    }
    static const char *const bad[] = {"", "s", "1S", "1 s", "1.5ms", "1m30s", "1us", "abc", "10s "};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(text_parse_duration(bad[i], 0, INT64_MAX, &v), TEXT_NOT_A_NUMBER);
    assert_int_equal(text_parse_duration("9223372036854775807d", 0, INT64_MAX, &v),
                     TEXT_OUT_OF_RANGE);
    assert_int_equal(text_parse_duration("1s", 2000, 3000, &v), TEXT_OUT_OF_RANGE);
}

TEST(booleans)
{
    static const char *const yes[] = {"1", "true", "yes", "on", "TRUE", "Yes"}, *const no[] = {
                                                                                    "0", "false",
                                                                                    "no", "off",
                                                                                    "OFF"};
    bool v;
    for (size_t i = 0; i < 6; i++)
        assert_true(text_parse_bool(yes[i], &v) && v);
    for (size_t i = 0; i < 5; i++)
        assert_true(text_parse_bool(no[i], &v) && !v);
    assert_false(text_parse_bool("", &v) || text_parse_bool("2", &v) || text_parse_bool("y", &v) ||
                 text_parse_bool("true ", &v));
}

TEST(hexadecimal_digits)
{
    uint64_t value = 7;
    char out[9];
    assert_true(text_parse_hex("0123456789abcdef", 16, &value) && value == 0x0123456789abcdef);
    assert_true(text_parse_hex("ff00", 2, &value) && value == 0xff);
    assert_false(text_parse_hex("fF", 2, &value));
    assert_false(text_parse_hex("0", 2, &value)); /* the closing 0 is no digit */
    assert_false(text_parse_hex("0x10", 4, &value));
    assert_true(value == 0xff);
    assert_int_equal(text_hex_digit('F'), 15);
    assert_int_equal(text_hex_digit('g'), -1);
    assert_int_equal(text_hex_digit((char)0xff), -1);
    text_hex("\x00\x7f\x80\xff", 4, out);
    assert_string_equal(out, "007f80ff");
}

TEST(copies_end_in_time)
{
    char out[8], one[1], two[3];
    assert_true(text_copy(out, sizeof(out), "1234567"));
    assert_string_equal(out, "1234567");
    assert_false(text_copy(out, sizeof(out), "12345678"));
    assert_string_equal(out, "1234…");
    assert_false(text_copy(one, sizeof(one), "x"));
    assert_string_equal(one, "");
    assert_false(text_copy(two, sizeof(two), "xyz")); /* no room for the mark */
    assert_string_equal(two, "");
    assert_true(text_copy(one, sizeof(one), ""));
    assert_false(text_copy(out, sizeof(out), "123é5678")); /* é would lose its second byte */
    assert_string_equal(out, "123…");
    assert_false(text_copy(out, sizeof(out), "12é45678"));
    assert_string_equal(out, "12é…");
    assert_false(text_copy(out, sizeof(out),
                           /* no character: any cut is as good */
                           "\x80\x80\x80\x80\x80\x80\x80\x80\x80"));
    assert_true(text_format(out, sizeof(out), "%d", 1234567));
    assert_false(text_format(out, sizeof(out), "%d", 12345678));
    assert_string_equal(out, "1234…");
}

/* A text that does not fit ends after a whole word, whatever the length. */
TEST(long_texts_end_with_a_word)
{
    static const char whole[] =
        "the same command goes on, (from the checkpoint) of step 12; and more";
    char copied[sizeof(whole)], formatted[sizeof(whole)];
    for (size_t cap = 16; cap < sizeof(whole); cap++) {
        assert_false(text_copy(copied, cap, whole));
        assert_false(text_format(formatted, cap, "%s", whole));
        assert_string_equal(copied, formatted);
        size_t n = strlen(copied);
        assert_true(n < cap && n > cap / 3 && text_ends(copied, "…"));
        n -= strlen("…");
        assert_memory_equal(copied, whole, n);
        assert_null(strchr(" ,;:(", copied[n - 1]));
        assert_non_null(strchr(" ,;:()", whole[n]));
    }
    assert_true(text_copy(copied, sizeof(whole), whole));
    assert_string_equal(copied, whole);
    assert_false(text_copy(copied, 24, "at /a/path/without/any/blank/in/it")); /* a long word */
    assert_string_equal(copied, "at /a/path/without/a…");
    text_copy(copied, sizeof(copied), whole);
    assert_false(text_copy(copied, 20, copied)); /* in place */
    assert_string_equal(copied, "the same command…");
}

TEST(starts_and_ends)
{
    assert_true(text_starts("http://x", "http://") && text_starts("x", "") &&
                !text_starts("ht", "http"));
    assert_true(text_ends("a.bin", ".bin") && text_ends("a", "") && !text_ends("in", ".bin") &&
                !text_ends("a.bin ", ".bin"));
}

TEST(distances)
{
    char longest[64], longer[65];
    assert_int_equal(text_distance("BATCH_SIZE", "batchsize"), 0);
    assert_int_equal(text_distance("N_NODE", "N_NODES"), 1);
    assert_int_equal(text_distance("BATCH_SIEZ", "BATCH_SIZE"), 1); /* neighbours swapped */
    assert_int_equal(text_distance("kitten", "sitting"), 3);
    assert_int_equal(text_distance("", "abc"), 3);
    assert_int_equal(text_distance("___", ""), 0);
    assert_int_equal(text_distance("ca", "abc"), 3);
    memset(longest, 'a', sizeof(longest));
    memset(longer, 'a', sizeof(longer));
    longest[63] = longer[64] = 0;
    assert_int_equal(text_distance(longest, longest), 0);
    assert_int_equal(text_distance(longest, ""), 63);
    assert_int_equal(text_distance(longer, longer), 999);
}

/* Counts as people write them. */
TEST(counts)
{
    static const struct {
        const char *text;
        enum text_result result;
        int64_t value;
    } rows[] = {
        {"300000", TEXT_OK, 300000},        {"1e9", TEXT_OK, 1000000000},
        {"1B", TEXT_OK, 1000000000},        {"1G", TEXT_OK, 1000000000},
        {"1.5T", TEXT_OK, 1500000000000},   {"1.1M", TEXT_OK, 1100000},
        {"100k", TEXT_OK, 100000},          {"2.5e3k", TEXT_OK, 2500000},
        {"1.5", TEXT_NOT_A_NUMBER, 0},      {"1.0001", TEXT_NOT_A_NUMBER, 0},
        {"1.00005k", TEXT_NOT_A_NUMBER, 0}, {"B", TEXT_NOT_A_NUMBER, 0},
        {"", TEXT_NOT_A_NUMBER, 0},         {"1b", TEXT_NOT_A_NUMBER, 0},
        {"1 B", TEXT_NOT_A_NUMBER, 0},      {"1MB", TEXT_NOT_A_NUMBER, 0},
        {"inf", TEXT_NOT_A_NUMBER, 0},      {"0x1p3", TEXT_NOT_A_NUMBER, 0},
        {"0", TEXT_OUT_OF_RANGE, 0},        {"-1B", TEXT_OUT_OF_RANGE, 0},
        {"1e16", TEXT_OUT_OF_RANGE, 0},     {"1e300T", TEXT_OUT_OF_RANGE, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t value = 0;
        const enum text_result got = text_parse_count(rows[i].text, 1, 9007199254740991, &value);
        if (got != rows[i].result || value != rows[i].value)
            fail_msg("%s: %d, %lld", rows[i].text, (int)got, (long long)value);
    }
}

/* Every double reads back from its digits, and no shorter ones would do. */
TEST(shortest_digits)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {3e-4, "0.0003"},
        {0.95, "0.95"},
        {1e-8, "1e-08"},
        {0, "0"},
        {-0.0, "-0"},
        {128000, "128000"},
        {1795454743, "1795454743"},
        {9007199254740991, "9007199254740991"},
        {1e22, "1e+22"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"},
        {5e-324, "4.94065645841247e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {INFINITY, "inf"},
        {NAN, "nan"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(text_f64(rows[i].value).text, rows[i].text);
    uint64_t bits = 1;
    for (int i = 0; i < 100000; i++) {
        double value, again;
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        assert_int_equal(text_parse_f64(text_f64(value).text, -INFINITY, INFINITY, &again),
                         TEXT_OK);
        assert_memory_equal(&again, &value, sizeof value);
    }
}

TEST(human_forms)
{
    char out[32];
    assert_string_equal(text_format_bytes(out, sizeof(out), 0), "0 B");
    assert_string_equal(text_format_bytes(out, sizeof(out), 1023), "1023 B");
    assert_string_equal(text_format_bytes(out, sizeof(out), 1536), "1.5 KiB");
    assert_string_equal(text_format_bytes(out, sizeof(out), 1048575), "1.0 MiB");
    assert_string_equal(text_format_bytes(out, sizeof(out), 2.5 * (1 << 30)), "2.5 GiB");
    assert_string_equal(text_format_bytes(out, sizeof(out), NAN), "-");
    assert_string_equal(text_format_count(out, sizeof(out), 1410000), "1.41M");
    assert_string_equal(text_format_count(out, sizeof(out), 999), "999");
    assert_string_equal(text_format_count(out, sizeof(out), 999.7), "1.00k");
    assert_string_equal(text_format_count(out, sizeof(out), 12345), "12.3k");
    assert_string_equal(text_format_count(out, sizeof(out), 182.4), "182");
    assert_string_equal(text_format_count(out, sizeof(out), 1.25), "1.25");
    assert_string_equal(text_format_count(out, sizeof(out), 0), "0");
    assert_string_equal(text_format_count(out, sizeof(out), 124439808), "124M");
    assert_string_equal(text_format_count(out, sizeof(out), INFINITY), "-");
    static const char *const masked[][2] = {
        {"", ""},
        {"a plain line: 3 of 4", "a plain line: 3 of 4"},
        {"https://host/a.bin", "https://host/a.bin"},
        {"https://me:pass@host/a", "https://***@host/a"},
        {"at https://me@host/a?x=1&y=2, which", "at https://***@host/a?*** which"},
        {"s3://k:p/w@b/x 'https://u:p,q@h'", "s3://***@b/x 'https://***@h'"},
        {"https://a/x?sig=1,https://b/y", "https://a/x?***"},
        {"https://a/x,https://u:p@b/y:0.5", "https://a/x,https://***@b/y:0.5"},
        {"://", "://"},
        {"://@", "://***@"},
    };
    for (size_t i = 0; i < sizeof(masked) / sizeof(masked[0]); i++) {
        char shown[128];
        assert_string_equal(text_mask(shown, sizeof(shown), masked[i][0]), masked[i][1]);
    }
    assert_string_equal(text_format_span(out, sizeof(out), 45999), "45s");
    assert_string_equal(text_format_span(out, sizeof(out), 14 * 60000 + 5), "14m");
    assert_string_equal(text_format_span(out, sizeof(out), (3 * 60 + 2) * 60000), "3h02m");
    assert_string_equal(text_format_span(out, sizeof(out), (27 * 60) * 60000), "1d03h");
    assert_string_equal(text_format_span(out, sizeof(out), 0), "0s");
    assert_string_equal(text_format_span(out, sizeof(out), -1), "-");
}

TEST(a_text_grows_to_its_limit)
{
    struct text t = {.limit = 10000};
    for (int i = 0; i < 1000; i++)
        text_add(&t, "%04d ", i);
    assert_int_equal(t.len, 5000);
    assert_false(t.overflow);
    assert_true(strncmp(t.data + 2500, "0500 0501 ", 10) == 0);
    char big[7000];
    memset(big, 'z', sizeof(big));
    big[sizeof(big) - 1] = 0;
    text_add(&t, "%s", big);
    assert_true(t.overflow);
    assert_int_equal(t.len, 10000);
    assert_int_equal(strlen(t.data), 10000);
    text_add(&t, "x");
    text_add_bytes(&t, "x", 1);
    assert_int_equal(t.len, 10000);
    text_free(&t);
    text_free(&t);
    assert_null(t.data);
    struct text plain = {0};
    text_add_bytes(&plain, "a\0b", 3);
    text_add_bytes(&plain, "", 0);
    text_add(&plain, "%s", "");
    assert_int_equal(plain.len, 3);
    assert_memory_equal(plain.data, "a\0b", 4);
    text_free(&plain);
    struct text whole = {0};
    for (int i = 0; i < 300; i++)
        text_add_bytes(&whole, big, 6999);
    assert_true(whole.overflow && whole.len == 1 << 20);
    text_free(&whole);
}

HARNESS_RUN_ALL()

/* mix — the syntax of mixtures and their order: shares are kept, each item's samples are in
 * order and evenly spread. */
#include "harness.h"

#include "data/mix.h"

static void refuse(const char *data, const char *word)
{
    struct mix mix = {0};
    assert_int_equal(mix_parse(data, &mix), ST_BAD_SETTING);
    if (strstr(status_message(), word) == NULL)
        fail_msg("%s: \"%s\", expected \"%s\"", data, status_message(), word);
    mix_free(&mix);
}

TEST(test_weights)
{
    struct mix mix;
    assert_int_equal(mix_parse("a.bin:0.7,https://h:80/b.jsonl#sha256=00:3e-1,dir/*.txt:1", &mix),
                     ST_OK);
    assert_true(mix.is_weighted);
    assert_int_equal(mix.n, 3);
    assert_string_equal(mix.item[0].data, "a.bin");
    assert_string_equal(mix.item[1].data, "https://h:80/b.jsonl#sha256=00");
    assert_string_equal(mix.item[2].data, "dir/*.txt");
    assert_true(mix.item[0].weight == 0.7 && mix.item[1].weight == 0.3 && mix.item[2].weight == 1);
    mix_free(&mix);
    mix_free(&mix);
    assert_int_equal(mix_parse("a:1", &mix), ST_OK);
    assert_true(mix.is_weighted && mix.n == 1);
    mix_free(&mix);
}

TEST(test_no_weights)
{
    static const char *const plain[] = {"a.txt", "a.txt,b.txt", "http://h:8080", "a:b",
                                        "a:",    ":1",          "C:/x",          ""};
    for (int i = 0; i < 7; i++) {
        struct mix mix;
        assert_int_equal(mix_parse(plain[i], &mix), ST_OK);
        assert_false(mix.is_weighted);
        assert_int_equal(mix.n, 1);
        assert_string_equal(mix.item[0].data, plain[i]);
        mix_free(&mix);
    }
}

TEST(test_refusals)
{
    char many[1000] = "";
    refuse("", "empty");
    refuse("a:1,,b:1", "part 2");
    refuse("a:1,b", "part 2");
    refuse("a,b:1", "part 1");
    refuse("a:0,b:1", "\"0\"");
    refuse("a:-1,b:1", "\"-1\"");
    refuse("a:1e10,b:1", "1e9");
    refuse("a:1e999,b:1", "1e9");
    refuse("a:1.2.3,b:1", "not a number");
    refuse("a:11111111111111111111111111111111111111,b:1", "not a number");
    refuse("a:1,b:0.000001", "part 2");
    for (int i = 0; i < 65; i++)
        strcat(many, "a:1,");
    refuse(many, "64");
}

static void check_order(const char *data, bool is_shuffled)
{
    struct mix mix;
    int64_t next[MIX_ITEMS_MAX] = {0}, sample, share = 0;
    assert_int_equal(mix_parse(data, &mix), ST_OK);
    struct mix_order *order = mix_order_open(&mix, 7, is_shuffled);
    double sum = 0;
    for (int i = 0; i < mix.n; i++)
        sum += mix.item[i].weight;
    for (int64_t j = 0; j < 3 * MIX_CYCLE; j++) {
        const int i = mix_order_at(order, j, &sample);
        assert_in_range(i, 0, mix.n - 1);
        assert_int_equal(sample, next[i]++); /* in order, none left out */
        const double want = mix.item[i].weight / sum * (double)(j + 1),
                     off = (double)next[i] - want;
        if (!is_shuffled) /* never a whole position and a bit from its due for each item */
            assert_true(off > -(double)mix.n && off < (double)mix.n);
        else
            assert_true(off > -1200 && off < 1200);
    }
    for (int i = 0; i < mix.n; i++) {
        assert_int_equal(next[i], 3 * mix_order_share(order, i));
        share += mix_order_share(order, i);
    }
    assert_int_equal(share, MIX_CYCLE);
    int64_t again;
    const int item = mix_order_at(order, 123456789012, &again);
    struct mix_order *same = mix_order_open(&mix, 7, is_shuffled);
    assert_int_equal(mix_order_at(same, 123456789012, &sample), item);
    assert_int_equal(sample, again);
    mix_order_close(order);
    mix_order_close(same);
    mix_order_close(NULL);
    mix_free(&mix);
}

TEST(test_order)
{
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        check_order("a:1", shuffled);
        check_order("a:0.7,b:0.3", shuffled);
        check_order("a:1,b:1,c:1", shuffled);
        check_order("a:1,b:65535", shuffled);
        check_order("a:0.0001,b:5,c:3.3,d:1e-2,e:4", shuffled);
    }
}

HARNESS_RUN_ALL()

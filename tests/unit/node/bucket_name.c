/* bucket_name: the names of a run in a bucket, the checkpoints in a list of keys, and which of them
 * may be removed. */
#include "harness.h"

#include "base/memory.h"
#include "node/bucket/bucket_inside.h"

/* Groups these keys, each of 10 bytes, below the prefix. */
static void group(const char *prefix, const char *const *keys, struct bucket_listing *out)
{
    struct s3_list objects = {.n = 0};
    for (; keys[objects.n] != NULL; objects.n++) {
        objects.item = memory_resize(objects.item, (size_t)objects.n + 1, sizeof *objects.item);
        objects.item[objects.n] =
            (struct s3_object){.key = memory_text(keys[objects.n]), .bytes = 10};
    }
    bucket_group(&objects, prefix, out);
    assert_int_equal(objects.n, 0); /* the listing owns them */
}

TEST(addresses)
{
    static const struct {
        const char *name, *bucket, *key;
        int64_t step;
    } rows[] = {
        {"s3://bucket/run1", "bucket", "run1", -1},
        {"s3://bucket/run1/", "bucket", "run1", -1},
        {"s3://bucket/a/b", "bucket", "a/b", -1},
        {"s3://bucket", "bucket", "", -1},
        {"s3://bucket/", "bucket", "", -1},
        {"s3://bucket/a/step-00000100", "bucket", "a", 100},
        {"s3://bucket/a/step-00000100/", "bucket", "a", 100},
        {"s3://bucket/step-00000100", "bucket", "", 100},
        {"s3://bucket/a/step-100", "bucket", "a/step-100", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bucket_address address;
        assert_int_equal(bucket_address_parse(rows[i].name, &address), ST_OK);
        assert_string_equal(address.s3.bucket, rows[i].bucket);
        assert_string_equal(address.s3.key, rows[i].key);
        assert_int_equal(address.step, rows[i].step);
    }
}

/* A part of a prefix is also a local folder, so it must not lead out of CACHE_DIR. */
TEST(addresses_that_are_refused)
{
    static const char *const names[] = {
        "s3://bucket/..",   "s3://bucket/../x", "s3://bucket/a/../b", "s3://bucket/./a",
        "s3://bucket/a//b", "s3://bucket//a",   "s3://bucket/a/..",   "s3://bucket/a/../",
        "s3://b/x",         "s3:///x",          "http://bucket/a",    "",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct bucket_address address;
        assert_int_equal(bucket_address_parse(names[i], &address), ST_BAD_SETTING);
        status_clear();
    }
}

TEST(local_folders)
{
    struct bucket_address address;
    char dir[FILE_PATH_MAX];
    assert_int_equal(bucket_address_parse("s3://bucket/a/b", &address), ST_OK);
    assert_int_equal(bucket_local("/cache", &address, dir), ST_OK);
    assert_string_equal(dir, "/cache/bucket/a/b");
    assert_int_equal(bucket_address_parse("s3://bucket", &address), ST_OK);
    assert_int_equal(bucket_local("/cache", &address, dir), ST_OK);
    assert_string_equal(dir, "/cache/bucket");
}

TEST(checkpoints_of_a_list)
{
    static const char *const keys[] = {"run/.try",
                                       "run/history.json",
                                       "run/ledger.jsonl",
                                       "run/step-00000010/manifest.json",
                                       "run/step-00000010/model.safetensors",
                                       "run/step-00000020/model.safetensors",
                                       "run/step-100000000/manifest.json",
                                       "run/step-100000000/model.safetensors",
                                       "run/step-20000000/manifest.json",
                                       "run/step-7/manifest.json",
                                       NULL};
    struct bucket_listing listing;
    group("run/", keys, &listing);
    assert_int_equal(listing.steps_n, 4);
    assert_int_equal(listing.step[0].step, 100000000);
    assert_int_equal(listing.step[0].n, 2);
    assert_int_equal(listing.step[0].bytes, 20);
    assert_int_equal(listing.step[1].step, 20000000);
    assert_int_equal(listing.step[2].step, 20);
    assert_false(listing.step[2].is_complete);
    assert_int_equal(listing.step[3].step, 10);
    assert_true(listing.step[3].is_complete);
    assert_int_equal(listing.step[3].first, 3);
    assert_int_equal(bucket_newest(&listing, INT64_MAX)->step, 100000000);
    assert_int_equal(bucket_newest(&listing, 20000000)->step, 10);
    assert_null(bucket_newest(&listing, 10));
    bucket_listing_free(&listing);
}

/* Keys of others, and hostile ones: none becomes a checkpoint or a local file. */
TEST(keys_of_others)
{
    static const char *const keys[] = {"other/step-00000010/manifest.json",
                                       "run/step-00000010",
                                       "run/step-00000010/",
                                       "run/step-00000010/../x",
                                       "run/step-00000010/.hidden",
                                       "run/step-00000010/a/manifest.json",
                                       "run/step-00000010/\x01",
                                       "run/step--0000001/manifest.json",
                                       "run/step-99999999999999999999/manifest.json",
                                       "run/sub/step-00000010/manifest.json",
                                       "runstep-00000010/manifest.json",
                                       NULL};
    struct bucket_listing listing;
    group("run/", keys, &listing);
    assert_int_equal(listing.steps_n, 0);
    bucket_listing_free(&listing);
    static const char *const none[] = {NULL};
    group("", none, &listing);
    assert_int_equal(listing.steps_n, 0);
    bucket_listing_free(&listing);
    bucket_listing_free(&listing);
}

TEST(records)
{
    static const char *const are[] = {"ledger.jsonl", "history.json", "tokenizer/tokenizer.json"};
    static const char *const are_not[] = {"",
                                          "owner.json",
                                          "tokenizer/",
                                          "tokenizer/../x",
                                          "tokenizer",
                                          "tokenizer/a/b",
                                          "tokenizer/.x",
                                          "step-00000010/manifest.json",
                                          "x/ledger.jsonl"};
    for (size_t i = 0; i < sizeof are / sizeof *are; i++)
        assert_true(bucket_is_record(are[i]));
    for (size_t i = 0; i < sizeof are_not / sizeof *are_not; i++)
        assert_false(bucket_is_record(are_not[i]));
}

/* Writes the steps that are removed after `saved`, newest first. */
static const char *removed(const char *const *keys, int keep, int64_t saved, char *out, size_t cap)
{
    struct bucket_listing listing;
    struct text text = {0};
    group("", keys, &listing);
    for (int i = 0; i < listing.steps_n; i++)
        if (bucket_excess(&listing, i, keep, saved))
            text_add(&text, " %lld", (long long)listing.step[i].step);
    text_copy(out, cap, text.data != NULL ? text.data : "");
    text_free(&text);
    bucket_listing_free(&listing);
    return out;
}

#define WHOLE(step) "step-000000" #step "/manifest.json", "step-000000" #step "/model.safetensors"
#define PART(step) "step-000000" #step "/model.safetensors"

TEST(removal)
{
    static const char *const keys[] = {WHOLE(10), PART(15), WHOLE(20), WHOLE(30),
                                       WHOLE(40), PART(50), NULL};
    static const char *const damaged[] = {WHOLE(20), WHOLE(90), NULL};
    char out[64];
    assert_string_equal(removed(keys, 3, 40, out, sizeof out), " 15 10");
    assert_string_equal(removed(keys, 2, 40, out, sizeof out), " 20 15 10");
    assert_string_equal(removed(keys, 1, 40, out, sizeof out), " 30 20 15 10");
    assert_string_equal(removed(keys, 9, 40, out, sizeof out), " 15");
    assert_string_equal(removed(keys, 0, 40, out, sizeof out), "");
    /* the one that was just uploaded stays, also if a newer one is there */
    assert_string_equal(removed(damaged, 1, 20, out, sizeof out), "");
    /* files without a manifest that are newer than all others may be an upload in progress */
    static const char *const begun[] = {PART(10), NULL};
    assert_string_equal(removed(begun, 1, -1, out, sizeof out), "");
}

HARNESS_RUN_ALL()

/* s3_page — pages of lists as Amazon and other stores send them, and pages that no store should
 * send. */
#include "harness.h"

#include "remote/s3_page.h"

#define OBJECT(key, size) \
    "<Contents><Key>" key "</Key><ETag>&quot;e&quot;</ETag><Size>" size "</Size></Contents>"

static void free_list(struct s3_list *list)
{
    for (int64_t i = 0; i < list->n; i++)
        free((char *)list->item[i].key);
    free(list->item);
    *list = (struct s3_list){0};
}

/* Reads the elements of a page of the list of "a". */
static enum status read_page(const char *elements, struct s3_list *list, struct s3_page *page)
{
    struct text xml = {0};
    text_add(&xml, "<?xml version=\"1.0\"?><ListBucketResult>%s</ListBucketResult>", elements);
    const enum status st = s3_page_read(xml.data, xml.len, "a", "s3://b/a", list, page);
    text_free(&xml);
    return st;
}

TEST(test_pages)
{
    struct s3_list list = {0};
    struct s3_page page = {0};
    assert_int_equal(
        read_page("<Name>b</Name><Prefix/>" OBJECT("a%2Bb", "0")
                      OBJECT("a &amp;",
                             "9223372036854775807") "<IsTruncated>true</"
                                                    "IsTruncated><NextContinuationToken>t&#x2b;="
                                                    "</NextContinuationToken>",
                  &list, &page),
        ST_OK);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.item[0].key, "a%2Bb"); /* not encoded */
    assert_string_equal(list.item[0].etag, "\"e\"");
    assert_true(list.item[0].bytes == 0 && list.item[1].bytes == INT64_MAX);
    assert_string_equal(list.item[1].key, "a &");
    assert_true(page.is_truncated);
    assert_string_equal(page.token, "t+=");
    /* the next page; the encoding may be stated after the keys */
    assert_int_equal(read_page("<Contents><Size>5</Size><Key>a%2Bc+d</Key></Contents>"
                               "<CommonPrefixes><Prefix>x</Prefix></CommonPrefixes>"
                               "<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>",
                               &list, &page),
                     ST_OK);
    assert_int_equal(list.n, 3);
    assert_string_equal(list.item[2].key, "a+c d");
    assert_string_equal(list.item[2].etag, ""); /* some stores send none */
    assert_true(!page.is_truncated && page.token[0] == 0);
    assert_int_equal(read_page("", &list, &page), ST_OK); /* an empty page */
    assert_int_equal(list.n, 3);
    free_list(&list);
}

TEST(test_refused)
{
    static const char *const bad[] = {
        OBJECT("b", "1"), /* another prefix */
        OBJECT("", "1"),  /* no key */
        OBJECT("a", "-1"),
        OBJECT("a", "9223372036854775808"),
        OBJECT("a", "1e3"),
        OBJECT("a", ""),
        OBJECT("a&nope;", "1"),
        "<Contents><Key>a</Key></Contents>", /* no size */
        "<Contents><Size>1</Size></Contents>",
        "<Contents><Key>a</Key><Size>1</Size><ETag>\x01</ETag></Contents>",
        "<EncodingType>url</EncodingType>" OBJECT("a%", "1"),
        "<EncodingType>url</EncodingType>" OBJECT("a%00", "1"),
        "<IsTruncated>true</IsTruncated>", /* no token */
        "<IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken>",
        "</ListBucketResult><ListBucketResult>",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct s3_list list = {0};
        struct s3_page page = {.token = "same"};
        if (read_page(bad[i], &list, &page) != ST_BAD_DATA)
            fail_msg("accepted: %s", bad[i]);
        harness_assert_message("s3://b/a");
        free_list(&list);
    }
    static const char *const others[] = {"",
                                         "<Error><Code>x</Code></Error>",
                                         "<html></html>",
                                         "{\"a\":1}",
                                         "<ListBucketResult>",
                                         "<ListBucketResultX></ListBucketResultX>"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct s3_list list = {0};
        struct s3_page page = {0};
        assert_int_equal(s3_page_read(others[i], strlen(others[i]), "", "x", &list, &page),
                         ST_BAD_DATA);
    }
}

/* Texts at their limits: keys, ETags and tokens that are too long. */
TEST(test_lengths)
{
    static char text[8192], xml[10000];
    static const struct {
        const char *before, *after;
        size_t most;
    } rows[] = {
        {"<Contents><Size>1</Size><Key>a", "</Key></Contents>", 1023},
        {"<Contents><Size>1</Size><Key>a</Key><ETag>", "</ETag></Contents>", S3_ETAG_MAX - 3},
        {"<IsTruncated>true</IsTruncated><NextContinuationToken>", "</NextContinuationToken>",
         S3_PAGE_TOKEN_MAX - 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t more = 0; more < 2; more++) {
            struct s3_list list = {0};
            struct s3_page page = {0};
            memset(text, 'x', rows[i].most + more);
            text[rows[i].most + more] = 0;
            snprintf(xml, sizeof xml, "%s%s%s", rows[i].before, text, rows[i].after);
            assert_int_equal(read_page(xml, &list, &page), more == 0 ? ST_OK : ST_BAD_DATA);
            free_list(&list);
        }
}

HARNESS_RUN_ALL()

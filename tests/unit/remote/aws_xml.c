/* aws_xml — the XML of S3 and STS: documents as these services send them, and bytes that are cut,
 * hostile or not XML at all. */
#include "harness.h"

#include "remote/aws_xml.h"

static char seen[4096];

static bool note(void *arg, const char *path, const char *text)
{
    int *stop = arg;
    const size_t used = strlen(seen);
    snprintf(seen + used, sizeof seen - used, "%s=%s;", path, text);
    return stop == NULL || --*stop > 0;
}

static bool walk(const char *xml)
{
    seen[0] = 0;
    return aws_xml_walk(xml, strlen(xml), note, NULL);
}

TEST(test_documents)
{
    assert_true(walk("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- a > b --><A xmlns='x>y' b = "
                     "\"c\">\r\n <B>1 &lt;2&amp;&#65;&#x20AC;&quot;&apos;&gt;</B> <C/><D e='f'/>"
                     "<B></B></A >\n"));
    assert_string_equal(seen, "A/B=1 <2&A\xe2\x82\xac\"'>;A/C=;A/D=;A/B=;A=;");
    assert_true(walk("<A>text</A>"));
    assert_string_equal(seen, "A=text;");
}

TEST(test_malformed)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "text",
                                      "<A>",
                                      "<A></B>",
                                      "<A><B></A></B>",
                                      "</A>",
                                      "<A/><B/>",
                                      "<A/>text",
                                      "text<A/>",
                                      "<A",
                                      "<A b>",
                                      "<A b=c/>",
                                      "<A b='c/>",
                                      "< A/>",
                                      "<A/ >",
                                      "<!DOCTYPE a [<!ENTITY b 'c'>]><A>&b;</A>",
                                      "<A><![CDATA[x]]></A>",
                                      "<A>&nbsp;</A>",
                                      "<A>&amp</A>",
                                      "<A>&</A>",
                                      "<A>&#;</A>",
                                      "<A>&#x;</A>",
                                      "<A>&#0;</A>",
                                      "<A>&#xD800;</A>",
                                      "<A>&#x110000;</A>",
                                      "<A>&#99999999999999999999;</A>",
                                      "<A>&#12a;</A>",
                                      "<A><!-- </A>",
                                      "<?xml <A/>",
                                      "HTTP/1.1 200 OK"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (walk(bad[i]))
            fail_msg("accepted: %s", bad[i]);
    assert_false(aws_xml_walk("<A>\0</A>", 8, note, NULL));
}

/* Every prefix of a document is refused, and none is read beyond its end. */
TEST(test_cut)
{
    static const char whole[] = "<A b=\"c\"><B>&amp;x</B><!-- d --><C/></A>";
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char *bytes = malloc(n > 0 ? n : 1); /* of this size, for the address sanitizer */
        memcpy(bytes, whole, n);
        seen[0] = 0;
        assert_false(aws_xml_walk(bytes, n, note, NULL));
        free(bytes);
    }
    assert_true(walk(whole));
}

TEST(test_limits)
{
    struct text xml = {0};
    text_add(&xml, "<A>");
    for (int i = 0; i < AWS_XML_TEXT_MAX; i++)
        text_add(&xml, "x");
    text_add(&xml, "</A>");
    seen[0] = 0;
    assert_true(aws_xml_walk(xml.data, xml.len, note, NULL));
    xml.data[3 + AWS_XML_TEXT_MAX] = 'x'; /* one byte more */
    xml.len = 3 + AWS_XML_TEXT_MAX + 1;
    text_add(&xml, "</A>");
    assert_false(aws_xml_walk(xml.data, xml.len, note, NULL));
    text_free(&xml);
    for (int i = 0; i < 100000; i++)
        text_add(&xml, "<A>"); /* deep */
    assert_false(aws_xml_walk(xml.data, xml.len, note, NULL));
    text_free(&xml);
    text_add(&xml, "<");
    for (int i = 0; i < AWS_XML_PATH_MAX; i++)
        text_add(&xml, "n");
    text_add(&xml, "/>");
    assert_false(aws_xml_walk(xml.data, xml.len, note, NULL));
    text_free(&xml);
    int stop = 1;
    assert_false(aws_xml_walk("<A><B/><C/></A>", 15, note, &stop)); /* stopped by the callback */
}

TEST(test_get)
{
    static const char xml[] = "<Error><Code>NoSuchKey</Code><Code>Second</Code><Sub><Code>x</Code>"
                              "</Sub><Long>123456789</Long></Error>";
    char out[10];
    assert_true(aws_xml_get(xml, sizeof xml - 1, "Error/Code", out, sizeof out));
    assert_string_equal(out, "NoSuchKey");
    assert_true(aws_xml_get(xml, sizeof xml - 1, "Error/Sub/Code", out, sizeof out));
    assert_string_equal(out, "x");
    assert_true(aws_xml_get(xml, sizeof xml - 1, "Error/Long", out, 10));
    assert_false(aws_xml_get(xml, sizeof xml - 1, "Error/Long", out, 9));
    assert_string_equal(out, "");
    assert_false(aws_xml_get(xml, sizeof xml - 1, "Code", out, sizeof out));
    assert_false(aws_xml_get("", 0, "Error/Code", out, sizeof out));
}

TEST(test_decode)
{
    static const struct {
        const char *in, *out;
    } rows[] = {{"a%2Bb+c%20d", "a+b c d"},
                {"", ""},
                {"%C3%bc", "\xc3\xbc"},
                {"%2", NULL},
                {"%", NULL},
                {"%zz", NULL},
                {"%00", NULL},
                {"a%2g", NULL},
                {"%25%32%35", "%25"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s", rows[i].in);
        assert_int_equal(aws_xml_decode_url(text), rows[i].out != NULL);
        if (rows[i].out != NULL)
            assert_string_equal(text, rows[i].out);
    }
}

HARNESS_RUN_ALL()

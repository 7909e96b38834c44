/* s3_error — every error that the documents of S3 name: whether it passes, its status, and the
 * remedy in its sentence. */
#include "harness.h"

#include "remote/s3_error.h"

static struct s3_error read_error(long http, const char *code)
{
    struct s3_error error;
    char body[512];
    snprintf(body, sizeof body, "<Error><Code>%s</Code><Message>m</Message></Error>", code);
    s3_error_read(&error, http, code[0] != 0 ? body : "", code[0] != 0 ? strlen(body) : 0, NULL);
    return error;
}

static const struct s3_error_request request = {.verb = "read",
                                                .name = "s3://b/k",
                                                .bucket = "b",
                                                .region = "us-east-1",
                                                .method = "GET",
                                                .credentials = "AWS_PROFILE=p"};

TEST(test_kinds)
{
    static const struct {
        long http;
        const char *code;
        bool passes;
        enum status st;
        const char *words;
    } rows[] = {
        {503, "SlowDown", true, ST_RETRY, "SlowDown"},
        {500, "InternalError", true, ST_RETRY, "HTTP 500"},
        {503, "", true, ST_RETRY, "HTTP 503"},
        {429, "", true, ST_RETRY, "HTTP 429"},
        {502, "", true, ST_RETRY, "HTTP 502"},
        {400, "RequestTimeout", true, ST_RETRY, "RequestTimeout"},
        {400, "BadDigest", true, ST_RETRY, "BadDigest"},
        {400, "XAmzContentSHA256Mismatch", true, ST_RETRY, "SHA256"},
        {404, "NoSuchUpload", false, ST_RETRY, "multipart"},
        {501, "NotImplemented", false, ST_BAD_SETTING, "NotImplemented m"},
        {403, "AccessDenied", false, ST_BAD_SETTING, "s3:GetObject"},
        {403, "", false, ST_BAD_SETTING, "AWS_PROFILE=p"},
        {401, "", false, ST_BAD_SETTING, "access denied"},
        {403, "InvalidAccessKeyId", false, ST_BAD_SETTING, "InvalidAccessKeyId"},
        {403, "SignatureDoesNotMatch", false, ST_BAD_SETTING, "AWS_SECRET_ACCESS_KEY"},
        {403, "RequestTimeTooSkewed", false, ST_BAD_SETTING, "clock"},
        {400, "ExpiredToken", false, ST_BAD_SETTING, "AWS_SESSION_TOKEN"},
        {404, "NoSuchBucket", false, ST_BAD_SETTING, "there is no bucket b"},
        {404, "NoSuchKey", false, ST_NO_INPUT, "no such object"},
        {404, "", false, ST_NO_INPUT, "no such object"},
        {301, "PermanentRedirect", false, ST_BAD_SETTING, "AWS_REGION"},
        {307, "", false, ST_BAD_SETTING, "AWS_ENDPOINT_URL"},
        {412, "PreconditionFailed", false, ST_BAD_DATA, "changed"},
        {416, "InvalidRange", false, ST_BAD_DATA, "changed"},
        {403, "InvalidObjectState", false, ST_NO_INPUT, "Glacier"},
        {507, "", false, ST_STORE, "full"},
        {403, "QuotaExceeded", false, ST_STORE, "quota"},
        {400, "InvalidArgument", false, ST_BAD_SETTING, "HTTP 400 InvalidArgument m"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct s3_error error = read_error(rows[i].http, rows[i].code);
        const enum status st = s3_error_fail(&error, &request);
        if (st != rows[i].st || s3_error_passes(&error) != rows[i].passes)
            fail_msg("HTTP %ld %s: %s", rows[i].http, rows[i].code, status_message());
        harness_assert_message(rows[i].words);
        harness_assert_message("s3://b/k");
    }
}

TEST(test_region)
{
    struct s3_error error = read_error(400, "AuthorizationHeaderMalformed");
    snprintf(error.region, sizeof error.region, "eu-west-1");
    assert_int_equal(s3_error_fail(&error, &request), ST_BAD_SETTING);
    harness_assert_message("set AWS_REGION=eu-west-1");
    static const char body[] = "<Error><Code>PermanentRedirect</Code><Region>a-1</Region></Error>";
    s3_error_read(&error, 301, body, sizeof body - 1, NULL);
    assert_string_equal(error.region, "a-1");
    s3_error_read(&error, 301, body, sizeof body - 1, "b-2\x1b[31m"); /* the header; printable */
    assert_string_equal(error.region, "b-2?[31m");
}

TEST(test_anonymous_and_permissions)
{
    struct s3_error_request r = request;
    const struct s3_error error = read_error(403, "AccessDenied");
    r.credentials = "none";
    assert_int_equal(s3_error_fail(&error, &r), ST_BAD_SETTING);
    harness_assert_message("anonymous");
    r.credentials = "AWS_ACCESS_KEY_ID";
    static const char *const rows[][2] = {{"PUT", "s3:PutObject"},
                                          {"POST", "s3:PutObject"},
                                          {"DELETE", "s3:DeleteObject"},
                                          {"HEAD", "s3:GetObject"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        r.method = rows[i][0];
        s3_error_fail(&error, &r);
        harness_assert_message(rows[i][1]);
    }
    r.is_list = true;
    s3_error_fail(&error, &r);
    harness_assert_message("s3:ListBucket");
}

/* Bodies that are no XML, too long, or made to confuse a terminal. */
TEST(test_hostile_bodies)
{
    struct s3_error error;
    static const char html[] = "<html><body>Bad gateway<br></body></html>",
                      escape[] = "<Error><Code>\x1b]0;x\x07</Code><Message>\xff</Message></Error>";
    char big[3000];
    s3_error_read(&error, 502, html, sizeof html - 1, NULL);
    assert_true(error.code[0] == 0 && s3_error_passes(&error));
    s3_error_read(&error, 400, escape, sizeof escape - 1, NULL);
    assert_true(text_is_printable(error.code) && text_is_printable(error.message));
    snprintf(big, sizeof big, "<Error><Code>A</Code><Message>%02000d</Message></Error>", 7);
    s3_error_read(&error, 400, big, strlen(big), NULL);
    assert_string_equal(error.code, "A");
    assert_string_equal(error.message, "");
}

HARNESS_RUN_ALL()

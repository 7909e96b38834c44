/* aws_credentials — profiles in files of the AWS command line, and of other hands. */
#include "harness.h"

#include "remote/aws_credentials.h"

TEST(test_profiles)
{
    static const char text[] = "key = outside\n"
                               "# [a]\n"
                               "; key = comment\n"
                               "[a]\r\n"
                               "key=1\r\n"
                               "key2 = 2 = 3  \t\n"
                               " nested = no\n"
                               "empty =\n"
                               "[b] \n"
                               "key\t=  word with = and spaces\n"
                               "key = second\n"
                               "[c\n"
                               "key = no\n"
                               "[d]";
    static const struct {
        const char *section, *key, *value; /* NULL: none */
    } rows[] = {{"a", "key", "1"},     {"a", "key2", "2 = 3"},
                {"a", "nested", NULL}, {"a", "empty", NULL},
                {"a", "ke", NULL},     {"b", "key", "word with = and spaces"},
                {"c", "key", NULL},    {"d", "key", NULL},
                {"e", "key", NULL},    {"", "key", NULL}};
    char out[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool is_found =
            aws_credentials_profile(text, rows[i].section, rows[i].key, out, sizeof out);
        assert_int_equal(is_found, rows[i].value != NULL);
        if (is_found)
            assert_string_equal(out, rows[i].value);
    }
    assert_false(aws_credentials_profile(text, "b", "key", out, 22)); /* does not fit */
    assert_true(aws_credentials_profile(text, "b", "key", out, 23));
    assert_false(aws_credentials_profile("", "a", "key", out, sizeof out));
}

/* The source is searched when a request is signed; without any, requests are anonymous. */
TEST(test_none)
{
    char *const environment[] = {"AWS_EC2_METADATA_DISABLED=true", "HOME=/nonexistent",
                                 "AWS_DEFAULT_REGION=eu-west-2", NULL};
    const struct aws_credentials_config config = {.environment = environment};
    struct aws_credentials *credentials;
    struct aws_sign_request request = {.headers_n = 0};
    struct text authorization = {0}, token = {0};
    char source[64];
    assert_int_equal(aws_credentials_open(&config, &credentials), ST_OK);
    assert_string_equal(aws_credentials_region(credentials), "eu-west-2");
    assert_int_equal(
        aws_credentials_sign(credentials, &request, &authorization, &token, NULL, NULL), ST_OK);
    assert_true(authorization.len == 0 && token.len == 0 && request.headers_n == 0);
    assert_string_equal(aws_credentials_source(credentials, source, sizeof source), "none");
    assert_false(aws_credentials_expire(credentials));
    aws_credentials_close(credentials);
    aws_credentials_close(NULL);
}

/* Keys that are too long to be any, and a web identity without its file. */
TEST(test_refused)
{
    static char long_key[400] = "AWS_ACCESS_KEY_ID=";
    memset(long_key + 18, 'k', 300);
    char *const keys[] = {long_key, "AWS_SECRET_ACCESS_KEY=x", NULL};
    char *const identity[] = {"AWS_WEB_IDENTITY_TOKEN_FILE=/nothing/there", "AWS_ROLE_ARN=arn",
                              "AWS_EC2_METADATA_DISABLED=true", NULL};
    struct aws_sign_request request = {.headers_n = 0};
    struct text authorization = {0}, token = {0};
    struct aws_credentials *credentials;
    assert_int_equal(
        aws_credentials_open(&(struct aws_credentials_config){.environment = keys}, &credentials),
        ST_OK);
    assert_int_equal(
        aws_credentials_sign(credentials, &request, &authorization, &token, NULL, NULL),
        ST_BAD_SETTING);
    harness_assert_message("too long");
    assert_null(strstr(status_message(), "kkk"));
    aws_credentials_close(credentials);
    assert_int_equal(aws_credentials_open(&(struct aws_credentials_config){.environment = identity},
                                          &credentials),
                     ST_OK);
    assert_int_equal(
        aws_credentials_sign(credentials, &request, &authorization, &token, NULL, NULL),
        ST_NO_INPUT);
    harness_assert_message("/nothing/there");
    aws_credentials_close(credentials);
}

HARNESS_RUN_ALL()

/* test_s3_credentials — every source of AWS credentials, with requests that the fake server checks:
 * their order, their renewal, and anonymous requests. */
#include "remote/s3_rig.h"

static void clear_keys(void)
{
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
}

static void write_text(const char *name, const char *text)
{
    char path[FILE_PATH_MAX];
    name_path(path, ".aws");
    assert_int_equal(file_make_dirs(path), ST_OK);
    name_path(path, name);
    assert_int_equal(file_replace(path, text, strlen(text)), ST_OK);
}

/* A list succeeds with the credentials of this source. */
static void assert_source(const char *expected)
{
    struct s3 *s3 = open_bucket("bucket");
    struct s3_list list;
    char source[300];
    if (s3_list(s3, "none/", &list) != ST_OK)
        fail_msg("%s: %s", expected, status_message());
    s3_list_free(&list);
    assert_string_equal(aws_credentials_source(s3->credentials, source, sizeof source), expected);
    s3_close(s3);
}

/* A list fails as a wrong setting, with these words. */
static void assert_list_refused(const char *words)
{
    struct s3 *s3 = open_bucket("bucket");
    struct s3_list list;
    assert_failure(s3_list(s3, "", &list), ST_BAD_SETTING, words);
    s3_close(s3);
}

S3_TEST(test_credentials_environment)
{
    assert_source("AWS_ACCESS_KEY_ID");
    setenv("AWS_SESSION_TOKEN", "fake-token", 1);
    assert_source("AWS_ACCESS_KEY_ID");
    setenv("AWS_SESSION_TOKEN", "another-token", 1);
    assert_list_refused("AWS_SESSION_TOKEN");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    assert_list_refused("AWS_SECRET_ACCESS_KEY is not");
}

S3_TEST(test_credentials_profile)
{
    struct s3_list list;
    clear_keys();
    write_text(".aws/credentials", "# keys\n[default]\naws_access_key_id=AKIDOTHER\n"
                                   "aws_secret_access_key = x\n\n[two words]\r\n"
                                   "aws_access_key_id =  AKIDFAKE \r\n"
                                   "aws_secret_access_key= fake/secret+key\r\n"
                                   "aws_session_token = fake-token\r\n");
    write_text(".aws/config", "[default]\nregion = eu-north-1\n[profile two words]\n"
                              "region = us-east-1\ns3 =\n  region = bad\n"
                              "[profile role]\nrole_arn = arn:aws:iam::1:role/x\n"
                              "[profile in-config]\naws_access_key_id = AKIDFAKE\n"
                              "aws_secret_access_key = fake/secret+key\n");
    setenv("AWS_PROFILE", "two words", 1);
    assert_source("AWS_PROFILE=two words");
    setenv("AWS_PROFILE", "in-config", 1);
    assert_source("AWS_PROFILE=in-config");
    setenv("AWS_PROFILE", "role", 1);
    assert_list_refused("role_arn");
    setenv("AWS_PROFILE", "nobody", 1);
    assert_list_refused("AWS_PROFILE=nobody");
    unsetenv("AWS_PROFILE"); /* the region of a profile is signed, so another one is refused */
    struct s3 *s3 = open_bucket("bucket");
    assert_string_equal(s3->region, "eu-north-1");
    assert_failure(s3_list(s3, "", &list), ST_BAD_SETTING, "AWS_PROFILE=default");
    s3_close(s3);
    char path[FILE_PATH_MAX];
    name_path(path, ".aws");
    assert_int_equal(file_remove_tree(path), ST_OK);
}

S3_TEST(test_credentials_web_identity)
{
    char path[FILE_PATH_MAX], url[64];
    struct s3_list list;
    clear_keys();
    write_text("web-token", "web.token+1\n");
    name_path(path, "web-token");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path, 1);
    setenv("AWS_ENDPOINT_URL_STS", url, 1);
    assert_list_refused("AWS_ROLE_ARN");
    setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/fake", 1);
    assert_source("AWS_WEB_IDENTITY_TOKEN_FILE");
    set_fault("kind=500&n=2&method=POST");
    assert_source("AWS_WEB_IDENTITY_TOKEN_FILE");
    setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/other", 1);
    assert_list_refused("trust policy");
    struct s3 *s3 = NULL;
    assert_int_equal(s3_open(&(struct s3_config){.bucket = "bucket"}, &s3), ST_OK);
    assert_failure(s3_list(s3, "", &list), ST_BAD_SETTING, "ALLOW_LOCAL_URLS=1");
    s3_close(s3);
}

S3_TEST(test_credentials_container)
{
    char url[64];
    clear_keys();
    snprintf(url, sizeof url, "http://127.0.0.1:%d/container", port);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    assert_list_refused("HTTP 401");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer fake", 1);
    assert_source("the container's credentials service");
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/steal", 1);
    assert_list_refused("FULL_URI");
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1@example.com/", 1);
    assert_list_refused("FULL_URI");
}

/* The instance's credentials; and their renewal, before they expire and when the store says so. */
S3_TEST(test_credentials_instance)
{
    char url[64];
    struct s3_list list;
    clear_keys();
    unsetenv("AWS_EC2_METADATA_DISABLED");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
    assert_source("the metadata service of EC2");
    struct s3 *s3 = open_bucket("bucket");
    const long long before = count("credentials");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s3_list(s3, "none/", &list), ST_OK);
        s3_list_free(&list);
    }
    assert_int_equal(count("credentials") - before, 1);
    set_fault("kind=expired&n=1&key=bucket");
    assert_int_equal(s3_list(s3, "none/", &list), ST_OK);
    assert_int_equal(count("credentials") - before, 2);
    s3_close(s3);
    set_fault("kind=none&n=0&expires=60"); /* sooner than they are renewed */
    s3 = open_bucket("bucket");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s3_list(s3, "none/", &list), ST_OK);
        s3_list_free(&list);
    }
    assert_int_equal(count("credentials") - before, 2 + 3);
    s3_close(s3);
}

/* The fixed addresses of the services are exempt from "public addresses only", and no others. */
S3_TEST(test_link_local)
{
    char *const fixed[] = {"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://169.254.169.254", NULL};
    char *const other[] = {"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://169.254.169.253", NULL};
    char *const loopback[] = {"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:9/x", NULL};
    char *const *const environments[] = {fixed, other, loopback};
    for (int i = 0; i < 3; i++) {
        const struct aws_credentials_config config = {.environment = environments[i]};
        struct aws_sign_request request = {.method = "GET",
                                           .path = "/",
                                           .query = "",
                                           .payload_sha256 = "x",
                                           .time = "20260101T000000Z",
                                           .region = "r",
                                           .service = "s3"};
        struct text authorization = {0}, token = {0};
        struct aws_credentials *credentials;
        assert_int_equal(aws_credentials_open(&config, &credentials), ST_OK);
        const enum status st =
            aws_credentials_sign(credentials, &request, &authorization, &token, NULL, NULL);
        if (i == 0) /* it answers on EC2, and nowhere else */
            assert_int_equal(st, ST_OK);
        else
            assert_failure(st, ST_BAD_SETTING, "ALLOW_LOCAL_URLS=1");
        text_free(&authorization);
        text_free(&token);
        aws_credentials_close(credentials);
    }
}

S3_TEST(test_anonymous)
{
    struct text text = {0};
    struct s3_list list;
    bool found;
    clear_keys();
    set_object("public/free", "beer", 4);
    struct s3 *s3 = open_bucket("public");
    assert_int_equal(s3_read(s3, "free", 10, &text, &found), ST_OK);
    assert_string_equal(text.data, "beer");
    assert_int_equal(s3_list(s3, "", &list), ST_OK);
    assert_int_equal(list.n, 1);
    s3_list_free(&list);
    assert_failure(s3_write(s3, "x", "y", 1), ST_BAD_SETTING, "anonymous");
    text_free(&text);
    s3_close(s3);
    assert_list_refused("no credentials were found");
}

HARNESS_RUN_ALL_WITH(set_up, tear_down)

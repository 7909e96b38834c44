/* aws_sign — signature version 4: the vectors that AWS publishes, of its test suite and of S3's
 * documentation; keys and queries with every kind of character. */
#include "harness.h"

#include "remote/aws_sign.h"

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* The requests of the suite aws-sig-v4-test-suite: its key, time, host and service. */
static struct aws_sign_request suite_request(const char *method, const char *path,
                                             const char *query)
{
    return (struct aws_sign_request){
        .method = method,
        .path = path,
        .query = query,
        .header = {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}},
        .headers_n = 2,
        .payload_sha256 = EMPTY_SHA256,
        .time = "20150830T123600Z",
        .region = "us-east-1",
        .service = "service",
        .access_key = "AKIDEXAMPLE",
        .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
}

/* The requests of S3's documentation. */
static struct aws_sign_request s3_request(const char *method, const char *path, const char *query)
{
    return (struct aws_sign_request){.method = method,
                                     .path = path,
                                     .query = query,
                                     .header = {{"host", "examplebucket.s3.amazonaws.com"},
                                                {"x-amz-date", "20130524T000000Z"},
                                                {"x-amz-content-sha256", EMPTY_SHA256}},
                                     .headers_n = 3,
                                     .payload_sha256 = EMPTY_SHA256,
                                     .time = "20130524T000000Z",
                                     .region = "us-east-1",
                                     .service = "s3",
                                     .access_key = "AKIAIOSFODNN7EXAMPLE",
                                     .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
}

static void assert_signature(const struct aws_sign_request *request, const char *expected)
{
    struct text text = {0};
    assert_int_equal(aws_sign(request, &text), ST_OK);
    const char *signature = strstr(text.data, ",Signature=");
    assert_non_null(signature);
    assert_string_equal(signature + 11, expected);
    text_free(&text);
}

TEST(test_suite)
{
    static const struct {
        const char *method, *path, *query, *signature;
    } rows[] = {
        {"GET", "/", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"POST", "/", "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
        {"GET", "/", "Param1=value1&Param2=value2",
         "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
        {"GET", "/%E1%88%B4", "",
         "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
        {"GET", "/", "%E1%88%B4=bar",
         "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
        {"GET", "/",
         "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz="
         "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
         "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct aws_sign_request request =
            suite_request(rows[i].method, rows[i].path, rows[i].query);
        assert_signature(&request, rows[i].signature);
    }
}

/* The whole header, and the text that is signed, of get-vanilla; and values with spaces
 * (get-header-value-trim). */
TEST(test_suite_headers)
{
    struct aws_sign_request request = suite_request("GET", "/", "");
    struct text text = {0};
    assert_int_equal(aws_sign(&request, &text), ST_OK);
    assert_string_equal(
        text.data, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/"
                   "aws4_request,SignedHeaders=host;x-amz-date,"
                   "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    text_free(&text);
    aws_sign_canonical(&request, &text);
    assert_string_equal(text.data, "GET\n/\n\nhost:example.amazonaws.com\n"
                                   "x-amz-date:20150830T123600Z\n\nhost;x-amz-date\n" EMPTY_SHA256);
    text_free(&text);
    request.header[2] = (struct aws_sign_header){"my-header1", " value1"};
    request.header[3] = (struct aws_sign_header){"my-header2", " \"a   b   c\""};
    request.headers_n = 4;
    assert_signature(&request, "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
}

TEST(test_s3_get)
{
    struct aws_sign_request request = s3_request("GET", "/test.txt", "");
    request.header[request.headers_n++] = (struct aws_sign_header){"range", "bytes=0-9"};
    assert_signature(&request, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(test_s3_put)
{
    static const char body[] = "Welcome to Amazon S3.";
    struct text path = {0};
    char sha256[AWS_SIGN_SHA256_MAX];
    aws_sign_encode(&path, "/test$file.text", true);
    assert_int_equal(aws_sign_sha256(body, sizeof body - 1, sha256), ST_OK);
    assert_string_equal(sha256, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
    struct aws_sign_request request = s3_request("PUT", path.data, "");
    request.payload_sha256 = request.header[2].value = sha256;
    request.header[request.headers_n++] =
        (struct aws_sign_header){"date", "Fri, 24 May 2013 00:00:00 GMT"};
    request.header[request.headers_n++] =
        (struct aws_sign_header){"x-amz-storage-class", "REDUCED_REDUNDANCY"};
    assert_signature(&request, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    text_free(&path);
}

TEST(test_s3_queries)
{
    const struct aws_sign_request lifecycle = s3_request("GET", "/", "lifecycle="),
                                  list = s3_request("GET", "/", "max-keys=2&prefix=J");
    assert_signature(&lifecycle,
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    assert_signature(&list, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(test_encode)
{
    static const struct {
        const char *raw, *path, *value;
    } rows[] = {
        {"a b+c=d&e/f~g", "a%20b%2Bc%3Dd%26e/f~g", "a%20b%2Bc%3Dd%26e%2Ff~g"},
        {"\xc3\xbc/%41?#", "%C3%BC/%2541%3F%23", "%C3%BC%2F%2541%3F%23"},
        {"-._~*'()!", "-._~%2A%27%28%29%21", "-._~%2A%27%28%29%21"},
        {"//a/../b", "//a/../b", "%2F%2Fa%2F..%2Fb"},
        {"\x01\x7f\xff", "%01%7F%FF", "%01%7F%FF"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct text path = {0}, value = {0};
        aws_sign_encode(&path, rows[i].raw, true);
        aws_sign_encode(&value, rows[i].raw, false);
        assert_string_equal(path.data, rows[i].path);
        assert_string_equal(value.data, rows[i].value);
        text_free(&path);
        text_free(&value);
    }
}

TEST(test_time)
{
    char out[AWS_SIGN_TIME_MAX];
    aws_sign_time(1369353600999, out);
    assert_string_equal(out, "20130524T000000Z");
    aws_sign_time(1440938160000, out);
    assert_string_equal(out, "20150830T123600Z");
}

/* A secret that does not fit is an error, never a signature with a part of it. */
TEST(test_long_secret)
{
    char secret[1000];
    struct text text = {0};
    struct aws_sign_request request = suite_request("GET", "/", "");
    memset(secret, 'k', sizeof secret - 1);
    secret[sizeof secret - 1] = 0;
    request.secret_key = secret;
    assert_int_equal(aws_sign(&request, &text), ST_RETRY);
    assert_null(text.data);
    assert_null(strstr(status_message(), "kkkk"));
}

HARNESS_RUN_ALL()

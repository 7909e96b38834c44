/* http_headers — well-formed response headers are read, malformed ones are ignored. */
#include "harness.h"

#include "net/http_headers.h"

TEST(test_headers)
{
    struct http_headers a = {0};
    static const char *const lines[] = {"HTTP/1.1 206 x\r\n", "content-length:  12 \r\n",
                                        "Content-Range: bytes 5-16/17\r\n", "ETag: \"abc\"\r\n",
                                        "Last-Modified: Monday\r\n"};
    for (int i = 0; i < 5; i++)
        http_headers_line(&a, lines[i], strlen(lines[i]));
    assert_true(a.length == 12 && a.range_first == 5 && a.range_total == 17);
    assert_string_equal(a.validator, "\"abc\"");
    http_headers_line(&a, "HTTP/1.1 200 x\r\n", 16); /* the next answer begins anew */
    assert_true(a.length == -1 && a.range_first == -1 && a.validator[0] == '\0');
    static const char *const bad[] = {"Content-Range: bytes 5-16/16",
                                      "Content-Range: bytes 9-5/17",
                                      "Content-Range: bytes */17",
                                      "Content-Range: bits 1-2/3",
                                      "Content-Length: 99999999999999999999",
                                      "Content-Length: 1x",
                                      "ETag: W/\"x\"",
                                      "ETag: \"\x7f\"",
                                      ":",
                                      ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        http_headers_line(&a, bad[i], strlen(bad[i]));
    assert_true(a.length == -1 && a.range_first == -1 && a.validator[0] == '\0');
}

/* Short values are kept until the next response; long ones and controls count as absent. */
TEST(test_short_values)
{
    struct http_headers a = {.length = -1};
    char line[200];
    static const char *const lines[] = {"Retry-After:  17 \r\n", "RATELIMIT: \"api\";r=0;t=9\r\n",
                                        "x-error-code: GatedRepo\r\n",
                                        "X-Linked-Etag: \"00ff\"\r\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        http_headers_line(&a, lines[i], strlen(lines[i]));
    assert_string_equal(a.retry_after, "17");
    assert_string_equal(a.rate_limit, "\"api\";r=0;t=9");
    assert_string_equal(a.error_code, "GatedRepo");
    assert_string_equal(a.linked_etag, "\"00ff\"");
    http_headers_line(&a, "HTTP/1.1 200 OK\r\n", 17);
    assert_string_equal(a.retry_after, "");
    assert_string_equal(a.linked_etag, "");
    snprintf(line, sizeof line, "X-Error-Code: %0100d", 7);
    http_headers_line(&a, line, strlen(line));
    assert_string_equal(a.error_code, "");
    http_headers_line(&a, "X-Error-Code: a\x1b[2Jb", 20);
    assert_string_equal(a.error_code, "");
}

HARNESS_RUN_ALL()

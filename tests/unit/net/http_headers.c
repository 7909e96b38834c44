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

HARNESS_RUN_ALL()

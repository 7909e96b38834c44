/* http_auth: which values of Authorization have the token. */
#include "harness.h"

#include "net/base64.h"
#include "net/http_auth.h"

#define TOKEN "a-token-of-this-page-only"

static struct http_auth auth;

static bool is_granted(const char *value) { return http_auth_is_granted(&auth, value); }

static bool is_login_granted(const char *login, size_t n)
{
    char value[4096] = "Basic ";
    base64_write(value + strlen(value), (const uint8_t *)login, n);
    return is_granted(value);
}

TEST(no_token_is_required)
{
    http_auth_init(&auth, NULL);
    assert_true(is_granted(NULL) && is_granted("Bearer x"));
    http_auth_init(&auth, "");
    assert_true(is_granted(NULL));
}

TEST(bearer)
{
    static const char *const refused[] = {"",
                                          "Bearer",
                                          "Bearer ",
                                          "Bearer x",
                                          "Bearer a-token-of-this-page-onl",
                                          "Bearer " TOKEN "1",
                                          "Bearer " TOKEN " ",
                                          "Bearer" TOKEN,
                                          "Bearer\t" TOKEN,
                                          "Basic " TOKEN,
                                          "Digest " TOKEN,
                                          TOKEN};
    http_auth_init(&auth, TOKEN);
    assert_false(is_granted(NULL));
    assert_true(is_granted("Bearer " TOKEN));
    assert_true(is_granted("bearer  " TOKEN)); /* RFC 9110, 11.1: the scheme has no case */
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (is_granted(refused[i]))
            fail_msg("'%s' is granted", refused[i]);
}

TEST(login)
{
    char large[3000];
    http_auth_init(&auth, TOKEN);
    assert_true(is_login_granted("anyone:" TOKEN, 7 + strlen(TOKEN)));
    assert_true(is_login_granted(":" TOKEN, 1 + strlen(TOKEN)));
    assert_false(is_login_granted(TOKEN, strlen(TOKEN)));
    assert_false(is_login_granted(TOKEN ":", strlen(TOKEN) + 1));
    assert_false(is_login_granted("a:b:" TOKEN, 4 + strlen(TOKEN))); /* the password has a colon */
    assert_false(is_login_granted("anyone:" TOKEN "\0", 8 + strlen(TOKEN)));
    assert_false(is_login_granted("", 0));
    memset(large, ':', sizeof large);
    assert_false(is_login_granted(large, sizeof large));
    assert_false(is_granted("Basic ????"));
    assert_false(is_granted("Basic"));
}

HARNESS_RUN_ALL()

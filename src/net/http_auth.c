/* http_auth — see http_auth.h. */
#include "net/http_auth.h"

#include <string.h>
#include <strings.h>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "net/base64.h"

#define LOGIN_BYTES_MAX 2048 /* user name and token */

void http_auth_init(struct http_auth *auth, const char *token)
{
    auth->is_required = token != NULL && token[0] != 0;
    if (auth->is_required)
        SHA256((const uint8_t *)token, strlen(token), auth->digest);
}

/* Compares digests, so that neither the length nor the content of a wrong token shows in the
 * time. */
static bool is_token(const struct http_auth *auth, const void *bytes, size_t n)
{
    uint8_t digest[sizeof auth->digest];
    SHA256(bytes, n, digest);
    return CRYPTO_memcmp(digest, auth->digest, sizeof digest) == 0;
}

/* Checks base64 of "user:token". */
static bool is_login(const struct http_auth *auth, const char *text)
{
    uint8_t login[LOGIN_BYTES_MAX];
    size_t n = 0;
    const uint8_t *colon =
        base64_read(text, login, sizeof login, &n) ? memchr(login, ':', n) : NULL;
    bool is_right = colon != NULL && is_token(auth, colon + 1, n - (size_t)(colon + 1 - login));
    OPENSSL_cleanse(login, sizeof login);
    return is_right;
}

/* Returns the credentials if the value has this scheme, else NULL. */
static const char *after_scheme(const char *value, const char *scheme)
{
    size_t n = strlen(scheme);
    if (strncasecmp(value, scheme, n) != 0 || value[n] != ' ')
        return NULL;
    return value + n + strspn(value + n, " ");
}

bool http_auth_is_granted(const struct http_auth *auth, const char *value)
{
    if (!auth->is_required)
        return true;
    if (value == NULL)
        return false;
    const char *token = after_scheme(value, "Bearer"), *login = after_scheme(value, "Basic");
    return (token != NULL && is_token(auth, token, strlen(token))) ||
           (login != NULL && is_login(auth, login));
}

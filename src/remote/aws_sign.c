/* aws_sign — see aws_sign.h. */
#include "remote/aws_sign.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/clock.h"

enum { SHA256_BYTES = 32 };

void aws_sign_encode(struct text *out, const char *s, bool keeps_slash)
{
    for (; *s != '\0'; s++) {
        const bool is_plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                              (*s >= '0' && *s <= '9') || strchr("-._~", *s) != NULL ||
                              (*s == '/' && keeps_slash);
        if (is_plain)
            text_add_bytes(out, s, 1);
        else
            text_add(out, "%%%02X", (unsigned char)*s);
    }
}

void aws_sign_time(int64_t wall_ms, char out[AWS_SIGN_TIME_MAX])
{
    char iso[32];
    size_t n = 0;
    /* "2026-01-31T12:00:00.123Z" without its marks and its fraction */
    for (const char *c = clock_iso(iso, sizeof iso, wall_ms); *c != '\0' && *c != '.'; c++)
        if (*c != '-' && *c != ':' && n < AWS_SIGN_TIME_MAX - 2)
            out[n++] = *c;
    out[n++] = 'Z';
    out[n] = '\0';
}

enum status aws_sign_sha256(const void *bytes, size_t n, char out[AWS_SIGN_SHA256_MAX])
{
    unsigned char digest[SHA256_BYTES];
    if (EVP_Digest(bytes, n, digest, NULL, EVP_sha256(), NULL) != 1)
        return FAIL(ST_RETRY, "OpenSSL cannot compute a SHA-256; out of memory?");
    text_hex(digest, SHA256_BYTES, out);
    return ST_OK;
}

/* Appends a header's value without spaces at its ends; spaces in a row become one. */
static void add_trimmed(struct text *out, const char *value)
{
    value += strspn(value, " ");
    for (; *value != '\0'; value++)
        if (*value != ' ' || (value[1] != ' ' && value[1] != '\0'))
            text_add_bytes(out, value, 1);
}

/* Writes the indices of the headers, in the order of their names. */
static void sort_headers(const struct aws_sign_request *request, int order[AWS_SIGN_HEADERS_MAX])
{
    for (int i = 0; i < request->headers_n; i++) {
        int at = i;
        for (; at > 0 && strcmp(request->header[order[at - 1]].name, request->header[i].name) > 0;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Appends the names of the headers, joined by ';'. */
static void add_names(const struct aws_sign_request *request, struct text *out)
{
    int order[AWS_SIGN_HEADERS_MAX];
    sort_headers(request, order);
    for (int i = 0; i < request->headers_n; i++)
        text_add(out, "%s%s", i > 0 ? ";" : "", request->header[order[i]].name);
}

void aws_sign_canonical(const struct aws_sign_request *request, struct text *out)
{
    int order[AWS_SIGN_HEADERS_MAX];
    sort_headers(request, order);
    text_add(out, "%s\n%s\n%s\n", request->method, request->path, request->query);
    for (int i = 0; i < request->headers_n; i++) {
        text_add(out, "%s:", request->header[order[i]].name);
        add_trimmed(out, request->header[order[i]].value);
        text_add(out, "\n");
    }
    text_add(out, "\n");
    add_names(request, out);
    text_add(out, "\n%s", request->payload_sha256);
}

/* Computes the HMAC of a text. out may be the key. */
static bool compute_hmac(const void *key, size_t key_bytes, const char *text,
                         unsigned char out[SHA256_BYTES])
{
    unsigned char mac[SHA256_BYTES];
    const bool is_good = HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text,
                              strlen(text), mac, NULL) != NULL;
    memcpy(out, mac, SHA256_BYTES);
    OPENSSL_cleanse(mac, sizeof mac);
    return is_good;
}

/* Derives the key of day, region and service from the secret key, and signs the text with it. */
static bool sign_text(const struct aws_sign_request *request, const char *day, const char *text,
                      unsigned char signature[SHA256_BYTES])
{
    char first[4 + 256];
    unsigned char key[SHA256_BYTES];
    const bool is_good = text_format(first, sizeof first, "AWS4%s", request->secret_key) &&
                         compute_hmac(first, strlen(first), day, key) &&
                         compute_hmac(key, sizeof key, request->region, key) &&
                         compute_hmac(key, sizeof key, request->service, key) &&
                         compute_hmac(key, sizeof key, "aws4_request", key) &&
                         compute_hmac(key, sizeof key, text, signature);
    OPENSSL_cleanse(first, sizeof first);
    OPENSSL_cleanse(key, sizeof key);
    return is_good;
}

enum status aws_sign(const struct aws_sign_request *request, struct text *authorization)
{
    struct text canonical = {0}, text = {0};
    char day[9], hash[AWS_SIGN_SHA256_MAX], hex[AWS_SIGN_SHA256_MAX];
    unsigned char signature[SHA256_BYTES];
    memcpy(day, request->time, 8);
    day[8] = '\0';
    aws_sign_canonical(request, &canonical);
    enum status st = aws_sign_sha256(canonical.data, canonical.len, hash);
    text_add(&text, "AWS4-HMAC-SHA256\n%s\n%s/%s/%s/aws4_request\n%s", request->time, day,
             request->region, request->service, hash);
    if (st == ST_OK &&
        (canonical.overflow || text.overflow || !sign_text(request, day, text.data, signature)))
        st = FAIL(ST_RETRY, "OpenSSL cannot sign a request; out of memory?");
    if (st == ST_OK) {
        text_hex(signature, sizeof signature, hex);
        text_add(authorization,
                 "AWS4-HMAC-SHA256 Credential=%s/%s/%s/%s/aws4_request,"
                 "SignedHeaders=",
                 request->access_key, day, request->region, request->service);
        add_names(request, authorization);
        text_add(authorization, ",Signature=%s", hex);
    }
    text_free(&canonical);
    text_free(&text);
    return st;
}

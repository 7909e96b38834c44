/* page — see page.h. The policy's hashes are computed from the embedded file, so they always match
 * it. */
#include "serve/page.h"

#include <string.h>

#include <openssl/evp.h>

#include "base/assert.h"
#include "base/text.h"

extern const char page_html_begin[], page_html_end[]; /* page_html.S */

const char *page_html(size_t *bytes_out)
{
    *bytes_out = (size_t)(page_html_end - page_html_begin);
    return page_html_begin;
}

/* Writes base64 of the SHA-256 of the text between the first `open` and the next `close`. */
static bool hash_between(const char *open, const char *close, char out[48])
{
    size_t bytes, digest_n = 0;
    unsigned char digest[EVP_MAX_MD_SIZE];
    const char *html = page_html(&bytes), *end = html + bytes;
    const char *from = memmem(html, bytes, open, strlen(open));
    ASSERTF(from != NULL, "no %s in assets/page.html", open);
    from += strlen(open);
    const char *to = memmem(from, (size_t)(end - from), close, strlen(close));
    ASSERTF(to != NULL, "no %s in assets/page.html", close);
    if (EVP_Q_digest(NULL, "SHA256", NULL, from, (size_t)(to - from), digest, &digest_n) != 1 ||
        digest_n != 32)
        return false;
    EVP_EncodeBlock((unsigned char *)out, digest, 32); /* 44 characters and a 0 */
    return true;
}

bool page_policy(char *out, size_t cap)
{
    char script[48], style[48];
    return hash_between("<script>", "</script>", script) &&
           hash_between("<style>", "</style>", style) &&
           text_format(
               out, cap,
               "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src "
               "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
               script, style);
}

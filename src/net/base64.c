/* base64 — see base64.h. OpenSSL's, limited to the one canonical text of each byte sequence. */
#include "net/base64.h"

#include <string.h>

#include <openssl/evp.h>

void base64_write(char *out, const uint8_t *bytes, size_t n)
{
    *out = 0; /* for n = 0 OpenSSL writes nothing */
    EVP_EncodeBlock((unsigned char *)out, bytes, (int)n);
}

/* Decodes four characters. OpenSSL skips blanks and accepts padding with bits set; so each decoded
 * group is encoded again and compared. */
static bool read_four(const char *text, bool is_last, uint8_t bytes[3], size_t *n)
{
    char again[5];
    *n = text[3] != '=' ? 3 : text[2] != '=' ? 2 : 1;
    if ((*n < 3 && !is_last) || EVP_DecodeBlock(bytes, (const unsigned char *)text, 4) != 3)
        return false;
    EVP_EncodeBlock((unsigned char *)again, bytes, (int)*n);
    return memcmp(again, text, 4) == 0;
}

bool base64_read(const char *text, uint8_t *out, size_t cap, size_t *n_out)
{
    const size_t length = strlen(text);
    size_t n = 0, more;
    uint8_t bytes[3];
    if (length % 4 != 0)
        return false;
    for (size_t i = 0; i < length; i += 4, n += more) {
        if (!read_four(text + i, i + 4 == length, bytes, &more) || n + more > cap)
            return false;
        memcpy(out + n, bytes, more);
    }
    *n_out = n;
    return true;
}

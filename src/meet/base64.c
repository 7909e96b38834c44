/* base64 — see base64.h. */
#include "meet/base64.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_write(char *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t group = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                         (left > 2 ? bytes[i + 2] : 0);
        *out++ = digits[group >> 18];
        *out++ = digits[group >> 12 & 63];
        *out++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[group & 63] : '=';
    }
    *out = 0;
}

static int value_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool base64_read(const char *text, uint8_t *out, size_t cap, size_t *n_out)
{
    size_t length = strlen(text), n = 0;
    if (length % 4 != 0)
        return false;
    for (size_t i = 0; i < length; i += 4) {
        bool is_last = i + 4 == length;
        size_t pad = is_last && text[i + 3] == '=' ? 1 + (text[i + 2] == '=') : 0;
        uint32_t group = 0;
        for (size_t k = 0; k < 4 - pad; k++) {
            int value = value_of(text[i + k]);
            if (value < 0)
                return false;
            group |= (uint32_t)value << (18 - 6 * k);
        }
        if (n + 3 - pad > cap || (pad > 0 && (group & (pad == 1 ? 0xFF : 0xFFFF)) != 0))
            return false;
        for (size_t k = 0; k < 3 - pad; k++)
            out[n++] = (uint8_t)(group >> (16 - 8 * k));
    }
    *n_out = n;
    return true;
}

/* json_string — see json_string.h. Source: RFC 8259, section 7. */
#include "data/json_string.h"

#include <string.h>

#include "base/text.h"

/* The four digits behind "\u"; −1: not so. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = text_hex_digit(p[i]);
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

const char *json_string_code(const char *p, const char *end, uint8_t *out, size_t *n)
{
    int32_t c = hex4(p, end);
    if (c < 0)
        return NULL;
    p += 4;
    const bool is_high = c >= 0xd800 && c < 0xdc00;
    const int32_t low =
        is_high && end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex4(p + 2, end) : -1;
    if (low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        p += 6;
    } else if (c >= 0xd800 && c < 0xe000) {
        c = 0xfffd;
    }
    *n += text_utf8_put(out + *n, (uint32_t)c);
    return p;
}

bool json_string_read(const char *text, size_t n_bytes, uint8_t *out, size_t *n_out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t n = 0;
    if (n_bytes < 2 || text[0] != '"' || text[n_bytes - 1] != '"')
        return false;
    const char *p = text + 1, *end = text + n_bytes - 1;
    while (p != NULL && p < end) {
        if (*p != '\\') {
            if ((uint8_t)*p < 0x20 || *p == '"')
                return false;
            out[n++] = (uint8_t)*p++;
            continue;
        }
        if (++p == end)
            return false;
        const char *known = *p != 0 ? strchr(from, *p) : NULL;
        if (*p == 'u') {
            p = json_string_code(p + 1, end, out, &n);
            continue;
        }
        if (known == NULL)
            return false;
        out[n++] = (uint8_t)to[known - from];
        p++;
    }
    *n_out = n;
    return p != NULL;
}

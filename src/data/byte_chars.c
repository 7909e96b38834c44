/* byte_chars — see byte_chars.h. */
#include "data/byte_chars.h"

static bool is_itself(uint32_t b)
{
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

void byte_chars_fill(uint16_t char_of[256])
{
    uint16_t shifted = 256;
    for (uint32_t b = 0; b < 256; b++)
        char_of[b] = is_itself(b) ? (uint16_t)b : shifted++;
}

/* The byte of a character, or −1. From U+0100 on: 0 … 32, 127 … 160, 173. */
static int byte_of(uint32_t c)
{
    if (c < 0x100)
        return is_itself(c) ? (int)c : -1;
    const uint32_t i = c - 0x100;
    if (i <= 32)
        return (int)i;
    if (i < 67)
        return (int)(127 + i - 33);
    return i == 67 ? 173 : -1;
}

bool byte_chars_decode(const uint8_t *text, size_t n_bytes, uint8_t *out, size_t *n_out)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        uint32_t c = text[i];
        if (c >= 0x80) {
            if (c < 0xc2 || c > 0xdf || i + 1 == n_bytes || (text[i + 1] & 0xc0) != 0x80)
                return false;
            c = (c & 0x1f) << 6 | (text[++i] & 0x3f);
        }
        const int b = byte_of(c);
        if (b < 0)
            return false;
        out[n++] = (uint8_t)b;
    }
    *n_out = n;
    return true;
}

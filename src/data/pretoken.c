/* pretoken — see pretoken.h. The splitter is written by hand, without a regular expression. * *
 * Every pre-token is a run of one class (letter, number, space, other), with at most one ' '
 * before it; the exceptions are contractions ('s 't 're 've 'm 'll 'd). So a change of class
 * ends a pre-token, whatever came before; pretoken_cut uses that. */
#include "data/pretoken.h"

#include <stdbool.h>

#include <utf8proc.h>

enum pretoken_class { PRETOKEN_OTHER, PRETOKEN_LETTER, PRETOKEN_NUMBER, PRETOKEN_SPACE };

#define O PRETOKEN_OTHER
#define L PRETOKEN_LETTER
#define N PRETOKEN_NUMBER
#define S PRETOKEN_SPACE
static const uint8_t ascii[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
};
#undef O
#undef L
#undef N
#undef S

/* Letters and numbers of Unicode 15.1 and 16 that are unassigned in utf8proc 2.8 (Debian 12,
 * Unicode 15). With them a text has the same ids with any version of the library, and the same
 * as in tiktoken 0.14 (compared over every code point). */
static const struct {
    int32_t first, last;
    enum pretoken_class kind;
} newer[] = {
    {0x1c89, 0x1c8a, PRETOKEN_LETTER},   {0xa7cb, 0xa7cd, PRETOKEN_LETTER},
    {0xa7da, 0xa7dc, PRETOKEN_LETTER},   {0x105c0, 0x105f3, PRETOKEN_LETTER},
    {0x10d40, 0x10d49, PRETOKEN_NUMBER}, {0x10d4a, 0x10d65, PRETOKEN_LETTER},
    {0x10d6f, 0x10d85, PRETOKEN_LETTER}, {0x10ec2, 0x10ec4, PRETOKEN_LETTER},
    {0x11380, 0x11389, PRETOKEN_LETTER}, {0x1138b, 0x1138b, PRETOKEN_LETTER},
    {0x1138e, 0x1138e, PRETOKEN_LETTER}, {0x11390, 0x113b5, PRETOKEN_LETTER},
    {0x113b7, 0x113b7, PRETOKEN_LETTER}, {0x113d1, 0x113d1, PRETOKEN_LETTER},
    {0x113d3, 0x113d3, PRETOKEN_LETTER}, {0x116d0, 0x116e3, PRETOKEN_NUMBER},
    {0x11bc0, 0x11be0, PRETOKEN_LETTER}, {0x11bf0, 0x11bf9, PRETOKEN_NUMBER},
    {0x13460, 0x143fa, PRETOKEN_LETTER}, {0x16100, 0x1611d, PRETOKEN_LETTER},
    {0x16130, 0x16139, PRETOKEN_NUMBER}, {0x16d40, 0x16d6c, PRETOKEN_LETTER},
    {0x16d70, 0x16d79, PRETOKEN_NUMBER}, {0x18cff, 0x18cff, PRETOKEN_LETTER},
    {0x1ccf0, 0x1ccf9, PRETOKEN_NUMBER}, {0x1e5d0, 0x1e5ed, PRETOKEN_LETTER},
    {0x1e5f0, 0x1e5f0, PRETOKEN_LETTER}, {0x1e5f1, 0x1e5fa, PRETOKEN_NUMBER},
    {0x2ebf0, 0x2ee5d, PRETOKEN_LETTER},
};

static enum pretoken_class class_newer(int32_t c)
{
    for (size_t i = 0; i < sizeof newer / sizeof newer[0]; i++)
        if (c >= newer[i].first && c <= newer[i].last)
            return newer[i].kind;
    return PRETOKEN_OTHER;
}

static enum pretoken_class class_of(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return PRETOKEN_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return PRETOKEN_NUMBER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return PRETOKEN_SPACE; /* together with U+0085 and U+0009–U+000D exactly White_Space */
    case UTF8PROC_CATEGORY_CN:
        return class_newer(c);
    default:
        return c == 0x85 ? PRETOKEN_SPACE : PRETOKEN_OTHER;
    }
}

static bool is_tail(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* Class of the character at p that begins with a byte ≥ 0x80; its length goes to *bytes_out.
 * Follows table 3-7 of the Unicode standard. */
static enum pretoken_class class_wide(const uint8_t *p, const uint8_t *end, int *bytes_out)
{
    const uint8_t lead = p[0];
    const int n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    *bytes_out = 1;
    if (lead < 0xc2 || lead > 0xf4 || end - p < n)
        return PRETOKEN_OTHER;
    int32_t c = lead & (0x7f >> n);
    for (int i = 1; i < n; i++) {
        if (!is_tail(p[i]))
            return PRETOKEN_OTHER;
        c = c << 6 | (p[i] & 0x3f);
    }
    const bool is_overlong = (n == 3 && c < 0x800) || (n == 4 && c < 0x10000);
    if (is_overlong || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff)
        return PRETOKEN_OTHER;
    *bytes_out = n;
    return class_of(c);
}

static inline enum pretoken_class class_at(const uint8_t *p, const uint8_t *end, int *bytes_out)
{
    if (*p < 0x80) {
        *bytes_out = 1;
        return ascii[*p];
    }
    return class_wide(p, end, bytes_out);
}

/* run_end — the end of the run of `kind` that continues at p. */
static inline const uint8_t *run_end(const uint8_t *p, const uint8_t *end, enum pretoken_class kind)
{
    while (p < end) {
        if (*p < 0x80) {
            if (ascii[*p] != kind)
                break;
            p++;
            continue;
        }
        int n;
        if (class_wide(p, end, &n) != kind)
            break;
        p += n;
    }
    return p;
}

/* Length of the contraction at p, which holds an apostrophe; 0: none. */
static int contraction(const uint8_t *p, const uint8_t *end)
{
    const uint8_t a = end - p > 1 ? p[1] : 0, b = end - p > 2 ? p[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

/* spaces_end — a run of spaces leaves its last character to the next pre-token; at the end of the
 * text, or when it is one character, it is a pre-token as it is. */
static const uint8_t *spaces_end(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *last = p;
    int n;
    for (const uint8_t *q = p; q < end; q += n) {
        if (class_at(q, end, &n) != PRETOKEN_SPACE)
            return last > p ? last : q;
        last = q;
    }
    return end;
}

const uint8_t *pretoken_end(const uint8_t *p, const uint8_t *end)
{
    int n;
    if (*p == '\'') {
        n = contraction(p, end);
        if (n > 0)
            return p + n;
    }
    const uint8_t *q = p;
    if (*q == ' ' && end - q > 1)
        q++;
    const enum pretoken_class kind = class_at(q, end, &n);
    if (kind == PRETOKEN_SPACE)
        return spaces_end(p, end);
    return run_end(q + n, end, kind);
}

/* Class of the character that ends just before p > text. UTF-8 synchronises itself: a lead byte
 * always begins a character. */
static enum pretoken_class class_before(const uint8_t *text, const uint8_t *p)
{
    const uint8_t *q = p - 1;
    int n;
    while (q > text && p - q < 4 && is_tail(*q))
        q--;
    const enum pretoken_class kind = class_at(q, p, &n);
    return q + n == p ? kind : PRETOKEN_OTHER;
}

size_t pretoken_cut(const uint8_t *text, size_t n_bytes)
{
    const uint8_t *end = text + n_bytes;
    for (const uint8_t *p = end - 1; n_bytes > 0 && p > text; p--) {
        int n;
        /* inside a character, or one that may be cut off */
        if (is_tail(*p) || (*p >= 0x80 && end - p < 4))
            continue;
        const enum pretoken_class kind = class_at(p, end, &n), before = class_before(text, p);
        if (kind != before && before != PRETOKEN_SPACE && (kind == PRETOKEN_SPACE || p[-1] != '\''))
            return (size_t)(p - text);
    }
    return 0;
}

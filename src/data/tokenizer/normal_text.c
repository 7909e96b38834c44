/* normal_text — see normal_text.h. Only text that may change goes through utf8proc: a run of
 * characters beyond ASCII that is not certain to stay, with the character before it.
 *
 * The order of marks (D109 of the Unicode standard) is computed here, by counting: utf8proc sorts a
 * run of marks by exchanging neighbours, in quadratic time. */
#include "data/tokenizer/normal_text.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/assert.h"
#include "data/tokenizer/newer.h"

bool normal_text_is_ascii(const uint8_t *text, size_t n_bytes)
{
    uint64_t all = 0;
    size_t i = 0;
    for (; i + 8 <= n_bytes; i += 8) {
        uint64_t v;
        memcpy(&v, text + i, 8);
        all |= v;
    }
    for (; i < n_bytes; i++)
        all |= text[i];
    return (all & 0x8080808080808080u) == 0;
}

int32_t normal_text_char(const uint8_t *p, const uint8_t *end, size_t *n_out)
{
    int32_t c = -1;
    const utf8proc_ssize_t n = utf8proc_iterate(p, end - p, &c);
    *n_out = n > 0 ? (size_t)n : 1;
    return n > 0 ? c : -1;
}

/* Starters that NFC keeps unchanged after and before any character: checked over all code points by
 * tests/unit/data/normal_text.c. */
static const struct {
    int32_t first, last;
} standing[] = {
    {0x2010, 0x2027}, {0x3041, 0x304a}, {0x3105, 0x312f}, {0x4e00, 0x9fff}, {0x1f300, 0x1f6d7},
};

static bool is_standing(int32_t c)
{
    for (size_t i = 0; i < sizeof standing / sizeof standing[0]; i++)
        if (c >= standing[i].first && c <= standing[i].last)
            return true;
    return false;
}

bool normal_text_stands(const uint8_t *p, const uint8_t *end)
{
    size_t n;
    return p < end && (*p < 0x80 || is_standing(normal_text_char(p, end, &n)));
}

/* A form: the options of utf8proc for it, and the characters that never change. */
struct form {
    utf8proc_option_t options;
    int32_t plain_below; /* characters below stay */
    int32_t stands_from; /* standing characters from here on stay */
    int growth;          /* times */
    int chars;           /* the most characters of 2 bytes */
};
static const struct form forms[] = {
    [NORMAL_FORM_NFC] = {UTF8PROC_STABLE | UTF8PROC_COMPOSE, 0x300, 0, NORMAL_TEXT_GROWTH, 3},
    [NORMAL_FORM_NFD] = {UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, 0x80, 0, NORMAL_TEXT_GROWTH, 3},
    [NORMAL_FORM_NFKC] = {UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, 0x80, 0x3041,
                          NORMAL_TEXT_GROWTH_COMPAT, 12},
    [NORMAL_FORM_NFKD] = {UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0x80, 0x3041,
                          NORMAL_TEXT_GROWTH_COMPAT, 12},
};

/* Returns the end of the run of well-formed characters beyond ASCII at p; is_plain_out: all of them
 * are plain. */
static const uint8_t *run_end(const struct form *form, const uint8_t *p, const uint8_t *end,
                              bool *is_plain_out)
{
    *is_plain_out = true;
    for (size_t n; p < end && *p >= 0x80; p += n) {
        const int32_t c = normal_text_char(p, end, &n);
        if (c < 0)
            break;
        *is_plain_out =
            *is_plain_out && (c < form->plain_below || (c >= form->stands_from && is_standing(c)));
    }
    return p;
}

enum { CLASSES = 256, WATCH_BYTES = 1 << 20 };

/* A character with its canonical combining class, 0 for a starter, above its bits. */
enum { CHAR_BITS = 21, CHAR_MASK = (1 << CHAR_BITS) - 1 };

/* Sorts c[0, n), a run of marks, by class; marks of one class keep their order. spare: for n. */
static void order_marks(int32_t *c, size_t n, int32_t *spare)
{
    size_t at[CLASSES + 1] = {0};
    bool is_sorted = true;
    for (size_t i = 1; i < n && is_sorted; i++)
        is_sorted = c[i - 1] >> CHAR_BITS <= c[i] >> CHAR_BITS;
    if (is_sorted)
        return;
    for (size_t i = 0; i < n; i++)
        at[(c[i] >> CHAR_BITS) + 1]++;
    for (int k = 0; k < CLASSES; k++)
        at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++)
        spare[at[c[i] >> CHAR_BITS]++] = c[i];
    memcpy(c, spare, n * sizeof *c);
}

/* Writes the decompositions of a run of well-formed characters to c, with space for
 * `most`. *n_out: their number of characters; if it is more than `most`, the rest is not
 * written. */
static enum status decompose_run(const struct form *form, const struct encode_watch *watch,
                                 const uint8_t *p, const uint8_t *end, int32_t *c, int64_t most,
                                 int64_t *n_out)
{
    const uint8_t *watched = p;
    int64_t n = 0;
    int bound = 0;
    for (size_t bytes; p < end && n <= most; p += bytes) {
        if (p - watched > WATCH_BYTES) {
            TRY(encode_watch_check(watch));
            watched = p;
        }
        n += utf8proc_decompose_char(normal_text_char(p, end, &bytes), c + n, most - n,
                                     form->options, &bound);
    }
    *n_out = n;
    return ST_OK;
}

/* Appends the normal form of a run of well-formed characters. */
static enum status compose_run(const struct form *form, const struct encode_watch *watch,
                               const uint8_t *p, size_t n, uint8_t *out, size_t *n_out)
{
    /* 2 bytes become 3 characters at most (U+0390), 3 bytes 18 by compatibility (U+FDFA); utf8proc
     * needs one byte after them */
    const int64_t most = (int64_t)n / 2 * form->chars + 24;
    int32_t *c = malloc((2 * (size_t)most + 1) * sizeof *c);
    int64_t made = 0;
    if (c == NULL)
        return FAIL(ST_RETRY, "out of memory: the normal form of %zu bytes of text", n);
    enum status st = decompose_run(form, watch, p, p + n, c, most, &made);
    if (st == ST_OK) {
        ASSERTF(made <= most, "%lld characters of %zu bytes", (long long)made, n);
        /* Sorts the marks of each run into canonical order. */
        const size_t made_n = (size_t)made;
        for (size_t i = 0; i < made_n; i++)
            c[i] |= utf8proc_get_property(c[i])->combining_class << CHAR_BITS;
        for (size_t i = 0, end; i < made_n; i = end) {
            for (end = i; end < made_n && c[end] >> CHAR_BITS != 0;)
                end++;
            order_marks(c + i, end - i, c + most);
            end += end == i; /* a starter */
        }
        for (size_t i = 0; i < made_n; i++)
            c[i] &= CHAR_MASK;
        st = encode_watch_check(watch);
    }
    if (st == ST_OK) {
        const utf8proc_ssize_t len = utf8proc_reencode(c, made, form->options);
        ASSERTF(len >= 0 && (size_t)len <= (size_t)form->growth * n, "%zd bytes of %zu", len, n);
        memcpy(out + *n_out, c, (size_t)len);
        *n_out += (size_t)len;
    }
    free(c);
    return st;
}

static void append_bytes(const uint8_t *p, size_t n, uint8_t *out, size_t *n_out)
{
    memcpy(out + *n_out, p, n);
    *n_out += n;
}

enum status normal_text_form(enum normal_form which, const struct encode_watch *watch,
                             const uint8_t *text, size_t n_bytes, uint8_t *out, size_t *n_out)
{
    const struct form *form = forms + which;
    const uint8_t *p = text, *end = text + n_bytes;
    *n_out = 0;
    while (p < end) {
        const uint8_t *from = p;
        bool plain;
        while (p < end && *p < 0x80)
            p++;
        const uint8_t *run = p > from ? p - 1 : p;
        const uint8_t *stop = run_end(form, p, end, &plain);
        if (plain) {
            append_bytes(from, (size_t)(stop - from), out, n_out);
        } else {
            append_bytes(from, (size_t)(run - from), out, n_out);
            TRY(compose_run(form, watch, run, (size_t)(stop - run), out, n_out));
        }
        p = stop;
        if (p < end && *p >= 0x80)
            append_bytes(p++, 1, out, n_out); /* not UTF-8 */
    }
    return ST_OK;
}

size_t normal_text_spm(const uint8_t *text, size_t n_bytes, uint8_t *out)
{
    size_t n_out = 0;
    for (size_t i = 0, n; i < n_bytes; i += n) {
        n = 1;
        const int32_t c = text[i] < 0x80 ? text[i] : normal_text_char(text + i, text + n_bytes, &n);
        if (c == 0x2581)
            out[n_out++] = ' ';
        else if (c < 0)
            append_bytes((const uint8_t *)"\xef\xbf\xbd", 3, out, &n_out);
        else
            append_bytes(text + i, n, out, &n_out);
    }
    return n_out;
}

int32_t normal_text_char_before(const uint8_t *begin, const uint8_t *p, size_t *n_out)
{
    const uint8_t *at = p - 1;
    while (at > begin && p - at < 4 && (*at & 0xc0) == 0x80)
        at--;
    const int32_t c = normal_text_char(at, p, n_out);
    if (at + *n_out == p)
        return c;
    *n_out = 1;
    return -1;
}

bool normal_text_is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool normal_text_is_word(int32_t c)
{
    switch (c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    case UTF8PROC_CATEGORY_CN: {
        const enum newer_class kind = newer_class_of(c);
        return (kind >= NEWER_CAPITAL && kind <= NEWER_DIGIT) || kind == NEWER_MARK;
    }
    default: /* joiners, and the symbols that are Alphabetic */
        return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
               (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
               (c >= 0x1f170 && c <= 0x1f189);
    }
}

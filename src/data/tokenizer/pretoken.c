/* pretoken — see pretoken.h. The splitters are written by hand, without regular expressions.
 *
 * With GPT-2's pattern every pre-token is a run of one class (letter, number, space, other), with
 * at most one ' ' before it; the exceptions are contractions ('s 't 're 've 'm 'll 'd). So a
 * change of class ends a pre-token, whatever came before; pretoken_cut uses that. With the
 * patterns after it, one character of another class may precede letters, and line ends may follow
 * punctuation, so fewer changes of class are certain. */
#include "data/tokenizer/pretoken.h"

#include <stdbool.h>
#include <string.h>

#include <utf8proc.h>

#include "data/tokenizer/newer.h"

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

static enum pretoken_class class_newer(int32_t c)
{
    const enum newer_class kind = newer_class_of(c);
    if (kind >= NEWER_CAPITAL && kind <= NEWER_HAN)
        return PRETOKEN_LETTER;
    return kind == NEWER_DIGIT || kind == NEWER_NUMBER ? PRETOKEN_NUMBER : PRETOKEN_OTHER;
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

/* Returns the class of the character at p that begins with a byte ≥ 0x80; its length goes to
 * *bytes_out. Follows table 3-7 of the Unicode standard. */
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

/* run_end — returns the end of the run of `kind` that continues at p. */
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

/* Returns the length of the contraction at p, which holds an apostrophe; 0: none. */
static int match_contraction(const uint8_t *p, const uint8_t *end)
{
    const uint8_t a = end - p > 1 ? p[1] : 0, b = end - p > 2 ? p[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

/* spaces_end — returns the end of a run of spaces, which leaves its last character to the next
 * pre-token; at the end of the text, or if it is one character, it is a whole pre-token. */
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

static inline const uint8_t *gpt2_end(const uint8_t *p, const uint8_t *end)
{
    int n;
    if (*p == '\'') {
        n = match_contraction(p, end);
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

/* ---- SmolLM: each number by itself, then GPT-2's pattern in the text between them ---- */

/* Returns the end of a pre-token. A space does not join a number; spaces before a number are one
 * pre-token, as at the end of a text. */
static const uint8_t *smollm_end(const uint8_t *p, const uint8_t *end)
{
    int n;
    if (class_at(p, end, &n) == PRETOKEN_NUMBER)
        return p + n;
    const uint8_t *q = run_end(p, end, PRETOKEN_SPACE);
    if (q > p && q < end && class_at(q, end, &n) == PRETOKEN_NUMBER)
        return q;
    return gpt2_end(p, end);
}

/* ---- cl100k, Llama 3, Qwen ---- */

static bool is_line_end(uint8_t byte) { return byte == '\r' || byte == '\n'; }

/* Matches 's 't 'm 'd 're 've 'll in upper or lower case; s may be U+017F, its other lower case. */
static int contraction_any_case(const uint8_t *p, const uint8_t *end)
{
    if (end - p > 2 && p[1] == 0xc5 && p[2] == 0xbf)
        return 3;
    const uint8_t lower[3] = {'\'', end - p > 1 ? p[1] | 0x20 : 0, end - p > 2 ? p[2] | 0x20 : 0};
    return match_contraction(lower, lower + (end - p < 3 ? end - p : 3));
}

/* Returns the end of a run of at most `most` numbers; p is one. */
static const uint8_t *numbers_end(const uint8_t *p, const uint8_t *end, int most)
{
    int n;
    for (int i = 0; i < most && p < end && class_at(p, end, &n) == PRETOKEN_NUMBER; i++)
        p += n;
    return p;
}

static const uint8_t *other_end(const uint8_t *p, const uint8_t *end)
{
    p = run_end(p, end, PRETOKEN_OTHER);
    while (p < end && is_line_end(*p))
        p++;
    return p;
}

struct pretoken_rules {
    int numbers;       /* most numbers in a pre-token */
    bool is_end_whole; /* spaces at the end of the text are one pre-token */
};

static inline const uint8_t *modern_end(const uint8_t *p, const uint8_t *end,
                                        struct pretoken_rules rules)
{
    int n;
    if (*p == '\'') {
        n = contraction_any_case(p, end);
        if (n > 0)
            return p + n;
    }
    const enum pretoken_class kind = class_at(p, end, &n);
    if (kind == PRETOKEN_LETTER)
        return run_end(p + n, end, kind);
    if (kind == PRETOKEN_NUMBER)
        return numbers_end(p, end, rules.numbers);
    /* The pre-token begins with a character that is neither letter nor number, of n bytes. */
    const uint8_t *next = p + n;
    int next_n;
    const enum pretoken_class then =
        next < end ? class_at(next, end, &next_n) : (enum pretoken_class)PRETOKEN_SPACE;
    if (then == PRETOKEN_LETTER && !is_line_end(*p))
        return run_end(next + next_n, end, PRETOKEN_LETTER);
    if (kind == PRETOKEN_OTHER || (*p == ' ' && then == PRETOKEN_OTHER))
        return other_end(next, end);
    /* A run of spaces ends after its last line end, if it has one. */
    const uint8_t *stop = run_end(p, end, PRETOKEN_SPACE), *q = stop;
    if (stop == end && rules.is_end_whole)
        return stop;
    while (q > p && !is_line_end(q[-1]))
        q--;
    return q > p ? q : spaces_end(p, end);
}

/* ---- SentencePiece ---- */

/* Returns the end of a run of spaces and the text after it. */
static const uint8_t *words_end(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p == ' ')
        p++;
    const uint8_t *space = p < end ? memchr(p, ' ', (size_t)(end - p)) : NULL;
    return space != NULL ? space : end;
}

const uint8_t *pretoken_end(enum pretoken_kind kind, const uint8_t *p, const uint8_t *end)
{
    switch (kind) {
    case PRETOKEN_KIND_GPT2:
        return gpt2_end(p, end);
    case PRETOKEN_KIND_SMOLLM:
        return smollm_end(p, end);
    case PRETOKEN_KIND_LLAMA3:
        return modern_end(p, end, (struct pretoken_rules){3, false});
    case PRETOKEN_KIND_QWEN:
        return modern_end(p, end, (struct pretoken_rules){1, false});
    case PRETOKEN_KIND_CL100K:
        return modern_end(p, end, (struct pretoken_rules){3, true});
    case PRETOKEN_KIND_WORDS:
        return words_end(p, end);
    case PRETOKEN_KIND_METASPACE: {
        /* At most one space, then other bytes. */
        const uint8_t *space = p + 1 < end ? memchr(p + 1, ' ', (size_t)(end - p - 1)) : NULL;
        return space != NULL ? space : end;
    }
    case PRETOKEN_KIND_WHOLE:
        break;
    }
    return end;
}

/* ---- cuts ---- */

/* Returns the class of the character that ends just before p > text. UTF-8 synchronises itself: a
 * lead byte always begins a character. */
static enum pretoken_class class_before(const uint8_t *text, const uint8_t *p)
{
    const uint8_t *q = p - 1;
    int n;
    while (q > text && p - q < 4 && is_tail(*q))
        q--;
    const enum pretoken_class kind = class_at(q, p, &n);
    return q + n == p ? kind : PRETOKEN_OTHER;
}

static bool is_edge_modern(enum pretoken_class before, enum pretoken_class kind, const uint8_t *p)
{
    if (before == PRETOKEN_LETTER || before == PRETOKEN_NUMBER)
        return kind != before;
    if (before == PRETOKEN_OTHER)
        return kind == PRETOKEN_SPACE && !is_line_end(*p);
    return is_line_end(p[-1]) && kind != PRETOKEN_SPACE;
}

static bool is_edge(enum pretoken_kind kind, const uint8_t *text, const uint8_t *p,
                    const uint8_t *end)
{
    int n;
    if (kind == PRETOKEN_KIND_WORDS || kind == PRETOKEN_KIND_METASPACE) {
        /* U+2581 counts as a space there. */
        return *p == ' ' && p[-1] != ' ' &&
               !(p - text >= 3 && memcmp(p - 3, "\xe2\x96\x81", 3) == 0);
    }
    const enum pretoken_class here = class_at(p, end, &n), before = class_before(text, p);
    return kind == PRETOKEN_KIND_GPT2 || kind == PRETOKEN_KIND_SMOLLM
               ? (here != before && before != PRETOKEN_SPACE &&
                  (here == PRETOKEN_SPACE || p[-1] != '\''))
               : is_edge_modern(before, here, p);
}

size_t pretoken_cut(enum pretoken_kind kind, const uint8_t *text, size_t n_bytes)
{
    const uint8_t *end = text + n_bytes;
    if (kind == PRETOKEN_KIND_WHOLE)
        return 0;
    for (const uint8_t *p = end - 1; n_bytes > 0 && p > text; p--) {
        /* inside a character, or one that may be cut off */
        if (is_tail(*p) || (*p >= 0x80 && end - p < 4))
            continue;
        if (is_edge(kind, text, p, end))
            return (size_t)(p - text);
    }
    return 0;
}

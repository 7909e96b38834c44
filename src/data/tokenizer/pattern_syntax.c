/* pattern_syntax — see pattern.h. One pass over the source; of each part the characters that
 * it can begin and end with are kept, as far as edges need them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/pattern.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <pcre2.h>

#include "base/memory.h"

/* White_Space, its complement, and Oniguruma's word characters: the contents of classes. */
#define SPACES                                                                                   \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
    "\\x{3000}"
#define NO_SPACES                                                                            \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}"         \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-" \
    "\\x{10ffff}"
#define WORDS                                                                        \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define HEX_DIGITS "0-9A-Fa-f"

enum { GROUPS_MAX = 200, NAME_MAX_BYTES = 40 };

/* Characters on the two sides of an edge. */
enum { LETTER = 1, GAP = 2, GAPS = 4 /* both: the space and the line feed */, OTHER = 8 };

/* The matches that a part of the expression can have. */
struct shape {
    bool is_empty;    /* it can match nothing */
    bool is_long;     /* it can match more than one character */
    bool crosses;     /* it can match across an edge */
    bool looks;       /* its matches may depend on the other side of an edge */
    bool looks_first; /* it can look ahead by one character before it matches any */
    uint8_t first, last;
};

enum group_kind { GROUP_PLAIN, GROUP_AHEAD, GROUP_BEHIND };

struct group {
    enum group_kind kind;
    size_t begin;           /* in the result */
    struct shape all, here; /* earlier branches, and this one so far */
    bool has_branch;
    int parts; /* parts of this branch */
};

enum quantified {
    QUANTIFIED_NOTHING,
    QUANTIFIED_PART,
    QUANTIFIED_SIMPLE,
    QUANTIFIED_INTERVAL,
    QUANTIFIED_DONE
};

struct reader {
    const char *source;
    size_t n, at;
    struct pattern_syntax *out;
    struct group group[GROUPS_MAX];
    int depth;
    bool covers; /* a branch of the whole expression is one character that may be a gap */
    /* The last part, which a quantifier would repeat. */
    enum quantified state;
    size_t part_at;
    struct shape before, part; /* the branch before it; the part itself */
    bool is_exact;             /* the interval is {n} */
};

static bool refuse_part(struct reader *r, const char *why)
{
    if (r->out->fault == NULL) {
        r->out->fault = why;
        r->out->fault_at = r->at < r->n ? r->at : r->n;
    }
    return false;
}

static void put_text(struct reader *r, const char *text)
{
    text_add_bytes(&r->out->text, text, strlen(text));
}

/* ---- shapes ---- */

static struct shape join_shapes(struct shape a, struct shape b)
{
    struct shape out = {.is_empty = a.is_empty && b.is_empty,
                        .is_long = a.is_long || b.is_long || (a.first != 0 && b.first != 0),
                        .crosses = a.crosses || b.crosses || ((a.last & LETTER) && (b.first & GAP)),
                        .looks = a.looks || b.looks || (b.looks_first && (a.last & LETTER)),
                        .looks_first = a.looks_first || (a.is_empty && b.looks_first),
                        .first = a.first | (a.is_empty ? b.first : 0),
                        .last = b.last | (b.is_empty ? a.last : 0)};
    return out;
}

static struct shape unite_shapes(struct shape a, struct shape b)
{
    return (struct shape){a.is_empty || b.is_empty,       a.is_long || b.is_long,
                          a.crosses || b.crosses,         a.looks || b.looks,
                          a.looks_first || b.looks_first, (uint8_t)(a.first | b.first),
                          (uint8_t)(a.last | b.last)};
}

static struct shape repeat_shape(struct shape a, bool is_optional, bool is_repeated)
{
    if (is_repeated) {
        a = join_shapes(a, a);
        a.is_long = true;
    }
    a.is_empty = a.is_empty || is_optional;
    return a;
}

static const struct shape empty = {.is_empty = true};

/* Returns the bits of the characters that text[0, n) of the result, one character, can match. */
static uint8_t bits_of(const char *text, size_t n)
{
    int code;
    PCRE2_SIZE at;
    uint8_t bits = OTHER;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)text, n, PCRE2_UTF | PCRE2_UCP | PCRE2_CASELESS,
                                   &code, &at, NULL);
    if (re == NULL)
        return LETTER | GAP | OTHER; /* the whole expression will be refused, too */
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    int gaps = 0;
    for (const char *c = "abcdefghijklmnopqrstuvwxyz \n"; *c != 0 && match != NULL; c++)
        if (pcre2_match(re, (PCRE2_SPTR)c, 1, 0, PCRE2_ANCHORED, match, NULL) >= 0) {
            bits |= *c >= 'a' ? LETTER : GAP;
            gaps += *c < 'a';
        }
    pcre2_match_data_free(match);
    pcre2_code_free(re);
    return gaps == 2 ? bits | GAPS : bits;
}

/* ---- parts ---- */

static struct group *top_group(struct reader *r) { return r->group + r->depth; }

/* Appends a part to the branch: text of the result from `begin` on. */
static void add_part(struct reader *r, size_t begin, struct shape shape)
{
    struct group *group = top_group(r);
    r->before = group->here;
    r->part = shape;
    r->part_at = begin;
    r->state = QUANTIFIED_PART;
    group->here = join_shapes(group->here, shape);
    group->parts++;
}

/* Appends one character or class. */
static void add_character(struct reader *r, size_t begin)
{
    const struct text *text = &r->out->text;
    const uint8_t bits = text->overflow ? 0 : bits_of(text->data + begin, text->len - begin);
    add_part(r, begin, (struct shape){.first = bits, .last = bits});
}

/* Appends an assertion, which no quantifier may follow. ahead: it looks ahead by one character;
 * otherwise its result may depend on anything. */
static void add_assertion(struct reader *r, bool ahead)
{
    struct group *group = top_group(r);
    const struct shape shape = {.is_empty = true, .looks_first = ahead, .looks = !ahead};
    group->here = join_shapes(group->here, shape);
    group->parts += 2; /* the branch is not one character */
    r->state = QUANTIFIED_NOTHING;
}

static void end_branch(struct reader *r)
{
    struct group *group = top_group(r);
    if (r->depth == 0 && group->parts == 1 && !group->here.is_empty &&
        (group->here.first & GAPS) != 0 && !r->part.is_long)
        r->covers = true;
    group->all = group->has_branch ? unite_shapes(group->all, group->here) : group->here;
    group->has_branch = true;
    group->here = empty;
    group->parts = 0;
    r->state = QUANTIFIED_NOTHING;
}

/* ---- escapes ---- */

/* Reads hexadecimal digits up to `most`; returns their number. */
static int read_hex(struct reader *r, int most, uint32_t *out)
{
    int n = 0;
    for (*out = 0; n < most && r->at < r->n && text_hex_digit(r->source[r->at]) >= 0; n++)
        *out = *out << 4 | (uint32_t)text_hex_digit(r->source[r->at++]);
    return n;
}

/* Reads \x.., \x{...} or \u....; r->at is after the letter. */
static bool read_code(struct reader *r, char letter)
{
    uint32_t c;
    if (letter == 'u') {
        if (read_hex(r, 4, &c) != 4)
            return refuse_part(r, "\\u needs four hexadecimal digits");
    } else if (r->at < r->n && r->source[r->at] == '{') {
        r->at++;
        if (read_hex(r, 6, &c) == 0 || r->at == r->n || r->source[r->at++] != '}')
            return refuse_part(r, "\\x{ needs one hexadecimal number and }");
    } else if (read_hex(r, 2, &c) == 0 || c > 0x7f) {
        return refuse_part(r, "\\x without braces is a byte, which must be 00 to 7f");
    }
    text_add(&r->out->text, "\\x{%x}", c);
    return true;
}

/* Returns true if \p{sc:NAME} is a script. */
static bool is_script(const char *name)
{
    char text[NAME_MAX_BYTES + 16];
    int code;
    PCRE2_SIZE at;
    text_format(text, sizeof text, "\\p{sc:%s}", name);
    pcre2_code *re =
        pcre2_compile((PCRE2_SPTR)text, strlen(text), PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    pcre2_code_free(re);
    return re != NULL;
}

/* Reads \p{NAME}, \p{^NAME} or \P{NAME}; r->at is after the letter. */
static bool read_property(struct reader *r, bool negated)
{
    static const char *const category[][2] = {
        {"letter", "L"}, {"mark", "M"},      {"number", "N"}, {"punctuation", "P"},
        {"symbol", "S"}, {"separator", "Z"}, {"other", "C"}};
    char name[NAME_MAX_BYTES];
    size_t n = 0;
    if (r->at == r->n || r->source[r->at] != '{')
        return refuse_part(r, "\\p needs a property in braces");
    r->at++;
    if (r->at < r->n && r->source[r->at] == '^') {
        negated = !negated;
        r->at++;
    }
    while (r->at < r->n && r->source[r->at] != '}') {
        const char c = r->source[r->at];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (n + 1 == sizeof name || !(is_letter || c == '_' || c == '-' || c == ' '))
            return refuse_part(r, "a property has a name of letters");
        if (is_letter || c == '_')
            name[n++] = c;
        r->at++;
    }
    name[n] = 0;
    if (r->at == r->n || n == 0)
        return refuse_part(r, "a property has a name of letters and ends with }");
    r->at++;
    const char *known = name;
    for (size_t i = 0; i < sizeof category / sizeof category[0]; i++)
        if (text_distance(name, category[i][0]) == 0)
            known = category[i][1];
    text_add(&r->out->text, "\\%c{%s%s}", negated ? 'P' : 'p',
             strlen(known) > 2 && is_script(known) ? "sc:" : "", known);
    return true;
}

/* Reads the rest of an escape that stands for one character; r->at is after its letter. */
static bool read_simple(struct reader *r, char c)
{
    if (c == 'x' || c == 'u')
        return read_code(r, c);
    if (c == 'v')
        put_text(r, "\\x0b");
    else if (strchr("tnrfae", c) != NULL)
        text_add(&r->out->text, "\\%c", c);
    else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return refuse_part(r, "this escape is not supported");
    else if ((unsigned char)c < 0x80)
        text_add(&r->out->text, "\\%c", c);
    else
        text_add_bytes(&r->out->text, &c, 1);
    return true;
}

/* Returns the contents of the class that \c is, or NULL. */
static const char *set_of(char c)
{
    switch (c) {
    case 's':
    case 'S':
        return SPACES;
    case 'w':
    case 'W':
        return WORDS;
    case 'd':
    case 'D':
        return "\\p{Nd}";
    case 'h':
    case 'H':
        return HEX_DIGITS;
    default:
        return NULL;
    }
}

/* Copies the bytes of a character beyond ASCII after the first one. */
static void copy_tail(struct reader *r)
{
    while (r->at < r->n && ((unsigned char)r->source[r->at] & 0xc0) == 0x80)
        text_add_bytes(&r->out->text, r->source + r->at++, 1);
}

/* Reads an escape outside of a class; r->at is after the backslash. */
static bool read_escape(struct reader *r)
{
    const size_t begin = r->out->text.len;
    if (r->at == r->n)
        return refuse_part(r, "a backslash ends the pattern");
    const char c = r->source[r->at++];
    const char *set = set_of(c);
    if (c == 'b' || c == 'B') {
        const bool is_edge = c == 'b';
        text_add(&r->out->text, "(?:(?<=[%s])(?%c[%s])|(?<![%s])(?%c[%s]))", WORDS,
                 is_edge ? '!' : '=', WORDS, WORDS, is_edge ? '=' : '!', WORDS);
        add_assertion(r, false);
        return true;
    }
    if (c == 'A' || c == 'z' || c == 'Z') {
        text_add(&r->out->text, "\\%c", c);
        add_assertion(r, false);
        return true;
    }
    if (c == 'R' || c == 'X') {
        text_add(&r->out->text, "\\%c", c);
        add_part(r, begin,
                 (struct shape){.is_long = true,
                                .looks = true,
                                .first = LETTER | GAP | OTHER,
                                .last = LETTER | GAP | OTHER});
        return true;
    }
    if (set != NULL)
        text_add(&r->out->text, "[%s%s]", c >= 'a' ? "" : "^", set);
    else if (c == 'p' || c == 'P') {
        if (!read_property(r, c == 'P'))
            return false;
    } else if (!read_simple(r, c))
        return false;
    copy_tail(r);
    add_character(r, begin);
    return true;
}

/* ---- classes ---- */

/* Reads an escape within a class; r->at is after the backslash. *is_set_out: it is no single
 * character. */
static bool read_class_escape(struct reader *r, bool *is_set_out)
{
    if (r->at == r->n)
        return refuse_part(r, "a backslash ends the pattern");
    const char c = r->source[r->at++];
    *is_set_out = true;
    if (c == 'W' || c == 'H')
        return refuse_part(r, "\\W and \\H within [ ] are not supported");
    if (c == 'S')
        put_text(r, NO_SPACES);
    else if (c == 'D')
        put_text(r, "\\P{Nd}");
    else if (set_of(c) != NULL)
        put_text(r, set_of(c));
    else if (c == 'p' || c == 'P')
        return read_property(r, c == 'P');
    else {
        *is_set_out = false;
        if (c == 'b')
            put_text(r, "\\x08");
        else if (!read_simple(r, c))
            return false;
        copy_tail(r);
    }
    return true;
}

/* Reads a class; r->at is after its bracket. Classes within it, unless negated, are their union. */
static bool read_class(struct reader *r)
{
    enum { BEGINS, SINGLE, SET, IN_RANGE } last = BEGINS;
    const size_t begin = r->out->text.len;
    int inner = 0;
    put_text(r, "[");
    if (r->at < r->n && r->source[r->at] == '^') {
        put_text(r, "^");
        r->at++;
    }
    if (r->at < r->n && r->source[r->at] == ']')
        return refuse_part(r, "an empty class");
    for (;;) {
        if (r->at == r->n)
            return refuse_part(r, "a class without ]");
        const char c = r->source[r->at];
        const char next = r->at + 1 < r->n ? r->source[r->at + 1] : 0;
        bool is_set = false;
        if (c == '&' && next == '&')
            return refuse_part(r, "intersections of classes (&&) are not supported");
        if (c == ']' || c == '[') {
            if (last == IN_RANGE ||
                (c == '[' && (next == '^' || next == ':' || next == ']' || inner > 8)))
                return refuse_part(r, "such a class within a class is not supported");
            r->at++;
            inner += c == '[' ? 1 : -1;
            last = SET;
            if (inner < 0)
                break;
            continue;
        }
        if (c == '-' && last == SINGLE && next != ']' && next != 0) {
            put_text(r, "-");
            r->at++;
            last = IN_RANGE;
            continue;
        }
        r->at++;
        if (c == '\\') {
            if (!read_class_escape(r, &is_set))
                return false;
        } else if (c == '-' || c == '^') {
            text_add(&r->out->text, "\\%c", c);
        } else {
            text_add_bytes(&r->out->text, &c, 1);
            copy_tail(r);
        }
        if (is_set && last == IN_RANGE)
            return refuse_part(r, "a range ends with a set");
        last = is_set || last == IN_RANGE || c == '-' ? SET : SINGLE;
    }
    put_text(r, "]");
    add_character(r, begin);
    return true;
}

/* ---- groups ---- */

/* Reads what follows "(?": the kind of the group, or options. */
static bool read_group_kind(struct reader *r, struct group *group, bool *is_group_out)
{
    static const struct {
        const char *text;
        enum group_kind kind;
    } kinds[] = {{":", GROUP_PLAIN}, {">", GROUP_PLAIN},   {"=", GROUP_AHEAD},
                 {"!", GROUP_AHEAD}, {"<=", GROUP_BEHIND}, {"<!", GROUP_BEHIND}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t n = strlen(kinds[i].text);
        if (r->n - r->at < n || memcmp(r->source + r->at, kinds[i].text, n) != 0)
            continue;
        group->kind = kinds[i].kind;
        text_add(&r->out->text, "(?%s", kinds[i].text);
        r->at += n;
        return true;
    }
    put_text(r, "(?");
    while (r->at < r->n &&
           (r->source[r->at] == 'i' || r->source[r->at] == 'm' || r->source[r->at] == '-')) {
        const char c = r->source[r->at++];
        text_add(&r->out->text, "%c", c == 'm' ? 's' : c); /* Ruby's m: a dot matches line ends */
    }
    if (r->at == r->n || (r->source[r->at] != ':' && r->source[r->at] != ')'))
        return refuse_part(r, "this kind of group is not supported");
    *is_group_out = r->source[r->at] == ':';
    if (!*is_group_out && (top_group(r)->parts > 0 || top_group(r)->has_branch))
        return refuse_part(r, "options are supported only where a pattern or group begins");
    text_add(&r->out->text, "%c", r->source[r->at++]);
    return true;
}

/* Reads the beginning of a group; r->at is after the parenthesis. */
static bool read_group(struct reader *r)
{
    struct group group = {.begin = r->out->text.len, .here = empty};
    bool is_group = true;
    if (r->at < r->n && r->source[r->at] == '*')
        return refuse_part(r, "verbs are not supported");
    if (r->at < r->n && r->source[r->at] == '?') {
        r->at++;
        if (!read_group_kind(r, &group, &is_group))
            return false;
    } else {
        put_text(r, "(?:");
    }
    if (!is_group)
        return true;
    if (r->depth + 1 == GROUPS_MAX)
        return refuse_part(r, "too many groups within each other");
    r->group[++r->depth] = group;
    r->state = QUANTIFIED_NOTHING;
    return true;
}

static bool end_group(struct reader *r)
{
    if (r->depth == 0)
        return refuse_part(r, "a ) without (");
    put_text(r, ")");
    end_branch(r);
    const struct group *group = top_group(r);
    const struct shape all = group->all;
    const enum group_kind kind = group->kind;
    const size_t begin = group->begin;
    r->depth--;
    if (kind == GROUP_PLAIN) {
        add_part(r, begin, all);
        r->group[r->depth].parts++; /* the branch is not one character */
    } else {
        add_assertion(r, kind == GROUP_AHEAD && !all.is_long && !all.looks && !all.looks_first);
    }
    return true;
}

/* ---- quantifiers ---- */

/* Puts the last part, with its quantifier, into a group, so that another one can follow. */
static void wrap_part(struct reader *r)
{
    struct text *text = &r->out->text;
    put_text(r, "(?:)");
    if (text->overflow)
        return;
    memmove(text->data + r->part_at + 3, text->data + r->part_at, text->len - 4 - r->part_at);
    memcpy(text->data + r->part_at, "(?:", 3);
    text->data[text->len - 1] = ')';
}

/* Repeats the last part from `least` times to once or more often. */
static void set_repeat(struct reader *r, uint32_t least, bool is_repeated)
{
    r->part = repeat_shape(r->part, least == 0, is_repeated);
    top_group(r)->here = join_shapes(r->before, r->part);
    r->part.is_long = least > 1; /* for `covers`: one character is enough */
}

/* Reads '*', '+' or '?'; r->at is after it. */
static bool read_quantifier(struct reader *r, char c)
{
    if (r->state == QUANTIFIED_NOTHING || r->state == QUANTIFIED_DONE)
        return refuse_part(r, "nothing to repeat");
    if (r->state == QUANTIFIED_SIMPLE && c == '*')
        return refuse_part(r, "two quantifiers in a row are not supported");
    const bool is_mode = r->state == QUANTIFIED_SIMPLE ||
                         (r->state == QUANTIFIED_INTERVAL && c == '?' && !r->is_exact);
    if (r->state == QUANTIFIED_INTERVAL && !is_mode)
        wrap_part(r);
    text_add(&r->out->text, "%c", c);
    if (!is_mode)
        set_repeat(r, c == '+', c != '?');
    r->state = r->state == QUANTIFIED_PART ? QUANTIFIED_SIMPLE : QUANTIFIED_DONE;
    return true;
}

/* Reads an interval {n}, {n,}, {,m} or {n,m}; r->at is after the brace. false: it is none, and the
 * brace is a character. */
static bool read_interval(struct reader *r, uint32_t bound[2], bool *is_exact_out)
{
    size_t at = r->at;
    bool has[2] = {false, false}, has_comma = false;
    bound[0] = bound[1] = 0;
    for (; at < r->n && r->source[at] != '}'; at++) {
        const char c = r->source[at];
        if (c == ',' && !has_comma)
            has_comma = true;
        else if (c >= '0' && c <= '9' && bound[has_comma] < 100000) {
            bound[has_comma] = 10 * bound[has_comma] + (uint32_t)(c - '0');
            has[has_comma] = true;
        } else
            return false;
    }
    if (at == r->n || (!has[0] && !has[1]))
        return false;
    *is_exact_out = !has_comma;
    bound[1] = !has_comma ? bound[0] : has[1] ? bound[1] : UINT32_MAX;
    r->at = at + 1;
    return true;
}

static bool read_brace(struct reader *r)
{
    uint32_t bound[2];
    bool is_exact;
    const size_t begin = r->out->text.len;
    if (!read_interval(r, bound, &is_exact)) {
        put_text(r, "\\{");
        add_character(r, begin);
        return true;
    }
    if (r->state != QUANTIFIED_PART)
        return refuse_part(r, "nothing to repeat, or two quantifiers in a row");
    if (bound[1] == UINT32_MAX)
        text_add(&r->out->text, "{%u,}", bound[0]);
    else if (bound[0] > bound[1])
        return refuse_part(r, "an interval with a smaller number last");
    else
        text_add(&r->out->text, "{%u,%u}", bound[0], bound[1]);
    set_repeat(r, bound[0], bound[1] > 1);
    r->is_exact = is_exact;
    r->state = QUANTIFIED_INTERVAL;
    return true;
}

/* ---- all ---- */

/* Reads the next part of the source. */
static bool read_part(struct reader *r)
{
    const size_t begin = r->out->text.len;
    const char c = r->source[r->at];
    r->out->made[r->at++] = begin;
    switch (c) {
    case '\\':
        return read_escape(r);
    case '[':
        return read_class(r);
    case '(':
        return read_group(r);
    case ')':
        return end_group(r);
    case '|':
        put_text(r, "|");
        end_branch(r);
        return true;
    case '*':
    case '+':
    case '?':
        return read_quantifier(r, c);
    case '{':
        return read_brace(r);
    case '^':
    case '$':
        text_add(&r->out->text, "%c", c);
        add_assertion(r, c == '$');
        return true;
    case ']':
    case '}':
        text_add(&r->out->text, "\\%c", c);
        break;
    case 0:
        return refuse_part(r, "a NUL byte");
    default:
        text_add_bytes(&r->out->text, &c, 1);
        copy_tail(r);
    }
    add_character(r, begin);
    return true;
}

void pattern_syntax_write(const char *source, size_t n, struct pattern_syntax *out)
{
    struct reader *r = memory_new(1, sizeof *r);
    *out = (struct pattern_syntax){.text = {.limit = 64 * PATTERN_BYTES_MAX},
                                   .made = memory_new(n + 1, sizeof *out->made)};
    *r = (struct reader){.source = source, .n = n, .out = out};
    r->group[0].here = empty;
    for (size_t i = 0; i <= n; i++)
        out->made[i] = SIZE_MAX;
    bool is_good = true;
    for (size_t i = 0, bytes; is_good && i < n; i += bytes) {
        bytes = text_utf8_bytes((const unsigned char *)source + i, n - i);
        r->at = i;
        if (bytes == 0)
            is_good = refuse_part(r, "bytes that are not UTF-8");
    }
    r->at = 0;
    while (is_good && r->at < n)
        is_good = read_part(r);
    if (is_good && r->depth > 0)
        is_good = refuse_part(r, "a ( without )");
    if (is_good && out->text.overflow)
        is_good = refuse_part(r, "it is too long");
    if (is_good) {
        end_branch(r);
        const struct shape *all = &r->group[0].all;
        const bool is_certain = !all->crosses && !all->looks && !all->is_empty;
        out->edge = !is_certain ? PATTERN_EDGE_NONE
                    : r->covers ? PATTERN_EDGE_MATCH
                                : PATTERN_EDGE_NEUTRAL;
    }
    free(r);
}

void pattern_syntax_free(struct pattern_syntax *syntax)
{
    text_free(&syntax->text);
    free(syntax->made);
}

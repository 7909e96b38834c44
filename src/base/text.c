/* text — see text.h. Must not know the use of the strings. */
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"

#define TEXT_LIMIT_DEFAULT ((size_t)1 << 20)
#define TEXT_DISTANCE_MAX 63
#define TEXT_FAR 999

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Reads digits into *value; returns their number. More than 64 bits set *overflow; the rest is
 * still read. */
static size_t read_digits(const char *s, uint64_t *value, bool *overflow)
{
    size_t n = 0;
    *value = 0;
    for (; is_digit(s[n]); n++) {
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(s[n] - '0'), value))
            *overflow = true;
    }
    return n;
}

static enum text_result in_bounds(uint64_t value, bool negative, bool overflow, int64_t min,
                                  int64_t max, int64_t *out)
{
    uint64_t most = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    if (overflow || value > most)
        return TEXT_OUT_OF_RANGE;
    int64_t signed_value = negative ? (int64_t)(0 - value) : (int64_t)value;
    if (signed_value < min || signed_value > max)
        return TEXT_OUT_OF_RANGE;
    *out = signed_value;
    return TEXT_OK;
}

enum text_result text_parse_i64(const char *s, int64_t min, int64_t max, int64_t *out)
{
    bool negative = s[0] == '-', overflow = false;
    uint64_t value;
    const char *digits = s + negative;
    size_t n = read_digits(digits, &value, &overflow);
    if (n == 0 || digits[n] != 0)
        return TEXT_NOT_A_NUMBER;
    return in_bounds(value, negative, overflow, min, max, out);
}

/* Returns true for -digits.digits e±digits, at least one digit before the exponent: the form that
 * JSON and people write, without the other forms of strtod (hex, inf, nan, spaces). */
static bool is_decimal(const char *s)
{
    if (*s == '-')
        s++;
    size_t whole = strspn(s, "0123456789");
    s += whole;
    size_t fraction = 0;
    if (*s == '.') {
        fraction = strspn(++s, "0123456789");
        s += fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '+' || *s == '-')
            s++;
        size_t exponent = strspn(s, "0123456789");
        if (exponent == 0)
            return false;
        s += exponent;
    }
    return *s == 0;
}

enum text_result text_parse_f64(const char *s, double min, double max, double *out)
{
    if (!is_decimal(s))
        return TEXT_NOT_A_NUMBER;
    /* the program always uses the C locale, so the decimal point is '.' */
    double value = strtod(s, NULL);
    if (!isfinite(value) || value < min || value > max)
        return TEXT_OUT_OF_RANGE;
    *out = value;
    return TEXT_OK;
}

struct unit {
    const char *name;
    int64_t factor;
};

/* Reads "1.5" and the unit in the rest of the string. A fraction of the smallest unit is refused, a
 * fraction of a larger one is rounded down to the smallest. */
static enum text_result read_with_unit(const char *s, const struct unit *units, int64_t min,
                                       int64_t max, int64_t *out)
{
    bool negative = s[0] == '-', overflow = false;
    uint64_t whole, fraction = 0, product, rest;
    const char *at = s + negative;
    size_t whole_n = read_digits(at, &whole, &overflow), fraction_n = 0;
    at += whole_n;
    if (*at == '.') {
        fraction_n = read_digits(++at, &fraction, &overflow);
        if (fraction_n == 0 || fraction_n > 9)
            return TEXT_NOT_A_NUMBER;
        at += fraction_n;
    }
    if (whole_n == 0)
        return TEXT_NOT_A_NUMBER;
    for (; units->name != NULL && strcmp(units->name, at) != 0; units++)
        continue;
    if (units->name == NULL || (units->factor == 1 && fraction_n > 0))
        return TEXT_NOT_A_NUMBER;

    uint64_t factor = (uint64_t)units->factor, ten_power = 1;
    for (size_t i = 0; i < fraction_n; i++)
        ten_power *= 10;
    rest = (uint64_t)((unsigned __int128)fraction * factor / ten_power);
    overflow = overflow || __builtin_mul_overflow(whole, factor, &product);
    overflow = overflow || __builtin_add_overflow(product, rest, &product);
    return in_bounds(overflow ? 0 : product, negative, overflow, min, max, out);
}

enum text_result text_parse_bytes(const char *s, int64_t min, int64_t max, int64_t *out)
{
    static const struct unit units[] = {
        {"", 1},
        {"B", 1},
        {"k", 1000},
        {"kB", 1000},
        {"K", 1000},
        {"KB", 1000},
        {"M", 1000000},
        {"MB", 1000000},
        {"G", 1000000000},
        {"GB", 1000000000},
        {"T", 1000000000000},
        {"TB", 1000000000000},
        {"Ki", 1 << 10},
        {"KiB", 1 << 10},
        {"Mi", 1 << 20},
        {"MiB", 1 << 20},
        {"Gi", 1 << 30},
        {"GiB", 1 << 30},
        {"Ti", (int64_t)1 << 40},
        {"TiB", (int64_t)1 << 40},
        {NULL, 0},
    };
    return read_with_unit(s, units, min, max, out);
}

enum text_result text_parse_duration(const char *s, int64_t min_ms, int64_t max_ms, int64_t *out_ms)
{
    static const struct unit units[] = {
        {"", 1000},     {"ms", 1},       {"s", 1000}, {"m", 60000},
        {"h", 3600000}, {"d", 86400000}, {NULL, 0},
    };
    return read_with_unit(s, units, min_ms, max_ms, out_ms);
}

int text_hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool text_parse_hex(const char *digits, int n, uint64_t *out)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++) {
        const int digit = digits[i] >= 'A' && digits[i] <= 'F' ? -1 : text_hex_digit(digits[i]);
        if (digit < 0)
            return false;
        value = value << 4 | (uint64_t)digit;
    }
    *out = value;
    return true;
}

void text_hex(const void *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *byte = bytes;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[byte[i] >> 4];
        out[2 * i + 1] = digits[byte[i] & 15];
    }
    out[2 * n] = 0;
}

bool text_parse_bool(const char *s, bool *out)
{
    static const char *const words[2][4] = {{"0", "false", "no", "off"},
                                            {"1", "true", "yes", "on"}};
    for (int value = 0; value < 2; value++) {
        for (int i = 0; i < 4; i++) {
            if (strcasecmp(s, words[value][i]) == 0) {
                *out = value == 1;
                return true;
            }
        }
    }
    return false;
}

/* Returns the length, at most n, at which no UTF-8 character is cut in two. */
static size_t whole_chars(const char *s, size_t n)
{
    size_t back = 0;
    while (back < 3 && back < n && ((unsigned char)s[n - back] & 0xC0) == 0x80)
        back++;
    return ((unsigned char)s[n - back] & 0xC0) == 0xC0 ? n - back : n;
}

enum text_result text_parse_count(const char *s, int64_t min, int64_t max, int64_t *out)
{
    static const struct {
        char unit;
        double factor;
    } rows[] = {{'k', 1e3}, {'K', 1e3}, {'M', 1e6}, {'G', 1e9}, {'B', 1e9}, {'T', 1e12}};
    char digits[64];
    double value, factor = 1;
    const enum text_result whole = text_parse_i64(s, min, max, out);
    if (whole != TEXT_NOT_A_NUMBER || !text_copy(digits, sizeof digits, s))
        return whole;
    const size_t n = strlen(digits);
    for (size_t i = 0; n > 0 && i < sizeof rows / sizeof *rows; i++)
        if (digits[n - 1] == rows[i].unit) {
            factor = rows[i].factor;
            digits[n - 1] = 0;
            break;
        }
    if (text_parse_f64(digits, -INFINITY, INFINITY, &value) != TEXT_OK)
        return TEXT_NOT_A_NUMBER;
    value *= factor;
    /* 1.1M is whole, except for rounding */
    if (fabs(value - round(value)) > 1e-9 * fmax(fabs(value), 1))
        return TEXT_NOT_A_NUMBER;
    value = round(value);
    if (!(value >= (double)min && value <= (double)max) || fabs(value) > 9007199254740992.0)
        return TEXT_OUT_OF_RANGE;
    *out = (int64_t)value;
    return TEXT_OK;
}

void text_strip_controls(char *text)
{
    for (unsigned char *s = (unsigned char *)text; *s != 0; s++) {
        bool is_c1 = s[0] == 0xC2 && s[1] >= 0x80 && s[1] <= 0x9F;
        if (is_c1)
            s[1] = '?';
        if (is_c1 || *s < 0x20 || *s == 0x7F)
            *s = '?';
    }
}

size_t text_utf8_put(unsigned char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3F));
    out[0] = (unsigned char)((0xF00 >> n) | c);
    return (size_t)n;
}

/* Returns the bytes of the character at s; 0: it is not UTF-8, a control, or U+FFFE or U+FFFF,
 * which XML forbids. The zero at the end of s is no continuation, so nothing after it is read. */
static size_t printable_bytes(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    const size_t n = text_utf8_bytes(s, 4);
    const bool is_control =
        (n == 1 && (s[0] < 0x20 || s[0] == 0x7F)) || (n == 2 && s[0] == 0xC2 && s[1] < 0xA0);
    return is_control || (n == 3 && s[0] == 0xEF && s[1] == 0xBF && s[2] >= 0xBE) ? 0 : n;
}

const char *text_printable(char *out, size_t cap, const char *s)
{
    size_t used = 0;
    while (*s) {
        const size_t n = printable_bytes(s), bytes = n > 0 ? n : 1;
        if (used + bytes >= cap)
            break;
        memcpy(out + used, n > 0 ? s : "?", bytes);
        used += bytes;
        s += bytes;
    }
    out[used] = 0;
    return out;
}

int text_columns(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += (*s & 0xC0) != 0x80;
    return n;
}

int text_prefix(const char *s, int columns)
{
    int i = 0;
    for (; s[i]; i++)
        if ((s[i] & 0xC0) != 0x80 && columns-- == 0)
            break;
    return i;
}

bool text_is_printable(const char *s)
{
    size_t n = 1;
    while (*s && (n = printable_bytes(s)) > 0)
        s += n;
    return n > 0;
}

/* Ends a text that goes on after its first n bytes: at the end of a word, with the mark in place of
 * the rest. A word longer than half of the text is cut itself. If the mark does not fit, the text
 * becomes empty. */
static void shorten_text(char *out, size_t n)
{
    static const char mark[] = "…";
    if (n < sizeof(mark) - 1) {
        out[0] = 0;
        return;
    }
    size_t end = whole_chars(out, n - (sizeof(mark) - 1)), word = end;
    while (word > 0 && out[end] != ' ' && out[word - 1] != ' ')
        word--;
    end = word > end / 2 ? word : end;
    while (end > 0 && strchr(" ,;:(", out[end - 1]) != NULL)
        end--;
    memcpy(out + end, mark, sizeof(mark));
}

bool text_copy(char *out, size_t cap, const char *s)
{
    ASSERT(cap > 0);
    size_t n = strnlen(s, cap);
    bool is_whole = n < cap;
    n -= !is_whole;
    memmove(out, s, n);
    out[n] = 0;
    if (!is_whole)
        shorten_text(out, n);
    return is_whole;
}

bool text_format_v(char *out, size_t cap, const char *fmt, va_list args)
{
    ASSERT(cap > 0);
    int n = vsnprintf(out, cap, fmt, args);
    if (n < 0)
        out[0] = 0;
    else if ((size_t)n >= cap)
        shorten_text(out, cap - 1);
    return n >= 0 && (size_t)n < cap;
}

bool text_format(char *out, size_t cap, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    bool is_whole = text_format_v(out, cap, fmt, args);
    va_end(args);
    return is_whole;
}

bool text_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool text_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), tail = strlen(suffix);
    return n >= tail && memcmp(s + n - tail, suffix, tail) == 0;
}

const char *text_variable(char *const *list, const char *name)
{
    const size_t n = strlen(name);
    for (; list != NULL && *list != NULL; list++)
        if (strncmp(*list, name, n) == 0 && (*list)[n] == '=')
            return *list + n + 1;
    return NULL;
}

/* Writes s in lower case without '_' to out. Returns the length. */
static int plain_name(char *out, const char *s)
{
    int n = 0;
    for (; *s != 0; s++) {
        if (*s != '_')
            out[n++] = (char)tolower((unsigned char)*s);
    }
    return n;
}

/* Optimal string alignment: Damerau 1964, Levenshtein 1966; three rows of the table are enough. */
int text_distance(const char *a, const char *b)
{
    if (strnlen(a, TEXT_DISTANCE_MAX + 1) > TEXT_DISTANCE_MAX ||
        strnlen(b, TEXT_DISTANCE_MAX + 1) > TEXT_DISTANCE_MAX)
        return TEXT_FAR;
    char x[TEXT_DISTANCE_MAX], y[TEXT_DISTANCE_MAX];
    int x_n = plain_name(x, a), y_n = plain_name(y, b);
    int rows[3][TEXT_DISTANCE_MAX + 1] = {{0}};
    for (int j = 0; j <= y_n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= x_n; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= y_n; j++) {
            row[j] = above[j - 1] + (x[i - 1] != y[j - 1]);
            row[j] = above[j] + 1 < row[j] ? above[j] + 1 : row[j];
            row[j] = row[j - 1] + 1 < row[j] ? row[j - 1] + 1 : row[j];
            bool swapped = i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1];
            if (swapped && above2[j - 2] + 1 < row[j])
                row[j] = above2[j - 2] + 1;
        }
    }
    return rows[x_n % 3][y_n];
}

struct text_digits text_f64(double value)
{
    struct text_digits out;
    double again;
    /* A number with up to 15 digits survives a double: its first form is the shortest */
    for (int digits = 15; digits <= 17; digits++) {
        text_format(out.text, sizeof out.text, "%.*g", digits, value);
        if (text_parse_f64(out.text, -INFINITY, INFINITY, &again) == TEXT_OK && again == value)
            break;
    }
    return out;
}

const char *text_format_bytes(char *out, size_t cap, double bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    if (!isfinite(bytes)) {
        text_copy(out, cap, "-");
        return out;
    }
    int unit = 0;
    while (fabs(bytes) >= 1023.95 && unit < 5) { /* 1023.95 would round to "1024.0" */
        bytes /= 1024;
        unit++;
    }
    text_format(out, cap, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, names[unit]);
    return out;
}

const char *text_format_count(char *out, size_t cap, double n)
{
    static const char *const names[] = {"", "k", "M", "G", "T", "P"};
    if (!isfinite(n)) {
        text_copy(out, cap, "-");
        return out;
    }
    int unit = 0;
    while (fabs(n) >= 999.5 && unit < 5) {
        n /= 1000;
        unit++;
    }
    double size = fabs(n);
    int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    if (unit == 0 && n == floor(n))
        decimals = 0;
    text_format(out, cap, "%.*f%s", decimals, n, names[unit]);
    return out;
}

const char *text_format_ms(char *out, size_t cap, double ms)
{
    bool is_long = ms >= 999.5;
    double n = is_long ? ms / 1000 : ms;
    if (isfinite(ms))
        text_format(out, cap, "%.*f %s",
                    n >= 99.95   ? 0
                    : n >= 9.995 ? 1
                                 : 2,
                    n, is_long ? "s" : "ms");
    else
        text_copy(out, cap, "-");
    return out;
}

/* mask_address — masks the n bytes after "://". A secret may hold commas: too much is masked rather
 * than too little. */
static void mask_address(struct text *out, const char *s, size_t n)
{
    size_t query = 0, host = 0;
    while (query < n && s[query] != '?')
        query++;
    const size_t end = query;
    for (size_t i = 0; i < end; i++)
        host = s[i] == '@' ? i + 1 : host;
    text_add(out, "%s%.*s%s", host > 0 ? "***@" : "", (int)(end - host), s + host,
             query < n ? "?***" : "");
}

/* address_bytes — returns the length of the address after "://": up to a blank or quote, or to the
 * next address in a list. */
static size_t address_bytes(const char *s)
{
    const char *next = strstr(s, "://");
    size_t n = strcspn(s, " \t\r\n\"'<>");
    if (next == NULL || (size_t)(next - s) >= n)
        return n;
    for (size_t i = (size_t)(next - s); i > 0; i--)
        if (s[i - 1] == ',')
            return memchr(s, '?', i) == NULL ? i : n;
    return n;
}

const char *text_mask(char *out, size_t cap, const char *s)
{
    struct text t = {.limit = 2 * strlen(s) + 64};
    const char *found = strstr(s, "://");
    /* the usual case; then no memory is allocated, because lines are also logged if memory is
     * short */
    if (found == NULL) {
        text_copy(out, cap, s);
        return out;
    }
    while ((found = strstr(s, "://")) != NULL) {
        size_t n = address_bytes(found + 3);
        text_add_bytes(&t, s, (size_t)(found + 3 - s));
        mask_address(&t, found + 3, n);
        s = found + 3 + n;
    }
    text_add(&t, "%s", s);
    text_copy(out, cap, t.data != NULL && !t.overflow ? t.data : t.overflow ? "(not shown)" : "");
    text_free(&t);
    return out;
}

const char *text_format_span(char *out, size_t cap, int64_t ms)
{
    int64_t seconds = ms / 1000, minutes = seconds / 60, hours = minutes / 60;
    if (ms < 0)
        text_copy(out, cap, "-");
    else if (minutes == 0)
        text_format(out, cap, "%llds", (long long)seconds);
    else if (hours == 0)
        text_format(out, cap, "%lldm", (long long)minutes);
    else if (hours < 24)
        text_format(out, cap, "%lldh%02lldm", (long long)hours, (long long)(minutes % 60));
    else
        text_format(out, cap, "%lldd%02lldh", (long long)(hours / 24), (long long)(hours % 24));
    return out;
}

/* Grows by n more bytes and the closing 0. Returns how many of the n fit. */
static size_t text_grow(struct text *t, size_t n)
{
    size_t limit = t->limit == 0 ? TEXT_LIMIT_DEFAULT : t->limit;
    size_t fits = limit - t->len < n ? limit - t->len : n;
    if (fits < n)
        t->overflow = true;
    if (t->len + fits < t->cap)
        return fits;
    size_t cap = t->cap == 0 ? 256 : t->cap;
    while (cap <= t->len + fits)
        cap = cap + cap / 2;
    char *data = realloc(t->data, cap);
    if (data == NULL) {
        t->overflow = true;
        return 0;
    }
    t->data = data;
    t->cap = cap;
    return fits;
}

void text_add_bytes(struct text *t, const void *bytes, size_t n)
{
    n = text_grow(t, n);
    if (n > 0)
        memcpy(t->data + t->len, bytes, n);
    t->len += n;
    if (t->data != NULL)
        t->data[t->len] = 0;
}

void text_add(struct text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    char small[256];
    int n = vsnprintf(small, sizeof(small), fmt, args);
    if (n >= 0 && (size_t)n < sizeof(small)) {
        text_add_bytes(t, small, (size_t)n);
    } else if (n >= 0) {
        size_t fits = text_grow(t, (size_t)n);
        if (fits > 0) {
            vsnprintf(t->data + t->len, fits + 1, fmt, again);
            t->len += fits;
        }
    }
    va_end(again);
    va_end(args);
}

void text_add_label(struct text *t, const char *name, const char *value)
{
    text_add(t, "%s%s=\"", t->len > 0 && t->data[t->len - 1] == '{' ? "" : ",", name);
    for (; *value != 0; value++)
        text_add(t, "%s%c", *value == '\\' || *value == '"' ? "\\" : "",
                 *value >= 0x20 && *value < 0x7F ? *value : '?');
    text_add(t, "\"");
}

void text_free(struct text *t)
{
    free(t->data);
    *t = (struct text){.limit = t->limit};
}

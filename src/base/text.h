/* text — strict reading and bounded writing of strings; the only file that calls strtol and similar
 * functions.
 *
 * Readers accept the whole string or refuse it: "8x", "", " 8" and "0x8" are not numbers. They
 * report the reason only by their return value; the caller writes the sentence, because it depends
 * on the use of the string. */
#ifndef CONVOY_BASE_TEXT_H
#define CONVOY_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum text_result { TEXT_OK, TEXT_NOT_A_NUMBER, TEXT_OUT_OF_RANGE };

/* Reads the whole string as a number; *out is set only on TEXT_OK. Bounds are inclusive. Decimal
 * only; no spaces, no '+'. The same holds for the other readers. */
enum text_result text_parse_i64(const char *s, int64_t min, int64_t max, int64_t *out);
/* Reads numbers like "3e-4"; no inf, nan, hex. */
enum text_result text_parse_f64(const char *s, double min, double max, double *out);
/* text_parse_bytes — for tests and benchmarks: reads "64Mi", "1G", "1.5Gi", "500". Units: k M G T
 * (1000) and Ki Mi Gi Ti (1024), B optional. */
enum text_result text_parse_bytes(const char *s, int64_t min, int64_t max, int64_t *out);
/* text_parse_duration — reads "10s", "1.5m", "250ms", "2h", "1d"; a number without unit is seconds.
 * *out_ms: milliseconds. */
enum text_result text_parse_duration(const char *s, int64_t min_ms, int64_t max_ms,
                                     int64_t *out_ms);
bool text_parse_bool(const char *s, bool *out); /* 1 0 true false yes no on off */
/* text_hex_digit — returns the value of a hexadecimal digit of either case; -1: it is none. */
int text_hex_digit(char c);
/* text_parse_hex — reads exactly n lower-case hexadecimal digits, n from 1 to 16; the caller checks
 * the characters after them. false, and *out is not set: a byte is no such digit. */
bool text_parse_hex(const char *digits, int n, uint64_t *out);
/* text_hex — writes n bytes as lower-case hexadecimal digits; out has room for 2 n + 1 bytes. */
void text_hex(const void *bytes, size_t n, char *out);

/* text_parse_count — reads a whole number in the forms of large numbers: 300000, 1e9, 1.5M, 1B (k,
 * M, B or G, T). */
enum text_result text_parse_count(const char *s, int64_t min, int64_t max, int64_t *out);
/* text_utf8_bytes — returns the bytes of the valid UTF-8 character at s; n >= 1 bytes may be read;
 * 0: there is none. No overlong forms, no surrogates, nothing beyond U+10FFFF (Unicode 15, table
 * 3-7). */
static inline size_t text_utf8_bytes(const unsigned char *s, size_t n)
{
    if (s[0] < 0x80)
        return 1;
    const size_t bytes = s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if (bytes == 0 || bytes > n)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    const bool is_overlong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xF0 && s[1] < 0x90);
    const bool is_beyond = (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF4 && s[1] > 0x8F);
    return is_overlong || is_beyond ? 0 : bytes;
}
/* text_utf8_put — writes a character as UTF-8, at most 4 bytes, and returns the number of bytes. */
size_t text_utf8_put(unsigned char *out, uint32_t c);

/* text_strip_controls — replaces terminal controls (C0, C1, DEL) by '?': text from a file or a peer
 * must not control a terminal. */
void text_strip_controls(char *text);
/* text_printable — copies s without bytes that a terminal or a file format could obey: controls
 * (C0, C1, DEL) and bytes that are not UTF-8 become '?'. Returns out. */
const char *text_printable(char *out, size_t cap, const char *s);
/* Returns true if s is UTF-8 without controls. */
bool text_is_printable(const char *s);
/* Returns the columns of UTF-8 text, one for each character. */
int text_columns(const char *s);
/* Returns the bytes of the first `columns` characters of s. */
int text_prefix(const char *s, int columns);
/* text_copy — copies s: at most cap bytes with the closing 0, cap > 0. If it does not fit, out ends
 * after a whole word with "…", and false is returned. */
bool text_copy(char *out, size_t cap, const char *s);
/* text_format — formats like snprintf; limits out, and returns false, as text_copy does. */
bool text_format(char *out, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* text_format_v — does text_format for a list of arguments. */
bool text_format_v(char *out, size_t cap, const char *fmt, va_list args);

/* text_starts — returns true if s begins with prefix. */
bool text_starts(const char *s, const char *prefix);
/* text_ends — returns true if s ends with suffix. */
bool text_ends(const char *s, const char *suffix);
/* Returns the value of a variable in a list of "NAME=value" that ends with NULL; NULL: it has
 * none. */
const char *text_variable(char *const *list, const char *name);
/* text_distance — returns the number of edits (insert, delete, replace, swap neighbours) from a to
 * b, ignoring case and '_'; 999 for strings over 63 bytes. For hints about typos. */
int text_distance(const char *a, const char *b);
struct text_digits {
    char text[32];
};
/* text_f64 — returns the shortest digits that read back as the same double, such as "0.0003" and
 * "1e-08"; "inf", "nan". Use it if a program may read the number again, or a person compares
 * two. */
struct text_digits text_f64(double value);
/* text_format_bytes — writes a size for people: 1536 → "1.5 KiB"; not finite: "-". Returns out. */
const char *text_format_bytes(char *out, size_t cap, double bytes);
/* text_format_count — writes a number for people: 1410000 → "1.41M"; not finite: "-". Returns
 * out. */
const char *text_format_count(char *out, size_t cap, double n);
/* text_format_ms — writes a time for people: 182.3 → "182 ms", 1120 → "1.12 s"; not finite: "-".
 * Returns out. */
const char *text_format_ms(char *out, size_t cap, double ms);
/* text_format_span — writes a span of milliseconds for people: "45s", "14m", "3h12m", "2d03h";
 * negative: "-". Returns out. */
const char *text_format_span(char *out, size_t cap, int64_t ms);
/* text_mask — copies s and replaces possible secrets in URLs (scheme://) by ***: user and password
 * before the host, and everything after a question mark up to the next blank or quote. Returns
 * out. */
const char *text_mask(char *out, size_t cap, const char *s);

/* A string that grows up to `limit` bytes. Zero-initialised is valid and empty; limit 0 means 1
 * MiB. */
struct text {
    char *data; /* always 0-terminated once something was added; NULL when empty */
    size_t len;
    size_t cap;
    size_t limit;
    bool overflow; /* something was cut at the limit, or memory was refused */
};
/* text_add — appends a text formatted like printf's. Beyond the limit it is cut, and overflow is
 * set. */
void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* text_add_bytes — appends n bytes, limited in the same way. */
void text_add_bytes(struct text *t, const void *bytes, size_t n);
/* text_add_label — appends name="value" as a label of a Prometheus metric, after a comma unless it
 * is the first one. \ and " are escaped; characters other than printable ASCII become '?'. */
void text_add_label(struct text *t, const char *name, const char *value);
void text_free(struct text *t); /* accepts a zeroed struct, and a second call */

#endif

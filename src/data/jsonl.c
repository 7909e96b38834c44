/* jsonl — see jsonl.h. A JSON parser that keeps one string and builds no tree. Source: RFC 8259. */
#include "data/jsonl.h"

#include <stdbool.h>
#include <string.h>

#include "base/text.h"

enum { JSONL_DEPTH_MAX = 64 };

struct jsonl_scan {
    uint8_t *at, *end;
    const char *fault; /* the first error, at fault_at */
    uint8_t *fault_at;
};

/* A decoded string within the line. */
struct jsonl_span {
    uint8_t *bytes;
    size_t n;
};

static bool record_fault(struct jsonl_scan *s, const char *fault)
{
    if (s->fault == NULL) {
        s->fault = fault;
        s->fault_at = s->at;
    }
    return false;
}

static void skip_space(struct jsonl_scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n'))
        s->at++;
}

static bool accept_byte(struct jsonl_scan *s, uint8_t c)
{
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* ---- strings ---- */

/* Returns the four digits after "\u" as a number; -1: they are missing. */
static int32_t parse_hex4(const uint8_t *p, const uint8_t *end)
{
    int32_t v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = text_hex_digit((char)p[i]);
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

const uint8_t *jsonl_escape(const uint8_t *p, const uint8_t *end, uint8_t *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *known = *p != 0 ? strchr(from, *p) : NULL;
    if (known != NULL)
        out[(*n)++] = (uint8_t)to[known - from];
    if (known != NULL || *p != 'u')
        return known != NULL ? p + 1 : NULL;
    int32_t c = parse_hex4(++p, end);
    if (c < 0)
        return NULL;
    p += 4;
    const bool is_high = c >= 0xd800 && c < 0xdc00;
    const int32_t low =
        is_high && end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? parse_hex4(p + 2, end) : -1;
    if (low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        p += 6;
    } else if (c >= 0xd800 && c < 0xe000) {
        c = 0xfffd;
    }
    *n += text_utf8_put(out + *n, (uint32_t)c);
    return p;
}

static bool read_escape(struct jsonl_scan *s, uint8_t **out)
{
    size_t n = 0;
    if (s->at == s->end)
        return record_fault(s, "the line ends inside a string");
    const uint8_t *after = jsonl_escape(s->at, s->end, *out, &n);
    if (after == NULL && *s->at != 'u')
        return record_fault(s, "an escape that JSON does not have");
    s->at += after != NULL ? after - s->at : 1;
    *out += n;
    return after != NULL || record_fault(s, "\\u without four hexadecimal digits");
}

/* Reads characters without an escape. This code reads most of a text, so nothing is moved before
 * the first escape. */
static bool read_plain(struct jsonl_scan *s, uint8_t **out)
{
    uint8_t *const from = s->at;
    while (s->at < s->end && *s->at != '"' && *s->at != '\\') {
        const size_t n =
            *s->at >= 0x80 ? text_utf8_bytes(s->at, (size_t)(s->end - s->at)) : *s->at >= 0x20;
        if (n == 0)
            return record_fault(s, *s->at >= 0x80 ? "bytes that are not UTF-8"
                                                  : "a control character inside a string");
        s->at += n;
    }
    const size_t n = (size_t)(s->at - from);
    if (*out != from)
        memmove(*out, from, n);
    *out += n;
    return true;
}

/* Reads a string after its opening quote. */
static bool read_string(struct jsonl_scan *s, struct jsonl_span *span)
{
    uint8_t *const first = s->at, *out = first;
    for (;;) {
        if (!read_plain(s, &out))
            return false;
        if (s->at == s->end)
            return record_fault(s, "the line ends inside a string");
        if (*s->at++ == '"')
            break;
        if (!read_escape(s, &out))
            return false;
    }
    *span = (struct jsonl_span){first, (size_t)(out - first)};
    return true;
}

/* ---- values ---- */

static size_t skip_digits(struct jsonl_scan *s)
{
    uint8_t *const from = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return (size_t)(s->at - from);
}

static bool skip_number(struct jsonl_scan *s)
{
    accept_byte(s, '-');
    if (!accept_byte(s, '0') && skip_digits(s) == 0)
        return record_fault(s, "not a JSON value");
    if (accept_byte(s, '.') && skip_digits(s) == 0)
        return record_fault(s, "a number that ends in a point");
    if (accept_byte(s, 'e') || accept_byte(s, 'E')) {
        if (!accept_byte(s, '+'))
            accept_byte(s, '-');
        if (skip_digits(s) == 0)
            return record_fault(s, "a number without the digits of its exponent");
    }
    return true;
}

static bool skip_word(struct jsonl_scan *s, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return record_fault(s, "not a JSON value");
    s->at += n;
    return true;
}

static bool skip_value(struct jsonl_scan *s, int depth);

static bool read_key(struct jsonl_scan *s, struct jsonl_span *key)
{
    skip_space(s);
    if (!accept_byte(s, '"'))
        return record_fault(s, "a key was expected here");
    if (!read_string(s, key))
        return false;
    skip_space(s);
    if (!accept_byte(s, ':'))
        return record_fault(s, "':' was expected here");
    skip_space(s);
    return true;
}

/* Reads the separator after a value in an object or array. True: another value follows. Sets
 * *is_good. */
static bool read_separator(struct jsonl_scan *s, uint8_t close, bool *is_good)
{
    skip_space(s);
    *is_good = true;
    if (accept_byte(s, ','))
        return true;
    if (!accept_byte(s, close))
        *is_good = record_fault(s, close == '}' ? "',' or '}' was expected here"
                                                : "',' or ']' was expected here");
    return false;
}

static bool skip_object(struct jsonl_scan *s, int depth)
{
    struct jsonl_span key;
    bool is_good = true;
    skip_space(s);
    if (accept_byte(s, '}'))
        return true;
    do
        if (!read_key(s, &key) || !skip_value(s, depth))
            return false;
    while (read_separator(s, '}', &is_good));
    return is_good;
}

static bool skip_array(struct jsonl_scan *s, int depth)
{
    bool is_good = true;
    skip_space(s);
    if (accept_byte(s, ']'))
        return true;
    do
        if (!skip_value(s, depth))
            return false;
    while (read_separator(s, ']', &is_good));
    return is_good;
}

static bool skip_value(struct jsonl_scan *s, int depth)
{
    struct jsonl_span span;
    skip_space(s);
    const uint8_t c = s->at < s->end ? *s->at : 0;
    if ((c == '{' || c == '[') && depth >= JSONL_DEPTH_MAX)
        return record_fault(s, "values nested deeper than 64");
    switch (c) {
    case '{':
        s->at++;
        return skip_object(s, depth + 1);
    case '[':
        s->at++;
        return skip_array(s, depth + 1);
    case '"':
        s->at++;
        return read_string(s, &span);
    case 't':
        return skip_word(s, "true");
    case 'f':
        return skip_word(s, "false");
    case 'n':
        return skip_word(s, "null");
    default:
        return skip_number(s);
    }
}

/* Reads the members of the line's object. */
static bool read_members(struct jsonl_scan *s, struct jsonl_span *text)
{
    struct jsonl_span key;
    bool is_good = true;
    skip_space(s);
    if (accept_byte(s, '}'))
        return true;
    do {
        if (!read_key(s, &key))
            return false;
        if (key.n != 4 || memcmp(key.bytes, "text", 4) != 0) {
            if (!skip_value(s, 1))
                return false;
            continue;
        }
        if (text->bytes != NULL)
            return record_fault(s, "\"text\" for the second time");
        if (!accept_byte(s, '"'))
            return record_fault(s, "\"text\" is not a string");
        if (!read_string(s, text))
            return false;
    } while (read_separator(s, '}', &is_good));
    return is_good;
}

static bool read_line(struct jsonl_scan *s, struct jsonl_span *text)
{
    uint8_t *const line = s->at;
    skip_space(s);
    if (!accept_byte(s, '{'))
        return record_fault(s, "not a JSON object; every line is one, like {\"text\": \"...\"}");
    if (!read_members(s, text))
        return false;
    skip_space(s);
    if (s->at < s->end)
        return record_fault(s, "something after the JSON object");
    s->at = line;
    return text->bytes != NULL || record_fault(s, "the object has no \"text\"");
}

struct jsonl_text jsonl_text(uint8_t *line, size_t n)
{
    struct jsonl_scan s = {.at = line, .end = line + n};
    struct jsonl_span text = {NULL, 0};
    if (!read_line(&s, &text))
        return (struct jsonl_text){.fault = s.fault, .fault_at = (size_t)(s.fault_at - line)};
    return (struct jsonl_text){.bytes = text.bytes, .n = text.n};
}

#ifdef FUZZ
#include <stdlib.h>

#include "base/assert.h"
#include "base/json.h"

/* Checks that this program's other JSON parser agrees: a line accepted there is accepted here, with
 * the same text. (The other one also refuses zeros, half surrogate pairs and repeated keys.) */
static void check_against_cjson(const uint8_t *line, size_t n, const struct jsonl_text *text)
{
    cJSON *root;
    if (json_parse((const char *)line, n, "fuzz", &root) != ST_OK)
        return;
    const char *want = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "text"));
    if (text->fault == NULL)
        ASSERT(want != NULL && strlen(want) == text->n && memcmp(want, text->bytes, text->n) == 0);
    cJSON_Delete(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *line = malloc(size + 1);
    memcpy(line, data, size);
    const struct jsonl_text text = jsonl_text(line, size);
    if (text.fault != NULL)
        ASSERT(text.fault_at <= size && text.bytes == NULL);
    else
        ASSERT(text.bytes >= line && text.bytes + text.n <= line + size);
    check_against_cjson(data, size, &text);
    free(line);
    return 0;
}
#endif

/* json — cJSON with our rules; see json.h. Must not know the meaning of the documents. */
#include "base/json.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define JSON_DEPTH_MAX 64
/* values; each has 80 to 144 bytes in memory: at most about 40 MB for a document */
#define JSON_VALUES_MAX (1 << 18)
/* 2^53: above it a double cannot hold every whole number */
#define JSON_WHOLE_MAX 9007199254740992.0

static enum status check_utf8(const char *bytes, size_t n, const char *what)
{
    const unsigned char *at = (const unsigned char *)bytes;
    for (size_t i = 0, length; i < n; i += length) {
        length = text_utf8_bytes(at + i, n - i);
        if (length == 0)
            return FAIL(ST_BAD_DATA, "%s: not UTF-8 at byte %zu of %zu; JSON text is UTF-8", what,
                        i, n);
        if (at[i] == 0)
            return FAIL(ST_BAD_DATA, "%s: a zero byte at %zu of %zu; not JSON text", what, i, n);
    }
    return ST_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static enum status check_children(const cJSON *object, size_t n, const char *what)
{
    const cJSON **children = malloc(n * sizeof(*children));
    if (children == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to check %s", n * sizeof(*children), what);
    size_t i = 0;
    const cJSON *child;
    cJSON_ArrayForEach(child, object) children[i++] = child;
    qsort(children, n, sizeof(*children), compare_keys);
    enum status st = ST_OK;
    for (i = 1; i < n && st == ST_OK; i++) {
        if (strcmp(children[i - 1]->string, children[i]->string) == 0)
            st = FAIL(ST_BAD_DATA, "%s: key \"%.64s\" appears twice in one JSON object; keep one",
                      what, children[i]->string);
    }
    free(children);
    return st;
}

/* Checks every object of the tree; the depth is bounded by check_depth. */
static enum status check_duplicates(const cJSON *node, const char *what)
{
    size_t n = 0;
    const cJSON *child;
    cJSON_ArrayForEach(child, node)
    {
        n++;
        if (cJSON_IsObject(child) || cJSON_IsArray(child))
            TRY(check_duplicates(child, what));
    }
    if (cJSON_IsObject(node) && n > 1)
        TRY(check_children(node, n, what));
    return ST_OK;
}

/* cJSON reports a lack of memory in the same way as damaged text. */
static _Thread_local bool is_starved;

static void *allocate_memory(size_t bytes)
{
    void *data = malloc(bytes);
    is_starved |= data == NULL;
    return data;
}

static void set_hooks(void)
{
    cJSON_Hooks hooks = {.malloc_fn = allocate_memory, .free_fn = free};
    cJSON_InitHooks(&hooks);
}

enum status json_parse(const char *bytes, size_t n, const char *what, cJSON **out)
{
    TRY(check_utf8(bytes, n, what));
    /* Checks the shape before cJSON parses, to bound its recursion. \u0000 would end strings early,
     * which makes two keys of one. */
    bool in_string = false;
    int depth = 0, values = 1;
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        if (in_string && c == '\\') {
            if (n - i >= 6 && memcmp(bytes + i, "\\u0000", 6) == 0)
                return FAIL(
                    ST_BAD_DATA,
                    "%s: \\u0000 in a JSON string at byte %zu; names and paths hold no zero", what,
                    i);
            i++;
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && (c == ',' || c == '[' || c == '{') && ++values > JSON_VALUES_MAX) {
            return FAIL(ST_BAD_DATA, "%s: more than %d JSON values; damaged, or not one of ours",
                        what, JSON_VALUES_MAX);
        } else if (!in_string && (c == '[' || c == '{') && ++depth > JSON_DEPTH_MAX) {
            return FAIL(ST_BAD_DATA,
                        "%s: JSON nested deeper than %d at byte %zu; damaged, or not one of ours",
                        what, JSON_DEPTH_MAX, i);
        } else if (!in_string && (c == ']' || c == '}')) {
            depth--;
        }
    }
    static pthread_once_t hooks = PTHREAD_ONCE_INIT;
    const char *end = NULL;
    pthread_once(&hooks, set_hooks);
    is_starved = false;
    cJSON *root = n > 0 ? cJSON_ParseWithLengthOpts(bytes, n, &end, 0) : NULL;
    if (root == NULL && is_starved)
        return FAIL(ST_RETRY, "out of memory: %zu bytes of JSON of %s", n, what);
    if (root == NULL) {
        size_t at = end != NULL && end >= bytes && end <= bytes + n ? (size_t)(end - bytes) : 0;
        return FAIL(ST_BAD_DATA,
                    "%s: not JSON: wrong at byte %zu of %zu; the file is damaged or cut", what, at,
                    n);
    }
    while (end < bytes + n && strchr(" \t\r\n", *end) != NULL)
        end++;
    enum status st = ST_OK;
    if (end < bytes + n)
        st = FAIL(ST_BAD_DATA, "%s: more bytes after the JSON document, from %zu of %zu", what,
                  (size_t)(end - bytes), n);
    else
        st = check_duplicates(root, what);
    if (st != ST_OK) {
        cJSON_Delete(root);
        return st;
    }
    *out = root;
    return ST_OK;
}

static enum status wrong_kind(const char *key, const cJSON *item, const char *want)
{
    return FAIL(ST_BAD_DATA, "JSON key \"%s\" is %s, expected %s", key,
                (item == NULL           ? "missing"
                 : cJSON_IsString(item) ? "a string"
                 : cJSON_IsNumber(item) ? "a number"
                 : cJSON_IsArray(item)  ? "an array"
                 : cJSON_IsObject(item) ? "an object"
                 : cJSON_IsNull(item)   ? "null"
                                        : "true or false"),
                want);
}

enum status json_get_i64(const cJSON *object, const char *key, int64_t min, int64_t max,
                         int64_t *out)
{
    return json_item_i64(cJSON_GetObjectItemCaseSensitive(object, key), key, min, max, out);
}

enum status json_item_i64(const cJSON *item, const char *key, int64_t min, int64_t max,
                          int64_t *out)
{
    if (!cJSON_IsNumber(item))
        return wrong_kind(key, item, "a whole number");
    double value = item->valuedouble;
    if (!(fabs(value) <= JSON_WHOLE_MAX) || value != floor(value))
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" is %s, expected a whole number up to 2^53", key,
                    text_f64(value).text);
    if ((int64_t)value < min || (int64_t)value > max)
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" is %s, expected %lld to %lld", key,
                    text_f64(value).text, (long long)min, (long long)max);
    *out = (int64_t)value;
    return ST_OK;
}

enum status json_get_f64(const cJSON *object, const char *key, double *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item))
        return wrong_kind(key, item, "a number");
    if (!isfinite(item->valuedouble))
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" is too large for a number", key);
    *out = item->valuedouble;
    return ST_OK;
}

enum status json_get_string(const cJSON *object, const char *key, const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(item))
        return wrong_kind(key, item, "a string");
    *out = item->valuestring;
    return ST_OK;
}

enum status json_get_hex(const cJSON *object, const char *key, uint64_t *out)
{
    const char *s = "";
    TRY(json_get_string(object, key, &s));
    if (strlen(s) != 16 || !text_parse_hex(s, 16, out))
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" is \"%.20s\", expected 16 hexadecimal digits",
                    key, s);
    return ST_OK;
}

enum status json_get_array(const cJSON *object, const char *key, const cJSON **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsArray(item))
        return wrong_kind(key, item, "an array");
    *out = item;
    return ST_OK;
}

enum status json_get_object(const cJSON *object, const char *key, const cJSON **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsObject(item))
        return wrong_kind(key, item, "an object");
    *out = item;
    return ST_OK;
}

const char *json_text(const cJSON *object, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return value != NULL ? value : "";
}

double json_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

void json_add_number(cJSON *object, const char *key, double value)
{
    if (isfinite(value))
        cJSON_AddRawToObject(object, key, text_f64(value).text);
    else
        cJSON_AddNullToObject(object, key);
}

void json_add_i64(cJSON *object, const char *key, int64_t value)
{
    char digits[24];
    text_format(digits, sizeof(digits), "%lld", (long long)value);
    cJSON_AddRawToObject(object, key, digits);
}

/* Writes the character at s, with `left` readable bytes, as it stands in a JSON string. Returns the
 * number of bytes that it covers. */
static size_t quote_one(const unsigned char *s, size_t left, char out[8])
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    size_t n = text_utf8_bytes(s, left);
    const char *escape = n == 1 ? strchr(from, s[0]) : NULL;
    if (n == 0) {
        text_copy(out, 8, "\xEF\xBF\xBD");
        return 1;
    }
    if (escape != NULL)
        text_format(out, 8, "\\%c", to[escape - from]);
    else if (n == 1 && (s[0] < 0x20 || s[0] == 0x7F))
        text_format(out, 8, "\\u%04x", s[0]);
    else
        text_format(out, 8, "%.*s", (int)n, (const char *)s);
    return n;
}

bool json_quote(char *out, size_t cap, const char *s)
{
    if (cap < 3) {
        if (cap > 0)
            out[0] = 0;
        return false;
    }
    const unsigned char *at = (const unsigned char *)s;
    size_t len = 0, left = strlen(s);
    out[len++] = '"';
    while (left > 0) {
        char quoted[8];
        size_t covered = quote_one(at, left, quoted), n = strlen(quoted);
        if (len + n + 2 > cap)
            break;
        memcpy(out + len, quoted, n);
        len += n;
        at += covered;
        left -= covered;
    }
    out[len++] = '"';
    out[len] = 0;
    return left == 0;
}

void json_quote_text(struct text *out, const char *s)
{
    const unsigned char *at = (const unsigned char *)s;
    text_add_bytes(out, "\"", 1);
    for (size_t left = strlen(s), covered; left > 0; left -= covered, at += covered) {
        char quoted[8];
        covered = quote_one(at, left, quoted);
        text_add_bytes(out, quoted, strlen(quoted));
    }
    text_add_bytes(out, "\"", 1);
}

#ifdef FUZZ
#include "base/assert.h"

/* Checks that a document that is accepted has no key twice and is accepted again when written out,
 * and that every prefix of the bytes makes a string of JSON. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    cJSON *root = NULL, *again = NULL;
    if (json_parse((const char *)bytes, n, "fuzz", &root) == ST_OK) {
        char *text = cJSON_PrintUnformatted(root);
        ASSERT(text == NULL || json_parse(text, strlen(text), "fuzz again", &again) == ST_OK);
        cJSON_free(text);
    }
    cJSON_Delete(root);
    cJSON_Delete(again);
    char raw[64] = "", quoted[6 * 64 + 3];
    memcpy(raw, bytes, n < sizeof(raw) - 1 ? n : sizeof(raw) - 1);
    ASSERT(json_quote(quoted, sizeof(quoted), raw));
    ASSERT(json_parse(quoted, strlen(quoted), "quoted", &root) == ST_OK && cJSON_IsString(root));
    cJSON_Delete(root);
    return 0;
}
#endif

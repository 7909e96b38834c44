/* json_walk — see json_walk.h. Source: RFC 8259. */
#include "base/json_walk.h"

#include <string.h>

#include "base/json.h"

static enum status fail_at(const struct json_walk *w, const char *expected)
{
    return FAIL(ST_BAD_DATA,
                "%s: not JSON: wrong at byte %zu of %zu, expected %s; the file is damaged or cut",
                w->what, (size_t)(w->at - w->begin), (size_t)(w->end - w->begin), expected);
}

static void skip_space(struct json_walk *w)
{
    while (w->at < w->end && (*w->at == ' ' || *w->at == '\t' || *w->at == '\r' || *w->at == '\n'))
        w->at++;
}

static bool skip_char(struct json_walk *w, char c)
{
    skip_space(w);
    if (w->at == w->end || *w->at != c)
        return false;
    w->at++;
    return true;
}

/* skip_string — skips a string with its closing quote; false: there is none. */
static bool skip_string(struct json_walk *w)
{
    for (w->at++; w->at < w->end; w->at++) {
        if (*w->at == '"') {
            w->at++;
            return true;
        }
        if (*w->at == '\\')
            w->at++;
    }
    w->at = w->end;
    return false;
}

/* skip_nested — skips to the end of the bracket that closes the one here. The parser checks the
 * kind of the bracket. */
static bool skip_nested(struct json_walk *w)
{
    int64_t depth = 0;
    while (w->at < w->end) {
        char c = *w->at;
        if (c == '"') {
            if (!skip_string(w))
                return false;
            continue;
        }
        w->at++;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (depth == 0)
            return true;
    }
    return false;
}

static bool skip_value(struct json_walk *w)
{
    const char *from = w->at;
    char c = w->at < w->end ? *w->at : 0;
    if (c == '"')
        return skip_string(w);
    if (c == '{' || c == '[')
        return skip_nested(w);
    while (w->at < w->end && !memchr(",]} \t\r\n", *w->at, 7))
        w->at++;
    return w->at > from;
}

enum status json_walk_begin(struct json_walk *walk, const char *bytes, size_t n, char open,
                            const char *what)
{
    *walk = (struct json_walk){
        .what = what, .begin = bytes, .at = bytes, .end = bytes + n, .open = open};
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        /* a byte-order mark: some editors write one, and the parser skips it, too */
        walk->at += 3;
    return skip_char(walk, open) ? ST_OK : fail_at(walk, open == '{' ? "an object" : "an array");
}

/* read_key — reads a key and the colon after it. */
static enum status read_key(struct json_walk *w, struct json_item *item)
{
    skip_space(w);
    item->key = w->at;
    if (w->at == w->end || *w->at != '"' || !skip_string(w))
        return fail_at(w, "a key");
    item->key_n = (size_t)(w->at - item->key);
    return skip_char(w, ':') ? ST_OK : fail_at(w, "':'");
}

enum status json_walk_next(struct json_walk *walk, struct json_item *item, bool *is_end)
{
    *item = (struct json_item){.key = NULL};
    *is_end = skip_char(walk, walk->open == '{' ? '}' : ']');
    if (*is_end) {
        skip_space(walk);
        return walk->at == walk->end ? ST_OK : fail_at(walk, "nothing more");
    }
    if (walk->n++ > 0 && !skip_char(walk, ','))
        return fail_at(walk, walk->open == '{' ? "',' or '}'" : "',' or ']'");
    if (walk->open == '{')
        TRY(read_key(walk, item));
    skip_space(walk);
    item->value = walk->at;
    if (!skip_value(walk))
        return fail_at(walk, "a value");
    item->value_n = (size_t)(walk->at - item->value);
    return ST_OK;
}

bool json_walk_is(const struct json_item *item, const char *key)
{
    size_t n = strlen(key);
    cJSON *name = NULL;
    if (item->key_n == n + 2 && memcmp(item->key + 1, key, n) == 0)
        return true;
    if (item->key_n < n + 2 || !memchr(item->key, '\\', item->key_n) || item->key_n > 6 * n + 2)
        return false;
    bool is_it = json_parse(item->key, item->key_n, "a key", &name) == ST_OK &&
                 strcmp(name->valuestring, key) == 0;
    cJSON_Delete(name);
    return is_it;
}

#ifdef FUZZ
#include "base/assert.h"

/* Returns true if there are control characters other than white space, which the parser accepts as
 * white space. */
static bool has_controls(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] < 0x20 && !memchr("\t\r\n", bytes[i], 3))
            return true;
    return false;
}

/* Checks that an object or an array that the parser accepts is walked to its end, item by item, and
 * that the parser accepts each item by itself. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct json_walk walk;
    struct json_item item;
    bool is_end = false;
    cJSON *root = NULL, *one = NULL;
    const char *text = (const char *)bytes;
    bool is_good = json_parse(text, n, "fuzz", &root) == ST_OK && !has_controls(bytes, n) &&
                   (cJSON_IsObject(root) || cJSON_IsArray(root));
    if (json_walk_begin(&walk, text, n, is_good && cJSON_IsArray(root) ? '[' : '{', "fuzz") !=
        ST_OK)
        ASSERT(!is_good);
    else
        while (!is_end && json_walk_next(&walk, &item, &is_end) == ST_OK) {
            ASSERT(is_end || (item.value >= text && item.value + item.value_n <= text + n));
            if (is_end || !is_good)
                continue;
            ASSERT(json_parse(item.value, item.value_n, "item", &one) == ST_OK);
            cJSON_Delete(one);
            one = NULL;
        }
    ASSERT(!is_good || (is_end && walk.n == cJSON_GetArraySize(root)));
    cJSON_Delete(root);
    return 0;
}
#endif

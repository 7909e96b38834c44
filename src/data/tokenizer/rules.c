/* tokenizer_rules — see tokenizer/rules.h. */
#include "data/tokenizer/rules.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */

enum { STEPS_MAX = 8 };

/* A Sequence, flat. */
struct steps {
    const cJSON *step[STEPS_MAX];
    int n;
    bool overflow;
};

static void flatten_steps(const cJSON *value, const char *list, struct steps *out)
{
    if (value == NULL || cJSON_IsNull(value))
        return;
    if (strcmp(json_text(value, "type"), "Sequence") != 0) {
        if (out->n < STEPS_MAX)
            out->step[out->n++] = value;
        else
            out->overflow = true;
        return;
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(value, list))
        flatten_steps(item, list, out);
}

static bool is_type(const cJSON *step, const char *type)
{
    return strcmp(json_text(step, "type"), type) == 0;
}

static bool get_flag(const cJSON *step, const char *key, bool otherwise)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(step, key);
    return cJSON_IsBool(value) ? cJSON_IsTrue(value) : otherwise;
}

/* Returns the pattern of a Split or Replace: {"String": …} or {"Regex": …}. */
static const char *pattern_of(const cJSON *step, const char *kind)
{
    return json_text(cJSON_GetObjectItemCaseSensitive(step, "pattern"), kind);
}

static enum status refuse_step(const char *name, const char *what, const cJSON *step)
{
    return FAIL(ST_BAD_DATA,
                "%s: %s \"%.60s\"%s%.300s is not supported (supported: NFC; the patterns of GPT-2, "
                "SmolLM, Llama 3, Qwen and cl100k; SentencePiece's spaces); use another tokenizer",
                name, what, json_text(step, "type"), pattern_of(step, "Regex")[0] ? " " : "",
                pattern_of(step, "Regex"));
}

/* ---- normalizer ---- */

static enum status read_normalizer(const cJSON *value, const char *name,
                                   struct tokenizer_rules *out)
{
    struct steps steps = {.n = 0};
    flatten_steps(value, "normalizers", &steps);
    for (int i = 0; i < steps.n; i++) {
        const cJSON *step = steps.step[i];
        if ((is_type(step, "Prepend") && strcmp(json_text(step, "prepend"), SPACE_MARK) == 0) &&
            !out->is_spm && !out->is_nfc)
            out->prefix = TOKENIZER_PREFIX_SEGMENT;
        else if ((is_type(step, "Replace") && strcmp(pattern_of(step, "String"), " ") == 0 &&
                  strcmp(json_text(step, "content"), SPACE_MARK) == 0) &&
                 !out->is_nfc)
            out->is_spm = true;
        else if (is_type(step, "NFC") && !out->is_spm && out->prefix == TOKENIZER_PREFIX_NONE)
            out->is_nfc = true;
        else
            return refuse_step(name, "the normalizer", step);
    }
    if (steps.overflow || (out->prefix != TOKENIZER_PREFIX_NONE && !out->is_spm))
        return refuse_step(name, "the normalizer", value);
    return ST_OK;
}

/* ---- pre_tokenizer ---- */

#define MARKS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const struct {
    const char *regex;
    enum pretoken_kind kind;
} patterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     PRETOKEN_KIND_GPT2},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     PRETOKEN_KIND_GPT2},
    {MARKS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST, PRETOKEN_KIND_LLAMA3},
    {MARKS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST, PRETOKEN_KIND_QWEN},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     PRETOKEN_KIND_LLAMA3},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "
     "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
     PRETOKEN_KIND_CL100K},
};

const char *tokenizer_rules_regex(enum pretoken_kind kind)
{
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (patterns[i].kind == kind)
            return patterns[i].regex;
    return "";
}

/* "Removed" with "invert" keeps the matches of the pattern, which are everything. */
static bool is_split(const cJSON *step, enum pretoken_kind *kind_out)
{
    const char *behavior = json_text(step, "behavior"), *regex = pattern_of(step, "Regex");
    const bool invert = get_flag(step, "invert", false);
    if (!is_type(step, "Split") || !((strcmp(behavior, "Isolated") == 0 && !invert) ||
                                     (strcmp(behavior, "Removed") == 0 && invert)))
        return false;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (strcmp(regex, patterns[i].regex) == 0) {
            *kind_out = patterns[i].kind;
            return true;
        }
    return false;
}

static enum status read_byte_level(const struct steps *steps, const char *name,
                                   struct tokenizer_rules *out)
{
    const cJSON *first = steps->step[0], *last = steps->step[steps->n - 1];
    const bool has_regex = get_flag(last, "use_regex", true),
               is_prefixed = get_flag(last, "add_prefix_space", true);
    out->is_byte_level = true;
    if (steps->n > 2 || (steps->n == 2 && is_prefixed))
        return refuse_step(name, "the pre_tokenizer", steps->n > 2 ? steps->step[1] : last);
    if (steps->n == 1 && is_prefixed)
        out->prefix = TOKENIZER_PREFIX_ALL;
    out->kind = PRETOKEN_KIND_GPT2;
    if (steps->n == 1 && has_regex)
        return ST_OK;
    if (steps->n == 2 && has_regex && is_type(first, "Digits") &&
        get_flag(first, "individual_digits", false)) {
        out->kind = PRETOKEN_KIND_SMOLLM;
        return ST_OK;
    }
    return steps->n == 2 && !has_regex && is_split(first, &out->kind)
               ? ST_OK
               : refuse_step(name, "the pre_tokenizer", first);
}

static enum status read_pre_tokenizer(const cJSON *value, const char *name,
                                      struct tokenizer_rules *out)
{
    struct steps steps = {.n = 0};
    flatten_steps(value, "pretokenizers", &steps);
    out->kind = PRETOKEN_KIND_WHOLE;
    if (steps.n == 0)
        return ST_OK;
    if (!steps.overflow && is_type(steps.step[steps.n - 1], "ByteLevel") && !out->is_spm)
        return read_byte_level(&steps, name, out);
    if (steps.n == 1 && is_type(steps.step[0], "Metaspace")) {
        const cJSON *step = steps.step[0];
        const char *scheme = json_text(step, "prepend_scheme");
        if (strcmp(json_text(step, "replacement"), SPACE_MARK) != 0 || out->is_spm || out->is_nfc)
            return refuse_step(name, "the pre_tokenizer", step);
        out->is_spm = true;
        out->kind = get_flag(step, "split", true) ? PRETOKEN_KIND_METASPACE : PRETOKEN_KIND_WHOLE;
        if (scheme[0] == 0)
            scheme = get_flag(step, "add_prefix_space", true) ? "always" : "never";
        if (strcmp(scheme, "first") == 0)
            out->prefix = TOKENIZER_PREFIX_SPACED;
        else if (strcmp(scheme, "always") == 0)
            out->prefix = TOKENIZER_PREFIX_ALL;
        return ST_OK;
    }
    return refuse_step(name, "the pre_tokenizer", steps.step[0]);
}

/* ---- post_processor ---- */

/* ---- all ---- */

static enum status parse_rules(struct tokenizer_rules_text value, const char *name, cJSON **out)
{
    *out = NULL;
    return value.text != NULL ? json_parse(value.text, value.n, name, out) : ST_OK;
}

enum status tokenizer_rules_read(struct tokenizer_rules_text normalizer,
                                 struct tokenizer_rules_text pre_tokenizer,
                                 struct tokenizer_rules_text post_processor, const char *name,
                                 struct tokenizer_rules *out)
{
    cJSON *a = NULL, *b = NULL, *c = NULL;
    *out = (struct tokenizer_rules){.prefix = TOKENIZER_PREFIX_NONE};
    enum status st = parse_rules(normalizer, name, &a);
    if (st == ST_OK)
        st = parse_rules(pre_tokenizer, name, &b);
    if (st == ST_OK)
        st = parse_rules(post_processor, name, &c);
    if (st == ST_OK)
        st = read_normalizer(a, name, out);
    if (st == ST_OK)
        st = read_pre_tokenizer(b, name, out);
    if (st == ST_OK) {
        struct steps steps = {.n = 0};
        flatten_steps(c, "processors", &steps);
        for (int i = 0; i < steps.n; i++) {
            const cJSON *single = cJSON_GetObjectItemCaseSensitive(steps.step[i], "single"),
                        *first = cJSON_GetArrayItem(single, 0),
                        *token = cJSON_GetObjectItemCaseSensitive(first, "SpecialToken");
            if (is_type(steps.step[i], "TemplateProcessing") && token != NULL)
                text_copy(out->begin, sizeof out->begin, json_text(token, "id"));
        }
    }
    cJSON_Delete(a);
    cJSON_Delete(b);
    cJSON_Delete(c);
    return st;
}

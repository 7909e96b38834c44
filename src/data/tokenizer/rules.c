/* tokenizer_rules — see tokenizer/rules.h. */
#include "data/tokenizer/rules.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "data/tokenizer/normal.h"
#include "data/tokenizer/split.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */

enum { STEPS_MAX = 12 };

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
                "%s: %s \"%.60s\"%s%.300s is not supported here (supported: the forms NFC to NFKD, "
                "Lowercase, Strip, StripAccents, Replace, Prepend; ByteLevel, Split, Digits, "
                "Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer; "
                "SentencePiece's spaces); use another tokenizer",
                name, what, json_text(step, "type"), pattern_of(step, "Regex")[0] ? " " : "",
                pattern_of(step, "Regex"));
}

static enum status refuse_many(const char *name, const char *what)
{
    return FAIL(ST_BAD_DATA, "%s: %s has more than %d steps; use another tokenizer", name, what,
                STEPS_MAX);
}

/* ---- normalizer ---- */

static bool is_space_mark(const cJSON *step)
{
    return is_type(step, "Replace") && strcmp(pattern_of(step, "String"), " ") == 0 &&
           strcmp(json_text(step, "content"), SPACE_MARK) == 0;
}

/* Opens the pattern of a Split or Replace. */
static enum status open_pattern(const cJSON *step, const char *name, const char *what,
                                struct pattern **out)
{
    const char *regex = pattern_of(step, "Regex"), *literal = pattern_of(step, "String");
    if (regex[0] != 0)
        return pattern_open(regex, strlen(regex), name, out);
    return literal[0] != 0 ? pattern_open_literal(literal, strlen(literal), name, out)
                           : refuse_step(name, what, step);
}

static enum status add_normal(const cJSON *step, const char *name, struct normal *normal)
{
    static const struct {
        const char *type;
        struct normal_step step;
    } plain[] = {{"NFC", {.kind = NORMAL_FORM, .form = NORMAL_FORM_NFC}},
                 {"NFD", {.kind = NORMAL_FORM, .form = NORMAL_FORM_NFD}},
                 {"NFKC", {.kind = NORMAL_FORM, .form = NORMAL_FORM_NFKC}},
                 {"NFKD", {.kind = NORMAL_FORM, .form = NORMAL_FORM_NFKD}},
                 {"Lowercase", {.kind = NORMAL_LOWERCASE}},
                 {"StripAccents", {.kind = NORMAL_ACCENTS}}};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (is_type(step, plain[i].type)) {
            normal_add(normal, &plain[i].step);
            return ST_OK;
        }
    struct normal_step made = {.kind = NORMAL_STRIP,
                               .left = get_flag(step, "strip_left", true),
                               .right = get_flag(step, "strip_right", true)};
    if (is_type(step, "Prepend")) {
        made = (struct normal_step){.kind = NORMAL_PREPEND, .content = json_text(step, "prepend")};
    } else if (is_type(step, "Replace")) {
        made = (struct normal_step){.kind = NORMAL_REPLACE, .content = json_text(step, "content")};
        TRY(open_pattern(step, name, "the normalizer", &made.pattern));
        if (pattern_is_empty(made.pattern)) {
            pattern_close(made.pattern);
            return FAIL(
                ST_BAD_DATA,
                "%s: the pattern of the normalizer Replace, %.300s, matches nothing between "
                "characters, which is not supported; use another tokenizer",
                name, pattern_of(step, "Regex"));
        }
    } else if (!is_type(step, "Strip")) {
        return refuse_step(name, "the normalizer", step);
    }
    normal_add(normal, &made);
    return ST_OK;
}

/* Reads steps whose last one may put U+2581 in the place of spaces, and whose first one may put one
 * before the text. */
static enum status read_normalizer(const cJSON *value, const char *name,
                                   struct tokenizer_rules *out)
{
    struct steps steps = {.n = 0};
    flatten_steps(value, "normalizers", &steps);
    if (steps.overflow)
        return refuse_many(name, "the normalizer");
    int first = 0, end = steps.n;
    if (end > 0 && is_space_mark(steps.step[end - 1])) {
        out->is_spm = true;
        end--;
    }
    if (out->is_spm && end > 0 && is_type(steps.step[0], "Prepend") &&
        strcmp(json_text(steps.step[0], "prepend"), SPACE_MARK) == 0) {
        out->prefix = TOKENIZER_PREFIX_SEGMENT;
        first++;
    }
    out->normal = normal_new();
    for (int i = first; i < end; i++)
        TRY(add_normal(steps.step[i], name, out->normal));
    if (normal_most(out->normal, 1 << 20) > (size_t)NORMAL_GROWTH_MAX << 20)
        return FAIL(ST_BAD_DATA,
                    "%s: its normalizer can make a text more than %d times as long; use another "
                    "tokenizer",
                    name, NORMAL_GROWTH_MAX);
    out->is_nfc = !out->is_spm && normal_is_nfc(out->normal);
    if (first == end || out->is_nfc) {
        normal_close(out->normal);
        out->normal = NULL;
    }
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
};

const char *tokenizer_rules_regex(enum pretoken_kind kind)
{
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (patterns[i].kind == kind)
            return patterns[i].regex;
    return "";
}

/* Returns true if a Split has a fast splitter. These splitters match every character, so
 * "Removed" with "invert" removes nothing. */
static bool is_fast(const cJSON *step, enum pretoken_kind *kind_out)
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

/* Returns true if the steps are one of the kinds with a fast splitter, and sets the rules. */
static bool read_kind(const struct steps *steps, struct tokenizer_rules *out)
{
    const cJSON *first = steps->step[0], *last = steps->step[steps->n - 1];
    const bool has_regex = get_flag(last, "use_regex", true),
               is_prefixed = get_flag(last, "add_prefix_space", true);
    if (!is_type(last, "ByteLevel") || steps->n > 2 || (steps->n == 2 && is_prefixed))
        return false;
    out->kind = has_regex ? PRETOKEN_KIND_GPT2 : PRETOKEN_KIND_WHOLE;
    if (steps->n == 2 && has_regex) {
        out->kind = PRETOKEN_KIND_SMOLLM;
        return is_type(first, "Digits") && get_flag(first, "individual_digits", false);
    }
    if (steps->n == 1)
        return has_regex;
    return is_fast(first, &out->kind);
}

/* Returns the behavior of a step, or -1. */
static int behavior_of(const cJSON *step, const char *otherwise)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = json_text(step, "behavior");
    if (name[0] == 0)
        name = otherwise;
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

/* Steps without parameters but a behavior, as patterns. Rust's \w differs from Oniguruma's. */
#define WORD                                                                 \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
static const struct {
    const char *type, *regex, *behavior;
    bool invert;
} named[] = {
    {"Digits", "\\p{N}", "Contiguous", false},
    {"Punctuation", "[\\p{P}$+<=>\\^`|~]", "Isolated", false},
    {"WhitespaceSplit", "\\s", "Removed", false},
    {"Whitespace", "[" WORD "]+|[^\\s" WORD "]+", "Removed", true},
    {"BertPreTokenizer", "\\s", "Removed", false},
};

static enum status add_pattern(const char *regex, int behavior, bool invert, const char *name,
                               struct split *split)
{
    struct pattern *pattern;
    TRY(pattern_open(regex, strlen(regex), name, &pattern));
    split_add_pattern(split, pattern, (enum split_behavior)behavior, invert);
    return ST_OK;
}

/* Appends a ByteLevel that is the last step or not. */
static enum status add_byte_level(const cJSON *step, bool is_first, bool is_last, const char *name,
                                  struct tokenizer_rules *out)
{
    const bool is_prefixed = get_flag(step, "add_prefix_space", true);
    if (out->is_byte_level || (is_prefixed && !is_first))
        return refuse_step(name, "the pre_tokenizer", step);
    out->is_byte_level = true;
    if (is_prefixed)
        out->prefix = TOKENIZER_PREFIX_ALL;
    if (get_flag(step, "use_regex", true))
        split_add_kind(out->split, PRETOKEN_KIND_GPT2);
    if (!is_last)
        split_add_bytes(out->split);
    return ST_OK;
}

static enum status add_split(const cJSON *step, const char *name, struct split *split)
{
    static const char what[] = "the pre_tokenizer";
    enum pretoken_kind kind;
    struct pattern *pattern;
    const int behavior = behavior_of(step, "");
    if (is_fast(step, &kind)) {
        split_add_kind(split, kind);
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        if (!is_type(step, named[i].type))
            continue;
        const bool is_each = is_type(step, "Digits") && get_flag(step, "individual_digits", false);
        const int how = is_each ? SPLIT_ISOLATED : behavior_of(step, named[i].behavior);
        if (how < 0)
            return refuse_step(name, what, step);
        TRY(add_pattern(named[i].regex, how, named[i].invert, name, split));
        return is_type(step, "BertPreTokenizer")
                   ? add_pattern(named[1].regex, SPLIT_ISOLATED, false, name, split)
                   : ST_OK;
    }
    if (is_type(step, "CharDelimiterSplit")) {
        const char *delimiter = json_text(step, "delimiter");
        if (delimiter[0] == 0)
            return refuse_step(name, what, step);
        TRY(pattern_open_literal(delimiter, strlen(delimiter), name, &pattern));
        split_add_pattern(split, pattern, SPLIT_REMOVED, false);
        return ST_OK;
    }
    if (!is_type(step, "Split") || behavior < 0)
        return refuse_step(name, what, step);
    TRY(open_pattern(step, name, what, &pattern));
    split_add_pattern(split, pattern, (enum split_behavior)behavior,
                      get_flag(step, "invert", false));
    return ST_OK;
}

static enum status read_splits(const struct steps *steps, const char *name,
                               struct tokenizer_rules *out)
{
    out->split = split_new();
    for (int i = 0; i < steps->n; i++) {
        if (is_type(steps->step[i], "ByteLevel"))
            TRY(add_byte_level(steps->step[i], i == 0, i + 1 == steps->n, name, out));
        else
            TRY(add_split(steps->step[i], name, out->split));
    }
    if (split_steps(out->split) == 0) {
        split_close(out->split);
        out->split = NULL;
    }
    return ST_OK;
}

static enum status read_metaspace(const cJSON *step, const char *name, struct tokenizer_rules *out)
{
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

static enum status read_pre_tokenizer(const cJSON *value, const char *name,
                                      struct tokenizer_rules *out)
{
    struct steps steps = {.n = 0};
    flatten_steps(value, "pretokenizers", &steps);
    out->kind = PRETOKEN_KIND_WHOLE;
    if (steps.overflow)
        return refuse_many(name, "the pre_tokenizer");
    if (steps.n == 0)
        return ST_OK;
    if (out->is_spm) /* a Split at spaces; the normalizer has replaced all of them */
        return steps.n == 1 && is_type(steps.step[0], "Split") &&
                       strcmp(pattern_of(steps.step[0], "String"), " ") == 0
                   ? ST_OK
                   : refuse_step(name, "the pre_tokenizer", steps.step[0]);
    if (steps.n == 1 && is_type(steps.step[0], "Metaspace"))
        return read_metaspace(steps.step[0], name, out);
    if (read_kind(&steps, out)) {
        out->is_byte_level = true;
        if (steps.n == 1 && get_flag(steps.step[0], "add_prefix_space", true))
            out->prefix = TOKENIZER_PREFIX_ALL;
        return ST_OK;
    }
    out->kind = PRETOKEN_KIND_WHOLE;
    return read_splits(&steps, name, out);
}

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

void tokenizer_rules_free(struct tokenizer_rules *rules)
{
    split_close(rules->split);
    normal_close(rules->normal);
    rules->split = NULL;
    rules->normal = NULL;
}

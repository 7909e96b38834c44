/* squad_score — see squad.h. */
#include "data/qa/squad.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/assert.h"

/* A text as code points. */
struct codes {
    int32_t *at;
    size_t n;
};

/* ---- letters ---- */

#define CAPITAL_SIGMA 0x3A3
#define SMALL_SIGMA 0x3C3
#define FINAL_SIGMA 0x3C2
#define CAPITAL_DOTTED_I 0x130
#define DOT_ABOVE 0x307

/* is_cased — Unicode's property Cased, except for letters that is_ignorable has: letters with a
 * case or with another case, Other_Lowercase and Other_Uppercase. */
static bool is_cased(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT || utf8proc_tolower(c) != c ||
           utf8proc_toupper(c) != c || c == 0xAA || c == 0xBA || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

/* is_ignorable — Unicode's property Case_Ignorable: marks, formats, modifiers, and signs inside of
 * words. */
static bool is_ignorable(int32_t c)
{
    static const int32_t inside[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                     0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                     0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (c == inside[i])
            return true;
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
           category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM ||
           category == UTF8PROC_CATEGORY_SK;
}

/* is_final — returns true if the sigma at i ends a word: a letter is before it and none after it,
 * signs within words aside. */
static bool is_final(const struct codes *text, size_t i)
{
    size_t before = i, behind = i + 1;
    while (before > 0 && is_ignorable(text->at[before - 1]))
        before--;
    if (before == 0 || !is_cased(text->at[before - 1]))
        return false;
    while (behind < text->n && is_ignorable(text->at[behind]))
        behind++;
    return behind == text->n || !is_cased(text->at[behind]);
}

static bool is_punctuation(int32_t c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* is_space — returns true for the bidirectional class of a separator, or category Zs. */
static bool is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* is_word — returns true for a letter or a number. */
static bool is_word(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return true;
    default:
        return false;
    }
}

/* ---- normalisation ---- */

static void drop_punctuation(struct codes *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++)
        if (!is_punctuation(text->at[i]))
            text->at[n++] = text->at[i];
    text->n = n;
}

static bool is_article(const int32_t *at, size_t n)
{
    return (n == 1 && at[0] == 'a') || (n == 2 && at[0] == 'a' && at[1] == 'n') ||
           (n == 3 && at[0] == 't' && at[1] == 'h' && at[2] == 'e');
}

static void drop_articles(struct codes *text)
{
    size_t end;
    for (size_t i = 0; i < text->n; i = end + (end == i)) {
        for (end = i; end < text->n && is_word(text->at[end]);)
            end++;
        if (is_article(text->at + i, end - i))
            for (size_t j = i; j < end; j++)
                text->at[j] = ' ';
    }
}

static void join_words(struct codes *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++) {
        bool is_begin = n == 0 || is_space(text->at[i - 1]);
        if (is_space(text->at[i]))
            continue;
        if (is_begin && n > 0)
            text->at[n++] = ' ';
        text->at[n++] = text->at[i];
    }
    text->n = n;
}

/* Normalises a text. The caller frees *out, also after a failure. A text never has more code points
 * than bytes. */
static enum status normalise_text(struct squad_score_text text, struct codes *out)
{
    struct codes plain = {.at = malloc((text.n + 1) * sizeof *plain.at)};
    out->n = 0;
    out->at = malloc((text.n + 1) * sizeof *out->at);
    if (!plain.at || !out->at) {
        free(plain.at);
        return FAIL(ST_RETRY, "out of memory: an answer of %zu bytes", text.n);
    }
    size_t used = 0;
    plain.n = 0;
    while (used < text.n) {
        utf8proc_int32_t c;
        size_t left = text.n - used;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.bytes + used,
                                              left < 4 ? (utf8proc_ssize_t)left : 4, &c);
        plain.at[plain.n++] = n > 0 ? c : 0xFFFD;
        used += n > 0 ? (size_t)n : 1;
    }
    /* Two letters need more than a table: sigma has another form at the end of a word, and one
     * letter becomes two. */
    out->n = 0;
    for (size_t i = 0; i < plain.n; i++) {
        int32_t c = plain.at[i];
        if (c == CAPITAL_SIGMA)
            out->at[out->n++] = is_final(&plain, i) ? FINAL_SIGMA : SMALL_SIGMA;
        else if (c == CAPITAL_DOTTED_I)
            out->at[out->n++] = 'i', out->at[out->n++] = DOT_ABOVE;
        else
            out->at[out->n++] = utf8proc_tolower(c);
    }
    free(plain.at);
    drop_punctuation(out);
    drop_articles(out);
    join_words(out);
    return ST_OK;
}

/* ---- words ---- */

struct words {
    struct codes *at; /* borrowed from the text */
    size_t n;
};

static int by_content(const void *a, const void *b)
{
    const struct codes *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    for (size_t i = 0; i < n; i++)
        if (x->at[i] != y->at[i])
            return x->at[i] < y->at[i] ? -1 : 1;
    return x->n < y->n ? -1 : x->n > y->n;
}

/* Splits a normalised text into its words, sorted; free(out->at). */
static enum status split_words(const struct codes *text, struct words *out)
{
    out->n = 0;
    out->at = malloc((text->n + 1) * sizeof *out->at);
    if (!out->at)
        return FAIL(ST_RETRY, "out of memory: the words of %zu letters", text->n);
    for (size_t i = 0; i < text->n; i++) {
        if (i == 0 || text->at[i - 1] == ' ')
            out->at[out->n++] = (struct codes){text->at + i, 0};
        if (text->at[i] != ' ')
            out->at[out->n - 1].n++;
    }
    qsort(out->at, out->n, sizeof *out->at, by_content);
    return ST_OK;
}

static double compute_f1(enum squad_score_rules rules, const struct words *answer,
                         const struct words *gold)
{
    if (rules == SQUAD_SCORE_RULES_V2 && (answer->n == 0 || gold->n == 0))
        return answer->n == gold->n;
    /* The number of common words of two sorted lists, as multisets. */
    size_t i = 0, j = 0, same = 0;
    while (i < answer->n && j < gold->n) {
        int order = by_content(&answer->at[i], &gold->at[j]);
        same += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    if (same == 0)
        return 0;
    double precision = (double)same / (double)answer->n, recall = (double)same / (double)gold->n;
    return 2 * precision * recall / (precision + recall);
}

/* ---- scores ---- */

static void keep_best(struct squad_score *best, double exact, double f1_value)
{
    best->exact = exact > best->exact ? exact : best->exact;
    best->f1 = f1_value > best->f1 ? f1_value : best->f1;
}

/* Scores one gold answer; *said_out: it is not empty. */
static enum status score_gold(enum squad_score_rules rules, const struct codes *answer,
                              const struct words *words, struct squad_score_text gold_text,
                              struct squad_score *best, bool *said_out)
{
    struct codes gold;
    struct words gold_words = {0};
    enum status st;
    TRY_OR(normalise_text(gold_text, &gold), out_free);
    *said_out = gold.n > 0;
    if (gold.n == 0 && rules == SQUAD_SCORE_RULES_V2)
        goto out_free;
    TRY_OR(split_words(&gold, &gold_words), out_free);
    keep_best(best, by_content(answer, &gold) == 0, compute_f1(rules, words, &gold_words));
out_free:
    free(gold_words.at);
    free(gold.at);
    return st;
}

enum status squad_score_answer(enum squad_score_rules rules, struct squad_score_text answer_text,
                               const struct squad_score_text *gold, size_t gold_n,
                               struct squad_score *out)
{
    struct codes answer;
    struct words words = {0};
    struct squad_score best = {0, 0};
    bool any_said = false;
    enum status st;
    TRY_OR(normalise_text(answer_text, &answer), out_free);
    TRY_OR(split_words(&answer, &words), out_free);
    for (size_t i = 0; i < gold_n; i++) {
        bool is_said;
        TRY_OR(score_gold(rules, &answer, &words, gold[i], &best, &is_said), out_free);
        any_said = any_said || is_said;
    }
    if (rules == SQUAD_SCORE_RULES_V2 && !any_said)
        keep_best(&best, answer.n == 0, answer.n == 0);
    *out = best;
out_free:
    free(words.at);
    free(answer.at);
    return st;
}

enum status squad_score_normalise(struct squad_score_text answer, struct text *out)
{
    struct codes codes;
    enum status st = normalise_text(answer, &codes);
    for (size_t i = 0; st == ST_OK && i < codes.n; i++) {
        utf8proc_uint8_t bytes[4];
        text_add_bytes(out, bytes, (size_t)utf8proc_encode_char(codes.at[i], bytes));
    }
    free(codes.at);
    return st;
}

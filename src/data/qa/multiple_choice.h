/* multiple_choice — questions with several endings, one of them right: HellaSwag and its kin.
 *
 * Two formats, distinguished by their content:
 *   - llm.c's evaluation file: 256 int32 {20240522, 1, questions, 0 …}, then uint16 words, for each
 *     question 65535, its bytes, its number, label, endings, context, endings (dev/data of llm.c)
 *   - JSON lines, one question a line: "ctx" (or "context", "question"), "endings" (or "choices"),
 *     "label" (or "answer"): a number from 0, the same as text, or a letter from A. The ending is
 *     tokenised with one space before it. Other members are ignored.
 * llm.c's files have ids of GPT-2's tokenizer: with another tokenizer they are refused. It must not
 * know models. */
#ifndef CONVOY_DATA_MULTIPLE_CHOICE_H
#define CONVOY_DATA_MULTIPLE_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"

#define MULTIPLE_CHOICE_MAGIC 20240522
#define MULTIPLE_CHOICE_ENDINGS_MAX 64

struct multiple_choice_question {
    const uint32_t *context; /* context_n ≥ 1 token ids */
    int64_t context_n;
    const uint32_t *ending[MULTIPLE_CHOICE_ENDINGS_MAX]; /* ending_n ≥ 1 ids each */
    int64_t ending_n[MULTIPLE_CHOICE_ENDINGS_MAX];
    int endings_n, label;
};

struct multiple_choice_config {
    const char *path;
    int64_t vocab;                     /* every id must be below it */
    const struct tokenizer *tokenizer; /* the model's; borrowed while it is read */
    const char *model;                 /* a model without its own tokenizer; NULL: it has one */
};

struct multiple_choice;

/* multiple_choice_is — returns true if a file begins like one of the two formats; false if it
 * cannot be read. */
bool multiple_choice_is(const char *path);
/* multiple_choice_open — reads all questions. ST_NO_INPUT: missing or not readable. ST_BAD_DATA:
 * damaged, with the question's or line's number; ids of another tokenizer; ids ≥ vocab; an empty
 * context, ending or file. ST_BAD_SETTING: JSON lines for config->model (tokenizer_gpt2_check). */
enum status multiple_choice_open(const struct multiple_choice_config *config,
                                 struct multiple_choice **out);
void multiple_choice_close(struct multiple_choice *m); /* accepts NULL */
/* multiple_choice_count — returns the number of questions. */
int64_t multiple_choice_count(const struct multiple_choice *m);
/* multiple_choice_tokens — returns the tokens of the longest context with one of its endings. */
int64_t multiple_choice_tokens(const struct multiple_choice *m);
/* multiple_choice_get — returns question i; ids are borrowed until multiple_choice_close. */
void multiple_choice_get(const struct multiple_choice *m, int64_t i,
                         struct multiple_choice_question *out);

/* multiple_choice_parse — does the same as multiple_choice_open for bytes, for tests and the
 * fuzzer; `name` for messages. */
enum status multiple_choice_parse(const uint8_t *bytes, size_t n,
                                  const struct multiple_choice_config *config,
                                  struct multiple_choice **out);

#endif

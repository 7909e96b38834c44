/* squad_score — exact match and F1 of an answer, as SQuAD's official evaluation scripts define
 * them.
 *
 * An answer is normalised: lower case, no ASCII punctuation, without the words a, an and the,
 * single spaces. Exact match compares the results; F1 is the harmonic mean of precision and
 * recall over their words as multisets. The best score over the gold answers counts. Letters,
 * words and spaces are Unicode's, as in Python's str.lower, \b and str.split. Pure functions of
 * bytes; it must not know models, tokens or files. Sources: Rajpurkar et al. 2016, section 6.1
 * (v1.1); Rajpurkar, Jia and Liang 2018 (v2.0). */
#ifndef CONVOY_DATA_SQUAD_SCORE_H
#define CONVOY_DATA_SQUAD_SCORE_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

/* The two versions differ in questions without an answer, which v2.0 has. There, no gold answer, or
 * only empty ones, means the empty answer; and if either side has no words, F1 is 1 when both have
 * none, else 0. In v1.1 no common words give 0. */
enum squad_score_rules { SQUAD_SCORE_RULES_V1, SQUAD_SCORE_RULES_V2 };

struct squad_score_text {
    const char *bytes; /* UTF-8; each invalid byte counts as U+FFFD */
    size_t n;
};

struct squad_score {
    double exact; /* 0 or 1 */
    double f1;    /* 0 … 1 */
};

/* squad_score_answer — against n gold answers; 0 with v1.1 and n = 0. Fails ST_RETRY: memory. */
enum status squad_score_answer(enum squad_score_rules rules, struct squad_score_text answer,
                               const struct squad_score_text *gold, size_t gold_n,
                               struct squad_score *out);

/* squad_score_normalise — for tests: appends the normalised answer to *out, as UTF-8. */
enum status squad_score_normalise(struct squad_score_text answer, struct text *out);

#endif

/* squad_score — exact match and F1 of an answer, as SQuAD's official evaluation scripts define
 * them.
 *
 * An answer is normalised: lower case, ASCII punctuation gone, the words a, an and the gone, white
 * space to single spaces. Exact match compares the rest; F1 is the harmonic mean of precision and
 * recall over its words as a multiset. The best over the gold answers counts. The letters, words
 * and spaces are Unicode's, as Python's str.lower, \b and str.split see them. Pure functions of
 * bytes; must not know models, tokens or files. Sources: Rajpurkar et al. 2016, section 6.1 (v1.1);
 * Rajpurkar, Jia and Liang 2018 (v2.0). */
#ifndef CONVOY_DATA_SQUAD_SCORE_H
#define CONVOY_DATA_SQUAD_SCORE_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

/* What differs: v2.0 has questions without an answer. There no gold answer, or none that says
 * anything, stands for the empty answer, and if either side has no words F1 is 1 when both have
 * none, else 0. In v1.1 no words in common is 0. */
enum squad_score_rules { SQUAD_SCORE_RULES_V1, SQUAD_SCORE_RULES_V2 };

struct squad_score_text {
    const char *bytes; /* UTF-8; what is not counts as U+FFFD a byte */
    size_t n;
};

struct squad_score {
    double exact; /* 0 or 1 */
    double f1;    /* 0 … 1 */
};

/* squad_score_answer — n gold answers; with v1.1 and none the score is 0. Memory refused is
 * ST_RETRY. */
enum status squad_score_answer(enum squad_score_rules rules, struct squad_score_text answer,
                               const struct squad_score_text *gold, size_t gold_n,
                               struct squad_score *out);
/* squad_score_normalise — what is compared, appended to *out as UTF-8. */
enum status squad_score_normalise(struct squad_score_text answer, struct text *out);

#endif

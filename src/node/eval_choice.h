/* eval_choice — how often a language model finds the right ending of multiple-choice questions.
 *
 * Each ending is a sample: the context, then the ending. Its loss is the sum over the ending's
 * tokens.
 *   acc       the right ending has the smallest sum
 *   acc_norm  the right ending has the smallest mean a token, as llm.c counts it
 * Of equal losses the first ending counts. Must not know where the model or the questions come
 * from. */
#ifndef CONVOY_NODE_EVAL_CHOICE_H
#define CONVOY_NODE_EVAL_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/multiple_choice.h"
#include "train/step.h"

struct eval_choice_config {
    struct step *step;
    const struct multiple_choice *questions;
    int64_t batch_samples, seq_tokens;                                 /* as the step's */
    bool (*go_on)(void *arg, int64_t endings_done, int64_t endings_n); /* false: stop, ST_RETRY */
    void *arg;
};

struct eval_choice_result {
    int64_t questions_n, correct_n, correct_norm_n;
    int64_t cut_n; /* endings for which the context lost its first tokens: longer than T */
};

/* ST_BAD_DATA: an ending is longer than seq_tokens. ST_NOT_FINITE: a loss is. */
enum status eval_choice_measure(const struct eval_choice_config *config,
                                struct eval_choice_result *out);

#endif

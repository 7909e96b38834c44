/* eval_qa — computes a model's answers to questions, and their scores.
 *
 * Every window of a question goes through the model. The answer is the best span over all windows.
 * There is no answer if the data have questions without an answer and the null score is higher
 * (squad.h). Scores follow SQuAD's rules of v2.0 if a question has no answer, else of v1.1. Must
 * not know where the model or the questions come from. */
#ifndef CONVOY_NODE_EVAL_QA_H
#define CONVOY_NODE_EVAL_QA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "data/qa/squad.h"
#include "data/qa/squad_window.h"
#include "train/step/step.h"

struct eval_qa_config {
    struct step *step;
    const struct squad *squad;
    const struct squad_window_set *windows; /* windows of all examples, in their order */
    int64_t batch_samples, seq_tokens;      /* sizes of the step */
    cJSON *answers; /* NULL, or an object that gets "id": "answer" for every question */
    bool (*go_on)(void *arg, int64_t windows_done, int64_t windows_n); /* false: stop, ST_RETRY */
    void *arg;
};

/* Sums over questions; the caller divides exact and f1 by n. */
struct eval_qa_sums {
    int64_t n;
    double exact, f1;
};

struct eval_qa_result {
    enum squad_score_rules rules;
    struct eval_qa_sums all, has_answer, no_answer;
};

/* eval_qa_measure — answers every question and scores the answers. ST_RETRY: go_on stopped it. */
enum status eval_qa_measure(const struct eval_qa_config *config, struct eval_qa_result *out);

#endif

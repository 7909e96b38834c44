/* ask — each rank asks its step for the logits behind the first tokens of a text. */
#ifndef CONVOY_TESTS_ASK_H
#define CONVOY_TESTS_ASK_H

#include "mesh/ranks.h"
#include "train/step/step.h"

#define ASK_TOKENS_MAX 64

struct ask {
    struct step_config config; /* dev and comm are the rank's */
    int64_t n;                 /* tokens, at most ASK_TOKENS_MAX */
    float logits[256];         /* at least as many as the vocabulary has tokens */
};

/* ask_rank — for ranks_run; its argument is a struct ask. */
static enum status ask_rank(struct ranks_one *one)
{
    struct ask *ask = one->arg;
    struct step *step = NULL;
    int32_t tokens[ASK_TOKENS_MAX];
    for (int i = 0; i < ASK_TOKENS_MAX; i++)
        tokens[i] = (i * 5 + 3) % 37;
    ask->config.dev = one->dev;
    ask->config.comm = one->comm;
    enum status st = step_open(&ask->config, &step);
    if (st == ST_OK)
        st = step_logits(step, tokens, ask->n, ask->logits);
    step_close(step);
    return st;
}

#endif

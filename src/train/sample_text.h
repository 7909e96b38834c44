/* sample_text — SAMPLE_EVERY: what the model in training would write now, as one line for the
 * console.
 *
 * Every sample_text continues the same prompt with the same random numbers, so that what changes is
 * the model; it is the text that `convoy generate` writes from a checkpoint of the same step (as
 * long as it fits into SEQ_LEN). Looking changes nothing: the pass uses memory that the next update
 * overwrites anyway. Must not know the board, nor when. */
#ifndef CONVOY_TRAIN_SAMPLE_TEXT_H
#define CONVOY_TRAIN_SAMPLE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "train/sampling.h"
#include "train/step.h"

#define SAMPLE_TEXT_TOKENS 60
#define SAMPLE_TEXT_QUOTED_BYTES 8192 /* room for a text as it is shown */
#define SAMPLE_TEXT_PROMPT_BYTES 60   /* as much of the prompt's end as is shown */

struct sample_text_config {
    const char *prompt; /* "": a new text */
    struct sampling_params rule;
    uint64_t seed;
    int64_t vocab, seq_tokens;
};

struct sample_text;
/* sample_text_open — ST_BAD_SETTING: the prompt, or <|endoftext|> when it is empty, needs tokens
 * that the model does not have. */
enum status sample_text_open(const struct sample_text_config *config, struct sample_text **out);
void sample_text_close(struct sample_text *sample_text); /* accepts NULL */
/* sample_text_generate — prompt and continuation as a JSON string, so one line without control
 * characters, until the next call. stop is asked between tokens; when it says true the text ends
 * there. */
enum status sample_text_generate(struct sample_text *sample_text, struct step *step,
                                 bool (*stop)(void *arg), void *arg, const char **out);

/* sample_text_quote — bytes as a JSON string; what is not UTF-8 and control characters of terminals
 * become U+FFFD. Pure; false: out of memory or cut. */
bool sample_text_quote(const uint8_t *bytes, size_t n, char *out, size_t cap);

#endif

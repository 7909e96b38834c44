/* sample_text — SAMPLE_EVERY: text that the model writes during training, as one line for the
 * console.
 *
 * Each sample continues the same prompt with the same random numbers, so only the model changes it.
 * It is the text that `convoy generate` writes from a checkpoint of the same step, as long as it
 * fits into SEQ_LEN. Sampling changes no state: the pass uses memory that the next step overwrites.
 * It must not know the board, or when it is called. */
#ifndef CONVOY_TRAIN_SAMPLE_TEXT_H
#define CONVOY_TRAIN_SAMPLE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/chat/chat.h"
#include "data/tokenizer/tokenizer.h"
#include "train/generate/sampling.h"
#include "train/step/step.h"

#define SAMPLE_TEXT_TOKENS 60
#define SAMPLE_TEXT_QUOTED_BYTES 8192 /* room for a sample as a JSON string */
#define SAMPLE_TEXT_PROMPT_BYTES 60   /* bytes shown of the end of the prompt */

struct sample_text_config {
    const char *prompt; /* "": start a new text */
    struct sampling_params rule;
    uint64_t seed;
    int64_t vocab, seq_tokens;
    const struct tokenizer *tokenizer; /* borrowed; NULL: GPT-2's */
    const struct chat *chat; /* the text is an answer to the prompt; borrowed; NULL: it goes on */
};

struct sample_text;
/* sample_text_open — encodes the prompt. ST_BAD_SETTING: the prompt (or the token that begins a
 * text, if the prompt is empty) has tokens that the model lacks, or a chat has no prompt. */
enum status sample_text_open(const struct sample_text_config *config, struct sample_text **out);
void sample_text_close(struct sample_text *sample_text); /* accepts NULL */
/* sample_text_generate — writes prompt and continuation as a JSON string: one line without control
 * characters, valid until the next call. Calls stop (may be NULL) between tokens; the text ends
 * there if it returns true. */
enum status sample_text_generate(struct sample_text *sample_text, struct step *step,
                                 bool (*stop)(void *arg), void *arg, const char **out);

/* sample_text_quote — public for tests: writes bytes as a JSON string; invalid UTF-8 and control
 * characters become U+FFFD. Returns false if it was cut. Pure. */
bool sample_text_quote(const uint8_t *bytes, size_t n, char *out, size_t cap);

#endif

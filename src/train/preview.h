/* preview — SAMPLE_EVERY: what the model in training would write now, as one line for the console.
 *
 * Every preview continues the same prompt with the same random numbers, so that what changes is the
 * model; it is the text that `convoy generate` writes from a checkpoint of the same step (as long
 * as it fits into SEQ_LEN). Looking changes nothing: the pass uses memory that the next update
 * overwrites anyway. Must not know the board, nor when. */
#ifndef CONVOY_TRAIN_PREVIEW_H
#define CONVOY_TRAIN_PREVIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "train/sample.h"
#include "train/step.h"

#define PREVIEW_TOKENS 60
#define PREVIEW_QUOTED_BYTES 8192 /* room for a text as it is shown */
#define PREVIEW_PROMPT_BYTES 60   /* as much of the prompt's end as is shown */

struct preview_config {
    const char *prompt; /* "": a new text */
    struct sample_rule rule;
    uint64_t seed;
    int64_t vocab, seq_tokens;
};

struct preview;
/* preview_open — ST_BAD_SETTING: the prompt, or <|endoftext|> when it is empty, needs tokens that
 * the model does not have. */
enum status preview_open(const struct preview_config *config, struct preview **out);
void preview_close(struct preview *preview); /* accepts NULL */
/* preview_text — prompt and continuation as a JSON string, so one line without control characters,
 * until the next call. stop is asked between tokens; when it says true the text ends there. */
enum status preview_text(struct preview *preview, struct step *step, bool (*stop)(void *arg),
                         void *arg, const char **out);

/* preview_quote — bytes as a JSON string; what is not UTF-8 and control characters of terminals
 * become U+FFFD. Pure; false: out of memory or cut. */
bool preview_quote(const uint8_t *bytes, size_t n, char *out, size_t cap);

#endif

/* decoder — a language model that continues one text: its parameters, its memory, and what it
 * remembers of the text.
 *
 * The keys and values of the tokens seen so far are kept, so the next token costs one pass over the
 * weights. Must not know how a token is chosen, nor words. */
#ifndef CONVOY_TRAIN_DECODER_H
#define CONVOY_TRAIN_DECODER_H

#include <stdint.h>

#include "base/status.h"
#include "dev/dev.h"
#include "model/model.h"
#include "train/load.h"

struct decoder;
/* decoder_open — takes all memory, for a view of the last `window` tokens, 1 ≤ window ≤ context.
 * The parameters are zeros until they are loaded (decoder_target, valid until decoder_close).
 * dtype: of the numbers that are computed with; it is the device's affair whether it can (f32
 * always). dims and dev stay the caller's. ST_RETRY: no memory. */
enum status decoder_open(struct dev *dev, const struct model_dims *dims, int64_t window,
                         enum dtype dtype, struct decoder **out);
/* decoder_plan — what decoder_open would take of the device's memory. */
struct decoder_memory {
    int64_t params, activations, workspace;
};
enum status decoder_plan(const struct model_dims *dims, int64_t window, enum dtype dtype,
                         struct decoder_memory *out);
struct load_target decoder_target(const struct decoder *decoder);
void decoder_close(struct decoder *decoder); /* accepts NULL */

/* decoder_logits — the logits (V, on the host, until the next call) of what follows n ≥ 1 tokens,
 * each in [0, V); the last `window` of them are seen. When what is seen is what an earlier call saw
 * and one token more, only that one is computed, which changes the logits by rounding alone. Else
 * all that is seen is computed; so for every token once the text is longer than the window:
 * positions count from the front of the view, each step moves every token to another, and none of
 * the keys and values holds any longer. */
enum status decoder_logits(struct decoder *decoder, const int32_t *tokens, int64_t n,
                           const float **out);
/* decoder_reset — the next call computes all it sees: due when other parameters were loaded. */
void decoder_reset(struct decoder *decoder);

#endif

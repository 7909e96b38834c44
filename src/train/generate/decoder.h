/* decoder — text generation with one language model on one device: parameters, memory and the cache
 * of keys and values.
 *
 * With the cache, the next token costs one pass over the weights. It must not know how a token is
 * chosen, or which text it stands for. */
#ifndef CONVOY_TRAIN_DECODER_H
#define CONVOY_TRAIN_DECODER_H

#include <stdint.h>

#include "base/status.h"
#include "dev/dev.h"
#include "model/model.h"
#include "train/weights/load.h"

struct decoder;
/* decoder_open — allocates all memory for a window of the last `window` tokens, 1 ≤ window ≤
 * context. Parameters are zeros until they are loaded through decoder_target (valid until
 * decoder_close). dtype: of the computation; f32 works on every device. Borrows dims and dev.
 * ST_RETRY: out of memory. */
enum status decoder_open(struct dev *dev, const struct model_dims *dims, int64_t window,
                         enum dtype dtype, struct decoder **out);
/* Bytes of device memory. */
struct decoder_memory {
    int64_t params, activations, workspace;
};
/* decoder_plan — computes the device memory that decoder_open would allocate. */
enum status decoder_plan(const struct model_dims *dims, int64_t window, enum dtype dtype,
                         struct decoder_memory *out);
/* decoder_target — returns the target through which parameters are loaded; valid until
 * decoder_close. */
struct load_target decoder_target(const struct decoder *decoder);
void decoder_close(struct decoder *decoder); /* accepts NULL */

/* decoder_logits — returns the logits (V, host memory, valid until the next call) of the token
 * after n ≥ 1 tokens, each in [0, V). Only the last `window` tokens are read.
 * - If they are the tokens of the call before plus one, only the new token is computed. The logits
 *   then differ only by rounding.
 * - Else all of them are computed. That is the case for each token once the text exceeds the
 *   window: positions count from its start, so every token moves and no cached key or value is
 *   valid. */
enum status decoder_logits(struct decoder *decoder, const int32_t *tokens, int64_t n,
                           const float **out);

/* decoder_reset — for tests: discards the cache; call it after loading other parameters. */
void decoder_reset(struct decoder *decoder);

#endif

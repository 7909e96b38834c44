/* model_part — the dimensions of a part of a model: what a rank of a tensor group, or a stage of a
 * pipeline, computes. Pure arithmetic. */
#ifndef CONVOY_MODEL_MODEL_PART_H
#define CONVOY_MODEL_MODEL_PART_H

#include "model/model.h"

/* model_part_dims — own heads, key heads (at least one: replicated where there are fewer than
 * ranks), width of the MLP and layers; embed, vocab and context stay the whole's. part: of it,
 * layers, heads, kv_heads and ffn are not read. ST_BAD_SETTING: the ranks do not divide heads, key
 * heads (nor these the ranks) or ffn; a chunk lies outside the layers. */
enum status model_part_dims(const struct model_dims *whole, const struct model_part *part,
                            struct model_dims *out);

/* Of dimensions that may be a part's:
 * model_layer       the number of own block `block` in the whole model.
 * model_vocab_part  own rows of the vocabulary: [*first, *first + *n). */
int64_t model_layer(const struct model_dims *dims, int64_t block);
void model_vocab_part(const struct model_dims *dims, int64_t *first, int64_t *n);

#endif

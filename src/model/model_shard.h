/* model_shard — the dimensions of a part of a model: what a rank of a tensor group, or a stage of a
 * pipeline, computes. Pure arithmetic; model_ops(out)->describe gives the parameters of a part, and
 * struct param_cut (param.h) where each lies in the whole model. */
#ifndef CONVOY_MODEL_MODEL_SHARD_H
#define CONVOY_MODEL_MODEL_SHARD_H

#include "kernels/attention.h" /* attention_runs */
#include "model/model.h"

/* model_shard_dims — own heads, key heads (at least one: replicated where there are fewer than
 * ranks), width of the MLP and layers; embed, vocab and context stay the whole's. part: of it,
 * layers, heads, kv_heads and ffn are not read, and vocab_multiple is the whole's. A part that is
 * everything gives the whole unchanged. ST_BAD_SETTING: the ranks do not divide heads, key heads
 * (nor these the ranks) or ffn, or are more than the vocabulary has tokens; chunks are empty,
 * overlap or lie outside the layers. */
enum status model_shard_dims(const struct model_dims *whole, const struct model_shard *part,
                             struct model_dims *out);

/* model_shard_tokens — how many of a sample's seq_tokens tokens each of so many parts has.
 * ST_BAD_SETTING: they are not 2·parts equal chunks.
 * model_shard_runs — which positions part `part` has: chunks `part` and 2·parts-1-part of the
 * 2·parts equal ones, so that causal attention is equal work for all. */
enum status model_shard_tokens(int64_t seq_tokens, int parts, int64_t *out);
struct attention_runs model_shard_runs(int part, int parts, int64_t seq_tokens);

#endif

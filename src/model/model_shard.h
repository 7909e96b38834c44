/* model_shard — the dimensions of a shard of a model: what a rank of a tensor group, or a stage of a
 * pipeline, computes. Pure arithmetic; model_ops(out)->describe gives the parameters of a shard, and
 * struct param_cut (param.h) where each lies in the whole model. */
#ifndef CONVOY_MODEL_MODEL_SHARD_H
#define CONVOY_MODEL_MODEL_SHARD_H

#include "kernels/attention.h" /* attention_runs */
#include "model/model.h"

/* model_shard_dims — own heads, key heads (at least one: replicated where there are fewer than
 * ranks), width of the MLP and layers; embed, vocab and context stay the whole's. shard: of it,
 * layers, heads, kv_heads and ffn are not read, and vocab_multiple is the whole's. A shard that is
 * everything gives the whole unchanged. ST_BAD_SETTING: the ranks do not divide heads, key heads
 * (nor these the ranks) or ffn, or are more than the vocabulary has tokens; chunks are empty,
 * overlap or lie outside the layers. */
enum status model_shard_dims(const struct model_dims *whole, const struct model_shard *shard,
                             struct model_dims *out);

/* model_shard_tokens — how many of a sample's seq_tokens tokens each of so many ranks has.
 * ST_BAD_SETTING: they are not 2·ranks equal chunks.
 * model_shard_runs — which positions a rank has: chunks `rank` and 2·ranks-1-rank of the 2·ranks
 * equal ones, so that causal attention is equal work for all. */
enum status model_shard_tokens(int64_t seq_tokens, int ranks, int64_t *out);
struct attention_runs model_shard_runs(int rank, int ranks, int64_t seq_tokens);

#endif

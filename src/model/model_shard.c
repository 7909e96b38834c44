/* model_shard — divides heads, the MLP's width and layers (model.h). */
#include "model/model.h"

#include "base/assert.h"

static enum status check_divides(const char *name, int64_t value, int64_t ranks)
{
    if (value % ranks == 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING, "TP=%lld does not divide %s=%lld; choose a TP that does",
                (long long)ranks, name, (long long)value);
}

/* cut_layers — sets the number of layers of the chunks. */
static enum status cut_layers(struct model_dims *d, const struct model_shard *shard)
{
    int64_t end = 0, n = 0;
    ASSERTF(shard->chunks_n >= 0 && shard->chunks_n <= MODEL_CHUNKS_MAX, "%d chunks",
            shard->chunks_n);
    for (int i = 0; i < shard->chunks_n; i++) {
        int64_t first = shard->chunk[i].first, own = shard->chunk[i].n;
        if (first < end || own < 1 || own > d->layers || first > d->layers - own)
            return FAIL(ST_BAD_SETTING,
                        "a stage has %lld layers from layer %lld on, but the model has "
                        "LAYERS=%lld; choose fewer stages (PP) or chunks (PP_CHUNKS)",
                        (long long)own, (long long)first, (long long)d->layers);
        end = first + own;
        n += own;
    }
    d->layers = shard->chunks_n > 0 ? n : d->layers;
    return ST_OK;
}

enum status model_shard_dims(const struct model_dims *whole, const struct model_shard *shard,
                             struct model_dims *out)
{
    struct model_dims d = *whole;
    int ranks_n = shard->tensor_ranks > 1 ? shard->tensor_ranks : 1;
    ASSERTF(whole->shard.layers == 0, "a shard of a shard");
    ASSERTF(shard->tensor_rank >= 0 && shard->tensor_rank < ranks_n, "tensor rank %d of %d",
            shard->tensor_rank, ranks_n);
    if (shard->tensor_ranks <= 1 && shard->context_ranks <= 1 && shard->chunks_n == 0 &&
        !shard->lacks_embed && !shard->lacks_head) {
        *out = d;
        return ST_OK;
    }
    model_resolve(&d);
    d.shard = *shard;
    d.shard.vocab_multiple = whole->shard.vocab_multiple;
    d.shard.layers = d.layers;
    d.shard.heads = ranks_n > 1 ? d.heads : 0;
    d.shard.kv_heads = d.kv_heads;
    d.shard.ffn = d.ffn;
    /* Computes heads and widths of one rank of `ranks`. */
    int64_t ranks = ranks_n;
    TRY(check_divides("HEADS", d.heads, ranks));
    TRY(check_divides("FFN", d.ffn, ranks));
    if (d.kv_heads % ranks != 0 && ranks % d.kv_heads != 0)
        return FAIL(ST_BAD_SETTING,
                    "TP=%lld and KV_HEADS=%lld: one must divide the other; choose another TP",
                    (long long)ranks, (long long)d.kv_heads);
    if (d.vocab < ranks)
        return FAIL(ST_BAD_SETTING, "TP=%lld is more than VOCAB=%lld; choose a smaller TP",
                    (long long)ranks, (long long)d.vocab);
    d.heads /= ranks;
    d.ffn /= ranks;
    d.kv_heads = d.kv_heads > ranks ? d.kv_heads / ranks : 1;
    TRY(cut_layers(&d, shard));
    *out = d;
    return ST_OK;
}

enum status model_shard_tokens(int64_t seq_tokens, int ranks, int64_t *out)
{
    if (ranks > 1 && seq_tokens % (2 * ranks) != 0)
        return FAIL(ST_BAD_SETTING,
                    "SEQ_LEN=%lld is not a multiple of 2 x CP=%d: each worker of a context group "
                    "has two equal runs of a sample; choose another SEQ_LEN or CP",
                    (long long)seq_tokens, ranks);
    *out = seq_tokens / ranks;
    return ST_OK;
}

/* If a single rank has an odd number of tokens, its first run is one longer than the second. */
struct attention_runs model_shard_runs(int at, int ranks, int64_t seq_tokens)
{
    int64_t own = seq_tokens / ranks, second = own / 2;
    ASSERTF(at >= 0 && at < ranks && own * ranks == seq_tokens && (ranks == 1 || own % 2 == 0),
            "rank %d of %d, %lld", at, ranks, (long long)seq_tokens);
    return (struct attention_runs){{at * second, seq_tokens - (at + 1) * second},
                                   {own - second, second}};
}

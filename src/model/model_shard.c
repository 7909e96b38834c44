/* model_shard — divides heads, the MLP's width and layers (model_shard.h). */
#include "model/model_shard.h"

#include "base/assert.h"

static enum status check_divides(const char *name, int64_t value, int64_t ranks)
{
    if (value % ranks == 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING, "TP=%lld does not divide %s=%lld; choose a TP that does",
                (long long)ranks, name, (long long)value);
}

/* cut_layers — how many layers the chunks have. */
static enum status cut_layers(struct model_dims *d, const struct model_shard *part)
{
    int64_t end = 0, n = 0;
    ASSERTF(part->chunks_n >= 0 && part->chunks_n <= MODEL_CHUNKS_MAX, "%d chunks", part->chunks_n);
    for (int i = 0; i < part->chunks_n; i++) {
        int64_t first = part->chunk[i].first, own = part->chunk[i].n;
        if (first < end || own < 1 || own > d->layers || first > d->layers - own)
            return FAIL(ST_BAD_SETTING,
                        "A stage with %lld layers from layer %lld on, in a model of LAYERS=%lld; "
                        "choose fewer stages (PP) or chunks (PP_CHUNKS)",
                        (long long)own, (long long)first, (long long)d->layers);
        end = first + own;
        n += own;
    }
    d->layers = part->chunks_n > 0 ? n : d->layers;
    return ST_OK;
}

enum status model_shard_dims(const struct model_dims *whole, const struct model_shard *part,
                             struct model_dims *out)
{
    struct model_dims d = *whole;
    int ranks_n = part->tensor_ranks > 1 ? part->tensor_ranks : 1;
    ASSERTF(whole->shard.layers == 0, "a part of a part");
    ASSERTF(part->tensor_rank >= 0 && part->tensor_rank < ranks_n, "tensor rank %d of %d",
            part->tensor_rank, ranks_n);
    if (part->tensor_ranks <= 1 && part->context_ranks <= 1 && part->chunks_n == 0 &&
        !part->lacks_embed && !part->lacks_head) {
        *out = d;
        return ST_OK;
    }
    model_resolve(&d);
    d.shard = *part;
    d.shard.vocab_multiple = whole->shard.vocab_multiple;
    d.shard.layers = d.layers;
    d.shard.heads = d.heads;
    d.shard.kv_heads = d.kv_heads;
    d.shard.ffn = d.ffn;
    /* Heads and widths of one rank of `ranks`. */
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
    TRY(cut_layers(&d, part));
    *out = d;
    return ST_OK;
}

enum status model_shard_tokens(int64_t seq_tokens, int parts, int64_t *out)
{
    if (parts > 1 && seq_tokens % (2 * parts) != 0)
        return FAIL(ST_BAD_SETTING,
                    "SEQ_LEN=%lld is not a multiple of 2 x CP=%d: each worker of a context group "
                    "has two equal runs of a sample; choose another SEQ_LEN or CP",
                    (long long)seq_tokens, parts);
    *out = seq_tokens / parts;
    return ST_OK;
}

struct attention_runs model_shard_runs(int part, int parts, int64_t seq_tokens)
{
    int64_t each = seq_tokens / (2 * parts);
    ASSERTF(part >= 0 && part < parts && each * 2 * parts == seq_tokens, "part %d of %d, %lld",
            part, parts, (long long)seq_tokens);
    return (struct attention_runs){{part * each, (2 * parts - 1 - part) * each}, {each, each}};
}

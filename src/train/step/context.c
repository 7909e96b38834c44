/* step_context — the positions of its samples that a rank trains on, if a context group shares them
 * (step/core.h). Every rank of the group reads whole samples, because the feed has no others, and
 * keeps the tokens and targets of its own two runs (model_shard_runs). */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "train/step/core.h"
#include "train/step/lr_schedule.h"

static bool is_shared(const struct step_core *s) { return step_mesh_context_ranks(s) > 1; }

int64_t step_context_batch_bytes(const struct step_core *s, int64_t samples)
{
    const int64_t positions =
        step_has_positions(&s->config) ? batch_documents_bytes(samples, s->own_tokens) : 0;
    return is_shared(s) ? batch_bytes(FEED_TASK_LM, samples, s->own_tokens) + positions : 0;
}

/* QA has no targets; a language model's batch has room for tokens as well. */
enum status step_context_batch_open(const struct step_core *s, int64_t samples, struct batch *own)
{
    TRY(is_shared(s) ? batch_init(own, FEED_TASK_LM, samples, s->own_tokens) : ST_OK);
    return is_shared(s) && step_has_positions(&s->config) ? batch_add_positions(own) : ST_OK;
}

/* copy_positions — copies the own positions of one sample's first n tokens or targets; 0 after
 * them. */
static void copy_positions(const struct step_core *s, int32_t *own, const int32_t *whole, int64_t n)
{
    const struct attention_runs runs = model_shard_runs(
        s->mesh.at.at[MESH_AXIS_CONTEXT], step_mesh_context_ranks(s), s->config.seq_tokens);
    for (int64_t row = 0; row < s->own_tokens; row++) {
        int64_t position = attention_position(&runs, row);
        own[row] = position < n ? whole[position] : 0;
    }
}

struct batch step_context_batch(const struct step_core *s, const struct batch *batch,
                                struct batch *own)
{
    const int64_t each = s->own_tokens, t = batch->seq_tokens;
    struct batch local = *batch;
    if (!is_shared(s))
        return local;
    ASSERTF(t == s->config.seq_tokens, "seq_tokens %lld", (long long)t);
    for (int64_t i = 0; i < batch->samples; i++) {
        copy_positions(s, own->host.tokens + i * each, batch->host.tokens + i * t, t);
        if (batch->task == FEED_TASK_LM)
            copy_positions(s, own->host.targets + i * each, batch->host.targets + i * t, t);
        if (batch->positions)
            copy_positions(s, own->positions + i * each, batch->positions + i * t, t);
    }
    local.positions = batch->positions ? own->positions : NULL;
    local.seq_tokens = each;
    local.host.tokens = own->host.tokens;
    local.host.targets = own->host.targets;
    return local;
}

void step_context_tokens(const struct step_core *s, const int32_t *tokens, int64_t n,
                         struct batch *own)
{
    copy_positions(s, own->host.tokens, tokens, n);
}

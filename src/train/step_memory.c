/* step_memory — the memory that a step has taken, in bytes and as a line of the log. */
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/step_inside.h"

int64_t step_memory_batch(const struct step *s)
{
    const struct step_config *c = &s->config;
    int64_t documents =
        step_has_first_key(c) ? batch_documents_bytes(s->samples, c->seq_tokens) : 0;
    return batch_bytes(step_task(s), s->samples, c->seq_tokens) + documents +
           step_context_bytes(s) + step_shard_check_bytes(s);
}

struct step_memory step_memory(const struct step *s)
{
    struct dev_info info;
    dev_info(s->config.dev, &info);
    struct step_memory m = {.scratch = info.scratch_bytes,
                            .store = store_memory(s->store),
                            .activations = (int64_t)s->arena[STEP_ARENA_ACTS].cap_bytes,
                            .gathered = step_async_memory(s),
                            .readback = s->readback_bytes + step_async_memory(s),
                            .outer = step_local_bytes(s),
                            .batch = step_memory_batch(s)};
    for (int i = 0; i < STEP_ARENA_N; i++)
        m.passes += s->arena[i].base ? (int64_t)s->arena[i].cap_bytes
                                     : 0; /* a step that only measures has no memory */
    return m;
}

int64_t step_memory_bytes(const struct step *s)
{
    return store_memory_bytes(s->store) + step_memory(s).passes;
}

/* text_held — "; the process holds …", and of a GPU what this process took of it: buffers and
 * kernel scratch, without CUDA's own. "" where that is not known. */
static void text_held(const struct step *s, char *out, size_t cap)
{
    struct memory now = {0};
    struct dev_info info;
    char host[32], device[32];
    int64_t held_bytes = memory_resident(&now, 1);
    out[0] = 0;
    if (held_bytes < 0) /* no /proc */
        return;
    dev_info(s->config.dev, &info);
    text_format(out, cap, "; the process holds %s%s%s",
                text_format_bytes(host, sizeof(host), (double)held_bytes),
                info.taken_bytes < 0 ? "" : ", and of its GPU ",
                info.taken_bytes < 0
                    ? ""
                    : text_format_bytes(device, sizeof(device), (double)info.taken_bytes));
}

void step_memory_log(const struct step *s)
{
    const struct comm_place *place = comm_place(s->config.comm);
    struct step_memory m = step_memory(s);
    char word[7][32], held[112];
    bool is_discrete = dev_is_discrete(s->config.dev);
    if (place->rank != 0 || (place->ranks == 1 && !is_discrete))
        return;
    text_held(s, held, sizeof(held));
    LOG_INFO("memory of a rank, planned and taken: parameters %s, gradients %s, moments %s, "
             "unsharded buffers %s, compression %s, passes %s, kernel scratch %s%s",
             text_format_bytes(word[0], 32, (double)m.store.params),
             text_format_bytes(word[1], 32, (double)m.store.grads),
             text_format_bytes(word[2], 32, (double)m.store.moments),
             text_format_bytes(word[3], 32, (double)m.store.unsharded),
             text_format_bytes(word[4], 32, (double)m.store.residuals),
             text_format_bytes(word[5], 32, (double)m.passes),
             text_format_bytes(word[6], 32, (double)m.scratch), held);
}

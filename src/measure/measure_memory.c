/* measure_memory — see measure_memory.h. */
#include "measure/measure_memory.h"

#include "measure/measure_pattern.h"

#define ALIGN 256
#define ZEROS_BYTES (MEASURE_MEMORY_ZEROS * sizeof(int32_t))
#define FILL_BYTES 32768

static int64_t round_up(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

enum status measure_memory_open(struct measure_memory *memory, struct dev *dev,
                                struct stream *stream, int64_t bytes)
{
    void *data = NULL;
    *memory = (struct measure_memory){.dev = dev, .stream = stream};
    TRY(dev_alloc(dev, (size_t)round_up(bytes) + ZEROS_BYTES, &data));
    memory->data = data;
    memory->bytes = round_up(bytes);
    memory->zeros = (int32_t *)(memory->data + memory->bytes);
    return ST_OK;
}

void measure_memory_close(struct measure_memory *memory)
{
    if (memory->data != NULL)
        dev_free(memory->dev, memory->data, (size_t)memory->bytes + ZEROS_BYTES);
    *memory = (struct measure_memory){0};
}

static enum status fill_memory(struct stream *s, char *data, int64_t bytes, const char *block)
{
    for (int64_t at = 0; at < bytes; at += FILL_BYTES)
        TRY(dev_copy(s, data + at, block,
                     bytes - at < FILL_BYTES ? (size_t)(bytes - at) : FILL_BYTES));
    return dev_sync(s);
}

enum status measure_memory_fill(const struct measure_memory *memory, enum dtype dtype)
{
    _Alignas(8) char block[FILL_BYTES];
    measure_pattern_random(block, dtype, FILL_BYTES / (int64_t)dtype_bytes(dtype), 0);
    TRY(fill_memory(memory->stream, memory->data, memory->bytes, block));
    return fill_memory(memory->stream, memory->shared, memory->shared_bytes, block);
}

struct tensor measure_memory_alloc(struct measure_args *t, int64_t elems, enum dtype dtype)
{
    const struct measure_memory *m = t->memory;
    struct tensor out = {m->data != NULL ? m->data + t->at : NULL, dtype};
    t->at += round_up(elems * (int64_t)dtype_bytes(dtype));
    return out;
}

struct tensor measure_memory_alloc_shared(struct measure_args *t, int64_t elems, enum dtype dtype)
{
    if (t->memory->shared == NULL)
        return measure_memory_alloc(t, elems, dtype);
    struct tensor out = {t->memory->shared + t->shared_at, dtype};
    t->shared_at += round_up(elems * (int64_t)dtype_bytes(dtype));
    return out;
}

bool measure_memory_turns(const struct measure_args *t, struct measure_turns *out)
{
    const struct measure_memory *m = t->memory;
    *out =
        (struct measure_turns){.memory = m,
                               .bytes = t->at,
                               .shared_bytes = t->shared_at,
                               .n = t->at > 0 ? m->bytes / t->at : 1,
                               .shared_n = t->shared_at > 0 ? m->shared_bytes / t->shared_at : 1};
    return out->n > 0 && out->shared_n > 0;
}

struct measure_args measure_memory_next(struct measure_turns *turns)
{
    const int64_t i = turns->at++;
    return (struct measure_args){turns->memory, i % turns->n * turns->bytes,
                                 i % turns->shared_n * turns->shared_bytes};
}

enum status measure_memory_copy(void *run)
{
    const struct measure_memory_run *r = run;
    return dev_copy(r->memory->stream, r->to.data, r->from.data, (size_t)r->elems * sizeof(float));
}

enum status measure_memory_triad(void *run)
{
    const struct measure_memory_run *r = run;
    const struct optim_span span = {.elems = r->elems};
    const struct sgd a = {
        .p = r->to, .g = r->from, .spans = &span, .spans_n = 1, .lr = 0.5, .step = 1};
    return dev_op(r->memory->dev)->sgd(r->memory->stream, &a);
}

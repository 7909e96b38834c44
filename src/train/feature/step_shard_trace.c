/* step_shard_trace — records the data that one rank sends to others in the passes of one virtual
 * shard (step_shard_check.h). */
#include "train/feature/step_shard_check.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "train/step/pipe.h"

/* The position of an entry in data flow: its run of layers, there and back, and its number in
 * it. */
#define NUMBER_BITS 32
#define LAST_ORDER UINT64_MAX

/* ---- a trace ---- */

void step_shard_trace_clear(struct step_shard_trace *t) { t->n = t->gives_n = 0; }

void step_shard_trace_free(struct step_shard_trace *t)
{
    free(t->entry);
    *t = (struct step_shard_trace){0};
}

static void add_entry(struct step_shard_trace *t, uint64_t order, uint64_t sum)
{
    if (t->n == t->room) {
        t->room = t->room > 0 ? 2 * t->room : 64;
        t->entry = memory_resize(t->entry, (size_t)t->room, sizeof *t->entry);
    }
    t->entry[t->n++] = (struct sentinel_entry){order, sum};
}

static int by_order(const void *a, const void *b)
{
    const struct sentinel_entry *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

uint64_t step_shard_trace_sum(struct step_shard_trace *t)
{
    uint64_t sum = 0;
    if (t->n > 0)
        qsort(t->entry, (size_t)t->n, sizeof *t->entry, by_order);
    /* Numbers count from 0 in each run of layers: several micro-batches of a rank's own shards may
     * be in flight, so entries of other runs came between. */
    const uint64_t mask = (UINT64_C(1) << NUMBER_BITS) - 1;
    uint64_t run = LAST_ORDER, number = 0;
    for (int i = 0; i < t->n && t->entry[i].order != LAST_ORDER; i++) {
        number = (t->entry[i].order & ~mask) == run ? number + 1 : 0;
        run = t->entry[i].order & ~mask;
        t->entry[i].order = run | number;
    }
    for (int i = 0; i < t->n; i++)
        sum = XXH3_64bits_withSeed(&t->entry[i].sum, sizeof t->entry[i].sum, sum);
    return sum;
}

/* ---- recording ---- */

static uint64_t next_order(const struct step_shard_check *k)
{
    return k->to_order | (uint64_t)k->to->n;
}

/* add_hash — Adds the checksum of data in the device's memory to *sum. Memory that the host cannot
 * read is copied to it in chunks. */
static enum status add_hash(struct step_shard_check *k, const void *data, size_t bytes,
                            uint64_t *sum)
{
    struct stream *stream = k->s->stream;
    if (!k->host)
        *sum = XXH3_64bits_withSeed(data, bytes, *sum);
    for (size_t at = 0, n; k->host && at < bytes; at += n) {
        n = bytes - at < STEP_SHARD_HOST_BYTES ? bytes - at : STEP_SHARD_HOST_BYTES;
        TRY(dev_copy(stream, k->host, (const char *)data + at, n));
        TRY(dev_sync(stream));
        *sum = XXH3_64bits_withSeed(k->host, n, *sum);
    }
    return ST_OK;
}

/* flip_bit — Inverts a bit of a word in the device's memory. */
static enum status flip_bit(const struct step_core *s, uint32_t *at, int bit)
{
    uint32_t word;
    TRY(dev_copy(s->stream, &word, at, sizeof word));
    TRY(dev_sync(s->stream));
    word ^= UINT32_C(1) << bit;
    TRY(dev_copy(s->stream, at, &word, sizeof word));
    return dev_sync(s->stream);
}

enum status step_shard_trace_give(void *self, struct tensor x, int64_t elems)
{
    struct step_shard_check *k = self;
    const size_t bytes = (size_t)elems * dtype_bytes(x.dtype);
    if (!k->to)
        return ST_OK;
    TRY(dev_sync(k->s->stream));
    /* FAULT: step_shard_flip selects this result. */
    struct step_shard_flip *f = &k->flip;
    if (f->passes & k->to_pass && f->give == k->to->gives_n + 1) {
        f->passes &= ~(unsigned)k->to_pass;
        TRY(flip_bit(k->s, (uint32_t *)x.data + f->elem % (int64_t)(bytes / sizeof(uint32_t)),
                     f->bit));
    }
    uint64_t sum = 0;
    TRY(add_hash(k, x.data, bytes, &sum));
    k->to->gives_n++;
    add_entry(k->to, next_order(k), sum);
    return ST_OK;
}

/* Padding between tensors does not belong to a unit. */
enum status step_shard_trace_unit(struct step_shard_check *k, const struct pass *p, int unit)
{
    const struct step_core *s = k->s;
    uint64_t sum = 0;
    TRY(dev_sync(s->stream));
    for (int row = 0; row < s->table.params_n; row++) {
        const struct param *param = &s->table.param[row];
        const struct tensor grad = step_pipe_ends_grad(s, p, row);
        if (param->unit == unit && grad.data)
            TRY(add_hash(k, grad.data, (size_t)param->elems * sizeof(float), &sum));
    }
    add_entry(k->to, next_order(k), sum);
    return ST_OK;
}

void step_shard_trace_losses(const struct step_core *s, struct step_shard_trace *t, int64_t first)
{
    const int64_t losses = step_sample_losses(s),
                  n = s->config.global_samples / s->config.shards * losses;
    if (!s->dims.shard.lacks_head)
        add_entry(t, LAST_ORDER,
                  XXH3_64bits(step_losses(s->step) + first * losses, (size_t)n * sizeof(float)));
}

/* elems_made — Returns the elements of a tensor's gradient, if the tensor belongs to a unit; else
 * 0. */
static int64_t elems_made(const struct step_core *s, int row, int unit)
{
    const struct param *param = &s->table.param[row];
    return param->unit == unit && !step_pipe_ends_lacks(s, row) ? param->elems : 0;
}

enum status step_shard_trace_flip(struct step_shard_check *k, const struct pass *p)
{
    const struct step_core *s = k->s;
    struct step_shard_flip *f = &k->flip;
    int64_t at = f->elem;
    int row = 0;
    while (elems_made(s, row, f->unit) <= at) {
        at -= elems_made(s, row, f->unit);
        row++;
        ASSERTF(row < s->table.params_n, "element %lld of unit %d", (long long)f->elem, f->unit);
    }
    return flip_bit(s, tensor_at(step_pipe_ends_grad(s, p, row), at).data, f->bit);
}

/* ---- axes ---- */

static enum status trace_gather(void *arg, struct stream *stream, struct tensor own,
                                struct tensor *all, int64_t elems)
{
    const struct step_shard_axis *a = arg;
    TRY(step_shard_trace_give(a->check, own, elems / a->model.ranks));
    return a->calls->gather(a->calls->arg, stream, own, all, elems);
}

static enum status trace_scatter_sum(void *arg, struct stream *stream, struct tensor own,
                                     struct tensor in, int64_t elems)
{
    const struct step_shard_axis *a = arg;
    TRY(step_shard_trace_give(a->check, in, elems));
    return a->calls->scatter_sum(a->calls->arg, stream, own, in, elems);
}

static enum status trace_sum(void *arg, struct stream *stream, struct tensor x, int64_t elems,
                             int copies)
{
    const struct step_shard_axis *a = arg;
    TRY(step_shard_trace_give(a->check, x, elems));
    return a->calls->sum(a->calls->arg, stream, x, elems, copies);
}

/* Returns the axis that replaces `calls`. An axis of one rank sends nothing and records nothing. */
static const struct model_axis *wrap_axis(struct step_shard_check *k, struct step_shard_axis *a,
                                          const struct model_axis *calls)
{
    if (calls->ranks == 1)
        return calls;
    *a = (struct step_shard_axis){.model = {.at = calls->at,
                                            .ranks = calls->ranks,
                                            .arg = a,
                                            .gather = trace_gather,
                                            .scatter_sum = trace_scatter_sum,
                                            .sum = trace_sum},
                                  .calls = calls,
                                  .check = k};
    return &a->model;
}

void step_shard_trace_pass(void *self, const struct step_micro *m, int at, struct pass *p)
{
    struct step_shard_check *k = self;
    k->to = NULL;
    if (!step_shard_check_is_due(k) || !step_shard_check_has(k, m))
        return;
    k->to_pass = m->is_check ? k->pass : STEP_SHARD_PASS_OWN;
    k->to = step_shard_check_trace(k, k->to_pass);
    k->to_order = (uint64_t)at << NUMBER_BITS;
    p->tensor = wrap_axis(k, &k->tensor, p->tensor);
    p->context = wrap_axis(k, &k->context, p->context);
}

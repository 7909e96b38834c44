/* optim — see optim.h. */
#include "train/optim.h"

#include <stdlib.h>

#include "base/assert.h"

static float decay_of(const struct param *row, double weight_decay)
{
    return row->dims_n >= 2 ? (float)weight_decay : 0;
}

/* walk — counts, if out is NULL. A range ends where the next row starts, so it contains the
 * padding, which is zero and has zero gradient. */
static int64_t walk(const struct param_table *t, double weight_decay, struct optim_span *out)
{
    int64_t n = 0;
    for (int i = 0; i < t->params_n; i++) {
        int64_t end = i + 1 < t->params_n ? t->param[i + 1].offset : t->total_elems;
        float decay = decay_of(&t->param[i], weight_decay);
        bool is_new = i == 0 || decay != decay_of(&t->param[i - 1], weight_decay);
        n += is_new;
        if (!out)
            continue;
        if (is_new)
            out[n - 1] = (struct optim_span){.offset = t->param[i].offset, .weight_decay = decay};
        out[n - 1].elems = end - out[n - 1].offset;
    }
    return n;
}

enum status optim_spans(const struct param_table *t, double weight_decay, struct optim_span **out,
                        int64_t *n_out)
{
    int64_t n = walk(t, weight_decay, NULL);
    ASSERT(n > 0);
    struct optim_span *span = calloc((size_t)n, sizeof *span);
    if (!span)
        return FAIL(ST_RETRY,
                    "out of memory: %lld runs of parameters; use a machine with more memory",
                    (long long)n);
    walk(t, weight_decay, span);
    *out = span;
    *n_out = n;
    return ST_OK;
}

int64_t optim_cut(const struct optim_span *spans, int64_t spans_n, int64_t first, int64_t elems,
                  struct optim_span *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < spans_n; i++) {
        int64_t begin = spans[i].offset > first ? spans[i].offset : first,
                end = spans[i].offset + spans[i].elems;
        if (end > first + elems)
            end = first + elems;
        if (begin < end)
            out[n++] = (struct optim_span){begin - first, end - begin, spans[i].weight_decay};
    }
    return n;
}

double optim_decay(const struct optim_config *config)
{
    return config->kind == OPTIM_KIND_ADAMW ? config->weight_decay : 0;
}

int optim_moments(const struct optim_config *config)
{
    return config->kind == OPTIM_KIND_ADAMW ? 2 : config->momentum != 0 ? 1 : 0;
}

enum status optim_update(const struct optim_config *config, const struct op_table *op,
                         struct stream *stream, const struct optim_arrays *arrays,
                         const struct optim_span *spans, int64_t spans_n, struct tensor grad_scale,
                         double lr, int64_t step_i)
{
    if (config->kind == OPTIM_KIND_SGD)
        return op->sgd(stream, &(struct sgd){.p = arrays->p,
                                             .g = arrays->g,
                                             .m = arrays->m,
                                             .spans = spans,
                                             .spans_n = spans_n,
                                             .grad_scale = grad_scale,
                                             .lr = lr,
                                             .momentum = config->momentum,
                                             .step = step_i + 1});
    return op->adamw(stream, &(struct adamw){.p = arrays->p,
                                             .g = arrays->g,
                                             .m = arrays->m,
                                             .v = arrays->v,
                                             .copy = arrays->copy,
                                             .spans = spans,
                                             .spans_n = spans_n,
                                             .grad_scale = grad_scale,
                                             .lr = lr,
                                             .beta1 = config->beta1,
                                             .beta2 = config->beta2,
                                             .eps = config->eps,
                                             .step = step_i + 1});
}

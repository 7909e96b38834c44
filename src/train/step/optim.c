/* optim — see optim.h. */
#include "train/step/optim.h"

#include <stdlib.h>

#include "base/memory.h"

/* collect_spans — Writes the spans to out, or only counts them if out is NULL. A range ends where
 * the next row starts, so it contains the padding, which is zero and has zero gradient. */
static int64_t collect_spans(const struct param_table *t, const struct optim_config *config,
                             struct optim_span *out)
{
    const double weight_decay = optim_decay(config);
    int64_t n = 0, end = -1;
    float last = 0;
    for (int i = 0; i < t->params_n; i++) {
        float decay = t->param[i].dims_n >= 2 ? (float)weight_decay : 0;
        if (config->kind == OPTIM_KIND_MUON && t->param[i].is_hidden)
            continue;
        bool is_new = t->param[i].offset != end || decay != last;
        n += is_new;
        end = param_end(t, i);
        last = decay;
        if (out && is_new)
            out[n - 1] = (struct optim_span){.offset = t->param[i].offset, .weight_decay = decay};
        if (out)
            out[n - 1].elems = end - out[n - 1].offset;
    }
    return n;
}

struct optim_span *optim_spans(const struct param_table *t, const struct optim_config *config,
                               int64_t *n_out)
{
    *n_out = collect_spans(t, config, NULL);
    struct optim_span *span = memory_new((size_t)*n_out, sizeof *span);
    collect_spans(t, config, span);
    return span;
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
    return config->kind != OPTIM_KIND_SGD ? config->weight_decay : 0;
}

int optim_moments(const struct optim_config *config)
{
    return config->kind != OPTIM_KIND_SGD ? 2 : config->momentum != 0 ? 1 : 0;
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
                                             .step = step_i + 1,
                                             .sums = arrays->sums});
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
                                             .step = step_i + 1,
                                             .sums = arrays->sums});
}

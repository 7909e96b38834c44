/* optim — which optimiser, with which numbers, and which runs of parameters decay. Pure, but for
 * optim_update. */
#ifndef CONVOY_TRAIN_OPTIM_H
#define CONVOY_TRAIN_OPTIM_H

#include <stdint.h>

#include "dev/op.h"
#include "model/param.h"

enum optim_kind { OPTIM_KIND_ADAMW, OPTIM_KIND_SGD };

struct optim_config {
    enum optim_kind kind;
    double beta1, beta2, eps, momentum, weight_decay;
    double grad_clip; /* 0: off */
};

/* Arrays of table->total_elems elements; m and v as optim_moments says, else none. */
struct optim_arrays {
    struct tensor p, g, m, v;
};

/* optim_spans — neighbours with equal decay merged, padding included; tensors of two or more
 * dimensions decay. Caller frees with free(). Memory refused is ST_RETRY. */
enum status optim_spans(const struct param_table *t, double weight_decay, struct optim_span **out,
                        int64_t *n_out);
/* optim_cut — what spans have of elements [first, first + elems), counted from there; out has room
 * for spans_n. Returns how many. */
int64_t optim_cut(const struct optim_span *spans, int64_t spans_n, int64_t first, int64_t elems,
                  struct optim_span *out);
/* optim_decay — the weight decay that acts: AdamW's. SGD runs without, whatever weight_decay says,
 * as the reference runs do (tests/golden/qa was made with WEIGHT_DECAY=0.1 and is matched only
 * so). */
double optim_decay(const struct optim_config *config);
int optim_moments(
    /* state arrays per parameter: AdamW 2; SGD 1, or 0 without momentum */
    const struct optim_config *config);
/* optim_update — update number step_i (from 0), with gradients times grad_scale
 * (kernels/grad_scale.h). */
enum status optim_update(const struct optim_config *config, const struct op_table *op,
                         struct stream *stream, const struct optim_arrays *arrays,
                         const struct optim_span *spans, int64_t spans_n, struct tensor grad_scale,
                         double lr, int64_t step_i);

#endif

/* optim — the optimiser: its kind and constants, which ranges of parameters have weight decay, and
 * the update. Pure, except optim_update. */
#ifndef CONVOY_TRAIN_OPTIM_H
#define CONVOY_TRAIN_OPTIM_H

#include <stdint.h>

#include "dev/op.h"
#include "model/param.h"

/* MUON: hidden matrices by muon.h, all other tensors by AdamW. */
enum optim_kind { OPTIM_KIND_ADAMW, OPTIM_KIND_SGD, OPTIM_KIND_MUON };

struct optim_config {
    enum optim_kind kind;
    double beta1, beta2, eps, momentum, weight_decay;
    double grad_clip; /* largest global norm (step/end.c clips); 0: no clipping */
};

/* Arrays of table->total_elems elements. m and v exist as optim_moments counts them. copy: p in 16
 * bits, which only AdamW writes; data NULL: not wanted. */
struct optim_arrays {
    struct tensor p, g, m, v, copy;
    struct optim_sums *sums; /* added to (kernels/adamw.h); NULL: not wanted */
};

/* optim_spans — returns the ranges of the table with equal weight decay, neighbours merged, padding
 * included. Tensors with two or more dimensions have weight decay. MUON: without hidden matrices.
 * The caller frees them with free(). */
struct optim_span *optim_spans(const struct param_table *t, const struct optim_config *config,
                               int64_t *n_out);
/* optim_cut — writes the spans within elements [first, first + elems), with offsets from `first`.
 * out has room for spans_n. Returns their number. */
int64_t optim_cut(const struct optim_span *spans, int64_t spans_n, int64_t first, int64_t elems,
                  struct optim_span *out);
/* optim_decay — public for tests: returns the weight decay in effect for AdamW and Muon. SGD has
 * none, whatever weight_decay is, as in the reference runs (tests/golden/qa was made with
 * WEIGHT_DECAY=0.1 and matches only then). */
double optim_decay(const struct optim_config *config);

/* optim_moments — returns the number of state arrays for each parameter: AdamW 2; SGD 1, or 0
 * without momentum; Muon 2, but hidden matrices have only the first. */
int optim_moments(const struct optim_config *config);
/* optim_update — makes update number step_i (from 0) by AdamW or SGD, with gradients times
 * grad_scale (kernels/grad_scale.h). MUON counts as ADAMW: its spans have no hidden matrices. A
 * span's offset is the same in all arrays. */
enum status optim_update(const struct optim_config *config, const struct op_table *op,
                         struct stream *stream, const struct optim_arrays *arrays,
                         const struct optim_span *spans, int64_t spans_n, struct tensor grad_scale,
                         double lr, int64_t step_i);

#endif

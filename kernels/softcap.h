/* softcap — keeps the logits of a softmax within ±cap, smoothly. xent applies its gradient as a
 * factor (xent.h). Must not know models. */
#ifndef CONVOY_KERNELS_SOFTCAP_H
#define CONVOY_KERNELS_SOFTCAP_H
#include "kernels/tensor.h"

/* softcap — x[n,v] = cap·tanh(x[n,v]/cap).
 * i/o  x (N,V)  row stride `stride` >= V; the padding V … stride-1 is not touched
 * in   cap > 0
 * Tolerance to plain: nmse 1e-12. Source Gemma Team 2024 (final_logit_softcapping of
 * transformers). */
struct softcap {
    struct tensor x;
    int64_t n, v, stride;
    float cap;
};
#endif

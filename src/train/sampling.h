/* sampling — which token comes next, and which bytes may be shown. Pure arithmetic; must not know
 * models or tokenizers. */
#ifndef CONVOY_TRAIN_SAMPLING_H
#define CONVOY_TRAIN_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

/* How to choose among the probabilities softmax(logits / temperature); each part narrows what the
 * one before left. */
struct sampling_params {
    double temperature; /* ≥ 0; 0: always the likeliest token, whatever the others say */
    int64_t top_k;      /* the k likeliest; 0: all. Equals of the last one taken are all in */
    /* the fewest likeliest tokens that hold this share of what top_k left; 1: all, 0: one. Of
     * equals the lower ids are taken first. Source: Holtzman et al. 2020, section 3.1 */
    double top_p;
};

/* sampling_pick — one of n logits. The likeliest is the first of the largest. u in [0,1) says where
 * in the cumulated probabilities, in the order of ids. -INFINITY is a token that never comes; -1 is
 * returned when a logit is NaN or INFINITY, or none is finite: the weights are not sound. work: n
 * floats of the caller. */
int64_t sampling_pick(const float *logits, int64_t n, const struct sampling_params *rule, double u,
                      float *work);

/* sampling_utf8_whole — how many of n bytes may be written out without cutting a UTF-8 sequence
 * that could still be completed. Bytes that can never be UTF-8 are let through. n minus the answer
 * is at most 3. */
size_t sampling_utf8_whole(const uint8_t *bytes, size_t n);

#endif

/* sampling — chooses the next token from logits, and finds where UTF-8 output may be cut. Pure. It
 * must not know models or tokenizers. */
#ifndef CONVOY_TRAIN_SAMPLING_H
#define CONVOY_TRAIN_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

/* Rules that are applied in this order to softmax(logits / temperature); each narrows the choice of
 * the one before. */
struct sampling_params {
    double temperature; /* ≥ 0; 0: always the likeliest token */
    int64_t top_k;      /* the k likeliest tokens, and all that equal the last of them; 0: all */
    /* the fewest likeliest tokens with this share of the probability that top_k left. 1: all; 0:
     * one. Among equals, lower ids first. Source: Holtzman et al. 2020, section 3.1 */
    double top_p;
};

/* sampling_pick — returns the index of the chosen logit. u in [0, 1) selects in the cumulated
 * probabilities, in the order of ids; of equal largest logits the first is the likeliest. A token
 * with logit -INFINITY is never chosen. Returns -1 if a logit is NaN or INFINITY, or none is
 * finite. work: n floats of scratch. */
int64_t sampling_pick(const float *logits, int64_t n, const struct sampling_params *rule, double u,
                      float *work);

/* sampling_utf8_whole — returns the number of bytes, out of n, that can be written without cutting
 * a UTF-8 sequence that later bytes may complete. Invalid bytes count as whole. At most 3 bytes are
 * held back. */
size_t sampling_utf8_whole(const uint8_t *bytes, size_t n);

#endif

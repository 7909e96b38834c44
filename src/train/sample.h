/* sample — which token comes next, and which bytes may be shown. Pure arithmetic; must not know models or
 * tokenizers. */
#ifndef CONVOY_TRAIN_SAMPLE_H
#define CONVOY_TRAIN_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* sample_pick — one of n logits. temperature 0: the first of the largest. Else softmax of logits / temperature over
 * the top_k largest (0: all; equals of the smallest taken are all in), and u in [0,1) says where in the cumulated
 * probabilities, in the order of ids. Logits that are not finite are never taken. work: n floats of the caller. */
int64_t sample_pick(const float *logits, int64_t n, double temperature, int64_t top_k, double u, float *work);

/* sample_utf8_whole — how many of n bytes may be written out without cutting a UTF-8 sequence that could still be
 * completed. Bytes that can never be UTF-8 are let through. n minus the answer is at most 3. */
size_t sample_utf8_whole(const uint8_t *bytes, size_t n);

#endif

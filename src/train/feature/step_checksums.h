/* step_checksums — checksums of arrays in the memory of a step's device (kernels/checksum.h), in
 * host memory. A GPU computes them itself, so only a few numbers are copied. It must not know why
 * they are compared.
 *
 * Call step_checksums_begin, then step_checksums_add for runs of arrays, then step_checksums_end.
 * Needs config.sentinel_every. Between two steps, or with step_drain. */
#ifndef CONVOY_TRAIN_STEP_CHECKSUMS_H
#define CONVOY_TRAIN_STEP_CHECKSUMS_H

#include "train/step/core.h"

struct step_checksum {
    uint64_t sum[CHECKSUM_N];
};

/* step_checksums_begin — sets `n` checksums to zero. Their memory is the same in each call. */
enum status step_checksums_begin(struct step_core *s, int n);
/* step_checksums_add — adds n elements of an array to checksum i. first: the number of 32-bit words
 * before them in the array. */
enum status step_checksums_add(struct step_core *s, int i, struct tensor run, int64_t n,
                               int64_t first);
/* step_checksums_end — waits for the device. *out: the checksums of step_checksums_begin, valid
 * until the next step. */
enum status step_checksums_end(struct step_core *s, const struct step_checksum **out);

#define STEP_CHECKSUMS_SUSPECT (DEV_PLACE_TEXT + 32) /* room for the text below */
/* step_checksums_suspect — writes the part of this node that is suspect after a change: "this
 * node", or its GPU: "GPU-… at 0000:3b:00.0 of node 1". Returns out. */
const char *step_checksums_suspect(const struct step_core *s, char *out, size_t cap);

#endif

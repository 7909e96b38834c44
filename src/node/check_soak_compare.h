/* check_soak_compare — do the ranks of a group have the same bits after the same training, and if
 * not, which of them differ? Must not know how a rank trains, nor how it is reported. */
#ifndef CONVOY_NODE_CHECK_SOAK_COMPARE_H
#define CONVOY_NODE_CHECK_SOAK_COMPARE_H

#include "node/check_soak_train.h"

/* What a comparison of the ranks of a group found. */
struct check_soak_found {
    int differ, unclear; /* ranks */
    bool again;          /* some rank computed other bits in another round */
    bool self_differs, self_unclear;
    int others, model; /* of this rank's kind; one that is right */
    bool drifts;       /* nothing is wrong, but other kinds of devices get other weights */
};

/* check_soak_compare — collective; comm NULL: this rank alone. kind: of this rank's device; what
 * depends on the device is compared among ranks of one kind. is_alone: every rank trained by
 * itself, on the same samples: a round that differs is this device's fault. Else all ranks of the
 * group took part, and a wrong weight anywhere changes the gradients of all: only what replicas
 * have says which rank it was. */
enum status check_soak_compare(struct comm *comm, const struct check_soak_train *t, uint64_t kind,
                               bool is_alone, struct check_soak_found *out);

#endif

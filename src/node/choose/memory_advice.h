/* memory_advice — for a run that does not fit into memory: which change of which setting makes it
 * fit. Must not know how memory is measured or planned: it asks memory_check_fits. */
#ifndef CONVOY_NODE_MEMORY_ADVICE_H
#define CONVOY_NODE_MEMORY_ADVICE_H

#include "base/text.h"
#include "node/choose/memory_check.h"

/* What is compared: one run as settings would have it, and what there is. */
struct memory_check {
    const struct conf *conf;
    struct memory_plan_place place;
    /* the memory of a worker's GPU; else the host's of all workers of the node */
    bool is_device;
    int64_t free_bytes; /* now; -1 unknown, and then not compared */
    int64_t most_bytes; /* ever */
    int64_t each_bytes; /* that one process may take; -1 no limit */
    const char *owner;  /* of most_bytes: "the machine" */
};

/* memory_check_fits — whether a config does, on the node or GPU at this place (memory_check.c). */
bool memory_check_fits(const struct memory_check *f, const struct trainer_config *c,
                       struct comm_place at);

/* memory_advice_add — appends "; BATCH_SIZE=4; SEQ_LEN=512; TP=2": each by itself would fit.
 * Nothing is appended where nothing does. */
void memory_advice_add(const struct memory_check *f, const struct trainer_config *c,
                       struct text *out);

#endif

/* memory_advice — finds which change of which setting makes a run fit into memory. Must not know
 * how memory is measured or planned: it calls memory_check_fits. */
#ifndef CONVOY_NODE_MEMORY_ADVICE_H
#define CONVOY_NODE_MEMORY_ADVICE_H

#include "base/text.h"
#include "node/choose/memory_check.h"

/* A run with its settings, and the memory that is available to it. */
struct memory_check {
    const struct conf *conf;
    struct memory_plan_place place;
    /* true: the memory of a worker's GPU; false: the host memory of all workers of the node */
    bool is_device;
    int64_t free_bytes; /* bytes that are free now; -1: unknown, and then not compared */
    int64_t most_bytes; /* most bytes that can ever be free */
    int64_t each_bytes; /* bytes that one process may use; -1: no limit */
    const char *owner;  /* owner of most_bytes: "the machine" */
};

/* memory_check_fits — returns true if a config fits on the node or GPU at this place
 * (memory_check.c). */
bool memory_check_fits(const struct memory_check *f, const struct trainer_config *c,
                       struct comm_place at);

/* memory_advice_add — appends "; BATCH_SIZE=4; SEQ_LEN=512; TP=2". Each of these changes makes the
 * run fit by itself. Appends nothing if no change does. */
void memory_advice_add(const struct memory_check *f, const struct trainer_config *c,
                       struct text *out);

#endif

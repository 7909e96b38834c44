/* memory_plan — the memory that a worker will take, by kind, before it takes any: that of step,
 * store, decoder and the checkpoint copy, and that of the process itself.
 *
 * A pure function of settings and the worker's rank. For a model, step.c asserts that the plan is
 * what is taken; the rest are constants. It must not know how much memory there is, or which
 * command asks. */
#ifndef CONVOY_TRAIN_MEMORY_PLAN_H
#define CONVOY_TRAIN_MEMORY_PLAN_H

#include "train/trainer/trainer.h"

/* Scratch is the memory that kernels work in: of the threads of a CPU, or of a GPU's computing
 * stream. */
#define MEMORY_PLAN_LIST(X)                      \
    X(PARAMETERS, "parameters")                  \
    X(GRADIENTS, "gradients")                    \
    X(MOMENTS, "moments")                        \
    X(ACTIVATIONS, "activations")                \
    X(WORKSPACE, "workspace")                    \
    X(SCRATCH, "kernel scratch")                 \
    X(UNSHARDED, "unsharded buffers")            \
    X(COMPRESSION, "compression")                \
    X(OUTER, "outer parameters and momentum")    \
    X(COMMUNICATION, "communication")            \
    X(COMM_ESTIMATE, "communication (estimate)") \
    X(CHECKPOINT, "checkpoint copy")             \
    X(PEER_COPIES, "copies for peers")           \
    X(PROGRAM, "program")                        \
    X(LIBRARIES, "libraries (estimate)")
enum memory_plan_kind {
#define MEMORY_PLAN_ENUM(name, text) MEMORY_PLAN_##name,
    MEMORY_PLAN_LIST(MEMORY_PLAN_ENUM)
#undef MEMORY_PLAN_ENUM
        MEMORY_PLAN_N
};
const char *memory_plan_text(enum memory_plan_kind kind); /* "parameters", … */

/* An estimate of what CUDA's context and the kernels of its libraries take of a GPU. The context
 * exists once a device is open, so the free memory in dev_info does not contain it. */
#define MEMORY_PLAN_GPU_LIBRARIES_BYTES ((int64_t)500 << 20)

/* Of a node's supervisor: 2 MiB of its own, and the pages of the program's file and of libraries,
 * which all processes of the node share. */
#define MEMORY_PLAN_SUPERVISOR_BYTES ((int64_t)12 << 20)

/* Bytes of one worker: host memory, and memory of a device that has its own. */
struct memory_plan {
    int64_t host[MEMORY_PLAN_N], device[MEMORY_PLAN_N];
};
int64_t memory_plan_sum(const int64_t bytes[MEMORY_PLAN_N]);

struct memory_plan_place {
    struct comm_place at;
    bool is_discrete; /* the device has memory of its own */
    /* calls of several ranks stay on it (NCCL). Where that is not known yet: whether they may */
    bool stays_on_device;
    /* stays_on_device: by how much NCCL may round up the store's one allocation (store/memory.c) */
    int64_t rounding_bytes;
    int threads_n; /* of the CPU device's pool */
};

/* Returns true if a GPU computes attention in this direction by the program's own kernels, if cuDNN
 * is installed and has a row for the chip; else it does so anyway. */
bool memory_plan_attention_is_own(const struct trainer_config *config, bool is_backward);

/* memory_plan_train — of trainer_run. Reads neither devices, comm, board nor feeds of the config.
 * Leaves out the checkpoint copy, and copies in peers' memory, where training can do without
 * (checkpoint/async.h, peer_copy.h). */
enum status memory_plan_train(const struct trainer_config *config,
                              const struct memory_plan_place *place, struct memory_plan *out);
/* memory_plan_add_state — adds the memory of a copy of the whole state on one rank.
 * memory_plan_peer_copies — the host memory that PEER_COPIES=auto takes of this worker besides, if
 * it is free; 0: none. */
enum status memory_plan_add_state(const struct step_config *config,
                                  const struct memory_plan_place *place, int64_t *bytes);
enum status memory_plan_peer_copies(const struct trainer_config *config,
                                    const struct memory_plan_place *place, int64_t *out);
/* memory_plan_eval — of step_open with is_eval.
 * memory_plan_generate — of decoder_open. */
enum status memory_plan_eval(const struct step_config *config,
                             const struct memory_plan_place *place, struct memory_plan *out);
enum status memory_plan_generate(const struct model_dims *dims, int64_t window, enum dtype dtype,
                                 const struct memory_plan_place *place, struct memory_plan *out);
/* memory_plan_convert — of import and export, which read a model through file mappings and write it
 * piece by piece: the program and its buffers. */
void memory_plan_convert(struct memory_plan *out);

#endif

/* memory_plan — the memory that a worker will allocate, by kind, before it allocates any: for step,
 * store, decoder and the checkpoint copy, and for the process itself.
 *
 * A pure function of settings and the worker's rank. For a model, step/memory.c asserts that the
 * plan equals the allocated memory; the rest are constants. It must not know how much memory there
 * is, or for which command it plans. */
#ifndef CONVOY_TRAIN_MEMORY_PLAN_H
#define CONVOY_TRAIN_MEMORY_PLAN_H

#include "train/trainer/trainer.h"

/* Scratch is working memory of kernels: for the threads of a CPU, or for a GPU's computing
 * stream. */
#define MEMORY_PLAN_LIST(X)                      \
    X(PARAMETERS, "parameters")                  \
    X(FROZEN, "frozen parameters")               \
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

/* An estimate of the GPU memory for CUDA's context and the kernels of its libraries. The context
 * exists once a device is open, so the free memory in dev_info does not contain it. */
#define MEMORY_PLAN_GPU_LIBRARIES_BYTES ((int64_t)500 << 20)

/* Memory of a node's supervisor: 2 MiB of its own, and the pages of the program's file and of
 * libraries, which all processes of the node share. */
#define MEMORY_PLAN_SUPERVISOR_BYTES ((int64_t)12 << 20)

/* Bytes of one worker: host memory, and memory of a device that has its own. */
struct memory_plan {
    int64_t host[MEMORY_PLAN_N], device[MEMORY_PLAN_N];
};
/* memory_plan_sum — returns the sum of all kinds of memory, in bytes. */
int64_t memory_plan_sum(const int64_t bytes[MEMORY_PLAN_N]);

struct memory_plan_place {
    struct comm_place at;
    bool is_discrete; /* the device has memory of its own */
    /* calls of several ranks stay on it (NCCL), or may stay, if that is not decided yet */
    bool stays_on_device;
    /* with stays_on_device: bytes by which NCCL may round up the store's one allocation
     * (store/memory.c) */
    int64_t rounding_bytes;
    int threads_n; /* threads of the CPU device's pool */
};

/* Returns true if a GPU computes attention in this direction by the program's own kernels even if
 * cuDNN is installed and supports the chip. */
bool memory_plan_attention_is_own(const struct trainer_config *config, bool is_backward);

/* memory_plan_train — plans the memory of trainer_run. Reads neither devices, comm, board nor feeds
 * of the config. Leaves out the checkpoint copy, and copies in peers' memory, if training is
 * possible without them (checkpoint/async.h, peer_copy.h). */
enum status memory_plan_train(const struct trainer_config *config,
                              const struct memory_plan_place *place, struct memory_plan *out);
/* memory_plan_add_state — adds the memory of a copy of the whole state on one rank. */
enum status memory_plan_add_state(const struct step_config *config,
                                  const struct memory_plan_place *place, int64_t *bytes);
/* memory_plan_peer_copies — returns the host memory that PEER_COPIES=auto also allocates for this
 * worker if it is free; 0: none. */
enum status memory_plan_peer_copies(const struct trainer_config *config,
                                    const struct memory_plan_place *place, int64_t *out);
/* memory_plan_eval — plans the memory of step_open with is_eval. */
enum status memory_plan_eval(const struct step_config *config,
                             const struct memory_plan_place *place, struct memory_plan *out);
/* memory_plan_generate — plans the memory of decoder_open. */
enum status memory_plan_generate(const struct model_dims *dims, int64_t window, enum dtype dtype,
                                 const struct memory_plan_place *place, struct memory_plan *out);
/* memory_plan_convert — plans the memory of import and export, which read a model through file
 * mappings and write it block by block: the program and its buffers. */
void memory_plan_convert(struct memory_plan *out);

#endif

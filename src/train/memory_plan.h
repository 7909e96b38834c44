/* memory_plan — the bytes that a worker will take, by kind, before it takes any: what step, store,
 * decoder and checkpoint_async would take, and what comes with a process.
 *
 * A function of settings and places alone; nothing is opened and nothing touched. What is planned
 * for a model is asserted to be what is taken (train/step.c); the rest are constants. Must not know
 * how much there is, or which command asks. */
#ifndef CONVOY_TRAIN_MEMORY_PLAN_H
#define CONVOY_TRAIN_MEMORY_PLAN_H

#include "train/trainer.h"

/* Scratch is what kernels work in: of the threads of a CPU, of the stream of a GPU that
 * computes. */
#define MEMORY_PLAN_LIST(X)                      \
    X(PARAMETERS, "parameters")                  \
    X(GRADIENTS, "gradients")                    \
    X(MOMENTS, "moments")                        \
    X(ACTIVATIONS, "activations")                \
    X(WORKSPACE, "workspace")                    \
    X(SCRATCH, "kernel scratch")                 \
    X(WINDOWS, "gathered windows")               \
    X(COMPRESSION, "compression")                \
    X(COMMUNICATION, "communication")            \
    X(COMM_ESTIMATE, "communication (estimate)") \
    X(CHECKPOINT, "checkpoint copy")             \
    X(PROGRAM, "program")                        \
    X(LIBRARIES, "libraries (estimate)")
enum memory_plan_kind {
#define MEMORY_PLAN_ENUM(name, text) MEMORY_PLAN_##name,
    MEMORY_PLAN_LIST(MEMORY_PLAN_ENUM)
#undef MEMORY_PLAN_ENUM
        MEMORY_PLAN_N
};
const char *memory_plan_text(enum memory_plan_kind kind); /* "parameters", … */

/* What CUDA's context and the kernels of its libraries take of a GPU; an estimate. The context is
 * there when a device is open, so it is not in the free memory that dev_info reports. */
#define MEMORY_PLAN_GPU_LIBRARIES_BYTES ((int64_t)500 << 20)

/* Bytes of one worker: in the host's memory, and in that of its device where that is apart. */
struct memory_plan {
    int64_t host[MEMORY_PLAN_N], device[MEMORY_PLAN_N];
};
int64_t memory_plan_sum(const int64_t bytes[MEMORY_PLAN_N]);

struct memory_plan_place {
    struct comm_place at;
    bool is_discrete; /* the device's memory is not the host's */
    int threads_n;    /* of its pool, on a CPU */
};

/* memory_plan_train — of trainer_run; of the config dev, comm, board and feeds are not looked at. A
 * copy of the state that training can do without (checkpoint_async.h) is not counted. */
enum status memory_plan_train(const struct trainer_config *config,
                              const struct memory_plan_place *place, struct memory_plan *out);
/* memory_plan_eval — of step_open with is_eval. memory_plan_generate — of decoder_open.
 * memory_plan_import — of a model whose parameters are all held. */
enum status memory_plan_eval(const struct step_config *config,
                             const struct memory_plan_place *place, struct memory_plan *out);
enum status memory_plan_generate(const struct model_dims *dims, int64_t window, enum dtype dtype,
                                 const struct memory_plan_place *place, struct memory_plan *out);
enum status memory_plan_import(const struct model_dims *dims, struct memory_plan *out);
/* memory_plan_export — of a program that writes a model which it reads through mappings: itself and
 * a buffer. */
void memory_plan_export(struct memory_plan *out);

#endif

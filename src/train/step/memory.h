/* step_memory — the memory of a step, allocated and planned: all of it when the step opens. */
#ifndef CONVOY_TRAIN_STEP_MEMORY_H
#define CONVOY_TRAIN_STEP_MEMORY_H

#include "train/step/step.h"

/* Bytes on this rank. */
struct step_memory {
    struct store_memory store;
    int64_t passes;      /* activations, scratch and inputs, on the device */
    int64_t activations; /* contained in passes */
    int64_t batch;       /* samples of a step, in host memory */
    int64_t scratch;     /* scratch of the stream on a GPU (dev_info); 0 on a CPU */
    int64_t gathered;    /* losses of all ranks on the device, over NCCL; else 0 */
    int64_t readback;    /* results in host memory: this rank's, and a copy of gathered */
    int64_t outer;       /* LOCAL_STEPS: outer parameters and momentum, in host memory */
};
/* rank, ranks: among all ranks. is_discrete: the device has memory of its own. stays_on_device: as
 * comm_stays_on_device. */
struct step_place {
    int rank, ranks;
    bool is_discrete, stays_on_device;
};
/* step_plan — computes the memory that step_open would allocate at a place. Reads neither dev, comm
 * nor the callbacks of the config. ST_BAD_SETTING: the model, or its division among ranks and
 * replicas, is impossible. Local, as the functions below. */
enum status step_plan(const struct step_config *config, const struct step_place *place,
                      struct step_memory *out);

/* step_memory — public for tests: returns the allocated memory, which equals the plan. */
struct step_memory step_memory(const struct step *step);

int64_t step_memory_bytes(const struct step *step); /* state and passes */

#endif

/* steps — shared by tests of steps on the CUDA device: samples that are a function of the step's
 * number, and the state afterwards. Include it after kernel_test.h. */
#ifndef CONVOY_TESTS_CUDA_STEPS_H
#define CONVOY_TESTS_CUDA_STEPS_H

#include "train/step/step.h"

/* steps_config — a small model, trained with dropout; what a test is about it sets itself. */
static inline struct step_config steps_config(struct dev *dev, enum model_task task,
                                              enum dtype dtype, enum optim_kind optim)
{
    return (struct step_config){
        .dev = dev,
        .seed = 3,
        .dropout = 0.1f,
        .store.dtype = dtype,
        .dims = {.name = "tiny", .task = task, .layers = 1, .heads = 1, .embed = 16, .context = 8},
        .optim = {.kind = optim,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .momentum = 0.9,
                  .weight_decay = 0.1,
                  .grad_clip = 1}};
}

/* steps_fill — all samples of a batch: tokens below vocab, one target in five ignored, one key in
 * seven hidden. */
static inline void steps_fill(struct batch *b, int64_t step_i, uint32_t vocab)
{
    for (int64_t i = 0; i < b->samples * b->seq_tokens; i++) {
        b->host.tokens[i] = (int32_t)(rand_u32(5, (uint64_t)step_i, (uint64_t)i) % vocab);
        if (b->host.targets)
            b->host.targets[i] =
                i % 5 ? (int32_t)(rand_u32(6, (uint64_t)step_i, (uint64_t)i) % vocab) : -1;
        if (b->host.mask)
            b->host.mask[i] = i % 7 != 3;
    }
    for (int32_t i = 0; b->host.starts && i < b->samples; i++)
        b->host.starts[i] = i, b->host.ends[i] = i + 1;
}

/* steps_state — every array, one behind the other; the caller frees. *n_out: all their elements. */
static inline float *steps_state(struct step *step, int64_t *n_out)
{
    int64_t elems = step_whole_table(step)->total_elems;
    float *state = kt_floats(elems * step_arrays(step), KT_ONES, 0);
    for (int array = 0; array < step_arrays(step); array++)
        kt_ok(state_read(step_state(step), array, 0, elems, state + array * elems));
    *n_out = elems * step_arrays(step);
    return state;
}

#endif

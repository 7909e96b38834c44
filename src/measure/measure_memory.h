/* measure_memory — memory of a device for the arguments of measured work, and work that measures
 * the memory itself.
 *
 * Repeated work uses arguments from another address each time, by turns all over the memory. So
 * caches hold as little of them as in a training step, where other operations run in between. Must
 * not know which rates are good. */
#ifndef CONVOY_MEASURE_MEMORY_H
#define CONVOY_MEASURE_MEMORY_H

#include "dev/dev.h"

#define MEASURE_MEMORY_ZEROS 16384 /* targets of a loss */

struct measure_memory {
    struct dev *dev;
    struct stream *stream; /* stream on which work runs */
    char *data;
    int64_t bytes;
    int32_t *zeros; /* MEASURE_MEMORY_ZEROS numbers, after the data */
    /* memory that the workers of a CPU's node share, in small pages, for parameters and gradients;
     * the caller's; NULL: these lie in `data` too */
    char *shared;
    int64_t shared_bytes;
};

/* Allocates the memory. Errors: as dev_alloc. */
enum status measure_memory_open(struct measure_memory *memory, struct dev *dev,
                                struct stream *stream, int64_t bytes);
/* Frees the memory; accepts a zeroed struct. */
void measure_memory_close(struct measure_memory *memory);
/* Fills data and shared memory with random numbers (measure_pattern.h), which are also valid as
 * fp32 if dtype is BF16. */
enum status measure_memory_fill(const struct measure_memory *memory, enum dtype dtype);

/* The arguments of one turn: the end of the used memory. Begins as {.memory = …}. */
struct measure_args {
    const struct measure_memory *memory;
    int64_t at, shared_at;
};
/* Returns a tensor after the earlier ones; the caller compares the end with the memory. */
struct tensor measure_memory_alloc(struct measure_args *t, int64_t elems, enum dtype dtype);
/* Returns a tensor of parameters or gradients, in the shared memory if there is any. */
struct tensor measure_memory_alloc_shared(struct measure_args *t, int64_t elems, enum dtype dtype);

struct measure_turns {
    const struct measure_memory *memory;
    int64_t bytes, shared_bytes, n, shared_n, at;
};
/* Makes turns of the size of `t`. Returns false if the memory is too small for one. */
bool measure_memory_turns(const struct measure_args *t, struct measure_turns *out);
/* Returns the next turn, from which tensors are allocated. */
struct measure_args measure_memory_next(struct measure_turns *turns);

/* Work on two tensors of fp32 numbers; for a copy either may lie in host memory. */
struct measure_memory_run {
    const struct measure_memory *memory;
    struct tensor to, from;
    int64_t elems;
};
/* Copies from → to (measure_work). Moves 8 bytes for each element. */
enum status measure_memory_copy(void *run);
/* Subtracts from to a multiple of from: an optimiser without moments (measure_work). Moves 12 bytes
 * for each element. */
enum status measure_memory_triad(void *run);

#endif

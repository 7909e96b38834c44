/* measure_ranks — the measured values of all ranks on all ranks: gathered, or their maximum or sum.
 * Each function is collective over the ranks of comm; comm NULL is one rank.
 *
 * Errors: ST_RETRY when memory is short, and the comm's. Must not know the meaning of the
 * values. */
#ifndef CONVOY_MEASURE_RANKS_H
#define CONVOY_MEASURE_RANKS_H

#include "base/text.h"
#include "comm/core/comm.h"

/* Gathers `bytes` bytes from each rank: all (ranks × bytes) holds them in the order of ranks. */
enum status measure_ranks_gather(struct comm *comm, const void *mine, int64_t bytes, void *all);
/* Bytes of different lengths from all ranks. */
struct measure_shared {
    char *all;  /* bytes of rank r at r · stride */
    int64_t *n; /* number of bytes of each rank */
    int64_t stride;
};
/* Gathers n bytes from each rank; n may differ between ranks. */
enum status measure_ranks_share(struct comm *comm, const void *bytes, size_t n,
                                struct measure_shared *out);
/* Frees the bytes; may be called twice. */
void measure_ranks_share_free(struct measure_shared *shared);
/* Replaces the bytes on all ranks by the bytes of rank 0. */
enum status measure_ranks_broadcast(struct comm *comm, struct text *bytes);

/* Replaces each of the n values by the maximum over all ranks. */
enum status measure_ranks_max(struct comm *comm, double *values, int n);
/* Replaces each of the n values by the sum over all ranks. */
enum status measure_ranks_sum(struct comm *comm, double *values, int n);

#endif

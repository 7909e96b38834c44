/* check_gather — the same number of bytes from each rank to all ranks: how the stages of a check
 * agree on what was found. Must not know what the bytes mean. */
#ifndef CONVOY_CHECK_CHECK_GATHER_H
#define CONVOY_CHECK_CHECK_GATHER_H

#include "comm/core/comm.h"

/* check_gather — collective: all (ranks × bytes) = mine (bytes) of each rank, in order of ranks.
 * comm NULL: one rank. Errors: ST_RETRY: out of memory; the comm's. */
enum status check_gather(struct comm *comm, const void *mine, int64_t bytes, void *all);

/* check_gather_max — collective: the greatest of all ranks' values. */
enum status check_gather_max(struct comm *comm, int64_t mine, int64_t *max_out);

#endif

/* check_share — bytes of different lengths between the ranks of a check; of equal lengths:
 * measure_ranks_gather. Collective. Must not know what the bytes mean. */
#ifndef CONVOY_CHECK_CHECK_SHARE_H
#define CONVOY_CHECK_CHECK_SHARE_H

#include <stddef.h>

#include "base/text.h"
#include "comm/core/comm.h"

/* What every rank gave. */
struct check_shared {
    char *all;  /* that of rank r at r · stride */
    int64_t *n; /* of each rank */
    int64_t stride;
};

/* check_share — every rank gets the bytes of all. comm NULL: one rank. ST_PEER as in comm.h;
 * ST_RETRY: out of memory. check_share_free — may be called twice. */
enum status check_share(struct comm *comm, const void *bytes, size_t n, struct check_shared *out);
void check_share_free(struct check_shared *shared);
/* check_share_first — rank 0's bytes; on other ranks they replace those in `bytes`. */
enum status check_share_first(struct comm *comm, struct text *bytes);

#endif

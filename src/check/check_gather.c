/* check_gather — see check_gather.h. */
#include "check/check_gather.h"

#include <stdlib.h>
#include <string.h>

#include "comm/core/part.h"

enum status check_gather(struct comm *comm, const void *mine, int64_t bytes, void *all)
{
    if (comm == NULL || comm_place(comm)->ranks == 1) {
        memcpy(all, mine, (size_t)bytes);
        return ST_OK;
    }
    const struct comm_place *place = comm_place(comm);
    const int64_t each = (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    char *padded = calloc((size_t)place->ranks, (size_t)each);
    if (padded == NULL)
        return FAIL(ST_RETRY, "out of memory: %lld bytes from each of %d ranks", (long long)bytes,
                    place->ranks);
    memcpy(padded + place->rank * each, mine, (size_t)bytes);
    struct tensor out = {padded, DTYPE_U8}, in = {padded + place->rank * each, DTYPE_U8};
    enum status st = comm_all_gather(comm, out, in, place->ranks * each);
    for (int r = 0; r < place->ranks && st == ST_OK; r++)
        memcpy((char *)all + r * bytes, padded + r * each, (size_t)bytes);
    free(padded);
    return st;
}

enum status check_gather_max(struct comm *comm, int64_t mine, int64_t *max_out)
{
    const int ranks = comm != NULL ? comm_place(comm)->ranks : 1;
    int64_t *all = malloc(sizeof *all * (size_t)ranks);
    if (all == NULL)
        return FAIL(ST_RETRY, "out of memory: a number from each of %d ranks", ranks);
    enum status st = check_gather(comm, &mine, sizeof mine, all);
    *max_out = mine;
    for (int r = 0; r < ranks && st == ST_OK; r++)
        *max_out = all[r] > *max_out ? all[r] : *max_out;
    free(all);
    return st;
}

/* measure_ranks — see measure_ranks.h. */
#include "measure/measure_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/core/part.h"

enum status measure_ranks_gather(struct comm *comm, const void *mine, int64_t bytes, void *all)
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

/* Replaces each value by the greatest or the sum of all ranks. */
static enum status fold(struct comm *comm, double *values, int n, bool is_sum)
{
    const int ranks = comm != NULL ? comm_place(comm)->ranks : 1;
    double *all = malloc(sizeof *all * (size_t)n * (size_t)ranks);
    if (all == NULL)
        return FAIL(ST_RETRY, "out of memory: %d values from each of %d ranks", n, ranks);
    enum status st = measure_ranks_gather(comm, values, (int64_t)sizeof *values * n, all);
    for (int i = 0; i < n && st == ST_OK; i++) {
        values[i] = all[i];
        for (int r = 1; r < ranks; r++)
            values[i] = is_sum ? values[i] + all[r * n + i] : fmax(values[i], all[r * n + i]);
    }
    free(all);
    return st;
}

enum status measure_ranks_max(struct comm *comm, double *values, int n)
{
    return fold(comm, values, n, false);
}

enum status measure_ranks_sum(struct comm *comm, double *values, int n)
{
    return fold(comm, values, n, true);
}

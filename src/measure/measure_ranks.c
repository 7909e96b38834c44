/* measure_ranks — see measure_ranks.h. */
#include "measure/measure_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/core/part.h"

enum status measure_ranks_gather(struct comm *comm, const void *mine, int64_t bytes, void *all)
{
    if (comm == NULL || comm_place(comm)->ranks == 1) {
        memcpy(all, mine, (size_t)bytes);
        return ST_OK;
    }
    const struct comm_place *place = comm_place(comm);
    const int64_t each = (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    char *padded = memory_new((size_t)place->ranks, (size_t)each);
    memcpy(padded + place->rank * each, mine, (size_t)bytes);
    struct tensor out = {padded, DTYPE_U8}, in = {padded + place->rank * each, DTYPE_U8};
    enum status st = comm_all_gather(comm, out, in, place->ranks * each);
    for (int r = 0; r < place->ranks && st == ST_OK; r++)
        memcpy((char *)all + r * bytes, padded + r * each, (size_t)bytes);
    free(padded);
    return st;
}

enum status measure_ranks_share(struct comm *comm, const void *bytes, size_t n,
                                struct measure_shared *out)
{
    const int ranks = comm ? comm_place(comm)->ranks : 1;
    const int64_t length = (int64_t)n;
    *out = (struct measure_shared){.n = memory_new((size_t)ranks, sizeof *out->n)};
    enum status st = measure_ranks_gather(comm, &length, sizeof length, out->n);
    for (int r = 0; r < ranks && st == ST_OK; r++)
        out->stride = out->n[r] > out->stride ? out->n[r] : out->stride;
    if (st == ST_OK && out->stride > 0) {
        /* Gathers the bytes of each rank, followed by zeros up to the longest. */
        char *own = calloc(1, (size_t)out->stride);
        out->all = calloc((size_t)ranks, (size_t)out->stride);
        if (!own || !out->all)
            st = FAIL(ST_RETRY, "out of memory: %lld bytes from each of %d ranks",
                      (long long)out->stride, ranks);
        if (st == ST_OK && n > 0)
            memcpy(own, bytes, n);
        if (st == ST_OK)
            st = measure_ranks_gather(comm, own, out->stride, out->all);
        free(own);
    }
    if (st != ST_OK)
        measure_ranks_share_free(out);
    return st;
}

void measure_ranks_share_free(struct measure_shared *shared)
{
    free(shared->all);
    free(shared->n);
    *shared = (struct measure_shared){0};
}

enum status measure_ranks_broadcast(struct comm *comm, struct text *bytes)
{
    double n = (double)bytes->len;
    if (!comm || comm_place(comm)->ranks == 1)
        return ST_OK;
    TRY(comm_broadcast(comm, (struct tensor){&n, DTYPE_F64}, 1, 0));
    if (comm_place(comm)->rank > 0) {
        char *room = calloc(1, (size_t)n + 1);
        if (!room)
            return FAIL(ST_RETRY, "out of memory: %.0f bytes of rank 0", n);
        text_free(bytes);
        *bytes = (struct text){.data = room, .len = (size_t)n, .cap = (size_t)n + 1};
    }
    return n > 0 ? comm_broadcast(comm, (struct tensor){bytes->data, DTYPE_U8}, (int64_t)n, 0)
                 : ST_OK;
}

/* Replaces each value by the maximum or the sum over all ranks. */
static enum status reduce_values(struct comm *comm, double *values, int n, bool is_sum)
{
    const int ranks = comm != NULL ? comm_place(comm)->ranks : 1;
    double *all = memory_new((size_t)n * (size_t)ranks, sizeof *all);
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
    return reduce_values(comm, values, n, false);
}

enum status measure_ranks_sum(struct comm *comm, double *values, int n)
{
    return reduce_values(comm, values, n, true);
}

/* check_share — see check_share.h. */
#include "check/check_share.h"

#include <stdlib.h>
#include <string.h>

#include "measure/measure_ranks.h"

/* share_padded — all bytes, each rank's followed by zeros up to the longest. */
static enum status share_padded(struct comm *comm, int ranks, const void *bytes, size_t n,
                                struct check_shared *out)
{
    char *own = calloc(1, (size_t)out->stride);
    out->all = calloc((size_t)ranks, (size_t)out->stride);
    enum status st = ST_OK;
    if (!own || !out->all)
        st = FAIL(ST_RETRY, "out of memory: %lld bytes from each of %d ranks",
                  (long long)out->stride, ranks);
    if (st == ST_OK && n > 0)
        memcpy(own, bytes, n);
    if (st == ST_OK)
        st = measure_ranks_gather(comm, own, out->stride, out->all);
    free(own);
    return st;
}

enum status check_share(struct comm *comm, const void *bytes, size_t n, struct check_shared *out)
{
    const int ranks = comm ? comm_place(comm)->ranks : 1;
    const int64_t length = (int64_t)n;
    *out = (struct check_shared){.n = calloc((size_t)ranks, sizeof *out->n)};
    enum status st =
        out->n ? ST_OK : FAIL(ST_RETRY, "out of memory: the lengths of %d ranks' bytes", ranks);
    if (st == ST_OK)
        st = measure_ranks_gather(comm, &length, sizeof length, out->n);
    for (int r = 0; r < ranks && st == ST_OK; r++)
        out->stride = out->n[r] > out->stride ? out->n[r] : out->stride;
    if (st == ST_OK && out->stride > 0)
        st = share_padded(comm, ranks, bytes, n, out);
    if (st != ST_OK)
        check_share_free(out);
    return st;
}

void check_share_free(struct check_shared *shared)
{
    free(shared->all);
    free(shared->n);
    *shared = (struct check_shared){0};
}

enum status check_share_first(struct comm *comm, struct text *bytes)
{
    double n = (double)bytes->len;
    if (!comm || comm_place(comm)->ranks == 1)
        return ST_OK;
    TRY(comm_broadcast(comm, (struct tensor){&n, DTYPE_F64}, 1, 0));
    if (comm_place(comm)->rank > 0) {
        char *room = calloc(1, (size_t)n + 1);
        if (!room)
            return FAIL(ST_RETRY, "out of memory: %.0f bytes of a check's rows", n);
        text_free(bytes);
        *bytes = (struct text){.data = room, .len = (size_t)n, .cap = (size_t)n + 1};
    }
    return n > 0 ? comm_broadcast(comm, (struct tensor){bytes->data, DTYPE_U8}, (int64_t)n, 0)
                 : ST_OK;
}

/* check_soak_compare — see check_soak_compare.h. */
#include "node/check_soak_compare.h"

#include <stdlib.h>
#include <string.h>

#include "measure/measure_ranks.h"

/* What a rank sends to the others. */
struct told {
    uint64_t kind, digest[CHECK_SOAK_RECORD_PARTS];
    int64_t differs; /* between rounds: the first place; -1 */
};

/* vote — all ranks come to the same votes. What depends on the device is compared among ranks of
 * one kind. */
static enum status vote(const struct told *all, int n, enum check_soak_record_part part,
                        struct check_soak_vote *votes)
{
    for (int i = 0; i < n; i++)
        votes[i] = (struct check_soak_vote){.digest = all[i].digest[part],
                                            .kind = part == CHECK_SOAK_RECORD_ALL ? all[i].kind : 0,
                                            .is_left_out = all[i].differs >= 0};
    return check_soak_record_vote(votes, n);
}

static void count(const struct told *all, const struct check_soak_vote *votes, int n, int rank,
                  struct check_soak_found *f)
{
    for (int i = 0; i < n; i++) {
        f->differ += votes[i].differs && !votes[i].is_left_out;
        f->unclear += votes[i].is_unclear;
        f->again = f->again || all[i].differs >= 0;
        f->others += i != rank && votes[i].kind == votes[rank].kind;
    }
    f->self_differs = f->self_differs || votes[rank].differs;
    f->self_unclear = f->self_unclear || votes[rank].is_unclear;
    f->model = votes[rank].model;
}

static enum status compare_all(const struct told *all, int n, int rank, bool is_alone,
                               struct check_soak_vote *votes, struct check_soak_found *out)
{
    struct check_soak_found kinds = {0};
    TRY(vote(all, n, CHECK_SOAK_RECORD_ALL, votes));
    count(all, votes, n, rank, out);
    if (is_alone)
        return ST_OK;
    TRY(vote(all, n, CHECK_SOAK_RECORD_SUMS, votes));
    count(all, votes, n, rank, out);
    TRY(vote(all, n, CHECK_SOAK_RECORD_REPLICA, votes));
    count(all, votes, n, rank, &kinds);
    out->drifts = out->differ + out->unclear == 0 && kinds.differ + kinds.unclear > 0;
    return ST_OK;
}

enum status check_soak_compare(struct comm *comm, const struct check_soak_train *t, uint64_t kind,
                               bool is_alone, struct check_soak_found *out)
{
    const int n = comm ? comm_place(comm)->ranks : 1, rank = comm ? comm_place(comm)->rank : 0;
    struct told *all = calloc((size_t)n, sizeof *all);
    struct check_soak_vote *votes = calloc((size_t)n, sizeof *votes);
    struct told own = {.kind = kind, .differs = is_alone ? t->differs : -1};
    memcpy(own.digest, t->digest, sizeof own.digest);
    if (is_alone) /* the first round: ranks have made different numbers of them */
        own.digest[0] = check_soak_record_digest(&t->first, CHECK_SOAK_RECORD_ALL);
    enum status st =
        all && votes ? ST_OK : FAIL(ST_RETRY, "out of memory: checksums of %d ranks", n);
    *out = (struct check_soak_found){0};
    if (st == ST_OK)
        st = measure_ranks_gather(comm, &own, sizeof own, all);
    if (st == ST_OK)
        st = compare_all(all, n, rank, is_alone, votes, out);
    free(all);
    free(votes);
    return st;
}

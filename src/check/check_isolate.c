/* check_isolate — see check_isolate.h. */
#include "check/check_isolate.h"

#include <stdlib.h>

#include "base/text.h"
#include "check/check_bisect.h"
#include "check/check_gather.h"

#define TIMES 2         /* a test of a group makes the call so often: faults come and go */
#define EACH_BYTES 1024 /* of a buffer for each member, at least: every rank owns a part */

struct isolate {
    const struct check_collective_memory *memory;
    struct comm *comm;
    struct check_collective_call call;
    const struct comm_place *place;
    struct check_bisect bisect;
    int *group_of, *ranks; /* of each rank; the members of this rank's group */
    int64_t *wrong;        /* of each rank */
    bool *failed;          /* of each group */
};

static enum status open_all(struct isolate *s)
{
    const size_t n = (size_t)s->place->ranks;
    s->group_of = calloc(n, sizeof *s->group_of);
    s->ranks = calloc(n, sizeof *s->ranks);
    s->wrong = calloc(n, sizeof *s->wrong);
    s->failed = calloc(n, sizeof *s->failed);
    if (s->group_of == NULL || s->ranks == NULL || s->wrong == NULL || s->failed == NULL)
        return FAIL(ST_RETRY, "out of memory: a search among %d ranks", s->place->ranks);
    return check_bisect_init(&s->bisect, s->place->ranks, 2);
}

static void close_all(struct isolate *s)
{
    check_bisect_free(&s->bisect);
    free(s->group_of);
    free(s->ranks);
    free(s->wrong);
    free(s->failed);
}

/* This rank's group makes the call. *wrong_out: elements that this rank sees. */
static enum status test_group(const struct isolate *s, int group, int64_t *wrong_out)
{
    struct check_collective_call call = s->call;
    struct comm *split = NULL;
    int n = 0;
    for (int r = 0; r < s->place->ranks; r++)
        if (s->group_of[r] == group)
            s->ranks[n++] = r;
    const int64_t least = (int64_t)n * EACH_BYTES;
    call.bytes = call.bytes < least ? least : call.bytes;
    call.bytes = call.bytes > s->memory->bytes ? s->memory->bytes : call.bytes;
    TRY(comm_split(s->comm, s->ranks, n, &split));
    enum status st = ST_OK;
    for (int i = 0; i < TIMES && st == ST_OK; i++) {
        int64_t wrong = 0;
        double us;
        st = check_collective_right(s->memory, split, &call, &wrong, &us);
        *wrong_out += wrong;
    }
    comm_close(split);
    return st;
}

/* One round: all groups at once, then all ranks learn which failed. */
static enum status test_round(struct isolate *s, int groups)
{
    const int mine = s->group_of[s->place->rank];
    int64_t wrong = 0;
    if (mine >= 0)
        TRY(test_group(s, mine, &wrong));
    TRY(check_gather(s->comm, &wrong, sizeof wrong, s->wrong));
    for (int g = 0; g < groups; g++)
        s->failed[g] = false;
    for (int r = 0; r < s->place->ranks; r++)
        if (s->group_of[r] >= 0 && s->wrong[r] > 0)
            s->failed[s->group_of[r]] = true;
    check_bisect_report(&s->bisect, s->failed);
    return ST_OK;
}

/* ---- rows ---- */

static const char *describe(enum check_member kind)
{
    return kind == CHECK_MEMBER_BAD ? "every group with this rank gives wrong results, groups "
                                      "without it right ones"
           : kind == CHECK_MEMBER_COMBINATION
               ? "the halves of its group are right apart, wrong together: a link between them, or "
                 "a fault that comes and goes"
               : "its group gives wrong results, and no rank is known to be good beside it";
}

static enum status add_member(const struct isolate *s, int rank, struct check_rows *rows)
{
    const enum check_member kind = s->bisect.member[rank];
    const int node = rank / s->place->locals;
    struct check_row row = check_row_found(
        CHECK_STAGE_GROUPS, CHECK_POINT_COLLECTIVES, node, bus_bandwidth_name(s->call.collective),
        CHECK_VERDICT_FAIL, "%s (%d tests of groups in %d rounds)", describe(kind), s->bisect.tests,
        s->bisect.rounds);
    row.rank = rank;
    text_format(row.subject, sizeof row.subject, "rank %d", rank);
    text_copy(row.remedy, sizeof row.remedy,
              "nvidia-smi -q -d ECC,ROW_REMAPPER; dcgmi diag -r 3; memtester 1G 3; edac-util -v # "
              "take the "
              "node out first; the first two are for GPUs");
    return check_rows_add(rows, &row);
}

/* No rank could be named. */
static enum status add_gone(const struct isolate *s, int64_t wrong, struct check_rows *rows)
{
    struct check_row row =
        check_row_found(CHECK_STAGE_GROUPS, CHECK_POINT_COLLECTIVES, -1,
                        bus_bandwidth_name(s->call.collective), CHECK_VERDICT_FAIL,
                        "%lld elements were wrong once, and none when the groups were tested again",
                        (long long)wrong);
    text_copy(row.remedy, sizeof row.remedy,
              "convoy check CHECK=full SOAK=30m # on the same nodes, then on halves of them");
    return check_rows_add(rows, &row);
}

static enum status add_rows(const struct isolate *s, int64_t wrong, struct check_rows *rows)
{
    int named = 0;
    for (int r = 0; r < s->place->ranks; r++) {
        const enum check_member kind = s->bisect.member[r];
        if (kind == CHECK_MEMBER_GOOD || kind == CHECK_MEMBER_UNKNOWN)
            continue;
        TRY(add_member(s, r, rows));
        named++;
    }
    return named > 0 ? ST_OK : add_gone(s, wrong, rows);
}

enum status check_isolate_run(const struct check_collective_memory *memory, struct comm *comm,
                              const struct check_collective_call *call, int64_t wrong,
                              struct check_rows *rows)
{
    struct isolate s = {.memory = memory, .comm = comm, .call = *call, .place = comm_place(comm)};
    int groups = 0;
    enum status st = open_all(&s);
    while (st == ST_OK && (groups = check_bisect_round(&s.bisect, s.group_of)) > 0)
        st = test_round(&s, groups);
    if (st == ST_OK && s.place->rank == 0)
        st = add_rows(&s, wrong, rows);
    close_all(&s);
    return st;
}

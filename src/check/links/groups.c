/* check_groups — stage "groups" of check.h: every collective of all ranks, of the ranks of each
 * node, and of one rank of each node. It checks the results element by element, then measures the
 * speed. Sizes grow until the time is over. Wrong results are traced to ranks (links/bisect.h).
 * Must not know how a collective is checked. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "check/check.h"
#include "check/links/bisect.h"
#include "check/check_judge.h"
#include "comm/core/part.h"
#include "dev/cuda/cuda.h"
#include "measure/measure_collective.h"
#include "measure/measure_ranks.h"

#define KIB ((int64_t)1 << 10)
#define MIB ((int64_t)1 << 20)
#define SIZES_MAX 7
#define RUNS_MAX 32            /* most timed calls of one row */
#define SMALL_BYTES (64 * KIB) /* bytes; below it the time is reported instead of the bandwidth */
/* bytes; bf16 and fp16 up to this size, because the host computes their sums slowly */
#define HALF_BYTES MIB
#define TIMES 2         /* calls in a test of a group, because faults may be intermittent */
#define EACH_BYTES 1024 /* least bytes of a buffer for each member: every rank owns a part */
/* fraction 1/16 of the free memory, for each of the buffers of all workers */
#define MEMORY_SHARE 16

static const int64_t sizes[SIZES_MAX] = {8,        64 * KIB,  MIB,       16 * MIB,
                                         64 * MIB, 256 * MIB, 1024 * MIB};

/* Limits of each depth: the largest buffer on a host and on a GPU; timed calls of one row. */
static const struct effort {
    int64_t host_bytes, device_bytes, row_ms;
} efforts[] = {
    [CHECK_DEPTH_QUICK] = {MIB, 64 * MIB, 20},
    [CHECK_DEPTH_STANDARD] = {64 * MIB, 256 * MIB, 150},
    [CHECK_DEPTH_FULL] = {1024 * MIB, 1024 * MIB, 400},
};

/* The first wrong result. */
struct fault {
    int64_t wrong; /* wrong elements on the rank with the most; 0: none */
    int32_t collective, dtype;
    int64_t bytes;
};

struct groups {
    const struct check_config *config;
    const struct comm_place *place;
    const struct effort *effort;
    struct measure_collective_memory memory;
    bool is_split; /* for tests: some rank flips a bit */
    int64_t begin_ms, end_ms;
    struct check_rows *rows;
    struct fault fault; /* first fault in the groups of this rank */
};

/* A group of ranks. comm NULL: this rank is not in it. */
struct group {
    struct comm *comm;
    const char *where; /* "", "in a node", "between nodes" */
    int64_t end_ms;
    bool is_wrong[BUS_COLLECTIVE_N];
    int64_t largest[BUS_COLLECTIVE_N];         /* bytes of the largest test */
    bool has_dtype[BUS_COLLECTIVE_N][DTYPE_N]; /* types that were tested */
};

/* ---- one step: a collective at a size ---- */

static const char *size_text(int64_t bytes, char *out, size_t cap)
{
    const int64_t unit = bytes >= MIB ? MIB : bytes >= KIB ? KIB : 1;
    const char *name = unit == MIB ? "MiB" : unit == KIB ? "KiB" : "B";
    text_format(out, cap, "%lld %s", (long long)(bytes / unit), name);
    return out;
}

/* add_speed — adds a row for the speed. On GPUs the links are judged by comparison with other
 * nodes; on hosts the stage "node" judges the memory. */
static void add_speed(struct groups *g, const struct group *group,
                      const struct measure_collective_call *call, double best, double median,
                      int runs)
{
    const struct comm_place *place = comm_place(group->comm);
    const bool is_small = call->bytes < SMALL_BYTES;
    const double rate = bus_bandwidth(call->collective, call->bytes, place->ranks, best);
    const double value = is_small ? best : rate;
    char name[sizeof(((struct check_row *)0)->name)];
    if (place->rank != 0)
        return;
    /* "all_reduce 1 MiB between nodes" */
    char size[32];
    text_format(name, sizeof name, "%s %s%s%s", bus_bandwidth_name(call->collective),
                size_text(call->bytes, size, sizeof size), group->where[0] != 0 ? " " : "",
                group->where);
    struct check_row row =
        check_row_measured(CHECK_STAGE_GROUPS, CHECK_POINT_COLLECTIVE_SPEED, g->place->node, name,
                           is_small ? "us" : "GB/s", value,
                           is_small ? CHECK_BETTER_LOWER : CHECK_BETTER_HIGHER, 0.05 * value);
    if (!comm_stays_on_device(g->config->comm))
        row.verdict = CHECK_VERDICT_PASS;
    text_format(row.subject, sizeof row.subject, "%d ranks, %s", place->ranks,
                comm_backend(g->config->comm));
    /* The published limits are for the eight GPUs of a node. */
    struct dev_info info;
    if (comm_stays_on_device(g->config->comm) && place->nodes == 1 && place->ranks == 8) {
        dev_info(g->config->dev, &info);
        check_judge_gpu(info.name, row.hardware, sizeof row.hardware);
    }
    text_format(row.why, sizeof row.why,
                "%.0f us at best, %.0f at the median of %d runs; bus bandwidth %.3f and %.3f GB/s",
                best, median, runs, rate,
                bus_bandwidth(call->collective, call->bytes, place->ranks, median));
    check_row_add(g->rows, &row);
}

/* run_step — runs one collective at one size. *late_out: the next, larger step would not end in
 * time; the same on all members. */
static enum status run_step(struct groups *g, struct group *group,
                            const struct measure_collective_call *call, bool *late_out)
{
    enum { WRONG, LATE, US, VALUES };
    double worst[VALUES], best, median; /* worst: the worst of all members */
    int64_t wrong;
    const int64_t begin_ms = clock_ms();
    TRY(measure_collective_right(&g->memory, group->comm, call, &wrong, &worst[US]));
    worst[WRONG] = (double)wrong;
    worst[LATE] = clock_ms() + 2 * (clock_ms() - begin_ms) >= group->end_ms;
    TRY(measure_ranks_max(group->comm, worst, VALUES));
    *late_out = worst[LATE] != 0;
    group->largest[call->collective] = call->bytes;
    group->has_dtype[call->collective][call->dtype] = true;
    if (worst[WRONG] > 0) {
        group->is_wrong[call->collective] = true;
        if (g->fault.wrong == 0)
            g->fault = (struct fault){(int64_t)worst[WRONG], (int32_t)call->collective,
                                      (int32_t)call->dtype, call->bytes};
    }
    if (worst[WRONG] > 0 || call->dtype != DTYPE_F32 || *late_out)
        return ST_OK;
    const double n = (double)g->effort->row_ms * 1e3 / (worst[US] + 1);
    const int runs = n < 2 ? 2 : n > RUNS_MAX ? RUNS_MAX : (int)n;
    TRY(measure_collective_time(&g->memory, group->comm, call, runs, &best, &median));
    add_speed(g, group, call, best, median, runs);
    return ST_OK;
}

static bool is_sum(enum bus_collective collective)
{
    return collective == BUS_COLLECTIVE_ALL_REDUCE || collective == BUS_COLLECTIVE_REDUCE_SCATTER;
}

/* run_dtypes — runs a collective at one size in fp32, and sums up to HALF_BYTES also in bf16 and
 * fp16. */
static enum status run_dtypes(struct groups *g, struct group *group, enum bus_collective collective,
                              int64_t bytes, bool *late_out)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    const int n = is_sum(collective) && bytes > 8 && bytes <= HALF_BYTES ? 3 : 1;
    for (int i = 0; i < n && (i == 0 || !*late_out); i++) {
        const struct measure_collective_call call = {.collective = collective,
                                                     .dtype = dtypes[i],
                                                     .bytes = bytes,
                                                     .is_split = g->is_split,
                                                     .flips = g->config->flips_sums};
        TRY(run_step(g, group, &call, late_out));
    }
    return ST_OK;
}

/* ---- a group ---- */

/* dtypes_text — returns "exact sums in fp32, bf16 and fp16"; 16-bit types are missing if there was
 * not enough time. */
static const char *dtypes_text(const struct group *group, enum bus_collective collective)
{
    const bool *has = group->has_dtype[collective];
    if (!is_sum(collective))
        return "fp32";
    return has[DTYPE_F16]    ? "exact sums in fp32, bf16 and fp16"
           : has[DTYPE_BF16] ? "exact sums in fp32 and bf16"
                             : "exact sums in fp32";
}

/* size_of — returns a size. The second size has a part for every rank of any group. */
static int64_t size_of(const struct group *group, int s)
{
    const int64_t least = comm_place(group->comm)->ranks * (int64_t)PART_ALIGN * 4;
    return s == 1 && sizes[s] < least ? least : sizes[s];
}

/* run_group — runs all collectives of a group. Sizes up to SMALL_BYTES are always run, however late
 * it is, because there every rank has a part of each sum. */
static enum status run_group(struct groups *g, struct group *group)
{
    bool is_late = false;
    for (int s = 0; s < SIZES_MAX && sizes[s] <= g->memory.bytes; s++) {
        const bool is_must = sizes[s] <= SMALL_BYTES;
        for (int c = 0; c < BUS_COLLECTIVE_N && (is_must || !is_late); c++) {
            TRY(run_dtypes(g, group, (enum bus_collective)c, size_of(group, s), &is_late));
            const struct check_config *config = g->config;
            const double all = (double)(g->end_ms - g->begin_ms);
            const double done = all > 0 ? (double)(clock_ms() - g->begin_ms) / all : 1;
            TRY(config->progress != NULL
                    ? config->progress(config->arg, CHECK_STAGE_GROUPS, done < 1 ? done : 1)
                    : ST_OK);
        }
        if (is_late && !is_must)
            break;
    }
    const struct comm_place *place = comm_place(group->comm);
    for (int c = 0; c < BUS_COLLECTIVE_N && place->rank == 0; c++) {
        enum bus_collective collective = (enum bus_collective)c;
        char size[32];
        if (group->is_wrong[c])
            continue;
        struct check_row row =
            check_row_found(CHECK_STAGE_GROUPS, CHECK_POINT_COLLECTIVES, g->place->node,
                            bus_bandwidth_name(collective), CHECK_VERDICT_PASS,
                            "every element right, %s, 8 B to %s", dtypes_text(group, collective),
                            size_text(group->largest[collective], size, sizeof size));
        text_format(row.subject, sizeof row.subject, "%d ranks, %s%s%s", place->ranks,
                    comm_backend(g->config->comm), group->where[0] != 0 ? ", " : "", group->where);
        check_row_add(g->rows, &row);
    }
    return ST_OK;
}

/* run_split — runs a group that is split off only for its calls. */
static enum status run_split(struct groups *g, const int *ranks, int n, const char *where,
                             int64_t end_ms)
{
    struct group group = {.where = where, .end_ms = end_ms};
    TRY(comm_split(g->config->comm, ranks, n, &group.comm));
    enum status st = run_group(g, &group);
    comm_close(group.comm);
    return st;
}

/* ---- wrong results ---- */

struct isolate {
    const struct measure_collective_memory *memory;
    struct comm *comm;
    struct measure_collective_call call;
    const struct comm_place *place;
    struct check_bisect bisect;
    int *group_of, *ranks; /* group of each rank; members of this rank's group */
    int64_t *wrong;        /* wrong elements of each rank */
    bool *failed;          /* result of each group */
};

/* test_group — makes the call in this rank's group. *wrong_out: number of wrong elements on this
 * rank. */
static enum status test_group(const struct isolate *s, int group, int64_t *wrong_out)
{
    struct measure_collective_call call = s->call;
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
        st = measure_collective_right(s->memory, split, &call, &wrong, &us);
        *wrong_out += wrong;
    }
    comm_close(split);
    return st;
}

/* test_round — tests all groups of one round at the same time; then all ranks get the failures. */
static enum status test_round(struct isolate *s, int groups)
{
    const int mine = s->group_of[s->place->rank];
    int64_t wrong = 0;
    if (mine >= 0)
        TRY(test_group(s, mine, &wrong));
    TRY(measure_ranks_gather(s->comm, &wrong, sizeof wrong, s->wrong));
    for (int g = 0; g < groups; g++)
        s->failed[g] = false;
    for (int r = 0; r < s->place->ranks; r++)
        if (s->group_of[r] >= 0 && s->wrong[r] > 0)
            s->failed[s->group_of[r]] = true;
    check_bisect_report(&s->bisect, s->failed);
    return ST_OK;
}

static void add_member(const struct isolate *s, int rank, struct check_rows *rows)
{
    const enum check_member kind = s->bisect.member[rank];
    const int node = rank / s->place->locals;
    struct check_row row = check_row_found(
        CHECK_STAGE_GROUPS, CHECK_POINT_COLLECTIVES, node, bus_bandwidth_name(s->call.collective),
        CHECK_VERDICT_FAIL, "%s (%d tests of groups in %d rounds)",
        (kind == CHECK_MEMBER_BAD
             ? "every group with this rank has wrong results, groups without it have right ones"
         : kind == CHECK_MEMBER_COMBINATION
             ? "each half of its group is right by itself, both together are wrong: a link between "
               "them, or a fault that comes and goes"
             : "its group has wrong results, and no rank is known to be good to test it with"),
        s->bisect.tests, s->bisect.rounds);
    row.rank = rank;
    text_format(row.subject, sizeof row.subject, "rank %d", rank);
    text_copy(row.remedy, sizeof row.remedy,
              dev_cuda_chosen() == DEV_GPU_HIP
                  ? "amd-smi metric --ecc; memtester 1G 3; edac-util -v # take the node out first; "
                    "the first is for GPUs"
                  : "nvidia-smi -q -d ECC,ROW_REMAPPER; dcgmi diag -r 3; memtester 1G 3; edac-util "
                    "-v # take the node out first; the first two are for GPUs");
    check_row_add(rows, &row);
}

static void add_members(const struct isolate *s, int64_t wrong, struct check_rows *rows)
{
    int named = 0;
    for (int r = 0; r < s->place->ranks; r++) {
        const enum check_member kind = s->bisect.member[r];
        if (kind == CHECK_MEMBER_GOOD || kind == CHECK_MEMBER_UNKNOWN)
            continue;
        add_member(s, r, rows);
        named++;
    }
    if (named == 0) {
        struct check_row row = check_row_found(
            CHECK_STAGE_GROUPS, CHECK_POINT_COLLECTIVES, -1, bus_bandwidth_name(s->call.collective),
            CHECK_VERDICT_FAIL,
            "%lld elements were wrong once, and none when the groups were tested again",
            (long long)wrong);
        text_copy(row.remedy, sizeof row.remedy,
                  "convoy check CHECK=full SOAK=30m # on the same nodes, then on halves of them");
        check_row_add(rows, &row);
    }
}

/* isolate_ranks — finds the ranks that make a collective wrong by testing subsets of the ranks
 * (links/bisect.h), and writes a row for each on rank 0. Collective over all ranks. call: the wrong
 * call; flips is the rank's own. wrong: elements on the rank with the most. */
static enum status isolate_ranks(const struct measure_collective_memory *memory, struct comm *comm,
                                 const struct measure_collective_call *call, int64_t wrong,
                                 struct check_rows *rows)
{
    struct isolate s = {.memory = memory, .comm = comm, .call = *call, .place = comm_place(comm)};
    const size_t n = (size_t)s.place->ranks;
    s.group_of = memory_new(n, sizeof *s.group_of);
    s.ranks = memory_new(n, sizeof *s.ranks);
    s.wrong = memory_new(n, sizeof *s.wrong);
    s.failed = memory_new(n, sizeof *s.failed);
    check_bisect_init(&s.bisect, s.place->ranks, 2);
    int groups = 0;
    enum status st = ST_OK;
    while (st == ST_OK && (groups = check_bisect_round(&s.bisect, s.group_of)) > 0)
        st = test_round(&s, groups);
    if (st == ST_OK && s.place->rank == 0)
        add_members(&s, wrong, rows);
    check_bisect_free(&s.bisect);
    free(s.group_of);
    free(s.ranks);
    free(s.wrong);
    free(s.failed);
    return st;
}

static enum status trace_fault(struct groups *g)
{
    /* All ranks use the first rank's fault, whichever group it occurred in. */
    struct fault fault = {0};
    struct fault *all = memory_new((size_t)g->place->ranks, sizeof *all);
    enum status st = measure_ranks_gather(g->config->comm, &g->fault, sizeof g->fault, all);
    for (int r = g->place->ranks - 1; r >= 0 && st == ST_OK; r--)
        if (all[r].wrong > 0)
            fault = all[r];
    free(all);
    TRY(st);
    if (fault.wrong == 0)
        return ST_OK;
    const struct measure_collective_call call = {.collective =
                                                     (enum bus_collective)fault.collective,
                                                 .dtype = (enum dtype)fault.dtype,
                                                 .bytes = fault.bytes,
                                                 .is_split = g->is_split,
                                                 .flips = g->config->flips_sums};
    return isolate_ranks(&g->memory, g->config->comm, &call, fault.wrong, g->rows);
}

/* ---- the stage ---- */

static int64_t wanted_bytes(const struct groups *g)
{
    const bool is_device = comm_stays_on_device(g->config->comm);
    int64_t bytes = is_device ? g->effort->device_bytes : g->effort->host_bytes;
    int64_t left = memory_free();
    if (is_device) {
        struct dev_info info;
        dev_info(g->config->dev, &info);
        left = info.free_bytes >= 0 ? info.free_bytes * g->place->locals : left;
    }
    while (left >= 0 && bytes > MIB && bytes > left / g->place->locals / MEMORY_SHARE)
        bytes /= 2;
    return bytes;
}

static enum status run_all(struct groups *g)
{
    const int64_t third_ms = (g->end_ms - g->begin_ms) / 3;
    const bool has_splits = g->place->locals > 1 && g->place->nodes > 1;
    struct group world = {.comm = g->config->comm,
                          .where = "",
                          .end_ms = has_splits ? g->begin_ms + third_ms : g->end_ms};
    double flips = g->config->flips_sums;
    TRY(measure_ranks_max(g->config->comm, &flips, 1));
    g->is_split = flips != 0;
    /* All ranks use the same size, the smallest that any rank can afford. */
    double less = -(double)wanted_bytes(g);
    TRY(measure_ranks_max(g->config->comm, &less, 1));
    const int64_t ranks_bytes = (int64_t)g->place->ranks * KIB; /* a part for every rank */
    const int64_t bytes = -less > (double)ranks_bytes ? (int64_t)-less : ranks_bytes;
    TRY(measure_collective_open(&g->memory, g->config->comm, g->config->dev, bytes, true));
    TRY(run_group(g, &world));
    int *ranks = memory_new((size_t)g->place->ranks, sizeof *ranks);
    enum status st = ST_OK;
    for (int l = 0; l < g->place->locals; l++)
        ranks[l] = g->place->node * g->place->locals + l;
    if (has_splits)
        st = run_split(g, ranks, g->place->locals, "in a node", g->begin_ms + 2 * third_ms);
    for (int node = 0; node < g->place->nodes; node++)
        ranks[node] = node * g->place->locals;
    if (st == ST_OK && has_splits && g->place->local == 0)
        st = run_split(g, ranks, g->place->nodes, "between nodes", g->end_ms);
    free(ranks);
    return st == ST_OK ? trace_fault(g) : st;
}

enum status check_groups_run(const struct check_config *config, int64_t budget_ms,
                             struct check_rows *rows)
{
    if (config->comm == NULL || comm_place(config->comm)->ranks < 2) {
        struct check_row row =
            check_row_found(CHECK_STAGE_GROUPS, CHECK_POINT_COLLECTIVES, config->place.node,
                            "all_reduce", CHECK_VERDICT_SKIPPED, "one rank: there is no group");
        check_row_add(rows, &row);
        return ST_OK;
    }
    struct groups g = {.config = config,
                       .place = comm_place(config->comm),
                       .effort = &efforts[config->depth],
                       .begin_ms = clock_ms(),
                       .rows = rows};
    g.end_ms = g.begin_ms + budget_ms;
    enum status st = run_all(&g);
    measure_collective_close(&g.memory);
    return st;
}

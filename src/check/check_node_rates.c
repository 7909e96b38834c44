/* check_node_rates — rates that all ranks measure at once, and again where one is suspect. */
#include "check/check_node_inside.h"

#include <stdlib.h>

#include <xxhash.h>

#include "base/text.h"

#define ROUNDS 3    /* of measuring again */
#define AGAIN_MS 30 /* the first time; then twice as long */
#define SUSPECT 0.9 /* of the peers' median */

/* What ranks tell each other: ranks with the same kind of device are peers. */
struct told {
    uint64_t device;
    double value[CHECK_NODE_KIND_N]; /* 0: not measured */
    char pad[16];
};
_Static_assert(sizeof(struct told) % 16 == 0, "parts of a gather are multiples of 16 bytes");

static bool is_product(enum check_node_kind kind) { return (int)kind < CHECK_NODE_PRODUCTS; }

static const char *name_of(const struct check_node *n, enum check_node_kind kind)
{
    return is_product(kind) ? check_node_product_name(n, kind) : check_node_memory_name(kind);
}

static double value_of(const struct check_node *n, enum check_node_kind kind, const char **unit)
{
    *unit = "";
    if (n->rate[kind].seconds <= 0)
        return 0;
    return is_product(kind) ? check_node_product_value(n, kind, unit)
                            : check_node_memory_value(n, kind, unit);
}

static enum status measure_one(struct check_node *n, enum check_node_kind kind, int64_t limit_ms)
{
    int64_t size = is_product(kind) ? n->sizes.side[kind] : n->sizes.elems;
    if (size == 0)
        return ST_OK;
    enum status st = is_product(kind) ? check_node_product_rate(n, kind, limit_ms)
                                      : check_node_memory_rate(n, kind, limit_ms);
    if (st == ST_OK)
        return ST_OK;
    n->rate[kind] = (struct check_node_best){0};
    if (is_product(kind))
        n->sizes.side[kind] = 0;
    return check_node_failed(n, name_of(n, kind), st);
}

/* ---- suspects ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* median — of the peers of rank `rank`; values: room for all ranks. */
static double median(const struct told *all, int ranks, int rank, int kind, double *values)
{
    int n = 0;
    for (int i = 0; i < ranks; i++)
        if (all[i].device == all[rank].device && all[i].value[kind] > 0)
            values[n++] = all[i].value[kind];
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n ? values[n / 2] : 0;
}

/* find — which of this rank's rates are suspect, and whether any rank has one. Equal on all ranks
 * is what `any` says. */
static void find(const struct told *all, int ranks, int rank, double *values, bool *suspect,
                 bool *any)
{
    for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++) {
        uint64_t device = 0;
        double middle = 0;
        for (int i = 0; i < ranks; i++) {
            if (i == 0 || all[i].device != device)
                middle = median(all, ranks, i, kind, values);
            device = all[i].device;
            bool is_slow = all[i].value[kind] > 0 && all[i].value[kind] < SUSPECT * middle;
            *any = *any || is_slow;
            if (i == rank)
                suspect[kind] = is_slow;
        }
    }
}

static enum status share(const struct check_node *n, struct told *all)
{
    const struct comm_place *place = &n->config->place;
    struct told *own = &all[place->rank];
    const char *device = n->is_gpu ? n->hardware : "cpu", *unit;
    *own = (struct told){.device = XXH3_64bits(device, n->is_gpu ? sizeof n->hardware : 3)};
    for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++)
        own->value[kind] = value_of(n, (enum check_node_kind)kind, &unit);
    return comm_all_gather(n->config->comm, (struct tensor){all, DTYPE_U8},
                           (struct tensor){own, DTYPE_U8},
                           (int64_t)place->ranks * (int64_t)sizeof *all);
}

static enum status again(struct check_node *n, struct told *all, double *values)
{
    for (int round = 0; round < ROUNDS; round++) {
        bool suspect[CHECK_NODE_KIND_N] = {false}, any = false;
        TRY(share(n, all));
        find(all, n->config->place.ranks, n->config->place.rank, values, suspect, &any);
        if (!any)
            return ST_OK;
        for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++)
            if (suspect[kind])
                TRY(measure_one(n, (enum check_node_kind)kind, AGAIN_MS << round));
    }
    return ST_OK;
}

static enum status measure_suspects(struct check_node *n)
{
    const int ranks = n->config->place.ranks;
    if (!n->config->comm)
        return ST_OK;
    struct told *all = calloc((size_t)ranks, sizeof *all);
    double *values = calloc((size_t)ranks, sizeof *values);
    enum status st = all && values ? again(n, all, values)
                                   : FAIL(ST_RETRY, "out of memory: rates of %d ranks", ranks);
    free(all);
    free(values);
    return st;
}

/* ---- rows ---- */

static enum status add_row(struct check_node *n, enum check_node_kind kind)
{
    char why[128];
    const char *unit;
    const double value = value_of(n, kind, &unit);
    const struct check_node_best *best = &n->rate[kind];
    if (value <= 0)
        return ST_OK;
    if (is_product(kind))
        text_format(why, sizeof why, "the best of %d products of %lld x %lld x %lld numbers",
                    best->slices, (long long)n->sizes.side[kind], (long long)n->sizes.side[kind],
                    (long long)n->sizes.side[kind]);
    else
        text_format(why, sizeof why, "the best of %d runs over %lld MB", best->slices,
                    (long long)n->sizes.elems * 4 / 1000000);
    return check_node_add(n, name_of(n, kind), unit, value, check_node_time_slack(best, value),
                          why);
}

static enum status add_skipped(struct check_node *n)
{
    struct check_row row = check_row_found(
        CHECK_STAGE_NODE, CHECK_POINT_HOST, n->config->place.node, "copy bandwidth",
        CHECK_VERDICT_SKIPPED, "a quick check does not measure the memory of a CPU");
    row.rank = n->config->place.rank;
    return row.rank == 0 ? check_rows_add(n->rows, &row) : ST_OK;
}

enum status check_node_rates_measure(struct check_node *n)
{
    if (n->config->comm)
        TRY(comm_barrier(n->config->comm));
    for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++)
        TRY(measure_one(n, (enum check_node_kind)kind, n->limit_ms));
    TRY(measure_suspects(n));
    for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++)
        TRY(add_row(n, (enum check_node_kind)kind));
    return n->buffer_bytes == 0 ? add_skipped(n) : ST_OK;
}

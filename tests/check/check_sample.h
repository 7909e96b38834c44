/* check_sample — rows for tests of judging and of reports. */
#ifndef CONVOY_TESTS_CHECK_SAMPLE_H
#define CONVOY_TESTS_CHECK_SAMPLE_H

#include "check/report/host.h"
#include "check/check_row.h"

static inline struct check_row *sample_add(struct check_rows *rows, struct check_row row)
{
    check_row_add(rows, &row);
    return &rows->row[rows->n - 1];
}

/* A GPU's rate: higher is better. */
static inline struct check_row *sample_rate(struct check_rows *rows, int node, double value)
{
    return sample_add(rows, check_row_measured(CHECK_STAGE_NODE, CHECK_POINT_ONE_DEVICE, node,
                                               "rate", "GB/s", value, CHECK_BETTER_HIGHER, 0));
}

/* A link's latency, which has its verdict: lower is better. */
static inline struct check_row *sample_link(struct check_rows *rows, int node, int peer,
                                            double value)
{
    struct check_row row = check_row_measured(CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, node,
                                              "link latency", "us", value, CHECK_BETTER_LOWER, 5);
    row.verdict = CHECK_VERDICT_PASS;
    row.peer = peer;
    return sample_add(rows, row);
}

static inline void sample_hosts(struct check_rows *rows, int nodes, enum check_scheduler scheduler)
{
    char name[32];
    for (int node = 0; node < nodes; node++) {
        snprintf(name, sizeof name, "gpu-%d", node);
        sample_add(rows, check_host_row(node, scheduler, name));
    }
}

#endif

/* plan_advice — see plan_advice.h. */
#include "plan/plan_advice.h"

#include <stdlib.h>

/* A job, and what other numbers of nodes are compared with. */
struct base {
    const struct plan_job *job;
    const struct plan_search_fixed *fixed;
    const struct plan_search *found; /* on the job's nodes */
    bool is_auto;                    /* the job is the first found */
    double tokens_per_second;        /* of the job */
};

static double rate_of(const struct plan_job *job)
{
    struct plan_estimate estimate;
    bool is_made = plan_memory_fits(job) && plan_estimate_make(job, &estimate) == ST_OK;
    status_clear();
    return is_made ? estimate.tokens_per_second : 0;
}

static void set_nodes(double rate, double than, const struct base *base,
                      struct plan_advice_nodes *out)
{
    out->is_known = rate > 0 && than > 0;
    out->tokens_per_second = rate;
    if (out->is_known)
        out->speed_ratio = out->nodes > base->job->at.nodes ? rate / than : than / rate;
}

/* search_nodes — the fastest way on other nodes beside the fastest on the job's. */
static enum status search_nodes(const struct base *base, const struct plan_job *other,
                                struct plan_advice_nodes *out)
{
    const struct plan_search *found = base->found;
    if (found->found_n == 0 || out->nodes > PLAN_ADVICE_SEARCHED_MAX)
        return ST_OK;
    struct plan_search *space = malloc(sizeof *space);
    if (!space)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to search meshes", sizeof *space);
    enum status st = plan_search_make(other, base->fixed, space);
    if (st == ST_OK && space->found_n > 0)
        set_nodes(space->fastest_tokens_per_second, found->fastest_tokens_per_second, base, out);
    free(space);
    return st;
}

static enum status try_nodes(const struct base *base, int nodes, struct plan_advice_nodes *out)
{
    struct plan_job other;
    bool is_same = plan_job_nodes(base->job, nodes, &other) && !base->is_auto;
    *out = (struct plan_advice_nodes){.nodes = nodes};
    if (is_same)
        set_nodes(rate_of(&other), base->tokens_per_second, base, out);
    return out->is_known ? ST_OK : search_nodes(base, &other, out);
}

enum status plan_advice_make(const struct plan_job *job, const struct plan_search_fixed *fixed,
                             const struct plan_search *found, struct plan_advice *out)
{
    const int nodes = job->at.nodes, most = job->cluster->nodes;
    *out = (struct plan_advice){.less = {.is_known = false}};
    if (!found)
        TRY(plan_search_make(job, fixed, &out->search));
    const struct base base = {job, fixed, found ? found : &out->search, found != NULL,
                              rate_of(job)};
    if (nodes > 1)
        TRY(try_nodes(&base, nodes - 1, &out->less));
    if (job->cluster->across.bytes_per_second <= 0 || nodes == PLAN_CLUSTER_NODES_MAX ||
        (most > 0 && nodes >= most))
        return ST_OK;
    return try_nodes(&base, nodes + 1, &out->more);
}

bool plan_advice_is_worth(double speed_ratio, int nodes)
{
    double ideal = 1.0 / (nodes - 1);
    return speed_ratio - 1 >= ideal * PLAN_ADVICE_WORTH;
}

/* check_agree — stage 0 of a check: compares the properties that should be equal on all ranks.
 * Every rank sends its facts; rank 0 compares them and names the nodes that differ from the
 * majority. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "check/check.h"
#include "measure/measure_ranks.h"

#define LISTED_MAX 5
#define WHY_MAX sizeof((struct check_row *)0)->why

/* ---- rank 0 compares ---- */

struct agree {
    const struct check_config *config;
    const struct measure_shared *facts;
    const char **values; /* values of one fact, by rank */
    int *most;           /* by fact: a rank that has the most frequent value */
    struct check_rows *rows;
};

/* value_of — returns the value of a fact on a rank. The rank's text is name, 0, value, 0 …; "": it
 * has none. */
static const char *value_of(const struct agree *a, int rank, int fact)
{
    const char *text = a->facts->all + rank * a->facts->stride, *end = text + a->facts->n[rank];
    const char *name = a->config->facts[fact].name;
    while (text < end) {
        const char *value = text + strlen(text) + 1;
        if (strcmp(text, name) == 0)
            return value;
        text = value + strlen(value) + 1;
    }
    return "";
}

/* count_of — returns the number of ranks with the value of `rank`. */
static int count_of(const struct agree *a, int rank)
{
    int n = 0;
    for (int r = 0; r < a->config->place.ranks; r++)
        n += strcmp(a->values[r], a->values[rank]) == 0;
    return n;
}

/* choose_most — returns the lowest rank with the most frequent value. Ranks of a node mostly agree,
 * so a value equal to the previous rank's was counted already. */
static int choose_most(const struct agree *a)
{
    int best = 0, best_n = 0;
    for (int r = 0; r < a->config->place.ranks; r++) {
        bool is_new = r == 0 || strcmp(a->values[r], a->values[r - 1]) != 0;
        int n = is_new && a->values[r][0] ? count_of(a, r) : 0;
        if (n > best_n)
            best = r, best_n = n;
    }
    return best;
}

/* differing_rank — returns the first rank of a node whose value of a fact differs from the most
 * frequent one; -1: none. */
static int differing_rank(const struct agree *a, int node, int fact)
{
    int locals = a->config->place.locals;
    const char *most = value_of(a, a->most[fact], fact);
    for (int r = node * locals; r < (node + 1) * locals; r++) {
        const char *own = value_of(a, r, fact);
        if (own[0] && strcmp(own, most) != 0)
            return r;
    }
    return -1;
}

/* compare_node — adds one row about all facts [first, last) in which a node differs. */
static void compare_node(const struct agree *a, int node, int first, int last, int *differing)
{
    const struct check_fact *facts = a->config->facts;
    struct check_row row = check_row_found(CHECK_STAGE_AGREEMENT, facts[first].point, node,
                                           facts[first].group, CHECK_VERDICT_PASS, "%s", "");
    for (int i = first; i < last; i++) {
        int rank = differing_rank(a, node, i);
        if (rank < 0)
            continue;
        if (!facts[i].is_warning || row.verdict == CHECK_VERDICT_PASS)
            row.verdict = facts[i].is_warning ? CHECK_VERDICT_WARN : CHECK_VERDICT_FAIL;
        if (!row.remedy[0])
            text_copy(row.remedy, sizeof row.remedy, facts[i].remedy);
        /* One fact in the message about a node: "LR is 3e-4 here and 1e-4 on node 0". */
        size_t used = strlen(row.why);
        int most = a->most[i];
        text_format(row.why + used, WHY_MAX - used, "%s%s is %s here and %s on node %d",
                    used > 0 ? "; " : "", a->config->facts[i].name, value_of(a, rank, i),
                    value_of(a, most, i), most / a->config->place.locals);
    }
    if (row.verdict == CHECK_VERDICT_PASS)
        return;
    (*differing)++;
    check_row_add(a->rows, &row);
}

static void compare_facts(const struct agree *a)
{
    const struct check_config *config = a->config;
    for (int first = 0, last; first < config->facts_n; first = last) {
        for (last = first + 1; last < config->facts_n &&
                               strcmp(config->facts[first].group, config->facts[last].group) == 0;
             last++)
            continue;
        int differing = 0;
        for (int i = first; i < last; i++) {
            for (int r = 0; r < a->config->place.ranks; r++)
                a->values[r] = value_of(a, r, i);
            a->most[i] = choose_most(a);
        }
        for (int node = 0; node < a->config->place.nodes; node++)
            compare_node(a, node, first, last, &differing);
        if (differing == 0) {
            /* "UCX 1.18.1, NVIDIA driver 580.82", or "61 settings" for a long list. */
            const struct check_fact *fact = &config->facts[first];
            char what[192] = "";
            const size_t cap = sizeof what;
            if (last - first > LISTED_MAX)
                text_format(what, cap, "%d %s", last - first, fact->group);
            for (int i = first; i < last && last - first <= LISTED_MAX; i++) {
                const char *value = value_of(a, a->most[i], i);
                size_t used = strlen(what);
                if (value[0])
                    text_format(what + used, cap - used, "%s%s %s", used > 0 ? ", " : "",
                                config->facts[i].name, value);
            }
            const size_t used = strlen(what);
            if (config->place.nodes > 1)
                text_format(what + used, cap - used, ": the same on %d nodes", config->place.nodes);
            struct check_row row = check_row_found(CHECK_STAGE_AGREEMENT, fact->point, -1,
                                                   fact->group, CHECK_VERDICT_PASS, "%s", what);
            check_row_add(a->rows, &row);
        }
    }
}

enum status check_agree_run(const struct check_config *config, int64_t budget_ms,
                            struct check_rows *rows)
{
    struct text own = {0};
    struct measure_shared facts = {0};
    (void)budget_ms; /* this stage needs milliseconds */
    for (int i = 0; i < config->facts_n; i++) {
        const struct check_fact *fact = &config->facts[i];
        text_add_bytes(&own, fact->name, strlen(fact->name) + 1);
        text_add_bytes(&own, fact->value, strlen(fact->value) + 1);
    }
    enum status st = own.overflow ? FAIL(ST_RETRY, "out of memory: the facts of this rank") : ST_OK;
    if (st == ST_OK)
        st = measure_ranks_share(config->comm, own.data, own.len, &facts);
    if (st == ST_OK && config->place.rank == 0 && config->facts_n > 0) {
        struct agree a = {.config = config, .facts = &facts, .rows = rows};
        a.values = memory_new((size_t)config->place.ranks, sizeof *a.values);
        a.most = memory_new((size_t)config->facts_n, sizeof *a.most);
        compare_facts(&a);
        free(a.values);
        free(a.most);
    }
    if (st == ST_OK && config->place.local == 0) {
        /* One rank of each node adds the name of the node. */
        struct check_row row = check_host_row(config->place.node, config->scheduler, config->host);
        check_row_add(rows, &row);
    }
    measure_ranks_share_free(&facts);
    text_free(&own);
    return st;
}

/* check_pairs — stage "pairs" of check.h: every link by itself.
 *
 * The ranks of each node play a tournament, then the first ranks of all nodes: half as many pairs
 * as ranks measure at a time. All ranks get all numbers, find the same suspects, and measure each
 * suspect again while the others wait (links/links.h). Must not know which values are normal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "check/check.h"
#include "check/links/bisect.h"
#include "check/links/links.h"
#include "check/report/text.h"
#include "measure/measure_ranks.h"

#define AGAIN_TIMES_LATE 2  /* replaces CHECK_LINKS_AGAIN_TIMES if the time is over */
#define FLOOR_NETWORK_US 50 /* microseconds: interrupts that a card combines, cores that sleep */
#define FLOOR_MEMORY_US 20
#define ROW_NODES_MAX 128 /* with more nodes only bad links have rows of their own */

/* Limits of each depth. */
struct effort {
    struct measure_link_plan plan, alone, alone_loss;
    int64_t bulk_cap;
    int jobs_max;     /* most jobs of the second look */
    int all_pairs_to; /* up to this number of members, all meet one another */
};

static const struct effort efforts[] = {
    [CHECK_DEPTH_QUICK] = {{200, 20, 150, 4, 4, 5, 40, 0},
                           {200, 20, 200, 5, 6, 8, 80, 0},
                           {600, 100, 3000, 5, 0, 0, 0, 0},
                           (int64_t)32 << 20,
                           12,
                           16},
    [CHECK_DEPTH_STANDARD] = {{500, 30, 400, 5, 8, 10, 120, 0},
                              {500, 30, 500, 5, 8, 15, 200, 0},
                              {1000, 200, 5000, 6, 0, 0, 0, 0},
                              (int64_t)64 << 20,
                              32,
                              64},
    [CHECK_DEPTH_FULL] = {{2000, 50, 1500, 5, 16, 20, 500, 0},
                          {2000, 50, 1500, 5, 16, 25, 600, 0},
                          {2000, 500, 9000, 8, 0, 0, 0, 0},
                          (int64_t)128 << 20,
                          CHECK_LINKS_AGAIN_MAX,
                          COMM_RANKS_MAX},
};

/* Members that meet one another: rank of member i = first + i · stride. */
struct contest {
    bool is_local;
    int members, me; /* member of this rank; -1: it is none of them */
    int first, stride, rounds;
    int64_t end_ms; /* clock_ms */
    struct check_links_kind kind;
    struct check_link *links;
    int n;
};

struct pairs {
    const struct check_config *config;
    const struct comm_place *place;
    const struct effort *effort;
    struct measure_link link;
    int64_t begin_ms, end_ms; /* clock_ms, of this stage */
    struct check_rows *rows;
};

/* ---- the first look ---- */

/* count_rounds — returns the number of rounds that fit into the time: all of them for few members,
 * else enough to distinguish a bad member from a bad link. */
static int count_rounds(const struct pairs *p, int members, int64_t ms)
{
    const struct measure_link_plan *plan = &p->effort->plan;
    const int all = check_bisect_pair_rounds(members);
    const int64_t round_ms = plan->ping_ms + 2 * plan->bulk_ms;
    int rounds = 2;
    for (int m = members; m > 1; m /= 2)
        rounds++;
    if (members <= p->effort->all_pairs_to)
        rounds = all;
    if (rounds > ms / round_ms)
        rounds = (int)(ms / round_ms);
    rounds = rounds < 3 ? 3 : rounds;
    return rounds > all ? all : rounds;
}

static enum status tell_progress(const struct pairs *p, double done)
{
    const struct check_config *config = p->config;
    return config->progress != NULL ? config->progress(config->arg, CHECK_STAGE_PAIRS, done)
                                    : ST_OK;
}

/* play_tournament — plays the tournament. Each round has its own end: otherwise, on a busy machine,
 * the first rounds would use the time of the last ones, whose links would be measured worse than
 * the others. */
static enum status play_tournament(struct pairs *p, const struct contest *c,
                                   struct measure_link_found *mine)
{
    const int64_t begin_ms = clock_ms(), end_ms = begin_ms + (c->end_ms - begin_ms) * 2 / 3;
    for (int round = 0; round < c->rounds && c->me >= 0; round++) {
        const int peer = check_bisect_pair(c->members, round, c->me);
        struct measure_link_plan plan = p->effort->plan;
        plan.end_ms = begin_ms + (end_ms - begin_ms) * (round + 1) / c->rounds;
        if (peer >= 0)
            TRY(measure_link_measure(&p->link, c->first + peer * c->stride, &plan, &mine[round]));
        TRY(tell_progress(p, 0.6 * (round + 1) / c->rounds));
    }
    return ST_OK;
}

static enum status first_look(struct pairs *p, struct contest *c)
{
    const size_t each = sizeof(struct measure_link_found) * (size_t)c->rounds;
    struct measure_link_found *mine = memory_new(1, each),
                              *all = memory_new((size_t)p->place->ranks, each);
    enum status st = play_tournament(p, c, mine);
    if (st == ST_OK)
        st = measure_ranks_gather(p->config->comm, mine, (int64_t)each, all);
    if (st == ST_OK) {
        /* The links have the same order on each rank. */
        const int n = p->place->ranks * c->rounds;
        c->links = memory_new((size_t)n + 1, sizeof *c->links);
        for (int i = 0; i < n; i++)
            if (all[i].pings > 0)
                c->links[c->n++] = (struct check_link){.found = all[i], .suspect = -1};
    }
    free(mine);
    free(all);
    return st;
}

/* ---- the second look ---- */

/* copy_found — returns the results of all links; the caller frees them. */
static struct measure_link_found *copy_found(const struct contest *c)
{
    struct measure_link_found *found = memory_new((size_t)c->n, sizeof *found);
    for (int i = 0; i < c->n; i++)
        found[i] = c->links[i].found;
    return found;
}

static double floor_us(const struct contest *c)
{
    const bool is_memory = c->is_local || strcmp(c->kind.transport, "threads") == 0;
    return is_memory ? FLOOR_MEMORY_US : FLOOR_NETWORK_US;
}

static bool is_needed(const struct check_links_again *again, int job)
{
    return job >= again->suspects || again->open[job] != 0;
}

/* run_job — runs one job: the two ends measure, all others wait until it ends. */
static enum status run_job(struct pairs *p, const struct contest *c,
                           const struct check_links_again *again, int job,
                           struct measure_link_found *mine)
{
    const struct measure_link_found *found = &c->links[again->link[job]].found;
    /* Measure a suspect again only for its possible problems. */
    const unsigned loss = CHECK_LINKS_LOSS | CHECK_LINKS_LOSS_BACK;
    const unsigned rate = CHECK_LINKS_RATE | CHECK_LINKS_RATE_BACK;
    const unsigned open = job < again->suspects ? again->open[job] : rate;
    struct measure_link_plan plan = (open & loss) != 0 ? p->effort->alone_loss : p->effort->alone;
    plan.slices = (open & rate) != 0 ? p->effort->alone.slices : 0;
    plan.slice_ms = p->effort->alone.slice_ms;
    plan.bulk_ms = p->effort->alone.bulk_ms;
    plan.end_ms = INT64_MAX;
    const int rank = p->place->rank;
    if (rank == found->a || rank == found->b)
        TRY(measure_link_measure(&p->link, rank == found->a ? found->b : found->a, &plan, mine));
    return comm_barrier(p->config->comm);
}

/* merge_results — adds the leaders' results to the best of each link, and closes the problems that
 * have disappeared. */
static void merge_results(struct contest *c, struct check_links_again *again,
                          const struct measure_link_found *all, bool is_last)
{
    for (int job = 0; job < again->n; job++) {
        struct check_link *link = &c->links[again->link[job]];
        if (!is_needed(again, job))
            continue;
        const struct measure_link_found *found = &all[(int64_t)link->found.a * again->n + job];
        check_links_merge(&link->again, found);
        link->is_tested = true;
        if (job >= again->suspects)
            again->normal[again->normal_n++] = *found;
    }
    /* The normal values of a link by itself: from the best of each reference, and from the worst of
     * all measurements. */
    struct measure_link_found best[CHECK_LINKS_AGAIN_NORMAL];
    struct check_links_norm each;
    const int n = again->n - again->suspects;
    for (int i = 0; i < n; i++)
        best[i] = c->links[again->link[again->suspects + i]].again;
    check_links_norm(best, n, 0.5, floor_us(c), &c->kind.alone);
    check_links_norm(again->normal, again->normal_n, 0.5, floor_us(c), &each);
    c->kind.alone.rate_least = each.rate_least;
    c->kind.alone.best_most_us = each.best_most_us;
    for (int job = 0; job < again->suspects; job++) {
        const struct check_link *link = &c->links[again->link[job]];
        again->open[job] =
            check_links_confirm(&link->again, again->open[job], &c->kind.alone, is_last);
    }
}

static int count_open(const struct check_links_again *again)
{
    int n = 0;
    for (int job = 0; job < again->suspects; job++)
        n += again->open[job] != 0;
    return n;
}

/* ask_late — determines whether the time of this contest is over. The same on all ranks. */
static enum status ask_late(const struct pairs *p, const struct contest *c, bool *late_out)
{
    double late = clock_ms() >= c->end_ms;
    TRY(measure_ranks_max(p->config->comm, &late, 1));
    *late_out = late != 0;
    return ST_OK;
}

static enum status second_look(struct pairs *p, struct contest *c)
{
    struct check_links_again again = {0};
    bool is_last = false;
    /* With few members the better quarter of the links is the norm, because one bad node of 4 has
     * half of the links. */
    struct measure_link_found *found = copy_found(c);
    check_links_norm(found, c->n, p->place->nodes < 8 ? 0.25 : 0.5, floor_us(c), &c->kind.norm);
    free(found);
    for (int i = 0; i < c->n && !c->kind.is_host_memory; i++)
        c->links[i].flags = check_links_suspect(&c->links[i].found, &c->kind.norm);
    check_links_list(c->links, c->n, &c->kind, p->effort->jobs_max, &again);
    if (again.suspects == 0)
        return ST_OK;
    for (int k = 1; !is_last && count_open(&again) > 0; k++) {
        /* Run all jobs once, each by itself. */
        const size_t each = sizeof(struct measure_link_found) * (size_t)again.n;
        struct measure_link_found *mine = memory_new(1, each),
                                  *all = memory_new((size_t)p->place->ranks, each);
        bool is_late = false;
        enum status st = ST_OK;
        for (int job = 0; job < again.n && st == ST_OK; job++)
            if (is_needed(&again, job))
                st = run_job(p, c, &again, job, &mine[job]);
        if (st == ST_OK)
            st = measure_ranks_gather(p->config->comm, mine, (int64_t)each, all);
        if (st == ST_OK)
            st = ask_late(p, c, &is_late);
        is_last = k >= (is_late ? AGAIN_TIMES_LATE : CHECK_LINKS_AGAIN_TIMES);
        if (st == ST_OK)
            merge_results(c, &again, all, is_last);
        free(mine);
        free(all);
        TRY(st);
        TRY(tell_progress(p, 0.6 + 0.4 * k / CHECK_LINKS_AGAIN_TIMES));
    }
    for (int job = 0; job < again.suspects; job++)
        c->links[again.link[job]].bad = again.open[job];
    check_links_blame(c->links, c->n);
    return ST_OK;
}

/* ---- rows: of one link, then of all links ---- */

/* For both ends; the interface is this node's. */
#define REMEDY_LINK                                                                          \
    "d=%s; ethtool $d | grep Speed; ethtool -S $d | grep -iE 'err|drop|crc'; tc qdisc show " \
    "dev $d # on both nodes; tc qdisc del dev $d root ends a limit; else cable, switch"
#define REMEDY_LATENCY                                                                          \
    "d=%s; tc -s qdisc show dev $d; ip route # on both nodes, and tracepath to the other one: " \
    "a full queue, or a longer route"

static int node_of(const struct check_links_kind *kind, int rank) { return rank / kind->locals; }

/* set_ends — writes "node 2 - node 5" or "rank 4 -> rank 6"; way -1: both ways. */
static void set_ends(const struct check_links_kind *kind, const struct check_link *link, int way,
                     struct check_row *row)
{
    const struct measure_link_found *f = &link->found;
    const int from = way == 1 ? f->b : f->a, to = way == 1 ? f->a : f->b;
    const int node = node_of(kind, from), peer = node_of(kind, to);
    row->node = node;
    row->peer = kind->is_local ? -1 : peer;
    row->rank = kind->is_local ? from : -1;
    text_format(row->subject, sizeof row->subject, "%s %d %s %s %d",
                kind->is_local ? "rank" : "node", kind->is_local ? from : node,
                way < 0 ? "-" : "->", kind->is_local ? "rank" : "node", kind->is_local ? to : peer);
    if (!kind->is_local && link->suspect >= 0)
        row->suspect = node_of(kind, link->suspect);
}

/* add_scope — appends whether the problem is in one link or in all links of an end. */
static void add_scope(const struct check_links_kind *kind, const struct check_link *link,
                      struct check_row *row)
{
    const size_t used = strlen(row->why), left = sizeof row->why - used;
    if (link->suspect >= 0)
        text_format(row->why + used, left, "; so are all links of %s %d",
                    kind->is_local ? "rank" : "node",
                    kind->is_local ? link->suspect : node_of(kind, link->suspect));
    else
        text_format(row->why + used, left, "; measured again by itself");
}

static void set_remedy(const struct check_links_kind *kind, const char *format,
                       struct check_row *row)
{
    char device[CHECK_TEXT_WORD];
    check_text_word(device, sizeof device, kind->device[0] ? kind->device : "DEVICE", "DEVICE");
    const char *at = strstr(format, "%s");
    text_format(row->remedy, sizeof row->remedy, "%.*s%s%s", (int)(at - format), format, device,
                at + 2);
}

static struct check_row row_of(const struct check_links_kind *kind, const struct check_link *link,
                               int way, const char *name, const char *unit, double value,
                               enum check_better better, double slack)
{
    struct check_row row = check_row_measured(CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, 0, name, unit,
                                              value, better, slack);
    row.verdict = CHECK_VERDICT_PASS; /* the second look decides, not check_judge */
    set_ends(kind, link, way, &row);
    return row;
}

/* show_only — clears the verdict on shared memory. It is as fast as the cores that copy: a process
 * that waits for a core is no bad link, and the stage "node" judges cores and memory. */
static void show_only(const struct check_links_kind *kind, struct check_row *row)
{
    if (!kind->is_host_memory)
        return;
    row->verdict = CHECK_VERDICT_PASS;
    row->slack = NAN;
}

/* explain_pass — writes the reason why a suspect passes. */
static void explain_pass(const struct check_link *link, unsigned flag, struct check_row *row)
{
    const bool is_slow = (link->bad & (CHECK_LINKS_RATE | CHECK_LINKS_RATE_BACK)) != 0;
    if (!((link->flags & flag) != 0 && (link->bad & flag) == 0))
        return;
    text_copy(row->why, sizeof row->why,
              !link->is_tested ? "worse than the others; there was no time to measure it by "
                                 "itself, so it is not judged"
              : flag == CHECK_LINKS_LATENCY && is_slow
                  ? "worse than the others because frames wait at its low rate: see its bandwidth"
                  : "worse than the others while all were measured; not worse by itself, or "
                    "limited by busy cores");
}

static void add_latency(const struct check_links_kind *kind, const struct check_link *link,
                        struct check_rows *rows)
{
    /* Select the measurement that the row reports. If the link is not late, it is the better
     * one. */
    const bool is_late = (link->bad & CHECK_LINKS_LATENCY) != 0;
    const struct measure_link_found *f =
        link->is_tested && (is_late || link->again.best_us < link->found.best_us) ? &link->again
                                                                                  : &link->found;
    const struct check_links_norm *norm = link->is_tested ? &kind->alone : &kind->norm;
    struct check_row row =
        row_of(kind, link, -1, kind->is_local ? "local latency" : "link latency", "us", f->best_us,
               CHECK_BETTER_LOWER, fmax(kind->norm.slack_us, 2 * kind->norm.best_us));
    text_format(row.why, sizeof row.why, "%s: best %.1f us, p50 %.1f, p99 %.1f of %d round trips",
                kind->transport, f->best_us, f->p50_us, f->p99_us, f->pings);
    show_only(kind, &row);
    explain_pass(link, CHECK_LINKS_LATENCY, &row);
    if (link->bad & CHECK_LINKS_LATENCY) {
        row.verdict = CHECK_VERDICT_FAIL;
        row.limit = norm->best_us + fmax(norm->slack_us, 0.2 * norm->best_us);
        text_format(row.why, sizeof row.why, "%.0f us at best over %s, other links %.0f us",
                    f->best_us, kind->transport, norm->best_us);
        add_scope(kind, link, &row);
        set_remedy(kind, REMEDY_LATENCY, &row);
    }
    check_row_add(rows, &row);
}

static void add_rate(const struct check_links_kind *kind, const struct check_link *link, int way,
                     struct check_rows *rows)
{
    const unsigned flag = CHECK_LINKS_RATE << way;
    const struct measure_link_way *w = &link->again.way[way];
    const struct check_links_norm *norm = w->bulk_bytes > 0 ? &kind->alone : &kind->norm;
    if (w->bulk_bytes == 0 || ((link->bad & flag) == 0 && w->rate < link->found.way[way].rate))
        w = &link->found.way[way];
    if (w->bulk_bytes == 0) {
        /* The stage had no time for this way. */
        struct check_row row =
            check_row_found(CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, 0,
                            kind->is_local ? "local bandwidth" : "link bandwidth",
                            CHECK_VERDICT_SKIPPED, "not measured: the time of this stage was over");
        set_ends(kind, link, way, &row);
        check_row_add(rows, &row);
        return;
    }
    struct check_row row =
        row_of(kind, link, way, kind->is_local ? "local bandwidth" : "link bandwidth", "GB/s",
               w->rate, CHECK_BETTER_HIGHER, fmax(kind->norm.rate_slack, 0.6 * kind->norm.rate));
    text_format(row.why, sizeof row.why, "%s: the best slice of %.0f MB in all", kind->transport,
                (double)w->bulk_bytes * 1e-6);
    show_only(kind, &row);
    explain_pass(link, flag, &row);
    if (link->bad & flag) {
        row.verdict = CHECK_VERDICT_FAIL;
        row.limit = check_links_rate_limit(norm);
        text_format(row.why, sizeof row.why, "%.3f GB/s at best over %s, other links %.3f GB/s",
                    w->rate, kind->transport, norm->rate);
        add_scope(kind, link, &row);
        set_remedy(kind, REMEDY_LINK, &row);
    }
    check_row_add(rows, &row);
}

/* add_link_rows — adds the rows of a link: latency, bandwidth each way, retransmissions. */
static void add_link_rows(const struct check_links_kind *kind, const struct check_link *link,
                          struct check_rows *rows)
{
    if (link->found.pings == 0)
        return;
    add_latency(kind, link, rows);
    for (int way = 0; way < 2; way++) {
        add_rate(kind, link, way, rows);
        /* Retransmissions. */
        const struct measure_link_found *f = link->is_tested ? &link->again : &link->found;
        const struct measure_link_way *w = &f->way[way];
        if (kind->is_local || !f->knows_segments || w->segments <= 0)
            continue;
        const double share = (double)w->resent / (double)w->segments;
        struct check_row row = row_of(kind, link, way, "link retransmissions", "%", 100 * share,
                                      CHECK_BETTER_LOWER, 0);
        row.verdict = CHECK_VERDICT_PASS;
        row.limit = 0.3;
        text_format(row.why, sizeof row.why,
                    "%lld of %lld segments sent again while the link was idle",
                    (long long)w->resent, (long long)w->segments);
        if (link->bad & CHECK_LINKS_LOSS << way) {
            row.verdict = CHECK_VERDICT_FAIL;
            add_scope(kind, link, &row);
            set_remedy(kind, REMEDY_LINK, &row);
        }
        check_row_add(rows, &row);
    }
}

static bool is_first(const struct pairs *p) { return p->place->local == 0; }

static void add_skew(struct pairs *p, const struct contest *c)
{
    if (!is_first(p))
        return;
    struct check_skew *skews = memory_new((size_t)p->place->nodes, sizeof *skews);
    struct measure_link_found *found = copy_found(c);
    check_skew_find(found, c->n, p->place->nodes, p->place->locals, skews);
    if (p->place->nodes > 2 || p->place->node > 0) {
        struct check_row row =
            check_skew_row(&skews[p->place->node], p->config->root ? p->config->root : "",
                           p->place->node, p->place->nodes);
        check_row_add(p->rows, &row);
    }
    free(found);
    free(skews);
}

/* ---- the stage ---- */

static enum status run_contest(struct pairs *p, struct contest *c)
{
    enum status st = first_look(p, c);
    if (st == ST_OK)
        st = second_look(p, c);
    if (st == ST_OK) {
        if (p->place->rank == 0 && c->n > 0) {
            struct check_row row = check_row_found(
                CHECK_STAGE_PAIRS, CHECK_POINT_COMMUNICATION, p->place->node,
                c->is_local ? "ranks reach each other" : "nodes reach each other",
                CHECK_VERDICT_PASS, "%d links of %d %s carried messages both ways over %s", c->n,
                c->is_local ? p->place->ranks : c->members, c->is_local ? "ranks" : "nodes",
                c->kind.transport);
            check_row_add(p->rows, &row);
        }
        /* Each rank writes the rows of the links that it leads. */
        for (int i = 0; i < c->n; i++) {
            const struct check_link *link = &c->links[i];
            const bool is_wanted = p->place->nodes <= ROW_NODES_MAX || link->bad != 0;
            if (link->found.a == p->place->rank && is_wanted)
                add_link_rows(&c->kind, link, p->rows);
        }
        if (!c->is_local) {
            /* The transport may not count retransmissions. */
            bool is_known = false;
            for (int i = 0; i < c->n; i++)
                is_known = is_known || c->links[i].found.knows_segments;
            if (p->place->rank == 0 && !is_known) {
                struct check_row row =
                    check_row_found(CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, p->place->node,
                                    "link retransmissions", CHECK_VERDICT_SKIPPED,
                                    "%s does not report them; for InfiniBand, see perfquery and "
                                    "the counters of stage static",
                                    c->kind.transport);
                check_row_add(p->rows, &row);
            }
            add_skew(p, c);
        }
    }
    free(c->links);
    return st;
}

/* device_of — returns the interface that the stage "static" has found. */
static const char *device_of(const struct check_config *config)
{
    for (int i = 0; config->found && i < config->found->n; i++)
        if (strcmp(config->found->row[i].name, "interface mtu") == 0)
            return config->found->row[i].subject;
    return "";
}

static enum status run_both(struct pairs *p)
{
    const struct comm_place *place = p->place;
    const int64_t budget_ms = p->end_ms - p->begin_ms, ms = budget_ms / 2;
    const char *name = comm_backend(p->config->comm);
    const bool is_host = !comm_stays_on_device(p->config->comm);
    struct contest local = {.is_local = true,
                            .members = place->locals,
                            .me = place->local,
                            .first = place->node * place->locals,
                            .stride = 1,
                            .rounds = count_rounds(p, place->locals, ms / 4),
                            /* the links between nodes get most of the time */
                            .end_ms = place->nodes > 1 ? p->begin_ms + budget_ms / 4 : p->end_ms,
                            .kind = {.is_local = true,
                                     .is_host_memory = is_host,
                                     .locals = place->locals,
                                     .transport = name,
                                     .device = "lo"}};
    struct contest nodes = {.members = place->nodes,
                            .me = is_first(p) ? place->node : -1,
                            .stride = place->locals,
                            .rounds = count_rounds(p, place->nodes, ms),
                            .end_ms = p->end_ms,
                            .kind = {.is_host_memory = strcmp(name, "threads") == 0,
                                     .locals = place->locals,
                                     .transport = name,
                                     .device = device_of(p->config)}};
    if (is_first(p)) {
        const char *reason = comm_choice_reason(p->config->comm);
        struct check_row row = check_row_found(
            CHECK_STAGE_PAIRS, CHECK_POINT_TOPOLOGY, p->place->node, "transport",
            CHECK_VERDICT_PASS, "%d nodes of %d ranks over %s%s%s", p->place->nodes,
            p->place->locals, comm_name(p->config->comm), reason[0] != 0 ? ": " : "", reason);
        text_copy(row.subject, sizeof row.subject, comm_backend(p->config->comm));
        check_row_add(p->rows, &row);
    }
    if (place->locals > 1)
        TRY(run_contest(p, &local));
    return place->nodes > 1 ? run_contest(p, &nodes) : ST_OK;
}

enum status check_pairs_run(const struct check_config *config, int64_t budget_ms,
                            struct check_rows *rows)
{
    if (config->comm == NULL || comm_place(config->comm)->ranks < 2) {
        struct check_row row = check_row_found(
            CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, config->place.node, "link latency",
            CHECK_VERDICT_SKIPPED, "one rank: there is no other one to measure a link to");
        check_row_add(rows, &row);
        return ST_OK;
    }
    struct pairs p = {.config = config,
                      .place = comm_place(config->comm),
                      .effort = &efforts[config->depth],
                      .begin_ms = clock_ms(),
                      .rows = rows};
    p.end_ms = p.begin_ms + budget_ms;
    enum status st = measure_link_open(&p.link, config->comm, config->dev, p.effort->bulk_cap);
    p.link.clock_offset_ms = config->clock_offset_ms;
    if (st == ST_OK)
        st = run_both(&p);
    measure_link_close(&p.link);
    return st;
}

/* world — N ranks of a check as threads of one process (mesh/ranks.h), over memory (THREADS) or
 * over TCP on the loopback device. Each rank calls a function with its own config; its rows are
 * kept. */
#ifndef CONVOY_TESTS_CHECK_WORLD_H
#define CONVOY_TESTS_CHECK_WORLD_H

#define RANKS_MAX 64
#include "mesh/ranks.h"

#include "check/check.h"

struct world_rank {
    struct world *world;
    struct check_config config;
    struct check_rows rows;
};

struct world {
    int nodes, locals, ranks;
    bool is_tcp;
    int64_t budget_ms;
    enum status (*run)(const struct check_config *config, int64_t budget_ms,
                       struct check_rows *rows);
    char addresses[RANKS_MAX][COMM_ADDRESS_MAX];
    int64_t bytes[RANKS_MAX];
    pthread_barrier_t line_up;
    struct world_rank rank[RANKS_MAX];
};

static enum status world_open(struct ranks_one *one, struct comm_config config)
{
    struct world *w = ((struct world_rank *)one->arg)->world;
    config.kind = w->is_tcp ? COMM_KIND_HOST : COMM_KIND_THREADS;
    config.net = COMM_NET_TCP;
    config.secret = HARNESS_SECRET;
    config.is_oversubscribed = true;
    TRY(comm_begin_open(&config, &one->comm, w->addresses[one->rank], &w->bytes[one->rank]));
    pthread_barrier_wait(&w->line_up);
    return comm_end_open(one->comm, 1, w->addresses, w->bytes);
}

static enum status world_one(struct ranks_one *one)
{
    struct world_rank *me = one->arg;
    me->config.comm = one->comm;
    const enum status st = me->world->run(&me->config, me->world->budget_ms, &me->rows);
    pthread_barrier_wait(&me->world->line_up); /* no rank closes while another one measures */
    return st;
}

/* world_new — the caller may change each rank's config before world_run. */
static struct world *world_new(int nodes, int locals, bool is_tcp)
{
    struct world *w = calloc(1, sizeof *w);
    assert_true(nodes * locals <= RANKS_MAX && (!is_tcp || locals == 1));
    w->nodes = nodes;
    w->locals = locals;
    w->ranks = nodes * locals;
    w->is_tcp = is_tcp;
    pthread_barrier_init(&w->line_up, NULL, (unsigned)w->ranks);
    for (int r = 0; r < w->ranks; r++)
        w->rank[r] = (struct world_rank){.world = w,
                                         .config = {.place = {.rank = r,
                                                              .ranks = w->ranks,
                                                              .node = r / locals,
                                                              .nodes = nodes,
                                                              .local = r % locals,
                                                              .locals = locals},
                                                    .root = "",
                                                    .dir = "",
                                                    .gpus_expected = -1}};
    return w;
}

/* world_run — a stage on all ranks; all of them must succeed. */
static void world_run(struct world *w, int64_t budget_ms,
                      enum status (*run)(const struct check_config *, int64_t, struct check_rows *))
{
    w->budget_ms = budget_ms;
    w->run = run;
    ranks_own_open = world_open;
    ranks_run(w->nodes, w->locals, world_one, w->rank, sizeof *w->rank);
}

static void world_free(struct world *w)
{
    for (int r = 0; r < w->ranks; r++)
        check_row_free(&w->rank[r].rows);
    pthread_barrier_destroy(&w->line_up);
    free(w);
}

/* world_count — rows of that name (NULL: any) with that verdict (CHECK_VERDICT_MEASURED + 1:
 * any). */
static int world_count(const struct world *w, const char *name, int verdict)
{
    int n = 0;
    for (int r = 0; r < w->ranks; r++)
        for (int i = 0; i < w->rank[r].rows.n; i++) {
            const struct check_row *row = &w->rank[r].rows.row[i];
            n += (name == NULL || strcmp(row->name, name) == 0) &&
                 (verdict > CHECK_VERDICT_MEASURED || (int)row->verdict == verdict);
        }
    return n;
}

/* world_print — the rows that warn or fail, or all of them. */
static void world_print(const struct world *w, bool is_all)
{
    for (int r = 0; r < w->ranks; r++)
        for (int i = 0; i < w->rank[r].rows.n; i++) {
            const struct check_row *row = &w->rank[r].rows.row[i];
            if (is_all || check_row_is_bad(row))
                print_message("# %s | %s | %s | %g %s | node %d peer %d suspect %d | %s\n",
                              check_row_verdict(row->verdict), row->name, row->subject, row->value,
                              row->unit, row->node, row->peer, row->suspect, row->why);
        }
}

#endif

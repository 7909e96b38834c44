/* world — N ranks of a check as threads of one process, over memory (THREADS) or over TCP on the
 * loopback device. Each rank calls a function with its own config; its rows are kept. */
#ifndef CONVOY_TESTS_CHECK_WORLD_H
#define CONVOY_TESTS_CHECK_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "check/check.h"
#include "harness.h"

#define WORLD_RANKS_MAX 64

struct world_rank {
    struct world *world;
    struct check_config config;
    struct check_rows rows;
    pthread_t thread;
    enum status st;
    char message[512];
};

struct world {
    int nodes, locals, ranks;
    bool is_tcp;
    int64_t budget_ms;
    enum status (*run)(const struct check_config *config, int64_t budget_ms,
                       struct check_rows *rows);
    struct shm_threads_world *threads;
    char addresses[WORLD_RANKS_MAX][COMM_ADDRESS_MAX];
    int64_t bytes[WORLD_RANKS_MAX];
    pthread_barrier_t line_up;
    atomic_bool has_failed;
    struct world_rank rank[WORLD_RANKS_MAX];
};

static bool world_is_aborted(void *arg) { return atomic_load(&((struct world *)arg)->has_failed); }

static enum status world_open(struct world_rank *me, struct comm **out)
{
    struct world *w = me->world;
    const int rank = me->config.place.rank;
    const struct comm_config config = {.kind = w->is_tcp ? COMM_KIND_HOST : COMM_KIND_THREADS,
                                       .net = COMM_NET_TCP,
                                       .secret = HARNESS_SECRET,
                                       .place = me->config.place,
                                       .timeout_ms = harness_patience_ms(60000),
                                       .is_aborted = world_is_aborted,
                                       .arg = w,
                                       .is_oversubscribed = true,
                                       .threads = w->threads,
                                       .shm_fd = -1};
    TRY(comm_begin_open(&config, out, w->addresses[rank], &w->bytes[rank]));
    pthread_barrier_wait(&w->line_up);
    return comm_end_open(*out, 1, w->addresses, w->bytes);
}

static void *world_thread(void *arg)
{
    struct world_rank *me = arg;
    struct world *w = me->world;
    me->st = world_open(me, &me->config.comm);
    if (me->st == ST_OK)
        me->st = w->run(&me->config, w->budget_ms, &me->rows);
    snprintf(me->message, sizeof me->message, "%s", status_message());
    if (me->st != ST_OK)
        atomic_store(&w->has_failed, true);
    pthread_barrier_wait(&w->line_up);
    comm_close(me->config.comm);
    return NULL;
}

/* world_new — the caller may change each rank's config before world_run. */
static struct world *world_new(int nodes, int locals, bool is_tcp)
{
    struct world *w = calloc(1, sizeof *w);
    assert_true(nodes * locals <= WORLD_RANKS_MAX && (!is_tcp || locals == 1));
    w->nodes = nodes;
    w->locals = locals;
    w->ranks = nodes * locals;
    w->is_tcp = is_tcp;
    w->threads = shm_threads_world_new(nodes, locals);
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
                                                    .gpu_bus = "",
                                                    .gpus_expected = -1}};
    return w;
}

/* world_run — a stage on all ranks; all of them must succeed. */
static void world_run(struct world *w, int64_t budget_ms,
                      enum status (*run)(const struct check_config *, int64_t, struct check_rows *))
{
    w->budget_ms = budget_ms;
    w->run = run;
    for (int r = 0; r < w->ranks; r++)
        assert_int_equal(pthread_create(&w->rank[r].thread, NULL, world_thread, &w->rank[r]), 0);
    for (int r = 0; r < w->ranks; r++)
        pthread_join(w->rank[r].thread, NULL);
    for (int r = 0; r < w->ranks; r++)
        if (w->rank[r].st != ST_OK)
            fail_msg("rank %d: %s", r, w->rank[r].message);
}

static void world_free(struct world *w)
{
    for (int r = 0; r < w->ranks; r++)
        check_rows_free(&w->rank[r].rows);
    pthread_barrier_destroy(&w->line_up);
    shm_threads_world_free(w->threads);
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
            bool is_bad = row->verdict == CHECK_VERDICT_WARN || row->verdict == CHECK_VERDICT_FAIL;
            if (is_all || is_bad)
                print_message("# %s | %s | %s | %g %s | node %d peer %d suspect %d | %s\n",
                              check_row_verdict(row->verdict), row->name, row->subject, row->value,
                              row->unit, row->node, row->peer, row->suspect, row->why);
        }
}

#endif

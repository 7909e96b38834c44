/* suite — the tests that every transport of comm must pass. A test program includes this file,
 * fills a struct suite with functions that open ranks, and lists SUITE_TESTS.
 *
 * Ranks are threads here, each with a comm of its own. Inside a rank use CHECK: it prints both
 * values and ends the program, because cmocka's own assertions cannot leave a thread. */
#ifndef CONVOY_TESTS_COMM_SUITE_H
#define CONVOY_TESTS_COMM_SUITE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/rand.h"
#include "comm/core/comm.h"
#include "comm/core/part.h"
#include "comm/core/sum.h"
#include "harness.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"

#define SUITE_RANKS_MAX 20
#define SUITE_GENERATION 1

struct suite_rank {
    struct suite_job *job;
    struct comm *comm;
    struct comm_place place;
    pthread_t thread;
    enum status st; /* for tests of failures */
    char message[1024];
};

struct suite_job {
    int nodes, locals, ranks;
    int64_t timeout_ms;
    int64_t limit_ms; /* what config.limit_ms returns: the limit once timeout_ms has passed */
    atomic_bool aborted;
    void (*fn)(struct suite_rank *me);
    const struct suite *suite;
    void *world;               /* what the ranks share; the transport's */
    pthread_barrier_t line_up; /* lines the ranks up without the comm under test */
    struct suite_rank rank[SUITE_RANKS_MAX];
};

/* How a transport opens N ranks. world_new, world_free: what the ranks share. open: opens one
 * rank's comm, on its own thread. */
struct suite {
    const char *name;
    int layouts_n;
    const int (*layouts)[2]; /* nodes, locals */
    void *(*world_new)(const struct suite_job *job);
    void (*world_free)(void *world);
    enum status (*open)(struct suite_rank *me, const struct comm_config *config);
    bool is_discrete; /* comm_alloc gives device memory */
    int64_t late_ms;  /* timeout of calls in tests of missing ranks; 0: 500 */
};

#define CHECK(cond, ...)                                                 \
    do {                                                                 \
        if (!(cond)) {                                                   \
            fprintf(stderr, "# %s:%d: %s: ", __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__);                                \
            fprintf(stderr, "\n");                                       \
            _exit(1);                                                    \
        }                                                                \
    } while (0)
#define CHECK_OK(x)                                                        \
    do {                                                                   \
        enum status ok_ = (x);                                             \
        CHECK(ok_ == ST_OK, "%s: %s", status_name(ok_), status_message()); \
    } while (0)

static bool suite_is_aborted(void *arg) { return atomic_load(&((struct suite_job *)arg)->aborted); }

static int64_t suite_limit_ms(void *arg) { return ((struct suite_job *)arg)->limit_ms; }

static void *suite_thread(void *arg)
{
    struct suite_rank *me = arg;
    struct suite_job *job = me->job;
    struct comm_config config = {.place = me->place,
                                 .timeout_ms = job->timeout_ms,
                                 .limit_ms = suite_limit_ms,
                                 .is_aborted = suite_is_aborted,
                                 .arg = job,
                                 .shm_fd = -1};
    CHECK_OK(job->suite->open(me, &config));
    pthread_barrier_wait(&job->line_up); /* none calls, or fails, while others are being opened */
    job->fn(me);
    pthread_barrier_wait(&job->line_up); /* addresses and buffers of all stay until all are done */
    comm_close(me->comm);
    return NULL;
}

static void suite_run_on(const struct suite *suite, int nodes, int locals, int64_t timeout_ms,
                         void (*fn)(struct suite_rank *me))
{
    struct suite_job *job = calloc(1, sizeof(*job));
    *job = (struct suite_job){.nodes = nodes,
                              .locals = locals,
                              .ranks = nodes * locals,
                              .timeout_ms = timeout_ms,
                              .fn = fn,
                              .suite = suite};
    assert_true(job->ranks <= SUITE_RANKS_MAX);
    job->world = suite->world_new(job);
    pthread_barrier_init(&job->line_up, NULL, (unsigned)job->ranks);
    for (int r = 0; r < job->ranks; r++) {
        job->rank[r] = (struct suite_rank){.job = job,
                                           .place = {.rank = r,
                                                     .ranks = job->ranks,
                                                     .node = r / locals,
                                                     .nodes = nodes,
                                                     .local = r % locals,
                                                     .locals = locals}};
        pthread_create(&job->rank[r].thread, NULL, suite_thread, &job->rank[r]);
    }
    for (int r = 0; r < job->ranks; r++)
        pthread_join(job->rank[r].thread, NULL);
    pthread_barrier_destroy(&job->line_up);
    suite->world_free(job->world);
    free(job);
}

/* suite_run_late — the same with calls that wait only this long for a rank that never comes; longer
 * where opening, which has the same limit, needs it. */
static void suite_barrier_rank(struct suite_rank *me) { CHECK_OK(comm_barrier(me->comm)); }
static void suite_run_late(const struct suite *suite, int nodes, int locals, int64_t late_ms,
                           void (*fn)(struct suite_rank *me))
{
    const int64_t begin_ms = clock_ms();
    suite_run_on(suite, nodes, locals, harness_patience_ms(20000), suite_barrier_rank);
    const int64_t enough_ms = 6 * (clock_ms() - begin_ms);
    suite_run_on(suite, nodes, locals, enough_ms > late_ms ? enough_ms : late_ms, fn);
}

/* The program's transport. Tests of sums run over all its layouts, those of failures over the first
 * few with two ranks or more: they wait for time to pass. */
static const struct suite *suite_this;

static void suite_each(int64_t timeout_ms, int ranks_min, void (*fn)(struct suite_rank *me))
{
    for (int i = 0; i < suite_this->layouts_n; i++)
        if (suite_this->layouts[i][0] * suite_this->layouts[i][1] >= ranks_min)
            suite_run_on(suite_this, suite_this->layouts[i][0], suite_this->layouts[i][1],
                         harness_patience_ms(timeout_ms), fn);
}

static void suite_few(int64_t timeout_ms, void (*fn)(struct suite_rank *me), bool is_late)
{
    for (int i = 0, done = 0; i < suite_this->layouts_n && done < 3; i++)
        if (suite_this->layouts[i][0] * suite_this->layouts[i][1] >= 2) {
            (is_late ? suite_run_late : suite_run_on)(
                suite_this, suite_this->layouts[i][0], suite_this->layouts[i][1],
                is_late ? timeout_ms : harness_patience_ms(timeout_ms), fn);
            done++;
        }
}

#include "suite_failures.h"
#include "suite_groups.h"
#include "suite_sums.h"

#define SUITE_TESTS                                                                               \
    cmocka_unit_test(suite_places), cmocka_unit_test(suite_exact), cmocka_unit_test(suite_order), \
        cmocka_unit_test(suite_copies), cmocka_unit_test(suite_messages),                         \
        cmocka_unit_test(suite_queued), cmocka_unit_test(suite_jobs),                             \
        cmocka_unit_test(suite_splits), cmocka_unit_test(suite_bad_arguments),                    \
        cmocka_unit_test(suite_activity), cmocka_unit_test(suite_missing),                        \
        cmocka_unit_test(suite_aborted), cmocka_unit_test(suite_mismatch),                        \
        cmocka_unit_test(suite_closing), cmocka_unit_test(suite_groups),                          \
        cmocka_unit_test(suite_groups_missing), cmocka_unit_test(suite_groups_aborted),           \
        cmocka_unit_test(suite_late_alloc)

#endif

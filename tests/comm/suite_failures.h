/* suite_failures — wrong arguments, missing ranks, aborts, ranks in different calls. Part of
 * suite.h. */
#ifndef CONVOY_TESTS_COMM_SUITE_FAILURES_H
#define CONVOY_TESTS_COMM_SUITE_FAILURES_H

#define SUITE_REFUSED(x, words)                                                     \
    do {                                                                            \
        enum status st_ = (x);                                                      \
        CHECK(st_ == ST_BUG && strstr(status_message(), (words)) != NULL, "%s: %s", \
              status_name(st_), status_message());                                  \
    } while (0)

static void suite_bad_arguments_rank(struct suite_rank *me)
{
    float x[64] = {0};
    struct tensor f32 = {x, DTYPE_F32}, f64 = {x, DTYPE_F64}, i32 = {x, DTYPE_I32},
                  none = {NULL, DTYPE_F32};
    struct comm *split;
    int twice[2] = {me->place.rank, me->place.rank}, outside[1] = {me->place.ranks};
    SUITE_REFUSED(comm_all_reduce(me->comm, f32, f32, -1), "-1 elements");
    SUITE_REFUSED(comm_all_reduce(me->comm, f32, f32, INT64_MAX), "elements");
    SUITE_REFUSED(comm_all_reduce(me->comm, f32, f64, 1), "from dtype");
    SUITE_REFUSED(comm_all_reduce(me->comm, i32, i32, 1), "sums are of");
    SUITE_REFUSED(comm_all_reduce(me->comm, none, f32, 1), "without a buffer");
    SUITE_REFUSED(comm_broadcast(me->comm, f32, 1, me->place.ranks), "with rank");
    SUITE_REFUSED(comm_broadcast(me->comm, f32, 1, -1), "with rank");
    SUITE_REFUSED(comm_send(me->comm, f32, 1, me->place.rank), "with rank");
    SUITE_REFUSED(comm_recv(me->comm, f32, 1, me->place.ranks), "with rank");
    SUITE_REFUSED(comm_split(me->comm, twice, 2, &split), "cannot split");
    SUITE_REFUSED(comm_split(me->comm, outside, 1, &split), "cannot split");
    SUITE_REFUSED(comm_split(me->comm, outside, 0, &split), "cannot split");
    SUITE_REFUSED(comm_wait(me->comm, (struct comm_ticket){99}), "ticket 99");
    CHECK_OK(comm_barrier(me->comm)); /* the comm still works */
}
static void suite_bad_arguments(void **state) { suite_each(20000, 1, suite_bad_arguments_rank); }

/* comm_activity may be called from another thread. */
static void suite_activity_rank(struct suite_rank *me)
{
    struct comm_activity activity;
    pthread_barrier_wait(&me->job->line_up); /* all are open */
    comm_activity(me->comm, &activity);
    CHECK(activity.call[0] == 0 && activity.sequence == 0, "%s %lld", activity.call,
          (long long)activity.sequence);
    if (me->place.rank == 0) {
        for (int r = 1; r < me->place.ranks; r++) { /* the others wait in a barrier for this rank */
            do {
                comm_activity(me->job->rank[r].comm, &activity);
                clock_sleep_ms(1);
            } while (strcmp(activity.call, "barrier") != 0);
            CHECK(activity.sequence == 1 && activity.entered_ms <= clock_ms() &&
                      activity.entered_ms > clock_ms() - 20000,
                  "%lld", (long long)activity.sequence);
        }
    }
    CHECK_OK(comm_barrier(me->comm));
    comm_activity(me->comm, &activity);
    CHECK(activity.call[0] == 0 && activity.sequence == 1, "%s %lld", activity.call,
          (long long)activity.sequence);
    CHECK_OK(comm_barrier(me->comm));
}
static void suite_activity(void **state) { suite_each(20000, 1, suite_activity_rank); }

enum {
    SUITE_CALL_ALL_REDUCE,
    SUITE_CALL_SMALL,
    SUITE_CALL_SCATTER,
    SUITE_CALL_GATHER,
    SUITE_CALL_BROADCAST,
    SUITE_CALL_BARRIER,
    SUITE_CALL_QUEUED,
    SUITE_CALL_RECV,
    SUITE_CALL_N
};
static const char *const suite_call_names[SUITE_CALL_N] = {
    "all_reduce", "all_reduce", "reduce_scatter", "all_gather",
    "broadcast",  "barrier",    "all_reduce",     "recv"};
static atomic_int suite_call; /* the call that the tests below make */
#define SUITE_CALL_ELEMS 100003

static enum status suite_one_call(struct suite_rank *me, float *data, int call)
{
    struct tensor t = {data, DTYPE_F32};
    struct tensor words =
        tensor_at(t, part_extent(SUITE_CALL_ELEMS, me->place.ranks, me->place.rank).first);
    struct comm_ticket ticket;
    switch (call) {
    case SUITE_CALL_ALL_REDUCE:
        return comm_all_reduce(me->comm, t, t, SUITE_CALL_ELEMS);
    case SUITE_CALL_SMALL:
        return comm_all_reduce(me->comm, t, t, 7);
    case SUITE_CALL_SCATTER:
        return comm_reduce_scatter(me->comm, words, t, SUITE_CALL_ELEMS);
    case SUITE_CALL_GATHER:
        return comm_all_gather(me->comm, t, words, SUITE_CALL_ELEMS);
    case SUITE_CALL_BROADCAST:
        return comm_broadcast(me->comm, t, SUITE_CALL_ELEMS, me->place.ranks - 1);
    case SUITE_CALL_BARRIER:
        return comm_barrier(me->comm);
    case SUITE_CALL_QUEUED: {
        enum status st = comm_all_reduce_begin(me->comm, t, t, SUITE_CALL_ELEMS, &ticket);
        return st != ST_OK ? st : comm_wait(me->comm, ticket);
    }
    default:
        return comm_recv(me->comm, t, SUITE_CALL_ELEMS, me->place.ranks - 1);
    }
}

/* The last rank never enters. Every other rank names it in time, and again at the next call. */
static void suite_missing_rank(struct suite_rank *me)
{
    float *data = calloc(SUITE_CALL_ELEMS, sizeof(float));
    int call = atomic_load(&suite_call), last = me->place.ranks - 1;
    char want[64], more[64], first[1024];
    CHECK_OK(comm_barrier(me->comm));
    if (me->place.rank != last) {
        int64_t begin = clock_ms();
        enum status st = suite_one_call(me, data, call);
        int64_t elapsed = clock_ms() - begin;
        CHECK(st == ST_PEER && elapsed >= 150 &&
                  elapsed < me->job->timeout_ms + harness_patience_ms(4500),
              "%s after %lld ms: %s", status_name(st), (long long)elapsed, status_message());
        snprintf(want, sizeof(want),
                 call == SUITE_CALL_RECV ? "rank %d has not answered %s"
                                         : "rank %d has not entered %s",
                 last, suite_call_names[call]);
        /* on a busy machine more ranks may be late */
        snprintf(more, sizeof(more), ", %d have not entered %s", last, suite_call_names[call]);
        CHECK(strstr(status_message(), want) != NULL || strstr(status_message(), more) != NULL,
              "want '%s' in: %s", want, status_message());
        snprintf(first, sizeof(first), "%s", status_message());
        status_clear();
        CHECK(comm_barrier(me->comm) == ST_PEER && strcmp(status_message(), first) == 0, "%s",
              status_message());
    }
    pthread_barrier_wait(&me->job->line_up);
    free(data);
}
static void suite_missing(void **state)
{
    for (int call = 0; call < SUITE_CALL_N; call++) {
        atomic_store(&suite_call, call);
        suite_few(suite_this->late_ms > 0 ? suite_this->late_ms : 500, suite_missing_rank, true);
    }
}

/* The job is aborted while ranks are in a call. */
static void suite_aborted_rank(struct suite_rank *me)
{
    float *data = calloc(SUITE_CALL_ELEMS, sizeof(float));
    int call = atomic_load(&suite_call), last = me->place.ranks - 1;
    CHECK_OK(comm_barrier(me->comm));
    pthread_barrier_wait(&me->job->line_up); /* all ranks have left the barrier */
    if (me->place.rank == last) {
        clock_sleep_ms(20);
        atomic_store(&me->job->aborted, true);
    }
    int64_t begin = clock_ms();
    enum status st = ST_OK;
    if (me->place.rank != last)
        st = suite_one_call(me, data, call);
    else
        /* the next call of this rank ends too */
        while (clock_ms() - begin < harness_patience_ms(2000) && st == ST_OK)
            st = comm_barrier(me->comm);
    CHECK(st == ST_PEER && clock_ms() - begin < harness_patience_ms(2000), "%s after %lld ms: %s",
          status_name(st), (long long)(clock_ms() - begin), status_message());
    pthread_barrier_wait(&me->job->line_up);
    free(data);
}
static void suite_aborted(void **state)
{
    for (int call = 0; call < SUITE_CALL_N; call++) {
        atomic_store(&suite_call, call);
        suite_few(60000, suite_aborted_rank, false);
    }
}

/* The last rank makes another call, or uses another count, dtype or root. Every rank fails, and at
 * least one names the difference. */
static void suite_mismatch_rank(struct suite_rank *me)
{
    float *data = calloc(SUITE_CALL_ELEMS, sizeof(float));
    struct tensor f32 = {data, DTYPE_F32}, bf16 = {data, DTYPE_BF16};
    bool is_different = me->place.rank == me->place.ranks - 1;
    enum status st;
    CHECK_OK(comm_barrier(me->comm));
    switch (atomic_load(&suite_call)) {
    case 0:
        st = is_different ? comm_broadcast(me->comm, f32, 100, 0)
                          : comm_all_reduce(me->comm, f32, f32, 100);
        break;
    case 1:
        st = comm_all_reduce(me->comm, f32, f32, is_different ? 70000 : 70001);
        break;
    case 2:
        st = is_different ? comm_all_reduce(me->comm, f32, f32, 90)
                          : comm_all_reduce(me->comm, bf16, bf16, 90);
        break;
    case 3:
        st = comm_broadcast(me->comm, f32, 90000, is_different);
        break;
    default:
        st = is_different ? comm_barrier(me->comm) : comm_all_reduce(me->comm, f32, f32, 5);
        break;
    }
    CHECK(st == ST_BUG || st == ST_PEER, "%s: %s", status_name(st), status_message());
    me->st = st;
    snprintf(me->message, sizeof(me->message), "%s", status_message());
    pthread_barrier_wait(&me->job->line_up);
    int named = 0;
    for (int r = 0; r < me->place.ranks; r++)
        named += me->job->rank[r].st == ST_BUG &&
                 strstr(me->job->rank[r].message, "different calls") != NULL;
    CHECK(named >= 1, "no rank named the difference: %s", me->message);
    pthread_barrier_wait(&me->job->line_up);
    free(data);
}
static void suite_mismatch(void **state)
{
    for (int what = 0; what < 5; what++) {
        atomic_store(&suite_call, what);
        suite_few(1000, suite_mismatch_rank, true);
    }
}

/* Closing ends queued calls and does not wait for missing ranks. */
static void suite_closing_rank(struct suite_rank *me)
{
    static float data[SUITE_RANKS_MAX][64];
    struct tensor t = {data[me->place.rank], DTYPE_F32};
    struct comm_ticket ticket;
    CHECK_OK(comm_barrier(me->comm));
    if (me->place.rank != me->place.ranks - 1)
        CHECK_OK(comm_all_reduce_begin(me->comm, t, t, 64, &ticket));
    pthread_barrier_wait(&me->job->line_up);
    int64_t begin = clock_ms();
    comm_close(me->comm);
    me->comm = NULL;
    CHECK(clock_ms() - begin < harness_patience_ms(2000), "%lld ms",
          (long long)(clock_ms() - begin));
}
static void suite_closing(void **state) { suite_few(60000, suite_closing_rank, false); }
#endif

/* test_nccl_async — calls that the device executes (core/async.c), over the tests' own NCCL: the
 * host does not wait for them, a stream does; the watchdog ends what fails, hangs or misses a rank,
 * in every communicator; healthy communicators are finalized. */
#pragma GCC diagnostic ignored "-Wunused-function" /* not all of the suite is used here */
#include "comm/suite.h"

#include <limits.h>
#include <sys/prctl.h>

#include "comm/nccl/lib.h"
#include "suite_device.h"

#include "nccl_world.h"

#define CALLS 12
#define ELEMS 4096

static struct fake_nccl *knobs;

static const int layouts[][2] = {{1, 2}, {3, 1}};
static const struct suite suite_nccl = NCCL_WORLD_NCCL(layouts);

/* A stream that computes, and buffers of CALLS calls. */
struct beside {
    struct stream *stream;
    struct tensor x[CALLS];
    struct comm_ticket ticket[CALLS];
};
static struct beside beside_open(struct suite_rank *me)
{
    struct beside b;
    void *data;
    CHECK_OK(dev_stream_open(suite_dev, &b.stream));
    CHECK_OK(comm_alloc(me->comm, CALLS * ELEMS * 4, &data));
    for (int i = 0; i < CALLS; i++)
        b.x[i] = tensor_at((struct tensor){data, DTYPE_F32}, i * ELEMS);
    CHECK(comm_stays_on_device(me->comm), "%s", comm_name(me->comm));
    return b;
}

static void beside_begin(struct suite_rank *me, struct beside *b, int i)
{
    CHECK_OK(comm_wait_stream(me->comm, b->stream));
    CHECK_OK(comm_all_reduce_begin(me->comm, b->x[i], b->x[i], ELEMS, &b->ticket[i]));
}

/* Work of a stream that is held until it is let go. */
static int is_open(void *gate) { return atomic_load((atomic_int *)gate); }
static void hold(struct stream *s, atomic_int *gate)
{
    atomic_store(gate, 0);
    fake_device_post(&fake_device_of(s)->fake, is_open, gate);
}

/* ---- the host runs ahead ---- */

/* What the computation writes late is summed, and what follows reads the sums, with no wait of the
 * host in between. */
static void ahead_rank(struct suite_rank *me)
{
    struct beside b = beside_open(me);
    float got[CALLS], value = (float)(me->place.rank + 1);
    int ranks = me->place.ranks;
    for (int i = 0; i < CALLS; i++) {
        for (int j = 0; j < 3; j++)
            CHECK_OK(dev_copy(b.stream, tensor_at(b.x[i], j * 7).data, &value, sizeof value));
        beside_begin(me, &b, i);
    }
    for (int i = 0; i < CALLS; i++) {
        CHECK_OK(comm_wait_on(me->comm, b.ticket[i], b.stream));
        CHECK_OK(dev_copy(b.stream, &got[i], tensor_at(b.x[i], 14).data, sizeof *got));
    }
    CHECK_OK(dev_sync(b.stream));
    CHECK_OK(comm_check(me->comm));
    for (int i = 0; i < CALLS; i++)
        CHECK(got[i] == (float)(ranks * (ranks + 1) / 2), "call %d: %g", i, (double)got[i]);
    dev_stream_close(b.stream);
}
TEST(the_host_runs_ahead)
{
    int finalized = atomic_load(&knobs->finalized_n), aborted = atomic_load(&knobs->aborted_n);
    suite_this = &suite_nccl;
    suite_each(20000, 2, ahead_rank);
    assert_int_equal(atomic_load(&knobs->finalized_n) - finalized, 2 + 3);
    assert_int_equal(atomic_load(&knobs->aborted_n), aborted);
    assert_true(atomic_load(&fake_device.high_n) >= 2 + 3);
    nccl_world_check_clean(knobs);
}

/* Rank 0's host is through with its calls before the last rank begins one. */
static void before_others_rank(struct suite_rank *me)
{
    struct beside b = beside_open(me);
    struct comm_times times;
    int last = me->place.ranks - 1;
    if (me->place.rank == last)
        pthread_barrier_wait(&me->job->line_up);
    for (int i = 0; i < CALLS; i++) {
        beside_begin(me, &b, i);
        CHECK_OK(comm_wait_on(me->comm, b.ticket[i], b.stream));
    }
    comm_times(me->comm, &times);
    if (me->place.rank != last) {
        clock_sleep_ms(20);
        pthread_barrier_wait(&me->job->line_up);
    }
    int64_t begin = clock_ns();
    CHECK_OK(comm_wait(me->comm, b.ticket[CALLS - 1]));
    CHECK_OK(comm_wait(me->comm, b.ticket[CALLS - 1])); /* waited for before: counted once */
    double most = (double)(clock_ns() - begin) * 1e-6;
    comm_times(me->comm, &times);
    CHECK(times.wait_ms <= most && times.busy_ms >= 0, "%g of %g ms", times.wait_ms, most);
    dev_stream_close(b.stream);
}
TEST(the_host_is_done_before_others_begin)
{
    atomic_store(&knobs->under_way_most, 0);
    suite_run_on(&suite_nccl, 1, 2, harness_patience_ms(20000), before_others_rank);
    assert_int_equal(atomic_load(&knobs->under_way_most), CALLS);
    nccl_world_check_clean(knobs);
}

/* ---- host memory next to the device's calls ---- */

static atomic_int host_gate;

/* Host memory is sent, added up and gathered while the device's calls are held. */
static void host_rank(struct suite_rank *me)
{
    enum { BYTES = 300000 };
    const int rank = me->place.rank, ranks = me->place.ranks;
    struct beside b = beside_open(me);
    struct comm_times times;
    char *message = malloc(BYTES);
    double sum[] = {rank + 1};
    const struct tensor bytes = {message, DTYPE_U8}, sums = {sum, DTYPE_F64};
    CHECK_OK(comm_open_host(me->comm));
    struct comm *host = comm_host(me->comm);
    CHECK(host && host != me->comm && !comm_stays_on_device(host), "no comm of host memory");
    comm_times(me->comm, &times);
    fake_device_post(&fake_device_of(b.stream)->fake, is_open, &host_gate);
    beside_begin(me, &b, 0);
    memset(message, rank == 0 ? 'x' : 0, BYTES);
    if (rank == 0)
        CHECK_OK(comm_send(host, bytes, BYTES, ranks - 1));
    if (rank == ranks - 1)
        CHECK_OK(comm_recv(host, bytes, BYTES, 0));
    CHECK(rank != ranks - 1 || (message[0] == 'x' && message[BYTES - 1] == 'x'), "other bytes");
    CHECK_OK(comm_all_reduce(host, sums, sums, 1));
    CHECK(sum[0] == ranks * (ranks + 1) / 2, "sum %g", sum[0]);
    comm_times(me->comm, &times);
    CHECK(rank > 0 || me->place.nodes == 1 || times.bytes_sent >= BYTES, "%lld bytes",
          (long long)times.bytes_sent);
    atomic_store(&host_gate, 1);
    CHECK_OK(comm_wait(me->comm, b.ticket[0]));
    dev_stream_close(b.stream);
    free(message);
}
TEST(host_memory_is_sent_meanwhile)
{
    atomic_store(&host_gate, 0);
    suite_run_on(&suite_nccl, 1, 2, harness_patience_ms(20000), host_rank);
    atomic_store(&host_gate, 0);
    suite_run_on(&suite_nccl, 3, 1, harness_patience_ms(20000), host_rank);
    nccl_world_check_clean(knobs);
}

/* A communicator that connects at its first call is in progress until all ranks have made it. */
static void lazy_rank(struct suite_rank *me)
{
    if (me->place.rank == 1)
        clock_sleep_ms(30);
    ahead_rank(me);
}
TEST(a_first_call_connects)
{
    atomic_store(&knobs->is_lazy, 1);
    suite_run_on(&suite_nccl, 3, 1, harness_patience_ms(20000), lazy_rank);
    atomic_store(&knobs->is_lazy, 0);
    nccl_world_check_clean(knobs);
}

/* Sleeps of the queue's threads. */
static atomic_int sleeps_n;
void __real_clock_sleep_us(int64_t us);
void __wrap_clock_sleep_us(int64_t us);
void __wrap_clock_sleep_us(int64_t us)
{
    char name[16] = "";
    (void)prctl(PR_GET_NAME, name);
    if (strcmp(name, "convoy-comm") == 0)
        atomic_fetch_add(&sleeps_n, 1);
    __real_clock_sleep_us(us);
}

/* NCCL needs 100 µs for each call, on a thread of its own: no wait for it sleeps. For one of 2 ms
 * the wait sleeps. */
TEST(a_short_wait_does_not_sleep)
{
    const int calls = 2 * CALLS;
    atomic_store(&knobs->slow_us, 100);
    atomic_store(&sleeps_n, 0);
    suite_run_on(&suite_nccl, 1, 2, harness_patience_ms(20000), ahead_rank);
    print_message("# %d sleeps in %d calls of 100 us\n", atomic_load(&sleeps_n), calls);
    assert_true(atomic_load(&sleeps_n) < calls / 2);
    atomic_store(&knobs->slow_us, 2000);
    suite_run_on(&suite_nccl, 1, 2, harness_patience_ms(20000), ahead_rank);
    atomic_store(&knobs->slow_us, 0);
    assert_true(atomic_load(&sleeps_n) >= calls);
    nccl_world_check_clean(knobs);
}

/* ---- the watchdog ---- */

/* A limit that a test waits out, after it has looked at the call under way: longer on a busy
 * machine, but not so that the test takes minutes. */
static int64_t waited_out_ms(int64_t ms)
{
    return (int64_t)((double)ms * (harness_slow() < 4 ? harness_slow() : 4));
}

/* The computation before a call takes three times the limit: the call is not late, and no straggler
 * report sees it. Then it is under way. */
static void clock_rank(struct suite_rank *me)
{
    static atomic_int gate[SUITE_RANKS_MAX];
    struct beside b = beside_open(me);
    struct comm_activity activity;
    CHECK_OK(comm_barrier(me->comm));
    hold(b.stream, &gate[me->place.rank]);
    beside_begin(me, &b, 0);
    beside_begin(me, &b, 1);
    CHECK_OK(comm_wait_on(me->comm, b.ticket[1], b.stream));
    clock_sleep_ms(3 * me->job->timeout_ms);
    comm_activity(me->comm, &activity);
    CHECK(activity.call[0] == 0 && activity.sequence == 1, "%s", activity.call);
    pthread_barrier_wait(&me->job->line_up);
    atomic_store(&gate[me->place.rank], 1);
    CHECK_OK(dev_sync(b.stream));
    CHECK_OK(comm_wait(me->comm, b.ticket[1]));
    dev_stream_close(b.stream);
}
TEST(the_clock_starts_when_the_call_could)
{
    suite_run_on(&suite_nccl, 1, 2, harness_patience_ms(700), clock_rank);
    nccl_world_check_clean(knobs);
}

static atomic_int how;
enum { MISSING, LAZY, HANGS, ABORTED, HOWS };

static void see_all_reduce(struct suite_rank *me)
{
    struct comm_activity activity = {0};
    for (int64_t until_ms = clock_ms() + harness_patience_ms(1000);
         strcmp(activity.call, "all_reduce") != 0 && clock_ms() < until_ms;) {
        comm_activity(me->comm, &activity);
        clock_sleep_us(200);
    }
    CHECK(strcmp(activity.call, "all_reduce") == 0, "'%s'", activity.call);
}

static void lost_rank(struct suite_rank *me)
{
    struct beside b = beside_open(me);
    bool is_missing = atomic_load(&how) != HANGS && me->place.rank == me->place.ranks - 1;
    if (atomic_load(&how) != LAZY)
        CHECK_OK(comm_barrier(me->comm));
    pthread_barrier_wait(&me->job->line_up);
    if (atomic_load(&how) == HANGS)
        atomic_store(&knobs->hangs, 1);
    if (!is_missing)
        beside_begin(me, &b, 0);
    if (!is_missing && atomic_load(&how) != LAZY) /* there it is not on the stream yet */ {
        /* The stream that waits goes on, and the failure names the call, in every way to see it. */
        CHECK_OK(comm_wait_on(me->comm, b.ticket[0], b.stream));
        see_all_reduce(me);
    }
    pthread_barrier_wait(&me->job->line_up);
    if (atomic_load(&how) == ABORTED)
        atomic_store(&me->job->aborted, true);
    if (!is_missing) {
        struct comm_activity activity = {0};
        const char *why =
            atomic_load(&how) == ABORTED ? "aborted" : "4096 elements is not finished";
        enum status st = comm_wait(me->comm, b.ticket[0]);
        CHECK(st == ST_PEER && strstr(status_message(), "all_reduce") != NULL &&
                  strstr(status_message(), why) != NULL,
              "%s: %s", status_name(st), status_message());
        CHECK_OK(dev_sync(b.stream)); /* goes on */
        CHECK(comm_check(me->comm) == ST_PEER, "%s", status_message());
        CHECK(comm_wait_on(me->comm, b.ticket[0], b.stream) == ST_PEER, "%s", status_message());
        CHECK(comm_barrier(me->comm) == ST_PEER, "%s", status_message());
        comm_activity(me->comm, &activity);
        CHECK(activity.call[0] == 0, "%s", activity.call);
    }
    pthread_barrier_wait(&me->job->line_up);
    dev_stream_close(b.stream);
}
TEST(what_is_lost_is_named)
{
    for (int i = 0; i < HOWS; i++) {
        atomic_store(&how, i);
        atomic_store(&knobs->is_lazy, i == LAZY);
        suite_run_late(&suite_nccl, 3, 1, i == ABORTED ? 60000 : waited_out_ms(1000), lost_rank);
        atomic_store(&knobs->is_lazy, 0);
        atomic_store(&knobs->hangs, 0);
    }
    nccl_world_check_clean(knobs);
}

/* One rank's waits end as if the job was aborted: the fault `comm` of `convoy rehearse`, which the
 * worker's is_aborted reports. */
#define BROKEN_RANK 1
static atomic_int is_rank_broken, is_ended_by_job;
static bool broken_is_aborted(void *arg)
{
    const struct suite_rank *me = arg;
    return suite_is_aborted(me->job) ||
           (atomic_load(&is_rank_broken) && me->place.rank == BROKEN_RANK);
}
static int64_t broken_limit_ms(void *arg) { return ((struct suite_rank *)arg)->job->limit_ms; }
static enum status open_breakable(struct suite_rank *me, const struct comm_config *config)
{
    struct comm_config mine = *config;
    mine.is_aborted = broken_is_aborted;
    mine.limit_ms = broken_limit_ms;
    mine.arg = me;
    return nccl_world_open_as(me, &mine, COMM_KIND_NCCL);
}

/* That rank ends its communicators, and leaves as a worker does. */
static void leave_broken(struct suite_rank *me, struct beside *b)
{
    const int aborted = atomic_load(&knobs->aborted_n);
    atomic_store(&is_rank_broken, 1);
    beside_begin(me, b, 0);
    enum status st = comm_wait(me->comm, b->ticket[0]);
    CHECK(st == ST_PEER && strstr(status_message(), "all_reduce") != NULL &&
              strstr(status_message(), "aborted") != NULL,
          "%s: %s", status_name(st), status_message());
    const int ended = atomic_load(&knobs->aborted_n) - aborted; /* others have a short deadline */
    CHECK(ended == 1 || (ended > 1 && !atomic_load(&is_ended_by_job)), "%d ranks ended", ended);
    st = comm_barrier(comm_host(me->comm)); /* as its next copy of the state */
    CHECK(st == ST_PEER, "%s: %s", status_name(st), status_message());
    dev_stream_close(b->stream);
    comm_close(me->comm);
    me->comm = NULL;
}

/* The host memory of the others names it; their call of NCCL ends with the job, or at its
 * deadline. */
static void see_broken(struct suite_rank *me, struct beside *b)
{
    char name[16], names[16];
    snprintf(name, sizeof name, "rank %d", BROKEN_RANK);
    snprintf(names, sizeof names, "ranks %d", BROKEN_RANK); /* and other late ones */
    enum status st = comm_barrier(comm_host(me->comm));
    CHECK(st == ST_PEER && (strstr(status_message(), name) || strstr(status_message(), names)),
          "%s: %s", status_name(st), status_message());
    if (atomic_load(&is_ended_by_job))
        atomic_store(&me->job->aborted, true);
    st = comm_wait(me->comm, b->ticket[0]);
    CHECK(st == ST_PEER &&
              strstr(status_message(),
                     atomic_load(&is_ended_by_job) ? "aborted" : "is not finished") != NULL,
          "%s: %s", status_name(st), status_message());
    CHECK_OK(dev_sync(b->stream)); /* goes on */
    dev_stream_close(b->stream);
}
static void broken_rank(struct suite_rank *me)
{
    const bool is_broken = me->place.rank == BROKEN_RANK;
    struct beside b = beside_open(me);
    CHECK_OK(comm_open_host(me->comm));
    CHECK_OK(comm_barrier(me->comm));
    if (!is_broken) {
        beside_begin(me, &b, 0);
        CHECK_OK(comm_wait_on(me->comm, b.ticket[0], b.stream));
        see_all_reduce(me);
    }
    pthread_barrier_wait(&me->job->line_up);
    is_broken ? leave_broken(me, &b) : see_broken(me, &b);
}
TEST(one_rank_is_broken)
{
    struct suite suite = suite_nccl;
    suite.open = open_breakable;
    for (int i = 0; i < 2; i++) {
        atomic_store(&is_ended_by_job, i);
        suite_run_late(&suite, 3, 1, i ? 60000 : waited_out_ms(1000), broken_rank);
        atomic_store(&is_rank_broken, 0);
    }
    nccl_world_check_clean(knobs);
}

/* A link fails while calls are under way: on each rank the failure names a call and its bytes. */
static void link_rank(struct suite_rank *me)
{
    struct beside b = beside_open(me);
    enum status st = ST_OK;
    for (int calls = 0; st == ST_OK && calls < 1000; calls++) {
        st = comm_all_reduce_begin(me->comm, b.x[0], b.x[0], ELEMS, &b.ticket[0]);
        if (st == ST_OK)
            st = comm_wait_on(me->comm, b.ticket[0], b.stream);
    }
    CHECK(st == ST_PEER && strstr(status_message(), "16384 bytes") != NULL &&
              strstr(status_message(), "said by the fake") != NULL,
          "%s: %s", status_name(st), status_message());
    CHECK_OK(dev_sync(b.stream));
    dev_stream_close(b.stream);
}
TEST(a_link_fails)
{
    atomic_store(&knobs->fail_result, NCCL_REMOTE_ERROR);
    atomic_store(&knobs->fail_after, 13);
    suite_run_on(&suite_nccl, 3, 1, harness_patience_ms(20000), link_rank);
    atomic_store(&knobs->fail_after, -1);
    nccl_world_check_clean(knobs);
}

/* The root and a split of it hang. Each abort waits for the device, where the other's call is: both
 * end only if they are aborted at the same time. The split's error counts while the root's call is
 * the older one. */
static void two_rank(struct suite_rank *me)
{
    struct beside b = beside_open(me);
    struct comm *split;
    const int both[2] = {0, 1};
    struct comm_ticket ticket;
    CHECK_OK(comm_split(me->comm, both, 2, &split));
    CHECK_OK(comm_barrier(split));
    pthread_barrier_wait(&me->job->line_up);
    atomic_store(&knobs->hangs, 1);
    beside_begin(me, &b, 0);
    CHECK_OK(comm_all_reduce_begin(split, b.x[1], b.x[1], ELEMS, &ticket));
    CHECK(comm_wait(split, ticket) == ST_PEER &&
              strstr(status_message(), "is not finished") != NULL,
          "%s", status_message());
    CHECK(comm_wait(me->comm, b.ticket[0]) == ST_PEER, "%s", status_message());
    pthread_barrier_wait(&me->job->line_up);
    comm_close(split);
    dev_stream_close(b.stream);
}
TEST(two_communicators_hang)
{
    suite_run_on(&suite_nccl, 1, 2, harness_patience_ms(800), two_rank);
    atomic_store(&knobs->hangs, 0);
    nccl_world_check_clean(knobs);
}

/* ---- the watchdog itself ---- */

/* Is the rank seen in the call, and since when is its watchdog inside CUDA? */
static int64_t stuck_since(struct suite_rank *me)
{
    struct comm_activity activity;
    comm_activity(me->comm, &activity);
    return strcmp(activity.call, "all_reduce") == 0 ? activity.stuck_ms : 0;
}

static atomic_int is_host; /* the call's buffers lie in host memory */

/* A call hangs. While the watchdog looks, it is never inside CUDA for long. Then its query of an
 * event or a stream does not return: the time from then on is told, and does not change. */
static void stuck_rank(struct suite_rank *me)
{
    static float host[SUITE_RANKS_MAX][ELEMS];
    struct beside b = beside_open(me);
    int64_t since_ms, longest_ms = 0;
    bool is_first = me->place.rank == 0;
    if (atomic_load(&is_host))
        b.x[0] = (struct tensor){host[me->place.rank], DTYPE_F32};
    CHECK_OK(comm_barrier(me->comm));
    pthread_barrier_wait(&me->job->line_up);
    atomic_store(&knobs->hangs, 1);
    beside_begin(me, &b, 0);
    see_all_reduce(me);
    for (int i = 0; i < 200; i++, clock_sleep_ms(1)) {
        since_ms = stuck_since(me);
        longest_ms =
            since_ms > 0 && clock_ms() - since_ms > longest_ms ? clock_ms() - since_ms : longest_ms;
    }
    CHECK(longest_ms < harness_patience_ms(150), "%lld ms in a query", (long long)longest_ms);
    pthread_barrier_wait(&me->job->line_up);
    if (is_first)
        atomic_store(&fake_device.query_hangs, 1);
    for (int64_t until_ms = clock_ms() + harness_patience_ms(20000);
         atomic_load(&fake_device.hanging_n) < me->place.ranks && clock_ms() < until_ms;)
        clock_sleep_ms(1);
    since_ms = stuck_since(me);
    clock_sleep_ms(300);
    CHECK(since_ms > 0 && stuck_since(me) == since_ms && clock_ms() - since_ms >= 300,
          "since %lld, %lld ms ago", (long long)since_ms, (long long)(clock_ms() - since_ms));
    pthread_barrier_wait(&me->job->line_up);
    if (is_first)
        atomic_store(&fake_device.query_hangs, 0);
    CHECK(comm_wait(me->comm, b.ticket[0]) == ST_PEER, "%s", status_message());
    CHECK(stuck_since(me) == 0, "in no call, but stuck");
    pthread_barrier_wait(&me->job->line_up);
    dev_stream_close(b.stream);
}
TEST(a_stuck_watchdog_is_seen)
{
    for (int i = 0; i < 2; i++) {
        atomic_store(&is_host, i);
        suite_run_late(&suite_nccl, 1, 2, waited_out_ms(2500), stuck_rank);
        atomic_store(&knobs->hangs, 0);
        nccl_world_check_clean(knobs);
    }
}

/* ---- closing, memory ---- */

/* One rank closes without the others: it does not wait for them, and aborts. */
static void alone_rank(struct suite_rank *me)
{
    int64_t begin = clock_ms();
    CHECK_OK(comm_barrier(me->comm));
    if (me->place.rank == 0) {
        comm_close(me->comm);
        me->comm = NULL;
        CHECK(clock_ms() - begin < harness_patience_ms(4000), "%lld ms",
              (long long)(clock_ms() - begin));
    }
    pthread_barrier_wait(&me->job->line_up);
}
TEST(one_closes_alone)
{
    int aborted = atomic_load(&knobs->aborted_n);
    suite_run_on(&suite_nccl, 1, 2, harness_patience_ms(20000), alone_rank);
    assert_true(atomic_load(&knobs->aborted_n) > aborted);
    nccl_world_check_clean(knobs);
}

static atomic_int has_memory;
static enum status open_with_sms(struct suite_rank *me, const struct comm_config *config)
{
    struct comm_config mine = *config;
    mine.device_sms = atomic_load(&has_memory) ? 16 : 0;
    return nccl_world_open_as(me, &mine, COMM_KIND_NCCL);
}
static void memory_rank(struct suite_rank *me)
{
    void *data;
    CHECK_OK(comm_alloc(me->comm, 5000, &data));
    CHECK(dev_holds(suite_dev, data), "%p", data);
    pthread_barrier_wait(&me->job->line_up);
    CHECK(atomic_load(&knobs->registered_n) == (atomic_load(&has_memory) ? me->place.ranks : 0),
          "%d", atomic_load(&knobs->registered_n));
    CHECK(knobs->max_ctas == (atomic_load(&has_memory) ? 16 : INT_MIN), "%d", knobs->max_ctas);
    CHECK_OK(comm_barrier(me->comm));
}
TEST(memory_is_nccls_where_it_has_an_allocator)
{
    for (int i = 0; i < 2; i++) {
        atomic_store(&has_memory, i);
        knobs->mem_alloc = i ? nccl_world_alloc : NULL;
        struct suite suite = suite_nccl;
        suite.open = open_with_sms;
        suite_run_on(&suite, 1, 2, harness_patience_ms(20000), memory_rank);
        nccl_world_check_clean(knobs);
    }
}

int main(void)
{
    harness_quiet();
    knobs = nccl_world_begin();
    suite_this = &suite_nccl;
    int failed = harness_run_all(__FILE__, NULL, NULL);
    fake_device_close(suite_dev);
    return failed;
}

/* test_shm_flip — a bit of what one rank gives to others through shared memory is flipped between
 * the barrier's two sides: in eager slots, in buffers read in place, in finished sums, in bounce
 * buffers and in messages. With checksums no call with wrong content succeeds, and the failure
 * names rank, call and node. The barriers are replaced by ones that flip the bit (--wrap of the
 * linker). */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "comm/core/part.h"
#include "comm/shm/shm_coll.h"

enum { RANKS = 3, FEW = 3, SMALL = 1000, LARGE = 100000 };

enum phase { NEVER, BEFORE_ENTER, AFTER_ENTER, AFTER_WAIT, BEFORE_WAIT };

/* What is flipped in rank 1's view, and when; taken by the first rank that comes there. */
static struct {
    _Atomic int phase;
    int waits;      /* BEFORE_WAIT, AFTER_WAIT: barriers of the call before that one */
    char *at;       /* BEFORE_ENTER, BEFORE_WAIT: the byte */
    int64_t offset; /* AFTER_WAIT: of the byte in the bounce buffer */
    atomic_bool done;
} flip;
static _Thread_local int waits_n; /* of this call of this rank */

static bool is_time(int phase)
{
    int wanted = phase;
    return atomic_compare_exchange_strong(&flip.phase, &wanted, NEVER);
}

/* Damage is not synchronised with the readers: the thread sanitizer must not look. */
__attribute__((noinline, no_sanitize("thread"))) static void flip_byte(char *at)
{
    *at ^= 4;
    flip.done = true;
}

enum status __real_shm_barrier_enter(struct shm_barrier *barrier, struct comm_ctx *ctx,
                                     const void *in, int64_t in_bytes, void *out, int64_t out_bytes,
                                     int64_t eager_bytes);
enum status __wrap_shm_barrier_enter(struct shm_barrier *barrier, struct comm_ctx *ctx,
                                     const void *in, int64_t in_bytes, void *out, int64_t out_bytes,
                                     int64_t eager_bytes);
/* BEFORE_ENTER: rank 1 has published its checksums. AFTER_ENTER: rank 0 is about to read. */
enum status __wrap_shm_barrier_enter(struct shm_barrier *barrier, struct comm_ctx *ctx,
                                     const void *in, int64_t in_bytes, void *out, int64_t out_bytes,
                                     int64_t eager_bytes)
{
    waits_n = 0;
    if (barrier->rank == 1 && in != NULL && is_time(BEFORE_ENTER))
        flip_byte(flip.at);
    enum status st =
        __real_shm_barrier_enter(barrier, ctx, in, in_bytes, out, out_bytes, eager_bytes);
    if (st == ST_OK && barrier->rank == 0 && is_time(AFTER_ENTER))
        flip_byte(shm_barrier_eager_slot(barrier, 1));
    return st;
}

enum status __real_shm_barrier_wait(struct shm_barrier *barrier, struct comm_ctx *ctx);
enum status __wrap_shm_barrier_wait(struct shm_barrier *barrier, struct comm_ctx *ctx);
/* BEFORE_WAIT: rank 1 has stored its sums to all ranks. AFTER_WAIT: rank 0 is about to read the
 * bounce buffer of rank 1. */
enum status __wrap_shm_barrier_wait(struct shm_barrier *barrier, struct comm_ctx *ctx)
{
    if (barrier->rank == 1 && is_time(BEFORE_WAIT))
        flip_byte(flip.at);
    enum status st = __real_shm_barrier_wait(barrier, ctx);
    if (st == ST_OK && barrier->rank == 0 && waits_n++ == flip.waits && is_time(AFTER_WAIT))
        flip_byte(shm_barrier_bounce(barrier, 1, 0) + flip.offset);
    return st;
}

/* ---- one call of three ranks ---- */

enum call { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST, SEND, CALLS_N };
static const char *const names[CALLS_N] = {"all_reduce", "reduce_scatter", "all_gather",
                                           "all_to_all", "broadcast",      "recv"};

static struct job {
    enum call call;
    enum phase phase;
    int64_t elems;
    bool is_visible; /* the buffers lie in shared memory */
    bool checks;
    int fd;
    pthread_barrier_t ready;
    atomic_bool is_sent; /* SEND: rank 1's message is posted */
    float *in[RANKS], *out[RANKS];
    enum status st[RANKS];
    char message[RANKS][512];
} * job;

static enum status make_call(struct comm *comm, int rank)
{
    const struct tensor in = {job->in[rank], DTYPE_F32}, out = {job->out[rank], DTYPE_F32};
    const int64_t n = job->elems;
    switch (job->call) {
    case ALL_REDUCE:
        return comm_all_reduce(comm, out, in, n);
    case REDUCE_SCATTER:
        return comm_reduce_scatter(comm, out, in, n);
    case ALL_GATHER:
        return comm_all_gather(comm, out, in, n);
    case ALL_TO_ALL:
        return comm_all_to_all(comm, out, in, n / RANKS / 16 * 16);
    case BROADCAST:
        return comm_broadcast(comm, in, n, 1);
    default:
        return rank == 1   ? comm_send(comm, in, n, 0)
               : rank == 0 ? comm_recv(comm, in, n, 1)
                           : ST_OK;
    }
}

/* The message of rank 1 is posted when rank 0 flips a bit of it, and then receives it. */
static void flip_message(void)
{
    struct stat info;
    if (job->is_visible) {
        harness_wait_ms(100); /* until rank 1 waits for the receiver */
        flip_byte((char *)job->in[1]);
        return;
    }
    assert_int_equal(fstat(job->fd, &info), 0);
    char *all = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, job->fd, 0);
    assert_true(all != MAP_FAILED);
    char *at = memmem(all, (size_t)info.st_size, job->in[1], 64);
    if (at != NULL)
        flip_byte(at);
    munmap(all, (size_t)info.st_size);
}

static enum status fill(struct comm *comm, int rank)
{
    const size_t bytes = LARGE * sizeof(float);
    void *in = malloc(bytes), *out = malloc(bytes);
    if (job->is_visible) {
        free(in);
        free(out);
        TRY(comm_alloc(comm, (int64_t)bytes, &in));
        TRY(comm_alloc(comm, (int64_t)bytes, &out));
    }
    job->in[rank] = in;
    job->out[rank] = out;
    for (int i = 0; i < LARGE; i++)
        job->in[rank][i] = (float)((rank + 1) * (i + 1));
    return ST_OK;
}

static enum status work(struct comm **comm, int rank)
{
    const struct comm_config config = {
        .kind = COMM_KIND_HOST,
        .place = {.rank = rank, .ranks = RANKS, .nodes = 1, .local = rank, .locals = RANKS},
        .timeout_ms = harness_patience_ms(20000),
        .checks_shm = job->checks,
        .shm_fd = job->fd};
    int64_t bytes;
    TRY(comm_begin_open(&config, comm, NULL, &bytes));
    TRY(comm_end_open(*comm, 1, NULL, NULL));
    TRY(fill(*comm, rank));
    pthread_barrier_wait(&job->ready);
    pthread_barrier_wait(&job->ready);
    if (job->call == SEND && rank == 0 && job->phase != NEVER) {
        while (!job->is_visible && !job->is_sent)
            clock_sleep_ms(1);
        flip_message();
    }
    TRY(make_call(*comm, rank));
    job->is_sent = job->is_sent || rank == 1;
    return ST_OK;
}

static void *rank_main(void *arg)
{
    const int rank = (int)(intptr_t)arg;
    struct comm *comm = NULL;
    job->st[rank] = work(&comm, rank);
    snprintf(job->message[rank], sizeof job->message[0], "%s", status_message());
    pthread_barrier_wait(&job->ready);
    comm_close(comm);
    if (!job->is_visible) {
        free(job->in[rank]);
        free(job->out[rank]);
    }
    return NULL;
}

/* Where a byte is flipped that rank 0 reads of rank 1. */
static void arm(void)
{
    const int64_t round =
        job->elems * 4 > SHM_BARRIER_BOUNCE_BYTES ? SHM_BARRIER_BOUNCE_BYTES / 4 : job->elems;
    flip.at = (char *)job->in[1];
    if (job->phase == BEFORE_WAIT)
        flip.at = (char *)(job->out[0] + part_extent(job->elems, RANKS, 1).first);
    flip.offset = flip.waits > 0 ? part_extent(round, RANKS, 1).first * 4 : 0;
    flip.done = false;
    flip.phase = job->call == SEND ? NEVER : job->phase;
}

static void run_ranks(struct job *j)
{
    pthread_t threads[RANKS];
    job = j;
    j->fd = memfd_create("test", MFD_CLOEXEC);
    pthread_barrier_init(&j->ready, NULL, RANKS + 1);
    for (int r = 0; r < RANKS; r++)
        pthread_create(&threads[r], NULL, rank_main, (void *)(intptr_t)r);
    pthread_barrier_wait(&j->ready);
    arm();
    pthread_barrier_wait(&j->ready);
    pthread_barrier_wait(&j->ready);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&j->ready);
    close(j->fd);
}

/* Where ranks 0 and 2 read the byte, the second one may learn of it from the first. */
static bool names_damage(const struct job *j, int rank)
{
    char given[64], reader[64];
    snprintf(given, sizeof given, "what rank 1 gave in %s", names[j->call]);
    snprintf(reader, sizeof reader, "rank %d read other bytes", rank);
    return j->st[rank] == ST_PEER && strstr(j->message[rank], given) != NULL &&
           strstr(j->message[rank], "workers of node 0 share") != NULL &&
           strstr(j->message[rank], reader) != NULL;
}

static void run_case(enum call call, enum phase phase, int64_t elems, bool is_visible, int waits,
                     bool checks)
{
    struct job j = {
        .call = call, .phase = phase, .elems = elems, .is_visible = is_visible, .checks = checks};
    flip.waits = waits;
    run_ranks(&j);
    const bool fails = checks && phase != NEVER;
    bool is_right = (phase == NEVER || flip.done) && j.st[0] == (fails ? ST_PEER : ST_OK) &&
                    (!fails || names_damage(&j, 0) || names_damage(&j, 2));
    for (int r = 1; r < RANKS; r++)
        is_right = is_right && (j.st[r] == ST_OK || (fails && j.st[r] == ST_PEER));
    if (!is_right)
        fail_msg("%s, phase %d, %lld elements%s, wait %d, checksums %d, %s: %s: %s", names[call],
                 (int)phase, (long long)elems, is_visible ? ", visible" : "", waits, checks,
                 flip.done ? "flipped" : "not flipped", status_name(j.st[0]), j.message[0]);
}

static void run_all(bool checks)
{
    for (int call = 0; call < CALLS_N; call++) {
        const enum call c = (enum call)call;
        run_case(c, AFTER_ENTER, SMALL, false, 0, checks);
        run_case(c, BEFORE_ENTER, LARGE, true, 0, checks);
        run_case(c, c == SEND ? BEFORE_ENTER : AFTER_WAIT, c == SEND ? SMALL : LARGE, false, 0,
                 checks);
        run_case(c, NEVER, LARGE, true, 0, checks);
    }
    run_case(ALL_REDUCE, AFTER_ENTER, FEW, false, 0, checks);
    run_case(ALL_REDUCE, BEFORE_WAIT, LARGE, true, 0, checks);
    run_case(ALL_REDUCE, AFTER_WAIT, LARGE, false, 1, checks);
}

static void a_flipped_bit_is_named(void **state)
{
    (void)state;
    run_all(true);
}

/* So that the test above is known to flip what ranks use. */
static void without_checksums_it_is_not_noticed(void **state)
{
    (void)state;
    run_all(false);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(a_flipped_bit_is_named),
                                          cmocka_unit_test(without_checksums_it_is_not_noticed)};
HARNESS_MAIN(tests)

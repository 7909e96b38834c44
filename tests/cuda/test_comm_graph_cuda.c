/* Collectives inside CUDA graphs (COMM_GRAPH=1): several ranks on the CUDA device without a GPU,
 * with streams that run beside each other (streams.h) and the tests' own NCCL, which refuses what
 * the real one forbids. */
#ifndef CONVOY_CUDA
#include "tests/cuda/absent.h"
#else
#define GUARDED_STREAMS
#include "kernel_test.h"

#include "base/clock.h"
#include "mesh/trial.h"
#include "tests/cuda/rank_devices.h"
#include "train/step_inside.h"

#define STEPS 5
#define SEQ 3
#define RANKS 2

static struct fake_nccl *knobs;

static char addresses[RANKS_MAX][COMM_ADDRESS_MAX];
static int64_t addresses_bytes[RANKS_MAX];
static pthread_barrier_t together;

static enum status open_nccl(struct ranks_one *one, struct comm_config config)
{
    config.kind = COMM_KIND_NCCL;
    enum status st =
        comm_begin_open(&config, &one->comm, addresses[one->rank], &addresses_bytes[one->rank]);
    pthread_barrier_wait(&together);
    return st == ST_OK ? comm_end_open(one->comm, 1, addresses, addresses_bytes) : st;
}

static void check_clean(void)
{
    assert_int_equal(streams.graphs_n, 0);
    assert_int_equal(atomic_load(&knobs->open_n), 0);
    assert_int_equal(atomic_load(&knobs->misused_n), 0);
}

/* ---- the same bits, with fewer launches ---- */

/* What all ranks have asked of the runtime, after each step. */
static struct seen {
    int launches, captures;
} seen[STEPS];

static void look(const struct ranks_one *one, int step)
{
    pthread_barrier_wait(&together);
    if (one->rank == 0)
        seen[step] = (struct seen){streams.launches, streams.captures};
    pthread_barrier_wait(&together);
}

static struct trial trial_of_ranks(int ranks, int64_t batch, enum layout_shard shard)
{
    struct trial like = trial_of(MODEL_TASK_LM, 2 * ranks, SEQ);
    like.steps = STEPS;
    like.stepped = look;
    like.config.batch_samples = batch;
    like.config.store.shard = shard;
    like.config.dropout = 0.1f;
    like.config.dims.layers = 2;
    like.config.dims.heads = 1;
    like.config.dims.embed = 8;
    like.config.dims.vocab = 11;
    return like;
}

static struct trial run(struct trial like, int ranks, bool comm_graph)
{
    pthread_barrier_init(&together, NULL, (unsigned)ranks);
    like.config.comm_graph = comm_graph;
    struct trial got = trial_run(&like, 1, ranks);
    pthread_barrier_destroy(&together);
    check_clean();
    return got;
}

/* The last step asks for what the one before has asked for: graphs that it launches. */
static int last_launches(void)
{
    assert_int_equal(seen[STEPS - 1].captures, seen[STEPS - 2].captures);
    return seen[STEPS - 1].launches - seen[STEPS - 2].launches;
}

/* Returns how many graphs a rank launches in a step. */
static int one_graph(struct trial like, int ranks, const char *what)
{
    char name[80];
    text_format(name, sizeof name, "%s%d ranks, %d samples at once, shard %d", what, ranks,
                (int)like.config.batch_samples, (int)like.config.store.shard);
    int posted = atomic_load(&knobs->posted_n);
    struct trial want = run(like, ranks, false);
    int off = last_launches(), posted_off = atomic_load(&knobs->posted_n) - posted;
    int captured = atomic_load(&knobs->captured_n);
    posted += posted_off;
    struct trial got = run(like, ranks, true);
    int on = last_launches(), posted_on = atomic_load(&knobs->posted_n) - posted;
    trial_same(&got, &want, name);
    captured = atomic_load(&knobs->captured_n) - captured;
    print_message("# %s: each rank launches %d graphs in a step and calls NCCL %d times in %d "
                  "steps; without COMM_GRAPH %d and %d; %d calls captured\n",
                  name, on / ranks, posted_on / ranks, STEPS, off / ranks, posted_off / ranks,
                  captured / ranks);
    assert_true(captured > 0 && on < off && posted_on < posted_off);
    trial_free(&got);
    trial_free(&want);
    return on / ranks;
}

static void same_bits(void **state)
{
    (void)state;
    fake_count();
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int64_t batch = 2; batch >= 1; batch--)
            one_graph(trial_of_ranks(RANKS, batch, (enum layout_shard)shard), RANKS, "");
    one_graph(trial_of_ranks(4, 2, LAYOUT_SHARD_FULL), 4, "");
    print_message("# %d kernels ran while a collective of their graph waited\n",
                  streams.nodes_beside);
    assert_true(streams.nodes_beside > 0 && fake_counted(FAKE_WITH) > 0);
}

/* 16-bit weights, gradients that are summed as bf16, and both. */
static void sixteen_bits(void **state)
{
    (void)state;
    static const char *const names[] = {"", "bf16, ", "sums bf16, ", "both, "};
    for (int form = 1; form <= 3; form++)
        for (int i = 0; i < 2; i++) {
            enum layout_shard shard = i ? LAYOUT_SHARD_FULL : (enum layout_shard)(form - 1);
            struct trial like = trial_of_ranks(RANKS, 1 + (form + i) % 2, shard);
            like.config.store.dtype = form & 1 ? DTYPE_BF16 : DTYPE_F32;
            like.config.store.compress =
                form & 2 ? GRAD_COMPRESS_KIND_BF16 : GRAD_COMPRESS_KIND_NONE;
            one_graph(like, RANKS, names[form]);
        }
}

/* EMBED_ROWS=1: with the head's dense gradient and (QA) without one, in one micro-batch and in the
 * second of two. */
static void rows_of_tokens(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        bool is_qa = form & 1, is_full = form & 2, is_whole = is_qa != is_full;
        struct trial like = trial_of_ranks(RANKS, is_whole ? 2 : 1,
                                           is_full ? LAYOUT_SHARD_FULL : LAYOUT_SHARD_NONE);
        like.config.dims.task = is_qa ? MODEL_TASK_QA : MODEL_TASK_LM;
        like.config.dims.vocab = 211;
        like.config.store.embed_rows = SPARSE_EMBED_CHOICE_ON;
        like.config.store.compress = is_whole ? GRAD_COMPRESS_KIND_BF16 : GRAD_COMPRESS_KIND_NONE;
        int calls = guarded_calls[GUARDED_embed_rows_add];
        one_graph(like, RANKS, is_qa ? "rows of tokens, QA, " : "rows of tokens, ");
        assert_int_equal(guarded_calls[GUARDED_embed_rows_add] - calls, 2 * STEPS * RANKS);
    }
}

/* ---- what comes between steps, and what differs on one rank ---- */

/* Logits and the whole state are read before the sixth step, as by an evaluation and a
 * checkpoint. */
static enum status interrupted_rank(struct ranks_one *one)
{
    struct trial *t = one->arg;
    struct step *step = NULL;
    struct batch batch = {0};
    const int32_t tokens[2] = {1, 2};
    float logits[16];
    const int steps = t->steps;
    enum status st;
    t->config.dev = one->dev;
    t->config.comm = one->comm;
    TRY_OR(step_open(&t->config, &step), out_close);
    t->elems = step_whole_table(step)->parameters;
    TRY_OR(batch_init(&batch, FEED_TASK_LM, t->config.global_samples / one->ranks, SEQ), out_close);
    t->steps = 5;
    TRY_OR(trial_steps(one, t, step, &batch), out_close);
    TRY_OR(step_logits(step, tokens, 2, logits), out_close);
    TRY_OR(trial_take(one, t, step), out_close);
    trial_free(t);
    t->first_step = 5, t->steps = steps - 5;
    TRY_OR(trial_steps(one, t, step, &batch), out_close);
    TRY_OR(trial_take(one, t, step), out_close);
out_close:
    step_close(step);
    batch_free(&batch);
    return st;
}

static struct trial run_interrupted(const struct trial *like, bool comm_graph)
{
    static struct trial all[RANKS_MAX];
    pthread_barrier_init(&together, NULL, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        all[rank] = *like;
        all[rank].config.comm_graph = comm_graph;
    }
    struct ranks_one one[RANKS_MAX];
    ranks_try(1, RANKS, RANKS_TIMEOUT_MS, interrupted_rank, all, sizeof *all, one);
    for (int rank = RANKS - 1; rank >= 0; rank--) /* rank 0 may end because of another */
        if (one[rank].st != ST_OK)
            fail_msg("rank %d: %s", rank, one[rank].message);
    pthread_barrier_destroy(&together);
    check_clean();
    return all[0];
}

static void between_steps(void **state)
{
    (void)state;
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += LAYOUT_SHARD_FULL) {
        struct trial like = trial_of_ranks(RANKS, 2, (enum layout_shard)shard);
        like.stepped = NULL;
        like.steps = 9;
        int captured = atomic_load(&knobs->captured_n);
        struct trial want = run_interrupted(&like, false);
        assert_int_equal(atomic_load(&knobs->captured_n), captured);
        struct trial got = run_interrupted(&like, true);
        assert_true(atomic_load(&knobs->captured_n) > captured);
        trial_same(&got, &want, "logits and state between steps");
        trial_free(&got);
        trial_free(&want);
    }
}

/* FAULT=nan on one rank: its work differs in that step, so no rank launches graphs then, and all
 * capture again later. */
static void one_rank_differs(void **state)
{
    (void)state;
    struct trial like = trial_of_ranks(RANKS, 2, LAYOUT_SHARD_GRADIENTS);
    like.stepped = NULL;
    like.steps = 8;
    like.nan_step = 4, like.nan_rank = 1;
    struct trial want = run(like, RANKS, false);
    int captured = atomic_load(&knobs->captured_n);
    struct trial got = run(like, RANKS, true);
    captured = atomic_load(&knobs->captured_n) - captured;
    print_message("# %d calls captured, in two steps\n", captured / RANKS);
    assert_true(isnan(want.loss[4]) && isnan(got.loss[4]) && isfinite(got.loss[7]));
    assert_int_equal(captured % (2 * RANKS), 0);
    trial_same(&got, &want, "not finite on one rank");
    trial_free(&got);
    trial_free(&want);
}

/* A capture fails on one rank: all go on one by one. */
static void one_rank_cannot_capture(void **state)
{
    (void)state;
    struct trial like = trial_of_ranks(RANKS, 2, LAYOUT_SHARD_FULL);
    like.stepped = NULL;
    struct trial want = run(like, RANKS, false);
    streams.fail_call = "cudaStreamEndCapture of calls";
    struct trial got = run(like, RANKS, true);
    assert_null(streams.fail_call);
    trial_same(&got, &want, "one rank cannot capture");
    trial_free(&got);
    trial_free(&want);
}

/* ---- calls of a graph under the watchdog ---- */

#define CALLS 5
#define ELEMS 4096

struct beside {
    struct stream *stream;
    struct tensor x[CALLS];
    struct comm_ticket ticket;
    bool is_ready;
};

static enum status beside_open(struct ranks_one *one, struct beside *b)
{
    void *data;
    TRY(dev_stream_open(one->dev, &b->stream));
    TRY(dev_graph_begin(b->stream));
    TRY(comm_alloc(one->comm, CALLS * ELEMS * 4, &data));
    for (int i = 0; i < CALLS; i++)
        b->x[i] = tensor_at((struct tensor){data, DTYPE_F32}, i * ELEMS);
    return comm_graph_open(one->comm, b->stream);
}

/* A step: each buffer is filled and summed; the sums are waited for when all calls have begun. */
static enum status beside_step(struct ranks_one *one, struct beside *b, bool is_agreed, int fills)
{
    struct comm_ticket ticket[CALLS];
    TRY(comm_graph_begin(one->comm, is_agreed));
    for (int i = 0; i < CALLS; i++) {
        for (int k = 0; k < fills; k++)
            TRY(dev_fill(b->stream, b->x[i].data, 0x3f, ELEMS * 4));
        TRY(comm_wait_stream(one->comm, b->stream));
        TRY(comm_all_reduce_begin(one->comm, b->x[i], b->x[i], ELEMS, &ticket[i]));
    }
    for (int i = 0; i < CALLS; i++)
        TRY(comm_wait_on(one->comm, ticket[i], b->stream));
    b->ticket = ticket[CALLS - 1];
    TRY(comm_graph_end(one->comm));
    b->is_ready = comm_graph_is_ready(one->comm);
    return ST_OK;
}

static void beside_close(struct ranks_one *one, struct beside *b)
{
    comm_graph_close(one->comm);
    dev_stream_close(b->stream);
}

static enum status check_sums(struct beside *b)
{
    float got[CALLS], one;
    memset(&one, 0x3f, sizeof one);
    for (int i = 0; i < CALLS; i++)
        TRY(dev_copy(b->stream, &got[i], b->x[i].data, sizeof *got));
    TRY(dev_sync(b->stream));
    for (int i = 0; i < CALLS; i++)
        if (got[i] != RANKS * one)
            return FAIL(ST_BUG, "call %d: %g", i, (double)got[i]);
    return ST_OK;
}

/* Numbers and bytes of calls, and when a rank is ready: the same however calls are submitted. */
static enum status count_rank(struct ranks_one *one)
{
    struct beside b = {0};
    struct comm_activity activity;
    struct comm_times times;
    TRY(beside_open(one, &b));
    for (int i = 0; i < 5; i++) {
        comm_times(one->comm, &times);
        comm_activity(one->comm, &activity);
        int64_t before = activity.sequence;
        TRY(beside_step(one, &b, i >= 2, 1));
        if (b.is_ready != (i >= 1))
            return FAIL(ST_BUG, "step %d: ready %d", i, (int)b.is_ready);
        TRY(comm_wait(one->comm, b.ticket));
        comm_activity(one->comm, &activity);
        comm_times(one->comm, &times);
        int64_t calls = activity.sequence - before;
        /* the step that captures asks the other ranks twice */
        int64_t asked = i == 2 ? 2 : 0, bytes = CALLS * 2 * (int64_t)ELEMS * 4 / RANKS;
        if (calls != CALLS + asked || times.bytes_sent < bytes || times.bytes_sent > bytes + 100)
            return FAIL(ST_BUG, "step %d: %lld calls of %lld bytes", i, (long long)calls,
                        (long long)times.bytes_sent);
        TRY(check_sums(&b));
    }
    beside_close(one, &b);
    return ST_OK;
}
static int unused[RANKS_MAX];
static void calls_are_counted(void **state)
{
    (void)state;
    pthread_barrier_init(&together, NULL, RANKS);
    ranks_run(1, RANKS, count_rank, unused, sizeof *unused);
    pthread_barrier_destroy(&together);
    check_clean();
}

/* The last rank's device does not come to the calls of its graph. Rank 0 sees the first call under
 * way, and each rank ends within the limit, with the call's kind, number and elements. */
static enum status lost_rank(struct ranks_one *one)
{
    struct beside b = {0};
    struct comm_activity activity = {0};
    TRY(beside_open(one, &b));
    for (int i = 0; i < 4; i++)
        TRY(beside_step(one, &b, i >= 2, 1));
    TRY(check_sums(&b));
    pthread_barrier_wait(&together);
    atomic_store(&knobs->lost_rank, RANKS);
    int64_t begin = clock_ms();
    enum status st = beside_step(one, &b, true, 1);
    for (int64_t until_ms = begin + one->timeout_ms;
         st == ST_OK && !activity.call[0] && clock_ms() < until_ms; clock_sleep_us(100))
        comm_activity(one->comm, &activity);
    if (st == ST_OK)
        st = comm_wait(one->comm, b.ticket);
    bool is_named = st == ST_PEER && strstr(status_message(), "all_reduce 23 of 4096 elements") &&
                    strstr(status_message(), "is not finished");
    int64_t ms = clock_ms() - begin;
    if (!is_named || strcmp(activity.call, "all_reduce") != 0 || activity.elems != ELEMS ||
        ms > harness_patience_ms(20000))
        return FAIL(ST_BUG, "%s after %lld ms in '%s' of %lld: %s", status_name(st), (long long)ms,
                    activity.call, (long long)activity.elems, status_message());
    TRY(dev_sync(b.stream)); /* goes on */
    pthread_barrier_wait(&together);
    beside_close(one, &b);
    return ST_OK;
}
static void a_lost_rank_is_named(void **state)
{
    (void)state;
    struct ranks_one one[RANKS_MAX];
    pthread_barrier_init(&together, NULL, RANKS);
    ranks_try(1, RANKS, (int64_t)(1500 * (harness_slow() < 4 ? harness_slow() : 4)), lost_rank,
              unused, sizeof *unused, one);
    for (int rank = 0; rank < RANKS; rank++)
        if (one[rank].st != ST_OK)
            fail_msg("rank %d: %s", rank, one[rank].message);
    pthread_barrier_destroy(&together);
    atomic_store(&knobs->lost_rank, 0);
    check_clean();
}

/* A rank ends while the others' graph waits for it: the abort ends the calls. */
static enum status leaving_rank(struct ranks_one *one)
{
    struct beside b = {0};
    TRY(beside_open(one, &b));
    for (int i = 0; i < 4; i++)
        TRY(beside_step(one, &b, i >= 2, 1));
    TRY(check_sums(&b));
    pthread_barrier_wait(&together);
    enum status st = ST_RETRY; /* of the rank that ends */
    if (one->rank == 0) {
        st = beside_step(one, &b, true, 1);
        pthread_barrier_wait(&together);
        st = st == ST_OK ? comm_wait(one->comm, b.ticket) : st;
    } else {
        pthread_barrier_wait(&together);
        atomic_store(one->is_aborted, true);
    }
    char message[512];
    text_format(message, sizeof message, "%s", st == ST_PEER ? status_message() : "left");
    beside_close(one, &b);
    return FAIL(st, "%s", message);
}
static void a_rank_leaves(void **state)
{
    (void)state;
    struct ranks_one one[RANKS_MAX];
    pthread_barrier_init(&together, NULL, RANKS);
    ranks_try(1, RANKS, harness_patience_ms(60000), leaving_rank, unused, sizeof *unused, one);
    pthread_barrier_destroy(&together);
    assert_int_equal(one[1].st, ST_RETRY);
    assert_int_equal(one[0].st, ST_PEER);
    assert_non_null(strstr(one[0].message, "all_reduce"));
    assert_non_null(strstr(one[0].message, "aborted"));
    check_clean();
}

/* ---- what is refused ---- */

static int mixture;
enum { OTHER_WORK, CAPTURED_BESIDE_NOT };

/* Rank 1 breaks the agreement. */
static enum status breaking_rank(struct ranks_one *one)
{
    struct beside b = {0};
    TRY(beside_open(one, &b));
    for (int i = 0; i < 4; i++)
        TRY(beside_step(one, &b, i >= 2, 1));
    TRY(check_sums(&b));
    bool breaks = one->rank == 1;
    enum status st = beside_step(one, &b, !(breaks && mixture == CAPTURED_BESIDE_NOT),
                                 breaks && mixture == OTHER_WORK ? 2 : 1);
    st = st == ST_OK ? comm_wait(one->comm, b.ticket) : st;
    char message[512];
    text_format(message, sizeof message, "%s", status_message());
    if (st != ST_OK)
        atomic_store(one->is_aborted, true);
    beside_close(one, &b);
    return st == ST_OK ? ST_OK : FAIL(st, "%s", message);
}
static void broken_agreements(void **state)
{
    (void)state;
    for (mixture = OTHER_WORK; mixture <= CAPTURED_BESIDE_NOT; mixture++) {
        struct ranks_one one[RANKS_MAX];
        pthread_barrier_init(&together, NULL, RANKS);
        ranks_try(1, RANKS, harness_patience_ms(60000), breaking_rank, unused, sizeof *unused, one);
        pthread_barrier_destroy(&together);
        for (int rank = 0; rank < RANKS; rank++)
            print_message("# rank %d: %s\n", rank, one[rank].message);
        assert_true(one[0].st != ST_OK && one[1].st != ST_OK);
        if (mixture == OTHER_WORK)
            assert_non_null(strstr(one[1].message, "part 1 of the step, is not what was captured"));
        else
            assert_true(strstr(one[0].message, "invalid usage") ||
                        strstr(one[1].message, "invalid usage"));
        atomic_store(&knobs->misused_n, 0);
        check_clean();
    }
}

static enum status forbidden_rank(struct ranks_one *one)
{
    struct stream *stream;
    TRY(dev_stream_open(one->dev, &stream));
    TRY(dev_graph_begin(stream));
    enum status st = comm_graph_open(one->comm, stream);
    bool is_right =
        st == ST_BAD_SETTING && strstr(status_message(), "NCCL_GRAPH_MIXING_SUPPORT=0") != NULL;
    comm_graph_close(one->comm);
    dev_stream_close(stream);
    return is_right ? ST_OK : FAIL(ST_BUG, "%s: %s", status_name(st), status_message());
}
static void the_environment_forbids(void **state)
{
    (void)state;
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
    pthread_barrier_init(&together, NULL, 2);
    ranks_run(1, 2, forbidden_rank, unused, sizeof *unused);
    pthread_barrier_destroy(&together);
    unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
}

/* The tests' runtime: a stream that joined a capture must be joined again, and an event from
 * outside has no place in one. */
static void the_runtime_is_strict(void **state)
{
    (void)state;
    cudaStream_t a = NULL, b = NULL;
    cudaEvent_t event = NULL;
    cudaGraph_t graph = NULL;
    cudaStreamCreateWithPriority(&a, cudaStreamNonBlocking, 0);
    cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, 0);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    for (int is_joined = 0; is_joined < 2; is_joined++) {
        cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
        cudaEventRecord(event, a);
        cudaStreamWaitEvent(b, event, 0);
        cudaMemsetAsync(streams.space, 1, 1, b);
        cudaEventRecord(event, b);
        if (is_joined)
            cudaStreamWaitEvent(a, event, 0);
        assert_int_equal(cudaStreamEndCapture(a, &graph),
                         is_joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    }
    cudaGraphDestroy(graph);
    cudaEventRecord(event, b);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    assert_int_equal(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureIsolation);
    assert_int_equal(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
    cudaEventDestroy(event);
    (void)cudaGetLastError();
    check_clean();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_runtime_is_strict),
    cmocka_unit_test(the_environment_forbids),
    cmocka_unit_test(calls_are_counted),
    cmocka_unit_test(a_lost_rank_is_named),
    cmocka_unit_test(a_rank_leaves),
    cmocka_unit_test(same_bits),
    cmocka_unit_test(sixteen_bits),
    cmocka_unit_test(rows_of_tokens),
    cmocka_unit_test(between_steps),
    cmocka_unit_test(one_rank_differs),
    cmocka_unit_test(one_rank_cannot_capture),
    cmocka_unit_test(broken_agreements),
};

static void use_nccl(void)
{
    static char path[700];
    text_format(path, sizeof path, "%s", here("/nccl"));
    library_dir(path);
    knobs = fake_nccl_find(path);
    knobs->base = knobs->alias = streams.space;
    knobs->bytes = STREAMS_SPACE;
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    streams_begin();
    ranks_own_dev = rank_device;
    ranks_own_open = open_nccl;
    for (int rank = 0; rank < 4; rank++)
        open_once(rank_device(rank)); /* which leads to another folder */
    use_nccl();
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
#endif

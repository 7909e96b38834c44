/* Waits between streams, without a GPU (guarded.h): operations on the same bytes that no wait
 * orders are named, whatever the order in which they are called (clocks.h), and nothing else is.
 * Then the program's own waits: copies, recorded work, and ranks that train together have all that
 * they need; test_wait_mutants.sh takes them away one by one. */
#include "mesh/trial.h"

#include "kernel_test.h"
#include "tests/cuda/rank_devices.h"

#define BYTES ((size_t)2048) /* 32 rows of 32 16-bit numbers */
#define ROWS 32

/* ---- what is reported ---- */

static void keep_reports(void)
{
    clocks.is_kept = true;
    clocks.report[0] = 0;
}

static void expect_none(const char *what)
{
    if (clocks.report[0])
        fail_msg("%s: %s", what, clocks.report);
}

/* Expects a report with these words, in this order, and forgets it. */
static void expect_race(const char *const *words, int n)
{
    const char *at = clocks.report;
    for (int i = 0; i < n; i++) {
        const char *found = strstr(at, words[i]);
        if (!found)
            fail_msg("no \"%s\" in \"%s\"", words[i], clocks.report);
        at = found + strlen(words[i]);
    }
    clocks.report[0] = 0;
}
#define EXPECT_RACE(...)                            \
    expect_race((const char *const[]){__VA_ARGS__}, \
                (int)(sizeof(const char *const[]){__VA_ARGS__} / sizeof(char *)))

/* ---- a device with three streams ---- */

struct rig {
    struct dev *dev;
    struct stream *s[3];
    char *a, *b, *c, *weight, *pinned;
};

static void *alloc(struct dev *dev)
{
    void *data = NULL;
    kt_ok(dev_alloc(dev, BYTES, &data));
    return data;
}

static struct rig open_rig(void)
{
    struct rig rig = {.dev = open_device()};
    void *pinned = NULL;
    for (int i = 0; i < 3; i++)
        kt_ok(dev_stream_open(rig.dev, &rig.s[i]));
    rig.a = alloc(rig.dev), rig.b = alloc(rig.dev), rig.c = alloc(rig.dev);
    rig.weight = alloc(rig.dev);
    kt_ok(dev_pin(rig.dev, BYTES, &pinned));
    rig.pinned = pinned;
    keep_reports();
    return rig;
}

static void close_rig(struct rig *rig)
{
    expect_none("at the end");
    for (int i = 0; i < 3; i++)
        dev_stream_close(rig->s[i]);
    dev_close(rig->dev);
    assert_int_equal(runtime.blocks_n + runtime.pinned_n + clocks.blocks_n, 0);
    clocks.is_kept = false;
}

static void sync_all(const struct rig *rig)
{
    for (int i = 0; i < 3; i++)
        kt_ok(dev_sync(rig->s[i]));
}

/* Each kind of operation that a stream may get; all but a fill read `in`, and all write `out`. */
enum kind { FILL, COPY, KERNEL, PRODUCT, KINDS };
static const char *const names[KINDS] = {"cudaMemsetAsync", "cudaMemcpyAsync", "gelu_fwd",
                                         "cublasLtMatmul"};

static void run(const struct rig *rig, struct stream *s, enum kind kind, char *out, char *in)
{
    const struct op_table *op = dev_op(rig->dev);
    struct tensor y = {out, DTYPE_BF16}, x = {in, DTYPE_BF16}, w = {rig->weight, DTYPE_BF16};
    switch (kind) {
    case FILL:
        kt_ok(dev_fill(s, out, 1, BYTES));
        break;
    case COPY:
        kt_ok(dev_copy(s, out, in, BYTES));
        break;
    case KERNEL:
        kt_ok(op->gelu_fwd(s, &(struct gelu_fwd){.y = y, .x = x, .n = BYTES / 2}));
        break;
    default:
        kt_ok(op->matmul_fwd(
            s, &(struct matmul_fwd){.y = y, .x = x, .w = w, .n = ROWS, .in = ROWS, .out = ROWS}));
        break;
    }
}

/* ---- two operations ---- */

/* The second operation reads what the first has written, writes what it has read, or writes what it
 * has written. */
static const struct {
    const char *first, *then;
    bool is_first_reading, is_then_reading;
} conflicts[] = {{"writes, and", "reads", false, true},
                 {"reads, and", "writes", true, false},
                 {"writes, and", "writes", false, false}};

TEST(two_operations_need_a_wait)
{
    struct rig rig = open_rig();
    int found = 0;
    for (int first = 0; first < KINDS; first++)
        for (int then = 0; then < KINDS; then++)
            for (int i = 0; i < 3; i++)
                for (int waits = 0; waits < 2; waits++) {
                    if ((conflicts[i].is_first_reading && first == FILL) ||
                        (conflicts[i].is_then_reading && then == FILL))
                        continue;
                    sync_all(&rig);
                    run(&rig, rig.s[0], (enum kind)first,
                        conflicts[i].is_first_reading ? rig.a : rig.b,
                        conflicts[i].is_first_reading ? rig.b : rig.a);
                    if (waits)
                        kt_ok(dev_stream_wait_stream(rig.s[1], rig.s[0]));
                    run(&rig, rig.s[1], (enum kind)then,
                        conflicts[i].is_then_reading ? rig.c : rig.b,
                        conflicts[i].is_then_reading ? rig.b : rig.c);
                    if (waits)
                        expect_none(names[then]);
                    else
                        EXPECT_RACE("bytes 0 to 2047 of 2048 bytes of device memory", names[first],
                                    "stream", conflicts[i].first, names[then], "stream",
                                    conflicts[i].then);
                    found += !waits;
                }
    print_message("# %d pairs of operations without a wait were named\n", found);
    close_rig(&rig);
}

/* Reads of the same bytes, and writes of neighbours, need no wait. */
TEST(only_shared_bytes_count)
{
    struct rig rig = open_rig();
    for (int kind = COPY; kind < KINDS; kind++)
        run(&rig, rig.s[kind - 1], (enum kind)kind,
            kind == COPY     ? rig.b
            : kind == KERNEL ? rig.c
                             : (char *)alloc(rig.dev),
            rig.a);
    sync_all(&rig);
    kt_ok(dev_fill(rig.s[0], rig.a, 1, 100));
    kt_ok(dev_fill(rig.s[1], rig.a + 100, 1, 100));
    struct tensor y = {rig.a + 200, DTYPE_BF16}, x = {rig.b, DTYPE_BF16};
    const struct gelu_fwd gelu = {.y = y, .x = x, .n = 25};
    kt_ok(dev_op(rig.dev)->gelu_fwd(rig.s[2], &gelu));
    expect_none("neighbours");
    kt_ok(dev_fill(rig.s[1], rig.a + 99, 1, 1));
    EXPECT_RACE("bytes 99 to 99 of 2048", "(operation ", "cudaMemsetAsync");
    kt_ok(dev_fill(rig.s[0], rig.a + 249, 1, 100));
    EXPECT_RACE("bytes 249 to 249 of 2048", "gelu_fwd", "writes, and", "cudaMemsetAsync");
    close_rig(&rig);
}

/* The program's kernel reads by asynchronous copies (cp.async), cuDNN by itself. */
TEST(attention_needs_a_wait)
{
    enum { B = 1, T = 64, H = 1, D = 64, C = H * D };
    static const enum dev_cuda_attention by[] = {DEV_CUDA_ATTENTION_OWN, DEV_CUDA_ATTENTION_CUDNN};
    static const char *const kernels[] = {"attention_fwd", "cudnnBackendExecute"};
    for (int i = 0; i < 2; i++)
        for (int waits = 0; waits < 2; waits++) {
            struct rig rig = open_rig();
            void *qkv = NULL, *out = NULL, *lse = NULL;
            const struct attention_fwd *a;
            guarded_through(dlopen(here("/libcudnn_graph.so.9"), RTLD_NOW), "fake_cudnn_device");
            dev_cuda_attention(rig.dev, by[i], false);
            kt_ok(dev_alloc(rig.dev, T * 3 * C * 2, &qkv));
            kt_ok(dev_alloc(rig.dev, T * C * 2, &out));
            kt_ok(dev_alloc(rig.dev, T * H * 4, &lse));
            a = &(struct attention_fwd){.out = {out, DTYPE_BF16},
                                        .lse = {lse, DTYPE_F32},
                                        .qkv = {qkv, DTYPE_BF16},
                                        .b = B,
                                        .t = T,
                                        .h = H,
                                        .hk = H,
                                        .d = D};
            for (int matrix = 0; matrix < 3; matrix++) { /* queries, keys, values */
                kt_ok(dev_op(rig.dev)->attention_fwd(rig.s[0], a));
                if (waits)
                    kt_ok(dev_stream_wait_stream(rig.s[1], rig.s[0]));
                kt_ok(dev_fill(rig.s[1], (char *)qkv + matrix * C * 2, 0, 2));
                if (!waits)
                    EXPECT_RACE(kernels[i], "reads, and", "cudaMemsetAsync");
                sync_all(&rig);
            }
            close_rig(&rig);
        }
}

/* ---- ways to wait ---- */

TEST(events_order_what_came_before)
{
    struct rig rig = open_rig();
    struct dev_event *event = NULL;
    kt_ok(dev_event_record(rig.s[0], &event)); /* before the write */
    kt_ok(dev_fill(rig.s[0], rig.a, 1, BYTES));
    kt_ok(dev_stream_wait(rig.s[1], event));
    run(&rig, rig.s[1], COPY, rig.b, rig.a);
    EXPECT_RACE("cudaMemsetAsync", "cudaMemcpyAsync");
    sync_all(&rig);
    /* an event that is recorded again: who has waited before is not ordered with it */
    kt_ok(dev_event_record(rig.s[0], &event));
    kt_ok(dev_stream_wait(rig.s[1], event));
    kt_ok(dev_fill(rig.s[0], rig.a, 1, BYTES));
    kt_ok(dev_event_record(rig.s[0], &event));
    run(&rig, rig.s[1], COPY, rig.b, rig.a);
    EXPECT_RACE("cudaMemsetAsync", "cudaMemcpyAsync");
    kt_ok(dev_stream_wait(rig.s[1], event));
    run(&rig, rig.s[1], COPY, rig.b, rig.a);
    expect_none("after the event");
    /* through a third stream, which does nothing itself */
    sync_all(&rig);
    kt_ok(dev_fill(rig.s[0], rig.a, 1, BYTES));
    kt_ok(dev_stream_wait_stream(rig.s[2], rig.s[0]));
    kt_ok(dev_stream_wait_stream(rig.s[1], rig.s[2]));
    run(&rig, rig.s[1], COPY, rig.b, rig.a);
    expect_none("through a third stream");
    dev_event_free(event);
    close_rig(&rig);
}

/* What the host has waited for comes before all that it submits later. */
TEST(the_host_orders_what_it_has_waited_for)
{
    struct rig rig = open_rig();
    struct dev_event *event = NULL;
    for (int way = 0; way < 6; way++) {
        bool is_done = false;
        sync_all(&rig);
        run(&rig, rig.s[0], KERNEL, rig.a, rig.b);
        kt_ok(dev_event_record(rig.s[0], &event));
        if (way == 1)
            kt_ok(dev_sync(rig.s[1])); /* of another stream */
        if (way == 2)
            kt_ok(dev_sync(rig.s[0]));
        if (way == 3)
            kt_ok(dev_event_sync(event));
        while (way == 4 && !is_done)
            kt_ok(dev_event_query(event, &is_done));
        while (way == 5 && !is_done)
            kt_ok(dev_stream_query(rig.s[0], &is_done));
        run(&rig, rig.s[1], KERNEL, rig.b, rig.c);
        if (way < 2)
            EXPECT_RACE("gelu_fwd", "reads, and", "gelu_fwd", "writes");
        else
            expect_none("the host has waited");
    }
    dev_event_free(event);
    close_rig(&rig);
}

/* Pinned memory is memory as well. */
TEST(pinned_memory_needs_a_wait)
{
    struct rig rig = open_rig();
    for (int waits = 0; waits < 2; waits++) {
        sync_all(&rig);
        kt_ok(dev_copy(rig.s[0], rig.pinned, rig.a, 1000));
        if (waits)
            kt_ok(dev_stream_wait_stream(rig.s[1], rig.s[0]));
        kt_ok(dev_copy(rig.s[1], rig.b, rig.pinned + 500, 1000));
        if (waits)
            expect_none("pinned");
        else
            EXPECT_RACE("bytes 500 to 999 of 2048 bytes of pinned memory", "writes, and", "reads");
    }
    close_rig(&rig);
}

/* A copy to the host arrives when the host has waited for it, not when anything else ends. */
TEST(results_arrive_when_they_were_waited_for)
{
    struct rig rig = open_rig();
    memset(rig.pinned, 7, BYTES);
    kt_ok(dev_fill(rig.s[0], rig.a, 9, BYTES));
    kt_ok(dev_copy(rig.s[0], rig.pinned, rig.a, BYTES));
    run(&rig, rig.s[0], KERNEL, rig.b, rig.a);
    kt_ok(dev_sync(rig.s[1]));
    assert_int_equal(rig.pinned[0], 7);
    kt_ok(dev_sync(rig.s[0]));
    assert_int_equal(rig.pinned[0], 9);
    /* a stream that waits for it gets it without the host */
    memset(rig.pinned, 7, BYTES);
    kt_ok(dev_copy(rig.s[0], rig.pinned, rig.b, BYTES));
    kt_ok(dev_copy(rig.s[0], rig.pinned, rig.a, BYTES));
    kt_ok(dev_stream_wait_stream(rig.s[1], rig.s[0]));
    kt_ok(dev_copy(rig.s[1], rig.c, rig.pinned, BYTES));
    kt_ok(dev_copy(rig.s[1], rig.pinned, rig.c, BYTES));
    kt_ok(dev_sync(rig.s[1]));
    assert_int_equal(rig.pinned[0], 9);
    close_rig(&rig);
}

/* An event inside of a graph orders what comes before it there, and nothing behind it. */
TEST(graphs_are_operations_one_by_one)
{
    struct rig rig = open_rig();
    struct dev_event *event = NULL;
    kt_ok(dev_graph_begin(rig.s[0]));
    for (int turn = 0; turn < 4; turn++) { /* from the second on a graph */
        run(&rig, rig.s[0], KERNEL, rig.a, rig.c);
        run(&rig, rig.s[0], FILL, rig.c, NULL);
        kt_ok(dev_event_record(rig.s[0], &event));
        run(&rig, rig.s[0], KERNEL, rig.b, rig.c);
        kt_ok(dev_flush(rig.s[0]));
        kt_ok(dev_stream_wait(rig.s[1], event));
        kt_ok(dev_fill(rig.s[1], rig.a, 1, BYTES));
        expect_none("before the event");
        kt_ok(dev_fill(rig.s[1], rig.b, 1, BYTES));
        EXPECT_RACE(turn > 0 ? "in a graph (operation" : "(operation", "writes, and",
                    "cudaMemsetAsync");
        sync_all(&rig);
    }
    assert_true(*runtime_calls("cudaGraphLaunch") > 0);
    dev_event_free(event);
    close_rig(&rig);
}

/* A closed stream's slot is used again only when its work is known to be done. */
TEST(many_streams_follow_each_other)
{
    struct rig rig = open_rig();
    for (int i = 0; i < 2 * CLOCKS_STREAMS; i++) {
        struct stream *s = NULL;
        kt_ok(dev_stream_open(rig.dev, &s));
        kt_ok(dev_fill(s, rig.a, i % 100, BYTES));
        dev_stream_close(s);
    }
    expect_none("closed streams were waited for");
    close_rig(&rig);
}

/* ---- the program ends ---- */

TEST(a_race_ends_the_program)
{
    char text[1024] = {0};
    int ends[2], ended = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct rig rig = open_rig();
        clocks.is_kept = false;
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        kt_ok(dev_fill(rig.s[0], rig.a, 1, BYTES));
        kt_ok(dev_fill(rig.s[1], rig.a, 2, BYTES));
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGABRT);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_non_null(strstr(text, "# no wait orders two operations on bytes 0 to 2047 of 2048"));
}

/* ---- the program's own waits ---- */

/* Many chunks of one call share two buffers, which are copied by two streams. */
#define CHUNKS 4
static enum status sum_chunks(struct ranks_one *one)
{
    const int64_t elems = CHUNKS * ((int64_t)4 << 20) / 4;
    const size_t bytes = (size_t)elems * 4;
    struct stream *s = NULL;
    void *data = NULL;
    float first = 0;
    struct comm_ticket ticket;
    TRY(dev_stream_open(one->dev, &s));
    TRY(dev_alloc(one->dev, bytes, &data));
    struct tensor sum = {data, DTYPE_F32};
    for (int turn = 0; turn < 2; turn++) {
        TRY(dev_fill(s, data, 0, bytes));
        TRY(comm_wait_stream(one->comm, s));
        TRY(comm_all_reduce_begin(one->comm, sum, sum, elems, &ticket));
        TRY(comm_wait_on(one->comm, ticket, s));
        TRY(dev_copy(s, &first, data, sizeof first));
        TRY(dev_sync(s));
    }
    dev_stream_close(s);
    dev_free(one->dev, data, bytes);
    return ST_OK;
}

TEST(chunks_wait_for_each_other)
{
    int unused[2] = {0};
    ranks_run(1, 2, sum_chunks, unused, sizeof *unused);
}

static struct trial tiny(enum layout_shard shard)
{
    struct trial like = trial_of(MODEL_TASK_LM, 4, 8);
    like.steps = 3; /* from the third on as CUDA graphs, where work is recorded */
    like.config.store.shard = shard;
    like.config.store.dtype = DTYPE_BF16;
    like.config.dims.layers = 2;
    like.config.dims.heads = 2;
    like.config.dims.embed = 16;
    like.config.dims.vocab = 47;
    return like;
}

static void train(struct trial like)
{
    struct trial got = trial_run(&like, 1, 2);
    assert_true(isfinite(got.loss[2]) && isfinite(got.norm[2]));
    trial_free(&got);
}

TEST(ranks_wait_for_each_other)
{
    train(tiny(LAYOUT_SHARD_NONE));
    train(tiny(LAYOUT_SHARD_FULL));
}

TEST(divided_models_wait_for_each_other)
{
    for (int axis = MESH_AXIS_TENSOR; axis <= MESH_AXIS_PIPELINE; axis++) {
        struct trial like = tiny(LAYOUT_SHARD_NONE);
        like.config.axis_ranks[axis] = 2;
        train(like);
    }
}

/* With an argument that is no number: prints where CUDA's headers are (test_wait_mutants.sh). */
int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "include") == 0)
        return puts(CUDA_INCLUDE) < 0;
    harness_quiet();
    rank_devices_open();
    int failed = harness_run_all(__FILE__, NULL, NULL);
    rank_devices_close();
    return failed;
}

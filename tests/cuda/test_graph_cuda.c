/* A step's work as CUDA graphs, without a GPU (guarded.h): the same bits as one operation after the
 * other, while everything that can change from step to step does; other work makes other lists; a
 * capture that fails; what is forbidden in a capture; where events are recorded; nothing leaks. The
 * update is submitted before the host looks at loss and norm, and changes nothing when they are not
 * finite. */
#include "kernel_test.h"

#include "tests/cuda/guarded.h"
#include "tests/cuda/steps.h"

#define STEPS 7
#define SEQ 5
#define SAMPLES 4

/* One way of training. */
struct way {
    enum model_task task;
    enum dtype dtype;
    enum optim_kind optim;
    int64_t batch; /* of a micro-batch, of SAMPLES */
    bool is_eager;
    /* between some steps logits are asked for, which rounds weights at another time */
    bool has_looks;
    bool has_masks; /* QA: from step 4 on samples have a mask */
};

static struct step *open_step(struct dev *dev, const struct way *way)
{
    struct step *step = NULL;
    struct step_config c = steps_config(dev, way->task, way->dtype, way->optim);
    c.batch_samples = way->batch, c.global_samples = SAMPLES, c.seq_tokens = SEQ;
    c.dims.heads = 2, c.dims.vocab = 37;
    c.is_eager = way->is_eager;
    kt_ok(step_open(&c, &step));
    /* too large, and due to be doubled soon */
    step_loss_scale_set(
        step, (struct step_loss_scale){STEP_LOSS_SCALE_MAX, STEP_LOSS_SCALE_GROWTH_STEPS - 3});
    return step;
}

/* What a run leaves: all of the state, then loss and norm of each step. */
struct outcome {
    float *state;
    int64_t elems;
    double results[STEPS][2];
    /* waits: for an event */
    int launches[STEPS], products[STEPS], waits[STEPS], agains[STEPS], again;
};

static struct outcome train(struct dev *dev, const struct way *way)
{
    static const int32_t look[] = {1, 2, 3};
    struct outcome out = {.again = 0};
    struct step *step = open_step(dev, way);
    struct batch b;
    float logits[37];
    kt_ok(batch_init(&b, way->task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA, SAMPLES, SEQ));
    uint8_t *mask = b.host.mask;
    for (int64_t i = 0; i < STEPS; i++) {
        struct step_result r;
        const int launches = *runtime_calls("cudaGraphLaunch"),
                  products = fake_counts()[0] + fake_counts()[1];
        const int waits = *runtime_calls("cudaEventSynchronize"),
                  syncs = *runtime_calls("cudaStreamSynchronize");
        b.host.mask = way->has_masks && i < 3 ? NULL : mask;
        steps_fill(&b, i, 37);
        kt_ok(step_run_batch(step, &b, i, i * SAMPLES, 1e-2 / (double)(1 + i), false, &r));
        out.results[i][0] = r.loss, out.results[i][1] = r.grad_norm;
        out.again += out.agains[i] = r.retries;
        out.waits[i] = *runtime_calls("cudaEventSynchronize") - waits;
        /* the first takes scratch, if it goes one by one */
        assert_true(i == 0 || *runtime_calls("cudaStreamSynchronize") == syncs);
        /* nothing is asked for behind the wait */
        assert_int_equal(*runtime_calls("cudaGraphLaunch"), runtime.launches_before_wait);
        out.launches[i] = *runtime_calls("cudaGraphLaunch") - launches;
        out.products[i] = fake_counts()[0] + fake_counts()[1] - products;
        if (way->has_looks && i % 2 == 1)
            kt_ok(step_logits(step, look, 3, logits));
    }
    b.host.mask = mask;
    out.state = steps_state(step, &out.elems);
    batch_free(&b);
    step_close(step);
    return out;
}

static void same(const struct outcome *a, const struct outcome *b)
{
    assert_int_equal(a->elems, b->elems);
    assert_memory_equal(a->state, b->state, (size_t)a->elems * sizeof *a->state);
    assert_memory_equal(a->results, b->results, sizeof a->results);
}

/* compare — as graphs, and one by one: the same bits. Returns the graphs' run, without its
 * state. */
static struct outcome compare(struct way way)
{
    struct dev *dev = open_device();
    way.is_eager = true;
    struct outcome eager = train(dev, &way);
    assert_int_equal(runtime.graphs_n, 0);
    way.is_eager = false;
    struct outcome graphs = train(dev, &way);
    same(&graphs, &eager);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(eager.launches[i], 0);
        assert_int_equal(graphs.waits[i], 1 + graphs.agains[i]);
        assert_int_equal(eager.waits[i], 1 + eager.agains[i]);
    }
    kt_free(eager.state);
    kt_free(graphs.state);
    dev_close(dev);
    assert_int_equal(runtime.graphs_n + runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
    return graphs;
}

/* Rate, step number, seed and offset of dropout, samples and scale of the loss change in every
 * step; kinds of optimiser, of head, of numbers; one and several micro-batches. From the second
 * step on a step of two micro-batches is two launches, of one it is one; the host waits for one
 * event, never for the stream, when the update has been asked for. */
TEST(graphs_give_the_same_bits)
{
    static const struct way ways[] = {
        {.task = MODEL_TASK_LM, .dtype = DTYPE_F32, .optim = OPTIM_KIND_ADAMW, .batch = 2},
        {.task = MODEL_TASK_LM, .dtype = DTYPE_BF16, .optim = OPTIM_KIND_SGD, .batch = 2},
        {.task = MODEL_TASK_QA, .dtype = DTYPE_F32, .optim = OPTIM_KIND_ADAMW, .batch = 2},
    };
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        struct outcome graphs = compare(ways[k]);
        assert_int_equal(graphs.launches[0], 0);
        for (int i = 1; i < STEPS; i++) {
            assert_int_equal(graphs.launches[i], 2);
            assert_true(i == 1 || graphs.products[i] == 0); /* cuBLASLt is not asked again */
        }
    }
    struct way one = {
        .task = MODEL_TASK_LM, .dtype = DTYPE_F16, .optim = OPTIM_KIND_ADAMW, .batch = SAMPLES};
    struct outcome graphs = compare(one);
    print_message("# fp16: %d gradients again with a smaller scale\n", graphs.again);
    assert_true(graphs.again > 1);
    assert_int_equal(graphs.launches[STEPS - 1], 1);
    assert_true(runtime.nodes_after_event > 0); /* the update's */
}

/* Of four micro-batches the two between the first and the last ask for the same: three graphs,
 * which is all that is made. */
TEST(middles_are_one_graph)
{
    const int before = *runtime_calls("cudaGraphInstantiate");
    struct outcome graphs = compare((struct way){.task = MODEL_TASK_LM,
                                                 .dtype = DTYPE_F32,
                                                 .optim = OPTIM_KIND_ADAMW,
                                                 .batch = SAMPLES / 4});
    assert_int_equal(graphs.launches[STEPS - 1], 4);
    assert_int_equal(*runtime_calls("cudaGraphInstantiate") - before, 3);
}

/* Weights that something else has rounded, samples with a mask: other lists, made graphs of their
 * own; the numbers stay. */
TEST(other_work_is_captured_anew)
{
    struct way looks = {.task = MODEL_TASK_LM,
                        .dtype = DTYPE_BF16,
                        .optim = OPTIM_KIND_ADAMW,
                        .batch = SAMPLES,
                        .has_looks = true};
    struct outcome graphs = compare(looks);
    assert_int_equal(graphs.launches[5], 1);
    assert_int_equal(graphs.launches[6], 1);
    struct way masks = {.task = MODEL_TASK_QA,
                        .dtype = DTYPE_F32,
                        .optim = OPTIM_KIND_ADAMW,
                        .batch = SAMPLES,
                        .has_masks = true};
    graphs = compare(masks);
    static const int launches[STEPS] = {0, 1, 1, 0, 1, 1, 1}; /* step 4 brings masks */
    assert_memory_equal(graphs.launches, launches, sizeof launches);
}

/* ---- what is not finite ---- */

/* One gradient that is not a number; then the same with a parameter, so that the loss is none
 * either. Nothing of the state changes, in graphs and without; the steps after it are as if it had
 * not been. */
static void leaves_the_state(struct way way)
{
    struct dev *dev = open_device();
    struct step *step = open_step(dev, &way), *twin = open_step(dev, &way);
    int64_t all;
    const float nan = NAN;
    struct step_result r, want;
    struct batch b;
    kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
    step_loss_scale_set(step, (struct step_loss_scale){4, 0}); /* soon halved in vain */
    step_loss_scale_set(twin, (struct step_loss_scale){4, 0});
    for (int64_t i = 0; i < 4; i++) { /* the third is a graph */
        steps_fill(&b, i, 37);
        kt_ok(step_run_batch(twin, &b, i, 0, 1e-2, false, &want));
        float *before = steps_state(step, &all), old = before[0];
        for (int spoilt = 0; spoilt < (i == 0 || i == 2 ? 3 : 0); spoilt++) {
            struct step_loss_scale scale = step_loss_scale(step);
            if (spoilt == 2)
                kt_ok(state_write(step_state(step), 0, 0, 1, &nan));
            assert_int_equal(step_run_batch(step, &b, i, 0, 1e-2, spoilt < 2, &r), ST_NOT_FINITE);
            kt_ok(state_write(step_state(step), 0, 0, 1, &old));
            step_loss_scale_set(step, scale); /* it was looked for in vain */
            float *after = steps_state(step, &all);
            assert_memory_equal(after, before, (size_t)all * sizeof *after);
            kt_free(after);
        }
        kt_free(before);
        kt_ok(step_run_batch(step, &b, i, 0, 1e-2, false, &r));
        assert_true(r.loss == want.loss && r.grad_norm == want.grad_norm);
    }
    float *x = steps_state(step, &all), *y = steps_state(twin, &all);
    assert_memory_equal(x, y, (size_t)all * sizeof *x);
    kt_free(x), kt_free(y);
    batch_free(&b);
    step_close(step);
    step_close(twin);
    dev_close(dev);
}

TEST(what_is_not_finite_changes_nothing)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
        for (int form = 0; form < 2;
             /* each type meets each optimiser and each way to the device, and these one another */
             form++)
            leaves_the_state((struct way){.task = MODEL_TASK_LM,
                                          .dtype = (enum dtype)dtype,
                                          .optim = form ? OPTIM_KIND_SGD : OPTIM_KIND_ADAMW,
                                          .batch = form ? 2 : SAMPLES,
                                          .is_eager = form != (dtype == DTYPE_BF16)});
}

/* CUDA may report a graph's event as reached because of an earlier launch: then the number is
 * missing, and the host waits for the stream. */
TEST(an_event_of_an_earlier_launch_is_detected)
{
    struct dev *dev = open_device();
    struct way way = {.task = MODEL_TASK_LM, .optim = OPTIM_KIND_ADAMW, .batch = SAMPLES};
    struct step *step = open_step(dev, &way), *twin = open_step(dev, &way);
    struct batch b;
    kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
    for (int64_t i = 0; i < 5; i++) {
        struct step_result r, want;
        steps_fill(&b, i, 37);
        kt_ok(step_run_batch(twin, &b, i, 0, 1e-2, false, &want));
        const int syncs = *runtime_calls("cudaStreamSynchronize");
        runtime.is_stale = 1;
        kt_ok(step_run_batch(step, &b, i, 0, 1e-2, false, &r));
        runtime.is_stale = 0;
        /* the first is no graph yet */
        assert_int_equal(*runtime_calls("cudaStreamSynchronize") - syncs, i > 0);
        assert_true(r.loss == want.loss && r.grad_norm == want.grad_norm);
    }
    batch_free(&b);
    step_close(step);
    step_close(twin);
    dev_close(dev);
}

/* ---- what fails ---- */

struct run {
    struct way way;
    struct outcome out;
};

static void run_way(void *arg)
{
    struct run *run = arg;
    struct dev *dev = open_device();
    run->out = train(dev, &run->way);
    dev_close(dev);
    assert_int_equal(runtime.graphs_n + runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
}

TEST(the_log_names_the_way)
{
    struct run run = {.way = {.task = MODEL_TASK_LM, .optim = OPTIM_KIND_ADAMW, .batch = SAMPLES}};
    const char *text = harness_log_of(run_way, &run);
    const char *first = strstr(text, "as CUDA graphs: ");
    assert_non_null(first);
    assert_null(strstr(first + 20, "CUDA graph"));
    kt_free(run.out.state);
    run.way.is_eager = true;
    assert_non_null(strstr(harness_log_of(run_way, &run),
                           "CUDA_GRAPH=off: the GPU gets operations one by one"));
    kt_free(run.out.state);
}

/* A capture that fails in any way: logged once, and the same bits one by one. */
TEST(a_failed_capture_is_no_failure)
{
    static const struct {
        const char *call;
        cudaError_t error;
    } trials[] = {{"cudaStreamBeginCapture", cudaErrorIllegalState},
                  {"cudaStreamEndCapture", cudaErrorStreamCaptureUnjoined},
                  {"cudaGraphInstantiate", cudaErrorMemoryAllocation}};
    struct run eager = {.way = {.task = MODEL_TASK_LM,
                                .optim = OPTIM_KIND_ADAMW,
                                .batch = 2,
                                .is_eager = true}},
               run = eager;
    run_way(&eager);
    run.way.is_eager = false;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        int captures = *runtime_calls("cudaStreamBeginCapture");
        runtime_fail(trials[i].call, 0, trials[i].error);
        const char *text = harness_log_of(run_way, &run),
                   *first = strstr(text, "it cannot be made a CUDA graph: ");
        assert_null(runtime.fail_call);
        assert_non_null(first);
        assert_null(strstr(first + 40, "CUDA graph: "));
        assert_int_equal(*runtime_calls("cudaStreamBeginCapture"), captures + 1);
        same(&run.out, &eager.out);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
        kt_free(run.out.state);
    }
    kt_free(eager.out.state);
}

/* A fault of the GPU in a graph is one as everywhere. */
TEST(a_fault_is_a_fault)
{
    struct dev *dev = open_device();
    struct way way = {.task = MODEL_TASK_LM, .optim = OPTIM_KIND_ADAMW, .batch = SAMPLES};
    struct step *step = open_step(dev, &way);
    struct batch b;
    struct step_result r;
    kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
    steps_fill(&b, 0, 37);
    for (int64_t i = 0; i < 3; i++)
        kt_ok(step_run_batch(step, &b, i, 0, 1e-3, false, &r));
    runtime_fail("cudaGraphLaunch", 0, cudaErrorIllegalAddress);
    assert_int_equal(step_run_batch(step, &b, 3, 0, 1e-3, false, &r), ST_FAULT);
    step_close(step);
    batch_free(&b);
    dev_close(dev);
    assert_int_equal(runtime.graphs_n + runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
}

/* ---- a stream that records ---- */

static int byte_of(struct stream *s, const void *data)
{
    unsigned char byte = 0;
    kt_ok(dev_copy(s, &byte, data, 1));
    kt_ok(dev_sync(s));
    return byte;
}

/* launches_of — n operations, of its own for each kind: how many graphs were launched. */
static int launches_of(struct stream *s, void *a, void *b, int kind, int n)
{
    int launches = *runtime_calls("cudaGraphLaunch");
    for (int i = 0; i < n; i++)
        kt_ok(
            dev_fill(s, i % 2 ? a : b, i & 127, (size_t)(1 + i / 2 + (i == 1 ? kind : 0)) % 8000));
    kt_ok(dev_flush(s));
    return *runtime_calls("cudaGraphLaunch") - launches;
}

static enum status record_and_wait(struct stream *s, struct dev_event **event)
{
    TRY(dev_event_record(s, event));
    return dev_event_sync(*event);
}

static enum status query_until_idle(struct stream *s)
{
    bool is_idle = false;
    while (!is_idle)
        TRY(dev_stream_query(s, &is_idle));
    return ST_OK;
}

/* More kinds of work than are kept, some long: in the order asked, whatever begins it. */
TEST(recorded_work_keeps_its_order)
{
    enum { N = 8192 };
    struct dev *dev = open_device();
    struct stream *s = NULL, *other = NULL;
    struct dev_event *event = NULL;
    void *a = NULL, *b = NULL;
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_stream_open(dev, &other));
    kt_ok(dev_alloc(dev, N, &a));
    kt_ok(dev_alloc(dev, N, &b));
    kt_ok(dev_graph_begin(s));
    /* As if for a step; then more that comes once than is kept: the step's stays, though it was the
     * first. */
    for (int turn = 0; turn < 3; turn++) {
        assert_int_equal(launches_of(s, a, b, 0, 3), turn > 0);
        for (int i = 0; i < 1100 && turn > 0; i++)
            assert_int_equal(launches_of(s, a, b, 2000 * turn + i, 3), 0);
    }
    for (int turn = 0; turn < 3; turn++)
        for (int i = 1; i < 60; i++) {
            kt_ok(dev_fill(s, a, i, (size_t)i));
            kt_ok(dev_copy(s, b, a, (size_t)i));
            kt_ok(dev_fill(s, a, 0, N));
            kt_ok(i % 4 == 0   ? dev_stream_wait_stream(other, s)
                  : i % 4 == 1 ? record_and_wait(s, &event)
                  : i % 4 == 2 ? query_until_idle(s)
                               : dev_flush(s));
            assert_int_equal(byte_of(i % 4 == 3 ? s : other, (char *)b + i - 1), i);
        }
    for (int turn = 0; turn < 3; turn++) /* few operations are no graph */
        assert_int_equal(launches_of(s, a, b, 0, 2), 0);
    for (int turn = 0; turn < 2; turn++) /* more work than is kept: what was begun last stays */
        for (int i = 0; i < 5; i++)
            assert_int_equal(launches_of(s, a, b, 10 + i, 15000), 0);
    assert_int_equal(launches_of(s, a, b, 14, 15000), 1);
    for (int i = 0; i < 20000; i++) /* longer than a list may be */
        kt_ok(dev_fill(s, a, i % 251, 1));
    assert_int_equal(byte_of(s, a), 19999 % 251);
    kt_ok(dev_fill(s, a, 1, N)); /* never begun */
    dev_event_free(event);
    dev_stream_close(s);
    dev_stream_close(other);
    dev_close(dev);
    assert_int_equal(runtime.graphs_n + runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
}

/* An event behind a list is recorded behind its graph; work that is recorded after it makes it a
 * node of the graph, and then its number comes with it. */
TEST(events_have_their_place)
{
    struct dev *dev = open_device();
    struct stream *s = NULL;
    struct dev_event *event = NULL;
    void *a = NULL, *b = NULL;
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_alloc(dev, 8192, &a));
    kt_ok(dev_alloc(dev, 8192, &b));
    kt_ok(dev_graph_begin(s));
    const int nodes = *runtime_calls("cudaEventRecordWithFlags");
    for (int in_graph = 0; in_graph < 2; in_graph++)
        for (int i = 0; i < 4; i++) {
            const int *records = runtime_calls("cudaEventRecord"), recorded = *records;
            const int syncs = *runtime_calls("cudaStreamSynchronize");
            for (int k = 0; k < 3; k++)
                kt_ok(dev_fill(s, k % 2 ? a : b, k, 8));
            kt_ok(dev_event_record(s, &event));
            for (int k = 0; k < 3 * in_graph; k++)
                kt_ok(dev_fill(s, k % 2 ? a : b, 3 + k, 8));
            assert_int_equal(*records, recorded); /* nothing is submitted yet */
            assert_int_equal(launches_of(s, a, b, 0, 0), i > 0);
            assert_true(*records > recorded || (in_graph && i > 0));
            kt_ok(dev_event_sync(event));
            assert_int_equal(*runtime_calls("cudaStreamSynchronize"), syncs);
        }
    assert_int_equal(*runtime_calls("cudaEventRecordWithFlags"), nodes + 1);
    dev_stream_close(s);
    dev_event_free(event);
    dev_free(dev, a, 8192);
    dev_free(dev, b, 8192);
    dev_close(dev);
    assert_int_equal(runtime.graphs_n + runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
}

/* The tests' runtime is as strict as CUDA: else what is above would prove little. */
TEST(the_runtime_forbids)
{
    struct dev *dev = open_device();
    struct stream *s = NULL;
    void *data = NULL, *more = NULL;
    char host[8];
    cudaGraph_t graph = NULL;
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_alloc(dev, 64, &data));
    cudaStream_t stream = dev_stream_handle(s);
    assert_int_equal(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal),
                     cudaErrorStreamCaptureUnsupported);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                         cudaSuccess);
        assert_int_equal(cudaMemsetAsync(data, 1, 64, stream), cudaSuccess);
        cudaError_t error = i == 0   ? cudaMalloc(&more, 64)
                            : i == 1 ? cudaStreamSynchronize(stream)
                            : i == 2
                                ? cudaMemcpyAsync(data, host, 8, cudaMemcpyHostToDevice, stream)
                            : i == 3 ? cudaStreamQuery(stream)
                                     : cudaHostAlloc(&more, 64, cudaHostAllocDefault);
        assert_int_equal(error, cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
    }
    (void)cudaGetLastError();
    assert_int_equal(byte_of(s, data), 0); /* what is captured is not done */
    dev_free(dev, data, 64);
    dev_stream_close(s);
    dev_close(dev);
}

HARNESS_RUN_ALL()

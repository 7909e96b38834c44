/* Times of operations (CUDA_TIMES=1) without a GPU (guarded.h): the same bits with
 * and without, a table with every operation once per shape, and nothing left over. One kernel takes
 * one millisecond here (runtime.h), so the table's times are counts of kernels. */
#include "kernel_test.h"

#include "tests/cuda/guarded.h"
#include "tests/cuda/steps.h"

#define SEQ 5
#define SAMPLES 4
#define VOCAB 23
#define LINES 200

/* ---- the log ---- */

static char lines[LINES][256];
static int lines_n;

static void keep_line(void *arg, int64_t wall_ms, const char *line)
{
    (void)arg, (void)wall_ms;
    const char *at = strstr(line, "times: ");
    at = at ? at : strstr(line, "times of operations:");
    at = at ? at : strstr(line, "no step ended");
    if (at && lines_n < LINES)
        text_copy(lines[lines_n++], sizeof lines[0], at);
}

/* row — its columns; false: line i is no row. */
struct row {
    char op[32], shape[64], unit[16];
    double calls, ms, share, rate;
};
static bool row_at(int i, struct row *out)
{
    struct row r = {.rate = 0};
    int n = sscanf(lines[i], "times: %31s %63s %lf %lf %lf %% %lf %15s", r.op, r.shape, &r.calls,
                   &r.ms, &r.share, &r.rate, r.unit);
    *out = r;
    return n >= 5;
}

static struct row sum_of(const char *op)
{
    struct row sum = {.calls = 0};
    for (int i = 0; i < lines_n; i++) {
        struct row r;
        if (row_at(i, &r) && strcmp(r.op, op) == 0)
            sum.calls += r.calls, sum.ms += r.ms;
    }
    return sum;
}

/* ---- steps ---- */

struct outcome {
    float *state;
    int64_t elems;
    int calls[GUARDED_N];
};

static struct outcome train(int64_t steps, bool is_timed, int64_t batch_samples)
{
    struct dev *dev = open_device();
    struct step *step = NULL;
    struct step_config c = steps_config(dev, MODEL_TASK_LM, DTYPE_BF16, OPTIM_KIND_ADAMW);
    c.batch_samples = batch_samples, c.global_samples = SAMPLES, c.seq_tokens = SEQ;
    c.dims.vocab = VOCAB;
    c.is_timed = is_timed, c.is_eager = is_timed;
    struct outcome out = {.elems = 0};
    struct batch b;
    lines_n = 0;
    kt_ok(step_open(&c, &step));
    kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
    memset(guarded_calls, 0, sizeof guarded_calls);
    for (int64_t i = 0; i < steps; i++) {
        struct step_result r;
        steps_fill(&b, i, VOCAB);
        kt_ok(step_run_batch(step, &b, i, i * SAMPLES, 1e-2, false, &r));
    }
    memcpy(out.calls, guarded_calls, sizeof out.calls);
    out.state = steps_state(step, &out.elems);
    batch_free(&b);
    step_close(step);
    dev_close(dev);
    assert_int_equal(runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
    return out;
}

TEST(times_do_not_change_results)
{
    struct outcome plain = train(4, false, 2), timed = train(4, true, 2);
    assert_int_equal(plain.elems, timed.elems);
    assert_memory_equal(plain.state, timed.state, (size_t)plain.elems * sizeof(float));
    kt_free(plain.state);
    kt_free(timed.state);
}

/* The calls of one step, and times that add up; the first two steps are left out. Only the first
 * one casts the weights: AdamW writes their 16-bit copy. */
TEST(the_table_has_every_operation)
{
    enum { STEPS = 5 };
    struct outcome out = train(STEPS, true, SAMPLES);
    double share = 0, ms = 0, before = 1e9;
#define COMPARE(name)                         \
    assert_true(strcmp(#name, "cast") == 0 || \
                sum_of(#name).calls * STEPS == (double)out.calls[GUARDED_##name]);
    OP_LIST(COMPARE)
    assert_true(sum_of("cast").calls == 0 && out.calls[GUARDED_cast] > 0);
    for (int i = 0; i < lines_n; i++) {
        struct row r;
        if (!row_at(i, &r))
            continue;
        assert_true(r.ms <= before); /* the slowest first */
        share += r.share, ms += r.ms, before = r.ms;
    }
    assert_true(fabs(share - 100) < 1);
    assert_true(ms > 20); /* a step of one block has more kernels than that */
    assert_non_null(strstr(lines[0], "mean of 3 steps; all operations of a step need "));
    kt_free(out.state);
}

static const struct row *find(const char *op, const char *shape)
{
    static struct row r;
    for (int i = 0; i < lines_n; i++)
        if (row_at(i, &r) && strcmp(r.op, op) == 0 && strcmp(r.shape, shape) == 0)
            return &r;
    fail_msg("no row %s %s", op, shape);
    return NULL;
}

/* Rates: a product's from its multiply-adds, of other operations from their bytes. */
TEST(rates_come_from_the_cost)
{
    struct outcome out = train(3, true, SAMPLES);
    const struct row *fc = find("matmul_fwd", "20x16x64,bf16,bias,gelu");
    assert_string_equal(fc->unit, "TFLOP/s");
    assert_true(fc->calls == 1 && fc->ms > 0);
    assert_true(find("norm_fwd", "20x16,bf16")->ms > 0);
    assert_string_equal(find("norm_fwd", "20x16,bf16")->unit, "GB/s");
    assert_non_null(find("attention_fwd", "4x5x1x16,bf16"));
    assert_string_equal(find("attention_fwd", "4x5x1x16,bf16")->unit, "TFLOP/s");
    assert_non_null(find("xent", "20x23,bf16,grad"));
    kt_free(out.state);
}

/* Fewer steps than the warm-up: their times are shown, and named as such. */
TEST(two_steps_are_shown_as_first_ones)
{
    struct outcome out = train(2, true, SAMPLES);
    assert_true(sum_of("matmul_fwd").calls > 0);
    bool is_named = false;
    for (int i = 0; i < lines_n; i++)
        is_named |= strstr(lines[i], "mean of 2 steps, the first ones") != NULL;
    assert_true(is_named);
    kt_free(out.state);
    out = train(0, true, SAMPLES);
    assert_non_null(strstr(lines[lines_n - 1], "no step ended"));
    kt_free(out.state);
}

/* Without CUDA_TIMES no event is made for times, and no line is logged. */
TEST(nothing_is_timed_unasked)
{
    int asked = *runtime_calls("cudaEventElapsedTime");
    struct outcome out = train(3, false, SAMPLES);
    assert_int_equal(*runtime_calls("cudaEventElapsedTime"), asked);
    assert_int_equal(lines_n, 0);
    kt_free(out.state);
}

/* More operations than pairs of events: the host waits for the oldest, none is lost. */
TEST(many_operations_in_a_step)
{
    enum { N = 3000 };
    struct dev *dev = open_device();
    struct stream *s = NULL;
    void *data = NULL;
    lines_n = 0;
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_times_begin(s));
    kt_ok(dev_alloc(dev, 400, &data));
    struct tensor x = {data, DTYPE_F32};
    for (int i = 0; i < N; i++)
        kt_ok(dev_op(dev)->gelu_fwd(s, &(struct gelu_fwd){.y = x, .x = x, .n = 100}));
    assert_true(runtime.events_n <= 2 * 1024 + 1 + 8);
    kt_ok(dev_times_step(s));
    dev_stream_close(s);
    dev_free(dev, data, 400);
    dev_close(dev);
    assert_true(find("gelu_fwd", "100,fp32")->calls == N);
    assert_true(find("gelu_fwd", "100,fp32")->ms == N);
    assert_int_equal(runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
}

/* An event that fails is an error of the operation, with its status; nothing leaks. */
TEST(a_failing_event_is_reported)
{
    static const char *const calls[] = {"cudaEventCreateWithFlags", "cudaEventRecord",
                                        "cudaEventElapsedTime"};
    for (int i = 0; i < 3; i++) {
        struct dev *dev = open_device();
        struct stream *s = NULL;
        void *data = NULL;
        kt_ok(dev_stream_open(dev, &s));
        kt_ok(dev_times_begin(s));
        kt_ok(dev_alloc(dev, 400, &data));
        struct tensor x = {data, DTYPE_F32};
        runtime_fail(calls[i], i == 0, cudaErrorIllegalAddress);
        enum status st = dev_op(dev)->gelu_fwd(s, &(struct gelu_fwd){.y = x, .x = x, .n = 100});
        st = st == ST_OK ? dev_times_step(s) : st;
        assert_int_equal(st, ST_FAULT);
        assert_null(runtime.fail_call);
        dev_stream_close(s);
        dev_free(dev, data, 400);
        dev_close(dev);
        assert_int_equal(runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
    }
}

int main(void)
{
    log_tap(keep_line, NULL);
    /* the log is read through the tap */
    if (getenv("HARNESS_LOUD") == NULL && freopen("/dev/null", "w", stderr) == NULL)
        return 99;
    return harness_run_all(__FILE__, NULL, NULL);
}

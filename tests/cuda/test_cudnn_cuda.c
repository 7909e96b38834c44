/* Attention by cuDNN on the CUDA device without a GPU (guarded.h): a cuDNN that computes the graph
 * it is given (fake_cudnn.c) against the plain truth, in runs that fit the scratch; who takes what
 * cuDNN cannot do; what its errors lead to; a step of GPT-2, eager and as CUDA graphs. */
#include "kernel_test.h"

#include "dev/cudnn/cudnn.h"
#include "tests/cuda/guarded.h"
#include "tests/cuda/steps.h"

/* As in fake_cudnn.c. */
enum { NEVER, FAIL_EXECUTE, UNSTEADY, EXECUTED, PLANS, MISTAKES, LARGE, UNTOLD, BROKEN, LEAN, OLD };

static int *control(void)
{
    static int *(*get)(void);
    if (!get) {
        void *library = dlopen(here("/libcudnn_graph.so.9"), RTLD_NOW);
        assert_non_null(library);
        void *symbol = dlsym(library, "fake_cudnn_control");
        assert_non_null(symbol);
        memcpy(&get, &symbol, sizeof get);
        guarded_through(library, "fake_cudnn_device");
    }
    return get();
}

/* ---- one operation, against the plain truth ---- */

struct shape {
    int64_t b, t, h, d;
    enum dtype dtype;
    int64_t hk; /* key heads */
    enum attention_layout layout;
    bool is_atomic; /* the form of the backward pass */
};

static float from_16(enum dtype dtype, uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    _Float16 h;
    memcpy(&x, &bits, sizeof x);
    memcpy(&h, &half, sizeof h);
    return dtype == DTYPE_BF16 ? x : (float)h;
}

static uint16_t to_16(enum dtype dtype, float x)
{
    uint32_t bits;
    uint16_t half;
    _Float16 h = (_Float16)x;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&half, &h, sizeof half);
    return dtype == DTYPE_BF16 ? (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16) : half;
}

/* halves — n numbers as a float array that 16 bits hold exactly, and the same in 16 bits. */
static uint16_t *halves(float *x, int64_t n, enum dtype dtype)
{
    uint16_t *out = aligned_alloc(256, (size_t)(2 * n + 255) / 256 * 256);
    assert_non_null(out);
    for (int64_t i = 0; i < n; i++) {
        out[i] = to_16(dtype, x[i]);
        x[i] = from_16(dtype, out[i]);
    }
    return out;
}

static void near(const char *what, const uint16_t *got, const float *want, int64_t n,
                 enum dtype dtype, double limit)
{
    float *x = kt_floats(n, KT_ONES, 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = from_16(dtype, got[i]);
    double nmse = kt_nmse(x, want, n);
    if (!(nmse <= limit))
        fail_msg("%s: nmse %g", what, nmse);
    kt_free(x);
}

static char how[128]; /* the backward pass of the last matches_plain was computed */

/* Both directions of one shape, with so much scratch, outside of any device. */
static void matches_plain(const struct shape *x, size_t scratch_bytes)
{
    int64_t rows = x->b * x->t, c = x->h * x->d, row = c + 2 * x->hk * x->d,
            stats = x->b * x->h * x->t;
    float *qkv = kt_floats(rows * row, KT_RANDOM, 1), *dout = kt_floats(rows * c, KT_RANDOM, 2),
          *out = kt_floats(rows * c, KT_ONES, 0), *lse = kt_floats(stats, KT_ONES, 0),
          *dqkv = kt_floats(rows * row, KT_ONES, 0), *lse_16 = kt_floats(stats, KT_ONES, 0);
    uint16_t *qkv_16 = halves(qkv, rows * row, x->dtype),
             *dout_16 = halves(dout, rows * c, x->dtype), *out_16 = halves(out, rows * c, x->dtype),
             *dqkv_16 = halves(dqkv, rows * row, x->dtype);
    struct attention_fwd f = {.out = kt_f32(out), .lse = kt_f32(lse), .qkv = kt_f32(qkv)};
    struct attention_bwd g = {.dqkv = kt_f32(dqkv),
                              .dout = kt_f32(dout),
                              .out = kt_f32(out),
                              .qkv = kt_f32(qkv),
                              .lse = kt_f32(lse)};
    f.b = g.b = x->b, f.t = g.t = x->t, f.h = g.h = x->h, f.hk = g.hk = x->hk,
    f.layout = g.layout = x->layout, f.d = g.d = x->d;
    kt_ok(dev_op(kt_plain()->dev)->attention_fwd(kt_plain()->stream, &f));
    kt_ok(dev_op(kt_plain()->dev)->attention_bwd(kt_plain()->stream, &g));
    struct cuda cuda = {.scratch = aligned_alloc(256, scratch_bytes),
                        .scratch_bytes = scratch_bytes};
    struct cudnn *cudnn = NULL;
    bool is_done = false;
    f.out = (struct tensor){out_16, x->dtype}, f.qkv = (struct tensor){qkv_16, x->dtype};
    f.lse = g.lse = kt_f32(lse_16);
    g.dqkv = (struct tensor){dqkv_16, x->dtype}, g.dout = (struct tensor){dout_16, x->dtype};
    g.out = f.out, g.qkv = f.qkv;
    kt_ok(cudnn_open(NULL, &cudnn));
    kt_ok(cudnn_attention_fwd(cudnn, &cuda, &f, false, &is_done));
    assert_string_equal(cudnn_reason(cudnn), "");
    assert_true(is_done);
    kt_ok(cudnn_attention_bwd(cudnn, &cuda, &g, x->is_atomic, false, &is_done));
    assert_string_equal(cudnn_reason(cudnn), "");
    assert_true(is_done);
    double limit = x->dtype == DTYPE_BF16 ? 3e-5 : 1e-6; /* roundings of 2⁻⁹ and 2⁻¹² */
    near("out", out_16, out, rows * c, x->dtype, limit);
    near("dqkv", dqkv_16, dqkv, rows * row, x->dtype, limit);
    assert_true(kt_nmse(lse_16, lse, stats) <= 1e-12);
    text_copy(how, sizeof how, cudnn_how(cudnn));
    cudnn_close(cudnn);
    free(cuda.scratch);
    void *all[] = {qkv_16, dout_16, out_16, dqkv_16};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    float *floats[] = {qkv, dout, out, lse, dqkv, lse_16};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        kt_free(floats[i]);
}

TEST(attention_matches_plain)
{
    static const struct shape shapes[] = {{1, 1, 1, 8, DTYPE_BF16, 1, 0, 0},
                                          {2, 5, 3, 16, DTYPE_F16, 3, 0, 0},
                                          {3, 33, 2, 64, DTYPE_BF16, 2, 0, 0},
                                          {2, 64, 1, 128, DTYPE_F16, 1, 0, 0},
                                          {1, 70, 2, 80, DTYPE_BF16, 2, 0, 0},
                                          {2, 33, 6, 64, DTYPE_BF16, 2, 0, 0},
                                          {1, 20, 3, 16, DTYPE_F16, 1, 0, 0},
                                          {2, 33, 3, 64, DTYPE_BF16, 3, ATTENTION_LAYOUT_HEADS, 0},
                                          {1, 9, 4, 256, DTYPE_BF16, 2, 0, 0}};
    library_dir(here(""));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape x = shapes[i];
        matches_plain(&x, (size_t)1 << 20);
        x.is_atomic = true;
        matches_plain(&x, (size_t)1 << 20);
    }
    assert_int_equal(control()[MISTAKES], 0);
}

/* Seven samples, of which three fit: runs of three, three and one, by two plans. Engines that are
 * not deterministic are passed over. */
TEST(runs_fit_the_scratch)
{
    const struct shape x = {7, 32, 2, 16, DTYPE_BF16, 2, 0, 0};
    library_dir(here(""));
    int executed = control()[EXECUTED], plans = control()[PLANS];
    control()[UNSTEADY] = 1;
    matches_plain(&x, 3 * 4096 + 256 + 768 + 512);
    control()[UNSTEADY] = 0;
    assert_int_equal(control()[EXECUTED] - executed, 1 + 3);
    assert_int_equal(control()[PLANS] - plans, 1 + 2);
    assert_int_equal(control()[MISTAKES], 0);
}

/* The same in the atomic form. For each sample the scratch has 256 bytes of delta and 4096 of sums
 * of dq, and no scores. The note of the first engine is no reason to pass it over. */
TEST(runs_fit_the_scratch_by_atomics)
{
    const struct shape x = {7, 32, 2, 16, DTYPE_BF16, 2, 0, true};
    library_dir(here(""));
    int executed = control()[EXECUTED], plans = control()[PLANS];
    control()[UNSTEADY] = 1;
    matches_plain(&x, 3 * (4096 + 256) + 256);
    control()[UNSTEADY] = 0;
    assert_int_equal(control()[EXECUTED] - executed, 1 + 3);
    assert_int_equal(control()[PLANS] - plans, 1 + 2);
    assert_non_null(strstr(how, "number 1 of 2 proposed, 3 samples"));
    assert_int_equal(control()[MISTAKES], 0);
}

/* Three samples forward at once, and backward so many at once, by the engine with this number. */
static void chosen_by(int number, int samples, int plans_n)
{
    const struct shape x = {3, 32, 2, 16, DTYPE_F16, 2, 0, 0};
    int executed = control()[EXECUTED], plans = control()[PLANS];
    char want[64];
    matches_plain(&x, (size_t)1 << 20);
    snprintf(want, sizeof want, "number %d of 2 proposed, %d samples at once", number, samples);
    assert_non_null(strstr(how, want));
    assert_int_equal(control()[EXECUTED] - executed, 1 + 3 / samples);
    assert_int_equal(control()[PLANS] - plans, plans_n);
    assert_int_equal(control()[MISTAKES], 0);
}

/* The first engine needs too much workspace for one sample, says so only once it is compiled,
 * cannot be compiled, or has too little to store the scores of the deterministic form: the next one
 * is taken. One that says nothing, and needs little, is taken. */
TEST(the_next_engine)
{
    int *x = control();
    library_dir(here(""));
    chosen_by(1, 3, 2);
    x[UNTOLD] = 1;
    chosen_by(1, 3, 2);
    x[LARGE] = 1 << 21;
    chosen_by(2, 3, 4);
    x[UNTOLD] = 0;
    chosen_by(2, 3, 2);
    x[LARGE] = (1 << 20) - 8192; /* for one sample it has room */
    chosen_by(1, 1, 2);
    x[LARGE] = 0, x[BROKEN] = 1;
    chosen_by(2, 3, 2);
    x[BROKEN] = 0, x[LEAN] = 1;
    chosen_by(2, 3, 2);
    x[UNTOLD] = 1;
    chosen_by(2, 3, 3);
    x[UNTOLD] = 0, x[LEAN] = 0;
}

/* ---- who takes it ---- */

/* One forward of the device; what it returned. has_kv: of the last 8 queries over all keys. */
static enum status forward_of(struct dev *dev, enum dtype dtype, int64_t t, bool has_mask,
                              float dropout, bool has_kv)
{
    struct stream *s = NULL;
    void *at[5];
    const size_t bytes[5] = {(size_t)t * 64 * 4, (size_t)t * 4, (size_t)t * 3 * 64 * 4, (size_t)t,
                             (size_t)t * 2 * 64 * 4};
    for (int i = 0; i < 5; i++)
        kt_ok(dev_alloc(dev, bytes[i], &at[i]));
    kt_ok(dev_stream_open(dev, &s));
    struct attention_fwd a = {.out = {at[0], dtype},
                              .lse = {at[1], DTYPE_F32},
                              .qkv = {at[2], dtype},
                              .b = 1,
                              .t = t,
                              .h = 1,
                              .hk = 1,
                              .d = 64,
                              .dropout = kt_dropout(dropout)};
    if (has_mask)
        a.mask = (struct tensor){at[3], DTYPE_U8};
    if (has_kv)
        a.kv = (struct tensor){at[4], dtype}, a.own = (struct attention_runs){{t - 8, 0}, {8, 0}};
    enum status st = dev_op(dev)->attention_fwd(s, &a);
    if (st == ST_OK)
        st = dev_sync(s);
    dev_stream_close(s);
    for (int i = 0; i < 5; i++)
        dev_free(dev, at[i], bytes[i]);
    return st;
}

static enum status forward(struct dev *dev, enum dtype dtype, int64_t t, bool has_mask,
                           float dropout)
{
    return forward_of(dev, dtype, t, has_mask, dropout, false);
}

static void refused(enum status st, enum status want, const char *words)
{
    assert_int_equal(st, want);
    if (!strstr(status_message(), words))
        fail_msg("no \"%s\" in: %s", words, status_message());
}

TEST(engine_chosen_for_forward)
{
    struct dev *dev = open_device();
    int *x = control(), executed = x[EXECUTED];
    dev_cuda_attention(dev, DEV_CUDA_ATTENTION_OWN, false);
    kt_ok(forward(dev, DTYPE_BF16, 512, false, 0));
    dev_cuda_attention(dev, DEV_CUDA_ATTENTION_AUTO, false);
    kt_ok(forward(dev, DTYPE_BF16, 64, false, 0)); /* not in the table: as are the next */
    kt_ok(forward(dev, DTYPE_F32, 512, false, 0));
    kt_ok(forward(dev, DTYPE_BF16, 512, true, 0));
    kt_ok(forward(dev, DTYPE_BF16, 512, false, 0.1f));
    kt_ok(forward_of(dev, DTYPE_BF16, 512, false, 0, true));
    assert_int_equal(x[EXECUTED], executed);
    kt_ok(forward(dev, DTYPE_BF16, 512, false, 0));
    assert_int_equal(x[EXECUTED], executed + 1);
    dev_cuda_attention(dev, DEV_CUDA_ATTENTION_CUDNN, false);
    kt_ok(forward(dev, DTYPE_BF16, 64, false, 0));
    assert_int_equal(x[EXECUTED], executed + 2);
    refused(forward(dev, DTYPE_F32, 64, false, 0), ST_BAD_SETTING, "bf16 and fp16 only");
    refused(forward(dev, DTYPE_BF16, 64, true, 0), ST_BAD_SETTING, "with a mask");
    refused(forward(dev, DTYPE_BF16, 64, false, 0.1f), ST_BAD_SETTING, "dropout");
    refused(forward_of(dev, DTYPE_BF16, 512, false, 0, true), ST_BAD_SETTING, "CP > 1");
    assert_int_equal(x[MISTAKES], 0);
    dev_close(dev);
}

/* Returns what one backward pass of the device returns. allocated_out: the bytes that the device
 * holds then, more than before. */
static enum status backward(struct dev *dev, int64_t t, int64_t h, int64_t d,
                            int64_t *allocated_out)
{
    struct stream *s = NULL;
    struct dev_info before, after;
    void *at[5];
    const size_t elems = (size_t)(t * h * d),
                 bytes[5] = {2 * elems, 6 * elems, 2 * elems, 6 * elems, (size_t)(t * h) * 4};
    dev_info(dev, &before);
    for (int i = 0; i < 5; i++)
        kt_ok(dev_alloc(dev, bytes[i], &at[i]));
    kt_ok(dev_stream_open(dev, &s));
    const struct attention_bwd a = {.dout = {at[0], DTYPE_BF16},
                                    .dqkv = {at[1], DTYPE_BF16},
                                    .out = {at[2], DTYPE_BF16},
                                    .qkv = {at[3], DTYPE_BF16},
                                    .lse = {at[4], DTYPE_F32},
                                    .b = 1,
                                    .t = t,
                                    .h = h,
                                    .hk = h,
                                    .d = d};
    enum status st = dev_op(dev)->attention_bwd(s, &a);
    if (st == ST_OK)
        st = dev_sync(s);
    dev_info(dev, &after);
    *allocated_out = after.allocated_bytes - before.allocated_bytes - after.scratch_bytes;
    for (int i = 0; i < 5; i++)
        *allocated_out -= (int64_t)bytes[i];
    dev_stream_close(s);
    for (int i = 0; i < 5; i++)
        dev_free(dev, at[i], bytes[i]);
    return st;
}

/* auto computes backward by cuDNN in the atomic form only, from cuDNN 9.6 on. */
TEST(engine_chosen_for_backward)
{
    struct dev *dev = open_device();
    int *x = control(), executed = x[EXECUTED];
    int64_t allocated = 0;
    dev_cuda_attention(dev, DEV_CUDA_ATTENTION_AUTO, false);
    kt_ok(backward(dev, 512, 1, 64, &allocated));
    dev_cuda_attention(dev, DEV_CUDA_ATTENTION_OWN, true);
    kt_ok(backward(dev, 512, 1, 64, &allocated));
    dev_cuda_attention(dev, DEV_CUDA_ATTENTION_AUTO, true);
    x[OLD] = 1;
    kt_ok(backward(dev, 512, 1, 64, &allocated));
    assert_int_equal(x[EXECUTED], executed);
    x[OLD] = 0;
    kt_ok(backward(dev, 512, 1, 64, &allocated));
    assert_int_equal(x[EXECUTED], executed + 1);
    assert_int_equal(allocated, 0);
    dev_cuda_attention(dev, DEV_CUDA_ATTENTION_CUDNN, true);
    x[OLD] = 1;
    refused(backward(dev, 32, 1, 64, &allocated), ST_BAD_SETTING, "before 9.6");
    x[OLD] = 0;
    assert_int_equal(x[MISTAKES], 0);
    dev_close(dev);
}

/* A sample whose scores are more than the stream's scratch gets what was planned for it. Here cuDNN
 * then has no engine, so that nothing is computed. */
TEST(a_large_sample_has_its_scratch)
{
    const int64_t t = 11600;
    const struct dev_cuda_attention_shape shape = {t, 1, 1, 8, DTYPE_BF16};
    struct dev *dev = open_device();
    int64_t allocated = 0,
            planned = dev_cuda_attention_bytes(DEV_CUDA_ATTENTION_CUDNN, false, &shape);
    assert_true(planned > 2 * t * t && planned < 2 * t * t + (1 << 20));
    dev_cuda_attention(dev, DEV_CUDA_ATTENTION_CUDNN, false);
    control()[NEVER] = 1;
    refused(backward(dev, t, 1, 8, &allocated), ST_BAD_SETTING, "an engine for this shape");
    assert_int_equal(allocated, planned);
    control()[NEVER] = 0;
    assert_int_equal(control()[MISTAKES], 0);
    dev_close(dev);
}

/* cuDNN has no engine, or fails: auto goes on with own kernels, cudnn ends the run; a fault of the
 * device ends both. */
TEST(errors)
{
    struct dev *dev = open_device();
    int *x = control();
    static const int codes[] = {4000, 4003, 3000};
    for (int by = DEV_CUDA_ATTENTION_AUTO; by <= DEV_CUDA_ATTENTION_CUDNN; by += 2) {
        dev_cuda_attention(dev, (enum dev_cuda_attention)by, false);
        enum status want = by == DEV_CUDA_ATTENTION_AUTO ? ST_OK : ST_BAD_SETTING;
        x[NEVER] = 1;
        assert_int_equal(forward(dev, DTYPE_F16, 512, false, 0), want);
        x[NEVER] = 0;
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
            x[FAIL_EXECUTE] = codes[i];
            assert_int_equal(forward(dev, DTYPE_F16, 512, false, 0), want);
        }
        x[FAIL_EXECUTE] = 5000;
        refused(forward(dev, DTYPE_F16, 512, false, 0), ST_FAULT, "status 5000");
        x[FAIL_EXECUTE] = 0;
    }
    assert_int_equal(x[MISTAKES], 0);
    dev_close(dev);
}

/* ---- a step ---- */

#define STEPS 5
#define SEQ 8

struct outcome {
    double loss[STEPS];
    float *params;
    int64_t elems;
    int executed, plans, launches;
};

static struct step *open_step(struct dev *dev, bool is_eager)
{
    struct step_config c = steps_config(dev, MODEL_TASK_LM, DTYPE_BF16, OPTIM_KIND_ADAMW);
    struct step *step = NULL;
    c.dropout = 0;
    c.batch_samples = c.global_samples = 2, c.seq_tokens = SEQ, c.is_eager = is_eager;
    c.dims.layers = 2, c.dims.heads = 2, c.dims.vocab = 37;
    kt_ok(step_open(&c, &step));
    return step;
}

static struct outcome train(struct dev *dev, enum dev_cuda_attention by, bool is_atomic,
                            bool is_eager)
{
    struct outcome out = {.executed = -control()[EXECUTED],
                          .plans = -control()[PLANS],
                          .launches = -*runtime_calls("cudaGraphLaunch")};
    struct step *step = NULL;
    struct batch b;
    dev_cuda_attention(dev, by, is_atomic);
    step = open_step(dev, is_eager);
    kt_ok(batch_init(&b, FEED_TASK_LM, 2, SEQ));
    for (int64_t i = 0; i < STEPS; i++) {
        struct step_result r;
        steps_fill(&b, i, 37);
        kt_ok(step_run_batch(step, &b, i, i * 2, 1e-2, false, &r));
        out.loss[i] = r.loss;
    }
    out.params = steps_state(step, &out.elems);
    batch_free(&b);
    step_close(step);
    out.executed += control()[EXECUTED], out.plans += control()[PLANS];
    out.launches += *runtime_calls("cudaGraphLaunch");
    return out;
}

/* Two layers: four runs of a plan in an eager step, none when a graph is launched. Both plans are
 * made once, in the first step. */
static void learns_as_with_own_kernels(bool is_atomic)
{
    struct dev *dev = open_device();
    struct outcome own = train(dev, DEV_CUDA_ATTENTION_OWN, false, true),
                   eager = train(dev, DEV_CUDA_ATTENTION_CUDNN, is_atomic, true),
                   graph = train(dev, DEV_CUDA_ATTENTION_CUDNN, is_atomic, false);
    assert_int_equal(own.executed, 0);
    assert_int_equal(eager.executed, 4 * STEPS);
    assert_int_equal(eager.plans, 2);
    assert_int_equal(graph.plans, 2);
    assert_true(graph.launches > 0 && graph.executed < 4 * STEPS);
    assert_memory_equal(eager.params, graph.params, (size_t)eager.elems * sizeof(float));
    assert_memory_equal(eager.loss, graph.loss, sizeof eager.loss);
    for (int i = 0; i < STEPS; i++) {
        print_message("# step %d: loss %.7f, own kernels %.7f\n", i, eager.loss[i], own.loss[i]);
        assert_true(fabs(eager.loss[i] - own.loss[i]) <= 2e-3 * own.loss[i]);
    }
    assert_int_equal(control()[MISTAKES], 0);
    kt_free(own.params);
    kt_free(eager.params);
    kt_free(graph.params);
    dev_close(dev);
}

TEST(gpt2_learns_as_with_own_kernels)
{
    learns_as_with_own_kernels(false);
    learns_as_with_own_kernels(true);
}

/* An error of cuDNN while a graph is captured ends the run: part of the operation may be in the
 * graph already. */
TEST(an_error_in_a_capture_is_met_again_without_one)
{
    struct dev *dev = open_device();
    struct step *step = NULL;
    struct batch b;
    enum status st = ST_OK;
    dev_cuda_attention(dev, DEV_CUDA_ATTENTION_CUDNN, false);
    step = open_step(dev, false);
    kt_ok(batch_init(&b, FEED_TASK_LM, 2, SEQ));
    for (int64_t i = 0; i < STEPS && st == ST_OK; i++) {
        struct step_result r;
        steps_fill(&b, i, 37);
        int captures = *runtime_calls("cudaStreamBeginCapture");
        /* step 0 casts the weights, step 1 records what all later steps do, step 2 captures it */
        control()[FAIL_EXECUTE] = i > 1 ? 4000 : 0;
        st = step_run_batch(step, &b, i, i * 2, 1e-2, false, &r);
        assert_true(st == ST_OK || *runtime_calls("cudaStreamBeginCapture") > captures);
    }
    control()[FAIL_EXECUTE] = 0;
    refused(st, ST_BAD_SETTING, "status 4000");
    batch_free(&b);
    step_close(step);
    dev_close(dev);
}

HARNESS_RUN_ALL()

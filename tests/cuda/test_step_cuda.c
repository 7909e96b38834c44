/* Training on the CUDA device without a GPU (guarded.h): the recorded runs of tests/golden in every
 * PRECISION, through the cuBLASLt of loops and through the program's kernels; a resumed run gives
 * the same bits; loss scales; the calls of the runtime that a step makes; a sample of text. */
#include "tests/golden/golden.h"
#include "kernel_test.h"
#include "tests/cuda/guarded.h"
#include "tests/cuda/steps.h"
#include "train/generate/decoder.h"

/* One run of a recording, in one way of computing. */
struct way {
    const char *dir;
    enum dtype dtype;
    bool is_tf32, is_own;      /* is_own: no product by cuBLASLt */
    int steps;                 /* of the ten */
    double loss, norm, weight; /* limits: relative, relative, nmse when all are done */
};

struct running {
    struct golden g;
    struct lr_schedule_config lr_schedule;
    struct step *step;
    struct batch batch;
    struct dev *dev;
};

static void begin(struct running *r, const struct way *way)
{
    golden_open(way->dir, &r->g);
    r->dev = open_device_as(way->is_tf32);
    fake_counts()[FAKE_NEVER] = way->is_own;
    r->lr_schedule = golden_rate(&r->g);
    struct step_config config = golden_config(&r->g, r->dev);
    config.store.dtype = way->dtype;
    kt_ok(step_open(&config, &r->step));
    kt_ok(batch_init(&r->batch, r->g.task, r->g.batch, r->g.seq));
    golden_load(&r->g, r->step);
}

static void end(struct running *r)
{
    fake_counts()[FAKE_NEVER] = 0;
    batch_free(&r->batch);
    step_close(r->step);
    dev_close(r->dev);
    golden_close(&r->g);
}

static struct step_result update(struct running *r, int64_t i)
{
    struct step_result result;
    golden_batch(&r->g, i, &r->batch);
    kt_ok(step_run_batch(r->step, &r->batch, i, i * r->g.batch, lr_schedule_at(&r->lr_schedule, i),
                         false, &result));
    return result;
}

static double recorded(const struct running *r, int64_t i, const char *key)
{
    return number(cJSON_GetArrayItem(cJSON_GetObjectItem(r->g.expected, "steps"), (int)i), key);
}

/* nmse over all parameters of what training has made of them. */
static double weights_nmse(struct running *r)
{
    const struct param_table *t = step_whole_table(r->step);
    double diff = 0, power = 0;
    for (int row = 0; row < t->params_n; row++) {
        char name[128];
        int64_t n = t->param[row].elems;
        text_format(name, sizeof name, "after.%s%s",
                    text_starts(t->param[row].name, "qa_") ? "" : "transformer.",
                    t->param[row].name);
        const struct safetensors_entry *e = safetensors_find(&r->g.after.st, name);
        assert_non_null(e);
        float *want = kt_floats(n, KT_ONES, 0), *got = kt_floats(n, KT_ONES, 0);
        safetensors_to_f32(e, 0, n, want);
        kt_ok(state_read(step_state(r->step), 0, t->param[row].offset, n, got));
        for (int64_t i = 0; i < n; i++) {
            diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
            power += (double)want[i] * want[i];
        }
        kt_free(want);
        kt_free(got);
    }
    return diff / power;
}

static void repeat(const struct way *way)
{
    struct running r;
    double loss = 0, norm = 0;
    begin(&r, way);
    for (int64_t i = 0; i < way->steps; i++) {
        emu_seed((uint64_t)i % 3);
        struct step_result result = update(&r, i);
        loss = fmax(loss, fabs(result.loss / recorded(&r, i, "loss") - 1));
        norm = fmax(norm, fabs(result.grad_norm / recorded(&r, i, "grad_norm") - 1));
    }
    double weight = way->steps == r.lr_schedule.steps ? weights_nmse(&r) : 0;
    print_message("# %s, dtype %d%s%s, %d steps: worst relative loss %.1e (allowed %.0e), norm "
                  "%.1e (%.0e); weights' nmse %.1e (%.0e)\n",
                  way->dir, way->dtype, way->is_tf32 ? " tf32" : "",
                  way->is_own ? ", own products" : "", way->steps, loss, way->loss, norm, way->norm,
                  weight, way->weight);
    assert_true(loss <= way->loss && norm <= way->norm && weight <= way->weight);
    end(&r);
}

TEST(golden_f32)
{
    repeat(&(struct way){"lm", DTYPE_F32, false, false, 10, 1e-6, 1e-5, 1e-8});
    repeat(&(struct way){"lm", DTYPE_F32, false, true, 2, 1e-6, 1e-5, 0});
    repeat(&(struct way){"qa", DTYPE_F32, false, false, 3, 1e-6, 1e-5, 0});
}

TEST(golden_tf32) { repeat(&(struct way){"lm", DTYPE_F32, true, true, 2, 1e-4, 2e-3, 0}); }

TEST(golden_bf16)
{
    repeat(&(struct way){"lm", DTYPE_BF16, false, false, 10, 1e-3, 1e-2, 1e-5});
    repeat(&(struct way){"lm", DTYPE_BF16, false, true, 2, 1e-3, 1e-2, 0});
    repeat(&(struct way){"qa", DTYPE_BF16, false, false, 3, 2e-3, 1e-2, 0});
}

TEST(golden_f16)
{
    repeat(&(struct way){"lm", DTYPE_F16, false, false, 3, 2e-4, 2e-3, 0});
    repeat(&(struct way){"lm", DTYPE_F16, false, true, 2, 2e-4, 2e-3, 0});
    repeat(&(struct way){"qa", DTYPE_F16, false, false, 3, 5e-4, 2e-3, 0});
}

/* ---- a run that goes on ---- */

TEST(resumes_to_the_same_bits)
{
    static const struct way ways[] = {{.dir = "lm", .dtype = DTYPE_BF16},
                                      {.dir = "lm", .dtype = DTYPE_F16}};
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        struct running a, b;
        begin(&a, &ways[k]);
        update(&a, 0);
        int64_t elems = step_whole_table(a.step)->total_elems, all;
        float *half = steps_state(a.step, &all);
        struct step_loss_scale scale = step_loss_scale(a.step);
        update(&a, 1);
        float *want = steps_state(a.step, &all);
        end(&a);
        begin(&b, &ways[k]);
        for (int array = 0; array < 3; array++)
            kt_ok(state_write(step_state(b.step), array, 0, elems, half + array * elems));
        step_loss_scale_set(b.step, scale);
        update(&b, 1);
        float *got = steps_state(b.step, &all);
        assert_memory_equal(got, want, (size_t)all * sizeof *got);
        assert_true(scale.factor == (ways[k].dtype == DTYPE_F16 ? STEP_LOSS_SCALE_INIT : 0));
        assert_int_equal(step_loss_scale(b.step).steps, ways[k].dtype == DTYPE_F16 ? 2 : 0);
        end(&b);
        kt_free(want), kt_free(half), kt_free(got);
    }
}

/* ---- loss scales ---- */

/* A scale that is far too large: the same step is done again until its gradients are numbers, and
 * comes out as with the scale that was found; nothing is lost. A loss that is infinite itself is no
 * matter of scales. */
TEST(a_loss_scale_that_is_too_large_is_halved)
{
    const struct way way = {.dir = "lm", .dtype = DTYPE_F16};
    struct running a, b;
    begin(&a, &way);
    step_loss_scale_set(a.step, (struct step_loss_scale){STEP_LOSS_SCALE_MAX / 4, 0});
    struct step_result first = update(&a, 0);
    struct step_loss_scale found = step_loss_scale(a.step);
    print_message("# again %d times, scale %g\n", first.retries, found.factor);
    assert_true(first.retries > 0 && isfinite(first.grad_norm) &&
                found.factor < STEP_LOSS_SCALE_MAX / 4 && found.steps == 1);
    begin(&b, &way);
    step_loss_scale_set(b.step, (struct step_loss_scale){found.factor, 0});
    struct step_result want = update(&b, 0);
    assert_true(want.retries == 0 && want.loss == first.loss && want.grad_norm == first.grad_norm);
    int64_t all;
    float *x = steps_state(a.step, &all), *y = steps_state(b.step, &all);
    assert_memory_equal(x, y, (size_t)all * sizeof *x);
    kt_free(x), kt_free(y);
    step_loss_scale_set(b.step, (struct step_loss_scale){1024, STEP_LOSS_SCALE_GROWTH_STEPS - 1});
    update(&b, 1);
    assert_true(step_loss_scale(b.step).factor == 2048 && step_loss_scale(b.step).steps == 0);
    float inf = INFINITY;
    kt_ok(state_write(step_state(b.step), 0, 0, 1, &inf));
    struct step_result r;
    golden_batch(&b.g, 2, &b.batch);
    assert_int_equal(step_run_batch(b.step, &b.batch, 2, 0, 1e-3, false, &r), ST_NOT_FINITE);
    assert_true(step_loss_scale(b.step).factor == 2048);
    end(&a);
    end(&b);
}

/* ---- what a step asks of the runtime ---- */

/* Once: for loss and norm, while the update is under way. */
TEST(a_step_waits_once_and_takes_nothing)
{
    static const struct {
        const char *call;
        int most;
    } calls[] = {{"cudaMalloc", 0},
                 {"cudaHostAlloc", 0},
                 {"cudaEventCreateWithFlags", 0},
                 {"cudaSetDevice", 0},
                 {"cudaStreamCreateWithPriority", 0},
                 {"cudaStreamSynchronize", 0},
                 {"cudaMemsetAsync", 0},
                 {"cudaStreamBeginCapture", 0},
                 {"cudaGraphInstantiate", 0},
                 {"cudaEventSynchronize", 1}};
    const struct way way = {.dir = "lm", .dtype = DTYPE_BF16};
    struct running r;
    int before[sizeof calls / sizeof *calls];
    begin(&r, &way);
    update(&r, 0); /* casts the masters, which no later step does */
    update(&r, 1);
    update(&r, 2); /* the second of its kind: captured */
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        before[i] = *runtime_calls(calls[i].call);
    update(&r, 3);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (*runtime_calls(calls[i].call) - before[i] > calls[i].most)
            fail_msg("%s: %d times in a step, at most %d", calls[i].call,
                     *runtime_calls(calls[i].call) - before[i], calls[i].most);
    end(&r);
}

/* ---- a text ---- */

/* text_logits — of the last of five calls, on any device; the caller frees. */
static float *text_logits(const struct golden *g, struct dev *dev, enum dtype dtype)
{
    static const int32_t tokens[] = {5, 17, 203, 8, 40, 310, 0, 12};
    struct step_config config = golden_config(g, dev);
    struct decoder *d = NULL;
    struct step *step = NULL;
    const float *logits = NULL;
    config.is_eval = true;
    kt_ok(step_open(&config, &step));
    golden_load(g, step);
    kt_ok(decoder_open(dev, &config.dims, 16, dtype, &d));
    struct load_target to = decoder_target(d);
    int64_t elems = step_whole_table(step)->total_elems;
    float *params = kt_floats(elems, KT_ONES, 0), *out = kt_floats(g->dims.vocab, KT_ONES, 0);
    kt_ok(state_read(step_state(step), 0, 0, elems, params));
    for (int i = 0; i < to.table->params_n; i++) { /* a GPU's step has rows of zeros between them */
        const struct param *p = &to.table->param[i];
        kt_ok(dev_copy(to.stream, (float *)to.data.data + p->offset,
                       params + param_find(step_whole_table(step), p->name)->offset,
                       (size_t)p->elems * sizeof *params));
    }
    kt_ok(dev_sync(to.stream));
    kt_free(params);
    for (int64_t n = 4; n <= 8; n++)
        kt_ok(decoder_logits(d, tokens, n, &logits));
    memcpy(out, logits, (size_t)g->dims.vocab * sizeof *out);
    decoder_close(d);
    step_close(step);
    return out;
}

TEST(logits_are_near)
{
    static const double most[] = {[DTYPE_F32] = 1e-11, [DTYPE_BF16] = 1e-3, [DTYPE_F16] = 1e-5};
    struct golden g;
    golden_open("lm", &g);
    float *want = text_logits(&g, kt_plain()->dev, DTYPE_F32);
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        struct dev *dev = open_device();
        float *got = text_logits(&g, dev, (enum dtype)dtype);
        double nmse = kt_nmse(got, want, g.dims.vocab);
        print_message("# logits, dtype %d: nmse to the CPU's f32 %.1e\n", dtype, nmse);
        assert_true(nmse <= most[dtype]);
        kt_free(got);
        dev_close(dev);
    }
    kt_free(want);
    golden_close(&g);
}

/* Beyond the window every token is computed anew, from parameters that were rounded once. */
TEST(a_sample_rounds_weights_once)
{
    static const int32_t tokens[] = {5, 17, 203, 8, 40, 310, 0, 12};
    struct golden g;
    struct decoder *d = NULL;
    const float *logits = NULL;
    golden_open("lm", &g);
    struct dev *dev = open_device();
    struct step_config config = golden_config(&g, dev);
    kt_ok(decoder_open(dev, &config.dims, 4, DTYPE_BF16, &d));
    guarded_calls[GUARDED_cast] = 0;
    for (int64_t n = 4; n <= 8; n++)
        kt_ok(decoder_logits(d, tokens, n, &logits));
    assert_int_equal(guarded_calls[GUARDED_cast], 1);
    decoder_reset(d);
    kt_ok(decoder_logits(d, tokens, 8, &logits));
    assert_int_equal(guarded_calls[GUARDED_cast], 2);
    decoder_close(d);
    dev_close(dev);
    golden_close(&g);
}

HARNESS_RUN_ALL()

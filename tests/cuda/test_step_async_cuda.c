/* A single GPU decides on its update itself (train/step/end.c): the same final bits and the same
 * reported numbers as when the host decides between the passes and the update, as with several
 * ranks. Without a GPU (guarded.h). */
#include "kernel_test.h"

#include "tests/cuda/guarded.h"
#include "tests/cuda/steps.h"
#include "train/step/inside.h" /* async: only this test sets it */

#define STEPS 5
#define SEQ 5
#define SAMPLES 4
#define VOCAB 23

struct way {
    enum model_task task;
    enum dtype dtype;
    enum optim_kind optim;
    double clip;   /* 0: none */
    int64_t batch; /* of a micro-batch, of SAMPLES */
};

struct outcome {
    float *state; /* all arrays */
    int64_t elems;
    double results[STEPS][2]; /* loss, norm */
    struct step_loss_scale scale;
    int again[STEPS], waits; /* waits: for all of the stream, in the last step */
};

static struct step *open_step(struct dev *dev, const struct way *way, bool is_async)
{
    struct step *step = NULL;
    struct step_config c = steps_config(dev, way->task, way->dtype, way->optim);
    c.batch_samples = way->batch, c.global_samples = SAMPLES, c.seq_tokens = SEQ;
    c.dims.vocab = VOCAB;
    c.optim.grad_clip = way->clip;
    kt_ok(step_open(&c, &step));
    assert_true(step->async.is_on);
    step->async.is_on = is_async;
    return step;
}

static struct outcome train(const struct way *way, bool is_async)
{
    struct dev *dev = open_device();
    struct step *step = open_step(dev, way, is_async);
    struct outcome out = {.waits = 0};
    struct batch b;
    kt_ok(batch_init(&b, way->task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA, SAMPLES, SEQ));
    for (int64_t i = 0; i < STEPS; i++) {
        struct step_result r;
        steps_fill(&b, i, VOCAB);
        if (i == 3) /* fp16: far too large, in between */
            step_loss_scale_set(step, (struct step_loss_scale){STEP_LOSS_SCALE_MAX, 7});
        int waits = *runtime_calls("cudaStreamSynchronize");
        kt_ok(step_run_batch(step, &b, i, i * SAMPLES, 1e-2 / (double)(1 + i), false, &r));
        out.waits = *runtime_calls("cudaStreamSynchronize") - waits;
        out.results[i][0] = r.loss, out.results[i][1] = r.grad_norm;
        out.again[i] = r.retries;
    }
    out.scale = step_loss_scale(step);
    out.state = steps_state(step, &out.elems);
    batch_free(&b);
    step_close(step);
    dev_close(dev);
    return out;
}

/* Each type with each task, each task with clipping that bites, that does not, and none; both
 * optimisers, with accumulation and without. */
TEST(same_bits_as_when_the_host_decides)
{
    static const struct way ways[] = {
        {MODEL_TASK_LM, DTYPE_F32, OPTIM_KIND_ADAMW, 1e-2, SAMPLES},
        {MODEL_TASK_QA, DTYPE_F32, OPTIM_KIND_SGD, 1e3, 2},
        {MODEL_TASK_QA, DTYPE_BF16, OPTIM_KIND_ADAMW, 1e-2, 2},
        {MODEL_TASK_LM, DTYPE_BF16, OPTIM_KIND_SGD, 0, SAMPLES},
        {MODEL_TASK_LM, DTYPE_F16, OPTIM_KIND_ADAMW, 1e3, 2},
        {MODEL_TASK_QA, DTYPE_F16, OPTIM_KIND_ADAMW, 1e-2, SAMPLES},
        {MODEL_TASK_QA, DTYPE_F16, OPTIM_KIND_SGD, 0, SAMPLES},
    };
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        const struct way *way = &ways[k];
        struct outcome ahead = train(way, true), host = train(way, false);
        print_message("# task %d, dtype %d, clip %g: norm %.3g, %d times again\n", way->task,
                      way->dtype, way->clip, ahead.results[1][1], ahead.again[3]);
        assert_true(ahead.waits == 0 && host.waits > 0); /* that the two ways are two */
        assert_memory_equal(ahead.results, host.results, sizeof ahead.results);
        assert_memory_equal(ahead.again, host.again, sizeof ahead.again);
        assert_true(ahead.scale.factor == host.scale.factor &&
                    ahead.scale.steps == host.scale.steps);
        assert_memory_equal(ahead.state, host.state, (size_t)ahead.elems * sizeof *ahead.state);
        for (int i = 0; i < STEPS; i++) {
            assert_true(way->clip == 0 || way->clip > 1 ? isfinite(ahead.results[i][1])
                                                        : ahead.results[i][1] > way->clip);
            assert_true(way->dtype == DTYPE_F16 ? i != 3 || ahead.again[i] > 0
                                                : ahead.again[i] == 0);
        }
        kt_free(ahead.state);
        kt_free(host.state);
    }
}

HARNESS_RUN_ALL()

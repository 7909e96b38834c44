/* RECOMPUTE changes what a GPU computes twice and what it keeps, and no bit of losses, norms or
 * state: fp32, bf16 and fp16, both tasks, with dropout, and with our own products. Without a GPU
 * (guarded.h). */
#include "kernel_test.h"

#include "tests/cuda/guarded.h"
#include "tests/cuda/steps.h"
#include "train/step/memory.h"

#define STEPS 3
#define SEQ 5
#define SAMPLES 4
#define VOCAB 23
#define LAYERS 2

struct outcome {
    float *state; /* all arrays */
    int64_t elems, activations;
    double results[STEPS][2]; /* loss, norm */
};

static struct step *open_step(struct dev *dev, enum model_task task, enum dtype dtype,
                              struct model_recomputed recompute)
{
    struct step *step = NULL;
    struct step_config c = steps_config(dev, task, dtype, OPTIM_KIND_ADAMW);
    c.batch_samples = SAMPLES / 2, c.global_samples = SAMPLES, c.seq_tokens = SEQ;
    c.dims.vocab = VOCAB;
    c.dims.layers = LAYERS;
    c.recompute = recompute;
    kt_ok(step_open(&c, &step));
    return step;
}

static struct outcome train(enum model_task task, enum dtype dtype,
                            struct model_recomputed recompute)
{
    struct dev *dev = open_device();
    fake_counts()[4] = 1; /* our own products: a fused GELU of a library may round otherwise */
    struct step *step = open_step(dev, task, dtype, recompute);
    struct outcome out = {.activations = step_memory(step).activations};
    struct batch b;
    kt_ok(batch_init(&b, task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA, SAMPLES, SEQ));
    for (int64_t i = 0; i < STEPS; i++) {
        struct step_result r;
        steps_fill(&b, i, VOCAB);
        kt_ok(step_run_batch(step, &b, i, i * SAMPLES, 1e-2, false, &r));
        out.results[i][0] = r.loss, out.results[i][1] = r.grad_norm;
    }
    out.state = steps_state(step, &out.elems);
    batch_free(&b);
    step_close(step);
    fake_counts()[4] = 0;
    dev_close(dev);
    return out;
}

/* same — and each way keeps less than the one before. */
static void same(enum model_task task, enum dtype dtype)
{
    struct outcome want = train(task, dtype, (struct model_recomputed){0});
    int64_t kept = want.activations;
    for (int way = 1; way <= MODEL_RECOMPUTE_BLOCK * LAYERS; way++) {
        struct outcome got = train(task, dtype, model_recompute_nth(LAYERS, way));
        print_message("# task %d, dtype %d, way %d: activations %lld B of %lld B\n", task, dtype,
                      way, (long long)got.activations, (long long)want.activations);
        assert_true(got.activations < kept);
        assert_memory_equal(got.results, want.results, sizeof want.results);
        assert_memory_equal(got.state, want.state, (size_t)want.elems * sizeof(float));
        kept = got.activations;
        kt_free(got.state);
    }
    kt_free(want.state);
}

TEST(every_way_gives_the_same_bits)
{
    same(MODEL_TASK_LM, DTYPE_F32);
    same(MODEL_TASK_LM, DTYPE_BF16);
    same(MODEL_TASK_LM, DTYPE_F16);
    same(MODEL_TASK_QA, DTYPE_BF16);
}

HARNESS_RUN_ALL()

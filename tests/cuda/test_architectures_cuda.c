/* Each architecture trains on a GPU as on a CPU, and RECOMPUTE changes no bit. Without a
 * GPU (guarded.h). */
#include "kernel_test.h"

#include "architectures.h"
#include "kernels/cpu.h"
#include "tests/cuda/guarded.h"
#include "tests/cuda/steps.h"

#define STEPS 3
#define SEQ 11
#define SAMPLES 2

struct outcome {
    double results[STEPS][2]; /* loss, norm */
};

/* Writes the frozen weights of an adapter's model. */
static void fill_frozen(struct step *step)
{
    const struct param_table *table = step_frozen_table(step);
    for (int i = 0; i < table->params_n; i++) {
        const struct param *p = &table->param[i];
        float *values = kt_floats(p->elems, KT_ONES, 0);
        param_fill(table, i, 9, 0, p->elems, values);
        kt_ok(state_write(step_frozen_state(step), 0, p->offset, p->elems, values));
        kt_free(values);
    }
}

static struct outcome train(struct dev *dev, int arch, bool has_adapter,
                            enum model_recompute recompute, enum dtype dtype)
{
    struct outcome out;
    struct step *step;
    struct batch b;
    struct step_config c = steps_config(dev, MODEL_TASK_LM, dtype, OPTIM_KIND_ADAMW);
    c.batch_samples = c.global_samples = SAMPLES, c.seq_tokens = SEQ;
    c.dims = architectures[arch];
    c.dims.context = SEQ + 2;
    /* a GPU's kernels take heads of 8, 16 … elements */
    c.dims.head_dim = 8, c.dims.embed = c.dims.heads * 8;
    c.dims.ffn = c.dims.arch == MODEL_ARCH_GPT2 ? 4 * c.dims.embed : 40;
    if (has_adapter)
        c.dims.adapter = (struct model_adapter){.r = 4, .alpha = 8, .targets = MODEL_TARGETS_ALL};
    c.dropout = 0;
    c.recompute.way = recompute;
    kt_ok(step_open(&c, &step));
    fill_frozen(step);
    kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
    for (int64_t i = 0; i < STEPS; i++) {
        struct step_result r;
        steps_fill(&b, i, c.dims.vocab);
        kt_ok(step_run_batch(step, &b, i, i * SAMPLES, 1e-3, false, &r));
        out.results[i][0] = r.loss, out.results[i][1] = r.grad_norm;
    }
    batch_free(&b);
    step_close(step);
    dev_close(dev);
    return out;
}

static struct dev *open_cpu(void)
{
    struct dev *dev;
    kt_ok(dev_cpu_open(1, CPU_ISA_N, &dev));
    return dev;
}

/* The largest relative difference of losses and norms. */
static double differs(const struct outcome *a, const struct outcome *b)
{
    double worst = 0;
    for (int i = 0; i < 2 * STEPS; i++)
        worst = fmax(worst, fabs(a->results[i / 2][i % 2] / b->results[i / 2][i % 2] - 1));
    return worst;
}

static void compare(int arch, bool has_adapter)
{
    struct outcome cpu = train(open_cpu(), arch, has_adapter, MODEL_RECOMPUTE_NONE, DTYPE_F32),
                   gpu = train(open_device(), arch, has_adapter, MODEL_RECOMPUTE_NONE, DTYPE_F32),
                   block =
                       train(open_device(), arch, has_adapter, MODEL_RECOMPUTE_BLOCK, DTYPE_F32),
                   bf16 = train(open_device(), arch, has_adapter, MODEL_RECOMPUTE_NONE, DTYPE_BF16),
                   bf16_block =
                       train(open_device(), arch, has_adapter, MODEL_RECOMPUTE_BLOCK, DTYPE_BF16);
    print_message("# %s%s: losses and norms differ by at most %.1e, in bf16 %.1e\n",
                  architectures[arch].name, has_adapter ? " with an adapter" : "",
                  differs(&gpu, &cpu), differs(&bf16, &cpu));
    assert_true(differs(&gpu, &cpu) < 1e-6);
    assert_true(differs(&bf16, &cpu) < 2e-2);
    assert_memory_equal(&block, &gpu, sizeof gpu);
    /* cuBLASLt's fused GELU takes the sums before they are rounded (decision 026) */
    if (has_adapter || architectures[arch].features.mlp != MODEL_MLP_GELU_TANH)
        assert_memory_equal(&bf16_block, &bf16, sizeof bf16);
}

TEST(architectures_train_alike)
{
    for (int arch = 0; arch < ARCHITECTURES_N; arch++)
        compare(arch, false);
}

TEST(adapters_train_alike)
{
    for (int arch = 0; arch < ARCHITECTURES_N; arch++)
        compare(arch, true);
}

HARNESS_RUN_ALL()

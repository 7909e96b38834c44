/* How far training in bf16 and fp16 departs from fp32, step by step: a small GPT-2 with heads of
 * 64, on this repository's licence, letter by letter. 16-bit passes run on the emulation of CUDA,
 * whose tensor cores round as the chips do; fp32 runs on the CPU. The suite takes the first steps;
 * CURVE=200 takes that many, in minutes. Without a GPU (guarded.h). */
#include "kernel_test.h"

#include "tests/cuda/guarded.h"
#include "tests/cuda/steps.h"

#define STEPS_SUITE 8
#define STEPS_MOST 400
#define SEQ 32
/* with 2, and thrice the rate, fp32 itself is chaotic: 14 to 23 % apart after 200 steps */
#define SAMPLES 8
#define VOCAB 128
#define APART 0.01 /* of the loss: the gate of issue and README */

static char text[16384];

static void read_text(void)
{
    FILE *in = fopen("LICENSE", "r");
    assert_non_null(in);
    size_t n = fread(text, 1, sizeof text, in);
    fclose(in);
    assert_true(n > 4096);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(text[i % n] & 127);
}

static void fill_batch(struct batch *b, int64_t step_i)
{
    for (int64_t s = 0; s < SAMPLES; s++) {
        const char *from =
            text + rand_below(9, RAND_STREAM(TEST, 1), (uint64_t)(step_i * SAMPLES + s),
                              sizeof text - SEQ - 1);
        for (int64_t i = 0; i < SEQ; i++) {
            b->host.tokens[s * SEQ + i] = from[i];
            b->host.targets[s * SEQ + i] = from[i + 1];
            if (b->host.mask)
                b->host.mask[s * SEQ + i] = 1;
        }
    }
}

static void train(struct dev *dev, enum dtype dtype, int steps, double *losses)
{
    struct step *step = NULL;
    struct batch b;
    struct step_config c = steps_config(dev, MODEL_TASK_LM, dtype, OPTIM_KIND_ADAMW);
    c.batch_samples = c.global_samples = SAMPLES, c.seq_tokens = SEQ;
    c.dropout = 0;
    c.dims.layers = 2, c.dims.embed = 64, c.dims.context = SEQ, c.dims.vocab = VOCAB;
    kt_ok(step_open(&c, &step));
    kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
    for (int64_t i = 0; i < steps; i++) {
        struct step_result r;
        fill_batch(&b, i);
        kt_ok(step_run_batch(step, &b, i, i * SAMPLES, 1e-3 * (i < 10 ? (double)(i + 1) / 10 : 1),
                             false, &r));
        losses[i] = r.loss;
    }
    batch_free(&b);
    step_close(step);
}

static int wanted(void)
{
    const char *asked = getenv("CURVE");
    int steps = asked ? atoi(asked) : STEPS_SUITE;
    return steps < 1 ? 1 : steps > STEPS_MOST ? STEPS_MOST : steps;
}

TEST(as_fp32)
{
    static double want[STEPS_MOST], got[STEPS_MOST];
    const int steps = wanted();
    struct dev *cpu = NULL;
    read_text();
    kt_ok(dev_cpu_open(1, CPU_ISA_N, &cpu));
    train(cpu, DTYPE_F32, steps, want);
    dev_close(cpu);
    for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++) {
        struct dev *dev = open_device();
        double worst = 0;
        train(dev, (enum dtype)dtype, steps, got);
        dev_close(dev);
        for (int i = 0; i < steps; i++)
            worst = fmax(worst, fabs(got[i] - want[i]) / want[i]);
        print_message("# %s: %d steps, loss %.4f to %.4f (fp32 %.4f), %.2e apart at most\n",
                      dtype == DTYPE_BF16 ? "bf16" : "fp16", steps, got[0], got[steps - 1],
                      want[steps - 1], worst);
        assert_true(worst <= APART && worst > 0);
        assert_true(got[steps - 1] < got[0]);
    }
}

HARNESS_RUN_ALL()

/* documents — a sample of documents, with attention within each of them, is training on each
 * of them alone. */

#include "architectures.h"
#include "base/rand.h"
#include "harness.h"
#include "kernels/cpu.h"
#include "train/step/step.h"

#define OK(x) assert_int_equal(x, ST_OK)

enum { T = 40, CUT = 17, VOCAB = 37 }; /* the second document begins at CUT */

static struct dev *dev;

static struct step_config config_of(const struct model_dims *dims, int64_t samples, int64_t t)
{
    struct step_config c = {.dev = dev,
                            .batch_samples = samples,
                            .global_samples = samples,
                            .seq_tokens = t,
                            .masks_documents = true,
                            .seed = 3,
                            .dims = *dims,
                            .optim = {.kind = OPTIM_KIND_SGD}};
    c.dims.context = T + 3;
    return c;
}

static int32_t token(int64_t at)
{
    return (int32_t)rand_below(5, RAND_STREAM(TEST, 0), (uint64_t)at, VOCAB);
}

/* Tokens `first` to `end` of the two documents from position `at` of a sample on. What is beside
 * them is noise without targets. */
struct fragment {
    int64_t first, end, at;
};

struct outcome {
    double loss;
    float *grads;
    int64_t n;
};

static struct outcome run(const struct step_config *c, const struct fragment *fragments,
                          bool is_masked)
{
    struct step *step;
    struct batch b;
    struct step_result r;
    OK(step_open(c, &step));
    OK(batch_init(&b, FEED_TASK_LM, c->global_samples, c->seq_tokens));
    if (is_masked)
        OK(batch_add_documents(&b));
    for (int64_t row = 0; row < c->global_samples; row++) {
        int64_t t = b.seq_tokens;
        for (int64_t i = 0; i < t; i++) {
            int64_t from = fragments[row].first + i - fragments[row].at, to = row * t + i;
            bool is_of = i >= fragments[row].at && from < fragments[row].end;
            b.host.tokens[to] = is_of ? token(from) : token(1000 + i);
            b.host.targets[to] = is_of ? token(from + 1) : -1;
            if (b.host.first_key) {
                bool begins = i == 0 || (is_of && (from == CUT || from == fragments[row].first)) ||
                              from == fragments[row].end;
                b.host.first_key[to] = begins ? (int32_t)i : b.host.first_key[to - 1];
            }
        }
    }
    if (c->restarts_positions)
        OK(batch_add_positions(&b));
    batch_set_positions(&b);
    OK(step_run_batch(step, &b, 0, 0, 1e-3, false, &r));
    OK(step_drain(step));
    struct outcome x = {.loss = r.loss, .n = step_own_table(step)->total_elems};
    x.grads = memcpy(malloc((size_t)x.n * sizeof(float)), step_grads(step).data,
                     (size_t)x.n * sizeof(float));
    batch_free(&b);
    step_close(step);
    return x;
}

/* The share of b's square that the difference is. */
static double apart(const struct outcome *a, const struct outcome *b)
{
    double error = 0, all = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        error += ((double)a->grads[i] - b->grads[i]) * ((double)a->grads[i] - b->grads[i]);
        all += (double)b->grads[i] * b->grads[i];
    }
    return error / all;
}

static void same(const char *what, const struct outcome *a, const struct outcome *b)
{
    print_message("# %s: losses %.9g and %.9g, gradients %.1e apart\n", what, a->loss, b->loss,
                  apart(a, b));
    assert_true(fabs(a->loss / b->loss - 1) < 1e-6);
    assert_true(apart(a, b) < 1e-9);
}

/* Each document at its position, what is beside it changed: none knows the other. */
static void check_positions(const struct model_dims *dims, struct model_recomputed recompute)
{
    static const struct fragment both[] = {{0, T, 0}}, each[] = {{0, CUT, 0}, {CUT, T, CUT}};
    struct step_config one = config_of(dims, 1, T), two = config_of(dims, 2, T);
    one.recompute = two.recompute = recompute;
    struct outcome packed = run(&one, both, true), apart_ = run(&two, each, true),
                   causal = run(&one, both, false);
    same(dims->name, &packed, &apart_);
    assert_true(fabs(packed.loss - causal.loss) > 1e-5 && apart(&packed, &causal) > 1e-4);
    free(packed.grads);
    free(apart_.grads);
    free(causal.grads);
}

static const struct model_dims gpt2 = {
    .name = "gpt2", .layers = 2, .heads = 2, .embed = 24, .vocab = VOCAB};

TEST(documents_do_not_know_each_other)
{
    static const struct model_recomputed none;
    check_positions(&gpt2, none);
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        check_positions(&architectures[i], none);
    for (int way = 0; way <= MODEL_RECOMPUTE_BLOCK; way++)
        check_positions(&gpt2, (struct model_recomputed){.way = (enum model_recompute)way});
}

/* Compares two documents in a sample with each at the start of a sample, without any first key. */
static void check_alone(const struct model_dims *dims, bool restarts_positions, bool is_same)
{
    static const struct fragment both[] = {{0, T, 0}}, each[] = {{0, CUT, 0}, {CUT, T, 0}};
    struct step_config one = config_of(dims, 1, T), two = config_of(dims, 2, T);
    one.restarts_positions = restarts_positions;
    two.masks_documents = false;
    struct outcome packed = run(&one, both, true), alone = run(&two, each, false);
    if (is_same)
        same(dims->name, &packed, &alone);
    else
        assert_true(apart(&packed, &alone) > 1e-4);
    free(packed.grads);
    free(alone.grads);
}

/* With rotations only distances matter. Learned positions restart if the config asks for it. */
TEST(documents_are_alone)
{
    int learned_n = 0;
    check_alone(&gpt2, true, true);
    check_alone(&gpt2, false, false);
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        const struct model_dims *dims = &architectures[i];
        const bool is_learned = dims->features.position == MODEL_POSITION_LEARNED;
        if (is_learned || dims->features.position == MODEL_POSITION_ROPE)
            check_alone(dims, is_learned, true);
        learned_n += is_learned;
    }
    assert_true(learned_n > 0);
}

static int open_device(void **state) { return dev_cpu_open(2, CPU_ISA_N, &dev) == ST_OK ? 0 : -1; }

static int close_device(void **state)
{
    dev_close(dev);
    return 0;
}

HARNESS_RUN_ALL_WITH(open_device, close_device)

/* test_normuon_steps — ten steps of OPTIMIZER=normuon against the formula in double, for every
 * architecture: momentum, Newton–Schulz, neurons, scale and weight decay. Gradients come from a
 * second model with the same parameters, for an update overwrites its own. Which element is whose
 * neuron's, and which matrix it is in, is worked out here from names and layouts alone. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "architectures.h"
#include "base/rand.h"
#include "kernels/cpu.h"
#include "newton_schulz.h"
#include "train/step.h"

#define OK(call) assert_int_equal(call, ST_OK)
#define STEPS 10
#define T 8
#define SAMPLES 4
#define LR 3e-3
#define DECAY 0.1
#define MOMENTUM 0.9

/* Of one hidden tensor: parameters, momentum and means, in double. */
struct truth {
    const struct param *p;
    double *param, *momentum, *mean;
};

struct bed {
    struct dev *dev;
    struct model_dims dims;
    struct step *step, *twin; /* twin: of the gradients */
    struct batch batch;
    struct truth truth[64];
    int truths_n;
};

static struct step_config config_of(const struct bed *b, enum optim_kind kind)
{
    return (struct step_config){.dev = b->dev,
                                .batch_samples = SAMPLES,
                                .global_samples = SAMPLES,
                                .seq_tokens = T,
                                .seed = 3,
                                .dims = b->dims,
                                .optim = {.kind = kind,
                                          .beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .eps = 1e-8,
                                          .momentum = kind == OPTIM_KIND_SGD ? 0 : MOMENTUM,
                                          .weight_decay = DECAY}};
}

static double *doubles(int64_t n)
{
    double *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

static void truth_open(struct bed *b)
{
    const struct param_table *t = step_own_table(b->step);
    for (int i = 0; i < t->params_n; i++) {
        const struct param *p = &t->param[i];
        if (!p->is_hidden)
            continue;
        assert_true(b->truths_n < 64);
        struct truth *truth = &b->truth[b->truths_n++];
        *truth = (struct truth){p, doubles(p->elems), doubles(p->elems), doubles(p->elems)};
        for (int64_t j = 0; j < p->elems; j++)
            truth->param[j] = step_part(b->step, 0)[p->offset + j];
    }
}

static void bed_open(struct bed *b, const struct model_dims *dims)
{
    memset(b, 0, sizeof *b);
    b->dims = *dims;
    b->dims.task = MODEL_TASK_LM;
    b->dims.context = T + 3;
    OK(model_check(&b->dims));
    OK(dev_cpu_open(1, CPU_ISA_N, &b->dev));
    const struct step_config config = config_of(b, OPTIM_KIND_NORMUON),
                             twin = config_of(b, OPTIM_KIND_SGD);
    OK(step_open(&config, &b->step));
    OK(step_open(&twin, &b->twin));
    OK(batch_init(&b->batch, FEED_TASK_LM, SAMPLES, T));
    truth_open(b);
}

static void bed_close(struct bed *b)
{
    for (int i = 0; i < b->truths_n; i++) {
        free(b->truth[i].param);
        free(b->truth[i].momentum);
        free(b->truth[i].mean);
    }
    batch_free(&b->batch);
    step_close(b->step);
    step_close(b->twin);
    dev_close(b->dev);
}

static void draw(struct bed *b, int step)
{
    for (int64_t i = 0; i < SAMPLES * T; i++)
        for (int side = 0; side < 2; side++)
            (side ? b->batch.host.targets : b->batch.host.tokens)[i] =
                (int32_t)rand_below(7, RAND_STREAM(TEST, side), (uint64_t)(step * SAMPLES * T + i),
                                    (uint64_t)b->dims.vocab);
}

/* ---- the formula ---- */

/* Matrices are [output neuron][input]. */

static double norm_of(matrix x, int r, int c)
{
    double sum = 0;
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++)
            sum += x[i][j] * x[i][j];
    return sqrt(sum);
}

/* rule — u becomes the update; mean: a number for each row. */
static void rule(matrix u, int r, int c, double *const mean[])
{
    double norm = norm_of(u, r, c) + 1e-6;
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++)
            u[i][j] /= norm;
    newton_schulz(u, r, c);
    for (int i = 0; i < r; i++) {
        double squares = 0;
        for (int j = 0; j < c; j++)
            squares += u[i][j] * u[i][j];
        *mean[i] = 0.95 * *mean[i] + 0.05 * squares / c;
        for (int j = 0; j < c; j++)
            u[i][j] /= sqrt(*mean[i]) + 1e-8;
    }
    norm = norm_of(u, r, c);
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++)
            u[i][j] *= 0.2 * sqrt((double)r * c) / norm;
}

/* ---- where elements lie ---- */

static bool is_in_out(const struct bed *b) { return b->dims.arch == MODEL_ARCH_GPT2; }

/* group_of — the matrix of an output: queries, keys and values side by side, or for each head. */
static int64_t group_of(const struct bed *b, const struct param *p, int64_t out)
{
    const int64_t d = b->dims.embed / b->dims.heads;
    if (strstr(p->name, "c_attn"))
        return out / b->dims.embed;
    return strstr(p->name, "query_key_value") ? out / d % 3 : 0;
}

/* apply — one matrix of a tensor: its rows are the outputs of a group. */
static void apply(const struct bed *b, struct truth *t, const double *u, int64_t group)
{
    static matrix x;
    static double *mean[SIDE_MAX];
    static int64_t rows[SIDE_MAX];
    const bool is_io = is_in_out(b);
    const int64_t outs = t->p->dim[is_io ? 1 : 0], ins = t->p->dim[is_io ? 0 : 1];
    int r = 0;
    for (int64_t out = 0; out < outs; out++)
        if (group_of(b, t->p, out) == group)
            rows[r++] = out;
    assert_true(r < SIDE_MAX && ins < SIDE_MAX);
    for (int i = 0; i < r; i++) {
        mean[i] = &t->mean[rows[i]];
        for (int64_t j = 0; j < ins; j++)
            x[i][j] = u[is_io ? j * outs + rows[i] : rows[i] * ins + j];
    }
    if (r > 0)
        rule(x, r, (int)ins, mean);
    for (int i = 0; i < r; i++)
        for (int64_t j = 0; j < ins; j++) {
            double *p = &t->param[is_io ? j * outs + rows[i] : rows[i] * ins + j];
            *p = *p * (1 - LR * DECAY) - LR * x[i][j];
        }
}

static void update(const struct bed *b, struct truth *t, const float *grad)
{
    double *u = doubles(t->p->elems);
    for (int64_t i = 0; i < t->p->elems; i++) {
        t->momentum[i] = MOMENTUM * t->momentum[i] + grad[i];
        u[i] = MOMENTUM * t->momentum[i] + grad[i];
    }
    for (int64_t group = 0; group < 3; group++)
        apply(b, t, u, group);
    free(u);
}

/* ---- ten steps ---- */

/* gradients — of the twin, at the parameters of the model. */
static const float *gradients(struct bed *b, int step)
{
    const struct param_table *t = step_own_table(b->step);
    struct step_result r;
    memcpy(step_part(b->twin, 0), step_part(b->step, 0), (size_t)t->total_elems * sizeof(float));
    OK(step_run_batch(b->twin, &b->batch, step, step * SAMPLES, 0, false, &r));
    OK(step_drain(b->twin));
    return step_grads(b->twin).data;
}

static double wrong_by(struct bed *b)
{
    double wrong = 0, moved = 0;
    for (int i = 0; i < b->truths_n; i++)
        for (int64_t j = 0; j < b->truth[i].p->elems; j++) {
            double here = step_part(b->step, 0)[b->truth[i].p->offset + j],
                   there = b->truth[i].param[j];
            wrong += (here - there) * (here - there);
            moved += STEPS * LR * LR * 0.04;
        }
    return wrong / moved;
}

/* neurons_wrong_by — the numbers of the state, against means in the order of matrices. */
static double neurons_wrong_by(struct bed *b)
{
    double wrong = 0, all = 0;
    for (int i = 0; i < b->truths_n; i++) {
        const struct truth *t = &b->truth[i];
        const int64_t outs = t->p->dim[is_in_out(b) ? 1 : 0];
        float *here = calloc((size_t)t->p->elems, sizeof *here);
        int64_t at = 0;
        assert_non_null(here);
        OK(step_read(b->step, 2, t->p->offset, t->p->elems, here));
        for (int64_t group = 0; group < 3; group++)
            for (int64_t out = 0; out < outs; out++)
                if (group_of(b, t->p, out) == group) {
                    double apart = here[at++] - t->mean[out];
                    wrong += apart * apart;
                    all += t->mean[out] * t->mean[out];
                }
        assert_int_equal(at, outs);
        for (; at < t->p->elems; at++)
            assert_true(here[at] == 0);
        free(here);
    }
    return wrong / all;
}

static void ten_steps(const struct model_dims *dims)
{
    static struct bed b;
    struct step_result r;
    bed_open(&b, dims);
    for (int step = 0; step < STEPS; step++) {
        draw(&b, step);
        const float *grad = gradients(&b, step);
        OK(step_run_batch(b.step, &b.batch, step, step * SAMPLES, LR, false, &r));
        OK(step_drain(b.step));
        for (int i = 0; i < b.truths_n; i++)
            update(&b, &b.truth[i], grad + b.truth[i].p->offset);
    }
    double wrong = wrong_by(&b), neurons = neurons_wrong_by(&b);
    print_message("# %s: parameters nmse %.1e of the way, neurons %.1e\n", dims->name, wrong,
                  neurons);
    assert_true(wrong < 1e-9 && neurons < 1e-11);
    bed_close(&b);
}

static void test_gpt2(void **state)
{
    (void)state;
    ten_steps(
        &(struct model_dims){.name = "gpt2", .layers = 2, .heads = 2, .embed = 16, .vocab = 37});
}

static void test_architectures(void **state)
{
    (void)state;
    for (int i = 0; i < ARCHITECTURES_N; i++)
        ten_steps(&architectures[i]);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2),
                                          cmocka_unit_test(test_architectures)};
HARNESS_MAIN(tests)

/* muon — Muon against its formula in double: the iteration on wide, tall and square matrices,
 * and ten steps of every architecture with momentum, scale and weight decay. Gradients of the steps
 * come from a second model with the same parameters, because an update overwrites its own. The
 * matrix of an element is worked out here from names and layouts only. */
#include "train/step/muon.h"

#include "architectures.h"
#include "base/rand.h"
#include "dev/dev.h"
#include "harness.h"
#include "kernels/cpu.h"
#include "train/step/step.h"

#define SIDE_MAX 80

typedef double matrix[SIDE_MAX][SIDE_MAX];

/* newton_schulz — Makes X ← a·X + (b·G + c·G²)·X with G = X·Xᵀ, five times, of r × c numbers. */
static void newton_schulz(matrix x, int r, int c)
{
    static matrix g, s, y;
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < r; i++)
            for (int j = 0; j < r; j++) {
                g[i][j] = 0;
                for (int l = 0; l < c; l++)
                    g[i][j] += x[i][l] * x[j][l];
            }
        for (int i = 0; i < r; i++)
            for (int j = 0; j < r; j++) {
                s[i][j] = -4.7750 * g[i][j];
                for (int l = 0; l < r; l++)
                    s[i][j] += 2.0315 * g[i][l] * g[l][j];
            }
        for (int i = 0; i < r; i++)
            for (int j = 0; j < c; j++) {
                y[i][j] = 3.4445 * x[i][j];
                for (int l = 0; l < r; l++)
                    y[i][j] += s[i][l] * x[l][j];
            }
        memcpy(x, y, sizeof y);
    }
}

struct bed {
    struct dev *dev;
    struct param param;
    struct param_table table;
    struct muon_room room;
    struct muon muon;
    _Alignas(256) char memory[1 << 16];
};

static void bed_open(struct bed *b, int64_t rows, int64_t columns)
{
    struct arena arena;
    memset(b, 0, sizeof *b);
    b->param = (struct param){.dims_n = 2, .dim = {rows, columns}, .elems = rows * columns};
    b->param.is_hidden = true;
    b->table =
        (struct param_table){.param = &b->param, .params_n = 1, .total_elems = rows * columns};
    arena_init(&arena, "muon", b->memory, sizeof b->memory);
    b->room = muon_alloc(&arena, &b->table);
    *(double *)b->room.unit.data = 1;
    assert_int_equal(dev_cpu_open(2, CPU_ISA_N, &b->dev), ST_OK);
    b->muon = (struct muon){.op = dev_op(b->dev), .table = &b->table, .room = &b->room};
    assert_int_equal(dev_stream_open(b->dev, &b->muon.stream), ST_OK);
}

static void bed_close(struct bed *b)
{
    dev_stream_close(b->muon.stream);
    dev_close(b->dev);
}

static double value(int64_t i) { return sin((double)(i * i % 1009) * 0.37 + 0.1) * 0.01; }

static void check(int r, int c)
{
    static struct bed b;
    static matrix want;
    struct tensor out;
    double norm = 0, wrong = 0, all = 0;
    bed_open(&b, r, c);
    for (int i = 0; i < r * c; i++) {
        ((float *)b.room.x.data)[i] = (float)value(i);
        norm += value(i) * value(i);
    }
    for (int i = 0; i < r * c; i++)
        want[i / c][i % c] = value(i) / (sqrt(norm) + 1e-6);
    newton_schulz(want, r, c);
    assert_int_equal(muon_orthogonalise(&b.muon, r, c, 0.5, &out), ST_OK);
    assert_int_equal(dev_sync(b.muon.stream), ST_OK);
    for (int i = 0; i < r * c; i++) {
        double here = ((float *)out.data)[i], there = 0.5 * want[i / c][i % c];
        wrong += (here - there) * (here - there);
        all += there * there;
    }
    print_message("# %d x %d: nmse %.1e\n", r, c, wrong / all);
    assert_true(all > 0.05 * (r < c ? r : c)); /* singular values of 0.5 to 1.5, halved */
    assert_true(wrong < 1e-9 * all);
    bed_close(&b);
}

TEST(test_formula)
{
    check(7, 33);
    check(33, 7);
    check(24, 24);
    check(1, 5);
}

TEST(test_not_finite)
{
    static struct bed b;
    struct tensor out;
    bed_open(&b, 5, 9);
    for (int i = 0; i < 45; i++)
        ((float *)b.room.x.data)[i] = 1;
    *(double *)b.room.unit.data = NAN;
    assert_int_equal(muon_orthogonalise(&b.muon, 5, 9, 1, &out), ST_OK);
    assert_int_equal(dev_sync(b.muon.stream), ST_OK);
    for (int i = 0; i < 45; i++)
        assert_true(((float *)out.data)[i] == 0);
    bed_close(&b);
}

/* ---- ten steps ---- */

#define OK(call) assert_int_equal(call, ST_OK)
#define STEPS 10
#define T 8
#define SAMPLES 4
#define LR 3e-3
#define DECAY 0.1
#define MOMENTUM 0.9

/* Parameters and momentum of one hidden tensor, in double. */
struct truth {
    const struct param *p;
    double *param, *momentum;
};

struct job {
    struct dev *dev;
    struct model_dims dims;
    struct step *step, *twin; /* twin: of the gradients */
    struct batch batch;
    struct truth truth[64];
    int truths_n;
};

static struct step_config config_of(const struct job *b, enum optim_kind kind)
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

static void job_open(struct job *b, const struct model_dims *dims)
{
    memset(b, 0, sizeof *b);
    b->dims = *dims;
    b->dims.task = MODEL_TASK_LM;
    b->dims.context = T + 3;
    OK(model_check(&b->dims));
    OK(dev_cpu_open(1, CPU_ISA_N, &b->dev));
    const struct step_config config = config_of(b, OPTIM_KIND_MUON),
                             twin = config_of(b, OPTIM_KIND_SGD);
    OK(step_open(&config, &b->step));
    OK(step_open(&twin, &b->twin));
    OK(batch_init(&b->batch, FEED_TASK_LM, SAMPLES, T));
    const struct param_table *t = step_own_table(b->step);
    for (int i = 0; i < t->params_n; i++) {
        const struct param *p = &t->param[i];
        if (!p->is_hidden)
            continue;
        assert_true(b->truths_n < 64);
        struct truth *truth = &b->truth[b->truths_n++];
        *truth = (struct truth){p, doubles(p->elems), doubles(p->elems)};
        for (int64_t j = 0; j < p->elems; j++)
            truth->param[j] = step_array(b->step, 0)[p->offset + j];
    }
}

/* rule — Replaces u, [output neuron][input], by the update. */
static void rule(matrix u, int r, int c)
{
    double norm = 0;
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++)
            norm += u[i][j] * u[i][j];
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++)
            u[i][j] /= sqrt(norm) + 1e-6;
    newton_schulz(u, r, c);
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++)
            u[i][j] *= 0.2 * sqrt(r > c ? r : c);
}

/* group_of — Returns the matrix of an output. Queries, keys and values lie side by side, or for
 * each head. */
static int64_t group_of(const struct job *b, const struct param *p, int64_t out)
{
    const int64_t d = b->dims.embed / b->dims.heads;
    if (strstr(p->name, "c_attn"))
        return out / b->dims.embed;
    return strstr(p->name, "query_key_value") ? out / d % 3 : 0;
}

/* apply — Updates one matrix of a tensor. Its rows are the outputs of a group. */
static void apply(const struct job *b, struct truth *t, const double *u, int64_t group)
{
    static matrix x;
    static int64_t rows[SIDE_MAX];
    const bool is_io = b->dims.arch == MODEL_ARCH_GPT2;
    const int64_t outs = t->p->dim[is_io ? 1 : 0], ins = t->p->dim[is_io ? 0 : 1];
    int r = 0;
    for (int64_t out = 0; out < outs; out++)
        if (group_of(b, t->p, out) == group)
            rows[r++] = out;
    assert_true(r < SIDE_MAX && ins < SIDE_MAX);
    for (int i = 0; i < r; i++)
        for (int64_t j = 0; j < ins; j++)
            x[i][j] = u[is_io ? j * outs + rows[i] : rows[i] * ins + j];
    if (r > 0)
        rule(x, r, (int)ins);
    for (int i = 0; i < r; i++)
        for (int64_t j = 0; j < ins; j++) {
            double *p = &t->param[is_io ? j * outs + rows[i] : rows[i] * ins + j];
            *p = *p * (1 - LR * DECAY) - LR * x[i][j];
        }
}

static void update(const struct job *b, struct truth *t, const float *grad)
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

/* gradients — Returns the gradients of the twin at the parameters of the model. */
static const float *gradients(struct job *b, int step)
{
    const struct param_table *t = step_own_table(b->step);
    struct step_result r;
    memcpy(step_array(b->twin, 0), step_array(b->step, 0), (size_t)t->total_elems * sizeof(float));
    OK(step_run_batch(b->twin, &b->batch, step, step * SAMPLES, 0, false, &r));
    OK(step_drain(b->twin));
    return step_grads(b->twin).data;
}

static double wrong_by(struct job *b)
{
    double wrong = 0, moved = 0;
    for (int i = 0; i < b->truths_n; i++)
        for (int64_t j = 0; j < b->truth[i].p->elems; j++) {
            double here = step_array(b->step, 0)[b->truth[i].p->offset + j],
                   there = b->truth[i].param[j];
            wrong += (here - there) * (here - there);
            moved += STEPS * LR * LR * 0.04;
        }
    return wrong / moved;
}

static void ten_steps(const struct model_dims *dims)
{
    static struct job b;
    struct step_result r;
    job_open(&b, dims);
    for (int step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < SAMPLES * T; i++)
            for (int side = 0; side < 2; side++)
                (side ? b.batch.host.targets : b.batch.host.tokens)[i] =
                    (int32_t)rand_below(7, RAND_STREAM(TEST, side),
                                        (uint64_t)(step * SAMPLES * T + i), (uint64_t)b.dims.vocab);
        const float *grad = gradients(&b, step);
        OK(step_run_batch(b.step, &b.batch, step, step * SAMPLES, LR, false, &r));
        OK(step_drain(b.step));
        for (int i = 0; i < b.truths_n; i++)
            update(&b, &b.truth[i], grad + b.truth[i].p->offset);
    }
    double wrong = wrong_by(&b);
    print_message("# %s: nmse %.1e of the way\n", dims->name, wrong);
    assert_true(wrong < 1e-9);
    for (int i = 0; i < b.truths_n; i++) {
        free(b.truth[i].param);
        free(b.truth[i].momentum);
    }
    batch_free(&b.batch);
    step_close(b.step);
    step_close(b.twin);
    dev_close(b.dev);
}

TEST(test_gpt2)
{
    ten_steps(
        &(struct model_dims){.name = "gpt2", .layers = 2, .heads = 2, .embed = 16, .vocab = 37});
}

TEST(test_architectures)
{
    for (int i = 0; i < ARCHITECTURES_N; i++)
        ten_steps(&architectures[i]);
}

HARNESS_RUN_ALL()

/* step — one update is the same however it is cut, recomputed or threaded; it is the gradient
 * of the loss; it learns. */
#include "train/step/step.h"

#include "architectures.h"
#include "base/rand.h"
#include "harness.h"
#include "kernels/cpu.h"
#include "train/step/memory.h"

#define OK(x) assert_ok((x), #x, __LINE__)

static void assert_ok(enum status st, const char *what, int line)
{
    if (st != ST_OK)
        print_error("line %d: %s: %s: %s\n", line, what, status_name(st), status_message());
    assert_int_equal(st, ST_OK);
}

static struct dev *open_dev(int threads_n, int level)
{
    struct dev *dev;
    OK(dev_cpu_open(threads_n, level, &dev));
    return dev;
}

enum { VOCAB = 37 };
static const struct model_dims *arch; /* NULL: a tiny GPT-2 */

static struct model_dims dims_of(enum model_task task, int64_t t)
{
    const struct model_dims tiny = {
        .name = "tiny", .layers = 2, .heads = 2, .embed = 24, .vocab = VOCAB};
    struct model_dims dims = arch ? *arch : tiny;
    dims.task = task;
    dims.context = t + 3;
    OK(model_check(&dims));
    return dims;
}

static struct step_config config_of(struct dev *dev, enum model_task task, int64_t samples,
                                    int64_t t)
{
    return (struct step_config){.dev = dev,
                                .batch_samples = samples,
                                .global_samples = samples,
                                .seq_tokens = t,
                                .seed = 3,
                                .dims = dims_of(task, t),
                                .optim = {.kind = OPTIM_KIND_ADAMW,
                                          .beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .eps = 1e-8,
                                          .weight_decay = 0.1,
                                          .grad_clip = 1}};
}

static struct step *open_step(const struct step_config *config)
{
    struct step *step;
    OK(step_open(config, &step));
    return step;
}

/* Random tokens; one label in five is ignored; QA hides a third of the keys, all keys of sample
 * 1. */
static struct batch batch_of(const struct step_config *c)
{
    struct batch b;
    int64_t n = c->global_samples * c->seq_tokens;
    OK(batch_init(&b, c->dims.task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA,
                  c->global_samples, c->seq_tokens));
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i;
        b.host.tokens[i] =
            (int32_t)rand_below(5, RAND_STREAM(TEST, 0), at, (uint64_t)c->dims.vocab);
        if (b.host.targets)
            b.host.targets[i] =
                rand_below(5, RAND_STREAM(TEST, 1), at, 5)
                    ? (int32_t)rand_below(5, RAND_STREAM(TEST, 2), at, (uint64_t)c->dims.vocab)
                    : -1;
        if (b.host.mask)
            b.host.mask[i] =
                i / c->seq_tokens != 1 && rand_below(5, RAND_STREAM(TEST, 3), at, 3) != 0;
    }
    for (int64_t s = 0; b.host.starts && s < c->global_samples; s++) {
        b.host.starts[s] = s == 2 ? (int32_t)c->seq_tokens
                                  : (int32_t)rand_below(5, RAND_STREAM(TEST, 4), (uint64_t)s,
                                                        (uint64_t)c->seq_tokens);
        b.host.ends[s] =
            (int32_t)rand_below(5, RAND_STREAM(TEST, 5), (uint64_t)s, (uint64_t)c->seq_tokens);
    }
    return b;
}

struct outcome {
    double loss, norm;
    float *grads, *params;
    int64_t elems;
};

/* What a few updates come to. */
static struct outcome run(const struct step_config *config, int steps)
{
    struct step *step = open_step(config);
    struct batch batch = batch_of(config);
    struct step_result r;
    for (int i = 0; i < steps; i++)
        OK(step_run_batch(step, &batch, i, i * config->global_samples, 1e-3, false, &r));
    struct outcome out = {
        .loss = r.loss, .norm = r.grad_norm, .elems = step_own_table(step)->total_elems};
    size_t bytes = (size_t)out.elems * sizeof(float);
    out.grads = memcpy(malloc(bytes), step_grads(step).data, bytes);
    out.params = memcpy(malloc(bytes), step_array(step, 0), bytes);
    batch_free(&batch);
    step_close(step);
    return out;
}

static void outcome_free(struct outcome *o)
{
    free(o->grads);
    free(o->params);
}

static void assert_same(struct outcome *a, struct outcome *b)
{
    assert_memory_equal(&a->loss, &b->loss, sizeof a->loss);
    assert_memory_equal(&a->norm, &b->norm, sizeof a->norm);
    assert_memory_equal(a->grads, b->grads, (size_t)a->elems * sizeof(float));
    assert_memory_equal(a->params, b->params, (size_t)a->elems * sizeof(float));
}

/* Padding is defined and zero, in gradients and parameters. */
static void assert_padding(const struct step *step, const float *values)
{
    const struct param_table *t = step_own_table(step);
    for (int i = 0; i < t->params_n; i++) {
        int64_t end = i + 1 < t->params_n ? t->param[i + 1].offset : t->total_elems;
        for (int64_t j = t->param[i].offset + t->param[i].elems; j < end; j++)
            assert_float_equal(values[j], 0, 0);
    }
}

/* ---- the gradient against differences ---- */

static double loss_at(struct step *step, const struct batch *batch)
{
    struct step_result r;
    OK(step_run_batch(step, batch, 0, 0, 0, false, &r)); /* lr 0: nothing moves */
    return r.loss;
}

/* Central differences along a random direction in each tensor, in a model whose weights are large
 * enough to matter. */
static void differences(enum model_task task)
{
    struct dev *dev = open_dev(1, CPU_ISA_PLAIN);
    struct step_config config = config_of(dev, task, 3, 7);
    config.optim.kind = OPTIM_KIND_SGD;
    config.optim.grad_clip = 0;
    struct step *step = open_step(&config);
    struct batch batch = batch_of(&config);
    const struct param_table *t = step_own_table(step);
    float *p = step_array(step, 0), *g = malloc((size_t)t->total_elems * sizeof *g),
          *u = malloc((size_t)t->total_elems * sizeof *u);
    for (int i = 0; i < t->params_n; i++)
        for (int64_t j = 0; j < t->param[i].elems; j++)
            p[t->param[i].offset + j] +=
                0.25f *
                (float)rand_normal(1, RAND_STREAM(TEST, 6), (uint64_t)(t->param[i].offset + j));
    loss_at(step, &batch);
    memcpy(g, step_grads(step).data, (size_t)t->total_elems * sizeof *g);
    assert_padding(step, g);
    for (int i = 0; i < t->params_n; i++) {
        int64_t n = t->param[i].elems;
        float *w = p + t->param[i].offset, *dw = g + t->param[i].offset,
              *kept = malloc((size_t)n * sizeof *kept);
        memcpy(kept, w, (size_t)n * sizeof *kept);
        double slope = 0, length = 0, h = 4e-3;
        for (int64_t j = 0; j < n; j++) {
            u[j] = (float)rand_normal(2, RAND_STREAM(TEST, i), (uint64_t)j);
            slope += (double)u[j] * dw[j];
            length += (double)dw[j] * dw[j];
        }
        double loss[2];
        for (int side = 0; side < 2; side++) {
            for (int64_t j = 0; j < n; j++)
                w[j] = kept[j] + (float)(side ? -h : h) * u[j];
            loss[side] = loss_at(step, &batch);
        }
        memcpy(w, kept, (size_t)n * sizeof *kept);
        free(kept);
        double difference = (loss[0] - loss[1]) / (2 * h),
               limit = 0.01 * fabs(slope) + 0.01 * sqrt(length) + 2e-4;
        if (!(fabs(difference - slope) <= limit))
            print_error("%s: difference %g, gradient %g, limit %g\n", t->param[i].name, difference,
                        slope, limit);
        assert_true(fabs(difference - slope) <= limit);
    }
    free(g);
    free(u);
    batch_free(&batch);
    step_close(step);
    dev_close(dev);
}

TEST(test_differences_lm) { (void)state, differences(MODEL_TASK_LM); }
TEST(test_differences_qa) { (void)state, differences(MODEL_TASK_QA); }

/* ---- the same result in every way ---- */

static void recompute(int level, enum model_task task)
{
    struct dev *dev = open_dev(2, level);
    struct step_config config = config_of(dev, task, 2, 50);
    config.dropout = 0.1f;
    struct outcome none = run(&config, 2);
    for (int64_t i = 1; i <= MODEL_RECOMPUTE_BLOCK * config.dims.layers; i++) {
        config.recompute = model_recompute_nth(config.dims.layers, i);
        struct outcome same = run(&config, 2);
        assert_same(&none, &same);
        outcome_free(&same);
    }
    outcome_free(&none);
    dev_close(dev);
}

TEST(test_recompute)
{
    recompute(CPU_ISA_PLAIN, MODEL_TASK_LM);
    recompute(CPU_ISA_N, MODEL_TASK_LM);
    recompute(CPU_ISA_N, MODEL_TASK_QA);
}

static void threads(void)
{
    struct outcome first;
    for (int threads_n = 1; threads_n <= 3; threads_n++) {
        struct dev *dev = open_dev(threads_n, CPU_ISA_N);
        struct step_config config = config_of(dev, MODEL_TASK_LM, 3, 100);
        config.dropout = 0.1f;
        struct outcome o = run(&config, 3);
        if (threads_n == 1) {
            first = o;
        } else {
            assert_same(&first, &o);
            outcome_free(&o);
        }
        dev_close(dev);
    }
    outcome_free(&first);
}

TEST(test_threads) { (void)state, threads(); }

static double distance(const float *a, const float *b, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(diff / norm);
}

/* Four samples at once and one by one; 600 rows also make the vocabulary product run in two
 * chunks. */
static void accumulation(enum model_task task)
{
    struct dev *dev = open_dev(2, CPU_ISA_N);
    struct step_config config = config_of(dev, task, 4, 150);
    config.dropout = 0.1f;
    struct outcome whole = run(&config, 1);
    config.batch_samples = 1;
    struct outcome accumulated = run(&config, 1);
    assert_true(fabs(whole.loss / accumulated.loss - 1) < 2e-6);
    assert_true(fabs(whole.norm / accumulated.norm - 1) < 2e-6);
    double d = distance(whole.grads, accumulated.grads, whole.elems);
    print_message("# accumulation %s task %d: gradients differ by %.1e\n", config.dims.name,
                  (int)task, d);
    assert_true(d < 2e-6);
    outcome_free(&whole);
    outcome_free(&accumulated);
    dev_close(dev);
}

TEST(test_accumulation)
{
    accumulation(MODEL_TASK_LM);
    accumulation(MODEL_TASK_QA);
}

/* The other architectures, each in all of these ways. */
TEST(test_architectures)
{
    for (int i = 0; i < ARCHITECTURES_N; i++) {
        arch = &architectures[i];
        print_message("# %s\n", arch->name);
        differences(MODEL_TASK_LM);
        recompute(CPU_ISA_PLAIN, MODEL_TASK_LM);
        recompute(CPU_ISA_N, MODEL_TASK_LM);
        threads();
        accumulation(MODEL_TASK_LM);
    }
    arch = NULL;
}

TEST(test_dropout)
{
    struct dev *dev = open_dev(2, CPU_ISA_N);
    struct step_config config = config_of(dev, MODEL_TASK_LM, 4, 40);
    struct batch batch = batch_of(&config);
    struct step *without = open_step(&config);
    config.dropout = 0.2f;
    struct step *with = open_step(&config);
    struct step_result r, first;
    double plain = loss_at(without, &batch), sum = 0;
    OK(step_run_batch(with, &batch, 0, 0, 0, false, &first));
    for (int i = 0; i < 40; i++) {
        OK(step_run_batch(with, &batch, i, 0, 0, false, &r));
        sum += r.loss;
        /* a function of the step's number */
        assert_true(i == 0 ? r.loss == first.loss : r.loss != first.loss);
    }
    assert_true(first.loss != plain);
    /* kept elements are scaled: about the same loss at the start */
    assert_float_equal(sum / 40 / plain, 1, 0.01);
    step_close(with);
    step_close(without);
    batch_free(&batch);
    dev_close(dev);
}

/* ---- learning, refusing, leaving no trace ---- */

TEST(test_overfit_qa)
{
    struct dev *dev = open_dev(2, CPU_ISA_N);
    struct step_config config = config_of(dev, MODEL_TASK_QA, 32, 24);
    config.dims.embed = 64;
    config.dims.heads = 4;
    struct step *step = open_step(&config);
    struct batch batch = batch_of(&config);
    struct step_result r;
    double first = 0;
    for (int i = 0; i < 150; i++) {
        OK(step_run_batch(step, &batch, i, 0, 3e-3, false, &r));
        first = i == 0 ? r.loss : first;
    }
    print_message("# question answering on 32 examples: loss %.3f to %.4f in 150 updates\n", first,
                  r.loss);
    assert_true(r.loss < 0.05);
    assert_padding(step, step_array(step, 0));
    step_close(step);
    batch_free(&batch);
    dev_close(dev);
}

static struct feed *open_feed(const struct step_config *config)
{
    struct feed *feed;
    struct feed_config fc = {.task = FEED_TASK_LM,
                             .data = FEED_SYNTHETIC,
                             .seq_tokens = config->seq_tokens,
                             .global_samples = config->global_samples,
                             .vocab = config->dims.vocab,
                             .seed = 1};
    OK(feed_open(&fc, &feed));
    return feed;
}

/* accuracy_of — the share of targets of the last step's samples that are the largest of the logits
 * that step_logits computes one by one. */
static double accuracy_of(struct step *step)
{
    const struct batch *b = step_batch(step);
    float logits[VOCAB];
    const int64_t t = b->seq_tokens;
    int64_t hits = 0;
    for (int64_t i = 0; i < b->samples * t; i++) {
        int32_t best = 0;
        OK(step_logits(step, b->host.tokens + i / t * t, i % t + 1, logits));
        for (int32_t k = 1; k < VOCAB; k++)
            best = logits[k] > logits[best] ? k : best;
        hits += best == b->host.targets[i];
    }
    return (double)hits / (double)(b->samples * t);
}

static bool stop_now(void *arg) { return arg != NULL; }

TEST(test_eval)
{
    struct dev *dev = open_dev(2, CPU_ISA_N);
    struct step_config config = config_of(dev, MODEL_TASK_LM, 3, 16);
    struct feed *feed = open_feed(&config);
    struct step *a = open_step(&config), *b = open_step(&config);
    struct step_result ra, rb;
    struct step_evaluation whole, cut;
    double accuracy = 0;
    for (int i = 0; i < 3; i++) {
        OK(step_eval(b, feed, 3, stop_now, NULL, &whole));
        OK(step_eval(b, feed, 2, NULL, NULL, &cut)); /* fewer than a batch */
        assert_int_equal(step_eval(b, feed, 2, stop_now, b, &cut), ST_RETRY);
        OK(step_run(a, feed, i, 0, 1e-2, false, &ra));
        OK(step_run(b, feed, i, 0, 1e-2, false, &rb));
        assert_int_equal(whole.targets, ra.targets);
        if (i > 0)
            assert_float_equal(whole.accuracy, accuracy, 0);
        /* the synthetic batch is always the same one */
        assert_float_equal(whole.loss, ra.loss, 1e-12);
        assert_true(ra.loss == rb.loss && ra.grad_norm == rb.grad_norm);
        accuracy = accuracy_of(a);
    }
    assert_true(accuracy > 0 && accuracy < 1);
    size_t bytes = (size_t)step_own_table(a)->total_elems * sizeof(float);
    for (int array = 0; array < step_arrays(a); array++)
        assert_memory_equal(step_array(a, array), step_array(b, array), bytes);
    assert_int_equal(step_arrays(a), 3);
    step_close(a);
    step_close(b);
    feed_close(feed);
    dev_close(dev);
}

TEST(test_not_finite)
{
    struct dev *dev = open_dev(2, CPU_ISA_N);
    struct step_config config = config_of(dev, MODEL_TASK_LM, 2, 16);
    struct batch batch = batch_of(&config);
    struct step *a = open_step(&config), *b = open_step(&config);
    struct step_result ra, rb = {.loss = -1};
    assert_int_equal(step_run_batch(b, &batch, 0, 0, 1e-2, true, &rb), ST_NOT_FINITE);
    assert_non_null(strstr(status_message(), "step 1"));
    assert_float_equal(rb.loss, -1, 0);
    OK(step_run_batch(a, &batch, 0, 0, 1e-2, false, &ra));
    OK(step_run_batch(b, &batch, 0, 0, 1e-2, false, &rb)); /* no trace of inject_nan is left */
    assert_true(ra.loss == rb.loss && ra.grad_norm == rb.grad_norm);
    size_t bytes = (size_t)step_own_table(a)->total_elems * sizeof(float);
    for (int array = 0; array < 3; array++)
        assert_memory_equal(step_array(a, array), step_array(b, array), bytes);
    batch.host.tokens[3] = 37;
    assert_int_equal(step_run_batch(a, &batch, 1, 0, 1e-2, false, &ra), ST_BAD_DATA);
    step_close(a);
    step_close(b);
    batch_free(&batch);
    dev_close(dev);
}

TEST(test_nothing_counts)
{
    struct dev *dev = open_dev(2, CPU_ISA_N);
    for (int task = MODEL_TASK_LM; task <= MODEL_TASK_QA; task++) {
        struct step_config config = config_of(dev, (enum model_task)task, 2, 16);
        struct batch batch = batch_of(&config);
        struct step *step = open_step(&config);
        struct step_result r;
        for (int i = 0; i < 32 && task == MODEL_TASK_LM; i++)
            batch.host.targets[i] = -1;
        for (int i = 0; i < 2 && task == MODEL_TASK_QA; i++)
            batch.host.starts[i] = batch.host.ends[i] = 16 + i;
        OK(step_run_batch(step, &batch, 0, 0, 1e-2, false, &r));
        assert_float_equal(r.loss, 0, 0);
        assert_float_equal(r.grad_norm, 0, 0);
        step_close(step);
        batch_free(&batch);
    }
    dev_close(dev);
}

/* ---- answers ---- */

static double log_sum_exp(const float *x, int64_t n, int64_t stride)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i * stride]);
    return log(sum);
}

/* The logits after n tokens are those that the loss there is computed from; an evaluation's have
 * the same bits. */
TEST(test_logits)
{
    struct dev *dev = open_dev(2, CPU_ISA_N);
    struct step_config config = config_of(dev, MODEL_TASK_LM, 1, 16), eval_config = config;
    eval_config.is_eval = true;
    struct batch batch = batch_of(&config);
    struct step *step = open_step(&config), *eval = open_step(&eval_config);
    float logits[37], same[37];
    for (int64_t n = 1; n <= 16; n += 5) {
        for (int64_t i = 0; i < 16; i++)
            batch.host.targets[i] = i == n - 1 ? 5 : -1;
        OK(step_logits(step, batch.host.tokens, n, logits));
        assert_float_equal(loss_at(step, &batch), log_sum_exp(logits, 37, 1) - logits[5], 1e-5);
        OK(step_logits(eval, batch.host.tokens, n, same));
        assert_memory_equal(logits, same, sizeof logits);
    }
    assert_true(3 * step_memory_bytes(eval) < step_memory_bytes(step));
    assert_int_equal(step_arrays(eval), 1);
    batch_free(&batch);
    step_close(step);
    step_close(eval);
    dev_close(dev);
}

TEST(test_spans)
{
    struct dev *dev = open_dev(2, CPU_ISA_N);
    struct step_config config = config_of(dev, MODEL_TASK_QA, 4, 16), eval_config = config;
    eval_config.is_eval = true;
    struct batch batch = batch_of(&config);
    struct step *step = open_step(&config), *eval = open_step(&eval_config);
    float logits[4][16][2], same[4][16][2];
    double loss[2] = {0, 0};
    int counted[2] = {0, 0};
    OK(step_spans(step, &batch, logits[0][0]));
    for (int sample = 0; sample < 4; sample++)
        for (int side = 0; side < 2; side++) {
            int label = side == 0 ? batch.host.starts[sample] : batch.host.ends[sample];
            if (label >= 16)
                continue;
            loss[side] +=
                log_sum_exp(&logits[sample][0][side], 16, 2) - logits[sample][label][side];
            counted[side]++;
        }
    assert_float_equal(loss_at(step, &batch), loss[0] / counted[0] / 2 + loss[1] / counted[1] / 2,
                       1e-5);
    OK(step_spans(eval, &batch, same[0][0]));
    assert_memory_equal(logits, same, sizeof logits);
    batch.samples = 1; /* the last batch of an evaluation is not full */
    OK(step_spans(eval, &batch, same[0][0]));
    for (int i = 0; i < 32; i++)
        assert_float_equal(same[0][i / 2][i % 2], logits[0][i / 2][i % 2], 1e-5);
    batch_free(&batch);
    step_close(step);
    step_close(eval);
    dev_close(dev);
}

/* Evaluations between updates change nothing. */
TEST(test_looking)
{
    struct dev *dev = open_dev(2, CPU_ISA_N);
    struct step_config config = config_of(dev, MODEL_TASK_LM, 2, 16);
    config.dropout = 0.2f;
    struct outcome calm = run(&config, 3);
    struct step *step = open_step(&config);
    struct batch batch = batch_of(&config);
    struct step_result r;
    float logits[37];
    for (int i = 0; i < 3; i++) {
        OK(step_logits(step, batch.host.tokens, 7 + i, logits));
        OK(step_run_batch(step, &batch, i, i * 2, 1e-3, false, &r));
        OK(step_logits(step, batch.host.tokens, 16, logits));
    }
    assert_memory_equal(&r.loss, &calm.loss, sizeof r.loss);
    assert_memory_equal(step_array(step, 0), calm.params, (size_t)calm.elems * sizeof(float));
    outcome_free(&calm);
    batch_free(&batch);
    step_close(step);
    dev_close(dev);
}

static void count_beat(void *arg) { ++*(int *)arg; }

TEST(test_open)
{
    int beats = 0;
    struct dev *dev = open_dev(1, CPU_ISA_N);
    struct step_config config = config_of(dev, MODEL_TASK_LM, 2, 16);
    config.heartbeat = count_beat;
    config.heartbeat_arg = &beats;
    struct step *step = open_step(&config), *none;
    assert_true(beats > 0);
    assert_true(step_memory_bytes(step) > 16 * step_own_table(step)->parameters);
    assert_float_equal(step_flops(step, 2), 32 * model_flops_per_token(&config.dims, 16), 0);
    step_close(step);
    step_close(NULL);
    config.seq_tokens = config.dims.context + 1;
    assert_int_equal(step_open(&config, &none), ST_BAD_SETTING);
    config.seq_tokens = 4;
    config.dims.heads = 5;
    assert_int_equal(step_open(&config, &none), ST_BAD_SETTING);
    config.dims.heads = 2;
    config.batch_samples = config.global_samples = (int64_t)1 << 58;
    assert_int_equal(step_open(&config, &none), ST_BAD_SETTING);
    dev_close(dev);
}

HARNESS_RUN_ALL()

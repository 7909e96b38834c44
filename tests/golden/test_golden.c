/* test_golden — are the models those of Hugging Face? Logits and ten updates of a small model of
 * each architecture, against PyTorch in float64 (golden.h), on every level of kernels this
 * processor has; with GOLDEN_DEVICE=cuda or hip on the first GPU instead, within 1e-4. */
#include "golden.h"

#include "dev/cuda/cuda.h"
#include "kernels/cpu.h"

/* The worst of what was seen, to be printed: how far below the limits we are. */
struct worst {
    double logits, loss, norm, grad, weight;
};

static double nmse(const float *got, const float *want, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    return norm > 0 ? diff / norm : diff;
}

/* How much further from the truth than a CPU a result may lie; its square, for sums of squares. */
static double slack = 1;

static void below(double *worst, double value, double limit, const char *prefix, const char *name)
{
    if (!(value <= limit)) {
        print_error("%s%s: %g, limit %g\n", prefix, name, value, limit);
        fail();
    }
    *worst = value > *worst ? value : *worst;
}

/* What is zero in exact arithmetic: a softmax does not see one number added to all its scores, so
 * the bias of a key without a position has no gradient; nor has that of all logits of a softmax. */
static bool is_zero(const struct golden *g, const struct param *p, int64_t i)
{
    int64_t d = g->dims.embed / g->dims.heads;
    if (text_ends(p->name, "c_attn.bias"))
        return !g->dims.features.has_qk_norm && i >= g->dims.embed && i < 2 * g->dims.embed;
    if (text_ends(p->name, "query_key_value.bias")) /* for each head [q | k | v] */
        return i / d % 3 == 1 && (double)(i % d) >= (double)d * g->dims.features.rope.fraction;
    return g->task == FEED_TASK_QA &&
           (strcmp(p->name, "ln_f.bias") == 0 || strcmp(p->name, "qa_outputs.bias") == 0);
}

/* The recorded values of a tensor, to be freed. */
static float *recorded(const struct golden *g, const char *prefix, const char *name)
{
    const struct safetensors_entry *e =
        safetensors_find(&g->after.st, golden_name(g, prefix, name).text);
    float *out;
    assert_non_null(e);
    out = malloc((size_t)e->elems * sizeof *out);
    assert_non_null(out);
    safetensors_to_f32(e, 0, e->elems, out);
    return out;
}

/* noise_below — a first gradient smaller than this is rounding noise of fp32: 1e-6 of the root
 * mean square of its tensor. One element in a million is so by chance, and one of qwen2 is. */
static double noise_below(const float *grad, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)grad[i] * grad[i];
    return 1e-6 * sqrt(sum / (double)n);
}

/* compare_zeros — checks the zero part of a tensor more loosely, since Adam divides its noise, and
 * clears it on both sides. Beside what is_zero names, the elements whose first gradient is noise;
 * a gradient of exactly 0, as of a token that is not in the batch, has none. */
static void compare_zeros(const struct golden *g, const struct param *p, float *have, float *want,
                          bool is_grad, const char *name)
{
    double diff = 0, norm = 0, worst = 0;
    float *grad = recorded(g, "grad.", p->name);
    double noise = noise_below(grad, p->elems);
    for (int64_t i = 0; i < p->elems; i++) {
        if (!is_zero(g, p, i) && (grad[i] == 0 || fabs(grad[i]) >= noise))
            continue;
        if (is_grad)
            below(&worst, fabs(have[i]), 1e-6 * slack, "zero part of ", name);
        diff += ((double)have[i] - want[i]) * ((double)have[i] - want[i]);
        norm += (double)want[i] * want[i];
        have[i] = want[i] = 0;
    }
    free(grad);
    if (!is_grad && norm > 0)
        below(&worst, diff / norm, 1e-5 * slack, "zero part of ", name);
}

/* limit_of — pairs of a key that rotate slowly hardly see positions, so their bias has almost no
 * gradient, and Adam divides its noise as in the zero part. */
static double limit_of(const struct param *p, bool is_grad)
{
    return !is_grad && text_ends(p->name, "k_proj.bias") ? 1e-9 : 1e-10;
}

static void compare(const struct golden *g, const struct param *p, const float *got,
                    const char *prefix, double *worst)
{
    bool is_grad = strcmp(prefix, "grad.") == 0;
    const struct path path = golden_name(g, prefix, p->name);
    const char *name = path.text;
    float *want = recorded(g, prefix, p->name), *have = malloc((size_t)p->elems * sizeof *have);
    assert_non_null(have);
    memcpy(have, got, (size_t)p->elems * sizeof *have);
    compare_zeros(g, p, have, want, is_grad, name);
    below(worst, nmse(have, want, p->elems), limit_of(p, is_grad) * slack, "", name);
    free(want);
    free(have);
}

/* bfloat16 keeps 8 bits: the iteration's five rounds make 3 % of its errors. */
#define TORCH_APART 0.05

/* Of weights that torch.optim.Muon made as it is, with its iteration in bfloat16: how far ours, in
 * float32, lie from them, as a part of the way from the first weights. */
static void compare_torch(const struct golden *g, const struct param_table *t, const float *from,
                          double *worst)
{
    for (int i = 0; i < t->params_n; i++) {
        const struct param *p = &t->param[i];
        const struct path path = golden_name(g, "", p->name);
        double apart = 0, way = 0;
        if (!p->is_hidden)
            continue;
        float *want = recorded(g, "torch.", p->name),
              *first = malloc((size_t)p->elems * sizeof *first);
        assert_non_null(first);
        safetensors_to_f32(safetensors_find(&g->model.st, path.text), 0, p->elems, first);
        for (int64_t j = 0; j < p->elems; j++) {
            apart += pow((double)from[p->offset + j] - want[j], 2);
            way += pow((double)first[j] - want[j], 2);
        }
        below(worst, sqrt(apart / way), TORCH_APART, "torch.", p->name);
        free(want);
        free(first);
    }
}

/* is_overwritten — Muon's update lies where the gradient was. */
static bool is_overwritten(const struct golden *g, const struct param *p, const char *prefix)
{
    return golden_optim(g) == OPTIM_KIND_MUON && p->is_hidden && strcmp(prefix, "grad.") == 0;
}

static void compare_all(const struct golden *g, struct step *step, const float *from,
                        const char *prefix, double *worst)
{
    const struct param_table *t = step_whole_table(step);
    double torch = 0;
    if (golden_optim(g) == OPTIM_KIND_MUON && strcmp(prefix, "after.") == 0)
        compare_torch(g, t, from, &torch);
    if (torch > 0)
        print_message("# torch.optim.Muon in bfloat16 is %.1e of the way apart\n", torch);
    for (int i = 0; i < t->params_n; i++)
        if (!is_overwritten(g, &t->param[i], prefix))
            compare(g, &t->param[i], from + t->param[i].offset, prefix, worst);
}

static void compare_here(const struct golden *g, struct step *step, struct dev *dev, bool is_grads,
                         double *worst)
{
    float *here = read_host(step, dev, is_grads);
    compare_all(g, step, here, is_grads ? "grad." : "after.", worst);
    free(here);
}

/* The logits of the first sample of step 1, at some of its positions. */
static void compare_logits(const struct golden *g, struct step *step, double *worst)
{
    const struct safetensors_entry *e = safetensors_find(&g->after.st, "logits");
    struct batch batch;
    int64_t v = g->dims.vocab;
    float *want = malloc((size_t)(g->seq * v) * sizeof *want),
          *got = malloc((size_t)v * sizeof *got);
    assert_non_null(e);
    assert_int_equal(e->elems, g->batch * g->seq * v);
    OK(batch_init(&batch, g->task, g->batch, g->seq));
    golden_batch(g, 0, &batch);
    safetensors_to_f32(e, 0, g->seq * v, want);
    for (int64_t n = 1; n <= g->seq; n += 13) {
        OK(step_logits(step, batch.host.tokens, n, got));
        below(worst, nmse(got, want + (n - 1) * v, v), 1e-10 * slack, "", "logits");
    }
    batch_free(&batch);
    free(want);
    free(got);
}

static void train(const struct golden *g, struct dev *dev, struct worst *worst)
{
    struct step_config config = golden_config(g, dev);
    struct lr_schedule_config rate = golden_rate(g);
    struct step *step;
    struct batch batch;
    OK(step_open(&config, &step));
    OK(batch_init(&batch, g->task, g->batch, g->seq));
    golden_load(g, step);
    if (g->task == FEED_TASK_LM)
        compare_logits(g, step, &worst->logits);
    for (int64_t i = 0; i < rate.steps; i++) {
        const cJSON *want = cJSON_GetArrayItem(cJSON_GetObjectItem(g->expected, "steps"), (int)i);
        struct step_result r;
        double lr_worst = 0;
        below(&lr_worst, fabs(lr_schedule_at(&rate, i) / number(want, "lr") - 1), 1e-12, "", "lr");
        golden_batch(g, i, &batch);
        OK(step_run_batch(step, &batch, i, i * g->batch, lr_schedule_at(&rate, i), false, &r));
        below(&worst->loss, fabs(r.loss / number(want, "loss") - 1), 1e-6 * slack, "", "loss");
        below(&worst->norm, fabs(r.grad_norm / number(want, "grad_norm") - 1), 1e-6 * slack, "",
              "grad_norm");
        if (i == 0)
            compare_here(g, step, dev, true, &worst->grad);
    }
    compare_here(g, step, dev, false, &worst->weight);
    batch_free(&batch);
    step_close(step);
}

static void run_on(const char *dir, int level, struct dev *dev)
{
    struct golden g;
    struct worst worst = {0};
    golden_open(dir, &g);
    train(&g, dev, &worst);
    golden_close(&g);
    dev_close(dev);
    print_message("# %s level %d: worst relative loss %.1e, norm %.1e; worst nmse logits %.1e, "
                  "gradient %.1e, weight %.1e\n",
                  dir, level, worst.loss, worst.norm, worst.logits, worst.grad, worst.weight);
}

static void run(const char *dir, int level)
{
    struct dev *dev;
    if (dev_cpu_open(2, level, &dev) != ST_OK)
        HARNESS_SKIP("%s", status_message());
    run_on(dir, level, dev);
}

static void run_gpu(const char *dir)
{
    struct dev *dev;
    slack = 100;
    OK(dev_cuda_open(0, false, &dev));
    run_on(dir, -1, dev);
}

#define ON_CPU(dir)                                                                         \
    static void test_##dir##_plain(void **state) { (void)state, run(#dir, CPU_ISA_PLAIN); } \
    static void test_##dir##_v2(void **state) { (void)state, run(#dir, CPU_ISA_V2); }       \
    static void test_##dir##_v3(void **state) { (void)state, run(#dir, CPU_ISA_V3); }       \
    static void test_##dir##_v4(void **state) { (void)state, run(#dir, CPU_ISA_V4); }       \
    static void test_##dir##_amx(void **state) { (void)state, run(#dir, CPU_ISA_AMX); }     \
    static void test_##dir##_neon(void **state) { (void)state, run(#dir, CPU_ISA_NEON); }
#define CPU_TESTS(dir)                                                        \
    cmocka_unit_test(test_##dir##_plain), cmocka_unit_test(test_##dir##_v2),  \
        cmocka_unit_test(test_##dir##_v3), cmocka_unit_test(test_##dir##_v4), \
        cmocka_unit_test(test_##dir##_amx), cmocka_unit_test(test_##dir##_neon)
#define ON_GPU(dir) \
    static void test_##dir##_gpu(void **state) { (void)state, run_gpu(#dir); }
#define GPU_TEST(dir) cmocka_unit_test(test_##dir##_gpu)
ON_CPU(lm)
ON_CPU(qa)
ON_CPU(llama)
ON_CPU(llama3rope)
ON_CPU(neox)
ON_CPU(qwen2)
ON_CPU(qwen3)
ON_CPU(muon)
ON_CPU(modern)
ON_CPU(qknorm)
ON_GPU(lm)
ON_GPU(qa)
ON_GPU(llama3rope)
ON_GPU(neox)
ON_GPU(qwen3)

static const struct CMUnitTest tests[] = {
    CPU_TESTS(lm),    CPU_TESTS(qa),    CPU_TESTS(llama), CPU_TESTS(llama3rope), CPU_TESTS(neox),
    CPU_TESTS(qwen2), CPU_TESTS(qwen3), CPU_TESTS(muon),  CPU_TESTS(modern),     CPU_TESTS(qknorm)};

int main(void)
{
    /* GPUs' kernels refuse the other cases: the width of their heads is no multiple of 8. */
    static const struct CMUnitTest gpu_tests[] = {GPU_TEST(lm), GPU_TEST(qa), GPU_TEST(llama3rope),
                                                  GPU_TEST(neox), GPU_TEST(qwen3)};
    const char *device = getenv("GOLDEN_DEVICE");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    const bool is_hip = device && strcmp(device, "hip") == 0;
    if (is_hip && dev_cuda_choose(DEV_GPU_HIP) != ST_OK)
        return fprintf(stderr, "test_golden: %s\n", status_message()), 1;
    if (is_hip || (device && strcmp(device, "cuda") == 0))
        return cmocka_run_group_tests_name(__FILE__, gpu_tests, NULL, NULL);
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}

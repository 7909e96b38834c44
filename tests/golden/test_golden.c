/* test_golden — are we GPT-2? Ten updates of a small model, language and question answering,
 * against PyTorch in float64 (the files beside this one; expected.json holds what the runs were
 * made with), on every level of kernels this processor has; with GOLDEN_DEVICE=cuda on the first
 * GPU instead, within 1e-4. */
#include "golden.h"

#include "base/log.h"
#include "dev/dev_cuda.h"
#include "kernels/cpu.h"

/* The worst of what was seen, to be printed: how far below the limits we are. */
struct worst {
    double loss, norm, grad, weight;
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

/* What is zero in exact arithmetic: a softmax does not see one number added to all its scores. */
static void zero_part(const struct golden *g, const struct param *p, int64_t *first, int64_t *n)
{
    *first = *n = 0;
    if (text_ends(p->name, "c_attn.bias"))
        *first = *n = g->embed;
    if (g->task == FEED_TASK_QA &&
        (strcmp(p->name, "ln_f.bias") == 0 || strcmp(p->name, "qa_outputs.bias") == 0))
        *n = p->elems;
}

static void compare(const struct golden *g, const struct param *p, const float *got,
                    const char *prefix, double *worst)
{
    bool is_grad = strcmp(prefix, "grad.") == 0;
    char name[128];
    text_format(name, sizeof name, "%s%s%s", prefix,
                text_starts(p->name, "qa_") ? "" : "transformer.", p->name);
    const struct safetensors_entry *e = safetensors_find(&g->after.st, name);
    assert_non_null(e);
    float *want = malloc((size_t)e->elems * sizeof *want),
          *have = malloc((size_t)e->elems * sizeof *have);
    safetensors_to_f32(e, 0, e->elems, want);
    memcpy(have, got, (size_t)e->elems * sizeof *have);
    int64_t first, n;
    double zero = 0;
    zero_part(g, p, &first, &n);
    if (n && !is_grad)
        below(&zero, nmse(have + first, want + first, n), 1e-5 * slack, "zero part of ", name);
    for (int64_t i = first; i < first + n; i++) {
        if (is_grad)
            below(&zero, fabs(have[i]), 1e-6 * slack, "zero part of ", name);
        have[i] = want[i] = 0;
    }
    below(worst, nmse(have, want, e->elems), 1e-10 * slack, "", name);
    free(want);
    free(have);
}

static void compare_all(const struct golden *g, struct step *step, const float *from,
                        const char *prefix, double *worst)
{
    const struct param_table *t = step_table(step);
    for (int i = 0; i < t->params_n; i++)
        compare(g, &t->param[i], from + t->param[i].offset, prefix, worst);
}

/* Gradients or parameters, brought to the host from wherever they are. */
static void compare_here(const struct golden *g, struct step *step, struct dev *dev, bool is_grads,
                         double *worst)
{
    int64_t n = step_table(step)->total_elems;
    float *here = malloc((size_t)n * sizeof *here);
    struct stream *s;
    assert_non_null(here);
    OK(dev_stream_open(dev, &s));
    if (is_grads)
        OK(dev_copy(s, here, step_grads(step).data, (size_t)n * sizeof *here));
    else
        OK(step_read(step, 0, 0, n, here));
    OK(dev_sync(s));
    compare_all(g, step, here, is_grads ? "grad." : "after.", worst);
    dev_stream_close(s);
    free(here);
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
    print_message("# %s level %d: worst relative loss %.1e, norm %.1e; worst nmse gradient %.1e, "
                  "weight %.1e\n",
                  dir, level, worst.loss, worst.norm, worst.grad, worst.weight);
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
static void test_lm_gpu(void **state) { (void)state, run_gpu("lm"); }
static void test_qa_gpu(void **state) { (void)state, run_gpu("qa"); }

static void test_lm_plain(void **state) { (void)state, run("lm", CPU_ISA_PLAIN); }
static void test_lm_v2(void **state) { (void)state, run("lm", CPU_ISA_V2); }
static void test_lm_v3(void **state) { (void)state, run("lm", CPU_ISA_V3); }
static void test_lm_v4(void **state) { (void)state, run("lm", CPU_ISA_V4); }
static void test_lm_amx(void **state) { (void)state, run("lm", CPU_ISA_AMX); }
static void test_qa_plain(void **state) { (void)state, run("qa", CPU_ISA_PLAIN); }
static void test_qa_v2(void **state) { (void)state, run("qa", CPU_ISA_V2); }
static void test_qa_v3(void **state) { (void)state, run("qa", CPU_ISA_V3); }
static void test_qa_v4(void **state) { (void)state, run("qa", CPU_ISA_V4); }
static void test_qa_amx(void **state) { (void)state, run("qa", CPU_ISA_AMX); }

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lm_plain), cmocka_unit_test(test_lm_v2),    cmocka_unit_test(test_lm_v3),
    cmocka_unit_test(test_lm_v4),    cmocka_unit_test(test_qa_plain), cmocka_unit_test(test_qa_v2),
    cmocka_unit_test(test_qa_v3),    cmocka_unit_test(test_qa_v4),    cmocka_unit_test(test_lm_amx),
    cmocka_unit_test(test_qa_amx),
};

int main(void)
{
    static const struct CMUnitTest gpu_tests[] = {cmocka_unit_test(test_lm_gpu),
                                                  cmocka_unit_test(test_qa_gpu)};
    const char *device = getenv("GOLDEN_DEVICE");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    if (device && strcmp(device, "cuda") == 0)
        return cmocka_run_group_tests_name(__FILE__, gpu_tests, NULL, NULL);
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}

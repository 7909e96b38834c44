/* test_golden — are we GPT-2? Ten updates of a small model, language and question answering, against PyTorch in
 * float64 (the files beside this one; expected.json holds what the runs were made with), on every level of kernels
 * this processor has; with GOLDEN_DEVICE=cuda on the first GPU instead, within 1e-4. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "dev/dev_cuda.h"
#include "format/safetensors.h"
#include "harness.h"
#include "kernels/cpu.h"
#include "train/rate.h"
#include "train/step.h"

#define DIR "tests/golden/"
#define OK(x) assert_ok((x), #x, __LINE__)

static void assert_ok(enum status st, const char *what, int line)
{
    if (st != ST_OK)
        print_error("line %d: %s: %s: %s\n", line, what, status_name(st), status_message());
    assert_int_equal(st, ST_OK);
}

struct tensors {
    struct file_map map;
    struct safetensors st;
};

struct golden {
    enum feed_task task;
    cJSON *expected, *data; /* data: qa.json */
    const cJSON *hyper;
    struct file_map tokens;
    struct tensors model, after;
    int64_t embed, batch, seq, vocab;
};

/* The worst of what was seen, to be printed: how far below the limits we are. */
struct worst {
    double loss, norm, grad, weight;
};

static int64_t whole(const cJSON *object, const char *key)
{
    int64_t value;
    OK(json_get_i64(object, key, 0, INT32_MAX, &value));
    return value;
}

static double number(const cJSON *object, const char *key)
{
    double value;
    OK(json_get_f64(object, key, &value));
    return value;
}

static cJSON *read_json(const char *dir, const char *name)
{
    char path[256], *bytes;
    size_t n;
    cJSON *out;
    text_format(path, sizeof path, DIR "%s/%s", dir, name);
    OK(file_read(path, 1 << 20, &bytes, &n));
    OK(json_parse(bytes, n, path, &out));
    free(bytes);
    return out;
}

static void read_tensors(const char *dir, const char *name, struct tensors *out)
{
    char path[256];
    text_format(path, sizeof path, DIR "%s/%s", dir, name);
    OK(file_map_open(path, &out->map));
    OK(safetensors_parse(out->map.data, out->map.bytes, path, &out->st));
}

static void golden_open(const char *dir, struct golden *g)
{
    *g = (struct golden){.task = strcmp(dir, "qa") == 0 ? FEED_TASK_QA : FEED_TASK_LM};
    g->expected = read_json(dir, "expected.json");
    OK(json_get_object(g->expected, "hyper", &g->hyper));
    read_tensors(dir, "model.safetensors", &g->model);
    read_tensors(dir, "expected.safetensors", &g->after);
    if (g->task == FEED_TASK_QA)
        g->data = read_json(dir, "qa.json");
    else
        OK(file_map_open(DIR "lm/tokens.bin", &g->tokens));
    g->embed = whole(g->hyper, "embd");
    g->batch = whole(g->hyper, "batch");
    g->seq = whole(g->hyper, "seq");
    g->vocab = whole(g->hyper, "vocab");
}

static void golden_close(struct golden *g)
{
    cJSON_Delete(g->expected);
    cJSON_Delete(g->data);
    safetensors_free(&g->model.st);
    safetensors_free(&g->after.st);
    file_map_close(&g->model.map);
    file_map_close(&g->after.map);
    file_map_close(&g->tokens);
}

static bool says(const cJSON *object, const char *key, const char *value)
{
    const char *text;
    OK(json_get_string(object, key, &text));
    return strcmp(text, value) == 0;
}

static struct step_config config_of(const struct golden *g, struct dev *dev)
{
    const cJSON *h = g->hyper;
    return (struct step_config){.dev = dev,
                                .batch_samples = g->batch,
                                .global_samples = g->batch,
                                .seq_tokens = g->seq,
                                .is_loaded = true,
                                .dims = {.name = "golden",
                                         .task = g->task == FEED_TASK_LM ? MODEL_TASK_LM : MODEL_TASK_QA,
                                         .layers = whole(h, "layers"),
                                         .heads = whole(h, "heads"),
                                         .embed = g->embed,
                                         .context = whole(h, "context"),
                                         .vocab = g->vocab},
                                .optim = {.kind = says(h, "optimizer", "sgd") ? OPTIM_KIND_SGD : OPTIM_KIND_ADAMW,
                                          .beta1 = number(h, "beta1"),
                                          .beta2 = number(h, "beta2"),
                                          .eps = number(h, "eps"),
                                          .momentum = number(h, "momentum"),
                                          .weight_decay = number(h, "weight_decay"),
                                          .grad_clip = number(h, "clip")}};
}

static struct rate_config rate_of(const struct golden *g)
{
    return (struct rate_config){
        .schedule = says(g->hyper, "schedule", "cosine") ? RATE_SCHEDULE_COSINE : RATE_SCHEDULE_CONSTANT,
        .lr = number(g->hyper, "lr"),
        .lr_min = number(g->hyper, "min_lr"),
        .warmup_steps = says(g->hyper, "schedule", "constant") ? 0 : whole(g->hyper, "warmup"),
        .steps = whole(g->hyper, "steps")};
}

/* Update number step_i takes the next `batch` windows of the stream, or the next samples of qa.json. */
static void fill_batch(const struct golden *g, int64_t step_i, struct batch *out)
{
    int64_t first = step_i * g->batch, n = g->batch * g->seq;
    if (g->task == FEED_TASK_LM) {
        const uint8_t *ids = g->tokens.data + 1024 + 2 * first * g->seq;
        assert_true(g->tokens.bytes >= (size_t)(1024 + 2 * (first * g->seq + n + 1)));
        for (int64_t i = 0; i < n; i++) {
            out->host.tokens[i] = ids[2 * i] | ids[2 * i + 1] << 8;
            out->host.targets[i] = ids[2 * i + 2] | ids[2 * i + 3] << 8;
        }
        return;
    }
    for (int64_t s = 0; s < g->batch; s++) {
        int at = (int)(first + s);
        const cJSON *ids = cJSON_GetArrayItem(cJSON_GetObjectItem(g->data, "input_ids"), at);
        const cJSON *mask = cJSON_GetArrayItem(cJSON_GetObjectItem(g->data, "attention_mask"), at);
        for (int64_t t = 0; t < g->seq; t++) {
            out->host.tokens[s * g->seq + t] = cJSON_GetArrayItem(ids, (int)t)->valueint;
            out->host.mask[s * g->seq + t] = (uint8_t)cJSON_GetArrayItem(mask, (int)t)->valueint;
        }
        out->host.starts[s] = cJSON_GetArrayItem(cJSON_GetObjectItem(g->data, "start_positions"), at)->valueint;
        out->host.ends[s] = cJSON_GetArrayItem(cJSON_GetObjectItem(g->data, "end_positions"), at)->valueint;
    }
}

static void load(const struct golden *g, struct step *step)
{
    const struct param_table *t = step_table(step);
    for (int i = 0; i < t->rows_n; i++) {
        char name[128];
        text_format(name, sizeof name, "%s%s", text_starts(t->row[i].name, "qa_") ? "" : "transformer.",
                    t->row[i].name);
        const struct safetensors_entry *e = safetensors_find(&g->model.st, name);
        assert_non_null(e);
        assert_int_equal(e->elems, t->row[i].elems);
        float *values = malloc((size_t)e->elems * sizeof *values);
        safetensors_to_f32(e, 0, e->elems, values);
        OK(step_write(step, 0, t->row[i].offset, e->elems, values));
        free(values);
    }
}

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
    if (g->task == FEED_TASK_QA && (strcmp(p->name, "ln_f.bias") == 0 || strcmp(p->name, "qa_outputs.bias") == 0))
        *n = p->elems;
}

static void compare(const struct golden *g, const struct param *p, const float *got, const char *prefix,
                    double *worst)
{
    bool is_grad = strcmp(prefix, "grad.") == 0;
    char name[128];
    text_format(name, sizeof name, "%s%s%s", prefix, text_starts(p->name, "qa_") ? "" : "transformer.", p->name);
    const struct safetensors_entry *e = safetensors_find(&g->after.st, name);
    assert_non_null(e);
    float *want = malloc((size_t)e->elems * sizeof *want), *have = malloc((size_t)e->elems * sizeof *have);
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

static void compare_all(const struct golden *g, struct step *step, const float *from, const char *prefix,
                        double *worst)
{
    const struct param_table *t = step_table(step);
    for (int i = 0; i < t->rows_n; i++)
        compare(g, &t->row[i], from + t->row[i].offset, prefix, worst);
}

/* Gradients or parameters, brought to the host from wherever they are. */
static void compare_here(const struct golden *g, struct step *step, struct dev *dev, bool is_grads, double *worst)
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
    struct step_config config = config_of(g, dev);
    struct rate_config rate = rate_of(g);
    struct step *step;
    struct batch batch;
    OK(step_open(&config, &step));
    OK(batch_init(&batch, g->task, g->batch, g->seq));
    load(g, step);
    for (int64_t i = 0; i < rate.steps; i++) {
        const cJSON *want = cJSON_GetArrayItem(cJSON_GetObjectItem(g->expected, "steps"), (int)i);
        struct step_result r;
        double lr_worst = 0;
        below(&lr_worst, fabs(rate_at(&rate, i) / number(want, "lr") - 1), 1e-12, "", "lr");
        fill_batch(g, i, &batch);
        OK(step_run_batch(step, &batch, i, i * g->batch, rate_at(&rate, i), false, &r));
        below(&worst->loss, fabs(r.loss / number(want, "loss") - 1), 1e-6 * slack, "", "loss");
        below(&worst->norm, fabs(r.grad_norm / number(want, "grad_norm") - 1), 1e-6 * slack, "", "grad_norm");
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
    print_message("# %s level %d: worst relative loss %.1e, norm %.1e; worst nmse gradient %.1e, weight %.1e\n",
                  dir, level, worst.loss, worst.norm, worst.grad, worst.weight);
}

static void run(const char *dir, int level)
{
    struct dev *dev;
    if (dev_cpu_open(2, level, &dev) != ST_OK) {
        print_message("# skipped: %s\n",
                      status_message()); /* cmocka's skip() says "not ok", which prove counts as a failure */
        return;
    }
    run_on(dir, level, dev);
}

static void run_gpu(const char *dir)
{
    struct dev *dev;
    slack = 100;
    OK(dev_cuda_open(0, &dev));
    run_on(dir, -1, dev);
}
static void test_lm_gpu(void **state) { (void)state, run_gpu("lm"); }
static void test_qa_gpu(void **state) { (void)state, run_gpu("qa"); }

static void test_lm_plain(void **state) { (void)state, run("lm", CPU_LEVEL_PLAIN); }
static void test_lm_v2(void **state) { (void)state, run("lm", CPU_LEVEL_V2); }
static void test_lm_v3(void **state) { (void)state, run("lm", CPU_LEVEL_V3); }
static void test_lm_v4(void **state) { (void)state, run("lm", CPU_LEVEL_V4); }
static void test_lm_amx(void **state) { (void)state, run("lm", CPU_LEVEL_AMX); }
static void test_qa_plain(void **state) { (void)state, run("qa", CPU_LEVEL_PLAIN); }
static void test_qa_v2(void **state) { (void)state, run("qa", CPU_LEVEL_V2); }
static void test_qa_v3(void **state) { (void)state, run("qa", CPU_LEVEL_V3); }
static void test_qa_v4(void **state) { (void)state, run("qa", CPU_LEVEL_V4); }
static void test_qa_amx(void **state) { (void)state, run("qa", CPU_LEVEL_AMX); }

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lm_plain), cmocka_unit_test(test_lm_v2),    cmocka_unit_test(test_lm_v3),
    cmocka_unit_test(test_lm_v4),    cmocka_unit_test(test_qa_plain), cmocka_unit_test(test_qa_v2),
    cmocka_unit_test(test_qa_v3),    cmocka_unit_test(test_qa_v4),  cmocka_unit_test(test_lm_amx),
    cmocka_unit_test(test_qa_amx),
};

int main(void)
{
    static const struct CMUnitTest gpu_tests[] = {cmocka_unit_test(test_lm_gpu), cmocka_unit_test(test_qa_gpu)};
    const char *device = getenv("GOLDEN_DEVICE");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    if (device && strcmp(device, "cuda") == 0)
        return cmocka_run_group_tests_name(__FILE__, gpu_tests, NULL, NULL);
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}

/* test_lora — is an adapter the adapter of PEFT? Logits, losses, gradients and six updates of LoRA
 * on a small model of each architecture, with a loss mask, and the merged model, against PEFT in
 * float64 (lora_*), on every level of kernels this processor has; with GOLDEN_DEVICE=cuda on the
 * first GPU. */
#include "golden.h"

#include "dev/cuda/cuda.h"
#include "kernels/cpu.h"
#include "train/weights/adapter.h"
#include "train/weights/weights.h"

/* RMSNorm and rotary positions of transformers compute in float32. */
#define LIMIT 1e-5

struct run {
    char dir[64];
    cJSON *expected;
    struct tensors tensors;
    struct model_dims base; /* without adapter */
    struct adapter *adapter;
    int64_t batch, seq;
};

static void open_run(const char *dir, struct run *r)
{
    char path[256];
    text_copy(r->dir, sizeof r->dir, dir);
    r->expected = read_json(dir, "expected.json");
    read_tensors(dir, "expected.safetensors", &r->tensors);
    OK(load_dims_of_hf(path_in(dir, "base").text, MODEL_TASK_LM, &r->base));
    text_format(path, sizeof path, DIR "%s/adapter", dir);
    OK(adapter_open(path, &r->base, &r->adapter));
    r->batch = whole(r->expected, "batch");
    r->seq = whole(r->expected, "seq");
}

static void close_run(struct run *r)
{
    cJSON_Delete(r->expected);
    safetensors_free(&r->tensors.st);
    file_map_close(&r->tensors.map);
    adapter_close(r->adapter);
}

/* The bytes of int32 numbers are not aligned. */
static int32_t number_at(const struct safetensors_entry *e, int64_t i)
{
    int32_t value;
    memcpy(&value, e->data + (size_t)i * sizeof value, sizeof value);
    return value;
}

/* Returns the number of targets that count. */
static int64_t fill_batch(const struct run *r, int64_t step_i, struct batch *out)
{
    const struct safetensors_entry *ids = safetensors_find(&r->tensors.st, "input_ids"),
                                   *labels = safetensors_find(&r->tensors.st, "labels");
    int64_t counted = 0;
    assert_non_null(ids);
    assert_non_null(labels);
    for (int64_t i = 0; i < r->batch * r->seq; i++) {
        const int64_t at = step_i * r->batch * r->seq + i;
        const int32_t label = i % r->seq + 1 < r->seq ? number_at(labels, at + 1) : -100;
        out->host.tokens[i] = number_at(ids, at);
        out->host.targets[i] = label >= 0 ? label : -1;
        counted += label >= 0;
    }
    return counted;
}

static enum status put_frozen(void *arg, int64_t first, int64_t n, const float *values)
{
    return state_write(step_frozen_state(arg), 0, first, n, values);
}

static enum status put_trained(void *arg, int64_t first, int64_t n, const float *values)
{
    return state_write(step_state(arg), 0, first, n, values);
}

static void load(const struct run *r, struct step *step)
{
    const struct load_target base = {
        .table = step_frozen_table(step), .put = put_frozen, .arg = step};
    const struct load_target adapter = {
        .table = step_whole_table(step), .put = put_trained, .arg = step};
    OK(weights_load(path_in(r->dir, "base").text, &base));
    OK(load_params(&adapter, adapter_load_file(r->adapter)));
}

static double apart(const float *got, const float *want, int64_t n)
{
    double most = 0, scale = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)got[i] - want[i]));
        scale = fmax(scale, fabs((double)want[i]));
    }
    return most / (scale > 0 ? scale : 1);
}

static void below(double *worst, double value, double limit, const char *name)
{
    if (!(value <= limit)) {
        print_error("%s: %g, limit %g\n", name, value, limit);
        fail();
    }
    *worst = fmax(*worst, value);
}

/* Returns the recorded values of one of the adapter's tensors, to be freed. */
static float *recorded(const struct run *r, const char *before, const char *name, int64_t *n_out)
{
    char ours[SAFETENSORS_NAME_MAX], full[SAFETENSORS_NAME_MAX];
    text_format(ours, sizeof ours, "%.*sdefault.weight", (int)(strlen(name) - strlen("weight")),
                name);
    assert_true(peft_name((enum hf_arch)r->base.arch, ours, full, sizeof full));
    text_format(ours, sizeof ours, "%s%s", before, full);
    const struct safetensors_entry *e = safetensors_find(&r->tensors.st, ours);
    assert_non_null(e);
    float *out = malloc((size_t)e->elems * sizeof *out);
    assert_non_null(out);
    safetensors_to_f32(e, 0, e->elems, out);
    *n_out = e->elems;
    return out;
}

/* compare_tensor — Adam divides a gradient by its own size, so where a first gradient is hardly
 * any, 1e-4 of the tensor's root mean square, rounding decides the update: such an element is
 * compared within 1e-3. */
static void compare_tensor(const struct run *r, const char *before, const char *name,
                           const float *got, double limit, double *worst)
{
    int64_t n;
    double square = 0, worst_noise = 0;
    float *want = recorded(r, before, name, &n), *grad = recorded(r, "grad.", name, &n),
          *have = malloc((size_t)n * sizeof *have);
    assert_non_null(have);
    memcpy(have, got, (size_t)n * sizeof *have);
    for (int64_t i = 0; i < n; i++)
        square += (double)grad[i] * grad[i] / (double)n;
    for (int64_t i = 0; strcmp(before, "after.") == 0 && i < n; i++)
        if (fabs((double)grad[i]) < 1e-4 * sqrt(square)) {
            below(&worst_noise, fabs((double)have[i] - want[i]), 1e-3, name);
            have[i] = want[i];
        }
    below(worst, apart(have, want, n), limit, name);
    free(want);
    free(grad);
    free(have);
}

static void compare_all(const struct run *r, const struct param_table *t, const char *before,
                        const float *from, double limit, double *worst)
{
    for (int i = 0; i < t->params_n; i++)
        compare_tensor(r, before, t->param[i].name, from + t->param[i].offset, limit, worst);
}

/* The logits of the first sample of step 1. */
static void compare_logits(const struct run *r, struct step *step, const char *name, double limit,
                           double *worst)
{
    const struct safetensors_entry *e = safetensors_find(&r->tensors.st, name);
    struct batch batch;
    const int64_t v = r->base.vocab;
    float *want = malloc((size_t)(r->seq * v) * sizeof *want),
          *got = malloc((size_t)v * sizeof *got);
    assert_non_null(e);
    OK(batch_init(&batch, FEED_TASK_LM, r->batch, r->seq));
    fill_batch(r, 0, &batch);
    safetensors_to_f32(e, 0, r->seq * v, want);
    for (int64_t n = 1; n <= r->seq; n += 13) {
        OK(step_logits(step, batch.host.tokens, n, got));
        below(worst, apart(got, want + (n - 1) * v, v), limit, name);
    }
    batch_free(&batch);
    free(want);
    free(got);
}

static struct step_config config_of(const struct run *r, struct dev *dev)
{
    struct step_config c = {
        .dev = dev,
        .batch_samples = r->batch,
        .global_samples = r->batch,
        .seq_tokens = r->seq,
        .is_loaded = true,
        .dims = r->base,
        .optim = {
            .kind = OPTIM_KIND_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .grad_clip = 1}};
    c.dims.adapter = adapter_of(r->adapter);
    return c;
}

struct worst {
    double logits, loss, norm, grad, weight, merged;
};

/* Merged weights, with the adapter in `values`, have the logits of PEFT's merged model. */
static void compare_merged(const struct run *r, struct dev *dev, struct step *trained,
                           float *values, double slack, struct worst *worst)
{
    struct step_config config = config_of(r, dev);
    struct step *step;
    const struct load_merge merge = {
        .dims = config.dims, .table = step_whole_table(trained), .values = values};
    config.dims.adapter = (struct model_adapter){0};
    config.is_eval = true;
    OK(step_open(&config, &step));
    const struct load_target to = {
        .table = step_whole_table(step), .put = put_trained, .arg = step, .merge = &merge};
    OK(weights_load(path_in(r->dir, "base").text, &to));
    compare_logits(r, step, "merged.logits", LIMIT * slack, &worst->merged);
    step_close(step);
}

static void train(const struct run *r, struct dev *dev, double slack, struct worst *worst)
{
    const struct step_config config = config_of(r, dev);
    const struct lr_schedule_config rate = {.kind = LR_SCHEDULE_KIND_COSINE,
                                            .lr = number(r->expected, "lr"),
                                            .lr_min = number(r->expected, "min_lr"),
                                            .warmup_steps = whole(r->expected, "warmup"),
                                            .steps = 6};
    struct step *step;
    struct batch batch;
    OK(step_open(&config, &step));
    OK(batch_init(&batch, FEED_TASK_LM, r->batch, r->seq));
    load(r, step);
    compare_logits(r, step, "logits", LIMIT * slack, &worst->logits);
    for (int64_t i = 0; i < rate.steps; i++) {
        const cJSON *want = cJSON_GetArrayItem(cJSON_GetObjectItem(r->expected, "steps"), (int)i);
        struct step_result result;
        assert_int_equal(fill_batch(r, i, &batch), whole(want, "counted_tokens"));
        OK(step_run_batch(step, &batch, i, i * r->batch, lr_schedule_at(&rate, i), 0, &result));
        below(&worst->loss, fabs(result.loss / number(want, "loss") - 1), LIMIT * slack, "loss");
        below(&worst->norm, fabs(result.grad_norm / number(want, "grad_norm") - 1), LIMIT * slack,
              "grad_norm");
        if (i > 0)
            continue;
        float *grads = read_host(step, dev, true);
        compare_all(r, step_whole_table(step), "grad.", grads, LIMIT * slack, &worst->grad);
        free(grads);
    }
    float *values = read_host(step, dev, false);
    compare_all(r, step_whole_table(step), "after.", values, LIMIT * slack, &worst->weight);
    compare_merged(r, dev, step, values, slack, worst);
    free(values);
    batch_free(&batch);
    step_close(step);
}

/* Opens a step whose adapter has some targets, with the values of the run's adapter; B of targets
 * that are not in `kept` is 0. */
static struct step *open_some(const struct run *r, struct dev *dev, unsigned targets, unsigned kept)
{
    struct step_config config = config_of(r, dev);
    struct step *step;
    config.dims.adapter.targets = targets;
    OK(step_open(&config, &step));
    const struct param_table *t = step_whole_table(step);
    const struct load_target base = {
        .table = step_frozen_table(step), .put = put_frozen, .arg = step};
    float *values = calloc((size_t)t->total_elems, sizeof *values);
    assert_non_null(values);
    const struct load_target to = {.table = t, .data = {values, DTYPE_F32}};
    OK(weights_load(path_in(r->dir, "base").text, &base));
    OK(load_params(&to, adapter_load_file(r->adapter)));
    for (int i = 0; i < t->params_n; i++) {
        const struct param *param = &t->param[i];
        const unsigned own = model_targets_of(&r->base, param->name);
        assert_true((own & targets) != 0);
        if (strstr(param->name, ".lora_B.") && (own & kept) == 0)
            memset(values + param->offset, 0, (size_t)param->elems * sizeof *values);
    }
    OK(state_write(step_state(step), 0, 0, t->total_elems, values));
    free(values);
    return step;
}

/* An adapter of some matrices has the loss and the gradients of an adapter of all whose other
 * factors B are 0; it has no other tensors, and its loss falls. */
static void compare_some(const struct run *r, struct dev *dev, const char *text)
{
    unsigned targets;
    char back[MODEL_TARGETS_TEXT_MAX];
    struct batch batch;
    struct step_result all, some, last;
    double worst = 0;
    OK(model_targets_parse(&r->base, "targets", text, &targets));
    struct model_dims dims = r->base;
    dims.adapter.targets = targets;
    assert_string_equal(model_targets_text(&dims, back), text);
    struct step *whole = open_some(r, dev, MODEL_TARGETS_ALL, targets),
                *step = open_some(r, dev, targets, targets);
    OK(batch_init(&batch, FEED_TASK_LM, r->batch, r->seq));
    fill_batch(r, 0, &batch);
    OK(step_run_batch(whole, &batch, 0, 0, 0, 0, &all));
    OK(step_run_batch(step, &batch, 0, 0, 0, 0, &some));
    below(&worst, fabs(some.loss / all.loss - 1), 1e-6, "loss");
    float *want = read_host(whole, dev, true), *got = read_host(step, dev, true);
    const struct param_table *t = step_whole_table(step), *full = step_whole_table(whole);
    assert_true(t->params_n < full->params_n);
    for (int i = 0, j = 0; i < t->params_n; i++) {
        while (strcmp(full->param[j].name, t->param[i].name) != 0)
            assert_true(++j < full->params_n);
        below(&worst,
              apart(got + t->param[i].offset, want + full->param[j].offset, t->param[i].elems),
              1e-5, t->param[i].name);
    }
    for (int64_t i = 1; i < 6; i++)
        OK(step_run_batch(step, &batch, i, i * r->batch, 1e-2, 0, &last));
    assert_true(last.loss < some.loss);
    print_message("# %s: targets %s within %.1e\n", r->dir, text, worst);
    free(want);
    free(got);
    batch_free(&batch);
    step_close(whole);
    step_close(step);
}

static void run_some(const char *dir, const char *const *text, int n)
{
    struct run r = {.batch = 0};
    struct dev *dev;
    OK(dev_cpu_open(2, CPU_ISA_PLAIN, &dev));
    open_run(dir, &r);
    for (int i = 0; i < n; i++)
        compare_some(&r, dev, text[i]);
    close_run(&r);
    dev_close(dev);
}

TEST(some_targets)
{
    static const char *const separate[] = {"q,v", "k", "k,v", "v,o", "q,gate", "q,k,down", "up"},
                             *const gpt2[] = {"qkv", "o,up", "down"},
                             *const neox[] = {"qkv,down", "up"};
    run_some("lora_llama", separate, 7);
    run_some("lora_qwen3", separate, 7);
    run_some("lora_gpt2", gpt2, 3);
    run_some("lora_neox", neox, 2);
}

static void run_on(const char *dir, int level, struct dev *dev, double slack)
{
    struct run r = {.batch = 0};
    struct worst worst = {0};
    open_run(dir, &r);
    train(&r, dev, slack, &worst);
    close_run(&r);
    dev_close(dev);
    print_message("# %s level %d: worst of logits %.1e, loss %.1e, norm %.1e, gradient %.1e, "
                  "adapter %.1e, merged logits %.1e\n",
                  dir, level, worst.logits, worst.loss, worst.norm, worst.grad, worst.weight,
                  worst.merged);
}

static void run(const char *dir)
{
    const char *device = getenv("GOLDEN_DEVICE");
    struct dev *dev;
    if (device && strcmp(device, "cuda") == 0) {
        OK(dev_cuda_open(0, false, &dev));
        run_on(dir, -1, dev, 100);
        return;
    }
    for (int level = 0; level < CPU_ISA_N; level++)
        if (dev_cpu_open(2, level, &dev) == ST_OK)
            run_on(dir, level, dev, 1);
}

TEST(lora_gpt2) { run("lora_gpt2"); }
TEST(lora_llama) { run("lora_llama"); }
TEST(lora_qwen3) { run("lora_qwen3"); }
TEST(lora_neox) { run("lora_neox"); }

HARNESS_RUN_ALL()

/* golden — the recorded runs beside this file, for tests that repeat them: ten updates of a small
 * model, made by PyTorch in float64. lm, qa and those of gpt2_runs.py are GPT-2; their
 * expected.json holds what they were made with. The others are by transformers 5.23, whose RMSNorm
 * and rotary positions compute in float32; they were made with TRANSFORMERS_HYPER. */
#ifndef CONVOY_TESTS_GOLDEN_H
#define CONVOY_TESTS_GOLDEN_H

#include "base/json.h"
#include "format/safetensors.h"
#include "harness.h"
#include "train/weights/load.h"
#include "train/step/lr_schedule.h"
#include "train/step/step.h"

#define DIR "tests/golden/"
#define TRANSFORMERS_HYPER                                                                        \
    "{\"seq\":40,\"batch\":3,\"steps\":10,\"warmup\":3,\"lr\":0.002,\"min_lr\":0.0001,"           \
    "\"weight_decay\":0.1,\"clip\":1.0,\"momentum\":0,\"beta1\":0.9,\"beta2\":0.95,\"eps\":1e-8," \
    "\"schedule\":\"cosine\",\"optimizer\":\"adamw\"}"
#define OK(x) assert_ok((x), #x, __LINE__)

static inline void assert_ok(enum status st, const char *what, int line)
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
    cJSON *hyper;
    struct model_dims dims;
    const char *prefix; /* of the names in its files, but those of heads */
    struct file_map tokens;
    struct tensors model, after;
    int64_t batch, seq;
};

struct path {
    char text[256];
};

static inline struct path path_in(const char *dir, const char *name)
{
    struct path out;
    text_format(out.text, sizeof out.text, DIR "%s/%s", dir, name);
    return out;
}

static inline int64_t whole(const cJSON *object, const char *key)
{
    int64_t value;
    OK(json_get_i64(object, key, 0, INT32_MAX, &value));
    return value;
}

static inline double number(const cJSON *object, const char *key)
{
    double value;
    OK(json_get_f64(object, key, &value));
    return value;
}

static inline cJSON *read_json(const char *dir, const char *name)
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

static inline void read_tensors(const char *dir, const char *name, struct tensors *out)
{
    char path[256];
    text_format(path, sizeof path, DIR "%s/%s", dir, name);
    OK(file_map_open(path, &out->map));
    OK(safetensors_parse(out->map.data, out->map.bytes, path, &out->st));
}

static inline void read_dims(const char *dir, struct golden *g)
{
    static const char *const prefixes[MODEL_ARCH_N] = {[MODEL_ARCH_GPT2] = "transformer.",
                                                       [MODEL_ARCH_LLAMA] = "model.",
                                                       [MODEL_ARCH_QWEN2] = "model.",
                                                       [MODEL_ARCH_QWEN3] = "model.",
                                                       [MODEL_ARCH_NEOX] = "gpt_neox."};
    enum model_task task = g->task == FEED_TASK_LM ? MODEL_TASK_LM : MODEL_TASK_QA;
    const char *manifest = json_text(g->expected, "model"); /* where config.json cannot say it */
    if (*manifest)
        OK(load_dims_parse(manifest, &g->dims));
    else
        OK(load_dims_of_hf(path_in(dir, "").text, task, &g->dims));
    OK(model_check(&g->dims));
    g->prefix = prefixes[g->dims.arch];
}

/* golden_name — of a parameter in the files; before: "", "grad." or "after.". */
static inline struct path golden_name(const struct golden *g, const char *before, const char *name)
{
    struct path out;
    bool is_head = text_starts(name, "qa_") || text_starts(name, "lm_head.") ||
                   text_starts(name, "embed_out.");
    /* transformers names parameters so, and writes them to files as embed_out */
    if (*before && text_starts(name, "embed_out."))
        name = "lm_head.weight";
    text_format(out.text, sizeof out.text, "%s%s%s", before, is_head ? "" : g->prefix, name);
    return out;
}

static inline void golden_open(const char *dir, struct golden *g)
{
    *g = (struct golden){.task = strcmp(dir, "qa") == 0 ? FEED_TASK_QA : FEED_TASK_LM};
    g->expected = read_json(dir, "expected.json");
    g->hyper = cJSON_DetachItemFromObject(g->expected, "hyper");
    if (!g->hyper)
        OK(json_parse(TRANSFORMERS_HYPER, strlen(TRANSFORMERS_HYPER), "hyper", &g->hyper));
    read_dims(dir, g);
    read_tensors(dir, "model.safetensors", &g->model);
    read_tensors(dir, "expected.safetensors", &g->after);
    if (g->task == FEED_TASK_QA)
        g->data = read_json(dir, "qa.json");
    else
        OK(file_map_open(path_in(dir, "tokens.bin").text, &g->tokens));
    g->batch = whole(g->hyper, "batch");
    g->seq = whole(g->hyper, "seq");
}

static inline void golden_close(struct golden *g)
{
    cJSON_Delete(g->expected);
    cJSON_Delete(g->hyper);
    cJSON_Delete(g->data);
    safetensors_free(&g->model.st);
    safetensors_free(&g->after.st);
    file_map_close(&g->model.map);
    file_map_close(&g->after.map);
    file_map_close(&g->tokens);
}

static inline bool says(const cJSON *object, const char *key, const char *value)
{
    const char *text;
    OK(json_get_string(object, key, &text));
    return strcmp(text, value) == 0;
}

static inline enum optim_kind golden_optim(const struct golden *g)
{
    return says(g->hyper, "optimizer", "sgd")    ? OPTIM_KIND_SGD
           : says(g->hyper, "optimizer", "muon") ? OPTIM_KIND_MUON
                                                 : OPTIM_KIND_ADAMW;
}

static inline struct step_config golden_config(const struct golden *g, struct dev *dev)
{
    const cJSON *h = g->hyper;
    return (struct step_config){.dev = dev,
                                .batch_samples = g->batch,
                                .global_samples = g->batch,
                                .seq_tokens = g->seq,
                                .is_loaded = true,
                                .dims = g->dims,
                                .optim = {.kind = golden_optim(g),
                                          .beta1 = number(h, "beta1"),
                                          .beta2 = number(h, "beta2"),
                                          .eps = number(h, "eps"),
                                          .momentum = number(h, "momentum"),
                                          .weight_decay = number(h, "weight_decay"),
                                          .grad_clip = number(h, "clip")}};
}

static inline struct lr_schedule_config golden_rate(const struct golden *g)
{
    return (struct lr_schedule_config){
        .kind = says(g->hyper, "schedule", "cosine") ? LR_SCHEDULE_KIND_COSINE
                                                     : LR_SCHEDULE_KIND_CONSTANT,
        .lr = number(g->hyper, "lr"),
        .lr_min = number(g->hyper, "min_lr"),
        .warmup_steps = says(g->hyper, "schedule", "constant") ? 0 : whole(g->hyper, "warmup"),
        .steps = whole(g->hyper, "steps")};
}

/* Update number step_i takes the next `batch` windows of the stream, or the next samples of
 * qa.json. */
static inline void golden_batch(const struct golden *g, int64_t step_i, struct batch *out)
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
        out->host.starts[s] =
            cJSON_GetArrayItem(cJSON_GetObjectItem(g->data, "start_positions"), at)->valueint;
        out->host.ends[s] =
            cJSON_GetArrayItem(cJSON_GetObjectItem(g->data, "end_positions"), at)->valueint;
    }
}

static inline void golden_load(const struct golden *g, struct step *step)
{
    const struct param_table *t = step_whole_table(step);
    for (int i = 0; i < t->params_n; i++) {
        const struct safetensors_entry *e =
            safetensors_find(&g->model.st, golden_name(g, "", t->param[i].name).text);
        assert_non_null(e);
        assert_int_equal(e->elems, t->param[i].elems);
        float *values = malloc((size_t)e->elems * sizeof *values);
        assert_non_null(values);
        safetensors_to_f32(e, 0, e->elems, values);
        OK(state_write(step_state(step), 0, t->param[i].offset, e->elems, values));
        free(values);
    }
}

/* read_host — returns all gradients or parameters, on the host; the caller frees them. */
static inline float *read_host(struct step *step, struct dev *dev, bool is_grads)
{
    const int64_t n = step_whole_table(step)->total_elems;
    float *here = malloc((size_t)n * sizeof *here);
    struct stream *s;
    assert_non_null(here);
    OK(step_drain(step));
    OK(dev_stream_open(dev, &s));
    if (is_grads)
        OK(dev_copy(s, here, step_grads(step).data, (size_t)n * sizeof *here));
    else
        OK(state_read(step_state(step), 0, 0, n, here));
    OK(dev_sync(s));
    dev_stream_close(s);
    return here;
}

#endif

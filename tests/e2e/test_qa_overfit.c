/* test_qa_overfit — questions of a real file, learnt by heart: gpt2-nano answers 32 of them with
 * exactly the answers' text. Feed, samples, labels, training and cutting answers out of contexts,
 * all in one. */
#include "harness.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "data/qa/squad.h"
#include "data/qa/squad_window.h"
#include "kernels/cpu.h"
#include "model/transformer/transformer.h"
#include "train/step/step.h"

#define REAL_FILE "../shared/data/shakespeare_squad.json"
enum { QUESTIONS = 32, T = 288, BATCH = 16, STEPS_MAX = 160, LOOK_EVERY = 8 };

static struct dev *dev;
static struct step *step;
static struct model_dims dims;
static char few_path[512];

static void ok(enum status st, int line)
{
    if (st != ST_OK)
        fail_msg("line %d: %s: %s", line, status_name(st), status_message());
}
#define OK(x) ok((x), __LINE__)

/* The first 32 questions as a file of their own. */
static void write_few(void)
{
    char *bytes;
    size_t n;
    cJSON *all, *few = cJSON_CreateArray();
    OK(file_read(REAL_FILE, 1 << 24, &bytes, &n));
    OK(json_parse(bytes, n, REAL_FILE, &all));
    free(bytes);
    cJSON *article = cJSON_GetArrayItem(cJSON_GetObjectItem(all, "data"), 0);
    cJSON *paragraphs = cJSON_GetObjectItem(article, "paragraphs");
    for (int i = 0; i < QUESTIONS; i++) /* a question each */
        cJSON_AddItemToArray(few, cJSON_DetachItemFromArray(paragraphs, 0));
    cJSON_ReplaceItemInObject(article, "paragraphs", few);
    char *text = cJSON_PrintUnformatted(all);
    text_format(few_path, sizeof few_path, "%s/few.json", harness_tmpdir());
    OK(file_replace(few_path, text, strlen(text)));
    cJSON_free(text);
    cJSON_Delete(all);
}

static void open_step(void)
{
    assert_true(model_preset("gpt2-nano", &dims));
    dims.task = MODEL_TASK_QA;
    OK(dev_cpu_open(0, CPU_ISA_N, &dev));
    const struct step_config config = {
        .dev = dev,
        .batch_samples = BATCH,
        .global_samples = BATCH,
        .seq_tokens = T,
        .seed = 1,
        .dims = dims,
        .optim = {
            .kind = OPTIM_KIND_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .grad_clip = 1}};
    OK(step_open(&config, &step));
}

/* ---- a forward pass over one sample ---- */

struct look {
    struct pass pass;
    struct model_acts *acts;
    struct arena arena[2];
    int32_t tokens[T], start, end;
    uint8_t mask[T];
    float losses[2];
};

static void look_open(struct look *look)
{
    for (int i = 0; i < 2; i++)
        arena_init(&look->arena[i], "look", NULL, 0);
    for (int round = 0; round < 2; round++) { /* measured, then taken */
        OK(model_plan(&dims, 1, T, (struct model_recomputed){0}, false, DTYPE_F32, &look->arena[0],
                      &look->arena[1], &look->acts));
        for (int i = 0; i < 2 && round == 0; i++) {
            const size_t bytes = look->arena[i].used_bytes;
            arena_init(&look->arena[i], "look", aligned_alloc(ARENA_ALIGN, arena_round(bytes + 1)),
                       bytes);
        }
        if (round == 0)
            model_plan_free(look->acts);
    }
    look->pass = (struct pass){.dims = &dims,
                               .table = step_own_table(step),
                               .b = 1,
                               .t = T,
                               .op = dev_op(dev),
                               .stream = step_stream(step),
                               .params = step_tensor(step, 0),
                               .acts = look->acts,
                               .tokens = {look->tokens, DTYPE_I32},
                               .mask = {look->mask, DTYPE_U8},
                               .starts = {&look->start, DTYPE_I32},
                               .ends = {&look->end, DTYPE_I32},
                               .losses = {look->losses, DTYPE_F32},
                               .scale = 1,
                               .scale_end = 1};
}

/* The likeliest start and the likeliest end of a sample, each by itself, among all positions. */
static void look_at(struct look *look, const struct squad_window_set *set, int64_t i,
                    int32_t *start, int32_t *end)
{
    const struct model_ops *model = model_ops(&dims);
    squad_window_fill(set, i, look->tokens, look->mask);
    OK(model->embed_fwd(&look->pass));
    for (int block = 0; block < dims.layers; block++)
        OK(model->block_fwd(&look->pass, block));
    OK(model->head(&look->pass));
    OK(dev_sync(look->pass.stream));
    const float *logits = ((const struct transformer_acts *)look->acts)->wide.data; /* (T,2) */
    *start = *end = 0;
    for (int32_t t = 1; t < T; t++) {
        if (logits[2 * t] > logits[2 * *start])
            *start = t;
        if (logits[2 * t + 1] > logits[2 * *end + 1])
            *end = t;
    }
}

/* How many questions are answered with exactly the text of their answer. */
static int exact_matches(const struct squad *squad, const struct squad_window_set *set)
{
    static struct look look;
    int exact = 0;
    look_open(&look);
    for (int64_t i = 0; i < squad_window_count(set); i++) {
        const struct squad_window *w = squad_window_get(set, i);
        const struct squad_example *e = squad_example(squad, w->example_i);
        int32_t start, end;
        int64_t first, stop;
        look_at(&look, set, i, &start, &end);
        if (start != w->start || end != w->end)
            continue;
        squad_window_cut(set, i, start, end, &first, &stop);
        exact += stop - first == (int64_t)strlen(e->answer[0].text) &&
                 memcmp(e->context + first, e->answer[0].text, (size_t)(stop - first)) == 0;
    }
    model_plan_free(look.acts);
    free(look.arena[0].base);
    free(look.arena[1].base);
    return exact;
}

static void test_overfit(void **state)
{
    const char *san = getenv("SAN");
    if (san != NULL && san[0] != 0)
        HARNESS_SKIP("minutes under a sanitizer, over the time it allows itself");
    if (!file_exists(REAL_FILE))
        HARNESS_SKIP("no %s here", REAL_FILE);
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    write_few();
    open_step();
    struct feed *feed;
    struct squad *squad;
    struct squad_window_set *set;
    struct step_result result = {0};
    const struct feed_config config = {.task = FEED_TASK_QA,
                                       .data = few_path,
                                       .cache_dir = harness_tmpdir(),
                                       .stride_tokens = 128,
                                       .seq_tokens = T,
                                       .global_samples = BATCH,
                                       .vocab = dims.vocab,
                                       .seed = 1,
                                       .is_shuffled = true};
    OK(feed_open(&config, &feed));
    OK(squad_open(&(struct data_file_config){.data = few_path}, &squad));
    OK(squad_window_open(
        squad,
        &(struct squad_window_config){.seq_tokens = T, .stride_tokens = 128, .vocab = dims.vocab},
        &set));
    assert_int_equal(feed_samples(feed), QUESTIONS);
    const int64_t began_ms = clock_ms();
    int exact = 0, i = 0;
    for (; i < STEPS_MAX && exact < QUESTIONS; i++) {
        OK(step_run(step, feed, i, (int64_t)i * BATCH, 2e-3, false, &result));
        if (i % LOOK_EVERY == LOOK_EVERY - 1 && result.loss < 0.1)
            exact = exact_matches(squad, set);
    }
    print_message("# %d of %d answers exact after %d steps of %d samples, loss %.4f, %.1f s\n",
                  exact, QUESTIONS, i, BATCH, result.loss, (double)(clock_ms() - began_ms) / 1e3);
    assert_int_equal(exact, QUESTIONS);
    assert_true(result.loss < 0.05);
    squad_window_close(set);
    squad_close(squad);
    feed_close(feed);
    step_close(step);
    dev_close(dev);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_overfit)};
HARNESS_MAIN(tests)

/* eval_qa — every question gets one answer from its context, the best over all of its windows,
 * whatever the batch; sums are those of the answers. The weights are random, so the answers
 * themselves do not matter. */
#include "node/command/eval_qa.h"

#include "data/qa/squad.h"
#include "data/tokenizer/gpt2.h"
#include "harness.h"
#include "kernels/cpu.h"

enum { T = 12 };

#define CONTEXT_A \
    "The old cat sat on the red mat in Paris, and all of it was seen by nobody but the moon."
#define CONTEXT_B "Rain fell."

static const char v2[] =
    "{\"version\":\"v2.0\",\"data\":[{\"title\":\"t\",\"paragraphs\":[{\"context\":\"" CONTEXT_A
    "\",\"qas\":[{\"id\":\"a\",\"question\":\"Who?\",\"is_impossible\":false,\"answers\":[{"
    "\"text\":\"old "
    "cat\",\"answer_start\":4},{\"text\":\"cat\",\"answer_start\":8}]},{\"id\":\"b\",\"question\":"
    "\"Why not?\",\"is_impossible\":true,\"answers\":[]}]},{\"context\":\"" CONTEXT_B
    "\",\"qas\":[{\"id\":\"c\",\"question\":\"What?\",\"is_impossible\":false,\"answers\":[{"
    "\"text\":\"Rain\",\"answer_start\":0}]}]}]}]}";

struct rig {
    struct dev *dev;
    struct step *step;
    struct squad *squad;
    struct squad_window_set *windows;
    struct eval_qa_config config;
};

static bool always(void *arg, int64_t done, int64_t n)
{
    ++*(int *)arg;
    return done < n;
}

static bool once(void *arg, int64_t done, int64_t n)
{
    (void)n;
    ++*(int *)arg;
    return done == 0;
}

static void rig_open(struct rig *r, int64_t batch_samples)
{
    *r = (struct rig){0};
    struct step_config config = {.batch_samples = batch_samples,
                                 .global_samples = batch_samples,
                                 .seq_tokens = T,
                                 .seed = 3,
                                 .is_eval = true,
                                 .dims = {.name = "tiny",
                                          .task = MODEL_TASK_QA,
                                          .layers = 1,
                                          .heads = 2,
                                          .embed = 16,
                                          .context = T,
                                          .vocab = TOKENIZER_GPT2_VOCAB}};
    struct squad_window_config cut = {
        .seq_tokens = T, .stride_tokens = 3, .vocab = TOKENIZER_GPT2_VOCAB};
    assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &r->dev), ST_OK);
    config.dev = r->dev;
    assert_int_equal(step_open(&config, &r->step), ST_OK);
    for (int64_t i = 0; i < step_own_table(r->step)->total_elems; i++)
        step_array(r->step, 0)[i] *= 20; /* logits that differ */
    assert_int_equal(squad_parse(v2, sizeof v2 - 1, "test", &r->squad), ST_OK);
    assert_int_equal(squad_window_open(r->squad, &cut, &r->windows), ST_OK);
    assert_true(squad_window_count(r->windows) > 6);
    r->config = (struct eval_qa_config){.step = r->step,
                                        .squad = r->squad,
                                        .windows = r->windows,
                                        .batch_samples = batch_samples,
                                        .seq_tokens = T,
                                        .answers = cJSON_CreateObject(),
                                        .go_on = always};
}

static void rig_close(struct rig *r)
{
    cJSON_Delete(r->config.answers);
    squad_window_close(r->windows);
    squad_close(r->squad);
    step_close(r->step);
    dev_close(r->dev);
}

static const char *answer(const struct rig *r, const char *id)
{
    const char *text;
    assert_int_equal(json_get_string(r->config.answers, id, &text), ST_OK);
    return text;
}

TEST(test_answers)
{
    char first[3][200] = {"", "", ""};
    static const char *const ids[] = {"a", "b", "c"}, *const contexts[] = {CONTEXT_A, CONTEXT_A,
                                                                           CONTEXT_B};
    for (int64_t batch = 1; batch <= 4; batch += 3) {
        struct rig r;
        struct eval_qa_result got;
        int asked = 0;
        rig_open(&r, batch);
        r.config.arg = &asked;
        assert_int_equal(eval_qa_measure(&r.config, &got), ST_OK);
        assert_int_equal(asked, (squad_window_count(r.windows) + batch - 1) / batch);
        assert_int_equal(got.rules, SQUAD_SCORE_RULES_V2);
        assert_int_equal(got.all.n, 3);
        assert_int_equal(got.has_answer.n, 2);
        assert_int_equal(got.no_answer.n, 1);
        assert_int_equal(cJSON_GetArraySize(r.config.answers), 3);
        assert_true(got.all.f1 == got.has_answer.f1 + got.no_answer.f1);
        assert_true(got.no_answer.exact == (answer(&r, "b")[0] == 0));
        for (int i = 0; i < 3; i++) {
            assert_non_null(strstr(contexts[i], answer(&r, ids[i])));
            if (batch == 1)
                memcpy(first[i], answer(&r, ids[i]), strlen(answer(&r, ids[i])) + 1);
            assert_string_equal(first[i], answer(&r, ids[i]));
        }
        assert_true(first[0][0] || first[1][0] || first[2][0]); /* else nothing was shown */
        rig_close(&r);
    }
}

/* With the logits of all windows in hand: is the answer the best span of them? */
TEST(test_best_of_all_windows)
{
    struct rig r;
    struct eval_qa_result got;
    struct squad_span_best best;
    struct batch one;
    int asked = 0;
    float logits[T * 2];
    rig_open(&r, 1);
    r.config.arg = &asked;
    assert_int_equal(batch_init(&one, FEED_TASK_QA, 1, T), ST_OK);
    one.host.starts[0] = one.host.ends[0] = T;
    squad_span_begin(&best);
    for (int64_t i = 0; i < squad_window_count(r.windows); i++) {
        const struct squad_window *w = squad_window_get(r.windows, i);
        if (w->example_i != 0)
            continue;
        squad_window_fill(r.windows, i, one.host.tokens, one.host.mask);
        assert_int_equal(step_spans(r.step, &one, logits), ST_OK);
        squad_span_window(&best, i, logits, w->context_at, w->context_at + w->context_n - 1, 0);
    }
    assert_int_equal(eval_qa_measure(&r.config, &got), ST_OK);
    char want[200] = "";
    int64_t first, end;
    assert_false(squad_span_is_null(&best, 0)); /* by the choice of the seed */
    squad_window_cut(r.windows, best.span[0].window, (int32_t)best.span[0].start,
                     (int32_t)best.span[0].end, &first, &end);
    snprintf(want, sizeof want, "%.*s", (int)(end - first), CONTEXT_A + first);
    assert_string_equal(answer(&r, "a"), want);
    batch_free(&one);
    rig_close(&r);
}

TEST(test_stop)
{
    struct rig r;
    struct eval_qa_result got = {.all.n = -5};
    int asked = 0;
    rig_open(&r, 2);
    r.config.arg = &asked;
    r.config.go_on = once;
    assert_int_equal(eval_qa_measure(&r.config, &got), ST_RETRY);
    assert_int_equal(asked, 2);
    assert_int_equal(got.all.n, -5);
    rig_close(&r);
}

HARNESS_RUN_ALL()

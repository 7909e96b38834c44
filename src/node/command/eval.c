/* eval — `convoy eval`: measures the quality of a trained model on VAL_DATA, and prints it as one
 * line or JSON=1.
 *
 *   language model          the mean loss of every target of every whole window (TASK=chat: of the
 *                           tokens of answers), as EVAL_EVERY measures it during training, its
 *                           exponential, the perplexity, and the accuracy: the share of these
 *                           targets that are the argmax of their logits
 *   multiple choice         (HellaSwag) the share of questions for which a language model finds the
 *                           right ending (struct choices)
 *   question answering      exact match and F1 (eval_qa.h), and with OUT the answers in the format
 *                           of SQuAD's own scripts
 *
 * The result depends only on the weights, data, SEQ_LEN and BATCH_SIZE, so that results can be
 * compared; progress goes to the log. Must not know how weights or data are read. */
#include <math.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/tokenizer/tokenizer.h"
#include "data/feed.h"
#include "data/qa/multiple_choice.h"
#include "dev/dev.h"
#include "node/command.h"
#include "node/choose/device.h"
#include "node/command/eval_qa.h"
#include "node/choose/memory_check.h"
#include "node/choose/config_map.h"
#include "node/process/process.h"
#include "node/process/print.h"
#include "node/choose/model_source.h"
#include "node/choose/chat_source.h"
#include "node/choose/tokenizer_source.h"
#include "train/step/batch.h"
#include "train/step/step.h"
#include "train/weights/adapter.h"

#define TELL_MS 5000

struct eval {
    const struct conf *conf;
    struct model_source source;
    /* configuration of a training run with these settings: SEQ_LEN, BATCH_SIZE */
    struct trainer_config config;
    struct dev *dev;
    struct step *step;
    struct feed *feed;                 /* for a language model */
    struct multiple_choice *questions; /* for a language model, if VAL_DATA has questions */
    struct squad *squad;               /* for question answering */
    struct squad_window_set *windows;
    cJSON *answers; /* for question answering with OUT; else NULL */
    int64_t told_ms;
    int64_t batches_n;
};

/* go_on — logs the progress every few seconds. Called between batches. Returns false if a signal
 * came. */
static bool go_on(struct eval *e, const char *what, int64_t done, int64_t total)
{
    int64_t now_ms = clock_ms();
    if (now_ms - e->told_ms >= TELL_MS) {
        LOG_INFO("%s %lld of %lld", what, (long long)done, (long long)total);
        e->told_ms = now_ms;
    }
    return process_noted() == 0;
}

static bool is_stopped(void *arg)
{
    struct eval *e = arg;
    return !go_on(e, "evaluated samples", e->batches_n++ * e->config.step.batch_samples,
                  feed_samples(e->feed));
}

static bool reading(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    return go_on(arg, "tokenised bytes", bytes_done, bytes_total);
}

/* ---- opening ---- */

/* learnt_tokens — returns SEQ_LEN of the run that made the checkpoint; the model has learnt no
 * positions beyond it. 0: unknown. */
static int64_t learnt_tokens(const struct model_source *source)
{
    cJSON *settings;
    int64_t tokens = 0;
    const char *json = model_source_settings(source);
    if (!json || json_parse(json, strlen(json), "settings", &settings) != ST_OK) {
        status_clear();
        return 0;
    }
    if (json_get_i64(settings, "SEQ_LEN", 1, source->dims.context, &tokens) != ST_OK)
        status_clear();
    cJSON_Delete(settings);
    return tokens;
}

static enum status open_model(struct eval *e)
{
    TRY(model_source_open(e->conf, &e->source));
    static const char *const names[] = {"lm", "qa"};
    enum model_task task = e->source.dims.task;
    if (conf_is_set(e->conf, CONF_TASK) && config_map_task(e->conf) != task)
        return FAIL(ST_BAD_SETTING,
                    "TASK=%s (%s), but the model %s was trained for TASK=%s; leave TASK out",
                    conf_text(e->conf, CONF_TASK), conf_source(e->conf, CONF_TASK),
                    e->source.dims.name, names[task]);
    TRY(config_map_trainer(e->conf, &e->source.dims, false, &e->config));
    /* no activations are kept, because there is no backward pass */
    e->config.step.recompute = (struct model_recomputed){0};
    int64_t learnt = learnt_tokens(&e->source);
    if (!conf_is_set(e->conf, CONF_SEQ_LEN) && learnt > 0)
        e->config.step.seq_tokens = learnt;
    return ST_OK;
}

static enum status open_tokenizer(const struct eval *e, struct tokenizer **out)
{
    struct tokenizer *tokenizer;
    TRY(tokenizer_source_open(e->conf, &e->source.dims, &tokenizer));
    enum status st = model_source_settings(&e->source)
                         ? tokenizer_source_check(tokenizer, model_source_settings(&e->source))
                         : ST_OK;
    if (st == ST_OK)
        *out = tokenizer;
    else
        tokenizer_close(tokenizer);
    return st;
}

static enum status open_step(struct eval *e)
{
    struct step_config config = {
        .dev = e->dev,
        .dims = e->source.dims,
        .batch_samples = e->config.step.batch_samples,
        .global_samples = e->config.step.batch_samples,
        .seq_tokens = e->config.step.seq_tokens,
        .masks_documents = e->config.step.masks_documents,
        .seed = e->config.step.seed,
        .is_eval = true,
        .is_loaded = true,
    };
    TRY(device_open(e->conf, 0, conf_threads(e->conf), &e->dev));
    config.dev = e->dev;
    config.store.dtype = device_dtype(e->conf, dev_is_discrete(e->dev));
    const struct memory_plan_place place = {.at = {.ranks = 1, .nodes = 1, .locals = 1},
                                            .is_discrete = dev_is_discrete(e->dev)};
    struct memory_plan plan;
    TRY(memory_plan_eval(&config, &place, &plan));
    TRY(memory_check_command("eval", &plan, e->dev, "use a smaller BATCH_SIZE, SEQ_LEN or model"));
    /* While a model is loaded no code checks for a signal, and no result can be lost. */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (!process_ignores(SIGHUP))
        signal(SIGHUP, SIG_DFL);
    TRY(process_noted() == 0 ? ST_OK : FAIL(ST_RETRY, "stopped before the model was loaded"));
    TRY(step_open(&config, &e->step));
    struct load_target to = {.table = step_whole_table(e->step),
                             .stream = step_stream(e->step),
                             .data = step_tensor(e->step, 0)};
    TRY(model_source_load(&e->source, &to));
    process_note_signals(true);
    return ST_OK;
}

/* ---- the result ---- */

/* add_model — adds the members that are the same for every task: model, step, adapter and data. */
static void add_model(const struct eval *e, cJSON *out)
{
    int64_t step = model_source_step(&e->source);
    cJSON_AddStringToObject(out, "task", e->source.dims.task == MODEL_TASK_LM ? "lm" : "qa");
    cJSON_AddStringToObject(out, "model", e->source.dims.name);
    if (step >= 0)
        json_add_i64(out, "step", step);
    else
        cJSON_AddNullToObject(out, "step");
    if (e->source.adapter)
        cJSON_AddStringToObject(out, "adapter", adapter_path(e->source.adapter));
    else
        cJSON_AddNullToObject(out, "adapter");
    cJSON_AddStringToObject(out, "data", conf_text(e->conf, CONF_VAL_DATA));
    json_add_i64(out, "seq_len", e->config.step.seq_tokens);
}

/* add_exact — adds a number with all digits, so that programs can compare bits; cJSON would round
 * the last ones. */
static void add_exact(cJSON *out, const char *key, double value)
{
    if (isfinite(value))
        cJSON_AddRawToObject(out, key, text_f64(value).text);
    else
        cJSON_AddNullToObject(out, key);
}

/* add_source — ends the line with the model, its step, the adapter and the data. */
static void add_source(const struct eval *e, const char *data, struct text *line)
{
    text_add(line, "  model %s", e->source.dims.name);
    if (model_source_step(&e->source) >= 0)
        text_add(line, " step %lld", (long long)model_source_step(&e->source));
    if (e->source.adapter)
        text_add(line, "  adapter %s", adapter_path(e->source.adapter));
    text_add(line, "  data %s\n", data);
}

/* print_answer — prints the line for people or, with JSON=1, the object; frees both. */
static enum status print_answer(const struct eval *e, struct text *line, cJSON *object)
{
    if (conf_i64(e->conf, CONF_JSON)) {
        char *json = cJSON_PrintUnformatted(object);
        text_free(line);
        text_add(line, "%s\n", json ? json : "");
        line->overflow = line->overflow || !json;
        cJSON_free(json);
    }
    cJSON_Delete(object);
    return print_text(line);
}

static enum status measure_loss(struct eval *e)
{
    struct step_evaluation found;
    struct feed_config config;
    struct tokenizer *tokenizer;
    struct chat *chat = NULL;
    TRY(open_tokenizer(e, &tokenizer));
    config_map_feed(e->conf, &e->config, true, &config);
    config.tokenizer = tokenizer;
    config.progress = reading;
    config.progress_arg = e;
    enum status st = ST_OK;
    if (conf_i64(e->conf, CONF_TASK) == CONF_TASK_CHAT)
        st = chat_source_open(e->conf, tokenizer, model_source_settings(&e->source), &chat);
    config.chat = chat;
    if (st == ST_OK)
        st = feed_open(&config, &e->feed);
    chat_close(chat);
    tokenizer_close(tokenizer);
    TRY(config_map_name_setting(st, true));
    if (e->config.step.batch_samples > feed_samples(e->feed))
        e->config.step.batch_samples = feed_samples(e->feed);
    TRY(open_step(e));
    TRY(step_eval(e->step, e->feed, feed_samples(e->feed), is_stopped, e, &found));
    const double loss = found.loss;
    if (!isfinite(loss))
        return FAIL(ST_NOT_FINITE,
                    "the loss of %s on %s is %g: the weights are damaged; use others",
                    e->source.dims.name, feed_name(e->feed), loss);
    struct text line = {0};
    char count[32];
    const int64_t samples = feed_samples(e->feed), each = e->config.step.seq_tokens;
    text_add(&line,
             "loss %.4f  perplexity %.4g  accuracy %.2f%%  tokens %s in %lld samples of %lld", loss,
             exp(loss), 100 * found.accuracy,
             text_format_count(count, sizeof count, (double)found.targets), (long long)samples,
             (long long)each);
    add_source(e, feed_name(e->feed), &line);
    cJSON *out = cJSON_CreateObject();
    add_model(e, out);
    json_add_i64(out, "samples", samples);
    json_add_i64(out, "tokens", found.targets);
    add_exact(out, "loss", loss);
    add_exact(out, "perplexity", exp(loss));
    add_exact(out, "accuracy", found.accuracy);
    return print_answer(e, &line, out);
}

/* ---- questions ---- */

static enum status open_questions(struct eval *e)
{
    struct feed_config feed;
    config_map_feed(e->conf, &e->config, true, &feed);
    struct data_file_config source = {.data = feed.data,
                                      .cache_dir = feed.cache_dir,
                                      .allows_local_urls = feed.allows_local_urls,
                                      .progress = reading,
                                      .progress_arg = e};
    struct squad_window_config cut = {.seq_tokens = feed.seq_tokens,
                                      .stride_tokens = feed.stride_tokens,
                                      .vocab = feed.vocab,
                                      .is_training = false, /* every question is evaluated */
                                      .progress = reading,
                                      .progress_arg = e};
    TRY(config_map_name_setting(squad_open(&source, &e->squad), true));
    TRY(config_map_name_setting(squad_window_open(e->squad, &cut, &e->windows), true));
    if (e->config.step.batch_samples > squad_window_count(e->windows))
        e->config.step.batch_samples = squad_window_count(e->windows);
    return ST_OK;
}

static bool seeing(void *arg, int64_t done, int64_t total)
{
    return go_on(arg, "evaluated windows", done, total);
}

static double to_percent(double sum, int64_t n) { return n > 0 ? 100 * sum / (double)n : NAN; }

static void add_sums(cJSON *out, const struct eval_qa_sums *sums)
{
    json_add_i64(out, "questions", sums->n);
    add_exact(out, "exact_match", to_percent(sums->exact, sums->n));
    add_exact(out, "f1", to_percent(sums->f1, sums->n));
}

static enum status print_scores(const struct eval *e, const struct eval_qa_result *r)
{
    struct text line = {0};
    const bool is_v2 = r->rules == SQUAD_SCORE_RULES_V2;
    text_add(&line, "exact match %.2f%%  f1 %.2f%%", to_percent(r->all.exact, r->all.n),
             to_percent(r->all.f1, r->all.n));
    if (is_v2)
        text_add(&line, "  answerable %.2f%% %.2f%%  unanswerable %.2f%%",
                 to_percent(r->has_answer.exact, r->has_answer.n),
                 to_percent(r->has_answer.f1, r->has_answer.n),
                 to_percent(r->no_answer.exact, r->no_answer.n));
    text_add(&line, "  questions %lld in %lld samples of %lld", (long long)r->all.n,
             (long long)squad_window_count(e->windows), (long long)e->config.step.seq_tokens);
    add_source(e, conf_text(e->conf, CONF_VAL_DATA), &line);
    cJSON *out = cJSON_CreateObject();
    add_model(e, out);
    cJSON_AddStringToObject(out, "rules", is_v2 ? "v2.0" : "v1.1");
    add_sums(out, &r->all);
    if (is_v2) {
        add_sums(cJSON_AddObjectToObject(out, "has_answer"), &r->has_answer);
        add_sums(cJSON_AddObjectToObject(out, "no_answer"), &r->no_answer);
    }
    return print_answer(e, &line, out);
}

static enum status measure_answers(struct eval *e)
{
    struct eval_qa_result result;
    const char *out = conf_text(e->conf, CONF_OUT);
    bool is_kept = out[0] != 0;
    if (is_kept) /* cJSON_Print writes a member like this */
        TRY(file_check_own("OUT", out, "a file of answers of convoy eval", "\":\t\"", 4));
    TRY(open_questions(e));
    TRY(open_step(e));
    e->answers = is_kept ? cJSON_CreateObject() : NULL;
    if (is_kept && !e->answers)
        return FAIL(ST_RETRY, "out of memory: an object for the answers");
    TRY(eval_qa_measure(&(struct eval_qa_config){.step = e->step,
                                                 .squad = e->squad,
                                                 .windows = e->windows,
                                                 .batch_samples = e->config.step.batch_samples,
                                                 .seq_tokens = e->config.step.seq_tokens,
                                                 .answers = e->answers,
                                                 .go_on = seeing,
                                                 .arg = e},
                        &result));
    if (is_kept) {
        const char *path = conf_text(e->conf, CONF_OUT);
        char *json = cJSON_Print(e->answers);
        if (!json)
            return FAIL(ST_RETRY, "out of memory: the answers as JSON");
        enum status st = file_replace(path, json, strlen(json));
        cJSON_free(json);
        TRY(st);
        LOG_INFO("answers in %s", path);
    }
    return print_scores(e, &result);
}

/* ---- multiple choice ---- */

/* State of a multiple-choice evaluation: the share of questions for which a language model finds
 * the right ending. Each ending is a sample: the context, then the ending. Its loss is the sum over
 * the ending's tokens.
 *   acc       the right ending has the smallest sum
 *   acc_norm  the right ending has the smallest mean per token, as llm.c counts it
 *
 * If losses are equal, the first ending counts. */
struct choices {
    struct eval *e;
    struct batch batch;
    float *losses; /* (BATCH_SIZE, SEQ_LEN) */
    double *sum;   /* loss sum of each ending of all questions, in their order */
    int64_t sums_n, done_n;
    int64_t questions_n, correct_n, correct_norm_n;
    /* endings whose context lost its first tokens because the sample was longer than SEQ_LEN */
    int64_t cut_n;
};

static enum status allocate_choices(struct choices *c)
{
    int64_t samples = c->e->config.step.batch_samples, t = c->e->config.step.seq_tokens;
    struct multiple_choice_question q;
    for (int64_t i = 0; i < multiple_choice_count(c->e->questions); i++) {
        multiple_choice_get(c->e->questions, i, &q);
        c->sums_n += q.endings_n;
    }
    TRY(batch_init(&c->batch, FEED_TASK_LM, samples, t));
    c->batch.samples = 0;
    c->losses = malloc((size_t)(samples * t) * sizeof *c->losses);
    c->sum = malloc((size_t)c->sums_n * sizeof *c->sum);
    if (!c->losses || !c->sum)
        return FAIL(memory_status(samples * t * (int64_t)sizeof *c->losses),
                    "out of memory: losses of %lld endings", (long long)c->sums_n);
    return ST_OK;
}

/* run_batch — computes the sums of the samples in the batch, and empties it. */
static enum status run_batch(struct choices *c)
{
    int64_t t = c->e->config.step.seq_tokens;
    if (c->batch.samples == 0)
        return ST_OK;
    if (!go_on(c->e, "evaluated endings", c->done_n, c->sums_n))
        return FAIL(ST_RETRY, "the evaluation was stopped after %lld of %lld endings",
                    (long long)c->done_n, (long long)c->sums_n);
    TRY(step_eval_losses(c->e->step, &c->batch, c->losses));
    for (int64_t i = 0; i < c->batch.samples; i++) {
        double sum = batch_loss(FEED_TASK_LM, c->losses + i * t, t, 1, 0);
        if (!isfinite(sum))
            return FAIL(ST_NOT_FINITE, "the loss of an ending is %g: the weights are damaged", sum);
        c->sum[c->done_n++] = sum;
    }
    c->batch.samples = 0;
    return ST_OK;
}

static enum status run_choices(struct choices *c)
{
    const int64_t t = c->e->config.step.seq_tokens;
    struct multiple_choice_question q;
    for (int64_t i = 0; i < multiple_choice_count(c->e->questions); i++) {
        multiple_choice_get(c->e->questions, i, &q);
        for (int k = 0; k < q.endings_n; k++) {
            /* One sample is a row of the batch. Only the ending has targets. */
            int64_t ending_n = q.ending_n[k], room = t + 1 - ending_n,
                    context_n = q.context_n < room ? q.context_n : room;
            int32_t *tokens = c->batch.host.tokens + c->batch.samples * t;
            int32_t *targets = c->batch.host.targets + c->batch.samples * t;
            if (context_n < 1)
                return FAIL(ST_BAD_DATA,
                            "ending %d of question %lld has %lld tokens, more than SEQ_LEN=%lld; "
                            "set a larger SEQ_LEN",
                            k, (long long)i, (long long)ending_n, (long long)t);
            c->cut_n += context_n < q.context_n;
            memset(tokens, 0, (size_t)t * sizeof *tokens);
            memset(targets, -1, (size_t)t * sizeof *targets);
            memcpy(tokens, q.context + (q.context_n - context_n),
                   (size_t)context_n * sizeof *tokens);
            memcpy(tokens + context_n, q.ending[k], (size_t)(ending_n - 1) * sizeof *tokens);
            memcpy(targets + context_n - 1, q.ending[k], (size_t)ending_n * sizeof *targets);
            c->batch.samples++;
            if (c->batch.samples == c->e->config.step.batch_samples)
                TRY(run_batch(c));
        }
    }
    return run_batch(c);
}

static void score_choices(struct choices *c)
{
    struct multiple_choice_question q;
    const double *sum = c->sum;
    for (int64_t i = 0; i < multiple_choice_count(c->e->questions); i++) {
        multiple_choice_get(c->e->questions, i, &q);
        int best = 0, best_norm = 0;
        for (int k = 1; k < q.endings_n; k++) {
            if (sum[k] < sum[best])
                best = k;
            if (sum[k] / (double)q.ending_n[k] < sum[best_norm] / (double)q.ending_n[best_norm])
                best_norm = k;
        }
        c->questions_n++;
        c->correct_n += best == q.label;
        c->correct_norm_n += best_norm == q.label;
        sum += q.endings_n;
    }
}

static enum status print_choices(const struct choices *c)
{
    const struct eval *e = c->e;
    struct text line = {0};
    const double questions = (double)c->questions_n, acc = (double)c->correct_n / questions,
                 acc_norm = (double)c->correct_norm_n / questions;
    if (c->cut_n > 0)
        LOG_WARN("%lld endings with their contexts have more than SEQ_LEN=%lld tokens: the "
                 "first tokens of these contexts are left out",
                 (long long)c->cut_n, (long long)e->config.step.seq_tokens);
    text_add(&line, "acc %.4f  acc_norm %.4f  questions %lld", acc, acc_norm,
             (long long)c->questions_n);
    add_source(e, conf_text(e->conf, CONF_VAL_DATA), &line);
    cJSON *out = cJSON_CreateObject();
    add_model(e, out);
    json_add_i64(out, "questions", c->questions_n);
    add_exact(out, "acc", acc);
    add_exact(out, "acc_norm", acc_norm);
    json_add_i64(out, "cut", c->cut_n);
    return print_answer(e, &line, out);
}

static enum status measure_choices(struct eval *e)
{
    struct tokenizer *tokenizer;
    TRY(open_tokenizer(e, &tokenizer));
    struct multiple_choice_config config = {.path = conf_text(e->conf, CONF_VAL_DATA),
                                            .vocab = e->source.dims.vocab,
                                            .tokenizer = tokenizer,
                                            .model =
                                                tokenizer_source_lack(e->conf, &e->source.dims)};
    enum status st = multiple_choice_open(&config, &e->questions);
    tokenizer_close(tokenizer);
    TRY(config_map_name_setting(st, true));
    /* A sample has the number of tokens of the longest question, unless SEQ_LEN is set. */
    int64_t longest = multiple_choice_tokens(e->questions) - 1;
    if (!conf_is_set(e->conf, CONF_SEQ_LEN) && longest < e->config.step.seq_tokens)
        e->config.step.seq_tokens = longest;
    TRY(open_step(e));
    struct choices c = {.e = e};
    st = allocate_choices(&c);
    if (st == ST_OK)
        st = run_choices(&c);
    if (st == ST_OK) {
        score_choices(&c);
        st = print_choices(&c);
    }
    batch_free(&c.batch);
    free(c.losses);
    free(c.sum);
    return st;
}

static enum status run_eval(struct eval *e)
{
    if (!conf_text(e->conf, CONF_VAL_DATA)[0])
        return FAIL(ST_BAD_SETTING, "VAL_DATA is not set; set it to data to evaluate the model on");
    TRY(open_model(e));
    if (e->source.dims.task == MODEL_TASK_QA &&
        strcmp(conf_text(e->conf, CONF_VAL_DATA), FEED_SYNTHETIC) == 0)
        return FAIL(ST_BAD_SETTING,
                    "VAL_DATA=synthetic has no answers to score; set it to a SQuAD file");
    if (e->source.dims.task == MODEL_TASK_QA)
        return measure_answers(e);
    return multiple_choice_is(conf_text(e->conf, CONF_VAL_DATA)) ? measure_choices(e)
                                                                 : measure_loss(e);
}

enum status eval_main(const struct conf *conf)
{
    struct eval e = {.conf = conf, .told_ms = clock_ms()};
    process_note_signals(true);
    enum status st = run_eval(&e);
    if (st != ST_OK && process_noted() != 0)
        st = process_fail_noted("nothing", "measured");
    step_close(e.step);
    cJSON_Delete(e.answers);
    squad_window_close(e.windows);
    squad_close(e.squad);
    multiple_choice_close(e.questions);
    feed_close(e.feed);
    dev_close(e.dev);
    model_source_close(&e.source);
    return st;
}

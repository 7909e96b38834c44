/* trainer — see trainer.h. Read trainer_run first, at the foot: prepare, loop, finish. */
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/must.h"
#include "base/text.h"
#include "format/tfevents.h"
#include "train/console.h"
#include "train/guard.h"
#include "train/memory.h"
#include "train/metrics_file.h"
#include "train/pace.h"
#include "train/preview.h"
#include "train/snapshot.h"
#include "train/step.h"
#include "train/weights.h"

#define LAST 10 /* losses in the summary's mean */

struct trainer {
    const struct trainer_config *config;
    struct step *step;
    struct snapshot *snapshot; /* NULL: no CHECKPOINT_DIR */
    struct saver *saver;       /* NULL until there is something to save */
    struct saver_kept kept;
    struct metrics_file metrics;
    struct tfevents *events; /* NULL: no TENSORBOARD_DIR */
    struct preview *preview; /* NULL: no SAMPLE_EVERY */
    struct console console;
    struct pace pace;
    struct memory memory;
    struct board_worker post;
    double peak_flops;

    struct snapshot_place place; /* where the run stands */
    int64_t steps;               /* planned */
    int64_t step_first;          /* done before this process began */
    int64_t step_evaluated;      /* -1 none */
    double loss_first, loss_last[LAST], val_loss;
    double steps_ms; /* time in steps, for the summary */
    double stall_ms; /* waited for a checkpoint since the last step */
};

static void beat(void *arg)
{
    const struct trainer *t = arg;
    board_beat(t->config->board, t->config->worker_i);
}

static void beat_bytes(void *arg, int64_t bytes)
{
    (void)bytes;
    beat(arg);
}

static void post_checkpoint(struct trainer *t)
{
    struct board_checkpoint *p = &t->post.checkpoint;
    p->step = t->kept.step;
    p->wall_ms = t->kept.wall_ms;
    p->failures = t->kept.failures;
    p->skipped = t->kept.skipped;
    p->stall_ms = t->kept.stall_ms;
    p->save_ms = t->kept.save_ms;
    text_copy(p->path, sizeof p->path, t->kept.path);
    text_copy(p->error, sizeof p->error, t->kept.error);
}

static void post(struct trainer *t, enum board_phase phase)
{
    post_checkpoint(t);
    t->post.phase = phase;
    t->post.memory_bytes = memory_resident(&t->memory, clock_ms());
    board_worker_post(t->config->board, t->config->worker_i, &t->post);
    beat(t);
}

/* ---- prepare ---- */

/* plan_steps — STEPS, or as many whole ones as EPOCHS passes over the data give. */
static enum status plan_steps(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    int64_t samples = feed_samples(c->feed), all;
    if (c->steps > 0) {
        t->steps = c->steps;
        return ST_OK;
    }
    if (__builtin_mul_overflow(samples, c->epochs, &all))
        return FAIL(ST_BAD_SETTING,
                    "EPOCHS=%lld times %lld samples is more than can be counted; set STEPS instead",
                    (long long)c->epochs, (long long)samples);
    t->steps = all / c->global_samples;
    if (t->steps > 0)
        return ST_OK;
    return FAIL(
        ST_BAD_DATA,
        "DATA gives %lld samples of SEQ_LEN=%lld tokens; EPOCHS=%lld of them are less than one step of "
        "GLOBAL_BATCH=%lld samples; give more text, a smaller GLOBAL_BATCH or SEQ_LEN, or more EPOCHS",
        (long long)samples, (long long)c->seq_tokens, (long long)c->epochs, (long long)c->global_samples);
}

static enum status open_snapshot(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    if (!c->checkpoint_dir[0]) {
        if (c->resume == TRAINER_RESUME_REQUIRED)
            return FAIL(
                ST_BAD_SETTING,
                "RESUME=required needs CHECKPOINT_DIR; set it to the folder of the run to go on with");
        return ST_OK;
    }
    struct snapshot_config config = {
        .dims = &c->dims,
        .dir = c->checkpoint_dir,
        .keep = c->checkpoint_keep,
        .settings_json = c->settings_json,
        .version = c->version,
        .seed = c->seed,
        .data_fingerprint = feed_fingerprint(c->feed),
        .beat = {beat_bytes, t},
    };
    return snapshot_open(&config, &t->snapshot);
}

static enum status find_checkpoint(struct trainer *t, bool *found_out)
{
    const struct trainer_config *c = t->config;
    *found_out = false;
    if (!t->snapshot)
        return ST_OK;
    if (c->resume == TRAINER_RESUME_NEVER)
        return snapshot_set_aside(t->snapshot);
    TRY(snapshot_find(t->snapshot, &t->place, found_out, t->kept.path, sizeof t->kept.path));
    if (*found_out) {
        t->kept.step = t->place.step;
        t->kept.wall_ms = clock_wall_ms();
    } else if (c->resume == TRAINER_RESUME_REQUIRED) {
        return FAIL(ST_BAD_DATA,
                    "RESUME=required, but CHECKPOINT_DIR=%s holds no valid checkpoint; check the folder, or "
                    "set RESUME=auto to begin anew",
                    c->checkpoint_dir);
    }
    return ST_OK;
}

/* open_step — memory; is_loaded: a checkpoint gives every value, so none is drawn. */
static enum status open_step(struct trainer *t, bool is_loaded)
{
    const struct trainer_config *c = t->config;
    struct dev_info info;
    struct step_config config = {
        .dev = c->dev,
        .dims = c->dims,
        .batch_samples = c->batch_samples,
        .global_samples = c->global_samples,
        .seq_tokens = c->seq_tokens,
        .optim = c->optim,
        .recompute = c->recompute,
        .dropout = c->dropout,
        .seed = c->seed,
        .is_loaded = is_loaded,
        .beat = beat,
        .beat_arg = t,
    };
    dev_info(c->dev, &info);
    t->peak_flops = info.peak_flops;
    TRY(step_open(&config, &t->step));
    t->post.model.parameters = step_table(t->step)->parameters;
    post(t, t->post.phase);
    return ST_OK;
}

static enum status import(struct trainer *t)
{
    struct load_target to = {step_table(t->step), step_stream(t->step), step_tensor(t->step, 0)};
    TRY(weights_load(t->config->model_path, &to));
    LOG_INFO("weights from %s", t->config->model_path);
    return ST_OK;
}

static enum status open_preview(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    struct preview_config config = {
        .prompt = c->sample_prompt,
        .rule = c->sample_rule,
        .seed = c->seed,
        .vocab = c->dims.vocab,
        .seq_tokens = c->seq_tokens,
    };
    return c->sample_every > 0 ? preview_open(&config, &t->preview) : ST_OK;
}

static enum status open_saver(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    struct saver_config config = {
        .snapshot = t->snapshot,
        .step = t->step,
        .dev = c->dev,
        .mode = c->checkpoint_mode,
        .is_periodic = c->checkpoint_every > 0,
        .memory_bytes = memory_free(),
        .kept = &t->kept,
        .beat = beat,
        .beat_arg = t,
    };
    TRY(snapshot_attach(t->snapshot, t->step));
    return saver_open(&config, &t->saver);
}

static enum status prepare(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    bool is_found;
    TRY(plan_steps(t));
    TRY(open_snapshot(t));
    TRY(find_checkpoint(t, &is_found));
    t->step_first = t->place.step;
    t->post.step = t->place.step;
    t->post.steps = t->steps;
    t->post.tokens = t->place.tokens;
    t->post.loading_done = t->post.loading_total = -1;
    if (is_found && t->place.step >= t->steps)
        return ST_OK; /* nothing to do: no need for memory */
    TRY(open_preview(t));
    TRY(metrics_file_open(c->metrics_file, t->place.step, &t->metrics));
    TRY(tfevents_open(c->tensorboard_dir, t->place.step + 1, &t->events));
    TRY(open_step(t, is_found));
    if (t->snapshot)
        TRY(open_saver(t));
    if (is_found)
        LOG_INFO("going on from %s: step %lld of %lld", t->kept.path, (long long)t->place.step,
                 (long long)t->steps);
    else if (c->model_path[0])
        TRY(import(t));
    return ST_OK;
}

/* ---- one step ---- */

static void rehearse(const struct trainer *t, bool *poison)
{
    const struct trainer_config *c = t->config;
    *poison = false;
    if (c->fault == TRAINER_FAULT_NONE || t->place.step + 1 != c->fault_step)
        return;
    LOG_WARN("FAULT: a rehearsed failure in step %lld", (long long)c->fault_step);
    if (c->fault == TRAINER_FAULT_KILL)
        guard_kill();
    if (c->fault == TRAINER_FAULT_STALL)
        guard_stall();
    *poison = true;
}

static void tell_tensorboard(struct trainer *t, double step_ms)
{
    const struct board_worker *p = &t->post;
    const struct tfevents_scalar scalars[] = {
        {"loss", p->loss},
        {"lr", p->lr},
        {"grad_norm", p->grad_norm},
        {"tokens_per_second", p->tokens_per_second},
        {"step_ms", step_ms},
        {"mfu", p->mfu},
    };
    tfevents_add(t->events, t->place.step, scalars, sizeof scalars / sizeof *scalars);
}

/* tell — the numbers of a finished step: board, metrics file, TensorBoard, console. */
static void tell(struct trainer *t, const struct step_result *result, double lr, int64_t epoch,
                 double step_ms)
{
    const struct trainer_config *c = t->config;
    struct board_worker *p = &t->post;
    int64_t step = t->place.step;
    pace_add(&t->pace, step_ms);
    t->steps_ms += step_ms;
    t->loss_last[step % LAST] = result->loss;
    if (step == t->step_first + 1)
        t->loss_first = result->loss;
    p->step = step;
    p->epoch = epoch;
    p->tokens = t->place.tokens;
    p->loss = result->loss;
    p->lr = lr;
    p->grad_norm = result->grad_norm;
    p->tokens_per_second = pace_per_second(&t->pace, (double)(c->global_samples * c->seq_tokens));
    p->mfu = t->peak_flops > 0 ? pace_per_second(&t->pace, step_flops(t->step)) / t->peak_flops : NAN;
    p->eta_seconds = pace_eta_seconds(&t->pace, t->steps - step);
    p->step_ms[p->step_ms_n++ % BOARD_STEPS_KEPT] = (float)step_ms;
    p->compute_ms = result->compute_ms;
    p->comm_ms = 0;
    p->wait_ms = step_ms > result->compute_ms ? step_ms - result->compute_ms : 0;
    post(t, BOARD_PHASE_TRAINING);
    metrics_file_step(&t->metrics, &(struct metrics_file_step){.step = step,
                                                               .epoch = epoch,
                                                               .tokens = t->place.tokens,
                                                               .loss = result->loss,
                                                               .grad_norm = result->grad_norm,
                                                               .lr = lr,
                                                               .step_ms = step_ms,
                                                               .stall_ms = t->stall_ms});
    t->stall_ms = 0;
    tell_tensorboard(t, step_ms);
    console_step(&t->console, &(struct console_step){.step = step,
                                                     .steps = t->steps,
                                                     .loss = result->loss,
                                                     .lr = lr,
                                                     .grad_norm = result->grad_norm,
                                                     .step_ms = step_ms,
                                                     .tokens_per_second = p->tokens_per_second,
                                                     .mfu = p->mfu,
                                                     .eta_seconds = p->eta_seconds});
}

static enum status one_step(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    struct rate_config rate = c->rate;
    struct step_result result;
    bool poison;
    rate.steps = t->steps;
    double lr = rate_at(&rate, t->place.step);
    int64_t epoch = feed_epoch(c->feed, t->place.samples);
    must_note("step %lld begins", (long long)t->place.step + 1);
    rehearse(t, &poison);
    if (t->saver)
        saver_look(t->saver);
    int64_t begin_ns = clock_ns();
    TRY(step_run(t->step, c->feed, t->place.step, t->place.samples, lr, poison, &result));
    t->place.step++;
    t->place.samples += c->global_samples;
    t->place.tokens += c->global_samples * c->seq_tokens;
    tell(t, &result, lr, epoch, (double)(clock_ns() - begin_ns) / 1e6);
    return ST_OK;
}

/* ---- evaluation, checkpoints, stops ---- */

static bool is_stop_asked(void *arg)
{
    const struct trainer *t = arg;
    beat(arg);
    return guard_is_stop(board_requested(t->config->board));
}

static enum status evaluate(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    double loss;
    if (!c->val_feed || t->step_evaluated == t->place.step)
        return ST_OK;
    must_note("evaluation after step %lld", (long long)t->place.step);
    post(t, BOARD_PHASE_EVALUATING);
    tfevents_flush(t->events); /* this may take long */
    enum status st = step_eval(t->step, c->val_feed, feed_samples(c->val_feed), is_stop_asked, t, &loss);
    if (st == ST_RETRY && is_stop_asked(t)) {
        LOG_INFO("evaluation after step %lld given up: %s", (long long)t->place.step,
                 guard_signal(board_requested(c->board)));
        return ST_OK;
    }
    TRY(st);
    t->step_evaluated = t->place.step;
    t->val_loss = t->post.val_loss = loss;
    post(t, BOARD_PHASE_TRAINING);
    metrics_file_eval(&t->metrics, t->place.step, loss);
    tfevents_add(t->events, t->place.step, &(struct tfevents_scalar){"val_loss", loss}, 1);
    console_clear(&t->console);
    log_console("step %lld/%lld  val_loss %.4f", (long long)t->place.step, (long long)t->steps, loss);
    return ST_OK;
}

static enum status sample(struct trainer *t)
{
    const char *text;
    if (is_stop_asked(t))
        return ST_OK;
    must_note("sample of text after step %lld", (long long)t->place.step);
    TRY(preview_text(t->preview, t->step, is_stop_asked, t, &text));
    console_clear(&t->console);
    log_console("step %lld/%lld  sample %s", (long long)t->place.step, (long long)t->steps, text);
    return ST_OK;
}

/* save — one checkpoint of where the run stands, in the midst of training. */
static void save(struct trainer *t, bool is_asked)
{
    if (!t->saver || t->kept.step == t->place.step)
        return;
    must_note("checkpoint of step %lld", (long long)t->place.step);
    post(t, BOARD_PHASE_CHECKPOINTING);
    tfevents_flush(t->events);
    console_clear(&t->console);
    if (saver_save(t->saver, &t->place, is_asked))
        t->stall_ms += t->kept.stall_ms;
    post(t, BOARD_PHASE_TRAINING);
}

/* newest — what a person may count on when a save failed. */
static const char *newest(const struct trainer *t, char *out, size_t cap)
{
    if (t->kept.step >= 0)
        text_format(out, cap, "the checkpoint of step %lld is intact", (long long)t->kept.step);
    else
        text_copy(out, cap, "there is no checkpoint yet");
    return out;
}

static enum status save_or_fail(struct trainer *t, const char *why)
{
    char kept[80];
    if (!t->saver)
        return ST_OK;
    must_note("the last checkpoint, of step %lld", (long long)t->place.step);
    post(t, BOARD_PHASE_CHECKPOINTING);
    tfevents_flush(t->events);
    console_clear(&t->console);
    enum status st = saver_finish(t->saver, &t->place);
    post(t, BOARD_PHASE_TRAINING);
    if (st == ST_OK)
        return ST_OK;
    struct status_saved saved;
    status_keep(&saved);
    return FAIL(st, "the checkpoint %s, of step %lld, failed: %s; %s", why, (long long)t->place.step,
                saved.message, newest(t, kept, sizeof kept));
}

static enum status stop(struct trainer *t, enum board_request request)
{
    const char *signal_name = guard_signal(request);
    enum status st = guard_status(request);
    long long step = t->place.step, steps = t->steps;
    console_clear(&t->console);
    if (t->place.step > 0)
        TRY(save_or_fail(t, signal_name));
    if (t->snapshot && t->place.step > 0)
        return FAIL(
            st, "stopped by %s after step %lld of %lld; checkpoint %s; the same command goes on from there",
            signal_name, step, steps, t->kept.path);
    if (t->place.step > 0)
        return FAIL(st,
                    "stopped by %s after step %lld of %lld; nothing is kept, for CHECKPOINT_DIR is not set",
                    signal_name, step, steps);
    return FAIL(st, "stopped by %s before the first step; there was nothing to save", signal_name);
}

/* between — what comes after a step, in this order: a checkpoint of step N follows all that was said about
 * step N. */
static enum status between(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    int64_t step = t->place.step;
    bool is_last = step == t->steps;
    if (c->eval_every > 0 && step % c->eval_every == 0 && !is_last)
        TRY(evaluate(t));
    if (c->sample_every > 0 && step % c->sample_every == 0)
        TRY(sample(t));
    enum board_request request = board_requested(c->board);
    if (guard_is_stop(request) && !is_last)
        return stop(t, request);
    if (is_last)
        return ST_OK;
    if (request == BOARD_REQUEST_SAVE || (c->checkpoint_every > 0 && step % c->checkpoint_every == 0))
        save(t, request == BOARD_REQUEST_SAVE);
    if (request == BOARD_REQUEST_SAVE)
        board_request_done(c->board, request);
    request = board_requested(c->board);
    return guard_is_stop(request) ? stop(t, request) : ST_OK;
}

/* ---- the end ---- */

static double mean_last(const struct trainer *t, int64_t *n_out)
{
    int64_t n = t->place.step - t->step_first;
    double sum = 0;
    *n_out = n < LAST ? n : LAST;
    for (int64_t i = 0; i < *n_out; i++)
        sum += t->loss_last[(t->place.step - i) % LAST];
    return sum / (double)*n_out;
}

static const char *elapsed(char *out, size_t cap, double ms)
{
    long long seconds = (long long)(ms / 1000);
    if (seconds >= 3600)
        return text_span(out, cap, (int64_t)ms);
    if (seconds >= 60)
        text_format(out, cap, "%lldm%02llds", seconds / 60, seconds % 60);
    else
        text_format(out, cap, "%.*f s", ms < 10000 ? 2 : 1, ms / 1000);
    return out;
}

static void summarise(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    char tokens[32], span[32], speed[32], mfu[32] = "", val[48] = "";
    int64_t n, steps = t->place.step - t->step_first;
    double mean = mean_last(t, &n), seconds = t->steps_ms / 1000;
    double trained = (double)(steps * c->global_samples * c->seq_tokens);
    if (t->peak_flops > 0)
        text_format(mfu, sizeof mfu, ", mfu %.1f%%",
                    100 * step_flops(t->step) * (double)steps / seconds / t->peak_flops);
    if (t->step_evaluated >= 0)
        text_format(val, sizeof val, "; held-out loss %.4f", t->val_loss);
    console_clear(&t->console);
    log_console("trained %lld step%s, %s tokens, in %s: %s tok/s%s", (long long)steps, steps == 1 ? "" : "s",
                text_count(tokens, sizeof tokens, trained),
                elapsed(span, sizeof span, t->steps_ms),
                text_count(speed, sizeof speed, trained / seconds), mfu);
    double last = t->loss_last[t->place.step % LAST];
    if (steps == 1)
        log_console("loss %.4f at step %lld%s", last, (long long)t->place.step, val);
    else
        log_console("loss %s from %.4f at step %lld to %.4f at step %lld (mean of the last %lld: %.4f)%s",
                    last < t->loss_first ? "fell" : "went", t->loss_first, (long long)t->step_first + 1, last,
                    (long long)t->place.step, (long long)n, mean, val);
    if (!t->snapshot)
        return;
    log_console("checkpoint %s", t->kept.path);
    if (c->dims.task == MODEL_TASK_LM)
        log_console("to write text: convoy generate CHECKPOINT_DIR='%s' PROMPT='The' TOKENS=100",
                    c->checkpoint_dir);
}

static enum status finish(struct trainer *t)
{
    TRY(evaluate(t));
    TRY(save_or_fail(t, "at the end"));
    summarise(t);
    return ST_OK;
}

static enum status loop(struct trainer *t)
{
    enum board_request request = board_requested(t->config->board);
    if (t->place.step >= t->steps) {
        log_console("nothing to do: %s has done %lld of %lld steps; set STEPS or EPOCHS higher to go on",
                    t->kept.path, (long long)t->place.step, (long long)t->steps);
        return ST_OK;
    }
    if (guard_is_stop(request))
        return stop(t, request);
    post(t, BOARD_PHASE_TRAINING);
    while (t->place.step < t->steps) {
        TRY(one_step(t));
        TRY(between(t));
    }
    return finish(t);
}

enum status trainer_run(const struct trainer_config *config)
{
    struct trainer t = {.config = config,
                        .console = {.is_terminal = config->is_terminal},
                        .kept = {.step = -1, .stall_ms = NAN, .save_ms = NAN},
                        .step_evaluated = -1};
    if (!board_worker_copy(config->board, config->worker_i, &t.post))
        return FAIL(ST_BUG, "worker %d trains before it has said who it is", config->worker_i);
    enum status st = prepare(&t);
    if (st == ST_OK)
        st = loop(&t);
    console_clear(&t.console);
    if (st == ST_OK)
        post(&t, BOARD_PHASE_DONE);
    metrics_file_close(&t.metrics);
    tfevents_close(t.events);
    preview_close(t.preview);
    saver_close(t.saver);
    snapshot_close(t.snapshot);
    step_close(t.step);
    return st;
}

/* trainer — see trainer.h. Read trainer_run first, at the foot: begin (trainer/begin.c), loop,
 * finish.
 *
 * All ranks run this loop in step. A fact that only one rank has (a request, the state of a disk)
 * is shared first (consensus.h): if a rank acted on it by itself, it would make calls that no other
 * rank makes. */
#include "train/feature/step_local.h"
#include "train/feature/step_update_sums.h"
#include "train/trainer/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/assert.h"
#include "base/text.h"
#include "train/trainer/stop_request.h"
#include "train/trainer/inside.h"
#include "train/step/lr_schedule.h"

/* per second: no GPU that CUDA 12 supports has less; a CPU's peak is measured */
#define SLOW_FLOPS 1e12
#define FILES_EVERY_MS 5000
#define PLANNED_MS_MAX INT64_C(86400000)

int64_t trainer_planned_ms(const struct trainer_config *c, double peak_flops, int ranks)
{
    /* The update of Muon on every rank, in tokens: five iterations on matrices of d × n, d the
     * width of the model, are at most 30·d FLOPs for each parameter, and a token is 6. Other
     * updates are short. */
    const double update_tokens =
        c->step.optim.kind == OPTIM_KIND_MUON ? 5.0 * (double)c->step.dims.embed * ranks : 0;
    double tokens = (double)(c->step.global_samples * c->step.seq_tokens) + update_tokens,
           peak = peak_flops > 0 ? peak_flops : SLOW_FLOPS * ranks;
    double ms = 1000 * model_flops_per_token(&c->step.dims, c->step.seq_tokens) * tokens / peak;
    return ms < PLANNED_MS_MAX ? (int64_t)ms + 1 : PLANNED_MS_MAX;
}

void trainer_heartbeat(void *arg)
{
    const struct trainer *t = arg;
    board_heartbeat(t->config->board, t->config->worker_i);
}

void trainer_publish(struct trainer *t, enum board_phase phase)
{
    struct board_checkpoint *p = &t->numbers.checkpoint;
    p->step = t->last_checkpoint.step;
    p->wall_ms = t->last_checkpoint.wall_ms;
    p->failures = t->last_checkpoint.failures;
    p->skipped = t->last_checkpoint.skipped;
    p->stall_ms = t->last_checkpoint.stall_ms;
    p->save_ms = t->last_checkpoint.save_ms;
    text_copy(p->path, sizeof p->path, t->last_checkpoint.path);
    text_copy(p->error, sizeof p->error, t->last_checkpoint.error);
    trainer_ledger_checkpoint(t);
    trainer_copy_publish(t);
    t->numbers.phase = phase;
    t->numbers.memory_bytes = memory_resident(&t->memory, clock_ms());
    board_worker_publish(t->config->board, t->config->worker_i, &t->numbers);
    trainer_heartbeat(t);
}

/* ---- one step ---- */

static enum status inject_fault(struct trainer *t, enum step_fault *out)
{
    const struct trainer_config *c = t->config;
    *out = STEP_FAULT_NONE;
    if (c->fault == TRAINER_FAULT_SLOW && t->progress.step + 1 > c->fault_step)
        clock_sleep_ms((int64_t)(2 * t->compute_ms + 1));
    if (c->fault == TRAINER_FAULT_NONE || t->progress.step + 1 != c->fault_step)
        return ST_OK;
    LOG_WARN("FAULT: injecting a failure in step %lld", (long long)c->fault_step);
    if (c->fault == TRAINER_FAULT_KILL)
        stop_request_kill();
    if (c->fault == TRAINER_FAULT_STALL)
        stop_request_stall();
    if (c->fault == TRAINER_FAULT_NAN)
        *out = STEP_FAULT_NAN;
    if (c->fault == TRAINER_FAULT_SPIKE)
        *out = STEP_FAULT_SPIKE;
    if (c->fault == TRAINER_FAULT_GRADIENT)
        trainer_sentinel_flip(t);
    if (c->fault != TRAINER_FAULT_FLIP)
        return ST_OK;
    /* Inverts the second highest bit of the exponent of a parameter of this rank's part. */
    struct store_flip flipped;
    TRY(step_flip(t->step, 29, &flipped));
    if (flipped.name[0] == '\0')
        LOG_WARN("FAULT: this rank updates no element, so none is inverted");
    else
        LOG_WARN("FAULT: element %lld of %s was %g, is %g", (long long)flipped.elem, flipped.name,
                 (double)flipped.before, (double)flipped.after);
    return ST_OK;
}

static void publish_tensorboard(struct trainer *t, double step_ms)
{
    const struct board_worker *p = &t->numbers;
    const struct tfevents_scalar scalars[] = {
        {"loss", p->loss},           {"lr", p->lr},
        {"grad_norm", p->grad_norm}, {"tokens_per_second", p->tokens_per_second},
        {"step_ms", step_ms},        {"mfu", p->mfu},
    };
    tfevents_add(t->events, t->progress.step, scalars, sizeof scalars / sizeof *scalars);
}

/* compute_hidden_share — Returns the share of the communication time in which this rank did not
 * wait; NAN if the device waits. */
static double compute_hidden_share(const struct trainer *t, const struct step_result *result)
{
    const struct comm *comm = t->config->step.comm; /* NULL: one rank */
    if (!(result->comm_ms > 0) || (comm != NULL && comm_stays_on_device(comm)))
        return NAN;
    return result->wait_ms < result->comm_ms ? 1 - result->wait_ms / result->comm_ms : 0;
}

/* skipped_word — Returns why a step made no update, or NULL if it made one. */
static const char *skipped_word(const struct step_result *result)
{
    const enum spike_cause cause = result->spike.cause;
    return cause == SPIKE_CAUSE_NONE         ? NULL
           : cause == SPIKE_CAUSE_NOT_FINITE ? "not finite"
                                             : "spike";
}

/* log_skipped — SPIKE=skip: rank 0 logs a skipped step. */
static void log_skipped(struct trainer *t, const struct step_result *r, int64_t samples)
{
    const struct spike_verdict *v = &r->spike;
    const bool is_loss = v->cause == SPIKE_CAUSE_LOSS;
    char what[160];
    if (v->cause == SPIKE_CAUSE_NONE || !t->is_rank0)
        return;
    text_format(what, sizeof what, "%s %g is %.1f deviations above the expected %g",
                is_loss ? "loss" : "gradient norm", is_loss ? r->loss : r->grad_norm, v->sigmas,
                v->expected);
    if (v->cause == SPIKE_CAUSE_NOT_FINITE)
        text_format(what, sizeof what, "loss %g, gradient norm %g", r->loss, r->grad_norm);
    console_flush(&t->console);
    LOG_WARN("step %lld: %s; its update is left out, and samples %lld to %lld are skipped (%d of "
             "%d at most in %d steps)",
             (long long)t->progress.step, what, (long long)(t->progress.samples - samples),
             (long long)t->progress.samples - 1, v->skipped_n, SPIKE_LIMIT, SPIKE_WINDOW);
}

/* publish_step — Sends the numbers of a finished step to board, metrics file, TensorBoard and
 * console. */
static void publish_step(struct trainer *t, const struct step_result *result, double lr,
                         int64_t epoch, double step_ms)
{
    const struct trainer_config *c = t->config;
    struct board_worker *p = &t->numbers;
    int64_t step = t->progress.step, samples = step_samples_at(&c->step, step - 1);
    console_pace_add(&t->pace, step_ms);
    t->steps_ms += step_ms;
    if (result->spike.cause != SPIKE_CAUSE_NOT_FINITE) {
        p->loss = result->loss;
        p->grad_norm = result->grad_norm;
    }
    if (result->spike.cause == SPIKE_CAUSE_NONE)
        t->loss_applied = result->loss;
    t->loss_last[step % TRAINER_LAST] = t->loss_applied;
    if (isnan(t->loss_first)) {
        t->loss_first = t->loss_applied;
        t->loss_first_step = step;
    }
    p->step = step;
    p->epoch = epoch;
    p->tokens = t->progress.tokens;
    if (c->chat) {
        p->trained_tokens = t->progress.trained;
        p->trained_share = (double)result->targets / (double)(samples * c->step.seq_tokens);
    }
    p->skipped_steps = t->progress.spikes.skipped_n;
    p->lr = lr;
    p->tokens_per_second =
        console_pace_per_second(&t->pace, (double)(samples * c->step.seq_tokens));
    p->mfu = t->peak_flops > 0
                 ? console_pace_per_second(&t->pace, step_flops(t->step, samples)) / t->peak_flops
                 : NAN;
    p->eta_seconds = console_pace_eta_seconds(&t->pace, t->steps - step);
    p->step_ms[p->step_ms_n++ % BOARD_STEPS_KEPT] = (float)step_ms;
    p->compute_ms = t->compute_ms = result->compute_ms;
    p->comm_ms = result->comm_ms;
    p->wait_ms = result->wait_ms;
    p->sent_bytes = result->sent_bytes;
    p->micro_batches = result->micro_batches;
    trainer_publish(t, BOARD_PHASE_TRAINING);
    const struct console_step line = {.step = step,
                                      .steps = t->steps,
                                      .loss = result->loss,
                                      .lr = lr,
                                      .grad_norm = result->grad_norm,
                                      .step_ms = step_ms,
                                      .tokens_per_second = p->tokens_per_second,
                                      .mfu = p->mfu,
                                      .eta_seconds = p->eta_seconds,
                                      .comm =
                                          t->consensus.ranks > 1 ? result->wait_ms / step_ms : 0,
                                      .hidden = compute_hidden_share(t, result)};
    if (t->is_first_of_node)
        console_step(&t->console, &line);
    if (!t->is_rank0)
        return;
    metrics_file_step(&t->metrics, &(struct metrics_file_step){.step = step,
                                                               .epoch = epoch,
                                                               .tokens = t->progress.tokens,
                                                               .trained = t->progress.trained,
                                                               .loss = result->loss,
                                                               .grad_norm = result->grad_norm,
                                                               .lr = lr,
                                                               .step_ms = step_ms,
                                                               .stall_ms = t->stall_ms,
                                                               .skipped = skipped_word(result),
                                                               .ranks = t->consensus.ranks,
                                                               .compute_ms = result->compute_ms,
                                                               .comm_ms = result->comm_ms,
                                                               .wait_ms = result->wait_ms,
                                                               .sent_bytes = result->sent_bytes});
    t->stall_ms = 0;
    publish_tensorboard(t, step_ms);
    console_step(&t->console, &line);
    if (c->on_step)
        c->on_step(c->on_step_arg, step_ms, result);
}

/* add_parallel — Adds the times that ranks which share a model waited for each other. The second
 * step replaces the first. */
static void add_parallel(struct trainer *t, const struct step_result *r, double step_ms)
{
    bool is_new = t->progress.step <= t->step_first + 2;
    t->parallel_ms = (is_new ? 0 : t->parallel_ms) + step_ms;
    t->pipe_ms = (is_new ? 0 : t->pipe_ms) + r->pipe_ms;
    t->pipe_wait_ms = (is_new ? 0 : t->pipe_wait_ms) + r->pipe_wait_ms;
    t->tensor_ms = (is_new ? 0 : t->tensor_ms) + r->tensor_ms;
    t->context_ms = (is_new ? 0 : t->context_ms) + r->context_ms;
}

/* sync_replicas — LOCAL_STEPS: makes the outer steps that are due, and one after the last step, so
 * that the result of a run is one model. */
static enum status sync_replicas(struct trainer *t, struct step_result *result)
{
    const int64_t step = t->progress.step;
    if (t->config->step.local.steps == 0)
        return ST_OK;
    assert_note("outer step after step %lld", (long long)step);
    TRY(step_local_sync(t->step, step, step == t->steps, result));
    t->progress.outer_steps += result->outer_steps;
    t->numbers.outer_steps = t->progress.outer_steps;
    t->progress.is_apart = step_local_is_apart(t->step);
    return ST_OK;
}

/* Calls the look of the config; result NULL: before the first step. */
static enum status call_look(const struct trainer *t, const struct step_result *result)
{
    const struct trainer_config *c = t->config;
    return c->look ? c->look(c->look_arg, t->step, result) : ST_OK;
}

static enum status one_step(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    struct lr_schedule_config rate = c->lr_schedule;
    struct step_result result;
    enum step_fault fault;
    rate.steps = t->schedule_steps;
    double lr = lr_schedule_at(
        &rate, lr_schedule_step(&t->schedule, t->progress.step, t->progress.samples));
    int64_t epoch = feed_epoch(c->feed, t->progress.samples),
            samples = step_samples_at(&c->step, t->progress.step);
    assert_note("step %lld begins", (long long)t->progress.step + 1);
    TRY(inject_fault(t, &fault));
    TRY(trainer_sentinel_obey(t));
    trainer_sentinel_ask(t);
    if (t->checkpoint_async)
        checkpoint_async_poll(t->checkpoint_async);
    int64_t begin_ns = clock_ns();
    step_vote(t->step, (int)board_requested(c->board));
    TRY(step_run(t->step, c->feed, t->progress.step, t->progress.samples, lr, fault, &result));
    t->request = (enum board_request)result.vote;
    t->numbers.comparisons += result.is_compared;
    t->progress.step++;
    t->progress.samples += samples;
    t->progress.tokens += samples * c->step.seq_tokens;
    t->progress.trained += c->chat ? result.targets : 0;
    t->progress.scale = step_loss_scale(t->step);
    step_spikes(t->step, &t->progress.spikes);
    TRY(sync_replicas(t, &result));
    double step_ms = (double)(clock_ns() - begin_ns) / 1e6;
    add_parallel(t, &result, step_ms);
    log_skipped(t, &result, samples);
    trainer_ledger_add(t, &result, samples);
    publish_step(t, &result, lr, epoch, step_ms);
    return call_look(t, &result);
}

/* ---- evaluation, checkpoints, stops ---- */

static bool is_stop_asked(void *arg)
{
    const struct trainer *t = arg;
    trainer_heartbeat(arg);
    return stop_request_is_stop(board_requested(t->config->board));
}

static enum status run_evaluation(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    struct step_evaluation found;
    if (!c->val_feed || t->step_evaluated == t->progress.step)
        return ST_OK;
    assert_note("evaluation after step %lld", (long long)t->progress.step);
    trainer_publish(t, BOARD_PHASE_EVALUATING);
    tfevents_flush(t->events); /* an evaluation may last long */
    enum status st =
        step_eval(t->step, c->val_feed, feed_samples(c->val_feed), is_stop_asked, t, &found);
    /* another rank's request is exchanged next */
    if (st == ST_RETRY && (t->consensus.ranks > 1 || is_stop_asked(t))) {
        LOG_INFO("evaluation after step %lld stopped: %s", (long long)t->progress.step,
                 stop_request_signal(board_requested(c->board)));
        return ST_OK;
    }
    TRY(st);
    step_run_forget_sent(t->step);
    t->step_evaluated = t->progress.step;
    t->val_loss = t->numbers.val_loss = found.loss;
    t->numbers.val_accuracy = found.accuracy;
    trainer_publish(t, BOARD_PHASE_TRAINING);
    if (!t->is_rank0)
        return ST_OK;
    metrics_file_eval(&t->metrics, t->progress.step, found.loss, found.accuracy);
    const bool has_accuracy = isfinite(found.accuracy);
    const struct log_number numbers[] = {{"step", (double)t->progress.step},
                                         {"steps", (double)t->steps},
                                         {"val_loss", found.loss},
                                         {"val_accuracy", found.accuracy}};
    const struct tfevents_scalar scalars[] = {{"val_loss", found.loss},
                                              {"val_accuracy", found.accuracy}};
    tfevents_add(t->events, t->progress.step, scalars, has_accuracy ? 2 : 1);
    console_flush(&t->console);
    char accuracy[40] = "";
    if (has_accuracy)
        text_format(accuracy, sizeof accuracy, "  accuracy %.1f%%", 100 * found.accuracy);
    log_numbers("evaluation", numbers, has_accuracy ? 4 : 3, "step %lld/%lld  val_loss %.4f%s",
                (long long)t->progress.step, (long long)t->steps, found.loss, accuracy);
    return ST_OK;
}

/* write_sample — Lets rank 0 write the text; if parameters are sharded, all ranks join its passes
 * until its end. */
static enum status write_sample(struct trainer *t)
{
    const char *text;
    if (!t->sample_text || (!t->are_passes_divided && is_stop_asked(t)))
        return ST_OK;
    assert_note("sample of text after step %lld", (long long)t->progress.step);
    TRY(sample_text_generate(t->sample_text, t->step, t->are_passes_divided ? NULL : is_stop_asked,
                             t, &text));
    step_run_forget_sent(t->step);
    if (!t->is_rank0)
        return ST_OK;
    /* For the status page and `convoy status`. */
    char blob[SAMPLE_TEXT_QUOTED_BYTES + 32];
    text_format(blob, sizeof blob, "%lld %s", (long long)t->progress.step, text);
    board_blob_publish(t->config->board, BOARD_BLOB_SAMPLE, blob, strlen(blob));
    console_flush(&t->console);
    log_console("step %lld/%lld  sample %s", (long long)t->progress.step, (long long)t->steps,
                text);
    return ST_OK;
}

/* serve_state — If the state is sharded, the other ranks send rank 0 their shards while it saves.
 * st: the status of saving. */
static enum status serve_state(struct trainer *t, enum status st)
{
    if (!t->is_sharded)
        return st;
    if (!t->is_rank0)
        return state_serve(step_state(t->step));
    struct status_saved saved;
    status_save(&saved);
    enum status st_end = state_end(step_state(t->step), ST_OK);
    if (st == ST_OK)
        return st_end;
    status_restore(&saved);
    return st;
}

/* begin_save — Updates phase, console and ledger. Returns true if this rank writes. */
static bool begin_save(struct trainer *t)
{
    ledger_file_sync(t->ledger);
    trainer_publish(t, BOARD_PHASE_CHECKPOINTING);
    tfevents_flush(t->events);
    console_clear(&t->console);
    return t->checkpoint_async != NULL;
}

/* is_enospc — FAULT=enospc: returns true if this checkpoint has to fail with a full disk. */
static bool is_enospc(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    if (c->fault != TRAINER_FAULT_ENOSPC || t->is_enospc_done || t->progress.step < c->fault_step)
        return false;
    t->is_enospc_done = true;
    t->last_checkpoint.failures++;
    text_copy(t->last_checkpoint.error, sizeof t->last_checkpoint.error,
              "no space left on device (FAULT=enospc)");
    LOG_WARN("checkpoint of step %lld failed, training goes on: %s", (long long)t->progress.step,
             t->last_checkpoint.error);
    return true;
}

/* check_files — Checks every few seconds, and before a checkpoint, that no data file is gone: no
 * checkpoint keeps results of missing data. */
static enum status check_files(struct trainer *t, bool is_due)
{
    if (!is_due && clock_ms() < t->files_check_ms)
        return ST_OK;
    t->files_check_ms = clock_ms() + FILES_EVERY_MS;
    return mapped_file_check();
}

/* save_checkpoint — Writes a checkpoint during training. */
static enum status save_checkpoint(struct trainer *t, bool is_asked)
{
    if (!t->has_checkpoint_dir)
        return ST_OK;
    TRY(check_files(t, true));
    TRY(trainer_sentinel(t, true));
    assert_note("checkpoint of step %lld", (long long)t->progress.step);
    bool is_due = begin_save(t) && t->last_checkpoint.step != t->progress.step && !is_enospc(t);
    if (is_due && checkpoint_async_save(t->checkpoint_async, &t->progress, is_asked))
        t->stall_ms += t->last_checkpoint.stall_ms;
    TRY(serve_state(t, ST_OK));
    trainer_publish(t, BOARD_PHASE_TRAINING);
    return ST_OK;
}

/* save_or_fail — Writes the last checkpoint. All ranks return the same status. */
static enum status save_or_fail(struct trainer *t, const char *why)
{
    if (!t->has_checkpoint_dir)
        return ST_OK;
    TRY(trainer_sentinel(t, true));
    assert_note("the last checkpoint, of step %lld", (long long)t->progress.step);
    enum status st =
        begin_save(t) ? checkpoint_async_finish(t->checkpoint_async, &t->progress) : ST_OK;
    st = serve_state(t, st);
    trainer_publish(t, BOARD_PHASE_TRAINING);
    if (st != ST_OK && t->is_rank0) {
        struct status_saved saved;
        char kept[80] = "there is no checkpoint yet";
        if (t->last_checkpoint.step >= 0)
            text_format(kept, sizeof kept, "the checkpoint of step %lld is intact",
                        (long long)t->last_checkpoint.step);
        status_save(&saved);
        FAIL(st, "the last checkpoint (%s, step %lld) failed: %s; %s", why,
             (long long)t->progress.step, saved.message, kept);
    }
    return consensus_outcome(&t->consensus, st);
}

static enum status stop_run(struct trainer *t, enum board_request request)
{
    const char *signal_name = stop_request_signal(request);
    enum status st = stop_request_status(request);
    long long step = t->progress.step, steps = t->steps;
    console_flush(&t->console);
    if (t->progress.step > 0)
        TRY(save_or_fail(t, signal_name));
    if (!t->is_rank0 && t->has_checkpoint_dir && t->progress.step > 0)
        return FAIL(st, "stopped by %s after step %lld of %lld; rank 0 keeps the checkpoint",
                    signal_name, step, steps);
    if (t->checkpoint && t->progress.step > 0)
        return FAIL(st,
                    "stopped by %s after step %lld of %lld; checkpoint %s; the same command "
                    "resumes from it",
                    signal_name, step, steps, t->last_checkpoint.path);
    if (t->progress.step > 0)
        return FAIL(st,
                    "stopped by %s after step %lld of %lld; nothing was saved, because "
                    "CHECKPOINT_DIR is not set",
                    signal_name, step, steps);
    return FAIL(st, "stopped by %s before the first step; there was nothing to save", signal_name);
}

/* exchange_request — Finds the highest request that any rank has received. */
static enum status exchange_request(const struct trainer *t, enum board_request *out)
{
    return consensus_request(&t->consensus, board_requested(t->config->board), out);
}

/* after_step — Does evaluation, sample, checkpoint and stop, in this order: a checkpoint of step N
 * comes after all output about step N. */
static enum status after_step(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    int64_t step = t->progress.step;
    bool is_last = step == t->end;
    if (c->eval_every > 0 && step % c->eval_every == 0 && !is_last)
        TRY(run_evaluation(t));
    if (c->sample_every > 0 && step % c->sample_every == 0)
        TRY(write_sample(t));
    if (is_last)
        return ST_OK;
    /* Ranks have exchanged requests within the step: a message here would wait for the
     * communication that runs during the next step's forward pass. */
    enum board_request request = t->consensus.ranks == 1 ? board_requested(c->board) : t->request;
    if (stop_request_is_stop(request))
        return stop_run(t, request);
    bool is_asked = request == BOARD_REQUEST_SAVE;
    if (!is_asked && (c->checkpoint_every == 0 || step % c->checkpoint_every != 0))
        return ST_OK;
    TRY(save_checkpoint(t, is_asked));
    if (is_asked)
        board_request_done(c->board, request);
    TRY(exchange_request(t, &request));
    step_run_forget_sent(t->step);
    return stop_request_is_stop(request) ? stop_run(t, request) : ST_OK;
}

/* ---- run ---- */

static enum status run_loop(struct trainer *t)
{
    enum board_request request;
    if (t->progress.step >= t->end) {
        if (t->is_rank0)
            trainer_end_early(t);
        return ST_OK;
    }
    TRY(exchange_request(t, &request));
    if (stop_request_is_stop(request))
        return stop_run(t, request);
    trainer_publish(t, BOARD_PHASE_TRAINING);
    step_run_forget_sent(t->step);
    TRY(step_update_sums_keep(t->step, t->progress.step));
    trainer_sentinel_begin(t);
    TRY(call_look(t, NULL));
    while (t->progress.step < t->end) {
        TRY(trainer_sentinel_explain(t, one_step(t)));
        TRY(trainer_sentinel(t, false));
        TRY(check_files(t, false));
        TRY(after_step(t));
    }
    TRY(run_evaluation(t));
    TRY(check_files(t, true));
    TRY(save_or_fail(t, "at the end of training"));
    if (t->is_rank0)
        trainer_end(t);
    if (t->is_first_of_node) {
        console_flush(&t->console);
        log_console("done at step %lld; node 0 has the summary and the checkpoints",
                    (long long)t->progress.step);
    }
    return ST_OK;
}

enum status trainer_run(const struct trainer_config *config)
{
    struct trainer t = {.config = config,
                        .console = {.is_terminal = config->is_terminal, .every = config->log_every},
                        .last_checkpoint = {.step = -1, .stall_ms = NAN, .save_ms = NAN},
                        .step_evaluated = -1,
                        .loss_first = NAN,
                        .loss_applied = NAN};
    if (!board_worker_copy(config->board, config->worker_i, &t.numbers))
        return FAIL(ST_BUG, "worker %d trains before it has registered on the board",
                    config->worker_i);
    consensus_init(&t.consensus, config->step.comm);
    t.is_rank0 = consensus_is_rank0(&t.consensus);
    t.is_first_of_node = config->is_brief && !t.is_rank0;
    t.console.is_brief = t.is_first_of_node;
    t.needs_transfer = t.consensus.ranks > 1 || dev_is_discrete(config->step.dev) ||
                       config->step.local.steps > 0 || config->step.optim.kind == OPTIM_KIND_MUON;
    t.is_sharded = step_mesh_divides_state(&config->step, t.consensus.ranks);
    t.are_passes_divided = step_mesh_divides_passes(&config->step, t.consensus.ranks);
    enum status st = trainer_begin(&t);
    st = st == ST_OK ? run_loop(&t) : st;
    trainer_sentinel_sums_end(&t, st);
    console_flush(&t.console);
    if (st == ST_OK)
        trainer_publish(&t, BOARD_PHASE_DONE);
    struct status_saved saved;
    status_save(&saved);
    metrics_file_close(&t.metrics);
    tfevents_close(t.events);
    sample_text_close(t.sample_text);
    trainer_copy_end(&t, st);
    checkpoint_async_close(t.checkpoint_async);
    ledger_file_close(t.ledger);
    checkpoint_close(t.checkpoint);
    step_close(t.step);
    status_restore(&saved);
    return st;
}

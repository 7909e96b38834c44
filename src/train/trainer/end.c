/* trainer_end — the summary on the console. */
#include "train/trainer/inside.h"

#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "data/tokenizer/gpt2.h"
#include "data/tokenizer/tokenizer.h"
#include "mesh/pipe/pipe.h"

static double mean_last(const struct trainer *t, int64_t *n_out)
{
    int64_t n = t->progress.step - t->step_first;
    double sum = 0;
    *n_out = n < TRAINER_LAST ? n : TRAINER_LAST;
    for (int64_t i = 0; i < *n_out; i++)
        sum += t->loss_last[(t->progress.step - i) % TRAINER_LAST];
    return sum / (double)*n_out;
}

static const char *format_elapsed(char *out, size_t cap, double ms)
{
    long long seconds = (long long)(ms / 1000);
    if (seconds >= 3600)
        return text_format_span(out, cap, (int64_t)ms);
    if (seconds >= 60)
        text_format(out, cap, "%lldm%02llds", seconds / 60, seconds % 60);
    else
        text_format(out, cap, "%.*f s", ms < 10000 ? 2 : 1, ms / 1000);
    return out;
}

/* log_pipe — Logs how long the first stage waited for others, and the schedule's formula for it. */
static void log_pipe(const struct trainer *t)
{
    const struct step_config *c = &t->config->step;
    struct mesh mesh;
    if (t->pipe_ms <= 0 || step_mesh(c, t->consensus.ranks, &mesh) != ST_OK)
        return;
    int64_t samples = c->global_samples / mesh.size[MESH_AXIS_DATA];
    struct pipe pipe = {.stages = mesh.size[MESH_AXIS_PIPELINE],
                        .micros = (int)(samples / c->batch_samples),
                        .chunks = c->pipe_chunks > 0 ? c->pipe_chunks : 1};
    log_console("pipeline: the first stage waited for messages in %.1f%% of its passes' time; %s "
                "with %d stages and %d micro-batch%s: %.1f%% if all runs of layers need equal time",
                100 * t->pipe_wait_ms / t->pipe_ms, pipe.chunks > 1 ? "interleaved" : "1f1b",
                pipe.stages, pipe.micros, pipe.micros == 1 ? "" : "es", 100 * pipe_bubble(&pipe));
}

/* log_axis — Logs the time of the first rank's calls to the ranks with which it shares matrices or
 * samples. */
static void log_axis(const struct trainer *t, const char *axis, double ms)
{
    if (ms > 0)
        log_console("%s parallelism: communication took %.1f%% of the steps' time, and no "
                    "computation ran during it",
                    axis, 100 * ms / t->parallel_ms);
}

static void log_skipped(const struct trainer *t)
{
    const long long n = (long long)t->progress.spikes.skipped_n;
    if (n > 0)
        log_console("%lld of all %lld steps made no update (SPIKE=skip)", n,
                    (long long)t->progress.step);
}

/* Logs the samples after the last step, fewer than one step. */
static void log_left_out(const struct trainer *t)
{
    const struct trainer_config *c = t->config;
    if (c->steps == 0 && t->samples_left > 0 && t->progress.step >= t->steps)
        log_console("the last %lld of %lld samples (EPOCHS=%lld) are fewer than one step of "
                    "GLOBAL_BATCH=%lld, and are left out",
                    (long long)t->samples_left, (long long)t->samples, (long long)c->epochs,
                    (long long)c->step.global_samples);
}

void trainer_end_early(const struct trainer *t)
{
    log_left_out(t);
    log_console("nothing to do: %s has done %lld of %lld steps; raise %s to continue",
                t->last_checkpoint.path, (long long)t->progress.step, (long long)t->steps,
                t->end < t->steps ? "STOP_AFTER" : "STEPS or EPOCHS");
}

/* has_tokenizer — Returns true if generate finds a tokenizer for the model: a model with a smaller
 * vocabulary than GPT-2's, and without a tokenizer of its own, was trained on token ids. */
static bool has_tokenizer(const struct trainer_config *c)
{
    uint64_t identity[2] = {0};
    if (c->tokenizer)
        tokenizer_identity(c->tokenizer, identity);
    return identity[0] != 0 || identity[1] != 0 || c->step.dims.vocab >= TOKENIZER_GPT2_VOCAB;
}

/* log_next_command — Logs the command that uses the model. */
static void log_next_command(const struct trainer_config *c)
{
    const bool is_adapter = c->step.dims.adapter.r > 0;
    char model[FILE_PATH_MAX + 32] = "";
    if (is_adapter)
        text_format(model, sizeof model, "MODEL='%s' ", trainer_model_name(c));
    log_console("to %s: %s %s %s%s='%s'%s%s", c->chat ? "talk" : "write text", program_name(),
                c->chat ? "chat" : "generate", model, is_adapter ? "ADAPTER" : "CHECKPOINT_DIR",
                c->checkpoint_dir, is_adapter && c->ignores_tensors ? " IGNORE_TENSORS=1" : "",
                c->chat ? "" : " PROMPT='The' TOKENS=100");
}

void trainer_end(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    char tokens[32], span[32], speed[32], mfu[32] = "", val[48] = "";
    int64_t n, steps = t->progress.step - t->step_first;
    double mean = mean_last(t, &n), seconds = t->steps_ms / 1000;
    int64_t samples = t->progress.samples - t->samples_first;
    double trained = (double)(samples * c->step.seq_tokens);
    if (t->peak_flops > 0)
        text_format(mfu, sizeof mfu, ", mfu %.1f%%",
                    100 * step_flops(t->step, samples) / seconds / t->peak_flops);
    if (t->step_evaluated >= 0)
        text_format(val, sizeof val, "; held-out loss %.4f", t->val_loss);
    console_flush(&t->console);
    log_console("trained %lld step%s, %s tokens, in %s: %s tok/s%s", (long long)steps,
                steps == 1 ? "" : "s", text_format_count(tokens, sizeof tokens, trained),
                format_elapsed(span, sizeof span, t->steps_ms),
                text_format_count(speed, sizeof speed, trained / seconds), mfu);
    log_skipped(t);
    log_left_out(t);
    log_axis(t, "tensor", t->tensor_ms);
    log_axis(t, "context", t->context_ms);
    log_pipe(t);
    double last = t->loss_last[t->progress.step % TRAINER_LAST];
    if (steps == 1)
        log_console("loss %.4f at step %lld%s", last, (long long)t->progress.step, val);
    else
        log_console(
            "loss %s from %.4f at step %lld to %.4f at step %lld (mean of the last %lld: %.4f)%s",
            last < t->loss_first ? "fell" : "went", t->loss_first, (long long)t->loss_first_step,
            last, (long long)t->progress.step, (long long)n, mean, val);
    if (!t->checkpoint)
        return;
    log_console("checkpoint %s", t->last_checkpoint.path);
    if (c->step.dims.task == MODEL_TASK_LM && has_tokenizer(c))
        log_next_command(c);
}

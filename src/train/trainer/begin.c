/* trainer_begin — from a configuration to a step that can run: checkpoint, memory, weights. Read
 * trainer_begin first, at the foot. Rank 0 finds and reads the checkpoint, and sends the other
 * ranks their shards. */
#include "train/feature/step_local.h"
#include "train/trainer/inside.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/assert.h"
#include "base/text.h"
#include "train/checkpoint/checkpoint.h"
#include "train/step/lr_schedule.h"
#include "train/weights/adapter.h"
#include "train/weights/weights.h"

static void heartbeat_bytes(void *arg, int64_t bytes)
{
    (void)bytes;
    trainer_heartbeat(arg);
}

/* ---- prepare ---- */

static enum status fail_uncountable(const struct trainer *t)
{
    return FAIL(ST_BAD_SETTING,
                "EPOCHS=%lld times %lld samples is more than can be counted; set STEPS instead",
                (long long)t->config->epochs, (long long)feed_samples(t->config->feed));
}

/* Sets the steps that EPOCHS passes over the data make from the run's progress on.
 * An incomplete last step is left out. */
static enum status plan_samples(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    if (__builtin_mul_overflow(feed_samples(c->feed), c->epochs, &t->samples))
        return fail_uncountable(t);
    t->samples_left = t->samples > t->progress.samples ? t->samples - t->progress.samples : 0;
    const int64_t steps = step_count(&c->step, t->progress.step, &t->samples_left);
    if (__builtin_add_overflow(t->progress.step, steps, &t->steps))
        return fail_uncountable(t);
    if (t->steps > 0)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "DATA has %lld samples of SEQ_LEN=%lld tokens; EPOCHS=%lld times that number is "
                "less than one step of GLOBAL_BATCH=%lld samples; use more text, a smaller "
                "GLOBAL_BATCH or SEQ_LEN, or more EPOCHS",
                (long long)feed_samples(c->feed), (long long)c->step.seq_tokens,
                (long long)c->epochs, (long long)c->step.global_samples);
}

/* Sets the steps of the run, the steps of its learning-rate schedule, and the last step of
 * this process: from STEPS, or from EPOCHS and the samples that the run has trained on. */
static enum status plan_steps(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    t->schedule = (struct lr_schedule_unit){.samples = 0};
    t->steps = c->steps;
    if (c->steps == 0) {
        t->schedule = t->progress.schedule;
        TRY(plan_samples(t));
    }
    t->schedule_steps = lr_schedule_steps(&t->schedule, t->steps, t->samples);
    t->end = c->stop_after > 0 && c->stop_after < t->steps ? c->stop_after : t->steps;
    return ST_OK;
}

/* open_checkpoint — Opens the checkpoint folder, on rank 0 only. */
static enum status open_checkpoint(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    if (!c->checkpoint_dir[0]) {
        if (c->resume == TRAINER_RESUME_REQUIRED)
            return FAIL(
                ST_BAD_SETTING,
                "RESUME=required needs CHECKPOINT_DIR; set it to the folder of the run to resume");
        return ST_OK;
    }
    struct checkpoint_config config = {
        .dims = &c->step.dims,
        .dir = c->checkpoint_dir,
        .keep = c->checkpoint_keep,
        .settings_json = c->settings_json,
        .commits_json = c->commits_json,
        .version = c->version,
        .seed = c->step.seed,
        .data_fingerprint = feed_fingerprint(c->feed),
        .heartbeat = {heartbeat_bytes, t},
        .needs_transfer = t->needs_transfer,
    };
    return checkpoint_open(&config, &t->checkpoint);
}

/* check_aside — Refuses to move the checkpoints of a folder aside if the run reads one of them. */
static enum status check_aside(const char *dir, const char *path, const char *setting,
                               const char *name)
{
    char own[PATH_MAX], other[PATH_MAX];
    if (!path || !path[0] || !realpath(dir, own) || !realpath(path, other))
        return ST_OK;
    const size_t n = strlen(own);
    if (strncmp(own, other, n) != 0 || (other[n] != 0 && other[n] != '/'))
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "CHECKPOINT_DIR=%s holds %s=%s, and RESUME=never would move it aside; use another "
                "CHECKPOINT_DIR",
                dir, setting, name);
}

static enum status find_checkpoint(struct trainer *t, bool *found_out)
{
    const struct trainer_config *c = t->config;
    *found_out = false;
    if (!t->checkpoint)
        return ST_OK;
    if (c->resume == TRAINER_RESUME_NEVER) {
        TRY(check_aside(c->checkpoint_dir, c->model_path, "MODEL", trainer_model_name(c)));
        TRY(check_aside(c->checkpoint_dir, c->adapter_path, "ADAPTER", c->adapter_path));
        return checkpoint_aside(c->checkpoint_dir);
    }
    TRY(checkpoint_find(t->checkpoint, &t->progress, found_out, t->last_checkpoint.path,
                        sizeof t->last_checkpoint.path));
    TRY(plan_steps(t));
    if (*found_out && t->progress.step >= t->end)
        TRY(checkpoint_verify(t->checkpoint, &t->progress, found_out, t->last_checkpoint.path,
                              sizeof t->last_checkpoint.path));
    if (*found_out) {
        t->last_checkpoint.step = t->progress.step;
        t->last_checkpoint.wall_ms = clock_wall_ms();
    } else if (c->resume == TRAINER_RESUME_REQUIRED) {
        return FAIL(ST_BAD_DATA,
                    "RESUME=required, but CHECKPOINT_DIR=%s holds no valid checkpoint; check the "
                    "folder, or set RESUME=auto to start anew",
                    c->checkpoint_dir);
    }
    return ST_OK;
}

/* open_step — Allocates memory. is_loaded: a checkpoint sets every parameter, so none is drawn. */
static enum status open_step(struct trainer *t, bool is_loaded)
{
    const struct trainer_config *c = t->config;
    struct dev_info info;
    struct step_config config = c->step;
    config.is_loaded = is_loaded;
    config.heartbeat = trainer_heartbeat;
    config.heartbeat_arg = t;
    config.feature = t->peer_copy ? &trainer_copy_feature : NULL;
    config.feature_arg = t;
    dev_info(c->step.dev, &info);
    t->peak_flops = (c->step.store.dtype == DTYPE_F32 ? info.peak_flops : info.peak_flops_16) *
                    t->consensus.ranks;
    if (t->peak_flops == 0 && t->is_rank0)
        LOG_INFO("mfu is unknown: %s is not in the table of peaks (a part of a chip has none)",
                 info.name);
    TRY(step_open(&config, &t->step));
    t->numbers.planned_ms = trainer_planned_ms(c, t->peak_flops, t->consensus.ranks);
    const int64_t trained = step_whole_table(t->step)->parameters,
                  frozen = step_frozen_table(t->step)->parameters;
    t->numbers.model.parameters = trained + frozen;
    t->numbers.model.adapter.trained = trained;
    t->numbers.model.adapter.frozen = frozen;
    trainer_publish(t, t->numbers.phase);
    return ST_OK;
}

/* The start of the run, as rank 0 finds it. */
struct start {
    struct checkpoint_progress progress;
    bool is_found, has_checkpoint_dir;
};

/* report_beginning — On rank 0: reports that the steps of earlier generations are lost. */
static void report_beginning(const struct trainer *t)
{
    LOG_WARN("no state is in memory, and %s%s: the job starts from the beginning (step 0)",
             t->checkpoint ? "there is no checkpoint in " : "CHECKPOINT_DIR is not set",
             t->checkpoint ? t->config->checkpoint_dir : "");
}

/* find_start — Finds the start on rank 0, and broadcasts it. */
static enum status find_start(struct trainer *t, struct start *start)
{
    enum status st = ST_OK;
    *start = (struct start){0};
    if (t->is_rank0) {
        start->is_found = t->is_from_memory;
        st = open_checkpoint(t);
        if (st == ST_OK && !t->is_from_memory)
            st = find_checkpoint(t, &start->is_found);
        if (st == ST_OK && !start->is_found && t->config->is_repeated)
            report_beginning(t);
        start->progress = t->progress;
        start->has_checkpoint_dir = t->checkpoint != NULL;
    }
    TRY(consensus_outcome(&t->consensus, st));
    TRY(consensus_broadcast(&t->consensus, start, sizeof *start));
    t->progress = start->progress;
    t->has_checkpoint_dir = start->has_checkpoint_dir;
    return ST_OK;
}

/* open_files — Opens the files and output of a run. */
static enum status open_files(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    char dir[FILE_PATH_MAX];
    /* Rank 0 writes the text; the others join its passes. */
    if (c->sample_every > 0 && (t->is_rank0 || t->are_passes_divided)) {
        const struct sample_text_config config = {
            .prompt = c->sample_prompt,
            .rule = c->sampling_params,
            .seed = c->step.seed,
            .vocab = c->step.dims.vocab,
            .seq_tokens = c->step.seq_tokens,
            .tokenizer = c->tokenizer,
            .chat = c->chat,
        };
        TRY(sample_text_open(&config, &t->sample_text));
    }
    if (!t->is_rank0)
        return ST_OK;
    TRY(metrics_file_open(c->metrics_file, t->progress.step, &t->metrics));
    text_copy(dir, sizeof dir, c->tensorboard_dir ? c->tensorboard_dir : "");
    if (dir[0] && c->run_name && c->run_name[0])
        TRY(file_join(dir, sizeof dir, c->tensorboard_dir, c->run_name));
    return tfevents_open(dir, t->progress.step + 1, &t->events);
}

/* ---- the frozen weights of an adapter's model ---- */

#define F16_BEYOND 65520.0f /* it rounds to infinity, as all numbers beyond it */

static enum status put_frozen(void *arg, int64_t first, int64_t n, const float *values)
{
    const struct trainer *t = arg;
    const struct param_table *table = step_frozen_table(t->step);
    const float most = t->config->step.store.dtype == DTYPE_F16 ? F16_BEYOND : INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]) || fabsf(values[i]) >= most)
            return FAIL(
                ST_BAD_DATA,
                "%s: element %lld of %s is %g; the weights are damaged, or beyond the range "
                "of PRECISION=fp16: use others, or PRECISION=bf16",
                t->config->model_path,
                (long long)(first + i - table->param[param_at(table, first + i)].offset),
                table->param[param_at(table, first + i)].name, (double)values[i]);
    return state_write(step_frozen_state(t->step), 0, first, n, values);
}

/* load_weights — Loads the weights of model_path. If this is a damaged checkpoint, and MODEL is the
 * folder with it, loads the newest one there that is not, with a warning. */
static enum status load_weights(const struct trainer_config *c, const struct load_target *to)
{
    const char *folder = trainer_model_name(c);
    const enum status st = weights_load(c->model_path, to);
    if (st != ST_BAD_DATA || strcmp(folder, c->model_path) == 0 || !weights_are_ckpt(folder))
        return st;
    status_clear();
    return weights_load(folder, to);
}

/* load_frozen — On rank 0: loads the weights of model_path, and computes their sum. */
static enum status load_frozen(struct trainer *t)
{
    char count[2][32];
    const struct load_target to = {.table = step_frozen_table(t->step),
                                   .put = put_frozen,
                                   .arg = t,
                                   .sum = load_sum_open(),
                                   .ignores_tensors = t->config->ignores_tensors};
    const enum status st = load_weights(t->config, &to);
    load_sum_close(to.sum, t->base_sha256);
    TRY(st);
    LOG_INFO("weights from %s, SHA-256 %s; %s parameters are frozen, and an adapter "
             "of %s trains",
             t->config->model_path, t->base_sha256,
             text_format_count(count[0], 32, (double)to.table->parameters),
             text_format_count(count[1], 32, (double)step_whole_table(t->step)->parameters));
    return t->checkpoint
               ? checkpoint_set_base(t->checkpoint, t->base_sha256, trainer_model_name(t->config))
               : ST_OK;
}

/* check_frozen — Fails on all ranks if the state comes from copies in memory of a run on other
 * frozen weights. Else records the weights of this run. */
static enum status check_frozen(struct trainer *t)
{
    TRY(consensus_broadcast(&t->consensus, t->base_sha256, sizeof t->base_sha256));
    const uint64_t is = XXH3_64bits(t->base_sha256, strlen(t->base_sha256));
    if (t->is_from_memory && t->progress.frozen != 0 && t->progress.frozen != is)
        return FAIL(
            ST_BAD_SETTING,
            "MODEL=%s changed during the run: its weights have SHA-256 %s now; set MODEL to "
            "the weights with which the run began, such as one checkpoint of a folder",
            trainer_model_name(t->config), t->base_sha256);
    t->progress.frozen = is;
    return ST_OK;
}

/* load_adapter — On rank 0: loads the adapter of adapter_path, with which the run starts. */
static enum status load_adapter(struct trainer *t)
{
    struct checkpoint_put put = {t->step, 0};
    const struct load_target to = checkpoint_target(&put, t->needs_transfer);
    struct adapter *adapter;
    TRY(adapter_open(t->config->adapter_path, &t->config->step.dims, &adapter));
    enum status st = adapter_check(adapter, t->base_sha256, t->config->model_path);
    if (st == ST_OK)
        st = load_params(&to, adapter_load_file(adapter));
    if (st == ST_OK)
        LOG_INFO("adapter from %s", adapter_path(adapter));
    adapter_close(adapter);
    return st;
}

/* load_state — On rank 0: loads the checkpoint. Without one, loads the weights of model_path, or,
 * if they are frozen, the adapter of adapter_path. */
static enum status load_state(struct trainer *t)
{
    const bool is_found = t->is_found;
    if (t->checkpoint)
        TRY(checkpoint_attach(t->checkpoint, t->step, &t->progress, t->last_checkpoint.path,
                              sizeof t->last_checkpoint.path));
    if (is_found) {
        /* an older one if the newest was damaged */
        t->last_checkpoint.step = t->progress.step;
        TRY(plan_steps(t));
        char samples[96] = "";
        if (t->config->steps == 0)
            text_format(samples, sizeof samples, ", sample %lld of %lld",
                        (long long)t->progress.samples, (long long)t->samples);
        LOG_INFO("resuming from %s: step %lld of %lld%s", t->last_checkpoint.path,
                 (long long)t->progress.step, (long long)t->steps, samples);
    } else if (t->config->step.dims.adapter.r > 0) {
        TRY(t->config->adapter_path && t->config->adapter_path[0] ? load_adapter(t) : ST_OK);
    } else if (t->config->model_path[0]) {
        struct checkpoint_put put = {t->step, 0};
        struct load_target to = checkpoint_target(&put, t->needs_transfer);
        to.ignores_tensors = t->config->ignores_tensors;
        TRY(load_weights(t->config, &to));
        LOG_INFO("weights from %s", t->config->model_path);
    }
    return ST_OK;
}

/* load_on_all — Loads on rank 0, and sends every rank its values of a state. */
static enum status load_on_all(struct trainer *t, const struct state *state,
                               enum status (*load)(struct trainer *t))
{
    if (t->consensus.ranks == 1)
        return load(t);
    if (!t->is_rank0) {
        enum status st = state_serve(state);
        if (st != ST_OK)
            status_clear(); /* rank 0's message follows, unless it is lost */
        TRY(consensus_outcome(&t->consensus, st));
        return st == ST_OK ? ST_OK : FAIL(st, "the checkpoint could not be sent to all ranks");
    }
    enum status st = load(t);
    struct status_saved saved;
    status_save(&saved);
    enum status st_end = state_end(state, st);
    if (st != ST_OK)
        status_restore(&saved);
    return consensus_outcome(&t->consensus, st != ST_OK ? st : st_end);
}

static void begin_at_progress(struct trainer *t)
{
    t->step_first = t->numbers.begun_step = t->progress.step;
    t->numbers.step = t->progress.step;
    t->samples_first = t->progress.samples;
    t->numbers.tokens = t->progress.tokens;
    if (t->config->chat)
        t->numbers.trained_tokens = t->progress.trained;
    t->numbers.outer_steps = t->progress.outer_steps;
    t->numbers.skipped_steps = t->progress.spikes.skipped_n;
}

/* check_arithmetic — Checks that all ranks round alike, if a result must not depend on the rank
 * that computes it. */
static enum status check_arithmetic(const struct trainer *t)
{
    const struct trainer_config *c = t->config;
    struct consensus_differs differs;
    if (c->step.shards == 0 || !c->arithmetic)
        return ST_OK;
    TRY(consensus_compare(&t->consensus, c->arithmetic, &differs));
    if (differs.rank == 0)
        return ST_OK;
    return FAIL(
        ST_BAD_SETTING,
        "EXACT=layout: rank %d computes on %s, and rank 0 on %s. Their results have other "
        "bits, so the weights would depend on the worker that computes a virtual shard; use "
        "devices of one kind with the same libraries, or EXACT=off (BALANCE=auto and "
        "ON_LOSS=shrink do not need it)",
        differs.rank, differs.own, differs.rank0);
}

enum status trainer_begin(struct trainer *t)
{
    struct start start;
    TRY(plan_steps(t)); /* a new run has at least one step */
    TRY(check_arithmetic(t));
    TRY(trainer_copy_begin(t));
    TRY(find_start(t, &start));
    TRY(plan_steps(t));
    t->numbers.steps = t->steps;
    t->numbers.loading_done = t->numbers.loading_total = -1;
    begin_at_progress(t);
    if (start.is_found && t->progress.step >= t->end)
        return ST_OK; /* all steps are done: no memory is needed */
    TRY(open_step(t, start.is_found));
    t->is_found = start.is_found;
    if (t->config->step.dims.adapter.r > 0) {
        TRY(load_on_all(t, step_frozen_state(t->step), load_frozen));
        TRY(check_frozen(t));
    }
    const uint64_t frozen = t->progress.frozen; /* a checkpoint does not hold it */
    TRY(t->is_from_memory ? trainer_copy_restore(t)
                          : load_on_all(t, step_state(t->step), load_state));
    t->progress.frozen = frozen;
    step_loss_scale_set(t->step, t->progress.scale);
    step_spikes_set(t->step, &t->progress.spikes);
    t->progress.is_apart = step_local_is_apart(t->step);
    begin_at_progress(t);
    TRY(trainer_ledger_open(t));
    TRY(open_files(t));
    if (!t->checkpoint)
        return ST_OK;
    const struct checkpoint_async_config config = {
        .checkpoint = t->checkpoint,
        .step = t->step,
        .dev = t->config->step.dev,
        .mode = t->config->checkpoint_mode,
        .is_periodic = t->config->checkpoint_every > 0,
        .memory_bytes = memory_free(),
        .last = &t->last_checkpoint,
        .heartbeat = trainer_heartbeat,
        .heartbeat_arg = t,
    };
    return checkpoint_async_open(&config, &t->checkpoint_async);
}

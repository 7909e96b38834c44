/* checkpoint — see checkpoint.h. */
#include "train/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/config_diff.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/ledger.h"
#include "train/feature/step_local.h"

#define LOCK_WAIT_MS 2000
#define NAME_BYTES 32       /* room for the name of an array */
#define COUNT_MAX (1 << 24) /* largest count in settings */

/* The position of a tensor in the state, for state_read. */
struct tensor_range {
    struct step *step;
    int array;
    int64_t first;
};

struct checkpoint {
    struct checkpoint_config config;
    struct ckpt_lock *lock;
    struct ckpt *found; /* until it is read */
    struct step *step;
    struct ckpt_array *array;
    char (*name)[NAME_BYTES];          /* names of the arrays */
    struct safetensors_source *source; /* arrays × rows */
    struct tensor_range *range;        /* ranges of the sources: their arg */
    int arrays_n;
    char dir[FILE_PATH_MAX];
    struct model_marks marks;           /* marks of the checkpoint that was found */
    char base_sha256[MODEL_SHA256_MAX]; /* checkpoint_set_base; "": not called */
};

/* ---- names of arrays ---- */

/* The parameters, and the moments of an optimiser. */
static const char *const array_names[STEP_ARRAYS_MAX] = {"model", "optim_m", "optim_v"};

/* name_replica — Names an array of a replica's own state. The arrays of replica 0 have the names of
 * a run without replicas. */
static void name_replica(int replica, int array, char out[NAME_BYTES])
{
    if (array == 0)
        text_format(out, NAME_BYTES, "inner_%d", replica);
    else if (replica == 0)
        text_copy(out, NAME_BYTES, array_names[array]);
    else
        text_format(out, NAME_BYTES, "%s_%d", array_names[array], replica);
}

/* name_array — Names any array of the state. */
static void name_array(const struct step *step, int array, char out[NAME_BYTES])
{
    const struct state_array what = state_describe(step_state(step), array, 0);
    if (array == 0) /* the outer parameters of replicas are the model for all readers */
        text_copy(out, NAME_BYTES, array_names[0]);
    else if (what.kind == STATE_MOMENTUM)
        text_copy(out, NAME_BYTES, "outer_m");
    else if (what.kind == STATE_RESIDUAL_SUM)
        text_copy(out, NAME_BYTES, "outer_e");
    else if (what.kind == STATE_RESIDUAL)
        text_format(out, NAME_BYTES, "outer_e_%d", what.replica);
    else
        name_replica(what.replica, what.moment, out);
}

/* ---- life ---- */

static enum status read_range(void *arg, int64_t first, int64_t n, void *out)
{
    const struct tensor_range *range = arg;
    return state_read(step_state(range->step), range->array, range->first + first, n, out);
}

/* has_tensor — Returns true if an array has a tensor. */
static bool has_tensor(const struct checkpoint *s, int array, const struct param *row)
{
    return !row->is_hidden || !state_describe(step_state(s->step), array, 0).skips_hidden;
}

static void list_array(struct checkpoint *s, int array)
{
    const struct param_table *table = step_whole_table(s->step);
    size_t first = (size_t)array * (size_t)table->params_n;
    int n = 0;
    name_array(s->step, array, s->name[array]);
    for (int i = 0; i < table->params_n; i++)
        if (has_tensor(s, array, &table->param[i])) {
            /* Adds a tensor to the list for the writer; checkpoint_save sets its address. */
            size_t at = first + (size_t)n++;
            s->range[at] = (struct tensor_range){s->step, array, table->param[i].offset};
            s->source[at] = (struct safetensors_source){.name = table->param[i].name,
                                                        .dtype = DTYPE_F32,
                                                        .dims_n = table->param[i].dims_n,
                                                        .read = read_range,
                                                        .arg = &s->range[at]};
            for (int d = 0; d < table->param[i].dims_n; d++)
                s->source[at].dim[d] = table->param[i].dim[d];
        }
    s->array[array] = (struct ckpt_array){s->name[array], s->source + first, n};
}

/* own_array — Returns an array of the whole model in the memory of this rank, which holds all of
 * it. */
static float *own_array(const struct checkpoint *s, int array)
{
    ASSERT(step_own_table(s->step) == step_whole_table(s->step));
    return step_array(s->step, array);
}

/* lock_dir — Tries for a moment: a worker survives a killed supervisor briefly, and must not make a
 * run fail that starts immediately. */
static enum status lock_dir(struct checkpoint *s)
{
    int64_t until_ms = clock_ms() + LOCK_WAIT_MS;
    enum status st = ckpt_lock(s->dir, &s->lock);
    while (st == ST_BAD_SETTING && file_is_dir(s->dir) && clock_ms() < until_ms) {
        clock_sleep_ms(50);
        st = ckpt_lock(s->dir, &s->lock);
    }
    return st;
}

enum status checkpoint_open(const struct checkpoint_config *config, struct checkpoint **out)
{
    struct checkpoint *s = memory_new(1, sizeof *s);
    s->config = *config;
    text_copy(s->dir, sizeof s->dir, config->dir);
    enum status st = lock_dir(s);
    if (st == ST_OK)
        *out = s;
    else
        checkpoint_close(s);
    return st;
}

void checkpoint_close(struct checkpoint *s)
{
    if (!s)
        return;
    ckpt_close(s->found);
    ckpt_lock_release(s->lock);
    free(s->source);
    free(s->range);
    free(s->array);
    free(s->name);
    free(s);
}

/* is_start — Returns true if no update is done, so no optimiser or data can differ, and all moments
 * are zero. Imported models are such checkpoints; they have no moments. */
static bool is_start(const struct ckpt_meta *meta) { return meta->step == 0; }

/* The differences between the checkpoint and the run, as one sentence. */
struct differences {
    bool (*is_wanted)(const char *key);
    struct text text;
    int n;
    bool was_normuon; /* an optimiser that was removed */
};

static bool is_dimension(const char *key)
{
    return strcmp(key, "name") != 0 && strcmp(key, "bos") != 0 && strcmp(key, "eos") != 0 &&
           strcmp(key, "base_sha256") != 0; /* checkpoint_set_base compares it */
}
static bool is_of_optimizer(const char *key)
{
    return !strcmp(key, "OPTIMIZER") || !strcmp(key, "moments");
}

static bool is_of_tokenizer(const char *key) { return strcmp(key, "TOKENIZER") == 0; }

/* is_of_fragments — Returns true for settings of outer steps that were removed in 0.2.0. */
static bool is_of_fragments(const char *key)
{
    return !strcmp(key, "LOCAL_FRAGMENTS") || !strcmp(key, "LOCAL_DELAY") ||
           !strcmp(key, "LOCAL_MIX");
}

static bool is_any(const char *key)
{
    (void)key;
    return true;
}

static void add_difference(void *arg, const char *key, const char *was, const char *is)
{
    struct differences *d = arg;
    if (!d->is_wanted(key))
        return;
    d->was_normuon |= was && strcmp(key, "OPTIMIZER") == 0 && strcmp(was, "normuon") == 0;
    text_add(&d->text, "%s%s was %s, is %s", d->n++ > 0 ? "; " : "", key, was ? was : "not set",
             is ? is : "not set");
}

/* list_differences — Lists the differences. The caller frees the text. */
static struct differences list_differences(const char *was_json, const char *is_json,
                                           bool (*is_wanted)(const char *key))
{
    struct differences d = {.is_wanted = is_wanted};
    if (!config_diff_each(was_json, is_json, add_difference, &d)) {
        text_add(&d.text, "its settings are unreadable");
        d.n = 1;
    }
    return d;
}

/* check_settings — Checks the settings that must not change. holds, remedy: clauses of the
 * sentence. */
static enum status check_settings(const struct checkpoint *s, const struct ckpt *ckpt,
                                  bool (*is_wanted)(const char *key), const char *holds,
                                  const char *remedy)
{
    struct differences d =
        list_differences(ckpt_meta(ckpt)->settings_json, s->config.settings_json, is_wanted);
    enum status st = d.n == 0 ? ST_OK
                              : FAIL(ST_BAD_SETTING,
                                     "checkpoint %s %s: %s%s, another CHECKPOINT_DIR, or "
                                     "RESUME=never",
                                     ckpt_path(ckpt), holds, d.text.data, remedy);
    text_free(&d.text);
    return st;
}

static enum status check_optimizer(const struct checkpoint *s, const struct ckpt *ckpt)
{
    struct differences d =
        list_differences(ckpt_meta(ckpt)->settings_json, s->config.settings_json, is_of_optimizer);
    text_free(&d.text);
    if (d.was_normuon)
        return FAIL(ST_BAD_SETTING,
                    "checkpoint %s holds the state of OPTIMIZER=normuon, which was removed; train "
                    "its weights on with OPTIMIZER=muon MODEL=%s and another CHECKPOINT_DIR",
                    ckpt_path(ckpt), ckpt_path(ckpt));
    return check_settings(s, ckpt, is_of_optimizer, "holds the state of another optimiser",
                          "; use the same OPTIMIZER and MOMENTUM");
}

/* warn_differences — Warns of other settings and data. They may change between runs, but then the
 * losses do too. */
static void warn_differences(const struct checkpoint *s, const struct ckpt *ckpt)
{
    const struct ckpt_meta *meta = ckpt_meta(ckpt);
    struct differences d = list_differences(meta->settings_json, s->config.settings_json, is_any);
    if (d.n > 0)
        LOG_WARN("settings differ from checkpoint %s: %s; training continues with the new "
                 "settings, so its losses differ from an uninterrupted run",
                 ckpt_path(ckpt), d.text.data);
    text_free(&d.text);
    if (meta->data_fingerprint != s->config.data_fingerprint)
        LOG_WARN("DATA differs from the data of checkpoint %s: fingerprint was %016llx, is "
                 "%016llx; training continues with the new data",
                 ckpt_path(ckpt), (unsigned long long)meta->data_fingerprint,
                 (unsigned long long)s->config.data_fingerprint);
}

/* Returns a count among settings; 0: there is none, or it is no valid number. */
static int64_t count_of(const char *settings_json, const char *name)
{
    cJSON *root = NULL;
    int64_t count = 0;
    if (json_parse(settings_json, strlen(settings_json), "settings", &root) != ST_OK ||
        json_get_i64(root, name, 1, COUNT_MAX, &count) != ST_OK) {
        status_clear();
        count = 0;
    }
    cJSON_Delete(root);
    return count;
}

/* Checks that EXACT=layout continues with the bits that an older version promised for any TP with
 * the same VIRTUAL_TP. Only TP=VIRTUAL_TP has them now. */
static enum status check_virtual_tp(const struct checkpoint *s, const struct ckpt *ckpt)
{
    const char *here = s->config.settings_json;
    const int64_t was = count_of(ckpt_meta(ckpt)->settings_json, "VIRTUAL_TP"),
                  is = count_of(here, "TP");
    if (was == 0 || was == is || count_of(here, "VIRTUAL_SHARDS") == 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "checkpoint %s has VIRTUAL_TP=%lld, which this version does not have: with TP=%lld "
                "the run cannot go on with the same bits; set TP=%lld, or EXACT=off",
                ckpt_path(ckpt), (long long)was, (long long)(is > 0 ? is : 1), (long long)was);
}

/* check_adapter — Checks that both train all weights, or both the same adapter. */
static enum status check_adapter(const struct model_dims *was, const struct model_dims *is,
                                 const char *path)
{
    const struct model_adapter *a = &was->adapter, *b = &is->adapter;
    char text[2][MODEL_TARGETS_TEXT_MAX];
    if (a->r > 0 && b->r == 0)
        return FAIL(
            ST_BAD_SETTING,
            "checkpoint %s holds an adapter (LORA=%lld), and LORA=0 trains all weights; set "
            "LORA=%lld to train the adapter on, or another CHECKPOINT_DIR for a run of all "
            "weights",
            path, (long long)a->r, (long long)a->r);
    if (a->r == 0 && b->r > 0)
        return FAIL(ST_BAD_SETTING,
                    "checkpoint %s holds a whole model, and LORA=%lld trains an adapter; set "
                    "another CHECKPOINT_DIR for the adapter (MODEL may be this checkpoint), or "
                    "LORA=0 to train all weights on",
                    path, (long long)b->r);
    if (a->r != b->r || a->alpha != b->alpha || a->targets != b->targets)
        return FAIL(ST_BAD_SETTING,
                    "checkpoint %s holds an adapter with LORA=%lld, LORA_ALPHA=%g and "
                    "LORA_TARGETS=%s, and this run has LORA=%lld, LORA_ALPHA=%g and "
                    "LORA_TARGETS=%s; set the checkpoint's values, or another CHECKPOINT_DIR",
                    path, (long long)a->r, a->alpha, model_targets_text(was, text[0]),
                    (long long)b->r, b->alpha, model_targets_text(is, text[1]));
    return ST_OK;
}

/* check_compatibility — Checks that the model and the optimiser's state fit. Other differences are
 * logged as warnings. */
static enum status check_compatibility(const struct checkpoint *s, const struct ckpt *ckpt)
{
    const struct ckpt_meta *meta = ckpt_meta(ckpt);
    char here[sizeof meta->model_json];
    struct model_dims was;
    /* reports features that this version does not have */
    TRY(load_dims_parse(meta->model_json, &was));
    TRY(check_adapter(&was, s->config.dims, ckpt_path(ckpt)));
    TRY(load_dims_json(s->config.dims, here, sizeof here));
    struct differences d = list_differences(meta->model_json, here, is_dimension);
    enum status st = d.n == 0 ? ST_OK
                              : FAIL(ST_BAD_SETTING,
                                     "checkpoint %s holds another model: %s; use the same MODEL, "
                                     "TASK and dimensions, another CHECKPOINT_DIR, or RESUME=never",
                                     ckpt_path(ckpt), d.text.data);
    text_free(&d.text);
    TRY(st);
    if (is_start(ckpt_meta(ckpt)))
        return ST_OK;
    TRY(check_settings(s, ckpt, is_of_tokenizer, "was trained with another tokenizer",
                       " (not set: GPT-2's); use the same TOKENIZER"));
    TRY(check_optimizer(s, ckpt));
    TRY(check_virtual_tp(s, ckpt));
    TRY(check_settings(s, ckpt, is_of_fragments,
                       "was written by a version that exchanged fragments of a model",
                       "; export its model and train on from that with plain LOCAL_STEPS, or use"
                       " that version"));
    warn_differences(s, ckpt);
    return ST_OK;
}

/* keep_marks — Keeps the marks of the checkpoint's model, for a run whose settings name a
 * preset. */
static enum status keep_marks(struct checkpoint *s, const struct ckpt_meta *meta)
{
    struct model_dims was;
    TRY(load_dims_parse(meta->model_json, &was));
    TRY(load_dims_agree(&was, s->config.dims, ckpt_path(s->found)));
    s->marks = was.marks;
    return ST_OK;
}

/* Sets the schedule with which a run continues. Its steps keep their samples when GLOBAL_BATCH
 * changes. */
static enum status find_schedule(const struct checkpoint *s, struct lr_schedule_unit *out)
{
    const struct ckpt_meta *meta = ckpt_meta(s->found);
    const int64_t was = count_of(meta->settings_json, "GLOBAL_BATCH"),
                  is = count_of(s->config.settings_json, "GLOBAL_BATCH");
    int64_t done;
    *out = (struct lr_schedule_unit){.samples = meta->schedule_step_samples,
                                     .ahead = meta->schedule_samples - meta->samples};
    if (meta->schedule_step_samples > 0)
        return ST_OK;
    *out = (struct lr_schedule_unit){.samples = 0};
    if (is_start(meta) || was == 0 || is == 0 || was == is)
        return ST_OK;
    if (__builtin_mul_overflow(meta->step, was, &done) || done > LEDGER_COUNT_MAX)
        return FAIL(ST_BAD_DATA,
                    "checkpoint %s: %lld steps of %lld samples are more than can be counted; "
                    "restore the checkpoint from a backup",
                    ckpt_path(s->found), (long long)meta->step, (long long)was);
    *out = (struct lr_schedule_unit){.samples = was, .ahead = done - meta->samples};
    return ST_OK;
}

/* load_progress — Checks the checkpoint that was found, and returns its progress and path. */
static enum status load_progress(struct checkpoint *s, struct checkpoint_progress *progress,
                                 char *path, size_t path_cap)
{
    if (!s->found) {
        /* No checkpoint is valid: fails unless there is none at all. A new run next to damaged
         * checkpoints would hide their loss and, CHECKPOINT_KEEP saves later, remove files that
         * could be repaired. */
        int count = 0;
        TRY(ckpt_count(s->dir, &count));
        if (count == 0)
            return ST_OK;
        return FAIL(
            ST_BAD_DATA,
            "CHECKPOINT_DIR=%s holds %d checkpoint%s and none is valid (see the warnings above); "
            "restore one from a backup, or set RESUME=never to move them aside and start anew",
            s->dir, count, count == 1 ? "" : "s");
    }
    TRY(check_compatibility(s, s->found));
    TRY(keep_marks(s, ckpt_meta(s->found)));
    const struct ckpt_meta *meta = ckpt_meta(s->found);
    *progress =
        (struct checkpoint_progress){.step = meta->step,
                                     .samples = meta->samples,
                                     .tokens = meta->tokens,
                                     .trained = meta->trained,
                                     .scale = {(double)meta->loss_scale, meta->loss_scale_steps},
                                     .spikes = {.skipped_n = meta->skipped},
                                     .outer_steps = meta->outer_steps};
    if (!spike_history_parse(meta->spike_history, &progress->spikes.history))
        return FAIL(
            ST_BAD_DATA,
            "checkpoint %s: its spike_history is damaged; restore the checkpoint from a backup",
            ckpt_path(s->found));
    text_copy(path, path_cap, ckpt_path(s->found));
    return find_schedule(s, &progress->schedule);
}

enum status checkpoint_find(struct checkpoint *s, struct checkpoint_progress *progress,
                            bool *found_out, char *path, size_t path_cap)
{
    *found_out = false;
    if (!s->config.needs_transfer)
        TRY(ckpt_find_newest(s->dir, INT64_MAX, &s->config.heartbeat, &s->found));
    else
        TRY(ckpt_open_newest(s->dir, &s->config.heartbeat, &s->found));
    TRY(load_progress(s, progress, path, path_cap));
    *found_out = s->found != NULL;
    return ST_OK;
}

enum status checkpoint_set_base(struct checkpoint *s, const char *sha256, const char *model)
{
    struct model_dims was;
    text_copy(s->base_sha256, sizeof s->base_sha256, sha256);
    if (!s->found)
        return ST_OK;
    TRY(load_dims_parse(ckpt_meta(s->found)->model_json, &was));
    if (!was.adapter.base_sha256[0] || strcmp(was.adapter.base_sha256, sha256) == 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "checkpoint %s holds an adapter of other weights: of a model with SHA-256 %s, and "
                "MODEL=%s has %s; use the same model, another CHECKPOINT_DIR, or RESUME=never",
                ckpt_path(s->found), was.adapter.base_sha256, model, sha256);
}

enum status checkpoint_verify(struct checkpoint *s, struct checkpoint_progress *progress,
                              bool *found_out, char *path, size_t path_cap)
{
    if (!s->found || ckpt_is_verified(s->found))
        return ST_OK;
    *found_out = false;
    ckpt_close(s->found);
    s->found = NULL;
    TRY(ckpt_open_newest(s->dir, &s->config.heartbeat, &s->found));
    TRY(load_progress(s, progress, path, path_cap));
    *found_out = s->found != NULL;
    return ST_OK;
}

static enum status put_values(void *arg, int64_t first, int64_t n, const float *values)
{
    const struct checkpoint_put *put = arg;
    return state_write(step_state(put->step), put->array, first, n, values);
}

struct load_target checkpoint_target(struct checkpoint_put *put, bool needs_transfer)
{
    struct load_target to = {.table = step_whole_table(put->step),
                             .stream = step_stream(put->step)};
    if (needs_transfer) {
        to.put = put_values;
        to.arg = put;
    } else {
        to.data = step_tensor(put->step, put->array);
    }
    return to;
}

/* wanted_arrays — Returns the number of arrays to load: only the model if no update is done,
 * because its moments are zero. */
static int wanted_arrays(const struct checkpoint *s)
{
    return !s->found ? 0 : is_start(ckpt_meta(s->found)) ? 1 : step_arrays(s->step);
}

/* dest_of — Returns the address of a tensor of a file; several threads call it. */
static void *dest_of(void *arg, const char *array, const struct safetensors_entry *entry)
{
    const struct checkpoint *s = arg;
    const struct param_table *table = step_whole_table(s->step);
    for (int p = 0; p < wanted_arrays(s); p++)
        for (int i = 0; strcmp(array, array_names[p]) == 0 && i < table->params_n; i++)
            if (strcmp(table->param[i].name, entry->name) == 0)
                return own_array(s, p) + table->param[i].offset;
    return NULL;
}

/* read_state — Reads directly into the step's memory, and zeroes it if the checkpoint is
 * damaged. */
static enum status read_state(struct checkpoint *s)
{
    struct ckpt_fill to = {dest_of, s};
    struct stream *stream = step_stream(s->step);
    /* Every wanted tensor exists and has its shape. */
    const struct param_table *table = step_whole_table(s->step);
    const struct safetensors_entry *entry;
    for (int array = 0; array < wanted_arrays(s); array++)
        for (int i = 0; i < table->params_n; i++)
            if (has_tensor(s, array, &table->param[i]))
                TRY(ckpt_tensor(s->found, array_names[array], table->param[i].name,
                                table->param[i].dims_n, table->param[i].dim, &entry));
    enum status st = ckpt_fill(s->found, &to, &s->config.heartbeat);
    for (int array = 0; st == ST_BAD_DATA && array < step_arrays(s->step); array++) {
        TRY(dev_fill(stream, own_array(s, array), 0,
                     (size_t)step_whole_table(s->step)->total_elems * sizeof(float)));
        TRY(dev_sync(stream));
    }
    return st;
}

/* fill_newest — Loads the checkpoint that was found, or the newest valid one before it. */
static enum status fill_newest(struct checkpoint *s, struct checkpoint_progress *progress,
                               char *path, size_t path_cap)
{
    for (;;) {
        enum status st = read_state(s);
        if (st != ST_BAD_DATA)
            return st;
        LOG_WARN("skipping a damaged checkpoint: %s", status_message());
        int64_t below = ckpt_meta(s->found)->step;
        ckpt_close(s->found);
        s->found = NULL;
        TRY(ckpt_find_newest(s->dir, below, &s->config.heartbeat, &s->found));
        TRY(load_progress(s, progress, path, path_cap));
        if (!s->found)
            return FAIL(ST_BAD_DATA,
                        "CHECKPOINT_DIR=%s: its checkpoints were removed while they were read",
                        s->dir);
        if (ckpt_is_verified(s->found))
            return ST_OK;
    }
}

/* read_array — Reads an array from the file of that name. */
static enum status read_array(struct checkpoint *s, int array, const char *name)
{
    struct checkpoint_put put = {s->step, array};
    struct load_target to = checkpoint_target(&put, s->config.needs_transfer);
    to.skips_hidden = state_describe(step_state(s->step), array, 0).skips_hidden;
    const struct load_file file = {.ckpt = s->found, .array = name};
    TRY(load_params(&to, &file));
    if (s->config.heartbeat.fn)
        s->config.heartbeat.fn(s->config.heartbeat.arg, 0);
    return ST_OK;
}

/* saved_replicas — Returns the number of replicas that wrote the checkpoint; 1 also if it was
 * written without replicas. */
static int saved_replicas(const struct checkpoint *s)
{
    char inner[NAME_BYTES], moment[NAME_BYTES];
    for (int n = 1;; n++) {
        name_replica(n, 0, inner);
        name_replica(n, 1, moment);
        if (!ckpt_has_array(s->found, inner) && !ckpt_has_array(s->found, moment))
            return n;
    }
}

/* read_replica — Reads an array of a replica's own state. If another number of replicas wrote the
 * checkpoint, replica k reads the array of replica k modulo this number. Only a checkpoint between
 * two outer steps has parameters of a replica's own; else the replica starts from the outer
 * ones. */
static enum status read_replica(struct checkpoint *s, int array, int replica, int own_array)
{
    char name[NAME_BYTES];
    name_replica(replica % saved_replicas(s), own_array, name);
    return own_array > 0 || ckpt_has_array(s->found, name) ? read_array(s, array, name) : ST_OK;
}

/* read_outer — Reads an array that replicas share. An array that the checkpoint lacks stays zero,
 * and so does error feedback of another number of replicas. */
static enum status read_outer(struct checkpoint *s, int array, enum state_kind kind)
{
    char name[NAME_BYTES];
    name_array(s->step, array, name);
    if (!ckpt_has_array(s->found, name) ||
        (kind != STATE_MOMENTUM && saved_replicas(s) != step_local_replicas(s->step)))
        return ST_OK;
    return read_array(s, array, name);
}

enum status checkpoint_attach(struct checkpoint *s, struct step *step,
                              struct checkpoint_progress *progress, char *path, size_t path_cap)
{
    s->step = step;
    const struct param_table *table = step_whole_table(s->step);
    s->arrays_n = state_count(step_state(s->step), true);
    ASSERTF(s->arrays_n >= 1 && s->arrays_n <= CKPT_ARRAYS_MAX, "arrays %d", s->arrays_n);
    size_t sources_n = (size_t)s->arrays_n * (size_t)table->params_n;
    s->source = memory_new(sources_n, sizeof *s->source);
    s->range = memory_new(sources_n, sizeof *s->range);
    s->array = memory_new((size_t)s->arrays_n, sizeof *s->array);
    s->name = memory_new((size_t)s->arrays_n, sizeof *s->name);
    for (int array = 0; array < s->arrays_n; array++)
        list_array(s, array);
    if (s->found && !ckpt_is_verified(s->found))
        TRY(fill_newest(s, progress, path, path_cap));
    if (s->found && ckpt_is_verified(s->found)) {
        /* Loads a verified checkpoint. */
        const int arrays = is_start(ckpt_meta(s->found)) ? 1 : s->arrays_n;
        for (int array = 0; array < arrays; array++) {
            const struct state_array what = state_describe(step_state(s->step), array, 0);
            if (array == 0)
                TRY(read_array(s, array, array_names[0]));
            else if (what.kind == STATE_REPLICA)
                TRY(read_replica(s, array, what.replica, what.moment));
            else
                TRY(read_outer(s, array, what.kind));
        }
    }
    ckpt_close(s->found);
    s->found = NULL;
    return ST_OK;
}

enum status checkpoint_save(struct checkpoint *s, const struct checkpoint_progress *progress,
                            const float *copy, const struct heartbeat *heartbeat, char *path,
                            size_t path_cap)
{
    struct ckpt_meta meta = {.step = progress->step,
                             .samples = progress->samples,
                             .tokens = progress->tokens,
                             .trained = progress->trained,
                             .seed = s->config.seed,
                             .loss_scale = (int64_t)progress->scale.factor,
                             .loss_scale_steps = progress->scale.steps,
                             .outer_steps = progress->outer_steps,
                             .skipped = progress->spikes.skipped_n,
                             .schedule_step_samples = progress->schedule.samples,
                             .data_fingerprint = s->config.data_fingerprint};
    if (progress->schedule.samples > 0)
        meta.schedule_samples = progress->samples + progress->schedule.ahead;
    _Static_assert(CKPT_HISTORY_MAX >= SPIKE_HISTORY_CHARS, "a history fits");
    struct model_dims dims = *s->config.dims;
    spike_history_write(&progress->spikes.history, meta.spike_history, sizeof meta.spike_history);
    if (!dims.marks.has_bos && dims.marks.eos_n == 0)
        dims.marks = s->marks;
    text_copy(dims.adapter.base_sha256, sizeof dims.adapter.base_sha256, s->base_sha256);
    TRY(load_dims_json(&dims, meta.model_json, sizeof meta.model_json));
    bool whole = text_copy(meta.settings_json, sizeof meta.settings_json, s->config.settings_json);
    ASSERTF(whole, "settings of %zu bytes", strlen(s->config.settings_json));
    if (s->config.commits_json != NULL &&
        !text_copy(meta.commits_json, sizeof meta.commits_json, s->config.commits_json))
        meta.commits_json[0] = 0; /* more names than are kept: a resumed run asks the hub again */
    text_copy(meta.version, sizeof meta.version, s->config.version);
    /* The writer reads the copy, or the step's own memory; NULL: it reads ranges. */
    const struct param_table *table = step_whole_table(s->step);
    for (int array = 0; array < s->arrays_n; array++) {
        const struct state_array state = state_describe(step_state(s->step), array, 0);
        const float *here = state.is_host ? state.here : NULL,
                    *data = copy ? copy + array * table->total_elems : here;
        size_t first = (size_t)array * (size_t)table->params_n;
        for (size_t i = first; i < first + (size_t)s->array[array].sources_n; i++)
            s->source[i].data = data ? data + s->range[i].first : NULL;
    }
    return ckpt_save(s->lock, &meta, s->array, state_count(step_state(s->step), progress->is_apart),
                     s->config.keep, heartbeat ? heartbeat : &s->config.heartbeat, path, path_cap);
}

/* ---- RESUME=never ---- */

/* next_name — Returns the next name, or NULL at the end. *st is set if the folder cannot be read to
 * its end: files that remain would mix. */
static const char *next_name(const char *dir, DIR *folder, enum status *st)
{
    errno = 0;
    const struct dirent *entry = readdir(folder);
    if (!entry && errno)
        *st = FAIL(ST_STORE, "cannot read CHECKPOINT_DIR=%s: %s; check the disk", dir,
                   strerror(errno));
    return entry ? entry->d_name : NULL;
}

enum status checkpoint_aside(const char *dir)
{
    char aside[FILE_PATH_MAX], from[FILE_PATH_MAX], to[FILE_PATH_MAX], name[64];
    int moved = 0;
    enum status st = ST_OK;
    text_format(name, sizeof name, "before-%lld", (long long)clock_wall_ms());
    TRY(file_join(aside, sizeof aside, dir, name));
    DIR *folder = opendir(dir);
    if (!folder)
        return FAIL(ST_STORE, "cannot read CHECKPOINT_DIR=%s: %s", dir, strerror(errno));
    for (const char *next; (next = next_name(dir, folder, &st));) {
        bool is_checkpoint = text_starts(next, "step-");
        if (!is_checkpoint && strcmp(next, LEDGER_NAME) != 0)
            continue;
        TRY_OR(file_make_dirs(aside), close);
        moved += is_checkpoint;
        TRY_OR(file_join(from, sizeof from, dir, next), close);
        TRY_OR(file_join(to, sizeof to, aside, next), close);
        if (rename(from, to)) { /* it would mix with the new run */
            st = FAIL(ST_STORE,
                      "cannot move %s to %s: %s; RESUME=never needs CHECKPOINT_DIR without older "
                      "checkpoints",
                      from, to, strerror(errno));
            goto close;
        }
    }
    if (st == ST_OK && moved) {
        TRY_OR(file_sync_dir(aside), close);
        LOG_WARN("RESUME=never: %d checkpoints of an earlier run moved to %s", moved, aside);
    }
close:
    closedir(folder);
    return st;
}

/* verify — `convoy verify DIR`: reports the records of a run and checks whether they are complete.
 * It must not depend on how they are written. Read verify_main first, at the foot. */
#include "node/command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/ckpt.h"
#include "format/ledger.h"
#include "node/command/damage_list.h"
#include "node/process/print.h"
#include "serve/chart.h"

struct verify {
    char path[FILE_PATH_MAX]; /* path of the ledger */
    struct ledger_audit audit;
    char unread[FILE_PATH_MAX + 512]; /* reason why the ledger cannot be audited; "": it can */
    /* step, samples and trained tokens of the newest checkpoint; step -1: there is none */
    int64_t step, samples, trained;
    int compared_n;                    /* checkpoints whose checksums are in the ledger */
    struct damage_list damage;         /* checkpoints that are damaged, or were changed */
    char problem[FILE_PATH_MAX + 512]; /* first problem; "": none */
};

/* ---- reading ---- */

/* read_ledger — reads the ledger. A damaged ledger is a finding (v->unread), and the audit goes
 * on. */
static enum status read_ledger(const char *dir, struct verify *v)
{
    if (!file_is_dir(dir))
        return FAIL(ST_NO_INPUT, "%s is not a folder; name a run's CHECKPOINT_DIR", dir);
    TRY(file_join(v->path, sizeof v->path, dir, LEDGER_NAME));
    if (!file_exists(v->path))
        return FAIL(ST_NO_INPUT,
                    "%s has no " LEDGER_NAME "; name the CHECKPOINT_DIR of a run that a version "
                    "with a ledger of samples has written",
                    dir);
    const enum status st = ledger_audit(v->path, &v->audit);
    if (st != ST_BAD_DATA)
        return st;
    text_copy(v->unread, sizeof v->unread, status_message());
    v->audit = (struct ledger_audit){.generations = 0};
    status_clear();
    return ST_OK;
}

/* read_checkpoint — checks one verified checkpoint against the ledger. A ckpt_visit. */
static enum status read_checkpoint(void *arg, int64_t step, const struct ckpt *ckpt)
{
    struct verify *v = arg;
    if (ckpt == NULL) {
        damage_list_add(&v->damage, step, status_message());
        status_clear();
        return ST_OK;
    }
    if (v->step < 0) {
        v->step = step;
        v->samples = ckpt_meta(ckpt)->samples;
        v->trained = ckpt_meta(ckpt)->trained;
    }
    /* Compare the checksums of the checkpoint with the checksums that the ledger recorded when it
     * was written. */
    struct ledger_checkpoint now = {.step = 0};
    const struct ledger_checkpoint *was = NULL;
    char changed[FILE_PATH_MAX + 256];
    for (int i = v->audit.checkpoints_n - 1; i >= 0 && !was; i--)
        if (v->audit.checkpoint[i].step == ckpt_meta(ckpt)->step)
            was = &v->audit.checkpoint[i];
    if (!was)
        return ST_OK;
    TRY(ledger_hash_checkpoint(ckpt_path(ckpt), &now));
    v->compared_n++;
    if (now.weights == was->weights && now.state == was->state)
        return ST_OK;
    text_format(changed, sizeof changed,
                "checkpoint %s has weights %016" PRIx64 ", but %016" PRIx64
                " were written: its files belong to another run, or were changed",
                ckpt_path(ckpt), now.weights, was->weights);
    damage_list_add(&v->damage, was->step, changed);
    return ST_OK;
}

/* ---- output ---- */

static const char *plural_suffix(int64_t n) { return n == 1 ? "" : "s"; }

/* count_trained — returns the tokens that counted in the loss, in all steps of the ledger. */
static int64_t count_trained(const struct ledger_audit *a)
{
    int64_t n = 0;
    for (int i = 0; i < LEDGER_OUTCOMES_N; i++)
        n += a->trained[i];
    return n;
}

static void show_skipped(struct text *t, const struct ledger_audit *a, enum ledger_outcome outcome,
                         const char *why)
{
    if (a->steps[outcome] > 0)
        text_add(t, "skipped     %" PRId64 " step%s, %" PRId64 " samples: %s\n", a->steps[outcome],
                 plural_suffix(a->steps[outcome]), a->samples[outcome], why);
}

/* show_epochs — shows the number of passes over the data, and how many samples the last pass
 * lacks. */
static void show_epochs(struct text *t, const struct verify *v)
{
    const struct ledger_audit *a = &v->audit;
    if (v->problem[0] != 0 || a->last < a->first)
        return;
    if (a->reordered > 0)
        text_add(t,
                 "epochs      unknown: after step %" PRId64 " samples have another order, or none "
                 "is recorded (DATA, SEQ_LEN, SEED, SHUFFLE, PACK_DOCUMENTS)\n",
                 a->reordered);
    if (a->epoch == 0 || a->sample > 0) /* the ledger begins in the middle of the run */
        return;
    const int64_t whole = a->end / a->epoch, rest = a->end % a->epoch, left = a->epoch - rest;
    text_add(t, "epochs      ");
    if (whole > 0)
        text_add(t, "%" PRId64 " of %" PRId64 " samples: every sample of %s%s", whole, a->epoch,
                 whole == 1 ? "the epoch" : "each epoch", rest > 0 ? "; then " : "\n");
    if (rest > 0)
        text_add(
            t,
            "%" PRId64 " of the %" PRId64 " samples of epoch %" PRId64 ", %" PRId64 " are left%s\n",
            rest, a->epoch, whole + 1, left, left < a->step_samples ? ", fewer than one step" : "");
}

/* show_provenance — shows the version and machine of the last generation. */
static void show_provenance(struct text *t, const struct verify *v)
{
    cJSON *root = NULL;
    const char *json = v->audit.provenance;
    if (json[0] == 0 || json_parse(json, strlen(json), "provenance", &root) != ST_OK) {
        status_clear();
        return;
    }
    chart_strip_controls(root);
    const cJSON *device, *devices = cJSON_GetObjectItemCaseSensitive(root, "devices");
    text_add(t, "made by     convoy %s, %.0f worker%s:", json_text(root, "version"),
             json_number(root, "ranks"), plural_suffix((int64_t)json_number(root, "ranks")));
    cJSON_ArrayForEach(device, devices)
        text_add(t, " %s", cJSON_IsString(device) ? device->valuestring : "?");
    text_add(t, "\n");
    cJSON_Delete(root);
}

static void show_text(struct text *t, const struct verify *v)
{
    const struct ledger_audit *a = &v->audit;
    const int64_t applied = a->steps[LEDGER_OUTCOME_APPLIED];
    if (v->unread[0] != 0) {
        text_add(t, "ledger      %s\n", v->unread);
        return;
    }
    text_add(t, "ledger      %s: %" PRId64 " generation%s%s\n", v->path, a->generations,
             plural_suffix(a->generations), a->is_torn ? "; its last line is incomplete" : "");
    if (a->last < a->first)
        text_add(t, "steps       no step after step %" PRId64 "\n", a->last);
    else
        text_add(t,
                 "steps       %" PRId64 " to %" PRId64 ", samples %" PRId64 " to %" PRId64 "%s\n",
                 a->first, a->last, a->sample, a->end - 1,
                 v->problem[0]      ? ""
                 : a->reordered > 0 ? ": each number exactly once"
                                    : ": every sample exactly once");
    show_epochs(t, v);
    text_add(t, "applied     %" PRId64 " step%s, %" PRId64 " samples\n", applied,
             plural_suffix(applied), a->samples[LEDGER_OUTCOME_APPLIED]);
    if (count_trained(a) > 0)
        text_add(t, "trained     %" PRId64 " tokens, in the applied steps\n",
                 a->trained[LEDGER_OUTCOME_APPLIED]);
    show_skipped(t, a, LEDGER_OUTCOME_SPIKE, "loss or norm far above their history");
    show_skipped(t, a, LEDGER_OUTCOME_NOT_FINITE, "loss or norm not finite");
    if (a->again > 0)
        text_add(t, "done again  %" PRId64 " step%s, after a return to an earlier checkpoint\n",
                 a->again, plural_suffix(a->again));
    if (a->data_changes > 0)
        text_add(t, "data        changed %" PRId64 " time%s between generations\n", a->data_changes,
                 plural_suffix(a->data_changes));
    if (v->audit.checkpoints_n > 0)
        text_add(t, "weights     of %d checkpoint%s; %d kept%s\n", v->audit.checkpoints_n,
                 plural_suffix(v->audit.checkpoints_n), v->compared_n,
                 v->problem[0] ? "" : ", with the checksums that were written");
    show_provenance(t, v);
}

static void show_json(struct text *t, const struct verify *v)
{
    const struct ledger_audit *a = &v->audit;
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        {"first_step", a->first},
        {"last_step", a->last},
        {"first_sample", a->sample},
        {"last_sample", a->end - 1},
        {"steps_applied", a->steps[LEDGER_OUTCOME_APPLIED]},
        {"steps_skipped_spike", a->steps[LEDGER_OUTCOME_SPIKE]},
        {"steps_skipped_not_finite", a->steps[LEDGER_OUTCOME_NOT_FINITE]},
        {"steps_done_again", a->again},
        {"generations", a->generations},
        {"data_changes", a->data_changes},
        {"checkpoints", a->checkpoints_n},
        {"checkpoints_kept", v->compared_n},
    };
    char quoted[6 * sizeof v->problem + 3];
    text_add(t, "{");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (v->unread[0] != 0)
            text_add(t, "\"%s\":null,", numbers[i].key);
        else
            text_add(t, "\"%s\":%" PRId64 ",", numbers[i].key, numbers[i].value);
    if (a->epoch > 0 && a->sample == 0)
        text_add(t,
                 "\"epoch_samples\":%" PRId64 ",\"epochs_whole\":%" PRId64
                 ",\"epoch_rest\":%" PRId64 ",",
                 a->epoch, a->end / a->epoch, a->end % a->epoch);
    if (count_trained(a) > 0)
        text_add(t, "\"trained_tokens\":%" PRId64 ",", a->trained[LEDGER_OUTCOME_APPLIED]);
    text_add(t, "\"damaged\":[%s],", v->damage.n > 0 ? v->damage.json.data : "");
    json_quote(quoted, sizeof quoted, v->problem);
    text_add(t, "\"provenance\":%s,\"problem\":%s}\n", a->provenance[0] ? a->provenance : "null",
             v->problem[0] ? quoted : "null");
}

/* verify_run — runs the audit. v is empty. */
static enum status verify_run(const char *dir, bool as_json, struct verify *v)
{
    struct text shown = {0};
    v->step = -1;
    TRY(read_ledger(dir, v));
    TRY(ckpt_each(dir, false, read_checkpoint, v));
    /* Compare the newest checkpoint with the ledger, which may have more steps. */
    const struct ledger_audit *a = &v->audit;
    if (v->unread[0] != 0)
        text_copy(v->problem, sizeof v->problem, v->unread);
    else if (a->problem[0] != 0)
        text_format(v->problem, sizeof v->problem, "%s: %s", v->path, a->problem);
    else if (v->step > a->last)
        text_format(v->problem, sizeof v->problem,
                    "%s ends with step %" PRId64 ", but there is a checkpoint of step %" PRId64,
                    v->path, a->last, v->step);
    else if (v->step == a->last && v->samples != a->end)
        text_format(v->problem, sizeof v->problem,
                    "%s: sample %" PRId64 " follows step %" PRId64
                    ", but in the checkpoint it is sample %" PRId64,
                    v->path, a->end, v->step, v->samples);
    else if (v->step == a->last && v->trained != count_trained(a))
        text_format(v->problem, sizeof v->problem,
                    "the steps of %s have %" PRId64
                    " trained tokens, but the checkpoint of step %" PRId64 " has %" PRId64,
                    v->path, count_trained(a), v->step, v->trained);
    else
        text_copy(v->problem, sizeof v->problem, v->damage.first);
    (as_json ? show_json : show_text)(&shown, v);
    if (!as_json && v->damage.n > 0)
        text_add_bytes(&shown, v->damage.lines.data, v->damage.lines.len);
    TRY(print_text(&shown));
    if (v->unread[0] != 0)
        return FAIL(ST_BAD_DATA, "%s", v->problem);
    return v->problem[0] == 0 ? ST_OK : FAIL(ST_UNHEALTHY, "%s", v->problem);
}

enum status verify_main(const char *dir, bool as_json)
{
    struct verify *v = memory_new(1, sizeof *v);
    enum status st = verify_run(dir, as_json, v);
    ledger_audit_free(&v->audit);
    damage_list_free(&v->damage);
    free(v);
    return st;
}

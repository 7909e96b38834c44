/* verify — see verify.h. Read verify_main first, at the foot. */
#include "node/verify.h"

#include <inttypes.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "format/ckpt.h"
#include "format/ledger.h"
#include "node/print.h"

struct verify {
    char path[FILE_PATH_MAX]; /* of the ledger */
    struct ledger_audit audit;
    int64_t step, samples; /* of the newest checkpoint; step -1: there is none */
    char problem[512];     /* "": none */
};

/* ---- looking ---- */

static enum status read_ledger(const char *dir, struct verify *v)
{
    if (!file_is_dir(dir))
        return FAIL(ST_NO_INPUT, "%s is not a folder; give a run's CHECKPOINT_DIR", dir);
    TRY(file_join(v->path, sizeof v->path, dir, LEDGER_NAME));
    if (!file_exists(v->path))
        return FAIL(ST_NO_INPUT,
                    "%s has no " LEDGER_NAME "; give the CHECKPOINT_DIR of a run that a version "
                    "with a ledger of samples has written",
                    dir);
    return ledger_audit(v->path, &v->audit);
}

static enum status read_checkpoint(const char *dir, struct verify *v)
{
    struct ckpt *ckpt = NULL;
    v->step = -1;
    TRY(ckpt_find_newest(dir, INT64_MAX, NULL, &ckpt));
    if (!ckpt)
        return ST_OK;
    v->step = ckpt_meta(ckpt)->step;
    v->samples = ckpt_meta(ckpt)->samples;
    ckpt_close(ckpt);
    return ST_OK;
}

/* compare — the newest checkpoint with the ledger, which may have more steps. */
static void compare(struct verify *v)
{
    const struct ledger_audit *a = &v->audit;
    if (a->problem[0] != 0)
        text_format(v->problem, sizeof v->problem, "%s: %s", v->path, a->problem);
    else if (v->step > a->last)
        text_format(v->problem, sizeof v->problem,
                    "%s ends with step %" PRId64 ", and there is a checkpoint of step %" PRId64,
                    v->path, a->last, v->step);
    else if (v->step == a->last && v->samples != a->end)
        text_format(v->problem, sizeof v->problem,
                    "%s: sample %" PRId64 " follows step %" PRId64 ", but sample %" PRId64
                    " in the checkpoint",
                    v->path, a->end, v->step, v->samples);
}

/* ---- showing ---- */

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

static void show_skipped(struct text *t, const struct ledger_audit *a, enum ledger_outcome outcome,
                         const char *why)
{
    if (a->steps[outcome] > 0)
        text_add(t, "skipped     %" PRId64 " step%s, %" PRId64 " samples: %s\n", a->steps[outcome],
                 plural(a->steps[outcome]), a->samples[outcome], why);
}

static void show(struct text *t, const struct verify *v)
{
    const struct ledger_audit *a = &v->audit;
    const int64_t applied = a->steps[LEDGER_OUTCOME_APPLIED];
    text_add(t, "ledger      %s: %" PRId64 " generation%s%s\n", v->path, a->generations,
             plural(a->generations), a->is_torn ? "; its last line is incomplete" : "");
    if (a->last < a->first)
        text_add(t, "steps       no step after step %" PRId64 "\n", a->last);
    else
        text_add(t,
                 "steps       %" PRId64 " to %" PRId64 ", samples %" PRId64 " to %" PRId64 "%s\n",
                 a->first, a->last, a->sample, a->end - 1,
                 v->problem[0] ? "" : ": every sample exactly once");
    text_add(t, "applied     %" PRId64 " step%s, %" PRId64 " samples\n", applied, plural(applied),
             a->samples[LEDGER_OUTCOME_APPLIED]);
    show_skipped(t, a, LEDGER_OUTCOME_SPIKE, "loss or norm far above their history");
    show_skipped(t, a, LEDGER_OUTCOME_NOT_FINITE, "loss or norm not finite");
    if (a->again > 0)
        text_add(t, "done again  %" PRId64 " step%s, after a return to a checkpoint before\n",
                 a->again, plural(a->again));
    if (a->data_changes > 0)
        text_add(t, "data        changed %" PRId64 " time%s between generations\n", a->data_changes,
                 plural(a->data_changes));
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
    };
    char quoted[6 * sizeof v->problem + 3];
    text_add(t, "{");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        text_add(t, "\"%s\":%" PRId64 ",", numbers[i].key, numbers[i].value);
    json_quote(quoted, sizeof quoted, v->problem);
    text_add(t, "\"problem\":%s}\n", v->problem[0] ? quoted : "null");
}

enum status verify_main(const char *dir, bool as_json)
{
    struct verify v = {.step = -1};
    struct text shown = {0};
    TRY(read_ledger(dir, &v));
    TRY(read_checkpoint(dir, &v));
    compare(&v);
    (as_json ? show_json : show)(&shown, &v);
    TRY(print_text(&shown));
    return v.problem[0] == 0 ? ST_OK : FAIL(ST_UNHEALTHY, "%s", v.problem);
}

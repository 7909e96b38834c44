/* rehearse_report — see rehearse/report.h. */
#include "node/rehearse/report.h"

#include <inttypes.h>
#include <math.h>

#include "base/json.h"
#include "comm/nccl/lib.h"

/* Llama 3 405B: 419 unexpected interruptions in 54 days of 2,048 nodes with 8 GPUs each. */
#define PUBLISHED_NODE_DAYS (54.0 * 2048 / 419)
#define DAY_MS (24 * 3600 * 1000.0)

/* Results of the faults of one kind. */
struct kind_row {
    int made, healed, kept, named_right, named_wrong;
    struct rehearse_times times[REHEARSE_MEASURES_N];
};

static struct rehearse_times times_of(const struct rehearse_result *r, int kind, int measure)
{
    static double values[REHEARSE_FAULTS_MAX];
    int n = 0;
    for (int i = 0; i < r->outcomes_n; i++)
        if ((int)r->outcome[i].kind == kind && r->outcome[i].measure[measure] >= 0)
            values[n++] = (double)r->outcome[i].measure[measure];
    return rehearse_plan_times(values, n);
}

static struct kind_row row_of(const struct rehearse_result *r, int kind)
{
    struct kind_row row = {.made = 0};
    for (int i = 0; i < REHEARSE_MEASURES_N; i++)
        row.times[i] = times_of(r, kind, i);
    for (int i = 0; i < r->outcomes_n; i++) {
        const struct rehearse_outcome *o = &r->outcome[i];
        if ((int)o->kind != kind)
            continue;
        row.made++;
        row.healed += o->is_healed;
        row.kept += o->is_kept;
        row.named_right += o->named == REHEARSE_NAMED_RIGHT;
        row.named_wrong += o->named == REHEARSE_NAMED_WRONG;
    }
    return row;
}

static double span_ms(const struct rehearse_result *r)
{
    return (double)(r->last_ms - r->first_ms);
}

/* step_ms — returns the mean time of the steps after the first one that was seen. */
static double step_ms(const struct rehearse_result *r)
{
    int64_t n = r->steps - r->first_step;
    return n > 0 ? span_ms(r) / (double)n : NAN;
}

/* compute_goodput — returns the time per step of the calm run divided by the time per step with
 * faults. */
static double compute_goodput(const struct rehearse_report *r)
{
    return step_ms(r->calm) / step_ms(r->faulty);
}

static double published_days(const struct rehearse_report *r)
{
    return PUBLISHED_NODE_DAYS / r->nodes_n;
}

/* ---- for people ---- */

static void add_times(struct text *t, const struct rehearse_times *times)
{
    const int64_t ms[] = {times->median, times->p95, times->worst};
    char word[32];
    for (int i = 0; i < 3; i++)
        text_add(t, "  %8s", text_format_ms(word, sizeof word, ms[i] < 0 ? NAN : (double)ms[i]));
}

static void add_kind(struct text *t, const struct rehearse_report *r, int kind)
{
    struct kind_row row = row_of(r->faulty, kind);
    if (r->mix.weight[kind] == 0)
        return;
    text_add(t, "%-6s %4d %7d", rehearse_plan_word((enum rehearse_kind)kind), row.made, row.healed);
    add_times(t, &row.times[REHEARSE_DETECT_MS]);
    text_add(t, " ");
    add_times(t, &row.times[REHEARSE_RECOVER_MS]);
    text_add(t, "   %s", rehearse_plan_text((enum rehearse_kind)kind));
    if (kind == REHEARSE_KIND_FLIP)
        text_add(t, "; named right: %d of %d", row.named_right, row.made);
    text_add(t, "\n");
}

/* add_devices — adds the device of rank 0, the division of the GPUs and the transport. */
static void add_devices(struct text *t, const struct rehearse_report *r)
{
    const bool is_shared = r->gpu_workers_n > r->gpus_n;
    text_add(t, "devices      ");
    if (r->gpus_n > 0)
        text_add(t, "%d GPU%s for %d workers%s: ", r->gpus_n, r->gpus_n == 1 ? "" : "s",
                 r->gpu_workers_n, is_shared ? ", which share them" : "");
    text_add(t, "%s; %s between workers", r->calm->device, r->calm->backend);
    if (is_shared)
        text_add(t, ", because %s refuses two ranks on one GPU", nccl_lib_name());
    text_add(t, "\n");
}

static void add_head(struct text *t, const struct rehearse_report *r)
{
    double every_s = (double)r->every_ms / 1000;
    text_add(t, "rehearsal    %d nodes on this machine, SEED=%" PRId64 "\n", r->nodes_n, r->seed);
    add_devices(t, r);
    text_add(
        t,
        "faults       one every %g s. A published fleet (Llama 3 405B) had one in %.0f days "
        "on this\n             number of nodes of 8 GPUs: here they come %.0f times as often\n",
        every_s, published_days(r), published_days(r) * DAY_MS / (double)r->every_ms);
    if (r->sentinel_every > 0)
        text_add(t, "set          SENTINEL_EVERY=%" PRId64 ", for flip; it was not set\n",
                 r->sentinel_every);
    for (int kind = 0; kind < REHEARSE_KINDS_N; kind++)
        if (r->left_out[kind][0] != 0)
            text_add(t, "left out     %s: %s\n", rehearse_plan_word((enum rehearse_kind)kind),
                     r->left_out[kind]);
    text_add(t, "\n");
}

/* ---- for programs ---- */

static void put_times(cJSON *to, const char *key, const struct rehearse_times *times)
{
    cJSON *object = cJSON_AddObjectToObject(to, key);
    json_add_number(object, "median", times->n > 0 ? (double)times->median : NAN);
    json_add_number(object, "p95", times->n > 0 ? (double)times->p95 : NAN);
    json_add_number(object, "worst", times->n > 0 ? (double)times->worst : NAN);
}

static const char *const measures[REHEARSE_MEASURES_N] = {
#define MEASURE_WORD(name, word) word,
    REHEARSE_MEASURE_LIST(MEASURE_WORD)
#undef MEASURE_WORD
};

static void put_run(cJSON *root, const char *key, const struct rehearse_result *r)
{
    cJSON *object = cJSON_AddObjectToObject(root, key);
    json_add_i64(object, "steps", r->steps);
    json_add_i64(object, "steps_redone", r->redone);
    json_add_number(object, "seconds", span_ms(r) / 1000);
    json_add_number(object, "step_ms", step_ms(r));
    json_add_i64(object, "unexpected", r->unexpected);
}

static cJSON *json_of(const struct rehearse_report *r)
{
    cJSON *root = cJSON_CreateObject();
    json_add_i64(root, "nodes", r->nodes_n);
    json_add_i64(root, "seed", r->seed);
    json_add_i64(root, "gpus", r->gpus_n);
    json_add_i64(root, "gpu_workers", r->gpu_workers_n);
    cJSON_AddStringToObject(root, "device", r->calm->device);
    cJSON_AddStringToObject(root, "backend", r->calm->backend);
    json_add_number(root, "duration_seconds", (double)r->duration_ms / 1000);
    json_add_number(root, "fault_every_seconds", (double)r->every_ms / 1000);
    json_add_number(root, "published_fault_every_days", published_days(r));
    json_add_i64(root, "sentinel_every_set", r->sentinel_every);
    cJSON *list = cJSON_AddArrayToObject(root, "faults");
    for (int kind = 0; kind < REHEARSE_KINDS_N; kind++) {
        struct kind_row row = row_of(r->faulty, kind);
        cJSON *object = cJSON_CreateObject();
        cJSON_AddItemToArray(list, object);
        cJSON_AddStringToObject(object, "kind", rehearse_plan_word((enum rehearse_kind)kind));
        json_add_i64(object, "weight", r->mix.weight[kind]);
        json_add_i64(object, "made", row.made);
        json_add_i64(object, "healed", row.healed);
        for (int i = 0; i < REHEARSE_MEASURES_N; i++)
            put_times(object, measures[i], &row.times[i]);
        json_add_i64(object, "named_right", row.named_right);
        json_add_i64(object, "named_wrong", row.named_wrong);
        json_add_i64(object, "kept", row.kept);
        cJSON_AddStringToObject(object, "left_out", r->left_out[kind]);
    }
    put_run(root, "calm", r->calm);
    put_run(root, "faulty", r->faulty);
    json_add_number(root, "goodput", compute_goodput(r));
    /* otherwise the number is unknown */
    json_add_number(root, "samples_lost", r->is_whole ? 0 : NAN);
    char calm[20], faulty[20];
    cJSON *object = cJSON_AddObjectToObject(root, "weights");
    text_format(calm, sizeof calm, "%016" PRIx64, r->calm_weights);
    text_format(faulty, sizeof faulty, "%016" PRIx64, r->faulty_weights);
    cJSON_AddBoolToObject(object, "equal", r->compared_n > 0 && r->is_equal);
    json_add_i64(object, "compared", r->compared_n);
    json_add_i64(object, "step", r->compared_step);
    cJSON_AddStringToObject(object, "calm", calm);
    cJSON_AddStringToObject(object, "faulty", faulty);
    cJSON_AddBoolToObject(object, "judged", r->is_exact);
    object = cJSON_AddObjectToObject(root, "losses");
    json_add_i64(object, "compared", r->losses.compared_n);
    json_add_number(object, "worst", r->losses.compared_n > 0 ? r->losses.worst : NAN);
    json_add_i64(object, "worst_step", r->losses.worst_step);
    if (r->problem[0])
        cJSON_AddStringToObject(root, "problem", r->problem);
    else
        cJSON_AddNullToObject(root, "problem");
    return root;
}

static void add_comparison(struct text *t, const struct rehearse_report *r)
{
    if (!r->is_exact && r->losses.compared_n > 0)
        text_add(t,
                 "losses       of %" PRId64 " steps, within %.1e of the calm run's losses (step "
                 "%" PRId64 ")\n",
                 r->losses.compared_n, r->losses.worst, r->losses.worst_step);
    if (r->is_exact && r->compared_n > 0)
        text_add(t,
                 "weights      %s those of the calm run, %d checkpoint%s up to step %" PRId64
                 ": %016" PRIx64 "\n",
                 r->is_equal ? "bit for bit" : "not", r->compared_n, r->compared_n == 1 ? "" : "s",
                 r->compared_step, r->faulty_weights);
    text_add(t, "result       %s\n",
             r->problem[0] ? r->problem
             : r->is_exact ? "all faults healed, with the same weights"
                           : "all faults healed, with the same losses within rounding");
}

void rehearse_report_write(const struct rehearse_report *report, bool as_json, struct text *out)
{
    if (as_json) {
        cJSON *root = json_of(report);
        char *bytes = cJSON_PrintUnformatted(root);
        text_add(out, "%s\n", bytes != NULL ? bytes : "null");
        cJSON_free(bytes);
        cJSON_Delete(root);
        return;
    }
    add_head(out, report);
    text_add(out,
             "fault  made  healed  detected: median, p95, worst   recovered: median, p95, worst\n");
    for (int kind = 0; kind < REHEARSE_KINDS_N; kind++)
        add_kind(out, report, kind);
    char word[32];
    text_add(out, "\ncalm run     %" PRId64 " steps in %.1f s, %s a step\n", report->calm->steps,
             span_ms(report->calm) / 1000,
             text_format_ms(word, sizeof word, step_ms(report->calm)));
    text_add(out, "with faults  %" PRId64 " steps in %.1f s; %" PRId64 " steps done again\n",
             report->faulty->steps, span_ms(report->faulty) / 1000, report->faulty->redone);
    if (report->faulty->unexpected > 0)
        text_add(out, "unexpected   %" PRId64 " times a rank was lost without a fault\n",
                 report->faulty->unexpected);
    text_add(out, "goodput      %.1f %%%s\n", 100 * compute_goodput(report),
             compute_goodput(report) > 1
                 ? ": other work slowed the calm run more than faults the second"
                 : "");
    text_add(out, "samples      %s\n",
             report->is_whole ? "none lost: every sample exactly once"
                              : "not every sample exactly once");
    add_comparison(out, report);
}

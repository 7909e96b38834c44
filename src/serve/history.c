/* history — see history.h. */
#include "serve/history.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

/* ---- points ---- */

/* Returns the phase for events: training, evaluating and saving alternate within a second, so they
 * count as one. */
static enum board_phase plain_phase(enum board_phase phase)
{
    bool is_work = phase == BOARD_PHASE_EVALUATING || phase == BOARD_PHASE_CHECKPOINTING;
    return is_work ? BOARD_PHASE_TRAINING : phase;
}

static int rate_gravity(const struct history_point *point)
{
    return point->phase == BOARD_PHASE_FAILED ? 3
           : point->phase == BOARD_PHASE_RECOVERING
               ? 2
               : (isfinite(point->values[HISTORY_CURVE_STEP_MS]));
}

/* Returns the weighted mean of a and b; an unknown value has no weight. */
static double compute_mean(double a, int a_n, double b, int b_n)
{
    if (!isfinite(a) || !isfinite(b))
        return isfinite(a) ? a : isfinite(b) ? b : NAN;
    return a + (b - a) * b_n / ((double)a_n + b_n);
}

/* Merges the later point into the one before it: means, or the later value for LAST. */
static void merge_point(struct history_point *into, const struct history_point *later)
{
    const bool is_graver = rate_gravity(later) >= rate_gravity(into);
    for (int i = 0; i < HISTORY_CURVE_N; i++)
        into->values[i] = compute_mean(into->values[i], into->observations_n, later->values[i],
                                       later->observations_n);
#define JOIN_NONE(i)
#define JOIN_MEAN(i)
#define JOIN_LAST(i)                \
    if (isfinite(later->values[i])) \
        into->values[i] = later->values[i];
#define JOB_STAT(NAME, field, kind, curve, ...) JOIN_##curve(HISTORY_CURVE_##NAME)
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
    into->loss_low = fminf(into->loss_low, later->loss_low); /* with a NAN: the other number */
    into->loss_high = fmaxf(into->loss_high, later->loss_high);
    into->step = later->step >= 0 ? later->step : into->step;
    if (is_graver)
        into->phase = later->phase;
    into->observations_n += later->observations_n;
}

void history_halve(struct history *h)
{
    int kept_n = 0;
    h->period_ms *= 2;
    for (int i = 0; i < h->points_n; i++) {
        struct history_point point = h->points[i];
        point.at_ms -= point.at_ms % h->period_ms;
        if (kept_n > 0 && h->points[kept_n - 1].at_ms == point.at_ms)
            merge_point(&h->points[kept_n - 1], &point);
        else
            h->points[kept_n++] = point;
    }
    h->points_n = kept_n;
}

/* Measures the GPUs of this node: mean load, fullest memory, highest temperature, sum of power. */
static void measure_gpus(struct history_point *point, const struct view *view)
{
    double *values = point->values, busy_n = 0;
    for (int i = 0; i < view->workers_n; i++) {
        const struct board_gpu *gpu = &view->workers[i].gpu;
        if (!view->workers[i].has_gpu)
            continue;
        values[HISTORY_CURVE_GPU_BUSY] =
            compute_mean(values[HISTORY_CURVE_GPU_BUSY], (int)busy_n, gpu->busy, 1);
        busy_n += isfinite(gpu->busy);
        if (gpu->memory_used >= 0 && gpu->memory_total > 0)
            values[HISTORY_CURVE_GPU_MEMORY] =
                fmax(values[HISTORY_CURVE_GPU_MEMORY],
                     (double)gpu->memory_used / (double)gpu->memory_total);
        values[HISTORY_CURVE_GPU_CELSIUS] =
            fmax(values[HISTORY_CURVE_GPU_CELSIUS], gpu->temperature);
        if (isfinite(gpu->power))
            values[HISTORY_CURVE_GPU_WATTS] = gpu->power + fmax(values[HISTORY_CURVE_GPU_WATTS], 0);
    }
}

static void add_known(double *sum, double value)
{
    if (isfinite(value))
        *sum = value + fmax(*sum, 0);
}

/* Adds one machine: mean and highest load, fullest memory, sums of the rates. *loads_n: machines
 * with a load so far. */
static void measure_machine(double *values, const struct machine_stats *machine, int *loads_n)
{
    values[HISTORY_CURVE_MACHINE_CPU] =
        compute_mean(values[HISTORY_CURVE_MACHINE_CPU], *loads_n, machine->cpu_busy, 1);
    *loads_n += isfinite(machine->cpu_busy);
    values[HISTORY_CURVE_MACHINE_CPU_HIGH] =
        fmax(values[HISTORY_CURVE_MACHINE_CPU_HIGH], machine->cpu_busy);
    if (machine->memory_used >= 0 && machine->memory_total > 0)
        values[HISTORY_CURVE_MACHINE_MEMORY] =
            fmax(values[HISTORY_CURVE_MACHINE_MEMORY],
                 (double)machine->memory_used / (double)machine->memory_total);
    add_known(&values[HISTORY_CURVE_MACHINE_DISK_READ], machine->disk_read);
    add_known(&values[HISTORY_CURVE_MACHINE_DISK_WRITE], machine->disk_written);
    add_known(&values[HISTORY_CURVE_MACHINE_RECEIVED], machine->net_received);
    add_known(&values[HISTORY_CURVE_MACHINE_SENT], machine->net_sent);
}

/* Makes a point. Repeated numbers are not a new measurement: a worker repeats its last ones while
 * it evaluates, saves or recovers. */
static struct history_point point_of(struct history *h, const struct view *view, int64_t at_ms)
{
    const struct board_worker *first_worker = view->first_worker;
    struct history_point point = {.at_ms = at_ms,
                                  .step = -1,
                                  .observations_n = 1,
                                  .phase = view->phase,
                                  .loss_low = NAN,
                                  .loss_high = NAN};
    for (int i = 0; i < HISTORY_CURVE_N; i++)
        point.values[i] = NAN;
    measure_gpus(&point, view);
    int loads_n = 0;
    if (view->nodes_n == 0)
        measure_machine(point.values, &view->machine, &loads_n);
    for (int i = 0; i < view->nodes_n; i++)
        measure_machine(point.values, &view->nodes[i].machine, &loads_n);
    if (first_worker == NULL || first_worker->step < 0 ||
        plain_phase(view->phase) != BOARD_PHASE_TRAINING)
        return point;
    const bool is_new = first_worker->step_ms_n > 0 &&
                        (first_worker->step != h->step || first_worker->step_ms_n != h->timed_n),
               is_evaluated =
                   isfinite(first_worker->val_loss) && first_worker->val_loss != h->val_loss;
    if (is_new) {
        /* The numbers of a step done since the last observation; LAST curves are set separately. */
#define VALUE_NUMBER(field) first_worker->field
#define VALUE_MS(field) first_worker->field
#define VALUE_TIMES(field) view_step_ms(first_worker, 0)
#define MEASURE_NONE(NAME, value)
#define MEASURE_MEAN(NAME, value) point.values[HISTORY_CURVE_##NAME] = value;
#define MEASURE_LAST(NAME, value)
#define JOB_STAT(NAME, field, kind, curve, ...) MEASURE_##curve(NAME, VALUE_##kind(field))
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
        point.phase = BOARD_PHASE_TRAINING;
        point.loss_low = point.loss_high = (float)first_worker->loss;
    }
    if (is_evaluated)
        point.values[HISTORY_CURVE_VAL_LOSS] = h->val_loss = first_worker->val_loss;
    if (is_new || is_evaluated)
        point.step = first_worker->step;
    h->step = first_worker->step;
    h->timed_n = first_worker->step_ms_n;
    return point;
}

static void add_point(struct history *h, struct history_point point)
{
    const int64_t at_ms = point.at_ms;
    point.at_ms -= at_ms % h->period_ms;
    struct history_point *last = h->points_n > 0 ? &h->points[h->points_n - 1] : NULL;
    if (last != NULL && last->at_ms == point.at_ms) {
        merge_point(last, &point);
    } else if (h->points_n < HISTORY_POINTS) {
        h->points[h->points_n++] = point;
    } else {
        /* With gaps, no two points may be neighbours at first. */
        while (h->points_n == HISTORY_POINTS)
            history_halve(h);
        point.at_ms = at_ms;
        add_point(h, point); /* recurses once: there is room now */
    }
}

/* ---- events ---- */

static void add_event(struct history *h, int64_t at_ms, const char *kind, const char *text)
{
    struct history_event *event = &h->events[h->events_n++ % HISTORY_EVENTS];
    event->at_ms = at_ms;
    event->kind = kind;
    text_copy(event->text, sizeof(event->text), text);
}

static void note_nodes(struct history *h, const struct view *view, int64_t age_ms)
{
    char text[64];
    int there = 0;
    for (int i = 0; i < view->nodes_n; i++)
        there += strcmp(view->nodes[i].state, "joined") == 0;
    if (view->nodes_n > 0 && there != h->nodes_there) {
        text_format(text, sizeof(text), "%d of %d nodes are connected", there, view->nodes_n);
        add_event(h, age_ms, "nodes", text);
        h->nodes_there = there;
    }
}

static void note_checkpoint(struct history *h, const struct view *view, int64_t age_ms)
{
    char text[sizeof h->events->text];
    const struct board_checkpoint *checkpoint =
        view->first_worker != NULL ? &view->first_worker->checkpoint : NULL;
    if (checkpoint == NULL)
        return;
    if (checkpoint->failures > h->failures) {
        text_format(text, sizeof(text), "checkpoint not written: %s",
                    checkpoint->error[0] != 0 ? checkpoint->error : "see the log");
        add_event(h, age_ms, "checkpoint", text);
    }
    h->failures = checkpoint->failures; /* a restarted worker counts from 0 */
}

static int64_t age_of(const struct history *h, const struct view *view)
{
    return h->offset_ms +
           (view->now_ms > view->node.started_ms ? view->now_ms - view->node.started_ms : 0);
}

void history_sample(struct history *h, const struct view *view, int64_t step, const char *text)
{
    const bool is_again =
        h->samples_n > 0 && h->samples[(h->samples_n - 1) % HISTORY_SAMPLES].step == step;
    struct history_sample *sample =
        &h->samples[(is_again ? h->samples_n - 1 : h->samples_n++) % HISTORY_SAMPLES];
    sample->at_ms = age_of(h, view);
    sample->step = step;
    text_copy(sample->text, sizeof(sample->text), text);
}

void history_observe(struct history *h, const struct view *view)
{
    const int64_t age_ms = age_of(h, view);
    if (h->period_ms == 0)
        h->period_ms = HISTORY_PERIOD_MS;
    if (h->points_n > 0 && age_ms < h->points[h->points_n - 1].at_ms)
        return;
    const bool was_over = view_is_over(view) && h->events_n > 0 && h->phase == view->phase;
    char text[sizeof h->events->text];
    if (view->node.restarts > h->restarts) {
        text_format(text, sizeof(text), "restart %lld: %s", (long long)view->node.restarts,
                    view->node.last_failure[0] != 0 ? view->node.last_failure : "see the log");
        add_event(h, age_ms, "restart", text);
    }
    h->restarts = view->node.restarts;
    enum board_phase phase = plain_phase(view->phase);
    if (h->events_n == 0 || phase != h->phase)
        add_event(h, age_ms, "phase", board_phase_text(phase));
    h->phase = phase;
    note_nodes(h, view, age_ms);
    note_checkpoint(h, view, age_ms);
    const struct board_error *error = view_error(view);
    int code = error != NULL ? error->code : 0;
    if (code != 0 && code != h->error_code)
        add_event(h, age_ms, "error", error->message);
    h->error_code = code;
    if (!was_over) /* after the end a node only lingers */
        add_point(h, point_of(h, view, age_ms));
}

/* ---- the JSON ---- */

static void add_number(struct text *t, double value)
{
    if (isfinite(value))
        text_add(t, "%.6g", value);
    else
        text_add(t, "null");
}

static void add_list(const struct history *h, struct text *t, const char *name,
                     double (*value)(const struct history_point *point, int curve), int curve)
{
    text_add(t, ",\"%s\":[", name);
    for (int i = 0; i < h->points_n; i++) {
        if (i > 0)
            text_add(t, ",");
        add_number(t, value(&h->points[i], curve));
    }
    text_add(t, "]");
}

static double value_of(const struct history_point *point, int curve)
{
    return point->values[curve];
}
static double low_of(const struct history_point *point, int curve)
{
    return (void)curve, point->loss_low;
}
static double high_of(const struct history_point *point, int curve)
{
    return (void)curve, point->loss_high;
}

const char *history_curve_text(enum history_curve curve)
{
    static const char *const names[HISTORY_CURVE_N] = {
#define JOB_STAT(NAME, field, kind, curve, ...) HISTORY_CURVE_IF_##curve(#field, )
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
#define HISTORY_CURVE_ROW(NAME, text) text,
        HISTORY_CURVE_GPUS(HISTORY_CURVE_ROW) HISTORY_CURVE_MACHINES(HISTORY_CURVE_ROW)
#undef HISTORY_CURVE_ROW
    };
    return names[curve];
}

static void add_samples(const struct history *h, struct text *t)
{
    char quoted[6 * sizeof(h->samples[0].text) + 3];
    int64_t first = h->samples_n > HISTORY_SAMPLES ? h->samples_n - HISTORY_SAMPLES : 0;
    for (int64_t i = first; i < h->samples_n; i++) {
        const struct history_sample *sample = &h->samples[i % HISTORY_SAMPLES];
        json_quote(quoted, sizeof(quoted), sample->text);
        text_add(t, "%s{\"seconds\":%.1f,\"step\":%lld,\"text\":%s}", i > first ? "," : "",
                 (double)sample->at_ms / 1000, (long long)sample->step, quoted);
    }
}

void history_write(const struct history *h, struct text *t)
{
    static const struct history empty = {.period_ms = HISTORY_PERIOD_MS};
    if (h == NULL || h->period_ms == 0)
        h = &empty;
    text_add(t, "{\"schema\":%d,\"period_seconds\":%.6g,\"offset_seconds\":%.3f,\"points\":{",
             HISTORY_SCHEMA, (double)h->period_ms / 1000, (double)h->offset_ms / 1000);
    text_add(t, "\"seconds\":[");
    for (int i = 0; i < h->points_n; i++)
        text_add(t, "%s%lld", i > 0 ? "," : "", (long long)(h->points[i].at_ms / 1000));
    text_add(t, "],\"phase\":[");
    for (int i = 0; i < h->points_n; i++)
        text_add(t, "%s\"%s\"", i > 0 ? "," : "", board_phase_text(h->points[i].phase));
    text_add(t, "],\"step\":[");
    for (int i = 0; i < h->points_n; i++) {
        text_add(t, "%s", i > 0 ? "," : "");
        if (h->points[i].step >= 0)
            text_add(t, "%lld", (long long)h->points[i].step);
        else
            text_add(t, "null");
    }
    text_add(t, "]");
    for (int i = 0; i < HISTORY_CURVE_N; i++)
        add_list(h, t, history_curve_text((enum history_curve)i), value_of, i);
    add_list(h, t, "loss_low", low_of, 0);
    add_list(h, t, "loss_high", high_of, 0);
    text_add(t, "},\"events\":[");
    char quoted[6 * sizeof(h->events[0].text) + 3];
    int64_t first = h->events_n > HISTORY_EVENTS ? h->events_n - HISTORY_EVENTS : 0;
    for (int64_t i = first; i < h->events_n; i++) {
        const struct history_event *event = &h->events[i % HISTORY_EVENTS];
        json_quote(quoted, sizeof(quoted), event->text);
        text_add(t, "%s{\"seconds\":%.1f,\"kind\":\"%s\",\"text\":%s}", i > first ? "," : "",
                 (double)event->at_ms / 1000, event->kind, quoted);
    }
    text_add(t, "],\"samples\":[");
    add_samples(h, t);
    text_add(t, "]}\n");
}

/* ---- CSV ---- */

static void add_cell(struct text *t, double value)
{
    text_add(t, isfinite(value) ? ",%.9g" : ",", value);
}

void history_csv(const struct history *h, struct text *t)
{
    text_add(t, "seconds,step,phase");
    for (int i = 0; i < HISTORY_CURVE_N; i++)
        text_add(t, ",%s", history_curve_text((enum history_curve)i));
    text_add(t, ",loss_low,loss_high\n");
    for (int i = 0; h != NULL && i < h->points_n; i++) {
        const struct history_point *point = &h->points[i];
        text_add(t, "%lld,", (long long)(point->at_ms / 1000));
        if (point->step >= 0)
            text_add(t, "%lld", (long long)point->step);
        text_add(t, ",%s", board_phase_text(point->phase));
        for (int k = 0; k < HISTORY_CURVE_N; k++)
            add_cell(t, point->values[k]);
        add_cell(t, point->loss_low);
        add_cell(t, point->loss_high);
        text_add(t, "\n");
    }
}

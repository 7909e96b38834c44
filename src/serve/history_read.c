/* history_read — reads the history of an earlier run, and prepends it to this run's. The file's
 * bytes are untrusted. See history.h. */
#include "serve/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define SECONDS_MAX 1e10 /* three hundred years */
#define STEP_MAX 9e15

static enum status refuse(const char *what) { return FAIL(ST_BAD_DATA, "%s", what); }

/* ---- lists ---- */

/* Reads exactly points_n numbers; null becomes NAN. */
static enum status read_list(const cJSON *points, const char *name, int points_n, double *out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(points, name), *item;
    int i = 0;
    if (list == NULL) { /* an older version did not have this curve */
        for (; i < points_n; i++)
            out[i] = NAN;
        return ST_OK;
    }
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != points_n)
        return refuse("the lists of points differ in length");
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNull(item) && !cJSON_IsNumber(item))
            return refuse("a point is not a number");
        out[i++] =
            cJSON_IsNumber(item) && fabs(item->valuedouble) < 1e100 ? item->valuedouble : NAN;
    }
    return ST_OK;
}

/* Reads times and phases, which every point has. Times increase, in multiples of the period. */
static enum status read_times(const cJSON *points, struct history *out, double *numbers)
{
    const cJSON *phases = cJSON_GetObjectItemCaseSensitive(points, "phase"), *item;
    int i = 0;
    TRY(read_list(points, "seconds", out->points_n, numbers));
    if (!cJSON_IsArray(phases) || cJSON_GetArraySize(phases) != out->points_n)
        return refuse("the lists of points differ in length");
    cJSON_ArrayForEach(item, phases)
    {
        struct history_point *point = &out->points[i];
        point->phase = board_phase_named(cJSON_IsString(item) ? item->valuestring : "");
        if (point->phase == BOARD_PHASE_N || !(numbers[i] >= 0 && numbers[i] < SECONDS_MAX))
            return refuse("a point has no time or phase");
        point->at_ms = (int64_t)numbers[i] * 1000;
        point->observations_n = 1;
        if (point->at_ms % out->period_ms != 0 ||
            (i > 0 && point->at_ms <= out->points[i - 1].at_ms))
            return refuse("the times of points are not increasing multiples of the period");
        i++;
    }
    return ST_OK;
}

static enum status read_points(const cJSON *points, struct history *out)
{
    double numbers[HISTORY_POINTS];
    const int n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(points, "seconds"));
    if (!cJSON_IsObject(points) || n > HISTORY_POINTS)
        return refuse("there are no points, or too many");
    out->points_n = n;
    TRY(read_times(points, out, numbers));
    TRY(read_list(points, "step", n, numbers));
    for (int i = 0; i < n; i++)
        out->points[i].step = numbers[i] >= 0 && numbers[i] < STEP_MAX ? (int64_t)numbers[i] : -1;
    for (int k = 0; k < HISTORY_CURVE_N; k++) {
        TRY(read_list(points, history_curve_text((enum history_curve)k), n, numbers));
        for (int i = 0; i < n; i++)
            out->points[i].values[k] = numbers[i];
    }
    TRY(read_list(points, "loss_low", n, numbers));
    for (int i = 0; i < n; i++)
        out->points[i].loss_low = (float)numbers[i];
    TRY(read_list(points, "loss_high", n, numbers));
    for (int i = 0; i < n; i++)
        out->points[i].loss_high = (float)numbers[i];
    return ST_OK;
}

/* ---- events, samples ---- */

static bool has_time(const cJSON *item)
{
    const double seconds = json_number(item, "seconds");
    return seconds >= 0 && seconds < SECONDS_MAX;
}

static const char *kind_of(const char *kind)
{
    static const char *const kinds[] = {"phase",      "restart", "nodes",
                                        "checkpoint", "error",   "resume"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kind, kinds[i]) == 0)
            return kinds[i];
    return NULL;
}

static void read_samples(const cJSON *list, struct history *out)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        const double step = json_number(item, "step");
        if (!(step >= 0 && step < STEP_MAX) || !has_time(item) || out->samples_n >= HISTORY_SAMPLES)
            continue;
        struct history_sample *sample = &out->samples[out->samples_n++];
        sample->at_ms = (int64_t)(1000 * json_number(item, "seconds"));
        sample->step = (int64_t)step;
        text_copy(sample->text, sizeof(sample->text), json_text(item, "text"));
    }
}

static enum status read_document(const cJSON *root, struct history *out)
{
    const double schema = json_number(root, "schema"), period = json_number(root, "period_seconds");
    if (schema != HISTORY_SCHEMA)
        return refuse("its schema is unknown");
    if (!(period >= 1 && period < SECONDS_MAX) || exp2(round(log2(period))) != period)
        return refuse("its period is not a power of two of seconds");
    out->period_ms = (int64_t)period * 1000;
    TRY(read_points(cJSON_GetObjectItemCaseSensitive(root, "points"), out));
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "events");
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        const char *kind = kind_of(json_text(item, "kind"));
        if (kind == NULL || !has_time(item) || out->events_n >= HISTORY_EVENTS)
            continue;
        struct history_event *event = &out->events[out->events_n++];
        event->at_ms = (int64_t)(1000 * json_number(item, "seconds"));
        event->kind = kind;
        text_copy(event->text, sizeof(event->text), json_text(item, "text"));
    }
    read_samples(cJSON_GetObjectItemCaseSensitive(root, "samples"), out);
    return ST_OK;
}

enum status history_read(const char *bytes, size_t n, struct history *out)
{
    cJSON *root = NULL;
    memset(out, 0, sizeof(*out));
    TRY(json_parse(bytes, n, "the history", &root));
    enum status st = read_document(root, out);
    cJSON_Delete(root);
    if (st != ST_OK)
        memset(out, 0, sizeof(*out));
    return st;
}

/* ---- prepending ---- */

/* Drops points beyond the step, points whose step was done again later, and all points after the
 * last remaining one. */
static void cut_points(struct history *old, int64_t step)
{
    bool stays[HISTORY_POINTS];
    int kept_n = 0, last = -1;
    int64_t measured = -1; /* the earliest step kept so far with numbers */
    for (int i = old->points_n - 1; i >= 0; i--) {
        const int64_t at = old->points[i].step;
        const bool has_step = isfinite(old->points[i].values[HISTORY_CURVE_STEP_MS]);
        stays[i] = at <= step && (at >= 0 || last >= 0) && !(has_step && at == measured);
        measured = stays[i] && has_step ? at : measured;
        last = stays[i] && last < 0 ? i : last;
        step = stays[i] && at >= 0 ? at : step;
    }
    const int64_t end_ms = last >= 0 ? old->points[last].at_ms + old->period_ms : 0;
    for (int i = 0; i <= last; i++)
        if (stays[i])
            old->points[kept_n++] = old->points[i];
    old->points_n = kept_n;
    while (old->events_n > 0 && old->events[(old->events_n - 1) % HISTORY_EVENTS].at_ms >= end_ms)
        old->events_n--;
}

static void coarsen_history(struct history *h, int64_t period_ms)
{
    while (h->period_ms < period_ms)
        history_halve(h);
}

void history_read_prepend(struct history *h, struct history *old, int64_t step)
{
    if (step != HISTORY_ALL) {
        cut_points(old, step);
        int64_t kept_n = 0;
        for (int64_t i = 0; i < old->samples_n; i++)
            if (old->samples[i].step <= step)
                old->samples[kept_n++] = old->samples[i];
        old->samples_n = kept_n;
    }
    if (old->points_n == 0)
        return;
    h->period_ms = h->period_ms > 0 ? h->period_ms : HISTORY_PERIOD_MS;
    coarsen_history(h, old->period_ms);
    coarsen_history(old, h->period_ms);
    while (h->points_n + old->points_n > HISTORY_POINTS) {
        history_halve(h);
        history_halve(old);
    }
    const int64_t offset_ms =
        old->points_n > 0 ? old->points[old->points_n - 1].at_ms + old->period_ms : 0;
    if (step != HISTORY_ALL) {
        struct history_event *event = &old->events[old->events_n++ % HISTORY_EVENTS];
        event->at_ms = offset_ms;
        event->kind = "resume";
        text_format(event->text, sizeof(event->text), "resumed from step %lld", (long long)step);
    }
    /* Appends this run's course so far, offset_ms later. */
    for (int i = 0; i < h->points_n; i++) {
        old->points[old->points_n] = h->points[i];
        old->points[old->points_n++].at_ms += offset_ms;
    }
    for (int64_t i = h->events_n > HISTORY_EVENTS ? h->events_n - HISTORY_EVENTS : 0;
         i < h->events_n; i++) {
        struct history_event *event = &old->events[old->events_n++ % HISTORY_EVENTS];
        *event = h->events[i % HISTORY_EVENTS];
        event->at_ms += offset_ms;
    }
    for (int64_t i = h->samples_n > HISTORY_SAMPLES ? h->samples_n - HISTORY_SAMPLES : 0;
         i < h->samples_n; i++) {
        struct history_sample *sample = &old->samples[old->samples_n++ % HISTORY_SAMPLES];
        *sample = h->samples[i % HISTORY_SAMPLES];
        sample->at_ms += offset_ms;
    }
    memcpy(h->points, old->points, sizeof(h->points));
    memcpy(h->events, old->events, sizeof(h->events));
    memcpy(h->samples, old->samples, sizeof(h->samples));
    h->points_n = old->points_n;
    h->events_n = old->events_n;
    h->samples_n = old->samples_n;
    h->offset_ms = offset_ms;
    h->period_ms = old->period_ms;
}

#ifdef FUZZ
#include "base/assert.h"

/* The first byte is the step to resume from, the rest the file. An accepted history can be
 * prepended and written, and is then read again. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct history old, now, again;
    struct text t = {0};
    if (size == 0 || history_read((const char *)data + 1, size - 1, &old) != ST_OK)
        return 0;
    memset(&now, 0, sizeof(now));
    now.period_ms = HISTORY_PERIOD_MS;
    history_read_prepend(&now, &old, data[0]);
    for (int i = 0; i < now.points_n; i++)
        ASSERT(now.points[i].step <= data[0] &&
               (i == 0 || now.points[i].at_ms > now.points[i - 1].at_ms));
    history_write(&now, &t);
    ASSERT(history_read(t.data, t.len, &again) == ST_OK && again.points_n == now.points_n);
    text_free(&t);
    return 0;
}
#endif

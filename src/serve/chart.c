/* chart — see chart.h. */
#include "serve/chart.h"

#include <math.h>
#include <string.h>

#define CHART_CELLS 48
#define CHART_EVENTS 6

void chart_strip_controls(cJSON *item)
{
    for (; item != NULL; item = item->next) {
        if (cJSON_IsString(item))
            text_strip_controls(item->valuestring);
        chart_strip_controls(item->child);
    }
}

/* ---- curves ---- */

struct chart_curve {
    int cells_n;
    double cells[CHART_CELLS]; /* mean of the points in the cell; NAN: it has none */
    double first, last, low, high;
};

/* Returns the value of a point. Between two slow steps of training the last value still holds, in
 * other phases none does. */
static double value_at(const cJSON *item, const cJSON *phase, double before)
{
    /* a limit, so that sums and differences stay finite */
    if (cJSON_IsNumber(item) && fabs(item->valuedouble) < 1e100)
        return item->valuedouble;
    const bool is_training = cJSON_IsString(phase) && strcmp(phase->valuestring, "training") == 0;
    return is_training ? before : NAN;
}

static void fill_curve(struct chart_curve *curve, const cJSON *list, const cJSON *phases)
{
    const cJSON *item, *phase = phases != NULL ? phases->child : NULL;
    double value = NAN;
    double sums[CHART_CELLS] = {0};
    int counts[CHART_CELLS] = {0};
    int64_t n = cJSON_GetArraySize(list), i = 0;
    *curve = (struct chart_curve){.cells_n = n < CHART_CELLS ? (int)n : CHART_CELLS,
                                  .first = NAN,
                                  .last = NAN,
                                  .low = NAN,
                                  .high = NAN};
    cJSON_ArrayForEach(item, list)
    {
        const int cell = (int)(i++ * curve->cells_n / n);
        value = value_at(item, phase, value);
        phase = phase != NULL ? phase->next : NULL;
        if (isnan(value))
            continue;
        if (isnan(curve->first))
            curve->first = curve->low = curve->high = value;
        curve->last = value;
        curve->low = fmin(curve->low, value);
        curve->high = fmax(curve->high, value);
        sums[cell] += value;
        counts[cell]++;
    }
    for (int k = 0; k < curve->cells_n; k++)
        curve->cells[k] = counts[k] > 0 ? sums[k] / counts[k] : NAN;
}

static void add_curve(struct text *t, const char *label, const cJSON *points, const char *name,
                      bool is_count)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    struct chart_curve curve;
    char first[32], last[32];
    fill_curve(&curve, cJSON_GetObjectItemCaseSensitive(points, name),
               cJSON_GetObjectItemCaseSensitive(points, "phase"));
    if (isnan(curve.first))
        return;
    if (is_count) {
        text_format_count(first, sizeof(first), curve.first);
        text_format_count(last, sizeof(last), curve.last);
    } else {
        text_format(first, sizeof(first), "%.4g", curve.first);
        text_format(last, sizeof(last), "%.4g", curve.last);
    }
    text_add(t, "%s%6s ", label, first);
    for (int i = 0; i < curve.cells_n; i++) {
        const double height =
            curve.high > curve.low ? (curve.cells[i] - curve.low) / (curve.high - curve.low) : 0.5;
        const int level = isnan(height) ? 0 : (int)(height * 7 + 0.5);
        text_add(t, "%s",
                 isnan(curve.cells[i]) ? " "
                                       : blocks[level < 0   ? 0
                                                : level > 7 ? 7
                                                            : level]);
    }
    text_add(t, " %s\n", last);
}

/* ---- events ---- */

void chart_write(const char *bytes, size_t n, struct text *t)
{
    cJSON *root = NULL;
    if (json_parse(bytes, n, "the history", &root) != ST_OK)
        return;
    chart_strip_controls(root);
    const cJSON *points = cJSON_GetObjectItemCaseSensitive(root, "points");
    add_curve(t, "loss     ", points, "loss", false);
    add_curve(t, "tok/s    ", points, "tokens_per_second", true);
    const cJSON *events = cJSON_GetObjectItemCaseSensitive(root, "events");
    const cJSON *event;
    char after[32];
    int skipped = cJSON_GetArraySize(events) - CHART_EVENTS;
    cJSON_ArrayForEach(event, events)
    {
        const double seconds = json_number(event, "seconds");
        if (skipped-- > 0 || json_text(event, "text")[0] == 0)
            continue;
        const bool is_known = seconds >= 0 && seconds < 1e12;
        text_format_span(after, sizeof(after), is_known ? (int64_t)(seconds * 1000) : -1);
        text_add(t, "after %-5s  %s\n", after, json_text(event, "text"));
    }
    cJSON_Delete(root);
}

#ifdef FUZZ
#include "base/assert.h"

/* Checks that no control byte reaches the terminal, whatever a node answers. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct text shown = {.limit = (size_t)4 << 20};
    chart_write((const char *)bytes, n, &shown);
    for (size_t i = 0; i < shown.len; i++)
        ASSERT(((unsigned char)shown.data[i] >= 0x20 || shown.data[i] == '\n') &&
               shown.data[i] != 0x7F);
    text_free(&shown);
    return 0;
}
#endif

/* spike — see spike.h. */
#include "train/step/spike.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define LEVEL_BITS 16
#define LEVEL_ONE (1 << LEVEL_BITS)
#define MAD_TO_SIGMA 1.4826          /* for a normal distribution */
#define LOG2_E 1.442695              /* log2(1 + x) is x times this, for a small x */
#define VALUE_MIN 1e-30              /* log2 of 0 is not finite */
#define LEVEL_MAX (2048 * LEVEL_ONE) /* above the level of any f64; differences fit as well */

/* level_of — Returns log2 of a finite value, rounded down. It squares, because libm's log2 may have
 * other last bits on another processor. */
static int32_t level_of(double value)
{
    int exponent;
    double m = frexp(value > VALUE_MIN ? value : VALUE_MIN, &exponent) * 2; /* 1 … 2 */
    int32_t level = exponent - 1;
    for (int bit = 0; bit < LEVEL_BITS; bit++) {
        m *= m;
        level = 2 * level + (m >= 2);
        m = m >= 2 ? m / 2 : m;
    }
    return level;
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* median_of — Returns the median of n > 0 values. */
static int64_t median_of(const int64_t *values, int n)
{
    int64_t sorted[SPIKE_WINDOW];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return sorted[n / 2];
}

/* The line through the medians of two halves of n values; whole numbers. */
struct line {
    int64_t newer; /* the median of the newer half */
    int64_t rise;  /* from the older half's median to it */
    int half, distance;
};

/* deviation_of — Returns the standard deviation, in levels, of values from a line, n > 1. Values
 * are multiplied by the distance, so they stay whole numbers. */
static double deviation_of(const int64_t *values, int n, const struct line *line)
{
    int64_t rest[SPIKE_WINDOW] = {0};
    for (int i = 0; i < n; i++)
        rest[i] = values[i] * line->distance - line->rise * i;
    const int64_t middle = median_of(rest, n);
    for (int i = 0; i < n; i++)
        rest[i] = rest[i] > middle ? rest[i] - middle : middle - rest[i];
    return MAD_TO_SIGMA * (double)median_of(rest, n) / line->distance;
}

/* The distance of a number above its history. */
struct distance {
    double expected, sigmas;
};

/* deviation_min: least standard deviation of a value. */
static struct distance distance_of(const int64_t *values, int n, int32_t level,
                                   double deviation_min)
{
    const int half = n / 2;
    const int64_t newer = median_of(values + n - half, half);
    const struct line line = {newer, newer - median_of(values, half), half, n - half};
    /* The value of a rising line at the next step, or the median of the newer half. A falling line
     * is not continued: a fast fall soon becomes slower. */
    const int64_t rise = line.rise > 0 ? line.rise : 0;
    const int64_t expected = line.newer + rise * (line.half + 1) / (2 * line.distance);
    double deviation = deviation_of(values, n, &line) / LEVEL_ONE;
    if (deviation < LOG2_E * deviation_min)
        deviation = LOG2_E * deviation_min;
    return (struct distance){.expected = exp2((double)expected / LEVEL_ONE),
                             .sigmas = (double)(level - expected) / LEVEL_ONE / deviation};
}

static bool is_skipped(const struct spike_level *l) { return l->loss == SPIKE_SKIPPED; }

static int skipped_n(const struct spike_history *h)
{
    int n = 0;
    for (int i = 0; i < h->n; i++)
        n += is_skipped(&h->level[i]);
    return n;
}

/* make_room — Drops the oldest step of a full history. */
static void make_room(struct spike_history *h)
{
    if (h->n < SPIKE_WINDOW)
        return;
    h->n = SPIKE_WINDOW - 1;
    memmove(h->level, h->level + 1, (size_t)h->n * sizeof *h->level);
}

/* compare_history — Sets the verdict if one of the numbers is a spike. */
static void compare_history(const struct spike_config *config, const struct spike_history *h,
                            struct spike_level level, struct spike_verdict *v)
{
    int64_t loss[SPIKE_WINDOW], norm[SPIKE_WINDOW];
    int n = 0;
    for (int i = 0; i < h->n; i++) {
        loss[n] = h->level[i].loss;
        norm[n] = h->level[i].norm;
        n += !is_skipped(&h->level[i]);
    }
    if (2 * n < SPIKE_WINDOW)
        return;
    struct distance d = distance_of(loss, n, level.loss, SPIKE_LOSS_DEVIATION_MIN);
    v->cause = d.sigmas > config->sigma ? SPIKE_CAUSE_LOSS : SPIKE_CAUSE_NONE;
    if (v->cause == SPIKE_CAUSE_NONE) {
        d = distance_of(norm, n, level.norm, SPIKE_NORM_DEVIATION_MIN);
        v->cause = d.sigmas > config->sigma ? SPIKE_CAUSE_NORM : SPIKE_CAUSE_NONE;
    }
    v->expected = d.expected;
    v->sigmas = d.sigmas;
}

struct spike_verdict spike_check(const struct spike_config *config, struct spike_history *h,
                                 double loss, double grad_norm)
{
    struct spike_verdict v = {.cause = SPIKE_CAUSE_NOT_FINITE};
    struct spike_level level = {SPIKE_SKIPPED, SPIKE_SKIPPED};
    ASSERT(config->mode != SPIKE_MODE_OFF && h->n <= SPIKE_WINDOW);
    make_room(h);
    if (isfinite(loss) && isfinite(grad_norm)) {
        level = (struct spike_level){level_of(loss), level_of(grad_norm)};
        v.cause = SPIKE_CAUSE_NONE;
        compare_history(config, h, level, &v);
    }
    v.skipped_n = skipped_n(h) + (v.cause != SPIKE_CAUSE_NONE);
    v.is_skipped = v.cause != SPIKE_CAUSE_NONE && config->mode == SPIKE_MODE_SKIP &&
                   v.skipped_n <= SPIKE_LIMIT;
    if (v.cause != SPIKE_CAUSE_NONE)
        level = (struct spike_level){SPIKE_SKIPPED, SPIKE_SKIPPED};
    if (v.cause == SPIKE_CAUSE_NONE || v.is_skipped)
        h->level[h->n++] = level;
    return v;
}

void spike_history_write(const struct spike_history *h, char *out, size_t cap)
{
    ASSERTF(cap > SPIKE_HISTORY_CHARS, "room for %zu bytes", cap);
    out[0] = 0;
    for (int i = 0; i < h->n; i++)
        text_format(out + SPIKE_LEVEL_CHARS * i, SPIKE_LEVEL_CHARS + 1, "%08x%08x",
                    (unsigned)h->level[i].loss, (unsigned)h->level[i].norm);
}

/* parse_level — Reads exactly eight hexadecimal digits. */
static bool parse_level(const char *text, int32_t *out)
{
    uint64_t value;
    if (!text_parse_hex(text, SPIKE_LEVEL_CHARS / 2, &value))
        return false;
    const uint32_t bits = (uint32_t)value;
    memcpy(out, &bits, sizeof bits);
    return true;
}

/* is_level — Returns true for a value that level_of can return, or a skipped step. */
static bool is_level(const struct spike_level *l)
{
    if (l->loss == SPIKE_SKIPPED || l->norm == SPIKE_SKIPPED)
        return l->loss == l->norm;
    return l->loss > -LEVEL_MAX && l->loss < LEVEL_MAX && l->norm > -LEVEL_MAX &&
           l->norm < LEVEL_MAX;
}

bool spike_history_parse(const char *text, struct spike_history *out)
{
    *out = (struct spike_history){.n = 0};
    if (strlen(text) % SPIKE_LEVEL_CHARS != 0)
        return false;
    for (const char *at = text; at[0] != 0; at += SPIKE_LEVEL_CHARS) {
        make_room(out);
        struct spike_level *level = &out->level[out->n++];
        if (!parse_level(at, &level->loss) ||
            !parse_level(at + SPIKE_LEVEL_CHARS / 2, &level->norm) || !is_level(level))
            return false;
    }
    return true;
}

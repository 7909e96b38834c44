/* history — what a node has looked like since its start, in bounded memory: curves for the page,
 * and what happened.
 *
 * A look a moment becomes a point a period. When the points are used up, neighbours are merged and
 * the period doubles, so that a run of any length keeps its whole course. Rates and times of a
 * point are means of its looks; of the loss the lowest and highest are kept too, so that a spike
 * outlives the merging. Only what a step has measured since the last look counts: while a node
 * evaluates, saves or recovers there are no numbers. Events (a phase begins, a worker or node is
 * lost, a checkpoint fails) are kept one by one, the newest HISTORY_EVENTS.
 *
 * A pure function of the views given to it. Must not know HTTP or clocks. */
#ifndef CONVOY_SERVE_HISTORY_H
#define CONVOY_SERVE_HISTORY_H

#include <stdint.h>

#include "base/text.h"
#include "serve/view.h"

#define HISTORY_SCHEMA 1
#define HISTORY_POINTS 600
#define HISTORY_EVENTS 48
#define HISTORY_SAMPLES 12
#define HISTORY_PERIOD_MS 1000 /* of a point, at first */

/* The curves: those of rank_stats.def, then what is made of the GPUs of this node. */
#define HISTORY_CURVE_GPUS(X)      \
    X(GPU_BUSY, "gpu_utilisation") \
    X(GPU_MEMORY, "gpu_memory")    \
    X(GPU_CELSIUS, "gpu_celsius")  \
    X(GPU_WATTS, "gpu_watts")
#define HISTORY_CURVE_IF_NONE(...)
#define HISTORY_CURVE_IF_MEAN(...) __VA_ARGS__
#define HISTORY_CURVE_IF_LAST(...) __VA_ARGS__
enum history_curve {
#define JOB_STAT(NAME, field, kind, curve, ...) HISTORY_CURVE_IF_##curve(HISTORY_CURVE_##NAME, )
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
#define HISTORY_CURVE_ENUM(NAME, text) HISTORY_CURVE_##NAME,
    HISTORY_CURVE_GPUS(HISTORY_CURVE_ENUM)
#undef HISTORY_CURVE_ENUM
        HISTORY_CURVE_N
};

struct history_point {
    int64_t at_ms; /* since the run's start; a multiple of the period */
    int64_t step;  /* of the last number; -1: there is none */
    int32_t observations_n;
    /* the gravest of its looks; training: a step was done, whatever else was */
    enum board_phase phase;
    float loss_low, loss_high;
    double values[HISTORY_CURVE_N]; /* NAN: not known */
};

struct history_event {
    int64_t at_ms;
    const char *kind; /* phase, restart, nodes, checkpoint, error */
    char text[256];
};

/* What the model would have written after that step. */
struct history_sample {
    int64_t at_ms, step;
    char text[1600];
};

/* All zero is an empty one. */
struct history {
    int64_t period_ms; /* 0: nothing seen yet */
    /* times count from here on: what runs before this one took; see history_read_prepend */
    int64_t offset_ms;
    int points_n;
    struct history_point points[HISTORY_POINTS];
    int64_t events_n; /* so far; the newest are kept: the i-th (0 first) at [i % HISTORY_EVENTS] */
    struct history_event events[HISTORY_EVENTS];
    int64_t samples_n; /* the same for samples */
    struct history_sample samples[HISTORY_SAMPLES];
    /* as of the last look, to tell what is new */
    enum board_phase phase;
    int64_t step, timed_n; /* of the worker that speaks: the last step, and how many it has timed */
    double val_loss;       /* the last one told; 0: none yet */
    int64_t restarts, failures;
    int nodes_there;
    int error_code;
};

const char *history_curve_text(enum history_curve curve); /* its name in JSON and CSV */
/* for history_read.c: neighbours become one point, of twice the period */
void history_halve(struct history *history);
/* history_observe — take note of this view. Views come in the order of time; one from before the
 * last is dropped. */
void history_observe(struct history *history, const struct view *view);
/* history_sample — the newest text; the same step again takes its place. */
void history_sample(struct history *history, const struct view *view, int64_t step,
                    const char *text);
/* history_csv — append the points as CSV, a head line first; what is not known is empty. */
void history_csv(const struct history *history, struct text *t);
/* history_read — from bytes that history_write has written, or anybody: ST_BAD_DATA, saying what is
 * wrong with them. */
enum status history_read(const char *bytes, size_t n, struct history *out);
/* history_read_prepend — this run goes on from `step`: what an earlier one had until then comes
 * before it, and what it had beyond is lost. old is used up. */
void history_read_prepend(struct history *history, struct history *old, int64_t step);

/* history_write — append the JSON of GET /history, one line: period, a list for each curve, events,
 * samples. Some 100 KiB when full, 320 at the very most. history NULL: an empty one. */
void history_write(const struct history *history, struct text *t);

#endif

/* rank_stats — each kind of number in rank_stats.def in C: its field in a struct and its
 * initial value. Must not know where the numbers are kept. */
#ifndef CONVOY_BASE_RANK_STATS_H
#define CONVOY_BASE_RANK_STATS_H

#include <math.h>
#include <stdint.h>

#define RANK_STATS_TIMES 256 /* step times kept for the median and the 95th percentile */

/* RANK_STATS_FIELD_kind — a member of a struct. TIMES is a ring: the time of step i of this process
 * (from 0) is at [i % RANK_STATS_TIMES]; field_n counts all steps. */
#define RANK_STATS_FIELD_COUNT(field) int64_t field;
#define RANK_STATS_FIELD_NUMBER(field) double field;
#define RANK_STATS_FIELD_MS(field) double field;
#define RANK_STATS_FIELD_REMAINING(field) double field;
#define RANK_STATS_FIELD_TIMES(field) \
    float field[RANK_STATS_TIMES];    \
    int64_t field##_n;

/* RANK_STATS_UNKNOWN_kind — a designated initialiser of an unknown number. */
#define RANK_STATS_UNKNOWN_COUNT(field) .field = -1,
#define RANK_STATS_UNKNOWN_NUMBER(field) .field = NAN,
#define RANK_STATS_UNKNOWN_MS(field) .field = NAN,
#define RANK_STATS_UNKNOWN_REMAINING(field) .field = NAN,
#define RANK_STATS_UNKNOWN_TIMES(field)

/* gpu_reading — the numbers of a GPU. A number that the GPU or its driver does not report is NAN or
 * -1. */
struct gpu_reading {
#define GPU_STAT(field, kind, ...) RANK_STATS_FIELD_##kind(field)
#include "base/rank_stats.def"
};

/* rank_stats_count — returns a whole number as a double; negative, which is unknown: NAN. */
static inline double rank_stats_count(int64_t value) { return value >= 0 ? (double)value : NAN; }
/* rank_stats_remaining — returns the value; negative, which is unknown: NAN. */
static inline double rank_stats_remaining(double value) { return value >= 0 ? value : NAN; }

#endif

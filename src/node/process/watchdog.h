/* watchdog — does a silent worker work, or does it hang? Pure: times go in, the answer comes out.
 *
 * A worker publishes a heartbeat at every unit of a step and every part of loading. Silence for
 * longer than a limit is a hang:
 *   - STEP_TIMEOUT where it is set
 *   - else 60 s or ten times the slowest step so far, whichever is longer
 *   - before the first step is timed, fifty times what its operations take at the device's peak
 *     (machines may be slow or busy), at least 60 s
 *   - while loading or saving at least ten minutes: one disk may hold the worker that long
 *
 * A worker that waits for other ranks in a collective is silent too. Its comm heartbeat reports
 * that. Then the other ranks are late, and each node checks only its own workers. A process
 * whose comm heartbeat stops is frozen. Must not know processes, signals or the board's memory. */
#ifndef CONVOY_NODE_WATCHDOG_H
#define CONVOY_NODE_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/board.h"

#define WATCHDOG_STEP_MS_MIN (60 * 1000)
#define WATCHDOG_STEP_FACTOR 10
#define WATCHDOG_PLAN_FACTOR 50
#define WATCHDOG_DISK_MS_MIN (10 * 60 * 1000)
/* A longer gap between two checks means that this process itself was stopped. */
#define WATCHDOG_PAUSE_MS 2000

struct watchdog {
    int64_t limit_set_ms; /* STEP_TIMEOUT; 0: automatic */
    int64_t slowest_ms;   /* the slowest step so far, over restarts */
    int64_t planned_ms;   /* a step at the device's peak; 0: not known yet */
    int64_t steps_seen;   /* of the board's step_ms_n */
    int64_t checked_ms;   /* the last check */
    /* Silence counts from here at the earliest: the worker's start, or the end of our own pause. */
    int64_t since_ms;
};

/* watchdog_start — a worker was just started. */
void watchdog_start(struct watchdog *watchdog, int64_t now_ms);
/* watchdog_rearm — silence before now does not count. */
void watchdog_rearm(struct watchdog *watchdog, int64_t now_ms);
/* watchdog_learn — take over the step times that a worker has published. */
void watchdog_learn(struct watchdog *watchdog, const struct board_worker *worker);
/* watchdog_plan_ms — the limit before the first step is timed, from that step's planned time. */
int64_t watchdog_plan_ms(int64_t planned_ms);
int64_t watchdog_limit_ms(const struct watchdog *watchdog, enum board_phase phase);
/* watchdog_check — call about ten times a second. True: the worker has been silent for longer than
 * its limit. silent_ms_out: for how long, always set. heartbeat_ms: its last sign of life; 0: none
 * yet. */
bool watchdog_check(struct watchdog *watchdog, int64_t now_ms, int64_t heartbeat_ms,
                    enum board_phase phase, int64_t *silent_ms_out);
/* watchdog_last_sign_ms — the last sign of life, the latest of: the heartbeat; the comm heartbeat
 * while the worker is in a collective (where the thread that watches it is inside one function of
 * CUDA or NCCL, when it went in); the end of its last collective. call NULL: no comm heartbeat. */
int64_t watchdog_last_sign_ms(int64_t heartbeat_ms, const struct board_call *call);
/* watchdog_is_frozen — after watchdog_check: is the last comm heartbeat, published at published_ms,
 * older than limit_ms? */
bool watchdog_is_frozen(const struct watchdog *watchdog, int64_t now_ms, int64_t published_ms,
                        int64_t limit_ms, int64_t *silent_ms_out);

#endif

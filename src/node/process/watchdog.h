/* watchdog — decides whether a silent worker works or hangs. Pure: its inputs are times.
 *
 * A worker publishes a heartbeat at every unit of a step and every part of loading. Silence for
 * longer than a limit is a hang:
 *   - STEP_TIMEOUT if it is set
 *   - else 60 s or ten times the slowest step so far, whichever is longer
 *   - before the first step is timed, fifty times the planned time of its operations at the
 *     device's peak (machines may be slow or busy), at least 60 s
 *   - while loading or saving at least ten minutes: one disk may hold the worker that long
 *
 * A worker that waits for other ranks in a collective is silent too. Its comm heartbeat reports
 * that. Then the other ranks are late, and each node checks only its own workers. A process whose
 * comm heartbeat stops is frozen. Must not know processes, signals or the board's memory. */
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
    int64_t slowest_ms;   /* longest step so far, including earlier starts of the worker */
    int64_t planned_ms;   /* planned time of a step at the device's peak; 0: unknown yet */
    int64_t steps_seen;   /* step_ms_n of the board at the last look */
    int64_t checked_ms;   /* time of the last check */
    /* Silence counts from here at the earliest: the worker's start, or the end of a pause of this
     * process. */
    int64_t since_ms;
};

/* watchdog_start — starts watching a worker that was just started. */
void watchdog_start(struct watchdog *watchdog, int64_t now_ms);
/* watchdog_rearm — ignores all silence before now. */
void watchdog_rearm(struct watchdog *watchdog, int64_t now_ms);
/* watchdog_learn — adds the step times that a worker has published. */
void watchdog_learn(struct watchdog *watchdog, const struct board_worker *worker);
/* watchdog_plan_ms — returns the limit before the first step is timed, from that step's planned
 * time. */
int64_t watchdog_plan_ms(int64_t planned_ms);
/* watchdog_limit_ms — returns the longest silence that is allowed in a phase. */
int64_t watchdog_limit_ms(const struct watchdog *watchdog, enum board_phase phase);
/* watchdog_check — returns true if the worker has been silent for longer than its limit. Call it
 * about ten times a second. *silent_ms_out: length of the silence, always set. heartbeat_ms: time
 * of its last sign of life; 0: none yet. */
bool watchdog_check(struct watchdog *watchdog, int64_t now_ms, int64_t heartbeat_ms,
                    enum board_phase phase, int64_t *silent_ms_out);
/* watchdog_last_sign_ms — returns the time of the last sign of life, which is the latest of:
 *   - the heartbeat
 *   - while the worker is in a collective, the comm heartbeat; if the thread that watches the
 *     collective is inside one function of CUDA or NCCL, the time when it entered that function
 *   - the end of its last collective
 *
 * call NULL: there is no comm heartbeat. */
int64_t watchdog_last_sign_ms(int64_t heartbeat_ms, const struct board_call *call);
/* watchdog_is_frozen — returns true if the last comm heartbeat, published at published_ms, is older
 * than limit_ms. Call it after watchdog_check. */
bool watchdog_is_frozen(const struct watchdog *watchdog, int64_t now_ms, int64_t published_ms,
                        int64_t limit_ms, int64_t *silent_ms_out);

#endif

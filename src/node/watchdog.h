/* watchdog — is a worker that says nothing busy or stuck? Pure: times go in, the answer comes out.
 *
 * A worker beats at every unit of a step and every piece of loading. Silence longer than a limit is
 * a hang. The limit is STEP_TIMEOUT, or, when that is automatic, 60 s or ten times the slowest step
 * so far, whichever is longer. Before the first step was timed, a slow or busy machine is allowed
 * fifty times what the step's operations take at the device's peak. While loading or saving one
 * disk may hold the worker for minutes without a sign, so those phases get ten minutes at least.
 *
 * A worker that waits for other ranks in a call of communication says nothing either, but its comm
 * heartbeat tells of the call: then it is the others who are late, and each node judges only its
 * own. A comm heartbeat that stops is a frozen process. Must not know processes, signals or the
 * board's memory. */
#ifndef CONVOY_NODE_WATCHDOG_H
#define CONVOY_NODE_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/board.h"

#define WATCHDOG_STEP_MS_MIN (60 * 1000)
#define WATCHDOG_STEP_FACTOR 10
#define WATCHDOG_PLAN_FACTOR 50
#define WATCHDOG_DISK_MS_MIN (10 * 60 * 1000)
#define WATCHDOG_PAUSE_MS 2000 /* a gap between two looks that means: we ourselves were stopped */

struct watchdog {
    int64_t limit_set_ms; /* STEP_TIMEOUT; 0: automatic */
    int64_t slowest_ms;   /* slowest step so far, over restarts */
    int64_t planned_ms;   /* a step at the device's peak; 0: not known yet */
    int64_t steps_seen;   /* of the board's step_ms_n */
    int64_t checked_ms;   /* the last look */
    /* silence is counted from here at the earliest: start of the worker, or end of our own pause */
    int64_t since_ms;
};

void watchdog_start(struct watchdog *watchdog, int64_t now_ms); /* a worker was just started */
/* what came before is no silence of its own */
void watchdog_rearm(struct watchdog *watchdog, int64_t now_ms);
/* learn what a step takes from a post */
void watchdog_learn(struct watchdog *watchdog, const struct board_worker *worker);
/* watchdog_plan_ms — the limit before a step of this many operations was timed. */
int64_t watchdog_plan_ms(int64_t planned_ms);
int64_t watchdog_limit_ms(const struct watchdog *watchdog, enum board_phase phase);
/* watchdog_check — call about ten times a second. True when the worker has been silent for longer
 * than the limit; silent_ms_out (always set) says for how long. heartbeat_ms: the board's last
 * beat, 0 none. */
bool watchdog_check(struct watchdog *watchdog, int64_t now_ms, int64_t heartbeat_ms,
                    enum board_phase phase, int64_t *silent_ms_out);
/* watchdog_last_sign_ms — the last sign of life: the beat, or the comm heartbeat while it tells of
 * a call, or the end of the last call (there it waited for others). call NULL: no comm
 * heartbeat. */
int64_t watchdog_last_sign_ms(int64_t heartbeat_ms, const struct board_call *call);
/* watchdog_is_frozen — after watchdog_check: is the last comm heartbeat, of published_ms, longer
 * ago than limit_ms? */
bool watchdog_is_frozen(const struct watchdog *watchdog, int64_t now_ms, int64_t published_ms,
                        int64_t limit_ms, int64_t *silent_ms_out);

#endif

/* watchdog — see watchdog.h. */
#include "node/process/watchdog.h"

void watchdog_start(struct watchdog *watchdog, int64_t now_ms)
{
    watchdog->steps_seen = 0;
    watchdog->checked_ms = now_ms;
    watchdog->since_ms = now_ms;
}

void watchdog_rearm(struct watchdog *watchdog, int64_t now_ms) { watchdog->since_ms = now_ms; }

void watchdog_learn(struct watchdog *watchdog, const struct board_worker *worker)
{
    int64_t first = watchdog->steps_seen, n = worker->step_ms_n;
    if (n - first > BOARD_STEPS_KEPT)
        first = n - BOARD_STEPS_KEPT;
    for (int64_t i = first; i < n; i++) {
        float ms = worker->step_ms[i % BOARD_STEPS_KEPT];
        if (ms > (float)watchdog->slowest_ms)
            watchdog->slowest_ms = (int64_t)ms;
    }
    watchdog->steps_seen = n;
    if (worker->planned_ms > 0)
        watchdog->planned_ms = worker->planned_ms;
}

int64_t watchdog_plan_ms(int64_t planned_ms)
{
    int64_t limit = planned_ms * WATCHDOG_PLAN_FACTOR;
    return limit > WATCHDOG_STEP_MS_MIN ? limit : WATCHDOG_STEP_MS_MIN;
}

int64_t watchdog_limit_ms(const struct watchdog *watchdog, enum board_phase phase)
{
    int64_t limit = watchdog->limit_set_ms;
    if (limit == 0) {
        int64_t learned = watchdog->slowest_ms * WATCHDOG_STEP_FACTOR;
        limit = learned > WATCHDOG_STEP_MS_MIN ? learned : WATCHDOG_STEP_MS_MIN;
        if (watchdog->slowest_ms == 0)
            limit = watchdog_plan_ms(watchdog->planned_ms);
    }
    bool in_step = phase == BOARD_PHASE_TRAINING || phase == BOARD_PHASE_EVALUATING;
    return !in_step && limit < WATCHDOG_DISK_MS_MIN ? WATCHDOG_DISK_MS_MIN : limit;
}

bool watchdog_check(struct watchdog *watchdog, int64_t now_ms, int64_t heartbeat_ms,
                    enum board_phase phase, int64_t *silent_ms_out)
{
    /* After Ctrl-Z, a debugger or a frozen container, everything is late, including the worker:
     * that is no hang. */
    if (now_ms - watchdog->checked_ms > WATCHDOG_PAUSE_MS)
        watchdog->since_ms = now_ms;
    watchdog->checked_ms = now_ms;
    int64_t last_sign_ms = heartbeat_ms > watchdog->since_ms ? heartbeat_ms : watchdog->since_ms;
    *silent_ms_out = now_ms - last_sign_ms;
    return *silent_ms_out > watchdog_limit_ms(watchdog, phase);
}

int64_t watchdog_last_sign_ms(int64_t heartbeat_ms, const struct board_call *call)
{
    if (!call)
        return heartbeat_ms;
    int64_t in_call_ms = !call->call[0]       ? call->left_ms
                         : call->stuck_ms > 0 ? call->stuck_ms
                                              : call->published_ms;
    return in_call_ms > heartbeat_ms ? in_call_ms : heartbeat_ms;
}

bool watchdog_is_frozen(const struct watchdog *watchdog, int64_t now_ms, int64_t published_ms,
                        int64_t limit_ms, int64_t *silent_ms_out)
{
    int64_t last_sign_ms = published_ms > watchdog->since_ms ? published_ms : watchdog->since_ms;
    if (now_ms - last_sign_ms <= limit_ms)
        return false;
    *silent_ms_out = now_ms - last_sign_ms;
    return true;
}

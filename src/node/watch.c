/* watch — see watch.h. */
#include "node/watch.h"

void watch_start(struct watch *watch, int64_t now_ms)
{
    watch->steps_seen = 0;
    watch->looked_ms = now_ms;
    watch->since_ms = now_ms;
}

void watch_anew(struct watch *watch, int64_t now_ms) { watch->since_ms = now_ms; }

void watch_steps(struct watch *watch, const struct board_worker *worker)
{
    int64_t first = watch->steps_seen, n = worker->step_ms_n;
    if (n - first > BOARD_STEPS_KEPT)
        first = n - BOARD_STEPS_KEPT;
    for (int64_t i = first; i < n; i++) {
        float ms = worker->step_ms[i % BOARD_STEPS_KEPT];
        if (ms > (float)watch->slowest_ms)
            watch->slowest_ms = (int64_t)ms;
    }
    watch->steps_seen = n;
    if (worker->planned_ms > 0)
        watch->planned_ms = worker->planned_ms;
}

int64_t watch_plan_ms(int64_t planned_ms)
{
    int64_t limit = planned_ms * WATCH_PLAN_FACTOR;
    return limit > WATCH_STEP_MS_MIN ? limit : WATCH_STEP_MS_MIN;
}

int64_t watch_limit_ms(const struct watch *watch, enum board_phase phase)
{
    int64_t limit = watch->limit_set_ms;
    if (limit == 0) {
        int64_t learned = watch->slowest_ms * WATCH_STEP_FACTOR;
        limit = learned > WATCH_STEP_MS_MIN ? learned : WATCH_STEP_MS_MIN;
        if (watch->slowest_ms == 0)
            limit = watch_plan_ms(watch->planned_ms);
    }
    bool in_step = phase == BOARD_PHASE_TRAINING || phase == BOARD_PHASE_EVALUATING;
    return !in_step && limit < WATCH_DISK_MS_MIN ? WATCH_DISK_MS_MIN : limit;
}

bool watch_look(struct watch *watch, int64_t now_ms, int64_t beat_ms, enum board_phase phase,
                int64_t *silent_ms_out)
{
    /* After Ctrl-Z, a debugger or a frozen container everything is late, the worker as well: that
     * is nobody's hang. */
    if (now_ms - watch->looked_ms > WATCH_PAUSE_MS)
        watch->since_ms = now_ms;
    watch->looked_ms = now_ms;
    int64_t heard_ms = beat_ms > watch->since_ms ? beat_ms : watch->since_ms;
    *silent_ms_out = now_ms - heard_ms;
    return *silent_ms_out > watch_limit_ms(watch, phase);
}

int64_t watch_heard_ms(int64_t beat_ms, const struct board_call *call)
{
    if (!call)
        return beat_ms;
    int64_t in_call_ms = call->call[0] ? call->posted_ms : call->left_ms;
    return in_call_ms > beat_ms ? in_call_ms : beat_ms;
}

bool watch_is_frozen(const struct watch *watch, int64_t now_ms, int64_t posted_ms, int64_t limit_ms,
                     int64_t *silent_ms_out)
{
    int64_t heard_ms = posted_ms > watch->since_ms ? posted_ms : watch->since_ms;
    if (now_ms - heard_ms <= limit_ms)
        return false;
    *silent_ms_out = now_ms - heard_ms;
    return true;
}

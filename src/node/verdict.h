/* verdict — what the end of a worker means: which status, whether to start it again, and the
 * sentence for people.
 *
 * Pure: it is given what was seen (wait status, silence, the worker's own words) and what was
 * asked. It must not know how processes are started or ended. */
#ifndef CONVOY_NODE_VERDICT_H
#define CONVOY_NODE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/board.h"
#include "base/status.h"

/* What was seen. */
struct verdict_facts {
    int wait_status; /* of waitpid */
    bool was_hung;   /* we killed it after silent_ms of silence */
    int64_t silent_ms;
    /* of /proc/PID/stat before we killed it: 'T' stopped, 'D' disk …; 0 unknown */
    char process_state;
    int32_t pid, rank;
    enum board_phase phase;
    int64_t step;        /* done when it ended; -1: it never said */
    const char *message; /* the worker's own sentence; "" none */
};

struct verdict {
    enum status st;   /* ST_OK: it finished its work */
    bool may_restart; /* false: starting again could not help, or the work is over */
    char text[1280];  /* "worker rank 0 (pid 7) …" */
};

void verdict_of(const struct verdict_facts *facts, struct verdict *out);

/* How often the job may be started again. */
struct verdict_budget {
    int64_t restarts_max; /* MAX_RESTARTS */
    int64_t restarts;     /* so far */
    int64_t barren;       /* in a row that ended without a step nobody had reached before */
    int64_t step_best;    /* the furthest step any life reached; -1 none */
};
#define VERDICT_BARREN_MAX 3

enum verdict_next { VERDICT_NEXT_RESTART, VERDICT_NEXT_NO_BUDGET, VERDICT_NEXT_BARREN };
/* verdict_next — a worker that may be restarted ended having done `step` steps. Counts it. */
enum verdict_next verdict_next(struct verdict_budget *budget, int64_t step);
/* wait before restart number budget->restarts */
int64_t verdict_delay_ms(const struct verdict_budget *budget);

/* verdict_signal_name — "SIGSEGV"; "signal 99" into out when it has no name. Returns out. */
const char *verdict_signal_name(char *out, size_t cap, int signal_n);

/* verdict_kept — what a person may count on after an end without a checkpoint of its own. has_dir:
 * CHECKPOINT_DIR is set; last: what a worker posted, NULL when it has not spoken. Returns out. */
const char *verdict_kept(bool has_dir, const struct board_worker *last, char *out, size_t cap);

#endif

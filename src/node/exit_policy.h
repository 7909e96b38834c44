/* exit_policy — what the end of a worker means: which status, whether to start it again, and the
 * sentence for people.
 *
 * Pure: it is given what was seen (wait status, silence, the worker's own words) and what was
 * asked. It must not know how processes are started or ended. */
#ifndef CONVOY_NODE_EXIT_POLICY_H
#define CONVOY_NODE_EXIT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/board.h"
#include "base/status.h"

/* What was seen. */
struct exit_policy_facts {
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

struct exit_policy_decision {
    enum status st;   /* ST_OK: it finished its work */
    bool may_restart; /* false: starting again could not help, or the work is over */
    char text[1280];  /* "worker rank 0 (pid 7) …" */
};

void exit_policy_classify(const struct exit_policy_facts *facts, struct exit_policy_decision *out);

/* How often the job may be started again. */
struct exit_policy_budget {
    int64_t restarts_max; /* MAX_RESTARTS */
    int64_t restarts;     /* so far */
    int64_t no_progress;  /* in a row that ended without a step nobody had reached before */
    int64_t step_best;    /* the furthest step any life reached; -1 none */
};
#define EXIT_POLICY_NO_PROGRESS_MAX 3

enum exit_policy_next {
    EXIT_POLICY_NEXT_RESTART,
    EXIT_POLICY_NEXT_NO_BUDGET,
    EXIT_POLICY_NEXT_NO_PROGRESS
};
/* exit_policy_next — a worker that may be restarted ended having done `step` steps. Counts it. */
enum exit_policy_next exit_policy_next(struct exit_policy_budget *budget, int64_t step);
/* wait before restart number budget->restarts */
int64_t exit_policy_delay_ms(const struct exit_policy_budget *budget);

/* exit_policy_signal_name — "SIGSEGV"; "signal 99" into out when it has no name. Returns out. */
const char *exit_policy_signal_name(char *out, size_t cap, int signal_n);

/* exit_policy_resume_hint — what a person may count on after an end without a checkpoint of its
 * own. has_dir: CHECKPOINT_DIR is set; last: what a worker posted, NULL when it has not spoken.
 * Returns out. */
const char *exit_policy_resume_hint(bool has_dir, const struct board_worker *last, char *out,
                                    size_t cap);

#endif

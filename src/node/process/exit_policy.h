/* exit_policy — what the end of a worker means: its status, whether another start may help, and
 * the sentence for people. supervisor/recover.c starts it again.
 *
 * Pure: its input is what was observed (wait status, silence, the worker's own sentence). Must not
 * know how processes start or end. */
#ifndef CONVOY_NODE_EXIT_POLICY_H
#define CONVOY_NODE_EXIT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/board.h"
#include "base/status.h"

/* What was observed. */
struct exit_policy_facts {
    int wait_status; /* of waitpid */
    bool was_hung;   /* killed after silent_ms of silence */
    int64_t silent_ms;
    /* of /proc/PID/stat before it was killed: 'T' stopped, 'D' disk …; 0: unknown */
    char process_state;
    int32_t pid, rank;
    const char *place; /* of the rank in the mesh: "stage 1, tensor 0"; NULL or "": not said */
    enum board_phase phase;
    int64_t step;        /* done when it ended; -1: it published none */
    const char *message; /* the worker's own sentence; "": none */
};

struct exit_policy_decision {
    enum status st;   /* ST_OK: it finished its work */
    bool may_restart; /* false: another start could not help, or the work is done */
    char text[1280];  /* "worker rank 0 (pid 7) …" */
};

void exit_policy_classify(const struct exit_policy_facts *facts, struct exit_policy_decision *out);

/* exit_policy_signal_name — "SIGSEGV", or "signal 99" for a number without a name. Returns out. */
const char *exit_policy_signal_name(char *out, size_t cap, int signal_n);

/* exit_policy_resume_hint — from what a run can resume that ended without a checkpoint of its own,
 * for people. has_dir: CHECKPOINT_DIR is set. last: the worker's last numbers, or NULL. Returns
 * out. */
const char *exit_policy_resume_hint(bool has_dir, const struct board_worker *last, char *out,
                                    size_t cap);

#endif

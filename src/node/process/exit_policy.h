/* exit_policy — interprets the end of a worker: returns its status, whether another start may help,
 * and a message for the log. supervisor/recover.c then restarts it.
 *
 * Pure: its input is the observed facts (wait status, silence, the worker's own message). Must not
 * know how processes start or end. */
#ifndef CONVOY_NODE_EXIT_POLICY_H
#define CONVOY_NODE_EXIT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/board.h"
#include "base/status.h"

/* Facts that were observed about the worker. */
struct exit_policy_facts {
    int wait_status; /* wait status from waitpid */
    bool was_hung;   /* killed after silent_ms of silence */
    int64_t silent_ms;
    /* state in /proc/PID/stat before it was killed: 'T' stopped, 'D' disk …; 0: unknown */
    char process_state;
    int32_t pid, rank;
    /* position of the rank in the mesh: "stage 1, tensor 0"; NULL or "": not mentioned */
    const char *place;
    enum board_phase phase;
    int64_t step;        /* number of finished steps when it ended; -1: it published none */
    const char *message; /* message from the worker; "": none */
};

struct exit_policy_decision {
    enum status st;   /* ST_OK: the worker finished its work */
    bool may_restart; /* false: another start could not help, or the work is done */
    char text[1280];  /* "worker rank 0 (pid 7) …" */
};

/* exit_policy_classify — decides from the facts which status the worker ended with, whether another
 * start may help, and how the log describes the end. */
void exit_policy_classify(const struct exit_policy_facts *facts, struct exit_policy_decision *out);

/* exit_policy_signal_name — writes the signal's name: "SIGSEGV", or "signal 99" for a number
 * without a name. Returns out. */
const char *exit_policy_signal_name(char *out, size_t cap, int signal_n);

/* exit_policy_resume_hint — writes for the log from where a run can resume that ended without a
 * checkpoint of its own. has_dir: CHECKPOINT_DIR is set. last: the worker's last numbers, or NULL.
 * Returns out. */
const char *exit_policy_resume_hint(bool has_dir, const struct board_worker *last, char *out,
                                    size_t cap);

#endif

/* metrics_file — METRICS_FILE: one JSON object per line, one write(2) per line.
 *
 * One run writes a file: it is locked until it is closed. A run that resumes after step N first
 * truncates the file to the lines up to N, so no step appears twice. If the disk is full, lines are
 * lost and the run goes on: one warning is logged, and the lost lines are counted.
 * It must not know where the numbers come from. */
#ifndef CONVOY_TRAIN_METRICS_FILE_H
#define CONVOY_TRAIN_METRICS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct metrics_file {
    bool is_open; /* false: METRICS_FILE is empty, and every call does nothing */
    int fd;
    bool is_torn; /* the last line is incomplete */
    int64_t lost; /* number of lines that could not be written */
    char path[4096];
};

struct metrics_file_step {
    int64_t step; /* counted from 1 */
    int64_t epoch, tokens;
    int64_t trained; /* TASK=chat: tokens that counted in the loss so far; 0: left out */
    double loss, grad_norm, lr, step_ms;
    /* time that training waited for a checkpoint before this step; 0: left out */
    double stall_ms;
    const char *skipped; /* why the step made no update; NULL: it made one */
    int ranks;           /* ranks of the job; if over 1, the line also has: */
    /* numbers of rank 0, as in struct step_result */
    double compute_ms, comm_ms, wait_ms;
    int64_t sent_bytes;
};

/* metrics_file_open — truncates to `step` and opens for appending. path "": *out does nothing.
 * ST_BAD_SETTING: the file exists and holds something else, another run writes it, or its folder is
 * missing. ST_STORE: it cannot be written. */
enum status metrics_file_open(const char *path, int64_t step, struct metrics_file *out);
/* metrics_file_close — closes the file and releases its lock. Accepts a zeroed struct; may be
 * called twice. */
void metrics_file_close(struct metrics_file *file);
/* metrics_file_step — writes the line of a step. If that fails, the line is counted as lost. */
void metrics_file_step(struct metrics_file *file, const struct metrics_file_step *line);
/* metrics_file_eval — writes a line with the validation loss after a step, and the accuracy unless
 * it is NAN. */
void metrics_file_eval(struct metrics_file *file, int64_t step, double val_loss,
                       double val_accuracy);

/* metrics_file_keep — public for tests: returns the number of bytes that belong to steps up to
 * `step`: everything before the first line of a later step, without an incomplete last line. false:
 * the first line is not a metrics line. Pure. */
bool metrics_file_keep(const char *text, size_t bytes, int64_t step, size_t *keep_out);

#endif

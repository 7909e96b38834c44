/* metrics_file — METRICS_FILE: one JSON object a line (contract §5), one write(2) a line.
 *
 * A run that goes on from step N first cuts the file back to the lines up to N, so the steps in it
 * never repeat. A full disk costs lines, not the run: warned about once and counted. Must not know
 * where the numbers come from. */
#ifndef CONVOY_TRAIN_METRICS_FILE_H
#define CONVOY_TRAIN_METRICS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct metrics_file {
    bool is_open; /* false: METRICS_FILE is empty, every call does nothing */
    int fd;
    bool is_torn; /* the last line was written in part */
    int64_t lost; /* lines that could not be written */
    char path[4096];
};

struct metrics_file_step {
    int64_t step; /* from 1 */
    int64_t epoch, tokens;
    double loss, grad_norm, lr, step_ms;
    double stall_ms; /* waited for a checkpoint before this step; 0: nothing is said of it */
    int ranks;       /* with several: */
    /* of rank 0, as in struct step_result */
    double compute_ms, comm_ms, wait_ms;
};

/* metrics_file_open — cut back to `step`, open for appending. path "": *out does nothing. Fails:
 * ST_BAD_SETTING when the file is there and something else than metrics, or its folder is missing;
 * ST_STORE when it cannot be written. */
enum status metrics_file_open(const char *path, int64_t step, struct metrics_file *out);
void metrics_file_close(struct metrics_file *file); /* accepts a zeroed one, twice */
void metrics_file_step(struct metrics_file *file, const struct metrics_file_step *line);
void metrics_file_eval(struct metrics_file *file, int64_t step, double val_loss);

/* metrics_file_keep — how many bytes of a metrics file belong to steps up to `step`: everything
 * before the first line of a later step and before a last line without its end. false: the first
 * line is not ours. Pure. */
bool metrics_file_keep(const char *text, size_t bytes, int64_t step, size_t *keep_out);

#endif

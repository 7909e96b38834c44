/* spike — SPIKE: decides which steps are so far above their recent history that their update is
 * left out.
 *
 * The history is the levels of the last SPIKE_WINDOW steps. A loss or a gradient norm is a spike if
 * its logarithm is more than `sigma` standard deviations above the median of the newer half of
 * these steps. Logarithms are compared because norms are spread by factors. The standard deviation
 * is 1.4826 median absolute deviations, which a few spikes do not change. Deviations are measured
 * from the line through the medians of both halves (Tukey's resistant line), because losses fall.
 * The standard deviation is at least SPIKE_…_DEVIATION_MIN. If that line rises, it is continued: a
 * steady rise is no spike. Nor is a value below the median, or any value before half a window of
 * steps was applied.
 *
 * A number that is not finite is a spike whatever came before. All ranks have the same bits of loss
 * and norm. Levels are whole numbers that only additions and multiplications make, so ranks on
 * different machines decide alike. It must not know steps, samples or settings. */
#ifndef CONVOY_TRAIN_SPIKE_H
#define CONVOY_TRAIN_SPIKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

enum spike_mode {
    SPIKE_MODE_OFF,  /* every finite step is applied */
    SPIKE_MODE_STOP, /* the run ends at a spike */
    SPIKE_MODE_SKIP  /* the update is left out, up to SPIKE_LIMIT times in a window */
};
#define SPIKE_WINDOW 128              /* steps that a loss or norm is compared with */
#define SPIKE_LIMIT 5                 /* steps of a window that may be skipped */
#define SPIKE_LOSS_DEVIATION_MIN 0.01 /* least standard deviation of a loss */
#define SPIKE_NORM_DEVIATION_MIN 0.05 /* the same of a norm, which varies more between batches */

struct spike_config {
    enum spike_mode mode;
    double sigma;
};

/* log2 of a step's numbers in 1/65536; both SPIKE_SKIPPED: the step was skipped. */
#define SPIKE_SKIPPED INT32_MIN
struct spike_level {
    int32_t loss, norm;
};
/* The last steps, oldest first: state of a run that a checkpoint holds. */
struct spike_history {
    int32_t n;
    struct spike_level level[SPIKE_WINDOW];
};

enum spike_cause {
    SPIKE_CAUSE_NONE,
    SPIKE_CAUSE_NOT_FINITE,
    SPIKE_CAUSE_LOSS,
    SPIKE_CAUSE_NORM /* and the loss is no spike */
};
struct spike_verdict {
    enum spike_cause cause; /* NONE: the step is applied */
    bool is_skipped;        /* the update is left out and the run goes on; else it ends */
    /* LOSS, NORM: the number that was expected; deviations above it */
    double expected, sigmas;
    int skipped_n; /* skipped steps of the window, including this one */
};

/* spike_check — decides on a step, and adds it to the history unless the run ends. Not for
 * SPIKE_MODE_OFF. */
struct spike_verdict spike_check(const struct spike_config *config, struct spike_history *history,
                                 double loss, double grad_norm);
#define SPIKE_LEVEL_CHARS 16
#define SPIKE_HISTORY_CHARS (SPIKE_LEVEL_CHARS * SPIKE_WINDOW)
/* spike_history_write — writes the history as hexadecimal digits, SPIKE_HISTORY_CHARS at most. */
void spike_history_write(const struct spike_history *history, char *out, size_t cap);
/* spike_history_parse — reads a written history and keeps its newest SPIKE_WINDOW steps, because an
 * earlier version may have written more. Returns false if the text is no history. */
bool spike_history_parse(const char *text, struct spike_history *out);

#endif

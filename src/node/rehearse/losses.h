/* rehearse_losses — compares the training losses of two runs, step by step, from their metrics
 * files: for runs whose weights need not have the same bits. Must not know how a run is made. */
#ifndef CONVOY_NODE_REHEARSE_LOSSES_H
#define CONVOY_NODE_REHEARSE_LOSSES_H

#include <stdint.h>

#include "base/status.h"

struct rehearse_losses {
    int64_t compared_n; /* steps of both files */
    double worst;       /* largest |a - b| / |a|; NAN or infinity if a loss is not finite */
    int64_t worst_step; /* step of that difference; 0: no step was compared */
};

/* rehearse_losses_compare — compares two files of METRICS_FILE, whose steps ascend. Lines without
 * a loss, and an incomplete last line, are skipped. ST_NO_INPUT: a file is missing; ST_BAD_DATA: a
 * line is no JSON. */
enum status rehearse_losses_compare(const char *path, const char *other_path,
                                    struct rehearse_losses *out);

#endif

/* check_limits — absolute limits of known hardware, each with its source: the table of
 * check_limits.def.
 *
 * A stage that measures a known GPU writes its key into row.hardware: NVML's name, such as "NVIDIA
 * H100 80GB HBM3". The row has the name and the unit that the table has. Without an entry the peers
 * decide (check_judge.h). */
#ifndef CONVOY_CHECK_CHECK_LIMITS_H
#define CONVOY_CHECK_CHECK_LIMITS_H

#include <stddef.h>

#include "check/check_row.h"

struct check_limit {
    const char *name, *unit, *hardware;
    enum check_better better;
    double expected;   /* of a good one: by data sheet or as published; NAN: not known */
    double warn, fail; /* worse than this warns, fails; NAN: does not */
    const char *source;
};

/* check_limits_find — NULL: the table has none. */
const struct check_limit *check_limits_find(const char *name, const char *unit,
                                            const char *hardware);
/* check_limits_gpu — the key of a GPU, from its name in dev_info: "cuda 3 NVIDIA H200 sm_90 driver
 * 13.0" → "NVIDIA H200". */
void check_limits_gpu(const char *device, char *out, size_t cap);
/* check_limits_count, check_limits_at — for tests: the table. */
int check_limits_count(void);
const struct check_limit *check_limits_at(int i);

#endif

/* tally — may the job begin anew? As verdict_next counts for the worker of one node. Pure. Must not
 * know who was lost. */
#ifndef CONVOY_MEET_TALLY_H
#define CONVOY_MEET_TALLY_H

#include "meet/wire.h"

#define TALLY_BARREN_MAX 3 /* as VERDICT_BARREN_MAX */

/* tally_restart — counts one more life that ended for `why`, with `step` the furthest step so far.
 * True: begin anew; else the reason why not is in out. */
bool tally_restart(struct wire_counts *counts, int64_t step, int max_restarts, const char *why,
                   char *out, size_t cap);

#endif

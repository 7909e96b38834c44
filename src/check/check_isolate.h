/* check_isolate — a collective of all ranks gives wrong results: which ranks are the cause? Tests
 * parts of the ranks by halves (check_bisect.h) and writes a row for each bad rank. Must not know
 * how the fault was found. */
#ifndef CONVOY_CHECK_CHECK_ISOLATE_H
#define CONVOY_CHECK_CHECK_ISOLATE_H

#include "check/check_row.h"
#include "measure/measure_collective.h"

/* check_isolate_run — collective over all ranks of comm. call: the one that was wrong; flips is
 * this rank's own. wrong: the elements, on the rank with the most. The rows are rank 0's. */
enum status check_isolate_run(const struct measure_collective_memory *memory, struct comm *comm,
                              const struct measure_collective_call *call, int64_t wrong,
                              struct check_rows *rows);

#endif

/* stop_request — the effect of a board request on a run: whether the run stops, the signal that
 * caused it, and the status that the run ends with. The supervisor makes the requests (on_stop in
 * node/supervisor/supervisor.c). Also the two failures of FAULT that end this process's progress.
 * It must not know steps or files. */
#ifndef CONVOY_TRAIN_STOP_REQUEST_H
#define CONVOY_TRAIN_STOP_REQUEST_H

#include <stdbool.h>

#include "base/board.h"
#include "base/status.h"

/* stop_request_is_stop — returns true if the run has to end; false for no request and for a
 * save. */
bool stop_request_is_stop(enum board_request request);
/* stop_request_status — returns the status of a run that this request ended; ST_OK if it is not a
 * stop. */
enum status stop_request_status(enum board_request request);
/* stop_request_signal — returns the signal that caused the request, such as "SIGTERM"; "" if it is
 * not a stop. */
const char *stop_request_signal(enum board_request request);

/* stop_request_kill — sends SIGKILL to this process, as the kernel's out-of-memory killer does
 * (FAULT=kill). The trainer decides when. */
_Noreturn void stop_request_kill(void);
/* stop_request_stall — keeps the process alive without progress (FAULT=stall). */
_Noreturn void stop_request_stall(void);

#endif

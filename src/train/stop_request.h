/* stop_request — what comes between two steps: requests to stop, and rehearsed failures. Must not
 * know steps or files. */
#ifndef CONVOY_TRAIN_STOP_REQUEST_H
#define CONVOY_TRAIN_STOP_REQUEST_H

#include <stdbool.h>

#include "base/board.h"
#include "base/status.h"

bool stop_request_is_stop(enum board_request request); /* more than a save */
/* what a stop ends with; ST_OK for none and save */
enum status stop_request_status(enum board_request request);
const char *stop_request_signal(enum board_request request); /* "SIGTERM"; "" for none and save */

_Noreturn void
fault_injection_kill(void); /* FAULT=kill: as the kernel's out-of-memory killer would */
_Noreturn void fault_injection_stall(void); /* FAULT=stall: alive, and nothing more */

#endif

/* guard — what comes between two steps: requests to stop, and rehearsed failures. Must not know
 * steps or files. */
#ifndef CONVOY_TRAIN_GUARD_H
#define CONVOY_TRAIN_GUARD_H

#include <stdbool.h>

#include "base/board.h"
#include "base/status.h"

bool guard_is_stop(enum board_request request); /* more than a save */
/* what a stop ends with; ST_OK for none and save */
enum status guard_status(enum board_request request);
const char *guard_signal(enum board_request request); /* "SIGTERM"; "" for none and save */

_Noreturn void guard_kill(void);  /* FAULT=kill: as the kernel's out-of-memory killer would */
_Noreturn void guard_stall(void); /* FAULT=stall: alive, and nothing more */

#endif

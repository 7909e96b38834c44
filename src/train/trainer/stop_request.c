/* stop_request — see stop_request.h. */
#include "train/trainer/stop_request.h"

#include <signal.h>
#include <unistd.h>

#include "base/clock.h"

bool stop_request_is_stop(enum board_request request) { return request > BOARD_REQUEST_SAVE; }

enum status stop_request_status(enum board_request request)
{
    switch (request) {
    case BOARD_REQUEST_PREEMPT:
        return ST_RETRY;
    case BOARD_REQUEST_TERMINATE:
        return ST_TERMINATED;
    case BOARD_REQUEST_INTERRUPT:
        return ST_INTERRUPTED;
    default:
        return ST_OK;
    }
}

const char *stop_request_signal(enum board_request request)
{
    switch (request) {
    case BOARD_REQUEST_PREEMPT:
        return "SIGUSR1";
    case BOARD_REQUEST_TERMINATE:
        return "SIGTERM";
    case BOARD_REQUEST_INTERRUPT:
        return "SIGINT";
    default:
        return "";
    }
}

void stop_request_kill(void)
{
    kill(getpid(), SIGKILL);
    stop_request_stall();
}

void stop_request_stall(void)
{
    for (;;)
        clock_sleep_ms(1000);
}

/* fault_injection — see fault_injection.h. */
#include "train/fault_injection.h"

#include <signal.h>
#include <unistd.h>

#include "base/clock.h"

void fault_injection_kill(void)
{
    kill(getpid(), SIGKILL);
    fault_injection_stall();
}

void fault_injection_stall(void)
{
    for (;;)
        clock_sleep_ms(1000);
}

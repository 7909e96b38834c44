/* coordinator_grace — see coordinator_inside.h. */
#include "meet/coordinator_inside.h"

int64_t coordinator_grace_late(const struct coordinator *c, const struct slot *slot)
{
    return late_worst(&c->late, c->late.ticked_ms) + slot->late_ms;
}

int64_t coordinator_grace(const struct coordinator *c, const struct slot *slot)
{
    int64_t grace_ms = COORDINATOR_GRACE * coordinator_grace_late(c, slot);
    int64_t most_ms = COORDINATOR_GRACE_MAX * c->config.peer_timeout_ms;
    return grace_ms < most_ms ? grace_ms : most_ms;
}

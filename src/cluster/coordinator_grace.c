/* coordinator_grace — see coordinator_inside.h. */
#include "cluster/coordinator_inside.h"

int64_t coordinator_grace_lag(const struct coordinator *c, const struct coordinator_node *node)
{
    return loop_lag_worst(&c->lag, c->lag.ticked_ms) + node->lag_ms;
}

int64_t coordinator_grace(const struct coordinator *c, const struct coordinator_node *node)
{
    int64_t grace_ms = COORDINATOR_GRACE_FACTOR * coordinator_grace_lag(c, node);
    int64_t most_ms = COORDINATOR_GRACE_FACTOR_MAX * c->config.peer_timeout_ms;
    return grace_ms < most_ms ? grace_ms : most_ms;
}

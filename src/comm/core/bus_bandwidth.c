/* bus_bandwidth — see bus_bandwidth.h. */
#include "comm/core/bus_bandwidth.h"

const char *bus_bandwidth_name(enum bus_collective collective)
{
    static const char *const names[BUS_COLLECTIVE_N] = {
        "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv"};
    return names[collective];
}

double bus_bandwidth(enum bus_collective collective, int64_t bytes, int ranks, double us)
{
    if (ranks < 2 || us <= 0)
        return 0;
    double share = (double)(ranks - 1) / ranks;
    double moved = collective == BUS_COLLECTIVE_ALL_REDUCE ? 2 * share : share;
    if (collective == BUS_COLLECTIVE_BROADCAST || collective == BUS_COLLECTIVE_SEND_RECV)
        moved = 1;
    return moved * (double)bytes / us * 1e-3;
}

/* bus_bandwidth — the definition of bus bandwidth that `convoy bench` and `convoy check` share. It
 * is the definition of nccl-tests (doc/PERFORMANCE.md): the bytes that each rank must send over the
 * slowest link with the best algorithm, per second. So values of different numbers of ranks can be
 * compared with one another and with the hardware. Pure arithmetic. */
#ifndef CONVOY_COMM_BUS_BANDWIDTH_H
#define CONVOY_COMM_BUS_BANDWIDTH_H

#include <stdint.h>

enum bus_collective {
    BUS_COLLECTIVE_ALL_REDUCE,
    BUS_COLLECTIVE_REDUCE_SCATTER,
    BUS_COLLECTIVE_ALL_GATHER,
    BUS_COLLECTIVE_ALL_TO_ALL,
    BUS_COLLECTIVE_BROADCAST,
    BUS_COLLECTIVE_SEND_RECV, /* each rank sends to the next and receives from the previous */
    BUS_COLLECTIVE_N
};

/* bus_bandwidth_name — returns "all_reduce", "send_recv", …. */
static inline const char *bus_bandwidth_name(enum bus_collective collective)
{
    static const char *const names[BUS_COLLECTIVE_N] = {
        "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv"};
    return names[collective];
}

/* bus_bandwidth — returns the GB/s (10^9 bytes) of a call of `ranks` ranks that lasted `us`
 * microseconds; 0: one rank, or no time. `bytes` is the size of the whole buffer: the input of
 * reduce_scatter, the output of all_gather, all parts of one rank of all_to_all, the message of
 * send_recv. all_reduce moves 2(n-1)/n of it, broadcast and send_recv all of it, the other calls
 * (n-1)/n. */
static inline double bus_bandwidth(enum bus_collective collective, int64_t bytes, int ranks,
                                   double us)
{
    if (ranks < 2 || us <= 0)
        return 0;
    double share = (double)(ranks - 1) / ranks;
    double moved = collective == BUS_COLLECTIVE_ALL_REDUCE ? 2 * share : share;
    if (collective == BUS_COLLECTIVE_BROADCAST || collective == BUS_COLLECTIVE_SEND_RECV)
        moved = 1;
    return moved * (double)bytes / us * 1e-3;
}

#endif

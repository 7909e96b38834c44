/* comm_p2p_size — see comm_p2p_size.h. Measured over TCP on loopback (2 vCPU Intel Xeon, Sapphire
 * Rapids class, AVX-512, Debian 12) by build/tests/bench/bench_ucx. */
#include "comm/p2p/comm_p2p_size.h"

#include "comm/core/comm.h"

static const struct comm_p2p_size sizes[] = {
    {2, 0, 64 << 10, 512 << 10, 126 << 10},
    {4, 64 << 10, 16 << 10, 0, 88 << 10},
    {16, 64 << 10, 8 << 10, 0, 88 << 10},
    {COMM_RANKS_MAX, 0, 2 << 10, 0, 32 << 10},
};

const struct comm_p2p_size *comm_p2p_size(int ranks)
{
    const struct comm_p2p_size *size = sizes;
    while (ranks > size->ranks_max)
        size++;
    return size;
}

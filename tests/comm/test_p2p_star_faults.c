/* test_p2p_star_faults — test_ucx_faults over TCP where small sums go over one rank
 * (test_p2p_star). */
#define OVER COMM_NET_TCP
#define SHARER 1
#include "comm/test_ucx_faults.c"

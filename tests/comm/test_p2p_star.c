/* test_p2p_star — test_comm_ucx over TCP between ranks of which one says that its cores are shared:
 * so small sums and barriers of three ranks and more go over one rank, on all of them. */
#define OVER COMM_NET_TCP
#define SHARER 1
#include "comm/test_comm_ucx.c"

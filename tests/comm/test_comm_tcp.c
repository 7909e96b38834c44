/* test_comm_tcp — the suite as test_comm_ucx has it, over TCP by our own transport. */
#define OVER COMM_NET_TCP
#include "comm/test_comm_ucx.c"

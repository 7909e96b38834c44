/* test_comm_tcp — test_comm_ucx over this program's own TCP transport. */
#define OVER COMM_NET_TCP
#include "comm/test_comm_ucx.c"

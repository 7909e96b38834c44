/* test_tcp_faults — test_ucx_faults over this program's own TCP transport. */
#define OVER COMM_NET_TCP
#include "comm/test_ucx_faults.c"

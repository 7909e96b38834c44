/* test_tcp_goaway — test_ucx_goaway over this program's own TCP transport. */
#define OVER COMM_NET_TCP
#include "comm/test_ucx_goaway.c"

/* test_tcp_netns — test_ucx_netns over this program's own TCP transport. */
#define OVER COMM_NET_TCP
#include "comm/test_ucx_netns.c"

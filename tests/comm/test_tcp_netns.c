/* test_tcp_netns — two nodes as real hosts as test_ucx_netns has it, over TCP by our own
 * transport. */
#define OVER COMM_NET_TCP
#include "comm/test_ucx_netns.c"

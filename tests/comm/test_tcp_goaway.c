/* test_tcp_goaway — farewells as test_ucx_goaway has it, over TCP by our own transport. */
#define OVER P2P_NET_TCP
#include "comm/test_ucx_goaway.c"

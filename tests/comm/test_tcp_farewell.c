/* test_tcp_farewell — farewells as test_ucx_farewell has it, over TCP by our own transport. */
#define OVER UCX_NET_TCP
#include "comm/test_ucx_farewell.c"

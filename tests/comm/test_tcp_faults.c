/* test_tcp_faults — killed, stopped and leaving ranks as test_ucx_faults has it, over TCP by our
 * own transport. */
#define OVER COMM_NET_TCP
#include "comm/test_ucx_faults.c"

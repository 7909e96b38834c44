/* ucx_env — the networks for UCX, from this node and the UCX_* variables. Must not know UCX's
 * calls. */
#ifndef CONVOY_COMM_UCX_ENV_H
#define CONVOY_COMM_UCX_ENV_H

#include <stdbool.h>
#include <stddef.h>

/* ucx_env_get — a variable of the environment; NULL: not set. UCX reads these itself.
 * ucx_env_has_rdma — the node has an InfiniBand or RoCE device.
 * ucx_env_has_transports — UCX_TLS is set.
 * ucx_env_names_tcp — …and it names tcp.
 * ucx_env_device — the first device in UCX_NET_DEVICES if it is a network interface, else "". */
const char *ucx_env_get(const char *name);
bool ucx_env_has_rdma(void);
bool ucx_env_has_transports(void);
bool ucx_env_names_tcp(void);
void ucx_env_device(char *out, size_t cap);

#endif

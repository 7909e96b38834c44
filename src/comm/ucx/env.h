/* ucx_env — the networks for UCX, from this node and the UCX_* variables. Must not call UCX. */
#ifndef CONVOY_COMM_UCX_ENV_H
#define CONVOY_COMM_UCX_ENV_H

#include <stdbool.h>
#include <stddef.h>

/* ucx_env_get — returns a variable of the environment; NULL: not set. UCX reads these itself. */
const char *ucx_env_get(const char *name);
/* ucx_env_has_rdma — returns true if the node has an InfiniBand or RoCE device. */
bool ucx_env_has_rdma(void);
/* ucx_env_has_transports — returns true if UCX_TLS is set. */
bool ucx_env_has_transports(void);
/* ucx_env_names_tcp — returns true if UCX_TLS lists tcp. */
bool ucx_env_names_tcp(void);
/* ucx_env_device — writes the first device in UCX_NET_DEVICES if it is a network interface, else
 * "". */
void ucx_env_device(char *out, size_t cap);

#endif

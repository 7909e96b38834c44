/* listener — the socket that node 0 listens on: exactly MASTER_ADDR's address when that is one of
 * this host's. Must not know what is served there. */
#ifndef CONVOY_NET_LISTENER_H
#define CONVOY_NET_LISTENER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* listener_resolve — is `addr` an address, or a name that is known here? ST_RETRY: not known, or
 * not yet. Asks the name service. */
enum status listener_resolve(const char *addr);
/* listener_open — a non-blocking listening socket. Behind a NAT or a service's name MASTER_ADDR
 * is not this host's: then it listens on all addresses, and says so; a name that is not known is
 * refused. May ask the name service, so call it before the loop runs. */
enum status listener_open(const char *addr, int port, int *fd_out);
/* listener_peer — "10.0.0.2:4711" of the other side; "?" when it is not known. Returns out. */
const char *listener_peer(int fd, char *out, size_t cap);
/* listener_peer_network — the other side's address as a number, the same for all its ports: of IPv6
 * the network (/64), of which a single host may use every address. 0: not known. */
uint64_t listener_peer_network(int fd);

#endif

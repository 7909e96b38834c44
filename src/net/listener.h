/* listener — the socket that node 0 listens on: exactly MASTER_ADDR's address if it belongs to this
 * host. It also returns the addresses of a socket. It must not know the protocol. */
#ifndef CONVOY_NET_LISTENER_H
#define CONVOY_NET_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* listener_resolve — returns ST_OK if `addr` is an address or a name that resolves here. Fails
 * ST_RETRY: it does not, or not yet. May block on the name service. */
enum status listener_resolve(const char *addr);
/* listener_is_loopback — returns true if `addr` is a name that resolves here to loopback addresses
 * only, as Debian's /etc/hosts resolves a host's own name. Returns false for "localhost", which a
 * user sets on purpose. May block on the name service. */
bool listener_is_loopback(const char *addr);
/* listener_open — opens a non-blocking listening socket. If MASTER_ADDR is a service's name or
 * behind a NAT, it is no address of this host: then the socket listens on all addresses and a
 * warning is logged. A name that does not resolve fails. May block on the name service: call it
 * before the event loop runs. */
enum status listener_open(const char *addr, int port, int *fd_out);
/* listener_open_towards — opens a socket at a free port of the address from which this host reaches
 * `addr`, or of all addresses if there is no route yet. May block on the name service. */
enum status listener_open_towards(const char *addr, int *fd_out);
/* listener_port — returns the port of a socket; 0: unknown. */
int listener_port(int fd);
/* listener_peer — writes the address of the other end, "10.0.0.2:4711"; "?": unknown. Returns
 * out. */
const char *listener_peer(int fd, char *out, size_t cap);
/* listener_local — writes the address of this host to which the other end has connected, without a
 * port; "": unknown. Returns out. */
const char *listener_local(int fd, char *out, size_t cap);
/* listener_peer_network — returns the address of the other end as a number, the same for all ports.
 * For IPv6 it is the network (/64), because one host may use every address of it. 0: unknown. */
uint64_t listener_peer_network(int fd);

#endif

/* doorstep — the socket that node 0 listens on: exactly MASTER_ADDR's address when that is one of
 * this host's. Must not know what is served there. */
#ifndef CONVOY_MEET_DOORSTEP_H
#define CONVOY_MEET_DOORSTEP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* doorstep_find — is `addr` an address, or a name that is known here? ST_RETRY: not known, or not
 * yet. Asks the name service. */
enum status doorstep_find(const char *addr);
/* doorstep_listen — a non-blocking listening socket. Behind a NAT or a service's name MASTER_ADDR
 * is not this host's: then it listens on all addresses, and says so; a name that is not known is
 * refused. May ask the name service, so call it before the loop runs. */
enum status doorstep_listen(const char *addr, int port, int *fd_out);
/* doorstep_peer — "10.0.0.2:4711" of the other side; "?" when it is not known. Returns out. */
const char *doorstep_peer(int fd, char *out, size_t cap);
/* doorstep_from — the other side's address as a number, the same for all its ports: of IPv6 the
 * network (/64), of which a single host may use every address. 0: not known. */
uint64_t doorstep_from(int fd);

#endif

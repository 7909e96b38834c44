/* tcp_addr — the address on which this node's workers listen for workers of other nodes. Must not
 * know connections. */
#ifndef CONVOY_COMM_TCP_ADDR_H
#define CONVOY_COMM_TCP_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

/* An address in the form that nodes send. */
struct tcp_addr_packed {
    uint8_t family; /* 4, 6 */
    uint8_t unused;
    uint16_t port;
    uint8_t ip[16];
};

/* tcp_addr_choose — chooses the address to listen on; its port is 0. data_addr: a name, an address
 * or an interface of this node; "" or NULL: the address from which `master` is reached. Errors:
 * ST_RETRY: there is no route to it now; ST_BAD_SETTING: MASTER_ADDR names every address of the
 * node. */
enum status tcp_addr_choose(const char *data_addr, const char *master, struct sockaddr_storage *out,
                            socklen_t *bytes_out);
/* tcp_addr_pack — packs a bound address. */
void tcp_addr_pack(const struct sockaddr_storage *own, struct tcp_addr_packed *out);
/* tcp_addr_unpack — unpacks the address of another node. A link-local address is reached over the
 * interface of `own`. false: it is no address. */
bool tcp_addr_unpack(const struct tcp_addr_packed *packed, const struct sockaddr_storage *own,
                     struct sockaddr_storage *out, socklen_t *bytes_out);
/* tcp_addr_bind — binds a socket, before it connects, to that local address. If that fails, the
 * kernel chooses the address. */
void tcp_addr_bind(int fd, const struct sockaddr_storage *own);
/* tcp_addr_text — writes "10.0.0.1:4242", for logs. */
void tcp_addr_text(const struct sockaddr_storage *at, char *out, size_t cap);

#endif

/* tcp_where — at which address of this node the others may reach its workers. Must not know
 * connections. */
#ifndef CONVOY_COMM_TCP_WHERE_H
#define CONVOY_COMM_TCP_WHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

/* An address as it travels between nodes. */
struct tcp_where_card {
    uint8_t family; /* 4, 6 */
    uint8_t unused;
    uint16_t port;
    uint8_t ip[16];
};

/* tcp_where — data_addr: a name, an address or an interface of this node; "" or NULL: the address
 * from which `master` is reached. The port is 0. Errors: ST_RETRY: it leads nowhere now;
 * ST_BAD_SETTING: it is not of this node. */
enum status tcp_where(const char *data_addr, const char *master, struct sockaddr_storage *out,
                      socklen_t *bytes_out);
/* tcp_where_pack — a bound address. tcp_where_unpack — where another node said that it is; a
 * link-local one is reached over the interface of `own`. false: no address. */
void tcp_where_pack(const struct sockaddr_storage *own, struct tcp_where_card *out);
bool tcp_where_unpack(const struct tcp_where_card *card, const struct sockaddr_storage *own,
                      struct sockaddr_storage *out, socklen_t *bytes_out);
/* tcp_where_bind — a socket that is to connect from that address; where it cannot, the kernel
 * chooses. */
void tcp_where_bind(int fd, const struct sockaddr_storage *own);
/* tcp_where_text — "10.0.0.1:4242", for people. */
void tcp_where_text(const struct sockaddr_storage *at, char *out, size_t cap);

#endif

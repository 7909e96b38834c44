/* ip_address — does a network address lead out into the public internet? Pure. Must not know names,
 * sockets or URLs. */
#ifndef CONVOY_NET_IP_ADDRESS_H
#define CONVOY_NET_IP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* ip_address_is_public — an IPv4 or IPv6 address that is globally reachable: not of this machine, a
 * private network, a link, a group, a document or a tunnel, nor one of these dressed up as IPv6.
 * Any other kind of address is not. Source: IANA's special-purpose address registries (RFC
 * 6890). */
bool ip_address_is_public(const struct sockaddr *address, size_t bytes);
/* ip_address_text — as people write it, without the port; returns out. */
const char *ip_address_text(const struct sockaddr *address, size_t bytes, char *out, size_t cap);

#endif

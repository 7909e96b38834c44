/* ip_address — checks whether a network address is on the public internet; downloads refuse others.
 * Pure functions; it must not know names, sockets or URLs. */
#ifndef CONVOY_NET_IP_ADDRESS_H
#define CONVOY_NET_IP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* ip_address_is_public — returns true for a globally reachable IPv4 or IPv6 address. Loopback,
 * private, link-local, multicast, documentation and tunnel addresses are not, nor IPv6 forms of
 * these; nor any other address family. Source: IANA's special-purpose address registries (RFC
 * 6890). */
bool ip_address_is_public(const struct sockaddr *address, size_t bytes);
/* ip_address_text — writes the address in the usual notation, without the port. Returns out. */
const char *ip_address_text(const struct sockaddr *address, size_t bytes, char *out, size_t cap);

#endif

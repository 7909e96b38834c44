/* keepalive — the kernel closes a half-open connection between nodes, on both sides. It must not
 * know what the connection is for. */
#ifndef CONVOY_NET_KEEPALIVE_H
#define CONVOY_NET_KEEPALIVE_H

/* keepalive_set — TCP probes after 5 s of silence, every 2 s, three times; sent data may stay
 * unacknowledged for 6 s. */
void keepalive_set(int fd);

#endif

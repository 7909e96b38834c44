/* keepalive — a connection between nodes that is half open ends by the kernel's hand, on both sides
 * alike. Must not know who opened it. */
#ifndef CONVOY_NET_KEEPALIVE_H
#define CONVOY_NET_KEEPALIVE_H

/* keepalive_set — TCP asks after 5 s of silence, every 2 s, three times; what was sent may stay
 * unconfirmed for 6 s. */
void keepalive_set(int fd);

#endif

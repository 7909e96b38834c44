/* keepalive — makes the kernel close a half-open connection between nodes, on both sides. It must
 * not know the purpose of the connection. */
#ifndef CONVOY_NET_KEEPALIVE_H
#define CONVOY_NET_KEEPALIVE_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* keepalive_set — enables TCP probes after 5 s of silence, every 2 s, three times; sent data may
 * stay unacknowledged for 6 s. */
static inline void keepalive_set(int fd)
{
    const int on = 1, idle_s = 5, every_s = 2, probes = 3, user_ms = 6000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
}

#endif

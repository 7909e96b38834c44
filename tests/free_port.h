/* free_port — a port for a server that a test starts. */
#ifndef CONVOY_TESTS_FREE_PORT_H
#define CONVOY_TESTS_FREE_PORT_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/* Is this port free on every IPv4 address of the machine? */
static inline bool is_free(int port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool is_bound = bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0;
    close(fd);
    return is_bound;
}

/* A free port below 32768, from where on the kernel takes ports for outgoing connections. So no
 * connection of another test takes it before the node listens. */
static inline int free_port(void)
{
    static uint32_t drawn;
    int port;
    do {
        drawn = (drawn + (uint32_t)getpid()) * 1664525u + (uint32_t)clock_ns();
        port = 10000 + (int)((drawn >> 8) % 22000);
    } while (!is_free(port));
    return port;
}

#endif

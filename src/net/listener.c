/* listener — see listener.h. */
#include "net/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"

/* The kernel may allow less (somaxconn); the clients' kernels retry connections beyond it. */
#define BACKLOG 4096

union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
};

static bool is_loopback(const struct addrinfo *info)
{
    const union socket_address *name = (const void *)info->ai_addr;
    if (info->ai_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&name->v6.sin6_addr);
    return ntohl(name->v4.sin_addr.s_addr) >> 24 == 127;
}

/* Returns the socket, or -1 with errno. */
static int try_listen(int family, const struct sockaddr *name, socklen_t n)
{
    const int on = 1, off = 0;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, name, n) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int listen_anywhere(int port)
{
    const struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = try_listen(AF_INET6, (const struct sockaddr *)&v6, sizeof(v6)); /* IPv4 too */
    return fd >= 0 || errno == EADDRINUSE
               ? fd
               : try_listen(AF_INET, (const struct sockaddr *)&v4, sizeof(v4));
}

/* Listens on the first address of the list. Sets *why if no address belongs to this host, or the
 * name resolves to loopback only, which no other node can reach. (Debian's /etc/hosts maps a host's
 * own name to loopback.) */
static int listen_on_first(const struct addrinfo *list, bool is_number, const char **why)
{
    *why = "it is not an address of this host";
    for (const struct addrinfo *info = list; info != NULL; info = info->ai_next) {
        if (!is_number && is_loopback(info)) {
            *why = "here that name resolves to loopback";
            continue;
        }
        int fd = try_listen(info->ai_family, info->ai_addr, info->ai_addrlen);
        if (fd >= 0 || errno != EADDRNOTAVAIL) {
            *why = NULL;
            return fd;
        }
    }
    return -1;
}

/* Returns the addresses of a host, for freeaddrinfo. Fails ST_RETRY: the name is unknown. */
static enum status resolve_host(const char *addr, int port, struct addrinfo **out,
                                bool *is_number_out)
{
    char service[16];
    text_format(service, sizeof(service), "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    *is_number_out = getaddrinfo(addr, service, &hints, out) == 0;
    hints.ai_flags = AI_NUMERICSERV;
    int error = *is_number_out ? 0 : getaddrinfo(addr, service, &hints, out);
    *is_number_out = *is_number_out || strcmp(addr, "localhost") == 0;
    if (error == 0)
        return ST_OK;
    return FAIL(ST_RETRY,
                "MASTER_ADDR=%s is neither an address nor a name that resolves here, on node 0: "
                "%s; set it to this host's address or name",
                addr, gai_strerror(error));
}

enum status listener_resolve(const char *addr)
{
    struct addrinfo *list = NULL;
    bool is_number;
    TRY(resolve_host(addr, 0, &list, &is_number));
    freeaddrinfo(list);
    return ST_OK;
}

bool listener_is_loopback(const char *addr)
{
    struct addrinfo *list = NULL;
    bool is_number, is_all = true;
    if (resolve_host(addr, 0, &list, &is_number) != ST_OK) {
        status_clear();
        return false;
    }
    for (const struct addrinfo *info = list; info != NULL; info = info->ai_next)
        is_all = is_all && is_loopback(info);
    freeaddrinfo(list);
    return is_all && !is_number;
}

enum status listener_open(const char *addr, int port, int *fd_out)
{
    const char *why = NULL;
    struct addrinfo *list = NULL;
    bool is_number;
    enum status st = resolve_host(addr, port, &list, &is_number);
    if (st != ST_OK)
        return FAIL(ST_BAD_SETTING, "%s", status_message());
    int fd = listen_on_first(list, is_number, &why);
    freeaddrinfo(list);
    if (fd < 0 && why != NULL) {
        LOG_WARN("MASTER_ADDR=%s: %s; listening on all addresses of this host, port %d", addr, why,
                 port);
        fd = listen_anywhere(port);
    }
    if (fd < 0) {
        return FAIL(ST_BAD_SETTING,
                    "cannot listen on MASTER_ADDR=%s MASTER_PORT=%d: %s; set another MASTER_PORT, "
                    "or end the process that holds it (this job's node 0, started twice?)",
                    addr, port, strerror(errno));
    }
    *fd_out = fd;
    return ST_OK;
}

int listener_port(int fd)
{
    union socket_address name;
    socklen_t n = sizeof(name);
    if (getsockname(fd, &name.any, &n) != 0)
        return 0;
    return ntohs(name.any.sa_family == AF_INET6 ? name.v6.sin6_port : name.v4.sin_port);
}

enum status listener_open_towards(const char *addr, int *fd_out)
{
    struct addrinfo *list = NULL;
    bool is_number;
    *fd_out = -1;
    if (resolve_host(addr, 9, &list, &is_number) != ST_OK)
        status_clear();
    for (const struct addrinfo *info = list; info != NULL && *fd_out < 0; info = info->ai_next) {
        /* a datagram socket that connects sends nothing */
        union socket_address own;
        socklen_t n = sizeof(own);
        int fd = socket(info->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, info->ai_addr, info->ai_addrlen) == 0 &&
            getsockname(fd, &own.any, &n) == 0) {
            own.any.sa_family == AF_INET6 ? (void)(own.v6.sin6_port = 0)
                                          : (void)(own.v4.sin_port = 0);
            *fd_out = try_listen(info->ai_family, &own.any, n);
        }
        if (fd >= 0)
            close(fd);
    }
    if (list != NULL)
        freeaddrinfo(list);
    if (*fd_out < 0)
        *fd_out = listen_anywhere(0);
    if (*fd_out < 0)
        return FAIL(ST_RETRY, "cannot listen for the other nodes: %s", strerror(errno));
    return ST_OK;
}

const char *listener_peer(int fd, char *out, size_t cap)
{
    union socket_address name;
    socklen_t n = sizeof(name);
    char host[INET6_ADDRSTRLEN] = "?", port[8];
    text_copy(out, cap, "?");
    if (getpeername(fd, &name.any, &n) != 0 ||
        getnameinfo(&name.any, n, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return out;
    text_format(out, cap, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
    return out;
}

const char *listener_local(int fd, char *out, size_t cap)
{
    static const char mapped[] = "::ffff:"; /* IPv4 at a socket for both */
    union socket_address name;
    socklen_t n = sizeof(name);
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1] = "";
    if (getsockname(fd, &name.any, &n) != 0 ||
        getnameinfo(&name.any, n, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
        host[0] = 0;
    const bool is_mapped = text_starts(host, mapped) && strchr(host, '.') != NULL;
    text_copy(out, cap, is_mapped ? host + sizeof(mapped) - 1 : host);
    return out;
}

uint64_t listener_peer_network(int fd)
{
    union socket_address name;
    socklen_t n = sizeof(name);
    uint64_t from = 0;
    if (getpeername(fd, &name.any, &n) != 0)
        return 0;
    if (name.any.sa_family == AF_INET)
        return ntohl(name.v4.sin_addr.s_addr);
    if (IN6_IS_ADDR_V4MAPPED(&name.v6.sin6_addr)) {
        const uint8_t *v4 = name.v6.sin6_addr.s6_addr + 12;
        return (uint64_t)v4[0] << 24 | (uint64_t)v4[1] << 16 | (uint64_t)v4[2] << 8 | v4[3];
    }
    memcpy(&from, name.v6.sin6_addr.s6_addr, sizeof(from));
    return from;
}
